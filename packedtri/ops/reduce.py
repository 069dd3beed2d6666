"""Reductions that the stored elements suffice for: sums, means, extremes, the trace and norms.

Sums and extremes over batch dimensions keep the type. Sums along rows or columns are products with
a vector of ones; extremes and norms along them read dense rows, of large matrices some at a time.
Norms that need singular values convert to dense, and so does what has no rule here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf, log2, prod
from typing import Any

import torch
from torch import Tensor

from packedtri import _nodes, layout
from packedtri._aten_table import aten_row
from packedtri._bands import halve_diagonal, real_diagonal, scale_off_diagonal, without_diagonal
from packedtri._dtensor import whole_if_tiny
from packedtri._recording import is_plain, ops_are_watched
from packedtri.dispatch import Function, row
from packedtri.layout import DTYPES
from packedtri.ops import elements
from packedtri.ops.aten import Args, Kwargs
from packedtri.ops.dense import densify, functions, shape_of
from packedtri.ops.dims import Dims, from_front
from packedtri.ops.mm import quick_mm, tf32_allowed, without_autocast
from packedtri.ops.over_batches import over_batches
from packedtri.ops.shapes import torch_names
from packedtri.tensor import PackedTensor

_unpack_block = torch.ops.packedtri.unpack_block.default


@torch_names
def _sum(
    function: Function, input: PackedTensor, dim: Any = None, keepdim: bool = False, **kwargs: Any
) -> Tensor:
    dtype = kwargs.pop("dtype", None)
    if kwargs or dtype not in (None, *DTYPES):
        return densify(function, input, dim, keepdim, dtype=dtype, **kwargs)
    t: Any = input if dtype in (None, input._packed.dtype) else input.to(dtype)
    dims = Dims(t._packed.dim() + 1, dim)
    if not dims.matrix:
        packed = _nodes.to_packed(t).sum(dims.batch, keepdim)
        return _nodes.from_packed(type(t), packed, t.n)
    own = t._packed.dtype
    if dims.batch:
        packed = _nodes.to_packed(t).sum(dims.batch, dtype=wide_dtype(own))
        t = _nodes.from_packed(type(t), packed, t.n)
    x = _sum_all(t) if len(dims.matrix) == 2 else _sum_lines(t, dims.matrix[0])
    x = x.to(own)
    return dims.restore(x) if keepdim else x


def _sum_all(t: PackedTensor) -> Tensor:
    """The sum of all elements of each matrix, shape (*batch,)."""
    packed = _nodes.to_packed(t)
    own, packed = packed.dtype, packed.to(wide_dtype(packed.dtype))
    if t.kind not in layout.MIRRORED:
        total = packed.sum(-1)
    elif is_plain(packed) and not (packed.is_complex() or tf32_allowed(packed)):
        # One pass. Complex products would make nan of infinities.
        with without_autocast(packed.device.type):
            total = quick_mm(packed, packed.new_ones(t.n), t.n, t.kind, layout.DENSE, layout.DENSE)
        total = total.sum(-1)
    else:
        # Nothing is subtracted, which infinities would not survive, and nothing doubled before the
        # sum, which could overflow where the sum does not.
        total = halve_diagonal(packed, t.n, t.kind).sum(-1)
        # A complex number times a real one makes nan of infinities. A sum of two does not.
        total = total.expand(2, *total.shape).sum(0) if total.is_complex() else total * 2
    if t.kind == layout.HERMITIAN:
        total = total.real
    return total.to(own)


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums that are still to be worked with."""
    return torch.float32 if dtype.itemsize == 2 else dtype


def _sum_lines(t: PackedTensor, dim: int) -> Tensor:
    """The sums along the rows (dim -1) or columns (dim -2) of each matrix, shape (*batch, n)."""
    if tf32_allowed(t._packed):
        # The product would round its operands, which sums must not.
        return t.to_dense().sum(dim)
    ones = t._packed.new_ones(t.n)
    with without_autocast(t._packed.device.type):
        return t @ ones if dim == -1 else ones @ t


