"""The two autograd nodes between a packed type and its plain packed tensor.

Autograd tracks the type; the tensor inside is plain and detached. ``to_packed`` and ``from_packed``
lead from one to the other and back, so that everything between them is ordinary autograd on plain
tensors.

The gradient of a type is the Frobenius projection on its structure, so that it compares with the
gradient of a dense twin. In packed coordinates an off-diagonal element of a Symmetric stands for
two elements and its derivative is twice as large; these nodes carry that factor, and nothing else
does.

Under torch.func the tensor inside is a wrapper of functorch's that carries the derivatives itself.
Then both functions leave it as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.autograd import forward_ad

from packedtri import layout
from packedtri._autograd import forward_mode

if TYPE_CHECKING:
    from packedtri.tensor import PackedTensor

P = TypeVar("P", bound="PackedTensor")

_any_requires_grad = torch._C._any_requires_grad
_is_functorch_wrapped = torch._C._functorch.is_functorch_wrapped_tensor


def carries_autograd(inner: Tensor) -> bool:
    """Whether the tensor inside a type takes part in a torch.func transform itself."""
    # Dynamo cannot trace the question; it never meets such tensors.
    return not torch.compiler.is_compiling() and _is_functorch_wrapped(inner)


def to_packed(t: PackedTensor) -> Tensor:
    """The plain packed tensor of a packed type, differentiably.

    Args:
        t: shape (*batch, n, n).

    Returns:
        shape (*batch, n(n+1)/2). It shares the storage of ``t``.
    """
    if forward_mode():
        return _to_packed_dual(t)
    return _to_packed_plain(t)


def from_packed(cls: type[P], packed: Tensor, n: int) -> P:
    """The packed type over a plain packed tensor, differentiably.

    Args:
        cls: the type.
        packed: shape (*batch, n(n+1)/2). The result shares its storage.
        n: order.

    Returns:
        shape (*batch, n, n).
    """
    if torch.compiler.is_dynamo_compiling():
        # Dynamo puts a call of the class into its graph, and cannot trace what the call does.
        return cls(packed)
    if not packed.requires_grad and not forward_mode():
        return cls._wrap(packed, n)
    if carries_autograd(packed):
        return cls._wrap(packed, n)
    if forward_mode():
        return _from_packed_dual(cls, packed, n)
    if torch.is_grad_enabled():
        return _apply(_FromPacked, packed, cls, n)
    return cls._wrap(packed.detach(), n)


def alias(packed: Tensor) -> Tensor:
    """Another tensor over the same elements, where that changes no derivative.

    A user's tensor and the one inside a type are kept apart by it: ``requires_grad_()`` on either
    must not reach the other.
    """
    if packed.requires_grad or forward_mode() or carries_autograd(packed):
        return packed
    return packed.detach()


def _apply(node: Any, *args: Any) -> Any:
    """``node.apply`` on tensors that no torch.func transform has wrapped.

    Such tensors are constants to every transform under way, and their node belongs outside of all.
    """
    if torch.compiler.is_compiling() or torch._C._functorch.maybe_current_level() is None:
        return node.apply(*args)
    with temporarily_clear_interpreter_stack():
        return node.apply(*args)


def project(cls: type[P], grad: Tensor, n: int) -> Tensor:
    """Gradient with respect to the packed vector, from one with respect to the n x n matrix."""
    if isinstance(grad, cls):
        packed = to_packed(grad)
        return scale_off_diagonal(packed, 2.0, n) if cls.kind == layout.SYMMETRIC else packed
    if hasattr(grad, "_packed"):
        grad = grad.to_dense()
    return torch.ops.packedtri.pack(grad, cls.kind)


def diagonal_index(n: int, device: torch.device) -> Tensor:
    """Positions of the diagonal elements in packed order, shape (n,)."""
    i = torch.arange(n, device=device)
    return i * (i + 3) // 2


def scale_off_diagonal(packed: Tensor, factor: float, n: int) -> Tensor:
    """Multiply all elements but those on the diagonal, shape (*batch, n(n+1)/2)."""
    index = diagonal_index(n, packed.device)
    return (packed * factor).index_copy(-1, index, packed.index_select(-1, index))


class _ToPacked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, t: PackedTensor) -> Tensor:
        ctx.cls, ctx.n = type(t), t.n
        ctx.set_materialize_grads(False)
        # Autograd attaches the node to what is returned, which must not be the tensor inside t.
        return t._packed.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> PackedTensor | None:
        if grad is None:
            return None
        # The engine adds in place to a gradient that nobody else holds, and sees only who holds the
        # type. So its elements must be its own: the gradient of a sum, say, reaches each operand.
        if ctx.cls.kind == layout.SYMMETRIC:
            grad = scale_off_diagonal(grad, 0.5, ctx.n)
        else:
            grad = grad.clone(memory_format=torch.contiguous_format)
        return from_packed(ctx.cls, grad, ctx.n)


class _FromPacked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, packed: Tensor, cls: type[PackedTensor], n: int) -> PackedTensor:
        ctx.cls, ctx.n = cls, n
        ctx.set_materialize_grads(False)
        return cls._wrap(packed.detach(), n)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, None, None]:
        return (None if grad is None else project(ctx.cls, grad, ctx.n)), None, None


def _requires_grad(t: PackedTensor) -> bool:
    if torch.compiler.is_compiling():
        return t.requires_grad
    # The attribute would take the way through __torch_function__, at six times the cost.
    return _any_requires_grad(t)


def _to_packed_plain(t: PackedTensor) -> Tensor:
    if torch.is_grad_enabled() and _requires_grad(t):
        return _apply(_ToPacked, t)
    return t._packed


# Dynamo refuses to trace autograd functions with a jvp of their own, so forward mode splits the
# dual tensor here instead.
def _to_packed_dual(t: PackedTensor) -> Tensor:
    with torch._C.DisableTorchFunctionSubclass():
        primal, tangent = forward_ad.unpack_dual(t)
    if tangent is None:
        return _to_packed_plain(t)
    return forward_ad.make_dual(_to_packed_plain(primal), _to_packed_plain(tangent))


def _from_packed_dual(cls: type[P], packed: Tensor, n: int) -> P:
    primal, tangent = forward_ad.unpack_dual(packed)
    result = _from_plain(cls, primal, n)
    if tangent is None:
        return result
    with torch._C.DisableTorchFunctionSubclass():
        return forward_ad.make_dual(result, _from_plain(cls, tangent, n))


def _from_plain(cls: type[P], packed: Tensor, n: int) -> P:
    if packed.requires_grad and torch.is_grad_enabled():
        return _apply(_FromPacked, packed, cls, n)
    return cls._wrap(packed.detach() if packed.requires_grad else packed, n)
