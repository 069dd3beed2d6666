"""Systems with triangles that are cut in parts.

Of dense right-hand sides each process has columns of its own, and the strips of the triangle come
in turn. Of few columns it is quicker to send these, from each process to the next, which solves for
its own rows. Triangular right-hand sides are dealt out.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from packedtri.distributed.products import multiply
from packedtri.distributed.strips import (
    Cut,
    Message,
    Strip,
    collect,
    deal,
    own_rows,
    stream,
    whole_rows,
)
from packedtri.layout import DENSE, LOWER, UPPER

_pack = torch.ops.packedtri.pack.default
_solve = torch.ops.packedtri.solve_triangular.default

#: Columns that all processes have are spread from here on: what is sent of them then would cost
#: more than to send the triangle.
FEW = 512


def solve_square(square: Tensor, b: Tensor, kind: int, left: bool, unit: bool) -> Tensor:
    """X of T X = B, or of X T = B, for the dense lower triangle at the end of a strip."""
    return _solve(_pack(square, LOWER), b, square.shape[-1], kind, DENSE, left, unit)


def solve_dense(cut: Cut, chunk: Tensor, b: Tensor, kind: int, unit: bool) -> Tensor:
    """X of T X = B, by substitution strip by strip.

    Args:
        cut: the triangle.
        chunk: its elements of this process.
        b: shape (*batch, n, m).
        kind: LOWER reads the triangle as it is, downwards, and UPPER its transpose, upwards.
        unit: take its diagonal for ones.
    """
    batch = torch.broadcast_shapes(chunk.shape[:-1], b.shape[:-2])
    x = b.expand(*batch, *b.shape[-2:]).clone(memory_format=torch.contiguous_format)
    for strip, rows in stream(cut, chunk, descending=kind == UPPER):
        _substitute(strip, rows, x, kind, unit)
    return x


def solve_few(cut: Cut, chunk: Tensor, b: Tensor, kind: int, unit: bool) -> Tensor:
    """The same for a right-hand side that all processes have, and then the solution."""
    batch = torch.broadcast_shapes(chunk.shape[:-1], b.shape[:-2])
    x = b.expand(*batch, *b.shape[-2:]).clone(memory_format=torch.contiguous_format)
    upper, rows_done = kind == UPPER, whole_rows(cut)
    for process in range(cut.world)[:: -1 if upper else 1]:
        if process == cut.rank:
            # Of a row that another process ends this one takes its own part into account.
            cut_row = own_rows(cut, chunk, rows_done)
            if upper:
                _take_row(cut_row, x, upper)
            for strip, rows in own_rows(cut, chunk, 0, rows_done, descending=upper):
                _substitute(strip, rows, x, kind, unit)
            if not upper:
                _take_row(cut_row, x, upper)
        x = Message(cut, x, process).wait()
    return x


def _take_row(strips: Iterable[tuple[Strip, Tensor]], x: Tensor, upper: bool) -> None:
    """Subtract what one row, if it is there, without its diagonal contributes to a system."""
    for strip, row in strips:
        own, before = x[..., strip.first : strip.last, :], x[..., : strip.first, :]
        left = row[..., : strip.first]
        if upper:
            before -= multiply(left.mT, own)
        else:
            own -= multiply(left, before)


def _substitute(strip: Strip, rows: Tensor, x: Tensor, kind: int, unit: bool) -> None:
    """Make rows of the solution of those of a right-hand side; upwards, take them from others."""
    own, before = x[..., strip.first : strip.last, :], x[..., : strip.first, :]
    left, square = rows[..., : strip.first], rows[..., strip.first :]
    if kind == LOWER and strip.first:
        own -= multiply(left, before)
    own.copy_(solve_square(square, own, kind, True, unit))
    if kind == UPPER and strip.first:
        before -= multiply(left.mT, own)


def solve_triangles(
    cut: Cut, chunk: Tensor, b: Tensor, kind: int, left: bool, unit: bool
) -> Tensor:
    """The chunk of the lower triangle of X, where T X = B or X T = B, for a lower triangle B.

    Args:
        cut: both triangles.
        chunk: elements of T of this process, and ``b`` those of B.
        kind: LOWER reads T as it is, UPPER as its transpose. Column j of the solution is right
            from row j on.
        left: whether T is on the left.
        unit: take its diagonal for ones.
    """
    batch = torch.broadcast_shapes(chunk.shape[:-1], b.shape[:-1])
    found = {strip: rows.expand(*batch, *rows.shape[-2:]) for strip, rows in deal(cut, b).items()}
    if chunk.shape[:-1] != b.shape[:-1]:
        found = {strip: rows.clone() for strip, rows in found.items()}
    if not left:
        _from_right(cut, chunk, found, kind, unit)
    elif kind == LOWER:
        _downwards(cut, chunk, found, batch, unit)
    else:
        _upwards(cut, chunk, found, batch, unit)
    return collect(cut, found, batch, b)


def _from_right(cut: Cut, chunk: Tensor, found: dict[Strip, Tensor], kind: int, unit: bool) -> None:
    """Columns of the solution one after another, of which each process has its own rows."""
    for strip, rows in stream(cut, chunk, list(cut.owners()), descending=kind == LOWER):
        before, square = rows[..., : strip.first], rows[..., strip.first :]
        for own, x in found.items():
            if own.first < strip.first:
                continue
            solved = x[..., strip.first : strip.last]
            if kind == UPPER and strip.first:
                solved -= multiply(x[..., : strip.first], before.mT)
            solved.copy_(solve_square(square, solved, kind, False, unit))
            if kind == LOWER and strip.first:
                x[..., : strip.first] -= multiply(solved, before)


def _downwards(
    cut: Cut, chunk: Tensor, found: dict[Strip, Tensor], batch: torch.Size, unit: bool
) -> None:
    """Rows of the solution one after another, each of which is sent to all once it is there."""
    triangle = deal(cut, chunk)
    for strip, owner in cut.owners().items():
        if owner == cut.rank:
            square, x = triangle[strip][..., strip.first :], found[strip]
            x.copy_(solve_square(square, x, LOWER, True, unit))
        solved = _sent(cut, found, strip, owner, batch, chunk)
        for below, x in found.items():
            if below.first > strip.first:
                part = triangle[below][..., strip.first : strip.last]
                x[..., : strip.last] -= multiply(part, solved)


def _upwards(
    cut: Cut, chunk: Tensor, found: dict[Strip, Tensor], batch: torch.Size, unit: bool
) -> None:
    """The same from the last row on, with the transpose of the triangle."""
    owners = cut.owners()
    for strip, rows in stream(cut, chunk, list(owners), descending=True):
        if owners[strip] == cut.rank:
            square, x = rows[..., strip.first :], found[strip]
            x.copy_(solve_square(square, x, UPPER, True, unit))
        solved = _sent(cut, found, strip, owners[strip], batch, chunk)
        for above, x in found.items():
            if above.first < strip.first:
                part = rows[..., above.first : above.last].mT
                x -= multiply(part, solved[..., : above.last])


def _sent(
    cut: Cut,
    found: dict[Strip, Tensor],
    strip: Strip,
    owner: int,
    batch: torch.Size,
    like: Tensor,
) -> Tensor:
    """A strip that one process has found, on all of them."""
    shape = (*batch, strip.last - strip.first, strip.last)
    x = found[strip] if owner == cut.rank else like.new_empty(shape)
    return Message(cut, x, owner).wait()
