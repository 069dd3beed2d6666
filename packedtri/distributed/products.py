"""Products of matrices that are cut in parts.

Beside a dense operand that all processes have, each multiplies by the elements that it has: the
results add up. Where each has some columns of it, strips of the triangle come in turn. The results
of two triangles are dealt out, and the operands come in turn.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from packedtri.distributed.strips import Cut, Strip, collect, deal, stream
from packedtri.layout import HERMITIAN, LOWER, MIRRORED, UPPER


def multiply_dense(
    strips: Iterable[tuple[Strip, Tensor]], n: int, x: Tensor, kind: int, batch: torch.Size
) -> Tensor:
    """The sum of what some strips of a triangle contribute to its product with ``x``.

    Args:
        strips: with zeros past the diagonal.
        n: order of the triangle.
        x: shape (*batch, n, m).
        kind: how the triangle is read.
        batch: that of the triangle.

    Returns:
        shape (*batch, n, m). Sums of 16-bit elements are kept in float32 between strips.
    """
    shape = (*torch.broadcast_shapes(batch, x.shape[:-2]), n, x.shape[-1])
    narrow = x.dtype.itemsize == 2
    y = x.new_zeros(shape, dtype=torch.float32 if narrow else x.dtype)
    for strip, rows in strips:
        own = slice(strip.first, strip.last)
        if kind == UPPER:
            y[..., : strip.last, :] += rows.mT @ x[..., own, :]
            continue
        if kind == HERMITIAN and rows.is_complex():
            rows.diagonal(strip.first, -2, -1).imag.zero_()
        y[..., own, :] += rows @ x[..., : strip.last, :]
        if kind in MIRRORED:
            # The elements beside the diagonal, which stand for two.
            beside = rows.tril_(strip.first - 1)
            mirrored = beside.mH if kind == HERMITIAN else beside.mT
            y[..., : strip.last, :] += mirrored @ x[..., own, :]
    return y.to(x.dtype)


def multiply_triangles(cut: Cut, a: Tensor, b: Tensor, a_kind: int, b_kind: int) -> Tensor | None:
    """The chunk of the lower triangle of a product, or None of two uppers, which nobody asks for.

    Args:
        cut: both operands, and the result.
        a: chunk of the left triangle, and ``b`` of the right one.
        a_kind: LOWER or UPPER, how the left one is read; and ``b_kind`` the right one.
    """
    if (a_kind, b_kind) == (UPPER, UPPER):
        return None
    if a_kind == UPPER:
        return _upper_lower(cut, a, b)
    found = {}
    left = deal(cut, a)
    batch = torch.broadcast_shapes(a.shape[:-1], b.shape[:-1])
    for strip, rows in left.items():
        found[strip] = rows.new_zeros((*batch, *rows.shape[-2:]))
    for strip, rows in stream(cut, b):
        own = slice(strip.first, strip.last)
        for below, result in found.items():
            if below.first < strip.first:
                continue
            if b_kind == LOWER:
                result[..., : strip.last] += left[below][..., own] @ rows
            else:
                result[..., own] = left[below][..., : strip.last] @ rows.mT
    return collect(cut, found, batch, a)


def _upper_lower(cut: Cut, a: Tensor, b: Tensor) -> Tensor:
    """The same of an upper triangle times a lower one, each of whose rows is summed over once."""
    batch = torch.broadcast_shapes(a.shape[:-1], b.shape[:-1])
    found = {
        strip: a.new_zeros((*batch, strip.last - strip.first, strip.last))
        for strip in cut.strips
        if strip.owner == cut.rank
    }
    left = stream(cut, a)
    for strip, rows in stream(cut, b):
        across = rows if a is b else next(left)[1]
        for above, result in found.items():
            if above.first <= strip.first:
                result += across[..., above.first : above.last].mT @ rows[..., : above.last]
    return collect(cut, found, batch, a)
