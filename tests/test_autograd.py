"""Autograd through the types: conventions, both directions of construction, orders and modes."""

from __future__ import annotations

import itertools

import pytest
import torch
from derivatives import check_derivatives
from torch import Tensor
from torch.autograd import forward_ad as fwad
from twins import (
    MIRRORED,
    TYPES,
    each_type,
    packed_vector,
    project,
    weighted_sum,
    wide,
)

from packedtri import (
    LowerTriangular,
    PackedTensor,
)
from packedtri.testing import densify


@wide
@each_type
def test_gradient_is_a_type_and_the_frobenius_projection(cls, wide, device):
    t = cls.randn(2, 4, dtype=wide, device=device, requires_grad=True)
    x = t.detach().to_dense().requires_grad_()
    for value in (t.to_dense(), x):
        (weighted_sum(value) + weighted_sum(value.mT @ value)).backward()
    assert type(t.grad) is cls
    torch.testing.assert_close(t.grad.to_dense(), project(cls, x.grad))
    t.to_dense().real.sum().backward()
    assert type(t.grad) is cls


@wide
@each_type
def test_gradient_of_a_packed_vector(cls, wide, device):
    """In packed coordinates each stored element moves all the elements that it stands for."""
    p = packed_vector(4, wide, (2,), device)
    q = p.detach().clone().requires_grad_()
    t = cls(p)
    assert not t.is_leaf and t.requires_grad
    weighted_sum(t.to_dense()).backward()
    weighted_sum(densify(q, 4, cls.kind)).backward()
    assert type(p.grad) is Tensor
    torch.testing.assert_close(p.grad, q.grad)


@each_type
def test_packed_is_differentiable(cls, device):
    t = cls.randn(4, dtype=torch.float64, device=device, requires_grad=True)
    weights = torch.randn(10, dtype=torch.float64, device=device)
    (t.packed * weights).sum().backward()
    expected = weights.clone()
    if cls in MIRRORED:
        diagonal = torch.tensor([0, 2, 5, 9], device=device)
        expected = weights / 2
        expected[diagonal] = weights[diagonal]
    torch.testing.assert_close(t.grad.packed, expected)


@each_type
def test_wrapping_and_unwrapping_is_the_identity_for_gradients(cls, device):
    p = packed_vector(4, device=device)
    weights = torch.randn(10, dtype=torch.float64, device=device)
    (cls(p).packed * weights).sum().backward()
    torch.testing.assert_close(p.grad, weights)


@wide
@each_type
def test_gradient_of_from_dense(cls, wide, device):
    x = torch.randn(3, 3, dtype=wide, device=device, requires_grad=True)
    f = lambda x: cls.from_dense(x).to_dense()  # noqa: E731
    check_derivatives(f, (x,))


PAIRS = list(itertools.product((*TYPES, Tensor), repeat=2))[:-1]


@wide
@pytest.mark.parametrize("types", PAIRS, ids=["-".join(t.__name__ for t in p) for p in PAIRS])
def test_products(types, wide, device):
    """Both orders of derivatives and forward mode, over packed vectors."""
    n = 3
    inputs = [
        torch.randn(n, n, dtype=wide, device=device, requires_grad=True)
        if cls is Tensor
        else packed_vector(n, wide, (), device)
        for cls in types
    ]

    def f(a: Tensor, b: Tensor) -> Tensor:
        a, b = (x if cls is Tensor else cls(x) for x, cls in zip((a, b), types, strict=True))
        c = a @ b
        return c.packed if isinstance(c, PackedTensor) else c

    check_derivatives(f, inputs)


