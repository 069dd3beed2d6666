"""Functions that return the same elements under another type: transposes, conjugates, detach.

They are views as torch has them. Torch's own code makes the view, so that versions are shared and
in-place changes through it differentiate, and the aten table gives the new type over the same inner
tensor object.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from packedtri import _nodes, _tracing
from packedtri._recording import (
    carries_autograd,
    forward_mode,
    is_recorded,
    is_transformed,
    ops_are_watched,
)
from packedtri._sharing import owner_of, shares_memory
from packedtri.dispatch import Function, alias, row
from packedtri.layout import HERMITIAN
from packedtri.ops.attributes import passed
from packedtri.ops.dense import densify, functions
from packedtri.ops.dims import from_front
from packedtri.tensor import PackedTensor

# Steps from the root up to which chains are left to torch, since it takes time to look for others.
_STEPS = 3


def view(function: Function, input: PackedTensor, *args: Any, **kwargs: Any) -> Any:
    """A view of a type whose elements no torch.func transform has wrapped, made by torch itself.

    It is a constant to every transform under way, which would hide its type.
    """
    if _tracing.is_compiling():
        return passed(function, input, *args, **kwargs)
    known = _ancestors(input)
    if len(known) >= _STEPS and _may_start_anew(input, known):
        apart = _outside(function, _detached(input), *args, **kwargs)
        parts: Any = (apart,) if isinstance(apart, Tensor) else apart
        found = [_anew(part, input, known) for part in parts]
        if all(x is not None for x in found):
            return found[0] if isinstance(apart, Tensor) else type(apart)(found)
    result = _outside(function, input, *args, **kwargs)
    for part in (result,) if isinstance(result, Tensor) else result:
        _remember(part, input)
    return result


def _outside(function: Function, *args: Any, **kwargs: Any) -> Any:
    """``passed``, outside of all transforms of torch.func."""
    if _tracing.is_compiling() or torch._C._functorch.maybe_current_level() is None:
        return passed(function, *args, **kwargs)
    with temporarily_clear_interpreter_stack():
        return passed(function, *args, **kwargs)


def _remember(view: Any, viewed: PackedTensor) -> PackedTensor:
    """A view that knows what it is of, unless it is no view to torch, as in inference mode."""
    if not view._packed.is_inference():
        view._viewed = viewed
    return view


def _ancestors(t: PackedTensor) -> list[PackedTensor]:
    """What ``t`` is a view of, from the root on."""
    found = []
    while (viewed := t.__dict__.get("_viewed")) is not None:
        found.append(viewed)
        t = viewed
    return found[::-1]


def _may_start_anew(t: PackedTensor, known: list[PackedTensor]) -> bool:
    """Whether nobody would see that a view of ``t`` is made of one of these, in other steps."""
    return not (
        is_recorded(t, *known)
        or forward_mode()
        or ops_are_watched()
        or type(t._packed) is not Tensor
        or is_transformed(t._packed)
    )


def _anew(wanted: PackedTensor, t: PackedTensor, known: list[PackedTensor]) -> PackedTensor | None:
    """``wanted``, which is apart from ``t``, as a view of the first of these that has its elements.

    Products tell a transpose and an adjoint by the very tensor inside, which must stay.
    """
    root = owner_of(t)
    for x in known:
        whole: Any = owner_of(x)
        if whole is not root or type(x) not in (type(wanted), type(wanted).transposed):
            continue
        index: tuple[slice, ...] | None = ()
        if wanted._packed is t._packed:
            found = x._packed is t._packed
        elif _nodes.are_conjugates(wanted, t):
            found = _nodes.are_conjugates(x, t)
        else:
            found = True
            index = _index(x._packed, wanted._packed)
        if found and index is not None:
            return _at(x, type(wanted), index)
    return None


def _at(x: PackedTensor, cls: type[PackedTensor], index: tuple[slice, ...]) -> PackedTensor:
    """Matrices of ``x`` as another type, at most that of its transpose."""
    if type(x) is not cls:
        turned = _remember(_outside(Tensor.transpose, x, -2, -1), x)
        return _at(turned, cls, index) if index else turned
    if index:
        return _remember(_outside(Tensor.__getitem__, x, index), x)
    return _remember(_outside(torch.ops.aten.alias.default, x), x)


def _index(whole: Tensor, part: Tensor) -> tuple[slice, ...] | None:
    """Slices that take ``part`` from ``whole``, none for all of it; None where there are none."""
    if part.dim() != whole.dim() or part.is_conj() != whole.is_conj():
        return None
    if part.is_neg() != whole.is_neg() or not shares_memory(part, whole) or not part.numel():
        return None
    if _geometry(part) == _geometry(whole):
        return ()
    left = int(part.storage_offset()) - int(whole.storage_offset())
    slices = [slice(None)] * (whole.dim() - 1)
    # What is left of the offset is less than a step along the dimensions before.
    for dim in sorted(range(whole.dim() - 1), key=whole.stride, reverse=True):
        stride, length = whole.stride(dim), part.shape[dim]
        if stride == 0 or left < 0:
            return None
        start, left = divmod(left, stride)
        step = max(part.stride(dim) // stride, 1) if length > 1 else 1
        slices[dim] = slice(start, start + (length - 1) * step + 1, step)
    index = tuple(slices)
    return index if _geometry(whole[index]) == _geometry(part) else None


def _geometry(x: Tensor) -> tuple[Any, ...]:
    """Where the elements of a tensor lie in its storage."""
    strides = tuple(s for n, s in zip(x.shape, x.stride(), strict=True) if n > 1)
    return x.shape, strides, x.storage_offset()


def _transpose(input: PackedTensor, dim0: int, dim1: int) -> Tensor:
    rank = input._packed.dim() + 1
    dims = {from_front(dim0, rank), from_front(dim1, rank)}
    if dims == {rank - 2, rank - 1}:
        return _matrix_transpose(input)
    if max(dims) < rank - 2:
        if not carries_autograd(input._packed):
            return view(Tensor.transpose, input, dim0, dim1)
        packed = input._packed.transpose(*(dims if len(dims) == 2 else (0, 0)))
        return input._wrap(packed, input.n)
    # Other dimensions lead to shapes that no packed type has.
    return densify(Tensor.transpose, input, dim0, dim1)


def _matrix_transpose(input: PackedTensor) -> PackedTensor:
    if carries_autograd(input._packed):
        packed = _nodes.transposed_elements(input)
        return _nodes.from_packed(type(input).transposed, packed, input.n)
    return view(Tensor.transpose, input, -2, -1)


def _conj(input: PackedTensor) -> PackedTensor:
    if not input._packed.is_complex():
        return input
    if carries_autograd(input._packed):
        result = _nodes.from_packed(type(input), input._packed.conj(), input.n)
        result._conjugate_of = input._packed
        return result
    return view(Tensor.conj, input)


def _adjoint(input: PackedTensor) -> PackedTensor:
    if input.kind == HERMITIAN:
        return input
    return _conj(_matrix_transpose(input))


def _detach(input: PackedTensor) -> PackedTensor:
    if carries_autograd(input._packed):
        return _nodes.from_packed(type(input), input._packed.detach(), input.n)
    return _detached(input)


def _detached(input: PackedTensor) -> PackedTensor:
    return _outside(Tensor.detach, input)


def _square_only(function: Function, input: PackedTensor) -> Tensor:
    """Functions that torch defines for two dimensions only."""
    if input._packed.dim() != 1:
        return densify(function, input)
    return _matrix_transpose(input)


def _swapaxes(input: PackedTensor, axis0: int, axis1: int) -> Tensor:
    return _transpose(input, axis0, axis1)


row(functions("transpose swapdims"))(_transpose)
row(functions("swapaxes"))(_swapaxes)
row([Tensor.mT.__get__])(_matrix_transpose)
row([*functions("adjoint"), Tensor.mH.__get__])(_adjoint)
row(functions("conj"))(_conj)
row(functions("detach"))(_detach)
row(functions("detach_"), how="passed")(partial(passed, Tensor.detach_))
row(Tensor.data.__get__)(_detach)
for _function in (*functions("t"), Tensor.T.__get__):
    row(_function)(partial(_square_only, _function))


@row(Tensor.H.__get__)
def _h(input: PackedTensor) -> Any:
    return densify(Tensor.H.__get__, input) if input._packed.dim() != 1 else _adjoint(input)


# What Dynamo makes of these properties.
alias(torch.ops.aten.mT, Tensor.mT.__get__)
alias(torch.ops.aten.mH, Tensor.mH.__get__)
alias(torch.ops.aten.numpy_T, Tensor.T.__get__)
alias(torch.ops.aten.matrix_H, Tensor.H.__get__)
