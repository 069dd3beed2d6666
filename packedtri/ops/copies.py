"""Copies and conversions of dtype and device, which keep the type, and tensors like a given one."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from packedtri import _nodes, layout
from packedtri._values import describe
from packedtri.dispatch import Function, row
from packedtri.layout import DTYPES
from packedtri.ops.callers import caller
from packedtri.ops.dense import densify, functions, is_complex_number, stored_of, write_out
from packedtri.tensor import Hermitian, PackedTensor, Symmetric


def _convert(function: Function, input: PackedTensor, *args: Any, **kwargs: Any) -> Tensor:
    """Apply a function that copies, or not, to the stored elements."""
    args = tuple(map(stored_of, args))
    # Memory formats order the dimensions of a dense tensor; a packed one has no choice there.
    kwargs.pop("memory_format", None)
    before = _nodes.to_packed(input)
    after = function(before, *args, **kwargs)
    if after is before:
        return input
    if after.dtype not in DTYPES:
        return densify(function, input, *args, **kwargs)
    return _nodes.from_packed(type(input), after, input.n)


def _type(input: PackedTensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
    return _convert(Tensor.type, input, dtype, **kwargs) if dtype else input._packed.type()


def _like(function: Function, input: PackedTensor, **kwargs: Any) -> Tensor:
    """A new tensor of the type: uninitialised, or all of whose stored elements are one number."""
    kwargs.pop("memory_format", None)
    # The type is to be the leaf of autograd, not the tensor inside.
    packed = function(input._packed, **{**kwargs, "requires_grad": False})
    if packed.dtype not in DTYPES:
        return densify(function, input, **kwargs)
    result = _nodes.from_packed(type(input), packed, input.n)
    return result.requires_grad_() if kwargs.get("requires_grad") else result


def _full_like(input: PackedTensor, fill_value: Any, **kwargs: Any) -> Tensor:
    """A constant is symmetric, a real one Hermitian; zero is triangular too."""
    complex_hermitian = input.kind == layout.HERMITIAN and is_complex_number(fill_value)
    keeps = input.kind in layout.MIRRORED or _is_state_of_adagrad()
    if fill_value == 0 or (keeps and not complex_hermitian):
        function = partial(torch.full_like, fill_value=fill_value)
        return _like(function, input, **kwargs)
    return densify(torch.full_like, input, fill_value, **kwargs)


def _is_state_of_adagrad() -> bool:
    """Whether Adagrad asks for its sums of squares, which are to begin with a number.

    It adds to them, and divides by them, element by element. A triangle has no use for sums where
    nothing is stored, nor have the lists of its other steps a place for dense tensors.
    """
    return caller("torch.optim.adagrad", "__init__", "_init_group") is not None


def _new(function: Function, input: PackedTensor, *args: Any, **kwargs: Any) -> Tensor:
    """A plain new tensor of the dtype and device of ``input``."""
    return function(input._packed, *args, **kwargs)


def _eye(n: int, m: int | None = None, *, out: Any, **kwargs: Any) -> PackedTensor:
    """The identity put into a type, as torch.nn.init.eye_ does."""
    if m not in (None, n):
        raise ValueError(f"[eye] expected a square shape; got ({n}, {m}) and {describe(out)}")
    dtype = kwargs.get("dtype") or out.dtype
    write_out("eye", type(out).eye(n, dtype=dtype, device=out.device), out)
    return out.requires_grad_() if kwargs.get("requires_grad") else out


_COPIES = (
    "clone contiguous to cpu cuda xpu ipu mtia type_as pin_memory half bfloat16 float double "
    "cfloat cdouble resolve_conj resolve_neg"
)
for _function in functions(_COPIES):
    row(_function, PackedTensor)(partial(_convert, _function))
row(Tensor.type, PackedTensor)(_type)
for _function in functions("zeros_like empty_like"):
    row(_function, PackedTensor)(partial(_like, _function))
row(torch.full_like, PackedTensor)(_full_like)
for _cls in (Symmetric, Hermitian):
    row(torch.ones_like, _cls, result=_cls)(partial(_like, torch.ones_like))
for _function in functions("new_zeros new_ones new_empty new_full new_tensor new"):
    row(_function, PackedTensor)(partial(_new, _function))
row(torch.eye)(_eye)