@each_type
def test_gradients_of_leaf_types_through_products(cls, device):
    a, b = (
        cls.randn(2, 4, dtype=torch.float64, device=device, requires_grad=True) for _ in range(2)
    )
    x = torch.randn(4, 3, dtype=torch.float64, device=device, requires_grad=True)
    twins = [t.detach().to_dense().requires_grad_() for t in (a, b)]
    y = x.detach().requires_grad_()

    def f(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
        c = a @ b @ a.mT
        c = c.to_dense() if isinstance(c, PackedTensor) else c
        return weighted_sum(c @ x) + weighted_sum((a @ x).square())

    f(a, b, x).backward()
    f(*twins, y).backward()
    for t, d in zip((a, b), twins, strict=True):
        assert type(t.grad) is cls
        torch.testing.assert_close(t.grad.to_dense(), project(cls, d.grad))
    torch.testing.assert_close(x.grad, y.grad)


@each_type
def test_second_derivatives_over_leaf_types(cls, device):
    t = cls.randn(3, dtype=torch.float64, device=device, requires_grad=True)
    x = t.detach().to_dense().requires_grad_()

    def second(t: Tensor) -> Tensor:
        y = t @ t
        y = y.to_dense() if isinstance(y, PackedTensor) else y
        (g,) = torch.autograd.grad(weighted_sum(y.square()), t, create_graph=True)
        g = g.to_dense() if isinstance(g, PackedTensor) else project(cls, g)
        return torch.autograd.grad(weighted_sum(g), t)[0]

    ours, theirs = second(t), second(x)
    assert type(ours) is cls
    torch.testing.assert_close(ours.to_dense(), project(cls, theirs))


@each_type
def test_forward_mode_over_types(cls, device):
    t, tangent = (cls.randn(3, dtype=torch.float64, device=device) for _ in range(2))
    x = torch.randn(3, 3, dtype=torch.float64, device=device)
    f = lambda t: t @ t.mT @ x  # noqa: E731
    with fwad.dual_level():
        out = fwad.unpack_dual(f(fwad.make_dual(t, tangent))).tangent
        typed = fwad.unpack_dual(fwad.make_dual(t, tangent) * 2)
        assert type(typed.tangent) is cls
        torch.testing.assert_close(typed.tangent.to_dense(), 2 * tangent.to_dense())
    expected = torch.func.jvp(f, (t.to_dense(),), (tangent.to_dense(),))[1]
    torch.testing.assert_close(out, expected)
    with fwad.dual_level(), pytest.raises(TypeError, match="tangent"):
        fwad.make_dual(t, x)


@each_type
def test_flags_of_the_packed_vector_and_of_the_type_are_apart(cls, device):
    p = packed_vector(3, device=device).detach()
    t = cls(p)
    p.requires_grad_()
    assert not t.requires_grad and not t.packed.requires_grad
    t.packed.requires_grad_()
    t.detach().packed.requires_grad_()
    assert not t.requires_grad and not t.packed.requires_grad and not (t @ t).requires_grad


@each_type
def test_no_grad_detach_and_hooks(cls, device):
    p = packed_vector(3, device=device)
    with torch.no_grad():
        t = cls(p)
    assert not t.requires_grad and not t.packed.requires_grad
    assert not cls(p).detach().packed.requires_grad
    seen = []
    t = cls.randn(3, dtype=torch.float64, device=device, requires_grad=True)
    t.register_hook(lambda g: seen.append(type(g)))
    t.register_post_accumulate_grad_hook(lambda t: seen.append(type(t.grad)))
    u = t * 2
    u.retain_grad()
    weighted_sum(u.to_dense()).backward()
    assert seen == [cls, cls] and type(u.grad) is cls
    with torch.autograd.detect_anomaly(check_nan=True):
        weighted_sum((t @ t).to_dense()).backward()


@each_type
def test_edges_of_the_graph_and_hooks_for_many_tensors(cls, device):
    t = cls.randn(3, dtype=torch.float64, device=device, requires_grad=True)
    u = t * 2
    out = weighted_sum((u @ u).to_dense())
    tensors, seen = [t, u], []
    edges = [torch.autograd.graph.get_gradient_edge(x) for x in tensors]
    expected = torch.autograd.grad(out, tensors, retain_graph=True)
    through_edges = torch.autograd.grad(out, edges, retain_graph=True)
    torch.autograd.graph.register_multi_grad_hook(tensors, seen.extend)
    out.backward()
    assert len(seen) == 2
    for found in (through_edges, seen):
        for ours, theirs in zip(found, expected, strict=True):
            assert type(ours) is cls
            torch.testing.assert_close(ours.packed, theirs.packed)


def test_checkpointing_and_saved_tensor_hooks(device):
    a = LowerTriangular.randn(4, dtype=torch.float64, device=device, requires_grad=True)
    f = lambda a: (a @ a @ a).to_dense().square().sum()  # noqa: E731
    (expected,) = torch.autograd.grad(f(a), a)
    out = torch.utils.checkpoint.checkpoint(f, a, use_reentrant=False)
    torch.testing.assert_close(torch.autograd.grad(out, a)[0].packed, expected.packed)
    with torch.autograd.graph.save_on_cpu():
        out = f(a)
    torch.testing.assert_close(torch.autograd.grad(out, a)[0].packed, expected.packed)


@each_type
def test_products_of_many_rows_may_be_changed_in_place(cls, device):
    """They are computed as one product, but must not be views of its result."""
    t = cls.randn(5, device=device, requires_grad=True)
    x = t.detach().to_dense().requires_grad_()
    rows, columns = torch.randn(3, 4, 5, device=device), torch.randn(3, 5, 2, device=device)
    products = (
        lambda t: rows @ t,
        lambda t: torch.nn.functional.linear(rows, t),
        lambda t: torch.inner(rows, t),
        lambda t: torch.bmm(rows, t.expand(3, 5, 5)),
        lambda t: t @ columns,
        lambda t: t @ columns[..., :1],
    )
    for product in products:
        weighted_sum(product(t).add_(1).mul_(2)).backward()
        weighted_sum(product(x).add_(1).mul_(2)).backward()
    torch.testing.assert_close(t.grad.to_dense(), project(cls, x.grad))
