"""Rows of packed lower triangles, some at a time.

As dense strips they are cut and joined by columns, while most of the triangle stays packed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from packedtri import layout

_pack_rows = torch.ops.packedtri.pack_rows.default
_unpack_rows = torch.ops.packedtri.unpack_rows.default

# Strips are few, since each takes some launches, and none has fewer rows than this but the last.
_MOST = 8
_ROWS = 256


class Strip(NamedTuple):
    """Rows [first, last)."""

    first: int
    last: int


def strips_of(first: int, last: int) -> list[Strip]:
    """Strips of the rows [first, last) of a triangle, in their order; none where there are no rows.

    They depend on nothing else, so that triangles of as many rows are cut alike.
    """
    rows = max(_ROWS, -(-(last - first) // _MOST))
    return [Strip(i, min(i + rows, last)) for i in range(first, last, rows)]


def stored_between(*rows: int) -> list[int]:
    """How many elements are stored of the rows from each of these on, up to the next one."""
    return [layout.numel(b) - layout.numel(a) for a, b in pairwise(rows)]


def dense_strips(stored: Tensor, first: int, last: int) -> Iterator[Tensor]:
    """The rows [first, last) in dense strips, each as wide as its last row is long.

    Args:
        stored: the stored elements of these rows, shape (*batch, count).
        first, last: which rows they are.
    """
    strips = strips_of(first, last)
    counts = stored_between(first, *(strip.last for strip in strips))
    # The gradient of a split is put together once, where each slice would give one of full size.
    for strip, rows in zip(strips, stored.split(counts, -1), strict=True):
        yield _unpack_rows(rows, *strip)


def pack_strips(strips: Iterable[Tensor], first: int) -> list[Tensor]:
    """The stored elements of dense strips, which follow each other from row ``first`` on."""
    packed = []
    for strip in strips:
        packed.append(_pack_rows(strip, first))
        first += strip.shape[-2]
    return packed
