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
from packedtri._recording import carries_autograd
from packedtri.dispatch import Function, alias, row
from packedtri.layout import HERMITIAN
from packedtri.ops.attributes import passed
from packedtri.ops.dense import densify, functions
from packedtri.ops.dims import from_front
from packedtri.tensor import PackedTensor


def view(function: Function, input: PackedTensor, *args: Any, **kwargs: Any) -> Any:
    """A view of a type whose elements no torch.func transform has wrapped, made by torch itself.

    It is a constant to every transform under way, which would hide its type.
    """
    if _tracing.is_compiling() or torch._C._functorch.maybe_current_level() is None:
        return passed(function, input, *args, **kwargs)
    with temporarily_clear_interpreter_stack():
        return passed(function, input, *args, **kwargs)


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
    return view(Tensor.detach, input)


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
