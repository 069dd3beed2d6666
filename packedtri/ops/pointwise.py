"""Elementwise functions that keep a type, computed on the stored elements.

Each type is a linear space: sums, differences and multiples keep it. Functions that map 0 to 0
keep triangular types, and any elementwise function keeps Symmetric. Structural zeros take no part:
0 stays 0 when a triangle is multiplied by infinity.
"""

from __future__ import annotations

from functools import partial
from numbers import Number
from typing import Any

import torch
from torch import Tensor

from packedtri import _nodes, layout
from packedtri.dispatch import Function, function_name, row
from packedtri.ops.attributes import passed
from packedtri.ops.dense import densify, functions
from packedtri.tensor import LowerTriangular, PackedTensor, Symmetric, UpperTriangular

_TRIANGULAR = (LowerTriangular, UpperTriangular)
_ZERO_TO_ZERO = """
    abs absolute arcsin arcsinh arctan arctanh asin asinh atan atanh ceil deg2rad erf erfinv expm1
    fix floor frac log1p nan_to_num neg negative positive rad2deg relu round sgn sign sin sinh sqrt
    square tan tanh trunc __abs__ __neg__ __pos__
"""
_OTHERS = """
    acos acosh arccos arccosh cos cosh digamma erfc exp exp2 lgamma log log10 log2 logit reciprocal
    rsqrt sigmoid sinc
"""
_ADDITION = "add sub subtract rsub __add__ __radd__ __sub__ __rsub__"
_MULTIPLICATION = "mul multiply __mul__ __rmul__"
_DIVISION = " div divide true_divide __truediv__ __div__"
_POWER = "pow __pow__"
_EXTREMES = "maximum minimum fmax fmin"


def _keep(function: Function, input: PackedTensor, *args: Any, **kwargs: Any) -> PackedTensor:
    """Apply ``function`` to the stored elements."""
    if kwargs.get("out") is not None:
        raise NotImplementedError(f"[{_name(function)}] out= is not supported with packed types")
    packed = function(_nodes.to_packed(input), *args, **kwargs)
    return _nodes.from_packed(type(input), packed, input.n)


def _name(function: Function) -> str:
    return function_name(function.args[0] if isinstance(function, partial) else function)


def _number(
    function: Function, input: PackedTensor, other: complex, *args: Any, **kwargs: Any
) -> Tensor:
    """Combine with a number. More arguments, as in add(input, alpha, other), are left to torch."""
    if args:
        return densify(function, input, other, *args, **kwargs)
    return _keep(function, input, other, **kwargs)


def _pair(function: Function, input: PackedTensor, other: PackedTensor, **kwargs: Any) -> Tensor:
    """Apply ``function`` to the stored elements of two matrices of the same type."""
    if input.n != other.n:
        return densify(function, input, other, **kwargs)
    if isinstance(kwargs.get("out"), PackedTensor):
        return passed(function, input, other, **kwargs)
    return _keep(function, input, _nodes.to_packed(other), **kwargs)


def _scaled(function: Function, input: PackedTensor, other: Tensor, **kwargs: Any) -> Tensor:
    """Multiply or divide by a tensor; one of no dimensions is a number."""
    if other.dim() == 0:
        return _keep(function, input, other, **kwargs)
    return densify(function, input, other, **kwargs)


def _hadamard(function: Function, input: PackedTensor, other: Tensor, **kwargs: Any) -> Tensor:
    """Multiply a triangle elementwise by a dense tensor, of which only a triangle matters."""
    n = input.n
    if other.dim() == 0:
        return _keep(function, input, other, **kwargs)
    if other.dtype != input._packed.dtype or any(s not in (1, n) for s in other.shape[-2:]):
        return densify(function, input, other, **kwargs)
    half = torch.ops.packedtri.pack(other.expand(*other.shape[:-2], n, n), input.kind)
    return _keep(function, input, half, **kwargs)


def _power(function: Function, input: PackedTensor, exponent: Any, **kwargs: Any) -> Tensor:
    if input.kind == layout.SYMMETRIC or (isinstance(exponent, (int, float)) and exponent > 0):
        return _keep(function, input, exponent, **kwargs)
    return densify(function, input, exponent, **kwargs)


