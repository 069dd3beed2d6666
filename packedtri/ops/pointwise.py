"""Elementwise functions that keep a type, computed on the stored elements.

Each type is a linear space: sums, differences and multiples keep it. Functions that map 0 to 0
keep triangular types, and any elementwise function keeps Symmetric. Those that map conjugates to
conjugates, and so real numbers to real ones, keep Hermitian. Structural zeros take no part: 0 stays
0 when a triangle is multiplied by infinity.
"""

from __future__ import annotations

import inspect
from functools import lru_cache, partial
from numbers import Number
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from packedtri import _dense_guard, _nodes, _tracing, layout
from packedtri._bands import real_diagonal
from packedtri._recording import is_plain, is_transformed, ops_are_watched
from packedtri._sharing import share
from packedtri._values import INTEGERS, REALS, function_name
from packedtri.dispatch import Function, row
from packedtri.ops.dense import densify, functions, is_complex_number, shape_of
from packedtri.ops.lost_writes import watch
from packedtri.tensor import (
    DTYPES,
    Hermitian,
    LowerTriangular,
    PackedTensor,
    Symmetric,
    UpperTriangular,
)

_TRIANGULAR = (LowerTriangular, UpperTriangular)
_MIRRORED = (Symmetric, Hermitian)
_ALL = (*_TRIANGULAR, *_MIRRORED)
_ZERO_TO_ZERO = """
    abs absolute angle arcsin arcsinh arctan arctanh asin asinh atan atanh bessel_j1 ceil
    conj_physical deg2rad entr erf erfinv expm1 fix floor frac hardshrink i1 i1e log1p
    modified_bessel_i1 nan_to_num neg negative rad2deg relu round sgn sign sin sinh sqrt
    square tan tanh trunc __abs__ __neg__
"""
_OTHERS = """
    acos acosh arccos arccosh bessel_j0 bessel_y0 bessel_y1 cos cosh digamma erfc erfcx exp exp2
    expit gammaln i0 i0e lgamma log log10 log2 log_ndtr logit modified_bessel_i0 modified_bessel_k0
    modified_bessel_k1 ndtr ndtri psi reciprocal rsqrt sigmoid sinc spherical_bessel_j0
"""
# Of torch.nn.functional, some of torch as well.
_ACTIVATIONS_OF_ZERO = """
    celu elu gelu hardshrink hardswish leaky_relu mish relu relu6 selu silu softshrink softsign
    tanhshrink tanh
"""
_ACTIVATIONS = "hardsigmoid hardtanh logsigmoid sigmoid softplus threshold"
_ADDITION = "add sub subtract rsub __add__ __radd__ __sub__ __rsub__"
_MULTIPLICATION = "mul multiply __mul__ __rmul__"
_DIVISION = " div divide true_divide __truediv__ __div__"
# What of these computes into a tensor of the caller's, by their names.
_COMPUTE_INTO: dict[str, Function] = {
    **dict.fromkeys(("add", "__add__", "__radd__"), torch.add),
    **dict.fromkeys(("sub", "subtract", "__sub__"), torch.sub),
    **dict.fromkeys(_MULTIPLICATION.split(), torch.mul),
    **dict.fromkeys(_DIVISION.split(), torch.div),
}
_POWER = "pow __pow__"
_REMAINDERS = "floor_divide fmod remainder __floordiv__ __mod__"
# Functions of two elements that map two zeros to zero, and others.
_PAIRS_OF_ZEROS = "maximum minimum fmax fmin hypot atan2 arctan2 copysign nextafter"
_PAIRS = f"logaddexp logaddexp2 xlogy heaviside float_power {_REMAINDERS} {_DIVISION} {_POWER}"
_CLAMPS = "clamp clip clamp_min clamp_max"
_IMAGINARY = (Tensor.imag.__get__, torch.imag)
# Of complex numbers: f(conj z) = conj f(z) for all z, on the real axis too. Roots and logarithms of
# negative numbers are not real.
_KEEP_CONJUGATES = set(
    f"""
    abs absolute arcsinh arctan asinh atan conj_physical cos cosh deg2rad exp exp2 expit expm1
    neg negative positive rad2deg reciprocal sgn sigmoid sin sinc sinh square tan
    tanh __abs__ __neg__ __pos__ __rtruediv__ __rdiv__ addcmul addcdiv lerp equal allclose
    {_ADDITION} {_MULTIPLICATION} {_DIVISION}
    """.split()
)
# Torch casts what elementwise functions compute to the dtype of ``out``.
_row = partial(row, casts=True)


