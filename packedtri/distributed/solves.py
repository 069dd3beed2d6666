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


def solve_triangles(cut: Cut, chunk: Tensor, b: Tensor, left: bool, unit: bool) -> Tensor:
    """The chunk of the lower triangle X of L X = B, or X L = B, for a lower triangle B."""
    batch = torch.broadcast_shapes(chunk.shape[:-1], b.shape[:-1])
    found = {
        strip: rows.expand(*batch, *rows.shape[-2:]).clone() for strip, rows in deal(cut, b).items()
    }
    if left:
        _from_left(cut, chunk, found, batch, unit)
    else:
        for strip, rows in stream(cut, chunk, descending=True):
            for own, x in found.items():
                if own.first >= strip.first:
                    solved = x[..., strip.first : strip.last]
                    square = rows[..., strip.first :]
                    solved.copy_(_solve(square, solved, upper=False, left=False, unitriangular=unit))
                    x[..., : strip.first] -= solved @ rows[..., : strip.first]
    return collect(cut, found, batch, b)


def _from_left(
    cut: Cut, chunk: Tensor, found: dict[Strip, Tensor], batch: torch.Size, unit: bool
) -> None:
    """Substitution downwards: each strip of the solution, once it is there, is sent to all."""
    triangle = deal(cut, chunk)
    for strip in cut.strips:
        if strip.owner == cut.rank:
            square = triangle[strip][..., strip.first :]
            solved = found[strip].copy_(
                _solve(square, found[strip], upper=False, unitriangular=unit)
            )
        else:
            solved = chunk.new_empty((*batch, strip.last - strip.first, strip.last))
        solved = Message(cut, solved, strip.owner).wait()
        for below, x in found.items():
            if below.first > strip.first:
                x[..., : strip.last] -= triangle[below][..., strip.first : strip.last] @ solved
