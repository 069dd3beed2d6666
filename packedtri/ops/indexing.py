"""Indexing: batches keep their type, blocks and elements of the matrices are gathered.

An index is cut in two: the part for the batch dimensions is left to torch, on the stored elements,
and the part for rows and columns becomes positions in the triangle.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import starmap, zip_longest
from math import prod
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from packedtri import _nodes, _tracing
from packedtri._autograd import quick
from packedtri._recording import carries_autograd, has_values, values_visible
from packedtri._values import INTEGERS, describe
from packedtri.dispatch import row
from packedtri.ops import elements
from packedtri.ops.dense import densify
from packedtri.ops.lost_writes import watch
from packedtri.ops.views import view
from packedtri.tensor import PackedTensor

_unpack_block = quick(torch.ops.packedtri.unpack_block.default)

# A dense copy is written in order, where a gather computes a position for each element and reads
# there: that takes as long as so many elements of the copy, on a CPU and on others.
_GATHER_COST = {"cpu": 32}
_GATHER_COST_ELSEWHERE = 10
# No more elements than this are worth a dense copy.
_FEW = 64
_MASKS = (torch.bool, torch.uint8)
_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)


def split(index: Any, t: PackedTensor) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The index in two parts: for the batch dimensions, and for rows and columns.

    The second part is empty where the index takes whole matrices.
    """
    rank = t._packed.dim() + 1
    items = [_as_index(item) for item in (index if isinstance(index, tuple) else (index,))]
    used = sum(dims_of(item) for item in items)
    if used > rank:
        raise IndexError(f"too many indices, {used}, for {describe(t)}")
    at = next((k for k, item in enumerate(items) if item is Ellipsis), len(items))
    items[at : at + 1] = [slice(None)] * (rank - used)
    taken = 0
    for k, item in enumerate(items):
        if taken >= rank - 2 and dims_of(item):
            rest = tuple(items[k:])
            whole = all(isinstance(r, slice) and r == slice(None) for r in rest)
            return tuple(items[:k]), () if whole else rest
        taken += dims_of(item)
    return tuple(items), ()


def _as_index(item: Any) -> Any:
    """The item, as a tensor where it is a sequence or an array."""
    if item is None or item is Ellipsis or isinstance(item, (int, slice, Tensor, torch.SymInt)):
        return item
    if isinstance(item, Integral):
        return int(item)
    index = torch.as_tensor(item)
    # Of an empty list torch makes floating numbers.
    return index if index.numel() else index.long()


def as_integer(item: Any) -> Any:
    """The item, as an integer where it is a tensor of one without dimensions."""
    known = isinstance(item, Tensor) and item.dim() == 0 and has_values(item)
    return int(item) if known and item.dtype in _INTEGERS else item