# Dense copies of this many bytes outgrow caches, and the system gives them new pages each time.
_LARGE_COPY = 1 << 23
_PART_OF_COPY = 1 << 20


def _over_lines(
    t: PackedTensor, dim: int, reduce: Callable[[Tensor], Tensor], either_way: bool = False
) -> Tensor:
    """What is made of the rows (dim -1) or columns (dim -2) of each matrix, shape (*batch, n).

    Args:
        t: the matrices.
        dim: the lines.
        reduce: dense rows (*batch, m, k) -> (*batch, m), the same for conjugates and however many
            zeros.
        either_way: whether it takes no longer of the transpose of a contiguous matrix. Norms do.
    """
    packed, n = t._packed, t.n
    line = packed.shape[:-1].numel() * n * packed.itemsize
    small = not is_plain(packed) or packed.device.type != "cpu" or line * n < _LARGE_COPY
    # Those of mirrored types are their rows.
    along = dim == -1 or t.kind in layout.MIRRORED
    if small and either_way and not along:
        return reduce(t.to_dense().mT)
    rows: Any = t if along else t.mT
    if small:
        return reduce(rows.to_dense())
    packed = _nodes.to_packed(rows)
    step, parts = max(_PART_OF_COPY // line, 1), []
    for top in range(0, n, step):
        bottom = min(top + step, n)
        # One structural zero stands for all of them.
        left = max(top - 1, 0) if rows.kind == layout.UPPER else 0
        right = min(bottom + 1, n) if rows.kind == layout.LOWER else n
        part = _unpack_block(packed, n, rows.kind, top, left, bottom - top, right - left)
        parts.append(reduce(part))
    return torch.cat(parts, -1)


@torch_names
def _mean(
    function: Function, input: PackedTensor, dim: Any = None, keepdim: bool = False, **kwargs: Any
) -> Tensor:
    dims = Dims(input._packed.dim() + 1, dim)
    count = dims.count(shape_of(input))
    dtype = kwargs.pop("dtype", None) or input._packed.dtype
    if count == 0 or kwargs or dtype not in DTYPES:
        return densify(function, input, dim, keepdim, dtype=dtype, **kwargs)
    # The sum may be larger than the numbers of 16 bits.
    total = _sum(torch.sum, input, dim, keepdim, dtype=wide_dtype(dtype))
    return (total / count).to(dtype)


@torch_names
def _extreme(
    function: Function, reduce: Function, beaten: Function, input: PackedTensor, *args: Any,
    **kwargs: Any,
) -> Tensor:  # fmt: skip
    """``amax`` and its like over whole matrices or batches, and the elementwise ``max`` of two.

    Args:
        reduce: torch.amax or torch.amin.
        beaten: torch.lt or torch.gt, which says whether zero is more extreme.
    """
    of_all = function in (torch.max, torch.min, Tensor.max, Tensor.min)
    other = kwargs.get("other", args[0] if args else None)
    if of_all and isinstance(other, Tensor):
        return (torch.maximum if reduce is torch.amax else torch.minimum)(input, other)
    found = over_batches(function, 0, input, *args, **kwargs)
    if found is not None:
        return found
    dim, keepdim = (*args, *(None, False)[len(args) :]) if len(args) < 3 else (None, False)
    dim, keepdim = kwargs.get("dim", dim), kwargs.get("keepdim", keepdim)
    by_dim = of_all and (args or kwargs)
    if by_dim or kwargs.keys() - {"dim", "keepdim"} or len(args) > 2 or input.numel() == 0:
        return densify(function, input, *args, **kwargs)
    dims = Dims(input._packed.dim() + 1, dim)
    if len(dims.matrix) == 1 and not dims.batch:
        x = _over_lines(input, dims.matrix[0], lambda rows: reduce(rows, -1), True)
        return dims.restore(x) if keepdim else x
    if len(dims.matrix) != 2:
        return densify(function, input, *args, **kwargs)
    packed, over = whole_if_tiny(_nodes.to_packed(input)), (*dims.batch, -1)
    # Of a nan torch.amax does not know which element it is, and makes all gradients nan.
    x = function(packed) if of_all else reduce(packed, over)
    if input.kind not in layout.MIRRORED and input.n > 1:
        if not is_plain(packed) or ops_are_watched():
            x = x * _share_of_stored(packed, over, input.n, x)
        x = x.masked_fill(beaten(x, 0), 0)
    return dims.restore(x) if keepdim else x


def _share_of_stored(packed: Tensor, over: tuple[int, ...], n: int, x: Tensor) -> Tensor:
    """What the stored elements have of the gradient of an extreme ``x``.

    Equal elements share it, and structural zeros take theirs with them.
    """
    stored = (packed == 0).sum(over, dtype=torch.float64)
    matrices = prod(packed.shape[d] for d in over[:-1])
    zeros = matrices * layout.numel(n - 1)
    return torch.where(x == 0, stored / (stored + zeros), 1).to(x.dtype)


def _trace(input: PackedTensor) -> Tensor:
    if input._packed.dim() != 1:
        return densify(torch.trace, input)
    return elements.diagonal(input).sum()


for _name, _compute in (("sum", _sum), ("mean", _mean)):
    for _function in functions(_name):
        row(_function, PackedTensor, casts=True)(partial(_compute, _function))
for _name, _beaten in (("max", torch.lt), ("min", torch.gt)):
    for _function in functions(f"{_name} a{_name}"):
        _handler = partial(_extreme, _function, getattr(torch, f"a{_name}"), _beaten)
        row(_function, PackedTensor, casts=_function.__name__ == _name)(_handler)
row(functions("trace"), PackedTensor)(_trace)


def norm(
    packed: Tensor, t: PackedTensor, ord: Any = 2.0, keepdim: bool = False, **kwargs: Any
) -> Tensor:
    """Norm of all elements, of ord > 0: those that a type mirrors count twice.

    Args:
        packed: the stored elements of ``t``, shape (*batch, n(n+1)/2).
        t: the type.
        ord: order of the norm, also in a tensor without dimensions. Others than positive ones would
            count structural zeros.
        keepdim: leave dimensions of length one, two for the stored elements as for the matrices.
        kwargs: ``dim``, where the elements have dimensions -2 and -1 with ``keepdim``, ``dtype``
            and ``out``, as for torch.linalg.vector_norm.
    """
    if isinstance(ord, Tensor) and ord.dim() == 0:
        # The weight below would have its dtype.
        ord = ord.item()
    if not ord > 0:
        raise NotImplementedError(f"[vector_norm] ord={ord} counts zeros; convert with .to_dense()")
    packed = real_diagonal(packed, t.kind, t.n)
    if t.kind not in layout.MIRRORED or ord == inf:
        return _norm_of(packed, ord, keepdim, **kwargs)
    dtype = kwargs.get("dtype")
    if dtype is not None and dtype.is_complex == packed.is_complex():
        # Before the elements grow. A dtype that does not fit is refused below, as by torch.
        packed = packed.to(torch.promote_types(packed.dtype, dtype))
    if 1 / ord > log2(torch.finfo(packed.dtype).max) - 1:
        # The weight would overflow, and 0 times inf is nan: the elements themselves stand twice.
        twice = torch.cat([packed, without_diagonal(packed, t.n)], -1)
        return _norm_of(twice, ord, keepdim, **kwargs)
    weighted = scale_off_diagonal(packed, 2 ** (1 / ord), t.n)
    return _norm_of(weighted, ord, keepdim, **kwargs)


def _norm_of(x: Tensor, ord: float, keepdim: bool, **kwargs: Any) -> Tensor:
    # Torch itself must keep the dimensions, for it gives ``out`` its shape.
    x = x.unsqueeze(-1) if keepdim else x
    return torch.linalg.vector_norm(x, ord, keepdim=keepdim, **kwargs)


@aten_row(torch.ops.aten.linalg_vector_norm.default)
def _vector_norm_below(op: Any, args: Args, kwargs: Kwargs) -> Tensor:
    t = args[0]
    if any(v is not None and v is not False for v in args[2:]):
        raise NotImplementedError(f"[{op}] along dimensions; convert with .to_dense()")
    return norm(t._packed, t, *args[1:2], **kwargs)


@row(torch.linalg.vector_norm, PackedTensor)
@torch_names
def _vector_norm(
    x: PackedTensor, ord: float = 2, dim: Any = None, keepdim: bool = False, **kwargs: Any
) -> Tensor:
    function = torch.linalg.vector_norm
    found = over_batches(function, 0, x, ord, dim, keepdim, place=1, **kwargs)
    if found is not None:
        return found
    dims = Dims(x._packed.dim() + 1, dim)
    if len(dims.matrix) == 1 and not dims.batch:
        norms = _over_lines(
            x, dims.matrix[0], lambda rows: _norm_of(rows, ord, False, dim=-1, **kwargs)
        )
        return dims.restore(norms) if keepdim else norms
    everything = len(dims.batch) == dims.rank - 2
    if not ord > 0 or len(dims.matrix) != 2 or not (everything or not dims.batch):
        return densify(function, x, ord, dim, keepdim, **kwargs)
    over: dict[str, Any] = {} if everything else {"dim": (-2, -1) if keepdim else -1}
    return norm(_nodes.to_packed(x), x, ord, keepdim, **over, **kwargs)


@row(torch.linalg.matrix_norm, PackedTensor)
@torch_names
def _matrix_norm(
    A: Any, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, **kwargs: Any
) -> Tensor:
    rank = A._packed.dim() + 1
    dims = tuple(from_front(d, rank) for d in dim)
    if dims == (rank - 1, rank - 2):
        A, dims = A.mT, dims[::-1]
    if dims != (rank - 2, rank - 1) or ord not in ("fro", 1, -1, inf, -inf) or A.n == 0:
        return densify(torch.linalg.matrix_norm, A, ord, dim, keepdim, **kwargs)
    if ord == "fro":
        return _vector_norm(A, 2, (-2, -1), keepdim, **kwargs)
    dtype = kwargs.pop("dtype", None)
    if kwargs:
        return densify(torch.linalg.matrix_norm, A, ord, dim, keepdim, dtype=dtype, **kwargs)
    absolute: Any = torch.abs(A if dtype is None else A.to(dtype))
    # Norms of order 1 add along columns, those of order inf along rows.
    sums = _sum(torch.sum, absolute, -2 if abs(ord) == 1 else -1)
    result = (torch.amax if ord > 0 else torch.amin)(sums, -1)
    return result[..., None, None] if keepdim else result


@row(torch.linalg.norm, PackedTensor)
@torch_names
def _linalg_norm(
    A: PackedTensor, ord: Any = None, dim: Any = None, keepdim: bool = False, **kwargs: Any
) -> Tensor:
    if ord is None:
        return _vector_norm(A, 2, dim, keepdim, **kwargs)
    if dim is None and A._packed.dim() == 1:
        return _matrix_norm(A, ord, (-2, -1), keepdim, **kwargs)
    if isinstance(dim, Sequence) and len(dim) == 2:
        return _matrix_norm(A, ord, dim, keepdim, **kwargs)
    if isinstance(dim, int):
        return _vector_norm(A, ord, dim, keepdim, **kwargs)
    return densify(torch.linalg.norm, A, ord, dim, keepdim, **kwargs)


@row((torch.norm, Tensor.norm), PackedTensor)
def _norm(
    input: PackedTensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, **kwargs: Any
) -> Tensor:
    """The older function: a number is the order of a norm of all elements taken as one vector."""
    kwargs = {k: v for k, v in kwargs.items() if v is not None}
    if p == "nuc" or (kwargs.keys() - {"dtype"}):
        return densify(torch.norm, input, p, dim, keepdim, **kwargs)
    return _vector_norm(input, 2 if p in ("fro", None) else p, dim, keepdim, **kwargs)
