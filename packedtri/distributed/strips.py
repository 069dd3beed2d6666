"""How one matrix lies on several processes, and how its rows go from one to another.

``Shard(-1)`` gives each process consecutive stored elements, its *chunk*: rows of the triangle, the
first and the last of which may be parts. Algorithms work on *strips*: some whole rows as a dense
matrix, as far as the last of them reaches. They come in two ways.

- In turn: every process is sent each strip once, and keeps none (``stream``). That suits a process
  that has columns of a dense operand to itself.
- Dealt out: each process keeps the strips of its own (``deal``), and gives them back in the end
  (``collect``). They are dealt back and forth, so that all processes get short ones and long ones.

No process ever has a whole triangle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from packedtri import layout

_pack_rows = torch.ops.packedtri.pack_rows.default
_unpack_rows = torch.ops.packedtri.unpack_rows.default

#: Rows of a strip: few make small products and many messages, many leave processes idle.
LEAST_ROWS, MOST_ROWS = 128, 2048
#: How many strips a process is to have, where that leaves them of such heights.
STRIPS_EACH = 8

# Stored elements [begin, end).
_Range = tuple[int, int]


@dataclass(frozen=True)
class Strip:
    """Rows [first, last) of a triangle, and the number of the process that they are dealt to."""

    first: int
    last: int
    owner: int

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

    @property
    def chunks(self) -> list[_Range]:
        """The elements that each process has: as torch.chunk cuts them, the last ones fewer."""
        total = layout.numel(self.n)
        size = -(-total // self.world)
        return [(min(k * size, total), min((k + 1) * size, total)) for k in range(self.world)]

    @property
    def strips(self) -> list[Strip]:
        wanted = -(-self.n // (STRIPS_EACH * self.world))
        height = min(max(wanted, LEAST_ROWS), MOST_ROWS)
        return [
            Strip(first, min(first + height, self.n), self._owner(i))
            for i, first in enumerate(range(0, self.n, height))
        ]

    def _owner(self, strip: int) -> int:
        turn, at = divmod(strip, self.world)
        return at if turn % 2 == 0 else self.world - 1 - at


def own_rows(
    cut: Cut, chunk: Tensor, first: int = 0, last: int | None = None
) -> Iterator[tuple[Strip, Tensor]]:
    """Strips of what this process has, with zeros for elements of their rows that others have.

    Args:
        cut: the matrix.
        chunk: what this process has of it.
        first, last: of rows [first, last) alone, by default of all.
    """
    begin, end = cut.chunks[cut.rank]
    for strip in cut.strips:
        limits = max(strip.first, first), min(strip.last, cut.n if last is None else last)
        if limits[0] >= limits[1]:
            continue
        strip = Strip(*limits, strip.owner)
        low, high = strip.elements
        common = _common((begin, end), (low, high))
        if common is None:
            continue
        rows = chunk[..., common[0] - begin : common[1] - begin]
        if common != (low, high):
            whole = chunk.new_zeros((*chunk.shape[:-1], high - low))
            whole[..., common[0] - low : common[1] - low] = rows
            rows = whole
        yield strip, _unpack_rows(rows, strip.first, strip.last)


def chunk_of(cut: Cut, rows_of: Callable[[Strip], Tensor], like: Tensor) -> Tensor:
    """The chunk of this process, of a matrix that it can compute any rows of.

    Args:
        cut: the matrix.
        rows_of: gives a strip; what is past the diagonal is not looked at.
        like: an empty tensor of the batch, dtype and device.
    """
    begin, end = cut.chunks[cut.rank]
    parts = [like]
    for strip in cut.strips:
        low, high = strip.elements
        common = _common((begin, end), (low, high))
        if common is not None:
            rows = _pack_rows(rows_of(strip), strip.first)
            parts.append(rows[..., common[0] - low : common[1] - low])
    return torch.cat(parts, -1)


def stream(cut: Cut, chunk: Tensor, *, descending: bool = False) -> Iterator[tuple[Strip, Tensor]]:
    """Every strip in turn, on every process. The next one is under way while one is worked on."""
    strips = cut.strips[::-1] if descending else cut.strips
    arriving = _begin(cut, chunk, strips[0]) if strips else None
    for strip, following in zip(strips, [*strips[1:], None], strict=True):
        assert arriving is not None
        parts = [part.wait() for part in arriving]
        arriving = None if following is None else _begin(cut, chunk, following)
        rows = parts[0] if len(parts) == 1 else torch.cat(parts, -1)
        yield strip, _unpack_rows(rows, strip.first, strip.last)


def _begin(cut: Cut, chunk: Tensor, strip: Strip) -> list[Message]:
    """Have each process send what it has of a strip to all others."""
    parts = []
    for owner, elements in enumerate(cut.chunks):
        common = _common(elements, strip.elements)
        if common is None:
            continue
        if owner == cut.rank:
            part = chunk[..., common[0] - elements[0] : common[1] - elements[0]].contiguous()
        else:
            part = chunk.new_empty((*chunk.shape[:-1], common[1] - common[0]))
        parts.append(Message(cut, part, owner))
    return parts


class Message:
    """A contiguous tensor on its way from one process to all others of a group."""

    def __init__(self, cut: Cut, x: Tensor, owner: int) -> None:
        self._x = x
        self._work = dist.broadcast(_as_bytes(x), group=cut.group, group_src=owner, async_op=True)

    def wait(self) -> Tensor:
        """The tensor, once it has come."""
        self._work.wait()
        return self._x


def deal(cut: Cut, chunk: Tensor) -> dict[Strip, Tensor]:
    """The strips of this process, from first to last, out of the chunks of all."""
    own = [strip for strip in cut.strips if strip.owner == cut.rank]
    rows = _move(cut, [chunk], [[c] for c in cut.chunks], _dealt(cut), chunk)
    return {s: _unpack_rows(r, s.first, s.last) for s, r in zip(own, rows, strict=True)}


def collect(cut: Cut, strips: dict[Strip, Tensor], batch: torch.Size, like: Tensor) -> Tensor:
    """The chunk of this process, out of the strips that were dealt to all.

    Args:
        cut: the matrix.
        strips: those of this process, of which the zero half is not looked at.
        batch: of all of them, also where this process has none.
        like: of their dtype and device.
    """
    rows = [_pack_rows(dense, strip.first) for strip, dense in strips.items()]
    like = like.new_empty((*batch, 0))
    (chunk,) = _move(cut, rows, _dealt(cut), [[c] for c in cut.chunks], like)
    return chunk


def _dealt(cut: Cut) -> list[list[_Range]]:
    held: list[list[_Range]] = [[] for _ in range(cut.world)]
    for strip in cut.strips:
        held[strip.owner].append(strip.elements)
    return held


def _move(
    cut: Cut,
    held: Sequence[Tensor],
    source: list[list[_Range]],
    target: list[list[_Range]],
    like: Tensor,
) -> list[Tensor]:
    """Send all elements of a triangle from where they are to where they shall be.

    Args:
        cut: the matrix.
        held: the ranges of this process, shape (*batch, count) each.
        source: the ranges that each process has.
        target: those that it shall have.
        like: of their batch, dtype and device, also where this process has none.
    """
    rank, ranks = cut.rank, range(cut.world)
    batch = like.shape[:-1]

    def pieces(sender: int, receiver: int) -> list[tuple[int, int, int, int]]:
        """Of each common range: the numbers of both ranges that it lies in, its begin and end."""
        return [
            (i, j, *common)
            for i, given in enumerate(source[sender])
            for j, taken in enumerate(target[receiver])
            if (common := _common(given, taken)) is not None
        ]

    sent = [
        [
            held[i][..., low - source[rank][i][0] : high - source[rank][i][0]].reshape(-1)
            for i, _, low, high in pieces(rank, receiver)
        ]
        for receiver in ranks
    ]
    coming = [pieces(sender, rank) for sender in ranks]
    sizes = [sum(high - low for *_, low, high in part) * batch.numel() for part in coming]
    received = like.new_empty(sum(sizes))
    item = like.dtype.itemsize
    dist.all_to_all_single(
        _as_bytes(received),
        _as_bytes(torch.cat([like.new_empty(0), *(x for part in sent for x in part)])),
        [size * item for size in sizes],
        [sum(x.numel() for x in part) * item for part in sent],
        group=cut.group,
    )
    found = [like.new_empty((*batch, end - begin)) for begin, end in target[rank]]
    at = 0
    for _, j, low, high in (piece for part in coming for piece in part):
        count = (high - low) * batch.numel()
        begin = target[rank][j][0]
        found[j][..., low - begin : high - begin] = received[at : at + count].reshape(*batch, -1)
        at += count
    return found


def _common(a: _Range, b: _Range) -> _Range | None:
    low, high = max(a[0], b[0]), min(a[1], b[1])
    return (low, high) if low < high else None


def _as_bytes(x: Tensor) -> Tensor:
    """The memory of a contiguous tensor. Not every backend knows complex numbers and 16 bits."""
    return x.view(-1).view(torch.uint8)
