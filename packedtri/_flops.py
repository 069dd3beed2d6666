"""How many operations the ops take, for :class:`torch.utils.flop_counter.FlopCounterMode`.

As there, a multiplication counts 2, with the addition that follows it. Only what the algorithms
multiply is counted: stored elements, and no structural zeros. Importing the module registers it.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

from packedtri import _library as _library
from packedtri.layout import DENSE, LOWER, MIRRORED, TRANSPOSED, UPPER

_ops = torch.ops.packedtri


def _stored_rows(kind: int, n: int, column: int) -> range:
    """The rows in which a matrix of n rows has elements that are no structural zeros."""
    return range(column, n) if kind == LOWER else range(min(column + 1, n) if kind == UPPER else n)


def _lower_pairs(i: range, j: range) -> int:
    """How many pairs (i, j) have i >= j."""
    # Row i has those with j.start <= j <= i: first one more with every row, then all.
    first = max(i.start, j.start)
    full = max(first, min(i.stop, j.stop))
    growing = (full - first) * (first + full + 1 - 2 * j.start) // 2
    return growing + max(0, i.stop - full) * len(j)


@lru_cache(maxsize=1024)
def product_flops(m: int, k: int, n: int, a_kind: int, b_kind: int, c_kind: int) -> int:
    """Operations of a product of an m x k and a k x n matrix, of which c_kind LOWER keeps half."""
    if DENSE == a_kind == b_kind == c_kind:
        return 2 * m * k * n
    pairs = 0
    for p in range(k):
        rows = _stored_rows(a_kind, m, p)
        columns = _stored_rows(TRANSPOSED.get(b_kind, b_kind), n, p)
        pairs += _lower_pairs(rows, columns) if c_kind == LOWER else len(rows) * len(columns)
    return 2 * pairs


def _split(shape: torch.Size, kind: int, n: int, left: bool) -> tuple[torch.Size, int, int]:
    """Batch, rows and columns of an operand of this shape."""
    if kind != DENSE:
        return shape[:-1], n, n
    if len(shape) == 1:
        return torch.Size(), *((1, shape[0]) if left else (shape[0], 1))
    return shape[:-2], shape[-2], shape[-1]


def _mm_flops(a: torch.Size, b: torch.Size, n: int, a_kind: int, b_kind: int, c_kind: int) -> int:
    a_batch, m, k = _split(a, a_kind, n, True)
    b_batch, _, columns = _split(b, b_kind, n, False)
    batch = prod(torch.broadcast_shapes(a_batch, b_batch))
    # Symbolic sizes have no hash.
    return batch * product_flops(int(m), int(k), int(columns), a_kind, b_kind, c_kind)


@register_flop_formula(_ops.mm)
def _(
    a: torch.Size,
    b: torch.Size,
    n: int,
    a_kind: int,
    b_kind: int,
    c_kind: int,
    *_: Any,
    **__: Any,
) -> int:
    return _mm_flops(a, b, n, a_kind, b_kind, c_kind)


@register_flop_formula(_ops.mm_pair)
def _(
    a: torch.Size,
    b: torch.Size,
    c: torch.Size,
    d: torch.Size,
    n: int,
    a_kind: int,
    b_kind: int,
    c_kind: int,
    d_kind: int,
    *_: Any,
    **__: Any,
) -> int:
    first = _mm_flops(a, b, n, a_kind, b_kind, LOWER)
    return first + _mm_flops(c, d, n, c_kind, d_kind, LOWER)


@register_flop_formula(_ops.multiply_rows)
def _(rows: torch.Size, x: torch.Size, first: int, last: int, kind: int, *_: Any, **__: Any) -> int:
    mirrored = rows[-1] - (last - first) if kind in MIRRORED else 0
    return 2 * prod(torch.broadcast_shapes(rows[:-1], x[:-1])) * (rows[-1] + mirrored)


def _triangle_flops(n: int) -> int:
    """1 + 4 + ... + n²: of a Cholesky factor, or a solve whose right-hand side is a triangle."""
    return n * (n + 1) * (2 * n + 1) // 6


@register_flop_formula(_ops.solve_triangular)
def _(
    packed: torch.Size,
    b: torch.Size,
    n: int,
    kind: int,
    b_kind: int,
    left: bool,
    *_: Any,
    **__: Any,
) -> int:
    b_batch, rows, columns = _split(b, b_kind, n, not left)
    batch = prod(torch.broadcast_shapes(packed[:-1], b_batch))
    if b_kind != DENSE:
        return batch * _triangle_flops(n)
    return batch * n * n * (columns if left else rows)


@register_flop_formula(_ops.cholesky)
def _(packed: torch.Size, n: int, **_: Any) -> int:
    return prod(packed[:-1]) * _triangle_flops(n)


@register_flop_formula(_ops.cholesky_update)
def _(packed: torch.Size, x: torch.Size, n: int, *_: Any, **__: Any) -> int:
    # A rotation of two elements takes 6, and each column of x meets n(n+1)/2 elements.
    return prod(packed[:-1]) * x[-1] * 3 * n * (n + 1)
