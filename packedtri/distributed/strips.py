"""How one matrix lies on several processes, and how its rows go from one to another.

``Shard(-1)`` gives each process consecutive stored elements, its *chunk*: rows of the triangle, the
first and the last of which may be parts. Algorithms work on *strips*: some whole rows as a dense
matrix, as far as the last of them reaches. They come in three ways.

- Where they lie: each process takes what it has (``own_rows``, ``chunk_of``).
- In turn: every process is sent each strip once, and keeps none (``stream``). That suits a process
  that has columns of a dense operand to itself.
- Dealt out: each process keeps strips of its own (``deal``), and gives them back in the end
  (``collect``). They are dealt back and forth, so that all processes get short ones and long ones.

No process ever has a whole triangle, where there are many.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import zip_longest
from math import isqrt
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from packedtri import layout

_pack_rows = torch.ops.packedtri.pack_rows.default
_unpack_rows = torch.ops.packedtri.unpack_rows.default

#: Rows of a strip that is dealt out: few make small products and many messages, many leave
#: processes idle.
LEAST_ROWS, MOST_ROWS = 1024, 4096
#: How many strips are dealt to each process, where that leaves them of such heights.
STRIPS_EACH = 8
#: Elements of a strip that is worked on by itself, in all matrices of a batch, which bound what
#: memory it takes, and the least and the most of one that is sent to all.
ALONE, LEAST_SENT, MOST_SENT = 1 << 26, 1 << 22, 1 << 27

# Stored elements [begin, end).
_Range = tuple[int, int]


class Strip(NamedTuple):
    """Rows [first, last) of a triangle."""

    first: int
    last: int

    @property
    def elements(self) -> _Range:
        return layout.numel(self.first), layout.numel(self.last)


class Cut(NamedTuple):
    """A triangle of order ``n`` whose elements are spread along one dimension of a mesh."""

    n: int
    mesh: Any
    dim: int

    @property
    def group(self) -> Any:
        return self.mesh.get_group(self.dim)

    @property
    def rank(self) -> int:
        rank: int = self.mesh.get_local_rank(self.dim)
        return rank

    @property
    def world(self) -> int:
        world: int = self.mesh.size(self.dim)
        return world

    def chunk(self, rank: int) -> _Range:
        """The elements that a process has: as torch.chunk cuts them, the last ones fewer."""
        total = layout.numel(self.n)
        size = -(-total // self.world)
        return min(rank * size, total), min((rank + 1) * size, total)

    def rounds(self) -> Iterator[list[Strip]]:
        """The strips that are dealt out, in rounds: to each process one, or in the last none.

        Every other round is dealt from the last process on.
        """
        wanted = -(-self.n // (STRIPS_EACH * self.world))
        height = min(max(wanted, LEAST_ROWS), MOST_ROWS)
        strips = [Strip(i, min(i + height, self.n)) for i in range(0, self.n, height)]
        for turn, at in enumerate(range(0, len(strips), self.world)):
            dealt = strips[at : at + self.world]
            dealt += [Strip(self.n, self.n)] * (self.world - len(dealt))
            yield dealt if turn % 2 == 0 else dealt[::-1]

    def owners(self) -> dict[Strip, int]:
        """The strips that are dealt out, from first to last, and who has each."""
        dealt = [(s, rank) for strips in self.rounds() for rank, s in enumerate(strips)]
        return dict(sorted((s, rank) for s, rank in dealt if s.first < s.last))


def _strips_of(first: int, last: int, elements: int) -> list[Strip]:
    """Rows [first, last) in strips of about so many elements, dense ones."""
    strips = []
    while first < last:
        # The larger root of h (first + h) = elements, for h rows.
        height = max((isqrt(first * first + 4 * elements) - first) // 2, 1)
        strips.append(Strip(first, min(first + height, last)))
        first += height
    return strips


def own_rows(
    cut: Cut,
    chunk: Tensor,
    first: int = 0,
    last: int | None = None,
    *,
    descending: bool = False,
) -> Iterator[tuple[Strip, Tensor]]:
    """Strips of what this process has, with zeros for elements of their rows that others have.

    Args:
        cut: the matrix.
        chunk: what this process has of it.
        first, last: of rows [first, last) alone, by default of all.
        descending: begin with the last one.
    """
    begin, end = cut.chunk(cut.rank)
    rows_wanted = first, cut.n if last is None else last
    strips = _rows_with(cut, (begin, end), rows_wanted, chunk.shape[:-1])
    for strip in strips[::-1] if descending else strips:
        low, high = strip.elements
        common = _common((begin, end), strip.elements)
        rows = chunk[..., common[0] - begin : common[1] - begin]
        if common != (low, high):
            whole = chunk.new_zeros((*chunk.shape[:-1], high - low))
            whole[..., common[0] - low : common[1] - low] = rows
            rows = whole
        yield strip, _unpack_rows(rows, *strip)


class Pieces(NamedTuple):
    """A chunk as rows of the triangle.

    Attributes:
        strip: the rows that are whole, perhaps none.
        rows: their stored elements, shape (*batch, count).
        ends: parts of rows before and behind: which row, its first column, and the elements.
    """

    strip: Strip
    rows: Tensor
    ends: list[tuple[int, int, Tensor]]


def pieces_of(cut: Cut, chunk: Tensor) -> Pieces:
    """What this process has, without a copy."""
    begin, end = cut.chunk(cut.rank)

    def elements(low: int, high: int) -> Tensor:
        return chunk[..., low - begin : high - begin]

    strip, ends = _rows_of_chunk(cut.n, begin, end)
    rows = elements(*strip.elements) if strip.first < strip.last else elements(begin, begin)
    parts = [(row, low - layout.numel(row), elements(low, high)) for row, low, high in ends]
    return Pieces(strip, rows, parts)


@lru_cache
def _rows_of_chunk(n: int, begin: int, end: int) -> tuple[Strip, tuple[tuple[int, int, int], ...]]:
    """The whole rows of elements [begin, end), and parts of rows: which, from where to where."""
    rows = range(n + 1)
    first = bisect_left(rows, begin, key=layout.numel)
    last = bisect_left(rows, end + 1, key=layout.numel) - 1
    ends = [(first - 1, begin, min(end, layout.numel(first))), (last, layout.numel(last), end)]
    # The second begins before the chunk where that is within a row.
    return Strip(min(first, last), last), tuple(e for e in ends if begin <= e[1] < e[2])


def chunk_of(cut: Cut, rows_of: Callable[[Strip], Tensor], like: Tensor) -> Tensor:
    """The chunk of this process, of a matrix that it can compute any rows of.

    Args:
        cut: the matrix.
        rows_of: gives a strip; what is past the diagonal is not looked at.
        like: an empty tensor of the batch, dtype and device.
    """
    begin, end = cut.chunk(cut.rank)
    chunk = like.new_empty((*like.shape[:-1], end - begin))
    for strip in _rows_with(cut, (begin, end), (0, cut.n), like.shape[:-1]):
        base = strip.elements[0]
        low, high = _common((begin, end), strip.elements)
        rows = _pack_rows(rows_of(strip), strip.first)
        chunk[..., low - begin : high - begin] = rows[..., low - base : high - base]
    return chunk


def whole_rows(cut: Cut) -> int:
    """How many rows, from the first of all on, end in the chunk of this process or before."""
    _, end = cut.chunk(cut.rank)
    return bisect_left(range(cut.n), end + 1, key=lambda i: layout.numel(i + 1))


def _rows_with(
    cut: Cut, elements: _Range, among: tuple[int, int], batch: torch.Size
) -> list[Strip]:
    """The rows of some rows [first, last) that have some of the elements."""
    (begin, end), (first, last), rows = elements, among, range(cut.n)
    low = bisect_left(rows, begin + 1, key=lambda i: layout.numel(i + 1))
    high = bisect_left(rows, end, key=layout.numel)
    return _strips_of(max(low, first), min(high, last), ALONE // max(batch.numel(), 1))


def stream(
    cut: Cut, chunk: Tensor, strips: Sequence[Strip] | None = None, *, descending: bool = False
) -> Iterator[tuple[Strip, Tensor]]:
    """Strips in turn, on every process. The next one is under way while one is worked on.

    Args:
        cut: the matrix.
        chunk: what this process has of it.
        strips: which strips, by default all rows, in such as suit the size of the matrix.
        descending: begin with the last one.
    """
    if strips is None:
        most = layout.numel(cut.n) // (STRIPS_EACH * cut.world)
        matrices = max(chunk.shape[:-1].numel(), 1)
        strips = _strips_of(0, cut.n, min(max(most, LEAST_SENT), MOST_SENT) // matrices)
    strips = strips[::-1] if descending else strips
    arriving = _begin(cut, chunk, strips[0]) if strips else []
    for strip, following in zip_longest(strips, strips[1:]):
        parts = [part.wait() for part in arriving]
        arriving = [] if following is None else _begin(cut, chunk, following)
        rows = parts[0] if len(parts) == 1 else torch.cat(parts, -1)
        yield strip, _unpack_rows(rows, *strip)


def _begin(cut: Cut, chunk: Tensor, strip: Strip) -> list[Message]:
    """Have each process send what it has of a strip to all others."""
    parts = []
    for owner in range(cut.world):
        begin, end = cut.chunk(owner)
        low, high = _common((begin, end), strip.elements)
        if low == high:
            continue
        if owner == cut.rank:
            part = chunk[..., low - begin : high - begin].contiguous()
        else:
            part = chunk.new_empty((*chunk.shape[:-1], high - low))
        parts.append(Message(cut, part, owner))
    return parts


class Message:
    """A contiguous tensor on its way from one process to all others of a group."""

    def __init__(self, cut: Cut, x: Tensor, owner: int) -> None:
        self._x = x
        self._work = None
        if x.numel() > 0:
            sent = _as_bytes(x)
            self._work = dist.broadcast(sent, group=cut.group, group_src=owner, async_op=True)

    def wait(self) -> Tensor:
        """The tensor, once it has come."""
        if self._work is not None:
            self._work.wait()
        return self._x


def deal(cut: Cut, chunk: Tensor) -> dict[Strip, Tensor]:
    """The strips of this process, from first to last, out of the chunks of all."""
    begin, end = cut.chunk(cut.rank)
    found = {}
    for dealt in cut.rounds():
        own = dealt[cut.rank]
        sent = [_common((begin, end), strip.elements) for strip in dealt]
        coming = [_common(cut.chunk(rank), own.elements) for rank in range(cut.world)]
        parts = _exchange(
            cut, [chunk[..., low - begin : high - begin] for low, high in sent], coming
        )
        if own.first < own.last:
            found[own] = _unpack_rows(torch.cat(parts, -1), *own)
    return found


def collect(cut: Cut, strips: dict[Strip, Tensor], batch: torch.Size, like: Tensor) -> Tensor:
    """The chunk of this process, out of the strips that were dealt to all.

    Args:
        cut: the matrix.
        strips: those of this process, of which the zero half is not looked at. They are taken out.
        batch: of all of them, also where this process has none.
        like: of their dtype and device.
    """
    begin, end = cut.chunk(cut.rank)
    chunk = like.new_empty((*batch, end - begin))
    for dealt in cut.rounds():
        own = dealt[cut.rank]
        rows = _pack_rows(strips.pop(own), own.first) if own in strips else chunk[..., :0]
        base = own.elements[0]
        sent = [_common(cut.chunk(rank), own.elements) for rank in range(cut.world)]
        coming = [_common((begin, end), strip.elements) for strip in dealt]
        parts = _exchange(cut, [rows[..., low - base : high - base] for low, high in sent], coming)
        for (low, high), part in zip(coming, parts, strict=True):
            if low < high:
                chunk[..., low - begin : high - begin] = part
    return chunk


def _exchange(cut: Cut, sent: Sequence[Tensor], coming: Sequence[_Range]) -> list[Tensor]:
    """Send each process a part of some rows, and get one from each.

    Args:
        cut: the matrix.
        sent: shape (*batch, count) each.
        coming: which elements come from each process.
    """
    batch, like = sent[0].shape[:-1], sent[0]
    counts = [(high - low) * batch.numel() for low, high in coming]
    received = like.new_empty(sum(counts))
    item = like.dtype.itemsize
    if batch.numel() > 0:
        dist.all_to_all_single(
            _as_bytes(received),
            _as_bytes(torch.cat([x.reshape(-1) for x in sent])),
            [count * item for count in counts],
            [x.numel() * item for x in sent],
            group=cut.group,
        )
    parts = zip(received.split(counts), coming, strict=True)
    return [part.view(*batch, high - low) for part, (low, high) in parts]


def _common(a: _Range, b: _Range) -> _Range:
    low, high = max(a[0], b[0]), min(a[1], b[1])
    return low, max(low, high)


def _as_bytes(x: Tensor) -> Tensor:
    """The memory of a contiguous tensor. Not every backend knows complex numbers and 16 bits."""
    return x.view(-1).view(torch.uint8)
