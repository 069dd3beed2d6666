"""Derivatives and transforms of the raw ops, for every combination of kinds."""

from __future__ import annotations

import itertools

import pytest
import torch
from derivatives import check_derivatives
from torch import Tensor
from torch.autograd import forward_ad as fwad

from packedtri.layout import DENSE, HERMITIAN, LOWER, SYMMETRIC, UPPER, numel
from packedtri.testing import densify

OPS = torch.ops.packedtri
OPERANDS = (LOWER, UPPER, SYMMETRIC, HERMITIAN, DENSE)
PRODUCTS = list(itertools.product(OPERANDS, OPERANDS, (LOWER, DENSE)))
NAMES = {
    LOWER: "lower",
    UPPER: "upper",
    SYMMETRIC: "symmetric",
    HERMITIAN: "hermitian",
    DENSE: "dense",
}
IDS = ["-".join(NAMES[k] for k in kinds) for kinds in PRODUCTS]
WIDE = (torch.float64, torch.complex128)


def operand(
    kind: int, n: int, dtype: torch.dtype, batch: tuple[int, ...] = (), **options
) -> Tensor:
    shape = (n, n) if kind == DENSE else (numel(n),)
    return torch.randn((*batch, *shape), dtype=dtype, requires_grad=True, **options)


@pytest.mark.parametrize("wide", WIDE)
@pytest.mark.parametrize("kinds", PRODUCTS, ids=IDS)
def test_mm_derivatives(kinds, wide, device):
    a_kind, b_kind, c_kind = kinds
    a, b = (operand(k, 3, wide, device=device) for k in (a_kind, b_kind))
    check_derivatives(lambda a, b: OPS.mm(a, b, 3, a_kind, b_kind, c_kind), (a, b))


@pytest.mark.parametrize(
    "batches", [((2,), ()), ((), (2,)), ((2, 1), (3,)), ((2,), (2,)), ((1, 2), (2,))]
)
@pytest.mark.parametrize("kinds", PRODUCTS, ids=IDS)
def test_mm_derivatives_broadcast_over_batches(kinds, batches, device):
    a_kind, b_kind, c_kind = kinds
    a, b = (
        operand(k, 2, torch.float64, batch, device=device)
        for k, batch in zip((a_kind, b_kind), batches, strict=True)
    )

    def f(a: Tensor, b: Tensor) -> Tensor:
        return OPS.mm(a, b, 2, a_kind, b_kind, c_kind)

    check_derivatives(f, (a, b))


@pytest.mark.parametrize("wide", WIDE)
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_mm_derivatives_of_rectangular_operands(rows, wide, device):
    t = operand(LOWER, 3, wide, device=device)
    x = torch.randn(3, rows, dtype=wide, device=device, requires_grad=True)
    for kind in (LOWER, UPPER, SYMMETRIC, HERMITIAN):
        check_derivatives(lambda t, x, kind=kind: OPS.mm(t, x, 3, kind, DENSE, DENSE), (t, x))
        check_derivatives(lambda t, x, kind=kind: OPS.mm(x.mT, t, 3, DENSE, kind, DENSE), (t, x))


# Kinds of a product, the batch of its matrix, and which operands are vectors.
VECTOR_PRODUCTS = [
    *((kind, DENSE, batch, (False, True)) for kind in OPERANDS for batch in ((), (2,))),
    *((DENSE, kind, batch, (True, False)) for kind in OPERANDS for batch in ((), (2,))),
    (DENSE, DENSE, (), (True, True)),
]


def vector_product(case, wide, device):
    """The op on a vector, its operands, and the same by dense torch."""
    a_kind, b_kind, batch, vectors = case
    n, kinds = 3, (a_kind, b_kind)
    operands = [
        torch.randn(n, dtype=wide, device=device, requires_grad=True)
        if vector
        else operand(kind, n, wide, batch, device=device)
        for kind, vector in zip(kinds, vectors, strict=True)
    ]

    def dense(a: Tensor, b: Tensor) -> Tensor:
        pair = zip((a, b), kinds, strict=True)
        return torch.matmul(*(x if k == DENSE else OPS.unpack(x, n, k) for x, k in pair))

    return lambda a, b: OPS.mm(a, b, n, a_kind, b_kind, DENSE), operands, dense