def _keep(function: Function, input: PackedTensor, *args: Any, **kwargs: Any) -> Tensor:
    """Apply ``function`` to the stored elements, also of packed arguments.

    Complex numbers make complex ones of 16 bits out of float16, which no type has: dense then.
    """
    packed = function(_nodes.to_elements(input), *map(_elements, args), **kwargs)
    if packed is NotImplemented:
        # An operator that does not know the other operand, which Python asks next.
        return packed
    if packed.dtype not in DTYPES:
        return densify(function, input, *args, **kwargs)
    return _nodes.from_packed(type(input), packed, input.n)


def _elements(value: Any) -> Any:
    """What meets the stored elements: those of a type, or one number for each matrix."""
    if isinstance(value, PackedTensor):
        return _nodes.to_elements(value)
    return value.squeeze(-1) if isinstance(value, Tensor) and value.dim() > 1 else value


def _part(function: Function, input: PackedTensor) -> Tensor:
    """The real or imaginary part, of the stored elements as they lie in memory."""
    if input.kind == layout.HERMITIAN and function in _IMAGINARY:
        # Antisymmetric, so that no type holds it.
        copy = densify(function, input)
        watch("torch.imag", copy, input)
        return copy
    if not input.dtype.is_complex and function not in _IMAGINARY:
        return input
    part = _nodes.from_packed(type(input), function(_nodes.to_packed(input)), input.n)
    if not _tracing.is_compiling():
        share(part, input)
    return part


def _itself(function: Function, input: PackedTensor) -> PackedTensor:
    """What torch returns its argument for."""
    return input


def _hermitian(compute: Function, function: Function, *args: Any, **kwargs: Any) -> Any:
    """``compute``, the handler that serves Symmetric, where its result is Hermitian; else dense."""
    values = (*args, *kwargs.values())
    packed = [x for x in values if isinstance(x, PackedTensor)]
    power = _bare_name(function) in _POWER.split() and isinstance(values[1], INTEGERS)
    keeps = _result(function, Hermitian) is Hermitian or power
    if any(x._packed.is_complex() for x in packed) and not keeps:
        return densify(function, *args, **kwargs)
    if any(map(is_complex_number, values)):
        return densify(function, *args, **kwargs)
    return compute(function, *args, **kwargs)


def _bare_name(function: Function) -> str:
    return function.__name__.removeprefix("special_")


def _result(function: Function, cls: type) -> type | None:
    """The type of what an elementwise function gives that keeps ``cls``, if the type alone says."""
    lost = cls is Hermitian and _bare_name(function) not in _KEEP_CONJUGATES
    return None if lost else cls


def _handler(compute: Function, function: Function, *types: type) -> Function:
    if Hermitian in types:
        return partial(_hermitian, compute, function)
    return partial(compute, function)


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
    return _keep(function, input, other, **kwargs)


def with_dense(function: Function, *operands: Any, **kwargs: Any) -> Tensor:
    """Combine a type and a dense tensor, in any order, to a dense one.

    It takes the place of the unpacked copy where that has its shape and dtype: of large matrices a
    second one costs more than all else, since the system gives it new pages each time.
    """
    compute = _COMPUTE_INTO.get(_bare_name(function))
    packed = [x for x in operands if isinstance(x, PackedTensor)]
    others = [x for x in operands if type(x) is Tensor]
    alone = len(packed) == len(others) == 1 and len(operands) == 2 and "out" not in kwargs
    if compute is None or not alone or not _may_overwrite(packed[0], others[0]):
        return densify(function, *operands, **kwargs)
    _dense_guard.tell(function, packed[0])
    x = packed[0].to_dense()
    return compute(*(x if isinstance(o, PackedTensor) else o for o in operands), **kwargs, out=x)


def _may_overwrite(t: PackedTensor, other: Tensor) -> bool:
    """Whether what is made of the two has the shape and dtype of ``t``, and nobody looks on."""
    inner = t._packed
    watched = ops_are_watched() or not is_plain(t, inner, other)
    if watched or any(map(is_transformed, (inner, other))) or other.layout is not torch.strided:
        return False
    shape = shape_of(t)
    sizes = zip(reversed(other.shape), reversed(shape), strict=False)
    fits = other.dim() <= len(shape) and all(size in (1, own) for size, own in sizes)
    return fits and torch.result_type(inner, other) == inner.dtype


def _with_number(function: Function, input: PackedTensor, other: Tensor, **kwargs: Any) -> Tensor:
    """Combine with a tensor; only one that is a number for each matrix keeps the type."""
    if _fits_each(other, input):
        return _keep(function, input, other, **kwargs)
    return with_dense(function, input, other, **kwargs)


