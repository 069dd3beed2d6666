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
from torch.utils._pytree import tree_leaves

from packedtri import dispatch, layout
from packedtri._recording import carries_autograd, is_batched, is_plain, values_visible
from packedtri._values import describe, function_name
from packedtri.dispatch import Function, Row
from packedtri.ops.convert import fits, from_dense
from packedtri.ops.dense import densify
from packedtri.ops.dims import can_broadcast, can_expand
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
    typed = _typed(function, self, args)
    if typed is not None:
        return function(self, *typed, **kwargs)
    # What the computation saves for its derivative must not be what is overwritten.
    tensors = (x for x in tree_leaves((self, args, kwargs)) if isinstance(x, Tensor))
    computed = is_plain(*tensors) and not carries_autograd(self._packed)
    before = self if computed else self.clone()
    result = compute(before, *args, **kwargs)
    if result is NotImplemented:
        return result
    if isinstance(result, Tensor):
        check_room(function, self, result)
    known = type(result) is type(self) or any(map(_is_plain_tensor, (*args, *kwargs.values())))
    if not known or result.shape != self.shape or not torch.can_cast(result.dtype, self.dtype):
        dense = "" if isinstance(result, PackedTensor) else "dense "
        raise NotImplementedError(
            f"[{function_name(function)}] the result is a {dense}{describe(result)} of "
            f"{result.dtype}, which the storage of {describe(self)} of {self.dtype} cannot hold. "
            f"Use {function_name(compute)}, which returns a new tensor, or convert with .to_dense()"
        )
    advice = f"Use {function_name(compute)}, which returns a new tensor"
    return write_back(function_name(function), self, result, advice)


def check_room(function: Function, t: PackedTensor, other: Tensor) -> None:
    """Raise, as torch does, where ``t`` broadcasts with another tensor to a larger shape."""
    if can_expand(other.shape, t.shape) or not can_broadcast(other.shape, t.shape):
        return
    shape = tuple(torch.broadcast_shapes(other.shape, t.shape))
    raise RuntimeError(
        f"[{function_name(function)}] the result has the shape {shape}, for which {describe(t)} "
        f"has no place. Change .expand{shape}.clone(), or use a function that returns a new tensor"
    )


# Of operands of a type they give a matrix of it, and the same that they give of dense ones.
_LINEAR = ("add_", "sub_", "subtract_", "lerp_")


def _typed(function: Function, t: PackedTensor, args: tuple[Any, ...]) -> list[Any] | None:
    """The operands with dense ones as matrices of the type of ``t``, where they are that exactly.

    None where one is not: then the result is to be looked at.
    """
    if _name(function) not in _LINEAR or not any(map(_is_dense, args)):
        return None
    found = [_exactly(t, x) if _is_dense(x) else x for x in args]
    return None if any(x is None for x in found) else found


def _exactly(t: PackedTensor, x: Tensor) -> PackedTensor | None:
    """A dense operand as the matrix of the type of ``t`` that it is without rounding, or None."""
    alike = x.dtype == t.dtype and x.device == t.device and x.layout == t.layout
    if not alike or x.shape[-2:] != t.shape[-2:] or not can_expand(x.shape, t.shape):
        return None
    if t.n == 0 or not values_visible(x) or is_batched(x):
        return None
    values = x.detach()
    if t.kind in layout.MIRRORED:
        # Rounding mostly shows in one line already.
        column = values[..., 0].conj() if t.kind == layout.HERMITIAN else values[..., 0]
        if not torch.equal(values[..., 0, :], column):
            return None
    found = from_dense(type(t), x, False)
    return found if fits(type(t), values, found._packed, exactly=True) else None


def _is_plain_tensor(x: Any) -> bool:
    return isinstance(x, Tensor) and not isinstance(x, PackedTensor)


def _is_dense(x: Any) -> bool:
    return _is_plain_tensor(x) and x.dim() > 0


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