@pytest.mark.parametrize("case", VECTOR_PRODUCTS)
@pytest.mark.parametrize("wide", WIDE)
def test_mm_of_vectors(case, wide, device):
    f, operands, dense = vector_product(case, wide, device)
    torch.testing.assert_close(f(*operands), dense(*operands))
    check_derivatives(f, operands)
    torch.library.opcheck(OPS.mm.default, (*operands, 3, *case[:2], DENSE))


@pytest.mark.parametrize("case", VECTOR_PRODUCTS)
@pytest.mark.parametrize("in_dims", [(0, 0), (0, None), (None, 0), (-1, -1)])
def test_mm_of_vectors_under_vmap(case, in_dims, device):
    f, operands, dense = vector_product(case, torch.float64, device)
    mapped = [
        x if dim is None else torch.stack([x.detach() * (i + 1) for i in range(4)], dim)
        for x, dim in zip(operands, in_dims, strict=True)
    ]
    expected = torch.vmap(dense, in_dims)(*mapped)
    torch.testing.assert_close(torch.vmap(f, in_dims)(*mapped), expected)


def test_mm_of_strided_vectors(device):
    every_third = torch.randn(9, dtype=torch.float64, device=device)[::3]
    for kind in (LOWER, UPPER, SYMMETRIC, HERMITIAN):
        t = operand(kind, 3, torch.float64, (2,), device=device).detach()
        dense = OPS.unpack(t, 3, kind)
        right = OPS.mm(t, every_third, 3, kind, DENSE, DENSE)
        left = OPS.mm(every_third, t, 3, DENSE, kind, DENSE)
        torch.testing.assert_close(right, dense @ every_third)
        torch.testing.assert_close(left, every_third @ dense)


@pytest.mark.parametrize("wide", WIDE)
@pytest.mark.parametrize("kind", [LOWER, UPPER, SYMMETRIC, HERMITIAN])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_conversion_derivatives(kind, batch, wide, device):
    x = operand(DENSE, 3, wide, batch, device=device)
    p = operand(kind, 3, wide, batch, device=device)
    check_derivatives(lambda x: OPS.pack(x, kind), x)
    check_derivatives(lambda p: OPS.unpack(p, 3, kind), p)
    block = x.detach()[..., :2].requires_grad_()
    check_derivatives(lambda x: OPS.pack_block(x, 4, kind, 1, 0), block)
    check_derivatives(lambda p: OPS.unpack_block(p, 3, kind, 0, 1, 3, 2), p)
    rows = p.detach()[..., 1:].requires_grad_()
    check_derivatives(lambda p: OPS.unpack_rows(p, 1, 3), rows)
    check_derivatives(lambda x: OPS.pack_rows(x, 1), x.detach()[..., 1:, :].requires_grad_())
    for vectors in (x.detach()[..., 0, :], x.detach().flatten()[:3]):
        check_derivatives(
            lambda p, v: OPS.multiply_rows(p, v, 1, 3, kind), (rows, vectors.requires_grad_())
        )


@pytest.mark.parametrize("wide", WIDE)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_band_derivatives(batch, wide, device):
    p = operand(LOWER, 3, wide, batch, device=device)
    check_derivatives(lambda p: OPS.diagonal(p, 3, 1), p)
    line = p.detach()[..., :2].requires_grad_()
    check_derivatives(lambda x: OPS.embed_diagonal(x, 3, 1), line)
    for hermitian in (False, True):
        check_derivatives(lambda p, h=hermitian: OPS.scale_band(p, 3, 0, 0, 0.5, 3.0, h), p)