def _number_first(function: Function, input: Tensor, other: PackedTensor, **kwargs: Any) -> Tensor:
    """The same where the tensor comes first and makes a difference there, as in ``x / S``."""
    if _fits_each(input, other):
        return _keep(partial(_flipped, function), other, input, **kwargs)
    return with_dense(function, input, other, **kwargs)


def _hadamard(function: Function, input: PackedTensor, other: Tensor, **kwargs: Any) -> Tensor:
    """Multiply a triangle elementwise by a dense tensor, of which only a triangle matters."""
    n = input.n
    if _is_number(other):
        return _keep(function, input, other, **kwargs)
    dtype = torch.promote_types(input.dtype, other.dtype)
    fits = dtype in DTYPES and other.layout is torch.strided
    if not fits or any(s not in (1, n) for s in other.shape[-2:]):
        return densify(function, input, other, **kwargs)
    half = torch.ops.packedtri.pack(other.to(dtype).expand(*other.shape[:-2], n, n), input.kind)
    packed = function(_nodes.to_elements(input), half, **kwargs)
    return _nodes.from_packed(type(input), packed, n)


def _is_number(x: Tensor) -> bool:
    """Whether a tensor is one number for each matrix."""
    return all(s == 1 for s in x.shape[-2:])


def _remainder(function: Function, input: PackedTensor, other: Any, **kwargs: Any) -> Tensor:
    if input.kind in layout.MIRRORED or other != 0:
        return _keep(function, input, other, **kwargs)
    return densify(function, input, other, **kwargs)


def _clamp(function: Function, input: PackedTensor, *bounds: Any, **kwargs: Any) -> Tensor:
    """Clamp between numbers; a triangular type stays where zero does."""
    names = ("max",) if function.__name__ == "clamp_max" else ("min", "max")
    given = {**dict(zip(names, bounds, strict=False)), **kwargs}
    low, high = given.pop("min", None), given.pop("max", None)
    if input.kind in layout.MIRRORED and all(
        b is None or _fits_each(b, input) for b in (low, high)
    ):
        named = {k: _elements(v) for k, v in kwargs.items()}
        return _keep(function, input, *bounds, **named)
    numbers = all(b is None or isinstance(b, REALS) for b in (low, high))
    if numbers and (low is None or low <= 0) and (high is None or high >= 0):
        return _keep(function, input, *bounds, **kwargs)
    return densify(function, input, *bounds, **kwargs)


# To look at a function takes longer than to call it.
_signature = lru_cache(inspect.signature)


def _activation(function: Function, input: PackedTensor, *args: Any, **kwargs: Any) -> Tensor:
    """A function of torch.nn.functional, of which many have an argument ``inplace``."""
    if not isinstance(function, FunctionType):
        return _keep(function, input, *args, **kwargs)
    bound = _signature(function).bind(input, *args, **kwargs)
    if not bound.arguments.get("inplace"):
        return _keep(function, input, *args, **kwargs)
    # What the computation saves for its derivative must not be what is overwritten.
    bound.arguments.update(inplace=False, input=input.clone())
    return input.copy_(_keep(function, *bound.args, **bound.kwargs))


def _hardtanh(function: Function, input: PackedTensor, *args: Any, **kwargs: Any) -> Tensor:
    """Clamp as a function of torch.nn.functional; a triangular type stays where zero does."""
    bound = _signature(function).bind(input, *args, **kwargs)
    bound.apply_defaults()
    if bound.arguments["min_val"] <= 0 <= bound.arguments["max_val"]:
        return _activation(function, input, *args, **kwargs)
    return densify(function, input, *args, **kwargs)


def _power(function: Function, input: PackedTensor, exponent: Any, **kwargs: Any) -> Tensor:
    if input.kind in layout.MIRRORED or (isinstance(exponent, REALS) and exponent > 0):
        return _keep(function, input, exponent, **kwargs)
    return densify(function, input, exponent, **kwargs)


def _sum_with_scalar(
    function: Function, input: Any, other: Any, *args: Any, **kwargs: Any
) -> Tensor:
    """Add a type and a number, or one for each matrix, in either order."""
    if args:
        return with_dense(function, input, other, *args, **kwargs)
    combine = _with_number if isinstance(input, PackedTensor) else _number_first
    return combine(function, input, other, **kwargs)


