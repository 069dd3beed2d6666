"""The two autograd nodes between a packed type and its plain packed tensor.

Autograd tracks the type; the tensor inside is plain and detached. ``to_packed`` and ``from_packed``
lead from one to the other and back, so that everything between them is ordinary autograd on plain
tensors.

The gradient of a type is the Frobenius projection on its structure, so that it compares with the
gradient of a dense twin. In packed coordinates an off-diagonal element of a Symmetric or Hermitian
stands for two elements and its derivative is twice as large; these nodes carry that factor, and
nothing else does. The derivative of a Hermitian with respect to its diagonal is real.

Under torch.func the tensor inside is a wrapper of functorch's that carries the derivatives itself.
Then both functions leave it as it is.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes

from packedtri import _tracing, dispatch, layout
from packedtri._bands import real_diagonal, scale_off_diagonal
from packedtri._dtensor import cut_of
from packedtri._recording import (
    carries_autograd,
    forward_mode,
    is_exporting,
    is_transformed,
    ops_are_watched,
    to_be_wrapped,
)
from packedtri._sharing import check_source, share

if TYPE_CHECKING:
    from packedtri.tensor import PackedTensor

P = TypeVar("P", bound="PackedTensor")
Pair = Callable[["PackedTensor", "PackedTensor"], bool]

_any_requires_grad = torch._C._any_requires_grad
_unwrap_if_dead = torch._C._functorch.unwrap_if_dead
# Not every torch that we run with has it.
_use_count: Callable[[Tensor], int] | None = getattr(Tensor, "_use_count", None)


def layers(inner: Tensor) -> list[Tensor]:
    """The tensor inside a type, and what it wraps where it has outlived transforms of torch.func.

    A transform unwraps the tensors that it returns, but does not see the one inside a type. The
    wrapper stays, because derivatives of the type are taken through it.
    """
    found = [inner]
    while (below := _unwrap_if_dead(found[-1])) is not found[-1]:
        found.append(below)
    return found


def settled(inner: Tensor) -> Tensor:
    """The tensor inside a type, without wrappers of transforms that have ended."""
    return layers(inner)[-1] if carries_autograd(inner) else inner


def to_packed(t: PackedTensor) -> Tensor:
    """The plain packed tensor of a packed type, differentiably.

    Args:
        t: shape (*batch, n, n).

    Returns:
        shape (*batch, n(n+1)/2). It shares the storage of ``t``.
    """
    if _tracing.is_compiling():
        if torch.compiler.is_dynamo_compiling():
            # Dynamo puts the call of a method into its graph. It would make an input of the
            # attribute, apart from the type and its changes.
            return t._to_packed()
        _tracing.check_read(t._packed)
    elif ops_are_watched():
        dispatch.check_not_traced(t)
    if forward_mode():
        return _to_packed_dual(t)
    return _to_packed_plain(t)


def to_elements(t: PackedTensor) -> Tensor:
    """``to_packed``, for what reads elements one by one: see ``real_diagonal``."""
    return real_diagonal(to_packed(t), t.kind, t.n)


def exposed(t: PackedTensor) -> Tensor:
    """``to_packed`` for a user, who may keep the result while ``t`` changes in place."""
    compiling = _tracing.is_compiling()
    if compiling:
        _tracing.expose(t._packed)
    elif ops_are_watched():
        dispatch.check_not_traced(t)
    if forward_mode():
        return alias(to_packed(t))
    if is_exporting():
        # Apart from the tensor inside, so that a type made of it has its own.
        return t._packed.view_as(t._packed)
    if torch.is_grad_enabled() and not compiling:
        check_source(t)
    if not torch.is_grad_enabled() or not requires_grad(t):
        packed = alias(t._packed)
        if not compiling:
            share(t, packed)
        return packed
    packed = _apply(_ToPacked, t, True)
    packed.grad_fn.taken_from = _taken_from(t)
    return packed


def from_packed(cls: type[P], packed: Tensor, n: int, shared: bool = False) -> P:
    """The packed type over a plain packed tensor, differentiably.

    Args:
        cls: the type.
        packed: shape (*batch, n(n+1)/2). The result shares its storage.
        n: order.
        shared: whether somebody else may use ``packed`` too.

    Returns:
        shape (*batch, n, n).
    """
    if torch.compiler.is_dynamo_compiling():
        # Dynamo puts a call of the class into its graph, and cannot trace what the call does.
        return cls(packed)
    if is_exporting():
        return cls._wrap(to_be_wrapped(packed), n)
    if (not packed.requires_grad and not forward_mode()) or carries_autograd(packed):
        return cls._wrap(packed, n)
    if forward_mode():
        return _from_packed_dual(cls, packed, n, shared)
    return _from_plain(cls, packed, n, shared)


def is_transpose(a: PackedTensor, b: PackedTensor) -> bool:
    """Whether ``b`` is the transpose of ``a`` in value and to autograd: one tensor, read twice.

    A detached transpose has the same elements, but a product with it has other derivatives than one
    with the transpose, which a Symmetric result could not hold. Of a Hermitian the same elements
    are the conjugate transpose.
    """
    return a._packed is b._packed and _is_view_of(a, b, lambda x, y: x._packed is y._packed)


def is_adjoint(a: PackedTensor, b: PackedTensor) -> bool:
    """The same for the conjugate transpose of complex triangles and Symmetric matrices."""
    if a.kind == layout.HERMITIAN or not are_conjugates(a, b):
        return False
    return _is_view_of(a, b, are_conjugates)


def are_conjugates(a: PackedTensor, b: PackedTensor) -> bool:
    """Whether the elements of one type are the lazy conjugate of those of the other."""
    marks = a.__dict__.get("_conjugate_of"), b.__dict__.get("_conjugate_of")
    return marks[0] is b._packed or marks[1] is a._packed


def transposed_elements(t: PackedTensor) -> Tensor:
    """The tensor inside the transpose of ``t``: the same, or of a Hermitian its conjugate."""
    return t._packed.conj() if t.kind == layout.HERMITIAN else t._packed


def _is_view_of(a: PackedTensor, b: PackedTensor, same: Pair) -> bool:
    if type(b) is not type(a).transposed:
        return False
    if forward_mode() and not _same_tangents(a, b, same):
        return False
    if not torch.is_grad_enabled() or not (requires_grad(a) or requires_grad(b)):
        return True
    if carries_autograd(a._packed):
        # What is the same tensor inside has the same derivatives.
        return True
    return _view_base(a) is _view_base(b)


def _view_base(t: PackedTensor) -> PackedTensor:
    """The tensor that a recorded view belongs to; a detached tensor is its own."""
    with torch._C.DisableTorchFunctionSubclass():
        # A view made without recording has a base too, but no gradient flows to it.
        return t if t._base is None or t.grad_fn is None else t._base  # type: ignore[return-value]


def _same_tangents(a: PackedTensor, b: PackedTensor, same: Pair) -> bool:
    with torch._C.DisableTorchFunctionSubclass():
        x, y = (forward_ad.unpack_dual(t).tangent for t in (a, b))
    return x is y or (x is not None and y is not None and same(x, y))


def alias(packed: Tensor) -> Tensor:
    """Another tensor over the same elements, where that changes no derivative.

    A user's tensor and the one inside a type are kept apart by it: ``requires_grad_()`` on either
    must not reach the other.
    """
    if packed.requires_grad or forward_mode() or carries_autograd(packed) or is_exporting():
        return settled(packed)
    return packed.detach()


def _apply(node: Any, *args: Any) -> Any:
    """``node.apply`` on tensors that no torch.func transform has wrapped.

    Such tensors are constants to every transform under way, and their node belongs outside of all.
    """
    if _tracing.is_compiling():
        return node.apply(*args)
    if torch._C._functorch.maybe_current_level() is None:
        # What the class adds to it is for transforms, and costs half as much as the rest.
        return super(torch.autograd.Function, node).apply(*args)
    with temporarily_clear_interpreter_stack():
        return node.apply(*args)


def project(cls: type[P], grad: Tensor, n: int) -> Tensor:
    """Gradient with respect to the packed vector, from one with respect to the n x n matrix."""
    if isinstance(grad, cls):
        packed = to_packed(grad)
        return scale_off_diagonal(packed, 2, n, cls.kind) if cls.kind in layout.MIRRORED else packed
    if hasattr(grad, "_packed") or grad.layout is not torch.strided:
        grad = grad.to_dense()
    return torch.ops.packedtri.pack(grad, cls.kind)


def _may_be_own(grad: Tensor) -> bool:
    """Whether a gradient may have elements of its own."""
    return (
        type(grad) is Tensor
        and not (torch.is_grad_enabled() or _tracing.is_compiling())
        and not is_transformed(grad)
        and not (grad._is_view() or grad.is_conj() or grad.is_neg())
        and grad.is_contiguous()
    )


def _holders(in_python: int, grad: Tensor) -> tuple[int, int, int]:
    """How many hold a gradient in Python, as its caller counts, and in C++, and its elements.

    The caller counts because a call of this may hold the gradient once more: under Dynamo it does.
    """
    assert _use_count is not None
    elements = torch._C._storage_Use_Count(grad.untyped_storage()._cdata)
    return in_python, _use_count(grad), elements


@functools.cache
def _lone_holders() -> tuple[int, int, int]:
    """What ``_holders`` tells a backward function of a gradient that only the engine holds."""
    counts = []

    class Probe(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            counts.append(_holders(sys.getrefcount(grad), grad))
            return grad

    # Modes of the caller's may hold tensors, or make others than usual of them.
    with _disable_current_modes(), torch.inference_mode(False), torch.enable_grad():
        x = torch.zeros(1, device="cpu", requires_grad=True)
        torch.autograd.grad(Probe.apply(x) * 2, x)
    return counts[0]


class _ToPacked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, t: PackedTensor, exposed: bool) -> Tensor:
        ctx.cls, ctx.n, ctx.cut = type(t), t.n, cut_of(t._packed)
        ctx.set_materialize_grads(False)
        ctx.taken_from = None
        # Autograd attaches the node to what is returned, which must not be the tensor inside t. It
        # refuses in-place changes of a view that a function like this one returns.
        return t._packed.view_as(t._packed) if exposed else t._packed.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[PackedTensor | None, None]:
        if grad is None:
            return None, None
        if ctx.taken_from is not None:
            _check_taken_from(*ctx.taken_from)
        if ctx.cut is not None:
            grad = ctx.cut.align(grad)
        # The engine adds in place to a gradient that nobody else holds, and sees only who holds the
        # type. So its elements must be its own: the gradient of a sum, say, reaches each operand.
        if ctx.cls.kind in layout.MIRRORED:
            grad = scale_off_diagonal(grad, 0.5, ctx.n, ctx.cls.kind)
        elif (
            not (_may_be_own(grad) and _use_count)
            or _holders(sys.getrefcount(grad), grad) != _lone_holders()
        ):
            grad = grad.clone(memory_format=torch.contiguous_format)
        return from_packed(ctx.cls, grad, ctx.n), None


class _FromPacked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, packed: Tensor, cls: type[PackedTensor], n: int) -> PackedTensor:
        ctx.cls, ctx.n = cls, n
        ctx.set_materialize_grads(False)
        return cls._wrap(packed.detach(), n)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, None, None]:
        return (None if grad is None else project(ctx.cls, grad, ctx.n)), None, None


for _node in (_ToPacked, _FromPacked):
    dispatch.hide_members_from_dynamo(_node)


def _taken_from(t: PackedTensor) -> Any:
    """What tells later whether ``t`` has changed in place, recorded. A leaf cannot."""
    with torch._C.DisableTorchFunctionSubclass():
        return None if t.grad_fn is None else (weakref.ref(t), t.grad_fn)


def _check_taken_from(reference: Any, grad_fn: Any) -> None:
    t = reference()
    with torch._C.DisableTorchFunctionSubclass():
        changed = t is not None and t.grad_fn is not grad_fn
    if changed:
        raise RuntimeError(
            f"[{type(t).__name__}.packed] the {type(t).__name__} was changed in place after "
            ".packed was taken, and gradients through it would miss that change. Take .packed "
            "after the change, or change a .clone()"
        )


def requires_grad(t: Tensor) -> bool:
    """Whether autograd is to record what is done to ``t``."""
    if _tracing.is_compiling():
        return t.requires_grad
    # The attribute would take the way through __torch_function__, at six times the cost.
    return _any_requires_grad(t)


def recorded(*tensors: Tensor) -> bool:
    """Whether derivatives of any kind may be taken of what is done to these tensors."""
    return forward_mode() or (torch.is_grad_enabled() and any(map(requires_grad, tensors)))


def _to_packed_plain(t: PackedTensor) -> Tensor:
    if not torch.is_grad_enabled() or is_exporting():
        return t._packed
    recorded = requires_grad(t)
    if (recorded or "_family" in t.__dict__) and not _tracing.is_compiling():
        check_source(t)
    return _apply(_ToPacked, t, False) if recorded else t._packed


# Dynamo refuses to trace autograd functions with a jvp of their own, so forward mode splits the
# dual tensor here instead.
def _to_packed_dual(t: PackedTensor) -> Tensor:
    with torch._C.DisableTorchFunctionSubclass():
        primal, tangent = forward_ad.unpack_dual(t)
    if tangent is None:
        return _to_packed_plain(t)
    packed = _to_packed_plain(primal)
    # Torch lays a tangent out in memory as its primal is, which cannot be where that is expanded.
    return forward_ad.make_dual(_without_expansion(packed), _to_packed_plain(tangent))


def _without_expansion(x: Tensor) -> Tensor:
    return x.contiguous() if 0 in x.stride() and not carries_autograd(x) else x


def _from_packed_dual(cls: type[P], packed: Tensor, n: int, shared: bool) -> P:
    primal, tangent = forward_ad.unpack_dual(packed)
    result = _from_plain(cls, primal, n, shared)
    if tangent is None:
        return result
    with torch._C.DisableTorchFunctionSubclass():
        return forward_ad.make_dual(result, _from_plain(cls, tangent, n, False))


def _from_plain(cls: type[P], packed: Tensor, n: int, shared: bool) -> P:
    if not packed.requires_grad:
        return cls._wrap(packed, n)
    if not torch.is_grad_enabled():
        return cls._wrap(packed.detach(), n)
    t = _apply(_FromPacked, packed, cls, n)
    if _is_shared(packed):
        t._source = (lambda: packed, packed.grad_fn)
    elif shared:
        # As long as somebody has it.
        t._source = (weakref.ref(packed), packed.grad_fn)
    return t


def _is_shared(packed: Tensor) -> bool:
    """Whether a tensor has the elements of another one, as the real part of one has, say."""
    return packed._is_view() or type(packed.grad_fn) is _ToPacked._backward_cls