@pytest.mark.parametrize("kinds", PRODUCTS, ids=IDS)
def test_opcheck_mm(kinds, device):
    a_kind, b_kind, c_kind = kinds
    a, b = (operand(k, 4, torch.float32, (2,), device=device) for k in (a_kind, b_kind))
    torch.library.opcheck(OPS.mm.default, (a, b, 4, a_kind, b_kind, c_kind))


@pytest.mark.parametrize("kind", [LOWER, UPPER, SYMMETRIC, HERMITIAN])
def test_opcheck_conversions(kind, device):
    torch.library.opcheck(OPS.pack.default, (operand(DENSE, 4, torch.float32, device=device), kind))
    p = operand(kind, 4, torch.float32, (2,), device=device)
    torch.library.opcheck(OPS.unpack.default, (p, 4, kind))
    block = operand(DENSE, 3, torch.float32, (2,), device=device)
    torch.library.opcheck(OPS.pack_block.default, (block, 5, kind, 2, 0))
    torch.library.opcheck(OPS.unpack_block.default, (p, 4, kind, 1, 0, 2, 3))
    torch.library.opcheck(OPS.unpack_rows.default, (p, 0, 4))
    torch.library.opcheck(OPS.pack_rows.default, (block, 0))
    torch.library.opcheck(OPS.multiply_rows.default, (p, p.detach()[:, :4], 0, 4, kind))
    rows = block.detach()[:, :2]
    torch.library.opcheck(OPS.write_block_.default, (p.detach().clone(), rows, 4, kind, 1, 0))


def test_opcheck_bands(device):
    p = operand(LOWER, 4, torch.float32, (2,), device=device)
    torch.library.opcheck(OPS.diagonal.default, (p, 4, 1))
    torch.library.opcheck(OPS.embed_diagonal.default, (p, 11, 1))
    torch.library.opcheck(OPS.scale_band.default, (p, 4, 0, 1, 0.5, 2.0, True))
    torch.library.opcheck(OPS.reorder.default, (p, 0, False))


def test_bands_under_vmap(device):
    p = torch.randn(5, 2, 6, device=device)
    for f in (
        lambda x: OPS.scale_band(x, 3, 0, 0, 1.0, 0.5, False),
        lambda x: OPS.diagonal(x, 3, 1),
        lambda x: OPS.embed_diagonal(x, 7, 1),
    ):
        for dim in (0, -1):
            mapped = torch.vmap(f, in_dims=dim)(p.movedim(0, dim))
            torch.testing.assert_close(mapped, f(p))


@pytest.mark.parametrize("in_dims", [(0, 0), (1, None), (None, 0), (0, 1), (-1, 0)])
@pytest.mark.parametrize("kinds", PRODUCTS, ids=IDS)
def test_mm_under_vmap(kinds, in_dims, device):
    a_kind, b_kind, c_kind = kinds
    n, size = 3, 4
    inputs = []
    for kind, dim, batch in zip((a_kind, b_kind), in_dims, [(2,), ()], strict=True):
        x = operand(kind, n, torch.float64, batch, device=device).detach()
        copies = torch.stack([x + i for i in range(size)])
        inputs.append(x if dim is None else copies.movedim(0, dim))

    def f(a: Tensor, b: Tensor) -> Tensor:
        return OPS.mm(a, b, n, a_kind, b_kind, c_kind)

    expected = torch.stack(
        [
            f(*(x if d is None else x.select(d, i) for x, d in zip(inputs, in_dims, strict=True)))
            for i in range(size)
        ]
    )
    torch.testing.assert_close(torch.vmap(f, in_dims)(*inputs), expected)


