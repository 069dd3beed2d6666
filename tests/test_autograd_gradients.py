"""Gradients that users pass, set and compute, and whose a gradient's elements are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from twins import (
    TRIANGULAR,
    KeepsResults,
    Sizes,
    dense,
    each_type,
    packed_vector,
    project,
)

from packedtri import (
    LowerTriangular,
    PackedTensor,
    UpperTriangular,
)
from packedtri._nodes import _lone_holders


@each_type
def test_gradients_that_a_user_passes_are_projected(cls, device):
    t = cls.randn(3, dtype=torch.float64, device=device, requires_grad=True)
    g = torch.randn(3, 3, dtype=torch.float64, device=device)
    for output in (t.clone(), t.mT.mT, t):
        (grad,) = torch.autograd.grad(output, t, g)
        assert type(grad) is cls
        torch.testing.assert_close(grad.to_dense(), project(cls, g))
    t.mT.backward(g)
    torch.testing.assert_close(t.grad.to_dense(), project(cls, g.mT))
    one = cls.randn(1, requires_grad=True)
    one.backward()
    assert type(one.grad) is cls and one.grad.item() == 1
    with pytest.raises(ValueError, match="gradient"):
        torch.autograd.grad(t.clone(), t, torch.ones(2, 2, dtype=torch.float64, device=device))


@each_type
def test_gradients_that_users_set_have_the_type(cls, device):
    t = cls.randn(3, dtype=torch.float64, device=device, requires_grad=True)
    g = torch.randn(3, 3, dtype=torch.float64, device=device)
    for wrong in (g, UpperTriangular.eye(3) if cls is LowerTriangular else LowerTriangular.eye(3)):
        with pytest.raises(TypeError, match=r"\[grad\].*from_dense"):
            t.grad = wrong
    t.grad = cls.from_dense(g)
    t.grad = None
    handle = t.register_hook(lambda grad: g)
    (t * 2).to_dense().sum().backward()
    assert type(t.grad) is cls
    torch.testing.assert_close(t.grad.to_dense(), project(cls, g))
    handle.remove()


@each_type
def test_one_matrix_for_many_columns_gets_one_gradient(cls, device):
    """Not one for each matrix of the batch, to be added up."""
    n, count = 12, 50
    t = cls.randn(n, dtype=torch.float64, device=device, requires_grad=True)
    twin = t.detach().to_dense().requires_grad_()
    zero = cls.zeros(0, device=device, requires_grad=True)
    (zero @ torch.ones(2, 0, 3, device=device)).sum().backward()
    assert zero.grad.shape == (0, 0)
    for shape in ((count, n, 1), (5, 10, n, 2)):
        x = torch.randn(shape, dtype=torch.float64, device=device)
        for product in (lambda a, x=x: a @ x, lambda a, x=x: x.mT @ a):
            weights = torch.randn_like(product(twin))
            (expected,) = torch.autograd.grad(product(twin), twin, weights)
            y = product(t)
            with Sizes() as sizes:
                (grad,) = torch.autograd.grad(y, t, weights)
            assert type(grad) is cls
            torch.testing.assert_close(grad.to_dense(), project(cls, expected))
            assert sizes.most <= 2 * x.numel()


# ----------------------------------------------------------------- whose a gradient's elements are


class _Marked(torch.autograd.Function):
    """The identity. Its gradient is a copy, whose address it keeps."""

    address = 0

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        own = grad.clone()
        _Marked.address = own.data_ptr()
        return own


class DenseGradient(torch.autograd.Function):
    """A function of a user's that knows nothing of gradients of types."""

    @staticmethod
    def forward(ctx: Any, t: PackedTensor, weights: Tensor) -> Tensor:
        ctx.save_for_backward(weights)
        return (t.to_dense() * weights).sum((-2, -1))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * ctx.saved_tensors[0], None


