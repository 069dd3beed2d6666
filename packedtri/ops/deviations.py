"""Variances, standard deviations and numbers of nonzero elements, from the stored elements.

Of whole matrices structural zeros are counted, and what a type mirrors counts twice. Over batch
dimensions the type stays. Deviations are taken from the mean before they are squared, so that
nothing cancels. Along lines these functions convert to dense.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from packedtri import _bands, _nodes, layout
from packedtri._dtensor import is_spread
from packedtri._recording import is_plain, ops_are_watched
from packedtri.dispatch import Function, row
from packedtri.ops.dense import densify, functions, shape_of
from packedtri.ops.dims import Dims
from packedtri.ops.over_batches import reduce_batches
from packedtri.ops.reduce import wide_dtype
from packedtri.ops.shapes import torch_names
from packedtri.tensor import PackedTensor


class _Options(NamedTuple):
    """What ``var`` and its like are asked for."""

    dim: Any
    correction: float
    keepdim: bool


def _options(*args: Any, **kwargs: Any) -> _Options | None:
    """The arguments but the first; None where it is for torch to say what is wrong.

    Torch has them in three forms: (unbiased), (dim, unbiased, keepdim) and
    (dim, *, correction, keepdim).
    """
    names = ("unbiased",) if args and isinstance(args[0], bool) else ("dim", "unbiased", "keepdim")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    older = {"unbiased"} if "dim" not in given else {"dim", "unbiased", "keepdim"}
    known = older if "unbiased" in given else {"dim", "correction", "keepdim"}
    dim, keepdim = given.get("dim"), given.get("keepdim", False)
    correction = given.get("unbiased", given.get("correction"))
    fits = isinstance(correction, bool if "unbiased" in given else int | float | None)
    if len(given) < len(args) + len(kwargs) or given.keys() - known or not fits:
        return None
    if not is_dim(dim) or not isinstance(keepdim, bool):
        return None
    return _Options(dim, 1 if correction is None else correction, keepdim)


def is_dim(dim: Any) -> bool:
    """Whether a value is a dimension, several of them, or none."""
    several = dim if isinstance(dim, Sequence) else () if dim is None else (dim,)
    return all(isinstance(d, int) and not isinstance(d, bool) for d in several)


@torch_names
def _deviation(
    function: Function, of_variance: Function, with_mean: bool, input: PackedTensor, *args: Any,
    **kwargs: Any,
) -> Any:  # fmt: skip
    """``var`` and its like.

    Args:
        of_variance: what the result is of the variance.
        with_mean: whether the mean is asked for as well.
    """
    options = _options(*args, **kwargs)
    if options is None or is_spread(input._packed):
        return densify(function, input, *args, **kwargs)
    dim, correction, keepdim = options
    dims = Dims(input._packed.dim() + 1, dim)
    count = dims.count(shape_of(input))
    enough = count > max(correction, 0)
    if len(dims.matrix) == 1 or not (enough or (not dims.matrix and input.kind in layout.MIRRORED)):
        # What torch makes of too few zeros is not zero.
        return densify(function, input, *args, **kwargs)
    if not enough or _is_little(input, dims):
        given = {"correction": correction, "keepdim": keepdim}
        if dims.matrix:
            # Of an empty sequence of dimensions torch makes gradients that are infinite.
            return function(input.to_dense(), dim or None, **given)
        return reduce_batches(function, input, dims.batch, **given)
    mean, variance = _mean_and_variance(input, dims)
    deviation = of_variance(variance * (count / (count - correction)))

    def finished(x: Tensor, dtype: torch.dtype) -> Tensor:
        x = x.to(dtype)
        if dims.matrix:
            x = x.squeeze((*dims.batch, -1))
            return dims.restore(x) if keepdim else x
        return _nodes.from_packed(type(input), x if keepdim else x.squeeze(dims.batch), input.n)

    own = input._packed.dtype
    result = finished(deviation, own.to_real())
    return (result, finished(mean, own)) if with_mean else result


# Below so many elements torch alone takes no longer than the ops below, of which there are many.
_LITTLE = 1 << 16
_LITTLE_BATCH = 1 << 12


def _is_little(t: PackedTensor, dims: Dims) -> bool:
    """Whether torch alone is quicker, of dense matrices or over the batch of stored elements."""
    packed = t._packed
    if not dims.matrix:
        return packed.device.type != "cpu" or packed.numel() < _LITTLE_BATCH
    return prod(shape_of(t)) < _LITTLE


def _mean_and_variance(t: PackedTensor, dims: Dims) -> tuple[Tensor, Tensor]:
    """The mean, and that of squared deviations, of dimensions of length one where it was taken."""
    packed, n = _nodes.to_elements(t), t.n
    packed = packed.to(wide_dtype(packed.dtype))
    if not dims.matrix:
        return _moments(packed, dims.batch)
    over = (*dims.batch, -1)
    mean, variance = _moments(packed, over)
    # Shares of all elements.
    stored, diagonal = layout.numel(n) / n**2, 1 / n
    if t.kind not in layout.MIRRORED:
        return stored * mean, stored * variance + stored * (1 - stored) * _square(mean)
    # The stored elements count twice, those on the diagonal once less. There are more of them than
    # on the diagonal, so the difference is no smaller than the first half of the sum.
    of_diagonal, within = _moments(_bands.diagonal(packed, n), over)
    both = mean + diagonal * (mean - of_diagonal)
    if t.kind == layout.HERMITIAN:
        both = both.real
    twice = 2 * stored * (variance + _square(mean - both))
    return both, twice - diagonal * (within + _square(of_diagonal - both))


def _moments(x: Tensor, over: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Mean and variance, without correction, along dimensions, which are kept."""
    if x.device.type != "cpu":
        variance, mean = torch.var_mean(x, over, correction=0, keepdim=True)
        return mean, variance
    # Torch takes one number after the other there, ten times as long. The first mean is rounded,
    # and only moves the numbers; what is left of their mean is exact where they are close together.
    about = x.detach().mean(over, keepdim=True)
    moved = x - about
    rest = moved.mean(over, keepdim=True)
    return about + rest, _square(moved - rest).mean(over, keepdim=True)