def _sum_with_zero(function: Function, input: Any, other: Any, *args: Any, **kwargs: Any) -> Tensor:
    """Add a triangle and a number: with 0, as the built-in ``sum`` begins, it stays one."""
    number = other if isinstance(input, PackedTensor) else input
    compute = _sum_with_scalar if number == 0 else densify
    return compute(function, input, other, *args, **kwargs)


def _flipped(function: Function, input: Any, other: Any, **kwargs: Any) -> Tensor:
    return function(other, input, **kwargs)


def _fits_each(value: Any, t: PackedTensor) -> bool:
    """Whether a value is a number, or one for each matrix, that keeps a mirrored type."""
    complex_number = is_complex_number(value) or (isinstance(value, Tensor) and value.is_complex())
    if t.kind == layout.HERMITIAN and complex_number:
        return False
    return not isinstance(value, Tensor) or _is_number(value)


def _swapped(compute: Function) -> Function:
    """The same for a product whose second argument is the packed one, as in ``x * L``."""

    def handler(function: Function, input: Any, other: PackedTensor, **kwargs: Any) -> Tensor:
        return compute(function, other, input, **kwargs)

    return handler


def _add(names: str, compute: Function, *types: type, result: type | None) -> None:
    """A row for each function of these names; ``compute`` gets the function and its arguments."""
    for function in functions(names):
        kept = None if result is None else _result(function, result)
        _row(function, *types, result=kept)(_handler(compute, function, *types))


def _add_unary(names: str, types: tuple[type, ...]) -> None:
    for function in functions(names, torch, Tensor, torch.special):
        for cls in types:
            _row(function, cls, result=_result(function, cls))(_handler(_keep, function, cls))


_add_unary(_ZERO_TO_ZERO, _ALL)
_add_unary(_OTHERS, _MIRRORED)


for _names, _kept in ((_ACTIVATIONS_OF_ZERO, _ALL), (_ACTIVATIONS, _MIRRORED)):
    for _function in functions(_names, torch.nn.functional, torch):
        for _cls in _kept:
            _kept_type = _result(_function, _cls)
            _row(_function, _cls, result=_kept_type)(_handler(_activation, _function, _cls))

for _function in (Tensor.real.__get__, Tensor.imag.__get__, torch.real, torch.imag):
    row(_function, PackedTensor)(partial(_part, _function))

for _cls in _ALL:
    _add("positive __pos__", _itself, _cls, result=_cls)

for _cls in _ALL:
    _add(_ADDITION, _pair, _cls, _cls, result=_cls)
    _add(_MULTIPLICATION, _pair, _cls, _cls, result=_cls)
    _add(_PAIRS_OF_ZEROS, _pair, _cls, _cls, result=_cls)
    if _cls is not Hermitian:
        _add("complex", _pair, _cls, _cls, result=_cls)
    _add(_REMAINDERS, _remainder, _cls, Number, result=None)
    _add(_CLAMPS, _clamp, _cls, result=None)
    _add(_MULTIPLICATION + _DIVISION, _number, _cls, Number, result=_cls)
    _add(_POWER, _power, _cls, Number, result=None)
for _cls in _TRIANGULAR:
    for _function in functions("hardtanh", torch.nn.functional):
        _row(_function, _cls, result=None)(_handler(_hardtanh, _function, _cls))
    # Structural zeros stay, as they do divided by a dense matrix.
    _add(_DIVISION, _pair, _cls, _cls, result=_cls)
    _add(_ADDITION, _sum_with_zero, _cls, Number, result=None)
    _add(_MULTIPLICATION + _DIVISION, _hadamard, _cls, Tensor, result=_cls)
    _add(_MULTIPLICATION, _swapped(_hadamard), Tensor, _cls, result=_cls)
    _add(_ADDITION, with_dense, _cls, Tensor, result=None)
    _add(_ADDITION, with_dense, Tensor, _cls, result=None)
for _cls in _MIRRORED:
    _add(_PAIRS, _pair, _cls, _cls, result=_cls)
    _add("__rtruediv__ __rdiv__ __rpow__", _keep, _cls, Number, result=_cls)
    _add("copysign float_power xlogy", _number, _cls, Number, result=None)
    _add(f"{_MULTIPLICATION} {_PAIRS_OF_ZEROS} {_PAIRS}", _with_number, _cls, Tensor, result=None)
    _add(_MULTIPLICATION, _swapped(_with_number), Tensor, _cls, result=None)
    _add(f"{_PAIRS_OF_ZEROS} {_PAIRS}", _number_first, Tensor, _cls, result=None)
    # A constant is a symmetric matrix.
    _add(_ADDITION, _sum_with_scalar, _cls, Number, result=_cls)
    for _types in ((_cls, Tensor), (Tensor, _cls)):
        _add(_ADDITION, _sum_with_scalar, *_types, result=None)
