"""Ops on lists of tensors, and collectives: what optimizers, clipping and scaling call.

They run on the tensors inside, together with the plain tensors of the same lists.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from packedtri._aten_table import aten_row
from packedtri._sharing import check_writable
from packedtri.ops.aten import (
    Args,
    Kwargs,
    bump_version,
    check_alike,
    cloned_first,
    increment_version,
    inner,
    wrapped,
    writable,
)
from packedtri.ops.dense import is_complex_number
from packedtri.ops.reduce import norm
from packedtri.tensor import PackedTensor

_FOREACH = """
    abs add addcdiv addcmul clamp_max clamp_min copy div lerp maximum minimum mul neg sign sqrt sub
    zero reciprocal pow rsqrt
"""


def _overloads(prefixes: tuple[str, ...]) -> list[Any]:
    found = []
    for full_name in torch._C._dispatch_get_all_op_names():
        namespace, _, name = full_name.partition("::")
        name, _, overload = name.partition(".")
        if namespace == "aten" and name.startswith(prefixes) and overload != "out":
            found.append(getattr(getattr(torch.ops.aten, name), overload or "default"))
    return [op for op in found if not op._overloadname.endswith("out")]


def _is_list_op(op: Any) -> bool:
    name = op._opname.removeprefix("_foreach_").removesuffix("_")
    return name in _FOREACH.split()


def _written(op: Any, args: Args, kwargs: Kwargs) -> list[PackedTensor]:
    """The packed tensors that the op writes, by its schema."""
    tensors: list[Tensor] = []
    for i, argument in enumerate(op._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value: Any = args[i] if i < len(args) else kwargs.get(argument.name)
            tensors += value if isinstance(value, (list, tuple)) else [value]
    return [t for t in tensors if isinstance(t, PackedTensor)]


def _places(value: Any, changed: set[int]) -> Any:
    """The stored elements to read or, of the types that the op changes, to write."""
    if isinstance(value, (list, tuple)):
        return type(value)([_places(v, changed) for v in value])
    return writable(value) if id(value) in changed else inner(value)


def _run(op: Any, args: Args, kwargs: Kwargs) -> Any:
    written = _written(op, args, kwargs)
    for t in written:
        check_writable(t)
    # Torch has no list ops that write lazy conjugates or negatives: those are written to a copy.
    lazy = [t for t in written if t._packed.is_conj() or t._packed.is_neg()]
    views = [t._packed for t in lazy]
    for t, view in zip(lazy, views, strict=True):
        t._packed = view.resolve_conj().resolve_neg()
    try:
        changed = set(map(id, written))
        with cloned_first():
            places = [_places(a, changed) for a in args]
            result = op(*places, **{k: _places(v, changed) for k, v in kwargs.items()})
            for t, view in zip(lazy, views, strict=True):
                view.copy_(t._packed)
    finally:
        for t, view in zip(lazy, views, strict=True):
            t._packed = view
    bump_version(*[t._packed for t in written])
    for t in written:
        increment_version(t)
    return result


@aten_row(*filter(_is_list_op, _overloads(("_foreach_",))))
def _foreach(op: Any, args: Args, kwargs: Kwargs) -> Any:
    # Lists of the same length correspond element by element.
    first = args[0]
    lists = [a for a in args[1:] if isinstance(a, (list, tuple)) and len(a) == len(first)]
    numbers = [a for a in (*args[1:], *kwargs.values()) if is_complex_number(a)]
    for i, t in enumerate(first):
        others = [*[a[i] for a in lists], *numbers]
        if isinstance(t, PackedTensor):
            check_alike(op, t, tuple(others))
        elif any(isinstance(o, PackedTensor) for o in others):
            raise NotImplementedError(f"[{op}] cannot combine plain and packed tensors; got both")
    result = _run(op, args, kwargs)
    if result is None:
        return None
    return [
        wrapped(op, t, r) if isinstance(t, PackedTensor) else r
        for t, r in zip(first, result, strict=True)
    ]


@aten_row(torch.ops.aten._foreach_norm.Scalar)
def _foreach_norm(op: Any, args: Args, kwargs: Kwargs) -> list[Tensor]:
    ord = args[1] if len(args) > 1 else kwargs.get("ord", 2)
    dtype = args[2] if len(args) > 2 else kwargs.get("dtype")
    return [
        norm(t._packed, t, ord, dtype=dtype)
        if isinstance(t, PackedTensor)
        else torch.linalg.vector_norm(t, ord, dtype=dtype)
        for t in args[0]
    ]


@aten_row(*_overloads(("_fused_", "_amp_foreach_")))
def _fused(op: Any, args: Args, kwargs: Kwargs) -> Any:
    # Kernels take the number of elements from the first list and would write past others, or beside
    # their triangles. Lists that have no use may be empty.
    for group in zip_longest(*(a for a in args if isinstance(a, (list, tuple)))):
        first = next((t for t in group if isinstance(t, PackedTensor)), None)
        if first is not None:
            check_alike(op, first, group)
    return _run(op, args, kwargs)
