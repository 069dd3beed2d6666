"""What the ops do with DTensors that cut one matrix in parts, where they do not put it together.

An op asks here first. A rule that does not know a case leaves it to ``packedtri.ops.sharding``, by
which torch puts together what it has no better way for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

from packedtri import _dtensor, layout
from packedtri.distributed import factors, products, solves
from packedtri.distributed.strips import Cut, Strip, chunk_of, own_rows, pieces_of, stream
from packedtri.layout import DENSE, HERMITIAN, LOWER, MIRRORED, TRANSPOSED, UPPER

_ops = torch.ops.packedtri


def _first(args: Sequence[Any]) -> Sequence[int]:
    return (0,)


def _none(args: Sequence[Any]) -> Sequence[int]:
    return ()


def _rule(
    op: Any, packed: Callable[[Sequence[Any]], Sequence[int]] = _first
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _dtensor.parts_rules[op] = _dtensor.PartsRule(function, packed)
        return function

    return register


def _cut(packed: Any, n: int) -> Cut | None:
    """How a packed tensor is cut, or None where each matrix is whole on some process."""
    found = _dtensor.cut_of(packed)
    return None if found is None else Cut(n, *found)


def _wanted(n: int, *dense: Any) -> Cut | None:
    """How a packed result of dense tensors is to be cut, if it is, and can be."""
    found = _dtensor.wanted_cut()
    if found is None or not all(
        isinstance(x, DTensor) and x.device_mesh == found.mesh for x in dense
    ):
        return None
    return Cut(n, *found)


def _placements(cut: Cut, placement: Placement) -> tuple[Placement, ...]:
    """This one where the matrix is cut; along other dimensions of the mesh all have the same."""
    return tuple(placement if i == cut.dim else Replicate() for i in range(cut.mesh.ndim))


def _local(x: DTensor, cut: Cut, placement: Placement) -> Tensor:
    """What this process has of a tensor that is placed so where the matrix is cut."""
    placements = _placements(cut, placement)
    # Inference mode makes no detached copies of what was made outside of it.
    values: Any = x.detach() if x.requires_grad else x
    if x.placements != placements:
        values = values.redistribute(placements=placements)
    local: Tensor = values.to_local().resolve_conj().resolve_neg()
    # Of one element torch calls any stride contiguous, which bytes are not.
    side_by_side = local.dim() == 0 or local.stride(-1) == 1
    return local if side_by_side else local.clone(memory_format=torch.preserve_format).contiguous()


def _spread(local: Tensor, cut: Cut, placement: Placement, shape: tuple[int, ...]) -> DTensor:
    """The DTensor that a part of it on each process stands for."""
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(
        local.contiguous(),
        cut.mesh,
        _placements(cut, placement),
        run_check=False,
        shape=torch.Size(shape),
        stride=stride,
    )


class _Columns(NamedTuple):
    """A dense operand (*batch, n, m) beside a cut triangle.

    Attributes:
        local: what this process works on.
        dim: the dimension that it is spread by, or None where all processes have the whole.
        shape: of the result.
    """

    local: Tensor
    dim: int | None
    shape: tuple[int, ...]

    def result(self, found: Tensor, cut: Cut, unless: Placement) -> DTensor:
        """The DTensor of a result, placed as the operand, or so where all have the whole."""
        if self.dim is None:
            return _spread(found, cut, unless, self.shape)
        return _spread(found, cut, Shard(self.dim + len(self.shape) - self.local.ndim), self.shape)


def _columns(x: DTensor, cut: Cut, batch: torch.Size, spread: bool) -> _Columns:
    """A dense operand, spread as it is where each process can work on its own part.

    It has columns of its own, or a share of a batch that the triangle does not have.

    Args:
        x: shape (*batch, n, m).
        cut: the triangle.
        batch: that of the triangle.
        spread: whether columns that all processes have are to be spread.
    """
    dim = None
    for i, placement in enumerate(x.placements):
        if i == cut.dim and type(placement) is Shard and placement.dim != x.ndim - 2:
            dim = placement.dim if placement.dim == x.ndim - 1 or not batch else None
    if dim is None and spread:
        dim = x.ndim - 1
    local = _local(x, cut, Replicate() if dim is None else Shard(dim))
    shape = (*torch.broadcast_shapes(batch, x.shape[:-2]), *x.shape[-2:])
    return _Columns(local, dim, shape)


@_rule(_ops.mm.default, lambda args: [i for i in (0, 1) if args[3 + i] != DENSE])
def _mm(a: Any, b: Any, n: int, a_kind: int, b_kind: int, c_kind: int, tf32: bool = False) -> Any:
    if a_kind == b_kind == DENSE:
        return _outer(a, b, n, tf32) if c_kind == LOWER else NotImplemented
    if DENSE not in (a_kind, b_kind):
        return _triangles(a, b, n, a_kind, b_kind, c_kind, tf32)
    left = b_kind == DENSE
    packed, x = (a, b) if left else (b, a)
    cut = _cut(packed, n)
    if cut is None or c_kind != DENSE or not isinstance(x, DTensor) or x.device_mesh != cut.mesh:
        return NotImplemented
    kind = a_kind if left else TRANSPOSED.get(b_kind, b_kind)
    chunk = _local(packed, cut, Shard(packed.ndim - 1))
    if kind == HERMITIAN and not left:
        chunk = chunk.conj().resolve_conj()
    if x.ndim == 1:
        vector = _local(x, cut, Replicate())
        y = products.multiply_vector(pieces_of(cut, chunk), n, vector, kind)
        return _spread(y, cut, Partial(), tuple(y.shape))
    matrix: Any = x if left else x.mT
    columns = _columns(matrix, cut, packed.shape[:-1], spread=False)
    if columns.dim is None and 0 < columns.local.shape[-1] <= products.VECTORS:
        pieces, vectors = pieces_of(cut, chunk), columns.local.unbind(-1)
        y = torch.stack([products.multiply_vector(pieces, n, v, kind) for v in vectors], -1)
    else:
        strips = own_rows(cut, chunk) if columns.dim is None else stream(cut, chunk)
        y = products.multiply_dense(strips, n, columns.local, kind, chunk.shape[:-1], tf32)
    found = columns.result(y, cut, Partial())
    return found if left else found.mT


def _outer(a: Any, b: Any, n: int, tf32: bool) -> Any:
    """The lower triangle of a dense product, of which each process computes its own part."""
    cut = _wanted(n, a, b)
    if cut is None:
        return NotImplemented
    a, b = (_local(x, cut, Replicate()) for x in (a, b))
    like = a.new_empty((*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), 0))
    chunk = chunk_of(
        cut,
        lambda s: products.multiply(a[..., s.first : s.last, :], b[..., : s.last], tf32),
        like,
    )
    return _packed(chunk, cut)


def _triangles(a: Any, b: Any, n: int, a_kind: int, b_kind: int, c_kind: int, tf32: bool) -> Any:
    cut = _cut(a, n) or _cut(b, n)
    both = isinstance(a, DTensor) and isinstance(b, DTensor) and a.device_mesh == b.device_mesh
    if cut is None or not both or c_kind != LOWER or a_kind == b_kind == UPPER:
        return NotImplemented
    first = _local(a, cut, Shard(a.ndim - 1))
    second = first if a is b else _local(b, cut, Shard(b.ndim - 1))
    total = None
    left = _triangles_of(first, cut, a_kind)
    right = left if a is b and a_kind == b_kind else _triangles_of(second, cut, b_kind)
    for x, x_kind in left:
        for y, y_kind in right:
            # One of two upper ones has no diagonal, so that their product is all above it.
            if x_kind == y_kind == UPPER:
                continue
            term = products.multiply_triangles(cut, x, y, x_kind, y_kind, tf32)
            total = term if total is None else total.add_(term)
    assert total is not None
    return _packed(total, cut)


def _triangles_of(chunk: Tensor, cut: Cut, kind: int) -> list[tuple[Tensor, int]]:
    """The triangles that a matrix is the sum of, as chunks, and how each is read.

    A mirrored one is its lower triangle and, without the diagonal, what mirrors that.
    """
    if kind not in MIRRORED:
        return [(chunk, kind)]
    _, index = _own_diagonal(cut, chunk.device, 0)
    lower, beside = chunk, chunk.clone()
    beside[..., index] = 0
    if kind == HERMITIAN and chunk.is_complex():
        lower = chunk.clone()
        lower.imag[..., index] = 0
        beside = beside.conj().resolve_conj()
    return [(lower, LOWER), (beside, UPPER)]


def _packed(chunk: Tensor, cut: Cut) -> DTensor:
    shape = (*chunk.shape[:-1], layout.numel(cut.n))
    return _spread(chunk, cut, Shard(len(shape) - 1), shape)


@_rule(_ops.solve_triangular.default, lambda args: (0, 1) if args[4] == LOWER else (0,))
def _solve(packed: Any, b: Any, n: int, kind: int, b_kind: int, left: bool, unit: bool) -> Any:
    cut = _cut(packed, n) or (_cut(b, n) if b_kind == LOWER else None)
    both = isinstance(packed, DTensor) and isinstance(b, DTensor)
    if cut is None or not both or b.device_mesh != packed.device_mesh:
        return NotImplemented
    chunk = _local(packed, cut, Shard(packed.ndim - 1))
    if b_kind == LOWER:
        rhs = _local(b, cut, Shard(b.ndim - 1))
        return _packed(solves.solve_triangles(cut, chunk, rhs, kind, left, unit), cut)
    # From the right it is the transpose of a system with the transposed triangle.
    x = b if left else b.mT
    columns = _columns(x, cut, packed.shape[:-1], spread=x.shape[-1] >= solves.FEW)
    solve = solves.solve_few if columns.dim is None else solves.solve_dense
    y = solve(cut, chunk, columns.local, kind if left else TRANSPOSED[kind], unit)
    found = columns.result(y, cut, Replicate())
    return found if left else found.mT


@_rule(_ops.cholesky.default)
def _cholesky(packed: Any, n: int) -> Any:
    cut = _cut(packed, n)
    if cut is None:
        return NotImplemented
    chunk, info = factors.factor(cut, _local(packed, cut, Shard(packed.ndim - 1)))
    return _packed(chunk, cut), _spread(info, cut, Replicate(), tuple(info.shape))


def _own_diagonal(cut: Cut, device: torch.device, below: int) -> tuple[slice, Tensor]:
    """Which elements of a diagonal this process has, and where in its chunk."""
    begin, end = cut.chunk(cut.rank)
    steps = range(cut.n - below)
    first, last = (
        bisect_left(steps, at, key=lambda j: layout.offset(j + below, j)) for at in (begin, end)
    )
    columns = torch.arange(first, last, device=device)
    return slice(first, last), layout.offset(columns + below, columns) - begin


@_rule(_ops.diagonal.default)
def _diagonal(packed: Any, n: int, below: int) -> Any:
    cut = _cut(packed, n)
    if cut is None:
        return NotImplemented
    chunk = _local(packed, cut, Shard(packed.ndim - 1))
    rows, index = _own_diagonal(cut, chunk.device, below)
    elements = chunk.new_zeros((*chunk.shape[:-1], n - below))
    elements[..., rows] = chunk[..., index]
    return _spread(elements, cut, Partial(), tuple(elements.shape))


@_rule(_ops.embed_diagonal.default, _none)
def _embed_diagonal(elements: Any, n: int, below: int) -> Any:
    cut = _wanted(n, elements)
    if cut is None:
        return NotImplemented
    line = _local(elements, cut, Replicate())
    begin, end = cut.chunk(cut.rank)
    chunk = line.new_zeros((*line.shape[:-1], end - begin))
    rows, index = _own_diagonal(cut, chunk.device, below)
    chunk[..., index] = line[..., rows]
    return _packed(chunk, cut)


@_rule(_ops.pack.default, _none)
def _pack(dense: Any, kind: int) -> Any:
    cut = _wanted(dense.shape[-1], dense)
    if cut is None or kind not in (LOWER, UPPER):
        return NotImplemented
    x = _local(dense, cut, Replicate())
    x = x if kind == LOWER else x.mT
    like = x.new_empty((*x.shape[:-2], 0))
    return _packed(chunk_of(cut, lambda s: x[..., s.first : s.last, : s.last], like), cut)


@_rule(_ops.unpack_block.default)
def _unpack_block(packed: Any, n: int, kind: int, top: int, left: int, rows: int, cols: int) -> Any:
    cut = _cut(packed, n)
    if cut is None:
        return NotImplemented
    chunk = _local(packed, cut, Shard(packed.ndim - 1))
    block = chunk.new_zeros((*chunk.shape[:-1], rows, cols))
    hermitian = kind == HERMITIAN and chunk.is_complex()
    if kind != UPPER:
        for strip, stored in own_rows(cut, chunk, top, top + rows):
            if hermitian:
                stored.diagonal(strip.first, -2, -1).imag.zero_()
            _add_rows(block, stored, strip, top, left)
    if kind != LOWER:
        # What lies above the diagonal is stored as its transpose.
        for strip, stored in own_rows(cut, chunk, left, left + cols):
            stored = stored.tril_(strip.first - 1) if kind in MIRRORED else stored
            _add_rows(block.mT, stored.conj() if hermitian else stored, strip, left, top)
    return _spread(block, cut, Partial(), tuple(block.shape))


@_rule(_ops.pack_block.default, _none)
def _pack_block(dense: Any, n: int, kind: int, top: int, left: int) -> Any:
    cut = _wanted(n, dense)
    if cut is None:
        return NotImplemented
    block = _local(dense, cut, Replicate())
    hermitian = kind == HERMITIAN and block.is_complex()

    def rows_of(strip: Strip) -> Tensor:
        rows = block.new_zeros((*block.shape[:-2], strip.last - strip.first, strip.last))
        if kind != UPPER:
            _take_rows(rows, block, strip, top, left)
        if hermitian:
            rows.diagonal(strip.first, -2, -1).imag.zero_()
        if kind != LOWER:
            # What lies above the diagonal is stored as its transpose.
            mirrored = torch.zeros_like(rows)
            _take_rows(mirrored, block.mT, strip, left, top)
            mirrored = mirrored.tril_(strip.first - 1) if kind in MIRRORED else mirrored
            rows += mirrored.conj() if hermitian else mirrored
        return rows

    return _packed(chunk_of(cut, rows_of, block.new_empty((*block.shape[:-2], 0))), cut)


def _take_rows(rows: Tensor, block: Tensor, strip: Strip, top: int, left: int) -> None:
    """Put into a strip what a block that begins at (top, left) has of it."""
    first, last = max(strip.first, top), min(strip.last, top + block.shape[-2])
    right = min(strip.last, left + block.shape[-1])
    if first < last and left < right:
        part = block[..., first - top : last - top, : right - left]
        rows[..., first - strip.first : last - strip.first, left:right] = part


def _add_rows(block: Tensor, rows: Tensor, strip: Strip, top: int, left: int) -> None:
    """Add to a block that begins at (top, left) what it has of a strip, whose rows it has."""
    part = rows[..., left : left + block.shape[-1]]
    block[..., strip.first - top : strip.last - top, : part.shape[-1]] += part


@_rule(_ops.first_zero.default)
def _first_zero(packed: Any, n: int) -> Any:
    cut = _cut(packed, n)
    if cut is None:
        return NotImplemented
    zero = _diagonal(packed, n, 0).full_tensor() == 0
    # A last one stands for none, so that there always is a first one.
    first = torch.cat([zero, zero.new_ones((*zero.shape[:-1], 1))], -1).int().argmax(-1)
    found = torch.where(first == n, 0, first + 1).int()
    return _spread(found, cut, Replicate(), tuple(found.shape))


def _scaled(x: Tensor, factor: float) -> Tensor:
    """A multiple, which is zero for zero also where there are nan and inf."""
    return x * factor if factor else torch.zeros_like(x)


@_rule(_ops.scale_band.default)
def _scale_band(
    packed: Any, n: int, nearest: int, farthest: int, inside: float, outside: float, hermitian: bool
) -> Any:
    cut = _cut(packed, n)
    everything = nearest <= 0 and farthest >= n - 1
    if cut is None or not (everything or nearest == farthest):
        return NotImplemented
    chunk = _local(packed, cut, Shard(packed.ndim - 1))
    scaled = _scaled(chunk, inside if everything else outside)
    if not everything:
        _, index = _own_diagonal(cut, chunk.device, nearest)
        scaled[..., index] = _scaled(chunk[..., index], inside)
    if hermitian and chunk.is_complex():
        _, index = _own_diagonal(cut, chunk.device, 0)
        scaled.imag[..., index] = 0
    return _packed(scaled, cut)