def _sum_with_scalar(
    function: Function, input: Any, other: Any, *args: Any, **kwargs: Any
) -> Tensor:
    """Add a Symmetric and a number in either order; the number may be a tensor of no dimensions."""
    first = isinstance(input, PackedTensor)
    symmetric, number = (input, other) if first else (other, input)
    if args or (isinstance(number, Tensor) and number.dim() > 0):
        return densify(function, input, other, *args, **kwargs)
    if first:
        return _keep(function, input, other, **kwargs)
    return _keep(partial(_flipped, function), symmetric, number, **kwargs)


def _flipped(function: Function, input: Any, other: Any, **kwargs: Any) -> Tensor:
    return function(other, input, **kwargs)


def _swapped(compute: Function) -> Function:
    """The same for a function whose second argument is the packed one, as in ``x * L``."""

    def handler(function: Function, input: Any, other: PackedTensor, **kwargs: Any) -> Tensor:
        return compute(function, other, input, **kwargs)

    return handler


def _add(names: str, compute: Function, *types: type, result: type | None) -> None:
    """A row for each function of these names; ``compute`` gets the function and its arguments."""
    for function in functions(names):
        row(function, *types, result=result)(partial(compute, function))


def _add_unary(names: str, types: tuple[type, ...]) -> None:
    for function in functions(names, torch, Tensor, torch.special):
        for cls in types:
            row(function, cls, result=cls)(partial(_keep, function))


_add_unary(_ZERO_TO_ZERO, (*_TRIANGULAR, Symmetric))
_add_unary(_OTHERS, (Symmetric,))


@row(torch.nn.functional.relu, PackedTensor)
def _relu(input: PackedTensor, inplace: bool = False) -> PackedTensor:
    if inplace:
        raise NotImplementedError("[relu] inplace=True is not supported with packed types")
    return _keep(torch.relu, input)


for _function in (Tensor.real.__get__, Tensor.imag.__get__, torch.real, torch.imag):
    row(_function, PackedTensor)(partial(_keep, _function))

for _cls in (*_TRIANGULAR, Symmetric):
    _add(_ADDITION, _pair, _cls, _cls, result=_cls)
    _add(_MULTIPLICATION, _pair, _cls, _cls, result=_cls)
    _add(_EXTREMES, _pair, _cls, _cls, result=_cls)
    _add(_MULTIPLICATION + _DIVISION, _number, _cls, Number, result=_cls)
    _add(_DIVISION, _scaled, _cls, Tensor, result=None)
    _add(_POWER, _power, _cls, Number, result=None)
for _cls in _TRIANGULAR:
    _add(_MULTIPLICATION, _hadamard, _cls, Tensor, result=_cls)
    _add(_MULTIPLICATION, _swapped(_hadamard), Tensor, _cls, result=_cls)
_add(_MULTIPLICATION, _scaled, Symmetric, Tensor, result=None)
_add(_MULTIPLICATION, _swapped(_scaled), Tensor, Symmetric, result=None)
# A constant is a symmetric matrix.
_add(_ADDITION, _sum_with_scalar, Symmetric, Number, result=Symmetric)
for _types in ((Symmetric, Tensor), (Tensor, Symmetric)):
    _add(_ADDITION, _sum_with_scalar, *_types, result=None)
# Methods always have a tensor first; functions may have a number there.
for _function in functions("add sub subtract", torch):
    row(_function, Number, Symmetric, result=Symmetric)(partial(_sum_with_scalar, _function))
for _function in functions(_MULTIPLICATION, torch):
    for _cls in (*_TRIANGULAR, Symmetric):
        _handler = partial(_swapped(_number), _function)
        row(_function, Number, _cls, result=_cls)(_handler)


def _triple(
    function: Function, input: PackedTensor, tensor1: PackedTensor, tensor2: Any, **kwargs: Any
) -> Tensor:
    if type(tensor2) is not type(input) or not input.n == tensor1.n == tensor2.n:
        return densify(function, input, tensor1, tensor2, **kwargs)
    others = map(_nodes.to_packed, (tensor1, tensor2))
    return _keep(function, input, *others, **kwargs)


for _cls in (*_TRIANGULAR, Symmetric):
    for _function in functions("addcmul"):
        row(_function, _cls, _cls, result=None)(partial(_triple, _function))


def _compare(
    function: Function, input: PackedTensor, other: PackedTensor, *args: Any, **kwargs: Any
) -> bool:
    if input.n != other.n:
        return densify(function, input, other, *args, **kwargs)
    return function(input._packed, other._packed, *args, **kwargs)


for _cls in (*_TRIANGULAR, Symmetric):
    _add("equal allclose", _compare, _cls, _cls, result=bool)