def dims_of(item: Any) -> int:
    """The number of dimensions that an item of an index takes."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    return item.dim() if isinstance(item, Tensor) and item.dtype in _MASKS else 1


def _is_view(item: Any) -> bool:
    return item is None or isinstance(item, slice) or type(item) in (int, torch.SymInt)


def _indices(item: Any, n: int, device: torch.device) -> Tensor | None:
    """The rows or columns that an item takes; of no dimensions for one alone. None: not known."""
    if isinstance(item, slice):
        return torch.arange(n, device=device)[item]
    if type(item) is int:
        _check_range(item, item, n)
        return torch.tensor(item % n, device=device)
    if not isinstance(item, Tensor) or item.is_floating_point() or item.is_complex():
        return None
    index = item.to(device)
    if index.dtype in _MASKS:
        return index.nonzero().squeeze(-1) if index.shape == (n,) else None
    if index.dtype not in (torch.int64, torch.int32):
        raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    # Places in packed order exceed 32 bits where rows do not.
    index = index.long()
    if index.numel() and has_values(index):
        lowest, highest = map(int, index.aminmax())
        _check_range(lowest, highest, n)
        if lowest >= 0:
            return index
    return torch.where(index < 0, index + n, index)


def _check_range(lowest: int, highest: int, n: int) -> None:
    if lowest < -n or highest >= n:
        wrong = lowest if lowest < -n else highest
        raise IndexError(f"index {wrong} is out of range for matrices of order {n}")


def rows_and_columns(
    rest: tuple[Any, ...], n: int, device: torch.device
) -> tuple[Tensor, Tensor] | None:
    """Index tensors of rows and columns that broadcast to the shape of the result."""
    # Beside a mask of batches and rows what is left are columns.
    if len(rest) == 1 and isinstance(rest[0], Tensor) and rest[0].shape == (n, n):
        i, j = rest[0].to(device).nonzero(as_tuple=True)
        return i, j
    if len(rest) != 2:
        return None
    rows = _indices(rest[0], n, device)
    # A diagonal, as in S[i, i], has one tensor for both.
    columns = rows if rest[1] is rest[0] else _indices(rest[1], n, device)
    if rows is None or columns is None:
        return None
    # A slice spans a dimension of its own; two index tensors go together.
    if isinstance(rest[1], slice):
        return rows.unsqueeze(-1), columns
    if isinstance(rest[0], slice):
        return rows.reshape(-1, *[1] * columns.dim()), columns
    return rows, columns


def matrices_at(t: PackedTensor, index: tuple[Any, ...]) -> PackedTensor:
    """Take whole matrices: a view for integers and slices, else a copy."""
    if all(map(_is_view, index)) and not carries_autograd(t._packed):
        return view(Tensor.__getitem__, t, index)
    return _nodes.from_packed(type(t), _nodes.to_packed(t)[(*index, slice(None))], t.n)


def is_advanced(index: tuple[Any, ...]) -> bool:
    # A bool is a mask of one element.
    return any(isinstance(item, (bool, Tensor)) for item in index)


@row(Tensor.__getitem__)
def _getitem(input: Tensor, index: Any) -> Tensor:
    # The tensor may also be dense and the index packed.
    if not isinstance(input, PackedTensor):
        return densify(Tensor.__getitem__, input, index)
    index = tuple(map(as_integer, index if isinstance(index, tuple) else (index,)))
    batch, rest = split(index, input)
    result = read(input, index, batch, rest)
    if not is_advanced((*batch, *rest)):
        watch("torch.Tensor.__getitem__", result, input)
    return result


def read(
    input: PackedTensor, index: tuple[Any, ...], batch: tuple[Any, ...], rest: tuple[Any, ...]
) -> Tensor:
    """What torch gives for an index, which is ``split`` too; nobody watches what becomes of it."""
    if not rest:
        whole = keeps_matrices_last(batch, input)
        return matrices_at(input, batch) if whole else densify(Tensor.__getitem__, input, index)
    block = block_of(rest, input.n)
    if block is not None and not is_advanced(batch):
        return _read_block(matrices_at(input, batch) if batch else input, *block)
    # Index tensors of rows and columns are looked at, which a graph cannot do.
    traced = _tracing.is_compiling() and is_advanced(rest)
    found = None if traced else rows_and_columns(rest, input.n, input.device)
    # Torch lets index tensors of batches and of matrices go together, or moves them to the front.
    if found is None or is_advanced(batch):
        return densify(Tensor.__getitem__, input, index)
    taken = matrices_at(input, batch) if batch else input
    if _gathers_too_much(taken, *found):
        return densify(Tensor.__getitem__, taken, (..., *rest))
    return elements.read(taken, *found)


def block_of(rest: tuple[Any, ...], n: int) -> tuple[list[int], list[bool]] | None:
    """First row, first column, rows and columns of a block, and which of the two dimensions remain.

    None where the index takes no block.
    """
    if len(rest) != 2 or not all(map(_is_span, rest)):
        return None
    (top, rows), (left, columns) = (_span(item, n) for item in rest)
    return [top, left, rows, columns], [isinstance(item, slice) for item in rest]


def _is_span(item: Any) -> bool:
    if isinstance(item, slice):
        return item.step in (None, 1)
    return type(item) in (int, torch.SymInt)


def _span(item: Any, n: int) -> tuple[int, int]:
    """The first of the rows or columns that an integer or a slice takes, and how many."""
    if not isinstance(item, slice):
        _check_range(item, item, n)
        return item % n, 1
    first, last = _bound(item.start, 0, n), _bound(item.stop, n, n)
    return first, max(last - first, 0)


def _bound(at: Any, default: int, n: int) -> int:
    """Where a slice begins or ends; sizes that torch.compile keeps symbolic remain so."""
    if at is None:
        return default
    if not isinstance(at, INTEGERS):
        at = operator.index(at)
    return max(0, min(at + n if at < 0 else at, n))


def _read_block(t: PackedTensor, place: Sequence[int], remain: Sequence[bool]) -> Tensor:
    block = _unpack_block(_nodes.to_packed(t), t.n, t.kind, *place)
    if all(remain):
        return block
    kept = [size for size, remains in zip(block.shape[-2:], remain, strict=True) if remains]
    return block.reshape((*block.shape[:-2], *kept))


def keeps_matrices_last(batch: tuple[Any, ...], t: PackedTensor) -> bool:
    """Whether the index takes batches only; masks may reach into the matrices."""
    return sum(map(dims_of, batch)) <= t._packed.dim() - 1


def _gathers_too_much(t: PackedTensor, i: Tensor, j: Tensor) -> bool:
    """Whether elements (i, j) of each matrix are read faster from a dense copy."""
    sizes = zip_longest(reversed(i.shape), reversed(j.shape), fillvalue=1)
    count = prod(starmap(max, sizes))
    cost = _GATHER_COST.get(t._packed.device.type, _GATHER_COST_ELSEWHERE)
    return count > _FEW and count * cost > t.n * t.n


def read_along(t: PackedTensor, dim: int, item: Any) -> Tensor:
    """``read`` of what an item of an index takes along one dimension, counted from the front."""
    place = (*(slice(None),) * dim, item)
    return read(t, place, *split(place, t))


def selected_lines(input: Any, dim: Any, index: Any) -> Tensor:
    """``torch.index_select`` of rows or columns, which on a CPU are gathered where they are few.

    Elsewhere the look at the index, which torch does not have there, would wait for the device.
    """
    known = isinstance(input, PackedTensor) and type(dim) is int and type(index) is Tensor
    if known and index.device.type == input.device.type == "cpu" and values_visible(index):
        rank, n = input._packed.dim() + 1, input.n
        integers = index.dim() == 1 and index.dtype in (torch.int64, torch.int32)
        if integers and index.numel() and -rank <= dim < rank:
            lowest, highest = index.aminmax()
            if lowest >= 0 and highest < n:
                return read_along(input, dim % rank, index)
    return densify(torch.index_select, input, dim, index)
