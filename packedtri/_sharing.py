"""Who shares elements with whom, as far as autograd does not know.

A type and its packed tensor have the same elements. To change one in place, recorded, would leave
the other with the gradient of before. So autograd takes ``.packed`` for a view made inside a custom
function, which it refuses to change in place; a type remembers the tensor that it was made from and
refuses as well; and the changes that nothing can refuse are found where they would matter. As long
as nothing is recorded there is no view to refuse and no source to remember, so tensors that share
their elements know of each other as long as they live. Views of a type belong to it, and autograd
sees to them; they know what it knows.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from packedtri import _tracing, _values, layout
from packedtri._recording import carries_autograd, forward_mode, is_batched, is_recorded

if TYPE_CHECKING:
    from packedtri.tensor import PackedTensor

M = TypeVar("M")

_any_requires_grad = torch._C._any_requires_grad


class Member:
    """What stands for a type in its family, and lives as long as the type.

    Torch swaps no tensors that have weak references, as modules do that load into their buffers.
    """

    def __init__(self, t: PackedTensor) -> None:
        self.cls = type(t)
        self.packed = t._packed

    def describe(self) -> str:
        """What it stands for, as error messages show it."""
        return _values.describe(self.cls._wrap(self.packed, layout.order(self.packed.shape[-1])))


class Family:
    """The tensors that have elements in one storage; the types among them keep it alive."""

    def __init__(self) -> None:
        # By their ids, which belong to nobody else while they live.
        self._types: weakref.WeakValueDictionary[int, Member] = weakref.WeakValueDictionary()
        self._plain: weakref.WeakValueDictionary[int, Tensor] = weakref.WeakValueDictionary()

    def add(self, x: Tensor) -> None:
        """A tensor; what it is a view of has its elements as well, and stands for it."""
        owner: Any = owner_of(x)
        for t in (x, owner):
            if hasattr(t, "_packed"):
                t.__dict__["_family"] = self
        if not hasattr(owner, "_packed"):
            self._plain[id(owner)] = owner
            return
        member = owner.__dict__.get("_member")
        if member is None:
            member = owner.__dict__["_member"] = Member(owner)
        self._types[id(member)] = member

    def others(self, t: PackedTensor) -> list[str]:
        """Those with elements of ``t`` that are neither it nor what it is a view of, by names."""
        own = (t.__dict__.get("_member"), owner_of(t).__dict__.get("_member"))
        types = [
            m for m in _living(self._types) if m not in own and may_overlap(t._packed, m.packed)
        ]
        plain = [x for x in _living(self._plain) if may_overlap(t._packed, x)]
        return [m.describe() for m in types] + list(map(_values.describe, plain))

    def changed(self, t: PackedTensor) -> bool:
        """Whether autograd has recorded a change of elements of ``t`` through a plain tensor.

        Nothing required a gradient when they met. Of two types the one that changes refuses to.
        """
        # This is asked before every product, so without a generator.
        for reference in self._plain.valuerefs():
            x = reference()
            if x is not None and x.grad_fn is not None and may_overlap(t._packed, x):
                return True
        return False


def _living(members: weakref.WeakValueDictionary[int, M]) -> list[M]:
    """The members of a family that live, of which other threads may add some meanwhile."""
    return [x for reference in members.valuerefs() if (x := reference()) is not None]


# By the storage: two types may have it without having met.
_families: weakref.WeakValueDictionary[int, Family] = weakref.WeakValueDictionary()


def share(t: PackedTensor, other: Tensor) -> None:
    """Remember that ``other`` has elements of ``t``, which autograd does not know."""
    if _any_requires_grad(t, other) or carries_autograd(t._packed) or is_batched(t._packed):
        return
    storage = t._packed.untyped_storage()._cdata
    family = _families.get(storage)
    if family is None:
        family = _families[storage] = Family()
    family.add(t)
    family.add(other)


def inherit(view: PackedTensor, t: PackedTensor) -> None:
    """Let a view of ``t`` know what ``t`` knows."""
    for tie in ("_source", "_family"):
        if tie in t.__dict__:
            view.__dict__[tie] = t.__dict__[tie]


def check_source(t: PackedTensor) -> None:
    """Raise where the packed tensor that ``t`` was made from has changed in place, recorded."""
    members = t.__dict__
    changed = "_family" in members and members["_family"].changed(t)
    if not changed and "_source" in members:
        source, grad_fn = _source(t)
        changed = source is not None and source.grad_fn is not grad_fn
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
    if t._packed.is_inference() and not torch.is_inference_mode_enabled():
        raise RuntimeError(
            f"[{type(t).__name__}] it was made in inference mode, and cannot be changed in place "
            "outside of it. Change a .clone()"
        )
    if _tracing.is_compiling():
        _tracing.check_write(t._packed)
    elif is_recorded(t, *values):
        _check_alone(t)
    if is_recorded(t) and _source(t)[0] is not None:
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


def _source(t: PackedTensor) -> tuple[Tensor | None, Any]:
    """The packed tensor that ``t`` was made from, while somebody has it, and its grad_fn then."""
    source, grad_fn = t.__dict__.get("_source", (lambda: None, None))
    return source(), grad_fn


def _check_alone(t: PackedTensor) -> None:
    family = t.__dict__.get("_family") or owner_of(t).__dict__.get("_family")
    for other in family.others(t) if family is not None else ():
        raise RuntimeError(
            f"[{type(t).__name__}] it shares its elements with {other}, whose "
            "gradients would miss a change in place that autograd records. Change a .clone(), or "
            "let the other one go before"
        )


def owner_of(x: Tensor) -> Tensor:
    """What a tensor is a view of to autograd, or itself."""
    with torch._C.DisableTorchFunctionSubclass():
        return x if x._base is None else x._base


def shares_memory(a: Tensor, b: Tensor) -> bool:
    """Whether two plain tensors have one storage."""
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata


def may_overlap(a: Tensor, b: Tensor) -> bool:
    """Whether two plain tensors may have elements in common."""
    if any(carries_autograd(x) or is_batched(x) for x in (a, b)) or not shares_memory(a, b):
        return False
    (first_a, last_a), (first_b, last_b) = map(_reach, (a, b))
    return first_a <= last_b and first_b <= last_a


def _reach(x: Tensor) -> tuple[Any, Any]:
    """The first and the last byte of the storage that the elements take."""
    first = x.storage_offset() * x.itemsize
    steps = sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
    return first, first + (steps + 1) * x.itemsize - 1
