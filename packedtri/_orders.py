"""Other orders of the elements of a triangle: the op ``reorder``, which converts to them and back.

LAPACK's packed and rectangular full packed (RFP) formats, and TensorFlow Probability's
``fill_triangular``. An order says where element (i, j), i >= j, of ours lies. Positions are
computed for some rows at a time, since those of all elements would take many times the memory of
these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import isqrt
from typing import Any

import torch
from torch import Tensor

from packedtri import layout
from packedtri._autograd import library, register_multilinear, register_vmap_over_batch

#: Rows i, columns j and the order of the matrix -> the positions, and which elements are kept
#: conjugated where they are complex, if any.
Order = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor | None]]

# Rows are taken together up to so many elements, which caches hold, or such a part of all: each
# time takes some launches.
_TOGETHER = 1 << 16
_PARTS = 16


def _lapack(i: Tensor, j: Tensor, n: int) -> tuple[Tensor, None]:
    """Column-major order of the lower triangle, which is row-major order of the upper one."""
    return i + j * (2 * n - j - 1) // 2, None


def _rfp(upper: bool, transr: bool, i: Tensor, j: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """A rectangle of n rows, n + 1 where n is even, in which one part lies transposed.

    See Gustavson, Wasniewski, Dongarra and Langou, "Rectangular Full Packed Format for Cholesky's
    Algorithm", ACM TOMS 37 (2010), and the comments of LAPACK's dtpttf.
    """
    even = 1 - n % 2
    if upper:
        half = n // 2
        moved = i < half
        r, c = torch.where(moved, i + half + 1, j), torch.where(moved, j, i - half)
    else:
        half = (n + 1) // 2
        moved = j >= half
        r = torch.where(moved, j - half, i + even)
        c = torch.where(moved, i - half + 1 - even, j)
    rows, columns = n + even, (n + 1) // 2
    return (r * columns + c, ~moved) if transr else (r + c * rows, moved)


def _fill_triangular(upper: bool, i: Tensor, j: Tensor, n: int) -> tuple[Tensor, None]:
    """The rows of a square of the vector's tail, and then of all of it reversed."""
    m = layout.numel(n)
    if upper:
        # The square starts with the whole vector, and goes on with the reversed tail.
        flat = j * n + i
        return torch.where(flat < m, flat, m - 1 - (flat - m)), None
    flat = i * n + j
    return torch.where(flat < m - n, flat + n, m - 1 - (flat - (m - n))), None


# The names of RFP end in the triangle, and in "T" where the rectangle is transposed.
_ORDERS: dict[str, Order] = {
    "lapack": _lapack,
    "fill_triangular_L": partial(_fill_triangular, False),
    "fill_triangular_U": partial(_fill_triangular, True),
    "rfp_LN": partial(_rfp, False, False),
    "rfp_LT": partial(_rfp, False, True),
    "rfp_UN": partial(_rfp, True, False),
    "rfp_UT": partial(_rfp, True, True),
}
# The op takes numbers, since DTensors tell calls apart by these and not by strings.
_NUMBERS = {name: number for number, name in enumerate(_ORDERS)}
_BY_NUMBER = tuple(_ORDERS.values())


def _some_rows(n: int) -> Iterator[tuple[int, int]]:
    """All rows, some at a time: the first, and the first one behind them."""
    together = max(_TOGETHER, layout.numel(n) // _PARTS)
    first = 0
    while first < n:
        last = max(first + 1, isqrt(2 * (layout.numel(first) + together)))
        yield first, min(last, n)
        first = last


def _reorder(x: Tensor, order: int, back: bool) -> Tensor:
    positions = _BY_NUMBER[order]
    result = x.new_empty(x.shape)
    n = layout.order(x.shape[-1])
    for first, last in _some_rows(n):
        start, stop = layout.numel(first), layout.numel(last)
        rows = torch.arange(first, last, device=x.device)
        i = torch.repeat_interleave(rows, rows + 1, output_size=stop - start)
        j = torch.arange(start, stop, device=x.device) - layout.numel(i)
        at, conjugated = positions(i, j, n)
        del i, j
        ours = result[..., start:stop]
        elements = x.index_select(-1, at) if back else x[..., start:stop]
        if conjugated is not None and x.is_complex():
            # A lazy conjugate would stay one below a DTensor.
            elements = torch.where(conjugated, elements.conj_physical(), elements)
        if back:
            ours.copy_(elements)
        else:
            result.index_copy_(-1, at, elements)
    return result


library.define("reorder(Tensor x, int order, bool back) -> Tensor")
for _key in ("CPU", "CUDA"):
    library.impl("reorder", _reorder, _key)
_op = torch.ops.packedtri.reorder.default


@torch.library.register_fake("packedtri::reorder", lib=library)
def _(x: Tensor, order: int, back: bool) -> Tensor:
    return x.new_empty(x.shape)


def _adjoint(grad: Tensor, args: Sequence[Any], shape: torch.Size) -> Tensor:
    return _op(grad, args[1], not args[2])


register_vmap_over_batch(_op)
register_multilinear(_op, _adjoint)


def to_order(packed: Tensor, order: str) -> Tensor:
    """Packed elements, shape (*batch, n(n+1)/2), in another order; differentiable."""
    return _op(packed, _NUMBERS[order], False)


def from_order(x: Tensor, order: str) -> Tensor:
    """Elements in another order as packed ones."""
    return _op(x, _NUMBERS[order], True)
