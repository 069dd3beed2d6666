"""Who shares elements with whom, as far as autograd does not know.

A type and its packed tensor have the same elements. To change one in place, recorded, would leave
the other with the gradient of before. So autograd takes ``.packed`` for a view made inside a custom
function, which it refuses to change in place; a type remembers the tensor that it was made from and
refuses as well; and the changes that nothing can refuse are found where they would matter. As long
as nothing is recorded there is no view to refuse and no source to remember, so tensors that share
their elements know of each other as long as they live.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from packedtri import _tracing, dispatch
from packedtri._autograd import carries_autograd, forward_mode, is_batched

if TYPE_CHECKING:
    from packedtri.tensor import PackedTensor

_any_requires_grad = torch._C._any_requires_grad


def share(t: PackedTensor, other: Tensor) -> None:
    """Remember that ``other`` has elements of ``t``, which autograd does not know."""
    if not torch.is_grad_enabled() or _any_requires_grad(t, other) or carries_autograd(t._packed):
        return
    others = t.__dict__.get("_sharers", ())
    t._sharers = [*(ref for ref in others if ref() is not None), weakref.ref(other)]


def share_if_view(t: PackedTensor, of: PackedTensor) -> None:
    """The same for a type that may have elements of another one, and what that is a view of."""
    if _same_storage(t._packed, of._packed):
        for owner in _owners(of):
            share(t, owner)
            share(owner, t)


def check_source(t: PackedTensor) -> None:
    """Raise where the packed tensor that ``t`` was made from has changed in place, recorded."""
    source = t.__dict__.get("_source")
    changed = source is not None and source[0].grad_fn is not source[1]
    for ref in t.__dict__.get("_sharers", ()):
        # Of two types the one that changes refuses to.
        changed |= type(x := ref()) is Tensor and x.grad_fn is not None
    if changed:
        raise RuntimeError(
            f"[{type(t).__name__}] the packed tensor that it was made from was changed in place "
            "later, and its gradients would miss that change. Build the type after the change, or "
            "from a .clone()"
        )


def check_writable(t: PackedTensor, *values: Any) -> None:
    """Raise where autograd is to record a change of elements that belong to another tensor.

    Args:
        t: what is changed.
        values: what it is changed with.
    """
    if _tracing.is_compiling():
        _tracing.check_write(t._packed)
    elif torch.is_grad_enabled() and _any_requires_grad(t, *values):
        _check_alone(t)
    if "_source" in t.__dict__ and torch.is_grad_enabled() and _any_requires_grad(t):
        if forward_mode():
            raise RuntimeError(
                f"[{type(t).__name__}] it cannot be changed in place inside a dual level while "
                "autograd records as well. Use the function that returns a new tensor"
            )
        raise RuntimeError(
            f"[{type(t).__name__}] it shares the elements of the packed tensor that it was made "
            "from, so it cannot be changed in place while autograd records. Change a .clone(), or "
            "use torch.no_grad()"
        )


def _check_alone(t: PackedTensor) -> None:
    for other in _sharers(t):
        raise RuntimeError(
            f"[{type(t).__name__}] it shares its elements with {dispatch.describe(other)}, whose "
            "gradients would miss a change in place that autograd records. Change a .clone(), or "
            "let the other one go before"
        )


def _sharers(t: PackedTensor) -> list[Tensor]:
    """Those that share elements with ``t``, or with what it is a view of, and still live."""
    found = [ref() for owner in _owners(t) for ref in owner.__dict__.get("_sharers", ())]
    return [x for x in found if x is not None and x is not t]


def _owners(t: PackedTensor) -> list[PackedTensor]:
    """The type, and what it is a view of to autograd."""
    with torch._C.DisableTorchFunctionSubclass():
        return [t] if t._base is None else [t, t._base]  # type: ignore[list-item]


def _same_storage(a: Tensor, b: Tensor) -> bool:
    # Batches of vmap and fake tensors in a graph have no storage to compare.
    if torch.compiler.is_compiling() or any(carries_autograd(x) or is_batched(x) for x in (a, b)):
        return False
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata
