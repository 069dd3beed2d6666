"""Cholesky factors of matrices that gain or lose rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from derivatives import check_derivatives
from systems import dense, wide
from torch import Tensor
from twins import called, peak_bytes
from twins import wide as each_wide

from packedtri import (
    Hermitian,
    LowerTriangular,
    Symmetric,
    UpperTriangular,
    cholesky_delete,
    cholesky_insert,
    herk,
)
from packedtri.testing import epsilon, wide_dtype

LinAlgError = torch.linalg.LinAlgError
BATCHES = [(), (0,), (1,), (3, 2)]


def definite(n: int, dtype: torch.dtype, batch: tuple[int, ...], device: str) -> Tensor:
    """Dense positive definite matrices of moderate condition."""
    x = torch.randn(*batch, n, n, dtype=wide_dtype(dtype), device=device) / max(n, 1) ** 0.5
    return x @ x.mH + torch.eye(n, device=device)


def factor(a: Tensor, dtype: torch.dtype) -> LowerTriangular:
    return LowerTriangular.from_dense(torch.linalg.cholesky(a).to(dtype))


def blocks(a: Tensor, p: int, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """The matrix without the rows from p on, what these share with it, and they alone."""
    n = a.shape[-1]
    kept = [*range(p), *range(p + k, n)]
    rest = a[..., kept, :][..., :, kept]
    return rest, a[..., p : p + k, kept], a[..., p : p + k, p : p + k]


def assert_factor(ours: LowerTriangular, a: Tensor, dtype: torch.dtype, case: str) -> None:
    expected = torch.linalg.cholesky(a)
    assert type(ours) is LowerTriangular and ours.shape == a.shape and ours.dtype == dtype, case
    if a.numel():
        error = (wide(ours) - expected).norm() / expected.norm()
        assert error < 60 * epsilon(dtype), f"{case}: {error / epsilon(dtype)} epsilon"


@pytest.mark.parametrize("batch", BATCHES)
def test_rows_come_and_go(batch, dtype, device):
    for n, k in ((1, 1), (2, 1), (5, 2), (33, 3), (40, 17), (6, 0), (4, 4)):
        a = definite(n, dtype, batch, device)
        for p in {0, 1, (n - k) // 2, n - k} & set(range(n - k + 1)):
            rest, b, c = blocks(a, p, k)
            L = factor(rest, dtype)
            case = f"n={n} k={k} p={p}"
            grown = cholesky_insert(L, b.to(dtype), c.to(dtype), at=p)
            assert_factor(grown, a, dtype, case)
            if p == n - k:
                last = cholesky_insert(L, b.to(dtype), c.to(dtype))
                assert torch.equal(last.packed, grown.packed)
                assert torch.equal(last.packed[..., : L.packed.shape[-1]], L.packed)
            shrunk = cholesky_delete(factor(a, dtype), slice(p, p + k))
            assert_factor(shrunk, rest, dtype, case)
            if k == 1:
                for row in (p, p - n):
                    one = cholesky_delete(factor(a, dtype), row)
                    assert torch.equal(one.packed, shrunk.packed)


@pytest.mark.parametrize("cls", [Symmetric, Hermitian])
def test_types_of_the_new_corner(cls, device):
    dtype = torch.complex128 if cls is Hermitian else torch.float64
    a = definite(7, dtype, (2,), device)
    rest, b, c = blocks(a, 3, 2)
    L = factor(rest, dtype)
    ours = cholesky_insert(L, b, cls.from_dense(c), at=3)
    torch.testing.assert_close(ours.packed, cholesky_insert(L, b, c, at=3).packed)
    # Of a dense corner the lower triangle is read.
    poisoned = c.tril() + torch.full_like(c, 1e9).triu(1)
    torch.testing.assert_close(ours.packed, cholesky_insert(L, b, poisoned, at=3).packed)


def test_batches_broadcast(device):
    a = definite(6, torch.float64, (), device)
    rest, b, c = blocks(a, 2, 2)
    L, many = factor(rest, torch.float64), b.expand(3, 1, 2, 4)
    ours = cholesky_insert(L, many, c.expand(5, 2, 2), at=2)
    assert ours.shape == (3, 5, 6, 6)
    torch.testing.assert_close(ours[1, 2].packed, cholesky_insert(L, b, c, at=2).packed)


@each_wide
@pytest.mark.parametrize("at", [0, 1, 3])
def test_derivatives(at, wide, device):
    rest, b, _ = blocks(definite(5, wide, (2,), device), at, 2)
    L = factor(rest, wide)

    def insert(p: Tensor, b: Tensor, x: Tensor) -> Tensor:
        corner = herk(x).add_diagonal(4)
        return cholesky_insert(LowerTriangular(p), b, corner, at=at).packed

    x = torch.randn(2, 2, 2, dtype=wide, device=device)
    inputs = [t.detach().clone().requires_grad_() for t in (L.packed, b, x)]
    check_derivatives(insert, inputs)

    def delete(p: Tensor) -> Tensor:
        return cholesky_delete(LowerTriangular(p), slice(at % 3, at % 3 + 1)).packed

    check_derivatives(delete, inputs[:1])


def test_transforms_and_compile(device):
    rest, b, c = blocks(definite(5, torch.float64, (3,), device), 1, 2)
    packed = factor(rest, torch.float64).packed

    def insert(p: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return cholesky_insert(LowerTriangular(p), b, c, at=1).packed

    expected = insert(packed, b, c)
    torch.testing.assert_close(torch.vmap(insert)(packed, b, c), expected)
    compiled = torch.compile(insert, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(packed, b, c), expected)


def test_growth_at_the_end_copies_the_factor(device):
    """No other op than the copy sees all of it but the solve."""
    n = 40
    L = LowerTriangular.eye(n, device=device)
    b, c = torch.zeros(1, n, device=device), torch.ones(1, 1, device=device)
    ops = called(lambda: cholesky_insert(L, b, c))
    assert not any("update" in op or "unpack_block" in op for op in ops)


@pytest.mark.parametrize("at", [0, 600, 1200])
def test_scratch_memory_is_a_few_triangles(at, device):
    n = 1201
    L = LowerTriangular.eye(n, device=device)
    b, c = torch.zeros(1, n, device=device), torch.ones(1, 1, device=device)
    for call in (lambda: cholesky_delete(L, at), lambda: cholesky_insert(L, b, c, at=at)):
        assert peak_bytes(call) < 4 * L.packed.nbytes


def test_strips_of_rows(device):
    """Matrices of more rows than a strip has, in batches, with gradients."""
    a = definite(600, torch.float64, (2,), device)
    rest, b, c = blocks(a, 20, 3)
    p, q = (factor(x, torch.float64).packed.requires_grad_() for x in (a, rest))
    grown = cholesky_insert(LowerTriangular(q), b, c, at=20).packed
    torch.testing.assert_close(grown, p)
    # A factor that is made larger and then smaller again stays what it was.
    back = cholesky_delete(LowerTriangular(grown), slice(20, 23)).packed
    torch.testing.assert_close(back, q)
    weights = torch.randn_like(back)
    (grad,) = torch.autograd.grad((back * weights).sum(), q)
    torch.testing.assert_close(grad, weights)


def test_what_is_not_positive_definite_raises(device):
    L = LowerTriangular.eye(4, device=device)
    b, c = torch.zeros(2, 4, device=device), torch.eye(2, device=device)
    c[1, 1] = -1
    with pytest.raises(LinAlgError, match=r"cholesky_insert.*minor of order 6"):
        cholesky_insert(L, b, c)
    with pytest.raises(LinAlgError, match=r"cholesky_insert.*minor of order 3"):
        cholesky_insert(L, b, c, at=1)
    b[0, 2] = 2
    with pytest.raises(LinAlgError, match=r"cholesky_insert.*minor of order 5"):
        cholesky_insert(L, b, torch.eye(2, device=device), at=0)


def test_autocast_and_tf32_leave_the_precision(device):
    a = definite(30, torch.float32, (), device)
    rest, b, c = blocks(a, 10, 5)
    L = factor(rest, torch.float32)
    with torch.autocast(device, dtype=torch.bfloat16):
        torch.set_float32_matmul_precision("medium")
        ours = cholesky_insert(L, b.float(), c.float(), at=10)
    assert_factor(ours, a, torch.float32, "autocast")


def test_bad_arguments():
    L, b, c = LowerTriangular.eye(3), torch.zeros(2, 3), torch.eye(2)
    cases = [
        (TypeError, "LowerTriangular factor; got UpperTriangular", (L.mT, b, c)),
        (TypeError, "tensor for B; got list", (L, [1.0], c)),
        (TypeError, "tensor for C; got float", (L, b, 1.0)),
        (TypeError, "Hermitian or dense C; got Upper", (L, b, UpperTriangular.eye(2))),
        (TypeError, "integer for at; got float", (L, b, c, 1.5)),
        (TypeError, "integer for at; got bool", (L, b, c, True)),
        (IndexError, "at from 0 to 3; got 4", (L, b, c, 4)),
        (IndexError, "at from 0 to 3; got -1", (L, b, c, -1)),
        (ValueError, r"B of shape \(..., k, 3\)", (L, b[0], c)),
        (ValueError, r"B of shape \(..., k, 3\)", (L, b[:, :2], c)),
        (ValueError, r"C of shape \(..., k, k\)", (L, b, torch.eye(3))),
        (ValueError, r"of torch.float32 on cpu.*torch.float64", (L, b.double(), c)),
        (ValueError, r"of torch.float32 on cpu.*meta", (L, b, c.to("meta"))),
        (ValueError, "batch dimensions that broadcast", (L, b.expand(2, 2, 3), c.expand(3, 2, 2))),
    ]
    for error, message, args in cases:
        with pytest.raises(error, match=rf"\[cholesky_insert\].*{message}"):
            cholesky_insert(*args)
    for error, message, index in (
        (TypeError, "integer or a slice; got list", [0]),
        (TypeError, "integer or a slice; got bool", True),
        (ValueError, "slice without a step", slice(0, 3, 2)),
        (IndexError, "row from -3 to 2; got 3", 3),
        (IndexError, "row from -3 to 2; got -4", -4),
    ):
        with pytest.raises(error, match=rf"\[cholesky_delete\].*{message}"):
            cholesky_delete(L, index)
    with pytest.raises(TypeError, match=r"\[cholesky_delete\].*got Symmetric"):
        cholesky_delete(Symmetric.eye(3), 0)
    for one in (np.int64(1), torch.tensor(1)):
        assert torch.equal(cholesky_delete(L, one).packed, cholesky_delete(L, 1).packed)
        grown = cholesky_insert(L, b, c, at=one)
        assert torch.equal(grown.packed, cholesky_insert(L, b, c, at=1).packed)
    meta = [t.to("meta") for t in (L, b, c)]
    assert cholesky_insert(*meta, at=1).shape == (5, 5) and cholesky_delete(meta[0], 1).n == 2
    same = cholesky_delete(L, slice(2, 1))
    assert same is not L and torch.equal(dense(same), dense(L))
    assert cholesky_delete(L, slice(None)).shape == (0, 0)
