"""Assignment to batches, blocks and elements: it writes what is stored.

It raises where it would have to change anything else, before anything is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import EllipsisType, NoneType
from typing import Any

import torch
from torch import Tensor

from packedtri import _nodes, _tracing
from packedtri._dtensor import beside, is_spread, whole
from packedtri._recording import has_values, is_plain
from packedtri._sharing import check_writable, shares_memory
from packedtri._values import describe
from packedtri.dispatch import Function, row
from packedtri.layout import HERMITIAN, LOWER, MIRRORED, UPPER
from packedtri.ops import elements
from packedtri.ops.aten import (
    clones_before_changes,
    increment_version,
    is_written_directly,
    writable,
    written_directly,
)
from packedtri.ops.convert import from_dense
from packedtri.ops.dense import as_dense, densify, functions, is_complex_number
from packedtri.ops.indexing import (
    as_integer,
    block_of,
    dims_of,
    is_advanced,
    keeps_matrices_last,
    matrices_at,
    rows_and_columns,
    split,
)
from packedtri.ops.lost_writes import forget
from packedtri.tensor import PackedTensor

_write_block_ = torch.ops.packedtri.write_block_.default


@row(Tensor.__setitem__)
def _setitem(input: Tensor, index: Any, value: Any) -> None:
    if not isinstance(input, PackedTensor):
        return densify(Tensor.__setitem__, input, index, value)
    forget(value)
    index = tuple(map(as_integer, index if isinstance(index, tuple) else (index,)))
    batch, rest = split(index, input)
    if not rest and keeps_matrices_last(batch, input):
        return _assign_matrices(input, batch, value)
    if _is_mask_of_all(index, input) and (not isinstance(value, Tensor) or value.dim() == 0):
        input.masked_fill_(index[0], value)
        return
    if is_advanced(batch) or not keeps_matrices_last(batch, input):
        raise NotImplementedError(
            f"[__setitem__] index {_shown(index)} is not supported for {describe(input)}: index "
            "tensors may name whole matrices of a batch, or elements of all matrices. Use "
            "masked_fill_ where a mask has an element for each of all matrices, or convert with "
            ".to_dense() and from_dense"
        )
    target = matrices_at(input, batch) if batch else input
    block = block_of(rest, input.n)
    if block is not None and _write_block(target, *block, value):
        return
    found = rows_and_columns(rest, input.n, input.device)
    if found is None:
        raise NotImplementedError(
            f"[__setitem__] index {_shown(rest)} is not supported for {describe(input)}; use "
            "integers, slices and index tensors, or convert with .to_dense() and from_dense"
        )
    _assign(target, *found, value, _is_free(rest, input))


def _is_mask_of_all(index: tuple[Any, ...], t: PackedTensor) -> bool:
    """Whether an index is one mask with an element for each of all matrices of a batch."""
    mask = index[0] if len(index) == 1 else None
    return isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.dim() == t.dim() > 2


def _shown(index: tuple[Any, ...]) -> str:
    """An index as error messages show it, without the elements of tensors and sequences."""
    plain = (int, slice, NoneType, EllipsisType)
    shown = [str(item) if isinstance(item, plain) else describe(item) for item in index]
    return f"({', '.join(shown)})"


def _index_put(
    function: Function,
    input: Tensor,
    indices: Sequence[Any],
    values: Tensor,
    accumulate: bool = False,
) -> Tensor:
    """Some matrices of a batch replaced by others, or with these added to them."""
    index = tuple(indices)
    matrices = not any(i is None for i in index) and sum(map(dims_of, index)) <= input.dim() - 2
    alike = type(values) is type(input) and values.shape[-1] == input.shape[-1]
    if isinstance(input, PackedTensor) and isinstance(values, PackedTensor) and alike and matrices:
        try:
            elements = _nodes.to_packed(values)
            packed = function(_nodes.to_packed(input), index, elements, accumulate)
            return _nodes.from_packed(type(input), packed, input.n)
        except (IndexError, RuntimeError):
            pass  # Torch tells what does not fit by the shapes of dense tensors, below.
    return densify(function, input, index, values, accumulate)


for _function in functions("index_put"):
    row(_function)(partial(_index_put, _function))


def _assign_matrices(t: PackedTensor, batch: tuple[Any, ...], value: Any) -> None:
    """Assign to whole matrices, those that an index of the batch dimensions takes, or all."""
    at = (*batch, slice(None))
    # Of no elements, or all that are assigned to would be copied for their shape.
    shape = torch.Size((*t._packed[..., :0][at].shape[:-1], t._packed.shape[-1]))
    if not _tracing.is_compiling() and shape.numel() == 0:
        # Nothing is written, so any value fits that broadcasts.
        _dense_value(value, t, len(shape) + 1).expand(*shape[:-1], t.n, t.n)
        return
    if not isinstance(value, type(t)) or value.n != t.n:
        dense = _dense_value(value, t, len(shape) + 1)
        dense = dense.expand(*dense.shape[:-2], t.n, t.n)
        value = from_dense(type(t), dense, has_values(t._packed), "assignment")
    values = _nodes.to_packed(value)
    while values.dim() > len(shape) and values.shape[0] == 1:
        values = values[0]
    if is_plain(t, values) and not clones_before_changes():
        check_writable(t, values)
        writable(t)[at] = values
        written_directly(t)
    elif is_advanced(batch):
        changed = _nodes.to_packed(t).clone()
        changed[at] = values
        t.copy_(_nodes.from_packed(type(t), changed, t.n))
    else:
        # Autograd records what is done to a view.
        target = matrices_at(t, batch) if batch else t
        target.copy_(_nodes.from_packed(type(t), values.expand(shape), t.n))


def _dense_value(value: Any, target: PackedTensor, rank: int) -> Tensor:
    """What is assigned to ``rank`` dimensions; more of length 1 in front are dropped."""
    if isinstance(value, Tensor):
        dense = as_dense(value).to(target.device, target.dtype)
    else:
        dense = beside(target._packed, _numbers(value, target))
    while dense.dim() > rank and dense.shape[0] == 1:
        dense = dense[0]
    return dense


def _numbers(value: Any, target: PackedTensor) -> Tensor:
    """A number, or a sequence or an array of them, as a dense tensor."""
    try:
        return torch.as_tensor(value, dtype=target.dtype, device=target.device)
    except TypeError:
        error = RuntimeError if is_complex_number(value) else TypeError
        real = "" if target.is_complex() else "real "
        raise error(
            f"[__setitem__] expected {real}numbers for {describe(target)} of {target.dtype}; got "
            f"{describe(value)}"
        ) from None


def _is_free(rest: tuple[Any, ...], t: PackedTensor) -> bool:
    """Whether integers and slices take stored elements alone, each once, which hold any value."""
    taken = [range(t.n)[item] for item in rest if isinstance(item, slice) or type(item) is int]
    ranges = [range(x, x + 1) if isinstance(x, int) else x for x in taken]
    if len(ranges) < 2 or not all(ranges):
        return False
    (top, bottom), (left, right) = ((min(r[0], r[-1]), max(r[0], r[-1])) for r in ranges)
    if t.kind == LOWER:
        return right <= top
    if t.kind == UPPER:
        return left >= bottom
    return right < top or left > bottom


def _write_block(t: PackedTensor, place: Sequence[int], remain: Sequence[bool], value: Any) -> bool:
    """Assign to a block where nobody records it and the structure holds the value as it is.

    Otherwise nothing is written, and the answer is False.
    """
    packed, (top, left, *size) = t._packed, place
    # One element of many matrices is written faster by an index.
    if (size == [1, 1] and packed.dim() > 1) or not is_written_directly(t):
        return False
    batch = packed.shape[:-1]
    kept = [length for length, remains in zip(size, remain, strict=True) if remains]
    dense = _dense_value(value, t, len(batch) + len(kept)).expand((*batch, *kept))
    if not is_plain(dense):
        return False
    dense = dense.reshape(*batch, *size)
    if shares_memory(dense, packed):
        # The kernel may write elements before it has read them.
        dense = dense.clone()
    if not _is_stored(t.kind, dense, top, left):
        return False
    check_writable(t)
    _write_block_(packed, dense, t.n, t.kind, top, left)
    written_directly(t)
    return True


def _is_stored(kind: int, dense: Tensor, top: int, left: int) -> bool:
    """Whether a matrix of this kind can have such a block from (top, left) on.

    Values are looked at only where the place leaves it open; where there are nan it may say no.
    """
    rows, columns = dense.shape[-2:]
    if kind not in MIRRORED:
        if (left + columns <= top + 1) if kind == LOWER else (top + rows <= left + 1):
            return True
        part = dense.tril(top - left) if kind == LOWER else dense.triu(top - left)
        return torch.equal(part, dense)
    first, last = max(top, left), min(top + rows, left + columns)
    if first >= last or (first + 1 == last and not dense.is_complex()):
        return True
    square = dense[..., first - top : last - top, first - left : last - left]
    return torch.equal(square, square.mH if kind == HERMITIAN else square.mT)


def _assign(target: PackedTensor, i: Tensor, j: Tensor, value: Any, is_free: bool) -> None:
    """Write elements (i, j); the structure must be able to hold the value, where not any fits."""
    packed, n = _nodes.to_packed(target), target.n
    i, j = torch.broadcast_tensors(i, j)
    shape = (*packed.shape[:-1], *i.shape)
    value = _dense_value(value, target, len(shape)).expand(shape)
    known = has_values(packed) and not is_free
    if target.kind == HERMITIAN:
        if known and value.is_complex():
            elements.check_real(target, whole(value)[..., i == j])
        value = elements.as_stored(value, i, j)
    at = elements.positions(i, j).reshape(-1)
    source = value.reshape(*packed.shape[:-1], len(at))
    stored = elements.is_stored(target.kind, i, j) if known else None
    if known and not (_differ(at) if stored is None else bool(stored.all())):
        _check_structure(target, i.reshape(-1), j.reshape(-1), at, source.detach())
        keep = _written_once(at, (i < j).reshape(-1)) if stored is None else stored.reshape(-1)
        if keep.dtype == torch.bool:
            keep = keep.nonzero().squeeze(-1)
        at, source = at[keep], source.index_select(-1, beside(source, keep))
    if _nodes.recorded(packed, source):
        changed = packed.index_copy(-1, beside(packed, at), source)
        target.copy_(_nodes.from_packed(type(target), changed, n))
        return
    check_writable(target)
    if is_spread(packed):
        # In place torch would change what it says of the parts, and not the parts.
        target._packed.copy_(packed.index_copy(-1, beside(packed, at), source))
    else:
        target._packed.index_copy_(-1, at, source)
    increment_version(target)


def _differ(at: Tensor) -> bool:
    """Whether no position comes twice."""
    if len(at) < 2:
        return True
    ordered = at.sort().values
    return not bool((ordered[1:] == ordered[:-1]).any())


def _written_once(at: Tensor, above: Tensor) -> Tensor:
    """For each stored element the place of one value of it, of two on both sides the lower one.

    The other would get the same gradient once more.
    """
    at, order = torch.sort(2 * at + above)
    return order[at.div(2, rounding_mode="floor").diff(prepend=at.new_full((1,), -1)) != 0]


def _check_structure(t: PackedTensor, i: Tensor, j: Tensor, at: Tensor, value: Tensor) -> None:
    """Raise where a value does not fit: a nonzero for a zero, or two for one stored element."""
    if not value.numel():
        return
    value = whole(value).reshape(-1, len(at))
    stored = elements.is_stored(t.kind, i, j)
    if stored is not None:
        wrong, what = ((value != 0) & ~stored).any(0), "it is a structural zero"
    else:
        at, order = at.sort(stable=True)
        i, j, value = i[order], j[order], value[:, order]
        before = value.roll(1, -1)
        differs = (value != before) & ~(value.isnan() & before.isnan())
        wrong = differs.any(0) & (at == at.roll(1))
        what = "the assignment has another value for the same stored element"
    if wrong.any():
        k = int(wrong.nonzero()[0])
        raise ValueError(
            f"[__setitem__] a {type(t).__name__} cannot hold the value for element "
            f"({int(i[k])}, {int(j[k])}): {what}. Convert with .to_dense() first"
        )
