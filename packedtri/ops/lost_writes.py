"""A warning where a change in place is lost: made to a copy that dense torch would give as a view.

``S.diagonal().add_(eps)`` and ``S[0].zero_()`` change dense matrices. Diagonals, rows and blocks of
packed types are copies, since no strided view of the storage has their shape. Whether one was
changed is looked at when nobody holds it any more. It does not matter where the elements are gone
as well, which all types that have them keep, as a parameter and its ``.data`` do. Nor where the
copy was assigned to a matrix, as ``S[0] += 1`` does.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from packedtri import _tracing, _values, dispatch
from packedtri._recording import is_batched
from packedtri._sharing import owner_of
from packedtri.dispatch import Function
from packedtri.ops.dense import functions
from packedtri.tensor import PackedTensor

# By the id of the copy, which belongs to nobody else while it lives: a reference that tells when it
# does not, a tensor with the same count of changes, that count at first, and references to what
# lives as long as a type with the elements does.
_copies: dict[int, tuple[Any, Tensor, int, list[Any]]] = {}


def forget(value: Any) -> None:
    """Nothing is lost of a copy that is written to a matrix."""
    if type(value) is Tensor:
        _copies.pop(id(_memory(value)), None)


def _memory(copy: Tensor) -> Tensor:
    """What lives as long as anything that changes the elements of a copy, which may be a view."""
    return copy if copy._base is None else copy._base


def _watched(name: str, handler: Function) -> Function:
    @functools.wraps(handler)
    def call(input: Any, *args: Any, **kwargs: Any) -> Any:
        result = handler(input, *args, **kwargs)
        if isinstance(input, PackedTensor):
            _watch_all(name, (result,) if isinstance(result, Tensor) else result, input)
        return result

    return call


def _watch_all(name: str, copies: Iterable[Tensor], t: PackedTensor) -> None:
    """Those that follow one another in one memory, as rows of ``unbind`` do, need it once."""
    base = None
    for copy in copies:
        if type(copy) is Tensor:
            if base is None or copy._base is not base:
                watch(name, copy, t)
            base = copy._base


def watch(name: str, copy: Tensor, t: PackedTensor) -> None:
    """Warn when nobody holds ``copy`` any more and it was changed.

    Args:
        name: of the function that gave it.
        copy: what dense torch would give as a view; of a packed type it is one.
        t: the matrices that the elements are of.
    """
    if _tracing.is_compiling() or type(copy) is not Tensor:
        return
    transformed = torch._C._functorch.maybe_current_level() is not None or is_batched(copy)
    if transformed or copy.is_inference():
        return
    memory = _memory(copy)
    gone = functools.partial(_gone, name, id(memory), type(t).__name__)
    # A detached tensor counts the changes of the other as its own.
    counter, reference = memory.detach(), weakref.ref(memory, gone)
    _copies[id(memory)] = reference, counter, memory._version, _holders(t)


def _holders(t: PackedTensor) -> list[Any]:
    """References to what all types with the elements of ``t`` hold.

    A detached type holds the very tensor that the other does; types that were made from one vector
    have a family, which lives as long as one of them.
    """
    owner: Any = owner_of(t)
    family = owner.__dict__.get("_family")
    return [weakref.ref(x) for x in (owner._packed, family) if x is not None]


def _gone(name: str, key: int, kind: str, reference: Any) -> None:
    entry = _copies.get(key)
    if entry is None or entry[0] is not reference:
        return
    del _copies[key]
    _, counter, version, holders = entry
    if counter._version != version and any(holder() is not None for holder in holders):
        warnings.warn(
            f"[{name}] a copy of elements of a {kind} was changed in place, which does not change "
            "the matrix. To change the matrix, assign to it, as in S[i, j] = x, or use "
            "set_diagonal_; to change a copy alone, take a .clone()",
            stacklevel=2,
        )


_VIEWS = """
    atleast_3d broadcast_to chunk diagonal dsplit expand expand_as flatten hsplit moveaxis
    movedim narrow permute ravel reshape reshape_as select split squeeze swapaxes swapdims t
    tensor_split transpose unbind unflatten unsqueeze vsplit
"""


def watch_views() -> None:
    """Watch the results of these functions, once all of them have their rows."""
    for function in (*functions(_VIEWS), torch.linalg.diagonal):
        name = _values.function_name(function)
        if dispatch.find(function, ()) is None:
            ruled = dispatch.rest(function)
            dispatch.row(function, how=ruled.how, result=ruled.result)(ruled.handler)
        dispatch.decorate(function, functools.partial(_watched, name))