@each_type
def test_dense_gradients_of_custom_functions_are_projected(cls: type[PackedTensor]) -> None:
    t = cls.randn(3, dtype=torch.float64).requires_grad_()
    weights = torch.randn(3, 3, dtype=torch.float64)
    expected, grad = project(cls, weights), torch.autograd.grad
    close = torch.testing.assert_close
    for found in (
        grad(DenseGradient.apply(t, weights), t)[0],
        grad(DenseGradient.apply(t, weights), [t])[0],
        grad(DenseGradient.apply(t, weights), t, torch.ones(1), is_grads_batched=True)[0][0],
    ):
        assert type(found) is cls
        close(dense(found), expected)
    p = packed_vector(3)
    edge = torch.autograd.graph.get_gradient_edge(p)
    close(grad(cls(p) * 3, edge, weights), grad(cls(p) * 3, p, weights))
    DenseGradient.apply(t, weights).backward()
    assert type(t.grad) is cls and t.grad is t.grad
    close(dense(t.grad), expected)
    t.grad.zero_()
    assert not t.grad.to_dense().any()
    with pytest.raises(NotImplementedError, match=f"{cls.__name__}.*from_dense"):
        DenseGradient.apply(t, weights).backward()


@pytest.mark.skipif(
    not hasattr(Tensor, "_use_count"), reason="torch does not tell who holds a tensor"
)
@pytest.mark.parametrize("cls", TRIANGULAR)
def test_a_gradient_that_nobody_else_holds_is_not_copied(cls: type[PackedTensor]) -> None:
    t = cls(torch.randn(10)).requires_grad_()
    _Marked.apply(t.packed).square().sum().backward()
    assert t.grad.packed.data_ptr() == _Marked.address
    torch.testing.assert_close(t.grad.packed, 2 * t.packed.detach())


@pytest.mark.parametrize("cls", TRIANGULAR)
def test_gradients_share_no_elements(cls: type[PackedTensor]) -> None:
    """A gradient that goes to several places, or that somebody keeps, is added to in none."""
    weights = torch.randn(10)

    def leaf() -> PackedTensor:
        return cls(torch.randn(10)).requires_grad_()

    # Both operands of a sum get the same gradient.
    a, b = leaf(), leaf()
    for _ in range(2):
        ((a.packed + b.packed) * weights).sum().backward()
    torch.testing.assert_close(a.grad.packed, 2 * weights)
    torch.testing.assert_close(b.grad.packed, 2 * weights)

    # A hook keeps it.
    a, kept = leaf(), []
    for _ in range(2):
        p = a.packed
        p.register_hook(kept.append)
        (p * weights).sum().backward()
    for grad in kept:
        torch.testing.assert_close(grad, weights)
    torch.testing.assert_close(a.grad.packed, 2 * weights)

    # The caller keeps it: as what the backward pass began with, and as another result.
    a, seed = leaf(), weights.clone()
    for _ in range(2):
        a.packed.backward(seed)
    torch.testing.assert_close(seed, weights)
    p = a.packed
    of_packed, of_type = torch.autograd.grad((p * weights).sum(), [p, a])
    of_type.packed.zero_()
    torch.testing.assert_close(of_packed, weights)

    # It is part of a larger tensor.
    a, b = leaf(), leaf()
    for _ in range(2):
        (torch.stack([a.packed, b.packed]) * weights).sum().backward()
    torch.testing.assert_close(a.grad.packed, 2 * weights)
    torch.testing.assert_close(b.grad.packed, 2 * weights)


@pytest.mark.parametrize("context", [KeepsResults, torch.inference_mode, torch.no_grad])
def test_who_holds_a_gradient_may_be_asked_for_first_anywhere(context: Any) -> None:
    _lone_holders.cache_clear()
    t = LowerTriangular(torch.randn(10)).requires_grad_()
    total = t.packed.square().sum()
    with context():
        (grad,) = torch.autograd.grad(total, t)
    torch.testing.assert_close(grad.packed, 2 * t.packed.detach())
    test_a_gradient_that_nobody_else_holds_is_not_copied(LowerTriangular)
    test_gradients_share_no_elements(LowerTriangular)


def test_who_holds_a_gradient_may_be_asked_for_first_between_compiled_graphs() -> None:
    _lone_holders.cache_clear()

    @torch.compile(backend="eager")
    def step(t: LowerTriangular) -> Tensor:
        doubled = t * 2
        torch._dynamo.graph_break()
        total = (doubled @ torch.ones(4)).sum()
        total.backward()
        return total

    step(torch.nn.Parameter(LowerTriangular.eye(4)))
    asked_there = _lone_holders()
    _lone_holders.cache_clear()
    assert _lone_holders() == asked_there
