"""The op ``solve_triangular``: its shape rule, derivatives and vmap.

With X = P(op(T)^-1 B), P keeping what is stored of X, the derivatives are solves and products of
the table: the gradient of B is G' = P(op(T)^-H G), and that of op(T) is -G' X^H, cut to what T
stores. From the right, where X = P(B op(T)^-1), it is -X^H G'. For a packed X these formulas hold
although only a triangle of the solution is kept: column j of it needs rows j and below alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from packedtri._autograd import (
    Call,
    NotBareError,
    bare,
    library,
    quick,
    register_implicit,
    register_vmap_over_batch,
)
from packedtri._bands import embed_diagonal, without_diagonal
from packedtri._dtensor import cut_of, cutting
from packedtri._recording import is_alone, is_recorded
from packedtri.layout import DENSE, LOWER, UPPER
from packedtri.ops.mm import batch_first, transposed

_mm = torch.ops.packedtri.mm.default
_solve = torch.ops.packedtri.solve_triangular.default
_quick_solve = quick(_solve, 2)
_bare_solve_out = bare(torch.ops.packedtri._solve_triangular_out.default)
_first_zero = torch.ops.packedtri.first_zero.default
_quick_first_zero = quick(_first_zero)


def widened(x: Tensor) -> Tensor:
    """Elements of 16 bits as float32: steps on the way to a result must not be rounded."""
    return x.float() if x.dtype.itemsize == 2 else x


def narrowed(found: Any, dtype: torch.dtype) -> Any:
    """What was made of ``widened`` elements of this dtype, rounded to it once; integers stay."""
    if dtype.itemsize > 2:
        return found
    return tree_map(lambda x: x.to(dtype) if x.is_floating_point() else x, found)


def solve(
    packed: Tensor,
    b: Tensor,
    n: int,
    kind: int,
    b_kind: int = DENSE,
    left: bool = True,
    unit: bool = False,
) -> Tensor:
    """The op. Elements of 16 bits are computed in float32: LAPACK has no routine for them.

    Args:
        packed: shape (*batch, n(n+1)/2), the triangle T.
        b: shape (*batch, n, m), or (*batch, m, n) from the right; packed where b_kind is LOWER.
        n: order.
        kind: LOWER reads T as it is, UPPER as its transpose.
        b_kind: DENSE, or LOWER, which keeps the lower triangle of the solution.
        left: solve op(T) X = B; else X op(T) = B.
        unit: take the diagonal of T for ones.

    Returns:
        X, of the shape of ``b`` with batches broadcast.
    """
    dtype = packed.dtype
    if dtype.itemsize == 2:
        return solve(packed.float(), b.float(), n, kind, b_kind, left, unit).to(dtype)
    return _quick_solve(packed, b, n, kind, b_kind, left, unit)


def solve_into(
    out: Tensor,
    packed: Tensor,
    b: Tensor,
    n: int,
    kind: int,
    left: bool = True,
    unit: bool = False,
) -> bool:
    """Write the solution for a dense ``b`` to ``out``, which may be ``b``, where that can be done.

    Args:
        out: contiguous, of the shape and dtype of the solution; it must be nobody's who would have
            to know.
        packed: as for ``solve``, and so are the others.

    Returns:
        Whether it did. It does not where anybody records or transforms what is done, nor in 16
        bits.
    """
    if packed.dtype.itemsize == 2 or not is_alone((packed, b, out)):
        return False
    if is_recorded(packed, b, out):
        return False
    try:
        _bare_solve_out(packed, b, n, kind, left, unit, out)
    except NotBareError:
        return False
    return True


def invert_triangle(packed: Tensor, n: int) -> Tensor:
    """The inverse of a packed triangle: the solution for a unit matrix, a triangle as well."""
    return solve(packed, identity(packed, n), n, LOWER, LOWER)


def first_zero(packed: Tensor, n: int) -> Tensor:
    """The position, counted from 1, of the first zero on the diagonal, or 0.

    Args:
        packed: shape (*batch, n(n+1)/2), a triangle.
        n: order.

    Returns:
        int32, shape (*batch).
    """
    return _quick_first_zero(packed, n)


@torch.library.register_fake("packedtri::first_zero", lib=library)
def _(packed: Tensor, n: int) -> Tensor:
    return packed.new_empty(packed.shape[:-1], dtype=torch.int32)


register_vmap_over_batch(_first_zero)


def identity(packed: Tensor, n: int) -> Tensor:
    """The stored elements of a unit matrix, with the dtype and on the devices of ``packed``."""
    with cutting(cut_of(packed)):
        return embed_diagonal(packed.new_ones(n), n)


@torch.library.register_fake("packedtri::solve_triangular", lib=library)
def _(packed: Tensor, b: Tensor, n: int, kind: int, b_kind: int, left: bool, unit: bool) -> Tensor:
    inner = 2 if b_kind == DENSE else 1
    batch = torch.broadcast_shapes(packed.shape[:-1], b.shape[:-inner])
    return b.new_empty((*batch, *b.shape[-inner:]))


def _pullback(grad: Tensor, call: Call) -> list[Tensor | None]:
    packed, _, n, kind, b_kind, left, unit = call.args
    flipped = LOWER if kind == UPPER else UPPER
    grad_b = _solve(packed.conj(), grad, n, flipped, b_kind, left, unit)
    grad_t = _triangle_gradient(grad_b, call) if call.needs[0] else None
    return [grad_t, grad_b]


def _triangle_gradient(grad_b: Tensor, call: Call) -> Tensor:
    """The lower triangle of -G' X^H, or of its transpose where T is read as Upper."""
    _, _, n, kind, b_kind, left, unit = call.args
    assert call.result is not None
    g, x = (grad_b, b_kind), (call.result.conj(), b_kind)
    # Of the four products each is the transpose of another, which reads its operands transposed.
    a, b = (g, x) if left == (kind == LOWER) else (x, g)
    if left:
        b = transposed(*b)
    else:
        a = transposed(*a)
    grad = -_mm(a[0], b[0], n, a[1], b[1], LOWER)
    return without_diagonal(grad, n) if unit else grad


def _pushforward(tangents: Sequence[Tensor | None], call: Call) -> Tensor | None:
    packed, _, n, kind, b_kind, left, unit = call.args
    tangent, rhs = tangents
    if tangent is not None:
        tangent = without_diagonal(tangent, n) if unit else tangent
        x = call.result
        term = (
            _mm(tangent, x, n, kind, b_kind, b_kind)
            if left
            else _mm(x, tangent, n, b_kind, kind, b_kind)
        )
        rhs = -term if rhs is None else rhs - term
    return None if rhs is None else _solve(packed, rhs, n, kind, b_kind, left, unit)


register_implicit(_solve, (True, False), _pullback, _pushforward)


@torch.library.register_vmap("packedtri::solve_triangular", lib=library)
def _(
    info: Any, in_dims: Sequence[int | None], packed: Tensor, b: Tensor, n: int, *rest: Any
) -> tuple[Tensor, int]:
    packed, b = batch_first((packed, b), in_dims, (LOWER, rest[1]))
    return _solve(packed, b, n, *rest), 0
