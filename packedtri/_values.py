"""What stands for values and functions in the tables of dispatch, and in messages."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import Any

import torch

#: What torch.compile takes numbers for that change from call to call.
INTEGERS = (int, torch.SymInt)
REALS = (*INTEGERS, float, torch.SymFloat)

_packed_types: list[type] = []
_canonical: dict[type, type] = {}


def add_type(cls: type) -> None:
    """Make a packed type known."""
    _packed_types.append(cls)
    _canonical[cls] = cls


def packed_types() -> list[type]:
    """The packed types that are known."""
    return list(_packed_types)


def canonical_type(value: object) -> type:
    """The type that stands for a value in the table's keys."""
    cls = type(value)
    found = _canonical.get(cls)
    if found is None:
        packed = (t for t in cls.__mro__ if t in _packed_types)
        found = next(packed, None)
        if found is None:
            kinds = ((torch.Tensor, torch.Tensor), (Number, (Number, *REALS, torch.SymBool)))
            found = next((t for t, kind in kinds if isinstance(value, kind)), object)
        _canonical[cls] = found
    return found


def is_packed(value: object) -> bool:
    """Whether a value is of a packed type, or of one derived from it."""
    return canonical_type(value) in _packed_types


_HOMES = (
    (torch, "torch"),
    (torch.Tensor, "torch.Tensor"),
    (torch.distributed, "torch.distributed"),
)


def function_name(function: Callable[..., Any]) -> str:
    """The public name of a torch function, such as ``torch.matmul`` or ``torch.Tensor.add``."""
    name = getattr(function, "__name__", "")
    if isinstance(function, torch._ops.HigherOrderOperator):
        name = function.name()
        if name == "custom_function_call":
            # What torch.func makes of them.
            return "torch.autograd.Function"
        return f"torch.{name}" if hasattr(torch, name) else f"torch.ops.higher_order.{name}"
    # Torch itself would call mm by the name of its alias spmm.
    for home, prefix in _HOMES:
        if name and getattr(home, name, None) is function:
            return f"{prefix}.{name}"
    name = torch.overrides.resolve_name(function)
    return name or getattr(function, "__qualname__", None) or repr(function)


def describe(value: object) -> str:
    """Type and shape of an argument, as error messages show it."""
    if isinstance(value, torch.Tensor):
        with torch._C.DisableTorchFunctionSubclass():
            shape = tuple(value.shape)
        return f"{canonical_type(value).__name__} {shape}"
    return type(value).__name__