# Methods always have a tensor first; functions may have a number there.
for _function in functions("add sub subtract", torch):
    for _cls in _MIRRORED:
        _compute = _handler(_sum_with_scalar, _function, _cls)
        _row(_function, Number, _cls, result=_cls)(_compute)
    for _cls in _TRIANGULAR:
        _row(_function, Number, _cls, result=None)(_handler(_sum_with_zero, _function, _cls))
for _function in functions(_MULTIPLICATION, torch):
    for _cls in _ALL:
        _compute = _handler(_swapped(_number), _function, _cls)
        _row(_function, Number, _cls, result=_cls)(_compute)


def _lerp(
    function: Function, input: PackedTensor, end: PackedTensor, weight: Any, **kwargs: Any
) -> Tensor:
    number = isinstance(weight, (Number, *REALS, Tensor)) and not isinstance(weight, PackedTensor)
    if not number or not _fits_each(weight, input) or input.n != end.n:
        return densify(function, input, end, weight, **kwargs)
    return _keep(function, input, end, weight, **kwargs)


def _triple(
    function: Function, input: PackedTensor, tensor1: PackedTensor, tensor2: Any, **kwargs: Any
) -> Tensor:
    if type(tensor2) is not type(input) or not input.n == tensor1.n == tensor2.n:
        return densify(function, input, tensor1, tensor2, **kwargs)
    return _keep(function, input, tensor1, tensor2, **kwargs)


for _cls in _ALL:
    _add("addcmul addcdiv" if _cls in _MIRRORED else "addcmul", _triple, _cls, _cls, result=None)
    _add("lerp", _lerp, _cls, _cls, result=None)


def _where(condition: Tensor, input: Any, other: Any, **kwargs: Any) -> Tensor:
    """Choose between matrices as a whole: where there is one condition for each of them."""
    types = [x for x in (input, other) if isinstance(x, PackedTensor)]
    rest = [x for x in (input, other) if not isinstance(x, PackedTensor)]
    first = types[0]
    # Under torch.compile an order may be a symbol, which has no hash.
    alike = all(type(t) is type(first) and t.n == first.n for t in types)
    keeps = alike and all(_may_fill(x, first) for x in rest)
    if isinstance(condition, PackedTensor) or not _is_number(condition) or not keeps or kwargs:
        return densify(torch.where, condition, input, other, **kwargs)
    packed = torch.where(_elements(condition), _elements(input), _elements(other))
    if packed.dtype not in DTYPES:
        return densify(torch.where, condition, input, other)
    return _nodes.from_packed(type(first), packed, first.n)


def _may_fill(value: Any, t: PackedTensor) -> bool:
    """Whether all elements of a matrix of the type of ``t`` may have this value."""
    if t.kind in layout.MIRRORED:
        return _fits_each(value, t)
    return not isinstance(value, Tensor) and value == 0


def _masked_fill(
    function: Function, input: PackedTensor, mask: Tensor, value: Any, **kwargs: Any
) -> Tensor:
    """Fill whole matrices: where there is one element of the mask for each of them."""
    each = not isinstance(mask, PackedTensor) and _is_number(mask) and mask.dtype == torch.bool
    number = not isinstance(value, Tensor) or value.dim() == 0
    if not each or not number or not _may_fill(value, input) or kwargs:
        return densify(function, input, mask, value, **kwargs)
    return _keep(function, input, mask, value)


for _cls in _ALL:
    for _function in functions("masked_fill"):
        row(_function, _cls)(partial(_masked_fill, _function))
    row(torch.where, Tensor, _cls, _cls)(_where)
    for _other in (Tensor, Number):
        row(torch.where, Tensor, _cls, _other)(_where)
        row(torch.where, Tensor, _other, _cls)(_where)


@row(Tensor.where)
def _where_method(self: Any, condition: Any, other: Any) -> Tensor:
    return torch.where(condition, self, other)


def _compare(
    function: Function, input: PackedTensor, other: PackedTensor, *args: Any, **kwargs: Any
) -> bool:
    if input.n != other.n:
        return densify(function, input, other, *args, **kwargs)
    first, second = (real_diagonal(t._packed, t.kind, t.n) for t in (input, other))
    return function(first, second, *args, **kwargs)


for _cls in _ALL:
    _add("equal allclose", _compare, _cls, _cls, result=bool)