@pytest.mark.parametrize("kinds", PRODUCTS, ids=IDS)
def test_torch_func_transforms_of_mm(kinds, device):
    a_kind, b_kind, c_kind = kinds
    n = 3
    a, b = (operand(k, n, torch.float64, device=device).detach() for k in (a_kind, b_kind))

    def ours(a: Tensor, b: Tensor) -> Tensor:
        return OPS.mm(a, b, n, a_kind, b_kind, c_kind).square().sum()

    def dense(a: Tensor, b: Tensor) -> Tensor:
        c = densify(a, n, a_kind) @ densify(b, n, b_kind)
        return (c.tril() if c_kind == LOWER else c).square().sum()

    close = torch.testing.assert_close
    for argnums in (0, 1):
        close(torch.func.grad(ours, argnums)(a, b), torch.func.grad(dense, argnums)(a, b))
        close(torch.func.hessian(ours, argnums)(a, b), torch.func.hessian(dense, argnums)(a, b))
        close(torch.func.jacrev(ours, argnums)(a, b), torch.func.jacfwd(dense, argnums)(a, b))
    stacked = torch.stack([a, a + 1])
    per_sample = torch.func.vmap(torch.func.grad(ours), (0, None))(stacked, b)
    close(per_sample, torch.stack([torch.func.grad(dense)(x, b) for x in stacked]))


def test_forward_mode_over_reverse_mode(device):
    p = operand(LOWER, 3, torch.float64, device=device)
    with fwad.dual_level():
        dual = fwad.make_dual(p, torch.ones_like(p))
        out = OPS.mm(dual, dual, 3, LOWER, LOWER, LOWER).square().sum()
        (g,) = torch.autograd.grad(out, p, create_graph=True)
        tangent = fwad.unpack_dual(g).tangent
    f = lambda p: OPS.mm(p, p, 3, LOWER, LOWER, LOWER).square().sum()  # noqa: E731
    expected = torch.func.hessian(f)(p.detach()) @ torch.ones_like(p)
    torch.testing.assert_close(tangent, expected)


def test_only_what_a_gradient_needs_is_saved(device):
    a, b = (operand(LOWER, 4, torch.float64, device=device) for _ in range(2))
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        OPS.mm(a, b.detach(), 4, LOWER, LOWER, LOWER)
    assert [t.data_ptr() for t in saved] == [b.data_ptr()]


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
def test_autocast_casts_as_torch_does(low, device):
    a = operand(LOWER, 5, torch.float32, device=device)
    x = operand(DENSE, 5, torch.float32, device=device)
    with torch.autocast(device, dtype=low):
        ours = OPS.mm(a, x, 5, LOWER, DENSE, DENSE)
        theirs = torch.mm(densify(a, 5, LOWER), x)
        assert OPS.mm(a.double(), x.double(), 5, LOWER, DENSE, DENSE).dtype == torch.float64
    assert ours.dtype == theirs.dtype == low
    ours.sum().backward()
    assert a.grad is not None and a.grad.dtype == torch.float32
    torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)


def test_compiled_autograd_tells_products_apart(device):
    """Two products that differ in kinds alone must not share a compiled backward."""
    a, b = (operand(LOWER, 3, torch.float64, device=device) for _ in range(2))

    def grads() -> list[Tensor]:
        found = []
        for kinds in ((LOWER, LOWER, LOWER), (LOWER, UPPER, DENSE), (UPPER, UPPER, DENSE)):
            out = OPS.mm(a, b, 3, *kinds).square().sum()
            found += torch.autograd.grad(out, (a, b))
        return found

    expected = grads()
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        compiled = grads()
    torch.testing.assert_close(compiled, expected)


@pytest.mark.parametrize("kind", [LOWER, UPPER, DENSE])
def test_gradient_of_a_weight_makes_no_copy_for_each_row_of_a_batch(kind, device):
    """The sum over a batch happens inside one product, as in a linear layer."""
    from torch.utils._python_dispatch import TorchDispatchMode

    shapes = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if "packedtri" in str(func):
                shapes.append(out.shape)
            return out

    w = operand(kind, 4, torch.float64, device=device)
    x = torch.randn(5, 6, 4, dtype=torch.float64, device=device)
    out = OPS.mm(x, w, 4, DENSE, kind, DENSE)
    with Record():
        torch.autograd.grad(out, w, torch.ones_like(out))
    assert shapes == [w.shape]
