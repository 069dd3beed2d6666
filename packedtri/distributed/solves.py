"""Systems with triangles that are cut in parts.

Of dense right-hand sides each process has columns of its own, and the strips of the triangle come
in turn. Triangular ones are dealt out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from packedtri.distributed.strips import Cut, Message, Strip, collect, deal, stream
from packedtri.layout import LOWER

_solve = torch.linalg.solve_triangular


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
    for strip, rows in stream(cut, chunk, descending=kind != LOWER):
        own, before = x[..., strip.first : strip.last, :], x[..., : strip.first, :]
        left, square = rows[..., : strip.first], rows[..., strip.first :]
        if kind == LOWER:
            own -= left @ before
            own.copy_(_solve(square, own, upper=False, unitriangular=unit))
        else:
            own.copy_(_solve(square.mT, own, upper=True, unitriangular=unit))
            before -= left.mT @ own
    return x


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
    found = {
        strip: rows.expand(*batch, *rows.shape[-2:]).clone() for strip, rows in deal(cut, b).items()
    }
    if not left:
        _from_right(cut, chunk, found, kind, unit)
    elif kind == LOWER:
        _downwards(cut, chunk, found, batch, unit)
    else:
        _upwards(cut, chunk, found, batch, unit)
    return collect(cut, found, batch, b)


def _from_right(cut: Cut, chunk: Tensor, found: dict[Strip, Tensor], kind: int, unit: bool) -> None:
    """Columns of the solution one after another, of which each process has its own rows."""
    upper = kind != LOWER
    for strip, rows in stream(cut, chunk, descending=not upper):
        before, square = rows[..., : strip.first], rows[..., strip.first :]
        square = square.mT if upper else square
        for own, x in found.items():
            if own.first < strip.first:
                continue
            solved = x[..., strip.first : strip.last]
            if upper:
                solved -= x[..., : strip.first] @ before.mT
            solved.copy_(_solve(square, solved, upper=upper, left=False, unitriangular=unit))
            if not upper:
                x[..., : strip.first] -= solved @ before


def _downwards(
    cut: Cut, chunk: Tensor, found: dict[Strip, Tensor], batch: torch.Size, unit: bool
) -> None:
    """Rows of the solution one after another, each of which is sent to all once it is there."""
    triangle = deal(cut, chunk)
    for strip in cut.strips:
        if strip in found:
            square = triangle[strip][..., strip.first :]
            found[strip].copy_(_solve(square, found[strip], upper=False, unitriangular=unit))
        solved = _sent(cut, found, strip, batch, chunk)
        for below, x in found.items():
            if below.first > strip.first:
                x[..., : strip.last] -= triangle[below][..., strip.first : strip.last] @ solved


def _upwards(
    cut: Cut, chunk: Tensor, found: dict[Strip, Tensor], batch: torch.Size, unit: bool
) -> None:
    """The same from the last row on, with the transpose of the triangle."""
    for strip, rows in stream(cut, chunk, descending=True):
        if strip in found:
            square = rows[..., strip.first :].mT
            found[strip].copy_(_solve(square, found[strip], upper=True, unitriangular=unit))
        solved = _sent(cut, found, strip, batch, chunk)
        for above, x in found.items():
            if above.first < strip.first:
                x -= rows[..., above.first : above.last].mT @ solved[..., : above.last]


def _sent(
    cut: Cut, found: dict[Strip, Tensor], strip: Strip, batch: torch.Size, like: Tensor
) -> Tensor:
    """A strip that one process has found, on all of them."""
    shape = (*batch, strip.last - strip.first, strip.last)
    x = found[strip] if strip in found else like.new_empty(shape)
    return Message(cut, x, strip.owner).wait()
