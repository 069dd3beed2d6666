"""The rule for functions that the table does not name.

* One that computes a new value converts to dense, differentiably (:mod:`packedtri.ops.dense`).
* One that changes its first argument, such as ``sin_``, computes the new value and copies it back,
  where the result has the type still. Otherwise it raises.
* Everything else raises: functions that ask for memory that does not exist, that communicate, and
  those of other packages.

What a function does is read off torch itself: the schema of an operator says whether it writes to
an argument, and the name of a method whether it works in place.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import FunctionType
from typing import Any, NoReturn

import torch
from torch import Tensor

from packedtri import dispatch
from packedtri.dispatch import Function, Row, describe, function_name
from packedtri.ops.dense import densify
from packedtri.tensor import PackedTensor

# In place they draw random numbers, where the functions of the same names do something else.
_RANDOM = ("bernoulli_", "exponential_", "random_", "cauchy_", "geometric_", "log_normal_")
# They look at memory, or at how a tensor is kept, and take no n x n values.
_OBJECT = """
    const_data_ptr is_set_to resize resize_as storage_type
    _nested_tensor_size _nested_tensor_strides _nested_tensor_storage_offsets as_strided_copy
    as_strided_scatter
"""
# Methods that compute values without an operator of their name.
_CONVERSIONS = "bool byte char int long short tolist"
# The functions behind `L **= 2` and its like carry the names of others.
_ASSIGNMENTS = {
    getattr(Tensor, name): getattr(Tensor, f"__{name[3:]}")
    for name in dir(Tensor)
    if name.startswith("__i") and hasattr(Tensor, f"__{name[3:]}")
}


@dispatch.rule
def rule(function: Function) -> Row:
    """The row of a function that has none of its own, for all types."""
    method = getattr(Tensor, _name(function), None)
    if _name(function).endswith("_") and method not in (None, function):
        # torch.zero_ and its like do what the method does.
        return replace(dispatch.rest(method), function=function)
    compute = new_value(function)
    if compute is not None:
        how: dispatch.How = "native" if dispatch.classify(compute) == "native" else "refused"
        return Row(function, (), partial(in_place, function, compute), how, None)
    if _is_pure(function):
        return Row(function, (), partial(densify, function), "dense", Tensor)
    return Row(function, (), partial(_refuse, function), "refused", None)


def _name(function: Function) -> str:
    return getattr(function, "__name__", "")


def new_value(function: Function) -> Function | None:
    """The function that returns what ``function`` writes into its first argument, if it does so.

    >>> new_value(torch.Tensor.sin_) is torch.Tensor.sin
    True
    """
    name = _name(function)
    if function in _ASSIGNMENTS:
        return _ASSIGNMENTS[function]
    if name in _RANDOM or not name.endswith("_") or name.endswith("__"):
        return None
    homes = (Tensor, torch, torch.nn.functional)
    if not any(getattr(home, name, None) is function for home in homes):
        return None
    return next((getattr(home, name[:-1]) for home in homes if hasattr(home, name[:-1])), None)


def _is_pure(function: Function) -> bool:
    """Whether ``function`` belongs to torch and computes new values of the values of arguments."""
    name = _name(function)
    if name in _OBJECT.split() or (name.endswith("_") and not name.endswith("__")):
        return False
    if isinstance(function, FunctionType):
        module = (function.__module__ or "").split(".")
        symbolic = name.startswith(("sym_", "_sym_"))
        return module[0] == "torch" and module[:2] != ["torch", "distributed"] and not symbolic
    if name.startswith("__") or name in _CONVERSIONS.split():
        return getattr(Tensor, name, None) == function
    schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name}")
    # TorchScript has operators of the same names for lists, numbers and strings.
    schemas = [s for s in schemas if any("Tensor" in str(a.type) for a in s.arguments)]
    return bool(schemas) and not any(map(_writes, schemas))


def _writes(schema: Any) -> bool:
    """Whether an operator changes an argument other than ``out``, which keywords only can be."""
    positional = (a for a in schema.arguments if not a.kwarg_only and str(a.type) != "List[Tensor]")
    return any(a.alias_info is not None and a.alias_info.is_write for a in positional)


def in_place(function: Function, compute: Function, self: Any, *args: Any, **kwargs: Any) -> Any:
    """Write the value that ``compute`` returns into ``self``, for the in-place ``function``."""
    if not isinstance(self, PackedTensor):
        return densify(function, self, *args, **kwargs)
    # What the computation saves for its derivative must not be what is overwritten.
    before = self.clone() if torch.is_grad_enabled() else self
    result = compute(before, *args, **kwargs)
    known = type(result) is type(self) or any(map(_is_dense, (*args, *kwargs.values())))
    if not known or result.shape != self.shape or not torch.can_cast(result.dtype, self.dtype):
        raise NotImplementedError(
            f"[{function_name(function)}] the result is a {describe(result)} of {result.dtype}, "
            f"which the storage of {describe(self)} of {self.dtype} cannot hold. Use "
            f"{function_name(compute)}, which returns a new tensor, or convert with .to_dense()"
        )
    advice = f"Use {function_name(compute)}, which returns a new tensor"
    return write_back(function_name(function), self, result, advice)


def _is_dense(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dim() > 0 and not isinstance(x, PackedTensor)


def write_back(name: str, t: PackedTensor, result: Tensor, advice: str) -> Tensor:
    """Copy to ``t``; a dense result, of dense operands, must have the structure of ``t``."""
    try:
        return t.copy_(result)
    except ValueError as error:
        element = str(error).partition("] ")[2].partition(". ")[0]
        raise NotImplementedError(
            f"[{name}] the storage of {describe(t)} cannot hold the result: {element}. {advice}, "
            "or convert with .to_dense()"
        ) from None


def _refuse(function: Function, *args: Any, **kwargs: Any) -> NoReturn:
    given = ", ".join(describe(v) for v in (*args, *kwargs.values()))
    raise NotImplementedError(
        f"[{function_name(function)}] is not defined on packed storage for ({given}). "
        "Convert with .to_dense() first, or work on the stored elements, .packed"
    )
