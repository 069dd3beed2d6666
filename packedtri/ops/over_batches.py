"""Reductions and scans over batch dimensions alone, which keep the type.

What is made of the elements at one place of all matrices is an element of the result, so the stored
ones suffice. Structural zeros stay where the function maps zeros to zero. Positions along a batch
dimension are integers, which no type has, and dense.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor

from packedtri import _nodes, layout
from packedtri._dtensor import is_spread
from packedtri.dispatch import Function, row
from packedtri.layout import DTYPES
from packedtri.ops.dense import densify, functions
from packedtri.ops.dims import batch_dim
from packedtri.ops.shapes import torch_names
from packedtri.tensor import PackedTensor

_ZERO_OF_ZEROS = (
    "aminmax argmax argmin argsort cummax cummin cumprod median mode nanmedian nansum sort"
)
# The same of functions whose dimension comes second.
_ZERO_OF_ZEROS_SECOND = "kthvalue nanquantile quantile topk"
# What these make of no elements at all is not zero.
_ZERO_OF_SOME_ZEROS = "nanmean prod"
_OTHERS = "log_softmax logcumsumexp logsumexp softmax"
# Torch casts what these compute to the dtype of ``out``.
_CASTING = {"cumprod", "logsumexp", "nanmean", "nansum", "prod"}


def batch_dims(t: PackedTensor, dim: Any) -> Any:
    """The dimensions that a function was given, counted from the front; None for other ones."""
    rank = t._packed.dim() + 1
    if isinstance(dim, int):
        return batch_dim(dim, rank)
    if not isinstance(dim, Sequence) or not dim or not all(isinstance(d, int) for d in dim):
        return None
    at = tuple(batch_dim(d, rank) for d in dim)
    return None if None in at else at


def size_along(t: PackedTensor, dims: Any) -> int:
    """How many matrices lie along batch dimensions."""
    shape = t._packed.shape
    return prod(shape[d] for d in (dims if isinstance(dims, tuple) else (dims,)))


def may_reduce(t: PackedTensor, dims: Any, zero_stays: bool) -> bool:
    """Whether a function of these dimensions is computed on the stored elements.

    Args:
        dims: as ``batch_dims`` gives them.
        zero_stays: whether it makes zero of the structural zeros.
    """
    if dims is None or is_spread(t._packed):
        return False
    return zero_stays or t.kind in layout.MIRRORED


def reduce_batches(function: Function, t: PackedTensor, *args: Any, **kwargs: Any) -> Any:
    """The result of a function of batch dimensions, or several, on the stored elements of ``t``.

    Args:
        function: of torch.
        t: shape (*batch, n, n).
        args, kwargs: its other arguments, dimensions as ``batch_dims`` gives them.
    """
    elements = _nodes.to_elements(t)
    result = function(elements, *args, **kwargs)
    if isinstance(result, Tensor) and result.dtype in DTYPES:
        return _nodes.from_packed(type(t), result, t.n)
    of_zeros = function(elements.new_zeros((*elements.shape[:-1], 1)), *args, **kwargs)
    if isinstance(result, Tensor):
        return _positions(t, result, of_zeros)
    return type(result)(
        [
            _nodes.from_packed(type(t), x, t.n) if x.dtype in DTYPES else _positions(t, x, zeros)
            for x, zeros in zip(result, of_zeros, strict=True)
        ]
    )


def _positions(t: PackedTensor, stored: Tensor, of_zeros: Tensor) -> Tensor:
    """Positions along a batch dimension as dense matrices of integers.

    Args:
        stored: shape (*batch, n(n+1)/2), those of the stored elements.
        of_zeros: shape (*batch, 1), those of structural zeros.
    """
    kind = layout.SYMMETRIC if t.kind in layout.MIRRORED else t.kind
    # Kernels know no integers. These are below 2 ** 53.
    moved = torch.ops.packedtri.unpack((stored - of_zeros).double(), t.n, kind)
    return moved.to(stored.dtype) + of_zeros.unsqueeze(-1)


def over_batches(
    function: Function,
    least: int | None,
    input: PackedTensor,
    *args: Any,
    place: int = 0,
    **kwargs: Any,
) -> Any:
    """The result of a function of one dimension or several, None where it does not keep the type.

    Args:
        function: of torch.
        least: of how many zeros it makes zero; None for none.
        input: the matrices.
        args, kwargs: its other arguments.
        place: that of the dimensions among these.
    """
    named = "dim" in kwargs
    dims = kwargs["dim"] if named else args[place] if len(args) > place else None
    dims = batch_dims(input, dims)
    zero_stays = least is not None and dims is not None and size_along(input, dims) >= least
    if kwargs.get("dtype") not in (None, *DTYPES) or not may_reduce(input, dims, zero_stays):
        return None
    if named:
        return reduce_batches(function, input, *args, **{**kwargs, "dim": dims})
    return reduce_batches(function, input, *args[:place], dims, *args[place + 1 :], **kwargs)


@torch_names
def _apply(
    function: Function,
    least: int | None,
    place: int,
    input: PackedTensor,
    *args: Any,
    **kwargs: Any,
) -> Any:
    # The logarithm of the conjugate of a negative number is not the conjugate of the logarithm.
    branches = least is None and input.kind == layout.HERMITIAN and input._packed.is_complex()
    found = None
    if not branches:
        found = over_batches(function, least, input, *args, place=place, **kwargs)
    return densify(function, input, *args, **kwargs) if found is None else found


@torch_names
def _diff(function: Function, input: PackedTensor, *args: Any, **kwargs: Any) -> Any:
    """Differences of neighbours, of which more may be given to come before and behind."""
    names = ("n", "dim", "prepend", "append")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    beside = {k: v for k, v in given.items() if k in names[2:] and v is not None}
    if all(type(x) is type(input) and not is_spread(x._packed) for x in beside.values()):
        elements = {k: _nodes.to_elements(x) for k, x in beside.items()}
        found = over_batches(function, 0, input, **{**given, **elements})
        if found is not None:
            return found
    return densify(function, input, *args, **kwargs)


for _names, _least, _place in (
    (_ZERO_OF_ZEROS, 0, 0),
    (_ZERO_OF_ZEROS_SECOND, 0, 1),
    (_ZERO_OF_SOME_ZEROS, 1, 0),
    (_OTHERS, None, 0),
):
    for _name in _names.split():
        for _function in functions(_name, torch, Tensor, torch.nn.functional):
            _handler = partial(_apply, _function, _least, _place)
            row(_function, PackedTensor, casts=_name in _CASTING)(_handler)
for _function in functions("diff"):
    row(_function, PackedTensor, casts=True)(partial(_diff, _function))
