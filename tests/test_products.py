"""Products of packed types with each other, with dense matrices and with vectors."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from packedtri import Hermitian, LowerTriangular, PackedTensor, Symmetric, UpperTriangular, layout
from packedtri.testing import assert_product_close, densify, random, random_integers

TRIANGULAR = (LowerTriangular, UpperTriangular)
TYPES = (*TRIANGULAR, Symmetric, Hermitian)
SIZES = (0, 1, 2, 3, 7, 31, 33, 64, 65)
BATCHES = [
    ((), ()),
    ((1,), (3,)),
    ((3,), ()),
    ((), (3,)),
    ((2, 1), (3,)),
    ((2, 3), (2, 3)),
    ((0,), (1,)),
]


def make(cls, n, dtype, batch=(), device="cpu", rng=None) -> PackedTensor:
    return cls(random((*batch, layout.numel(n)), dtype, device, rng))


def dense(t: Tensor) -> Tensor:
    return densify(t._packed, t.n, t.kind) if isinstance(t, PackedTensor) else t


def part_of(c: Tensor) -> str:
    return {LowerTriangular: "lower", UpperTriangular: "upper"}.get(type(c), "full")


def result_type(a: type, b: type) -> type:
    return a if a is b and a in TRIANGULAR else Tensor


@pytest.mark.parametrize(
    "types", itertools.product(TYPES, TYPES), ids=lambda p: "-".join(t.__name__ for t in p)
)
def test_packed_times_packed(types, dtype, device, rng):
    for n in SIZES:
        for batches in BATCHES if n in (3, 7) else [((), ())]:
            a, b = (make(t, n, dtype, s, device, rng) for t, s in zip(types, batches, strict=True))
            c = a @ b
            assert type(c) is result_type(*types)
            assert_product_close(
                dense(c), dense(a), dense(b), part=part_of(c), case=f"n={n} {batches}"
            )


@pytest.mark.parametrize("cls", TYPES)
def test_packed_times_dense_and_dense_times_packed(cls, dtype, device, rng):
    for n, m in itertools.product((0, 1, 3, 17, 33), (0, 1, 5, 34)):
        for batches in BATCHES if (n, m) == (3, 5) else [((), ())]:
            a = make(cls, n, dtype, batches[0], device, rng)
            x = random((*batches[1], n, m), dtype, device, rng)
            y = random((*batches[1], m, n), dtype, device, rng)
            for left, right in ((a, x), (y, a), (a, y.mT), (x.mT, a)):
                c = left @ right
                assert type(c) is Tensor
                assert_product_close(c, dense(left), dense(right), case=f"n={n} m={m} {batches}")


@pytest.mark.parametrize("cls", TYPES)
def test_vectors(cls, dtype, device, rng):
    for n, batch in itertools.product((0, 1, 3, 33), ((), (2,), (2, 3))):
        a, v = make(cls, n, dtype, batch, device, rng), random((n,), dtype, device, rng)
        assert_product_close((a @ v)[..., None], dense(a), v[:, None])
        assert_product_close((v @ a)[..., None, :], v[None], dense(a))
        if not batch:
            assert torch.equal(torch.mv(a, v), a @ v) and torch.equal(a.mv(v), a @ v)


@pytest.mark.parametrize("cls", TYPES)
def test_every_name_of_the_product(cls, dtype, device, rng):
    a, b = (make(cls, 5, dtype, (), device, rng) for _ in range(2))
    x = random((5, 5), dtype, device, rng)
    for left, right in ((a, b), (a, x), (x, a)):
        c = left @ right
        assert type(c) is result_type(type(left), type(right))
        for other in (
            torch.matmul(left, right),
            torch.matmul(input=left, other=right),
            torch.mm(left, right),
            torch.mm(left, mat2=right),
            left.matmul(right),
            left.mm(right),
            torch.linalg.matmul(left, right),
            Tensor.__matmul__(left, right),
            Tensor.__rmatmul__(right, left),
            torch.nn.Parameter(left) @ right,
        ):
            assert type(other) is type(c) and torch.equal(dense(other), dense(c))
    batched = [make(cls, 5, dtype, (3,), device, rng) for _ in range(2)]
    assert torch.equal(torch.bmm(*batched), batched[0] @ batched[1])
    assert torch.equal(batched[0].bmm(batched[1]), batched[0] @ batched[1])
    f = torch.nn.functional.linear
    torch.testing.assert_close(f(x, a), x @ dense(a).mT, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("cls", TYPES)
def test_gradients_of_products_without_elements(cls, device):
    """Batches of dense matrices on the left, whose rows become one tall matrix."""
    for n, shape in ((0, (2, 3, 0)), (0, (2, 0, 3, 0)), (4, (2, 0, 4)), (4, (0, 3, 4))):
        x = torch.ones(shape, device=device, requires_grad=True)
        for f in (torch.matmul, torch.nn.functional.linear):
            t = cls.zeros(n, requires_grad=True, device=device)
            f(x, t).sum().backward()
            assert type(t.grad) is cls and torch.equal(t.grad, torch.zeros_like(t))
            assert x.grad.shape == x.shape


def test_the_sum_runs_over_the_columns_between_j_and_i(device):
    """With powers of two for elements, a wrong range of the sum shows in the bits of the result."""
    n = 6
    a = LowerTriangular(torch.ones(layout.numel(n), dtype=torch.float64, device=device))
    b = LowerTriangular.from_dense(
        (2.0 ** torch.arange(n, dtype=torch.float64, device=device))[:, None].expand(n, n)
    )
    c = (a @ b).to_dense()
    for i in range(n):
        for j in range(i + 1):
            assert c[i, j] == sum(2.0**k for k in range(j, i + 1)), (i, j)


@pytest.mark.parametrize("cls", TRIANGULAR)
def test_integer_products_are_exact_and_operands_keep_their_order(cls, dtype, device, rng):
    a, b = (cls(random_integers((layout.numel(9),), dtype, device, rng)) for _ in range(2))
    assert torch.equal(dense(a @ b), dense(a) @ dense(b))
    assert not torch.equal(dense(a @ b), dense(b) @ dense(a))


@pytest.mark.parametrize("cls", TRIANGULAR)
def test_structural_zeros_do_not_carry_nan(cls, device):
    """A zero that is not stored is not multiplied, so nan and inf opposite to it stay out."""
    a = cls.eye(4, device=device)
    x = torch.ones(4, 4, device=device)
    row = 3 if cls is LowerTriangular else 0
    x[row] = torch.nan
    assert (a @ x).isnan().sum() == 4


def test_products_of_views(dtype, device, rng):
    a = make(LowerTriangular, 7, dtype, (2,), device, rng)
    b = make(LowerTriangular, 7, dtype, (2,), device, rng)
    for left, right in ((a.mT, b), (a, b.mT), (a.mT, b.mT), (a, a.mT), (a.mH, a), (a.conj(), b)):
        c = left @ right
        assert_product_close(dense(c), left.to_dense(), right.to_dense(), part=part_of(c))
    assert torch.equal((a @ b).mT, b.mT @ a.mT)


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
def test_autocast(low, device):
    a = LowerTriangular.randn(9, device=device, requires_grad=True)
    x = torch.randn(9, 3, device=device)
    with torch.autocast(device, dtype=low):
        c, y = a @ a, a @ x
        mixed = a @ x.to(low)
    assert type(c) is LowerTriangular and c.dtype == y.dtype == mixed.dtype == low
    torch.testing.assert_close(y.float(), dense(a.detach()) @ x, rtol=3e-2, atol=3e-2)
    (c.to_dense().float().sum() + y.float().sum()).backward()
    assert type(a.grad) is LowerTriangular and a.grad.dtype == torch.float32


@pytest.mark.parametrize("cls", [LowerTriangular, Symmetric])
def test_no_dense_matrix_is_made_but_the_result(cls, device):
    """Counted by torch: no other tensor of a product and its gradients has n x n elements."""
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            seen.append((str(func), out.numel() if isinstance(out, Tensor) else 0))
            return out

    a, b = (cls.randn(32, device=device, requires_grad=True) for _ in range(2))
    x = torch.randn(32, 3, device=device, requires_grad=True)
    with Record():
        c = torch.ops.packedtri.mm(a.packed, b.packed, 32, cls.kind, cls.kind, 0)
        torch.autograd.grad(c, (a, b), torch.ones_like(c))
        y = a @ x
        torch.autograd.grad(y, (a, x), torch.ones_like(y))
    large = [n for op, n in seen if "detach" not in op and n > layout.numel(32)]
    assert any("mm" in op for op, _ in seen) and not large
