"""Products of matrices that are cut in parts.

Beside a dense operand that all processes have, each multiplies by the elements that it has: the
results add up. Where each has some columns of it, strips of the triangle come in turn. The results
of two triangles are dealt out, and the operands come in turn.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from packedtri.distributed.strips import Cut, Pieces, Strip, collect, deal, stream
from packedtri.layout import DENSE, HERMITIAN, LOWER, MIRRORED, UPPER
from packedtri.ops.mm import tf32_allowed

_mm = torch.ops.packedtri.mm.default
_multiply_rows = torch.ops.packedtri.multiply_rows.default
_FEW = 64
#: Up to so many columns are sooner multiplied one by one than by dense strips.
VECTORS = 3


def multiply(a: Tensor, b: Tensor, tf32: bool = False) -> Tensor:
    """A product of dense matrices, by the kernels that solves and factorizations have for them.

    They keep the precision of float32 where torch is set to round it, unless ``tf32`` says so.
    Beside few columns torch has better ones.
    """
    if b.shape[-1] <= _FEW and (tf32 or not tf32_allowed(a)):
        return a @ b
    return _mm(a, b, a.shape[-2], DENSE, DENSE, DENSE, tf32)


def multiply_vector(pieces: Pieces, n: int, x: Tensor, kind: int) -> Tensor:
    """What the elements of one process contribute to a product with vectors.

    Args:
        pieces: what it has of a triangle of order n.
        n: order of the triangle.
        x: shape (*batch, n).
        kind: how the triangle is read.

    Returns:
        shape (*batch, n). Parts of rows of 16-bit elements are added to the others in float32.
    """
    (first, last), rows, ends = pieces
    wide = torch.float32 if x.dtype.itemsize == 2 else x.dtype
    y = x.new_zeros((*torch.broadcast_shapes(rows.shape[:-1], x.shape[:-1]), n), dtype=wide)
    if first < last:
        y[..., :last] = _multiply_rows(rows, x[..., :last], first, last, kind)
    x = x.to(wide)
    for row, column, elements in ends:
        part, end = elements.to(wide), column + elements.shape[-1]
        if kind == HERMITIAN and part.is_complex() and end > row:
            part = torch.cat((part[..., :-1], part[..., -1:].real), -1)
        if kind != UPPER:
            y[..., row] += (part * x[..., column:end]).sum(-1)
        if kind != LOWER:
            # The diagonal of a mirrored triangle is in the first sum.
            end = min(end, row) if kind in MIRRORED else end
            part = part[..., : end - column]
            part = part.conj() if kind == HERMITIAN else part
            y[..., column:end] += part * x[..., row : row + 1]
    return y.to(rows.dtype)


def multiply_dense(
    strips: Iterable[tuple[Strip, Tensor]],
    n: int,
    x: Tensor,
    kind: int,
    batch: torch.Size,
    tf32: bool,
) -> Tensor:
    """The sum of what some strips of a triangle contribute to its product with ``x``.

    Args:
        strips: with zeros past the diagonal.
        n: order of the triangle.
        x: shape (*batch, n, m).
        kind: how the triangle is read.
        batch: that of the triangle.
        tf32: whether float32 may be rounded to TF32.

    Returns:
        shape (*batch, n, m). Sums of 16-bit elements are kept in float32 between strips.
    """
    shape = (*torch.broadcast_shapes(batch, x.shape[:-2]), n, x.shape[-1])
    narrow = x.dtype.itemsize == 2
    y = x.new_zeros(shape, dtype=torch.float32 if narrow else x.dtype)
    for strip, rows in strips:
        own = slice(*strip)
        if kind == UPPER:
            y[..., : strip.last, :] += multiply(rows.mT, x[..., own, :], tf32)
            continue
        if kind == HERMITIAN and rows.is_complex():
            rows.diagonal(strip.first, -2, -1).imag.zero_()
        y[..., own, :] += multiply(rows, x[..., : strip.last, :], tf32)
        if kind in MIRRORED:
            # The elements beside the diagonal, which stand for two.
            beside = rows.tril_(strip.first - 1)
            mirrored = beside.mH if kind == HERMITIAN else beside.mT
            y[..., : strip.last, :] += multiply(mirrored, x[..., own, :], tf32)
    return y.to(x.dtype)


def multiply_triangles(
    cut: Cut, a: Tensor, b: Tensor, a_kind: int, b_kind: int, tf32: bool
) -> Tensor:
    """The chunk of the lower triangle of a product of two triangles, not both of them upper.

    Args:
        cut: both operands, and the result.
        a: chunk of the left triangle, and ``b`` of the right one.
        a_kind: LOWER or UPPER, how the left one is read; and ``b_kind`` the right one.
        tf32: whether float32 may be rounded to TF32.
    """
    batch = torch.broadcast_shapes(a.shape[:-1], b.shape[:-1])
    owners = cut.owners()
    found = {
        strip: a.new_zeros((*batch, strip.last - strip.first, strip.last))
        for strip, owner in owners.items()
        if owner == cut.rank
    }
    if a_kind == UPPER:
        _add_upper_lower(cut, found, list(owners), a, b, tf32)
        return collect(cut, found, batch, a)
    left = deal(cut, a)
    for strip, rows in stream(cut, b, list(owners)):
        own = slice(*strip)
        for below, result in found.items():
            if below.first < strip.first:
                continue
            if b_kind == LOWER:
                result[..., : strip.last] += multiply(left[below][..., own], rows, tf32)
            else:
                result[..., own] = multiply(left[below][..., : strip.last], rows.mT, tf32)
    return collect(cut, found, batch, a)


def _add_upper_lower(
    cut: Cut, found: dict[Strip, Tensor], strips: list[Strip], a: Tensor, b: Tensor, tf32: bool
) -> None:
    """Add an upper triangle times a lower one, each of whose rows is summed over once."""
    left = stream(cut, a, strips)
    for strip, rows in stream(cut, b, strips):
        across = rows if a is b else next(left)[1]
        for above, result in found.items():
            if above.first <= strip.first:
                part = across[..., above.first : above.last].mT
                result += multiply(part, rows[..., : above.last], tf32)