def _square(x: Tensor) -> Tensor:
    """The squares of absolute values."""
    return x.real.square() + x.imag.square() if x.is_complex() else x.square()


def _root(variance: Tensor) -> Tensor:
    """The standard deviation, whose gradient torch takes for zero where it is zero itself."""
    if is_plain(variance) and not ops_are_watched():
        return variance.sqrt()
    none = variance == 0
    return variance.masked_fill(none, 1).sqrt().masked_fill(none, 0)


@torch_names
def _count_nonzero(function: Function, input: PackedTensor, *dim: Any, **kwargs: Any) -> Tensor:
    # Torch takes them one by one as well.
    given = kwargs.get("dim", dim[0] if len(dim) == 1 else dim)
    if len(dim) * len(kwargs) or kwargs.keys() - {"dim"} or not is_dim(given):
        return densify(function, input, *dim, **kwargs)
    if is_spread(input._packed):
        return densify(function, input, given)
    dims = Dims(input._packed.dim() + 1, given)
    if len(dims.matrix) < 2:
        return densify(function, input, given)
    packed = _nodes.to_elements(input)
    # Torch takes longer where it is told that these are all dimensions.
    over = None if len(dims.batch) == dims.rank - 2 else (*dims.batch, -1)
    stored = torch.count_nonzero(packed, over)
    if input.kind not in layout.MIRRORED:
        return stored
    return 2 * stored - torch.count_nonzero(_bands.diagonal(packed, input.n), over)


for _name, _of_variance in (("var", torch.positive), ("std", _root)):
    for _function in functions(_name):
        row(_function, PackedTensor, casts=True)(
            partial(_deviation, _function, _of_variance, False)
        )
    for _function in functions(f"{_name}_mean", torch):
        # Without ``out``, of which torch complains then.
        row(_function, PackedTensor, writes=True)(
            partial(_deviation, _function, _of_variance, True)
        )
for _function in functions("count_nonzero"):
    row(_function, PackedTensor, writes=True)(partial(_count_nonzero, _function))
