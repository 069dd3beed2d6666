"""Cholesky factors of matrices that gain or lose rows and columns.

Rows are added to a packed lower triangle behind the others, so that growth at the end copies the
factor and computes nothing but the new rows. With the factor and the new rows in blocks,

    L = [L11     ]      rows inserted between:  [L11            ]
        [L31  L33]                              [L21  L22       ]
                                                [L31  L32  L33' ]

L21 and L22 come from the new rows, L32 L22^H is what they have in common with the rows behind, and
L33' L33'^H = L33 L33^H - L32 L32^H. Deleting the rows in the middle leaves L33 L33^H + L32 L32^H.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor

from packedtri import _nodes, layout
from packedtri._values import describe
from packedtri.layout import DENSE, LOWER, UPPER
from packedtri.ops.dense import as_dense
from packedtri.ops.factor import check_positive_definite
from packedtri.ops.mm import without_autocast
from packedtri.ops.potrf import cholesky
from packedtri.ops.row_strips import dense_strips, pack_strips, stored_between, strips_of
from packedtri.ops.solve import check_batches
from packedtri.ops.trsm import solve, widened
from packedtri.ops.update import check_lower_factor
from packedtri.tensor import LowerTriangular, PackedTensor

_mm = torch.ops.packedtri.mm.default
_pack = torch.ops.packedtri.pack.default
_pack_rows = torch.ops.packedtri.pack_rows.default
_unpack = torch.ops.packedtri.unpack.default
_unpack_block = torch.ops.packedtri.unpack_block.default
_update = torch.ops.packedtri.cholesky_update.default


def cholesky_insert(
    L: LowerTriangular, B: Tensor, C: Tensor, at: int | None = None
) -> LowerTriangular:
    """The Cholesky factor of a matrix that gains k rows and columns.

    Of A = L L^H it is the factor of [[A, B^H], [B, C]], as a Gaussian process needs that is given
    more observations; with ``at`` the new rows lie between others. O(n^2 k) operations, instead of
    the O((n + k)^3) of a factorization; the rows before the new ones are copied. Differentiable in
    all arguments. 16-bit types are computed in float32.

    Args:
        L: shape (*batch, n, n), a Cholesky factor.
        B: shape (*batch, k, n), what the new rows have in common with the old ones; batches
            broadcast.
        C: shape (*batch, k, k), of the new rows alone: a Symmetric or Hermitian, or a dense matrix,
            of which the lower triangle is read.
        at: the number of rows before the new ones; behind all of them if None.

    Returns:
        shape (*batch, n + k, n + k).

    Raises:
        torch.linalg.LinAlgError: when the larger matrix is not positive definite.
        TypeError: when L is not a LowerTriangular, B or C no tensor, C a triangle, or ``at`` no
            integer.
        ValueError: when shapes, dtypes or devices do not fit.
        IndexError: when ``at`` is not between 0 and n.

    Example:
        >>> import torch, packedtri
        >>> L = packedtri.LowerTriangular(torch.tensor([2.0]))  # The factor of [[4]].
        >>> packedtri.cholesky_insert(L, torch.tensor([[2.0]]), torch.tensor([[10.0]]))
        LowerTriangular([[2.,  .],
                         [1., 3.]])

    Source:
        Golub and Van Loan, Matrix Computations, 4th edition, section 6.5; qrupdate's dchinx.
    """
    name = "cholesky_insert"
    check_lower_factor(name, L)
    packed, dtype, n = _nodes.to_packed(L), L._packed.dtype, L.n
    b, c = _check_rows(name, L, B, C)
    k, p = b.shape[-2], n if at is None else _place(name, at, n)
    packed, b, c = widened(packed), widened(b), widened(c)
    batch = torch.broadcast_shapes(packed.shape[:-1], b.shape[:-2], c.shape[:-1])
    packed = packed.expand(*batch, packed.shape[-1])

    with without_autocast(packed.device.type):
        parts = _inserted(f"packedtri.{name}", packed, b, c, n, p)
    return _nodes.from_packed(LowerTriangular, torch.cat(parts, -1).to(dtype), n + k)


def _inserted(name: str, packed: Tensor, b: Tensor, c: Tensor, n: int, p: int) -> list[Tensor]:
    """The rows before the new ones, the new ones, and those behind them, as they are stored."""
    k, q = b.shape[-2], n - p
    before, behind = packed.split(stored_between(0, p, n), -1)
    before = before.contiguous()
    across = solve(before, b[..., :p].mH, p, LOWER)  # L21^H, shape (*batch, p, k).
    corner, info = cholesky(c - _mm(across.mH, across, k, DENSE, DENSE, LOWER), k)
    check_positive_definite(name, _shifted(info, p))
    new = _pack_rows(torch.cat((across.mH, _unpack(corner, k, LOWER)), -1), p)
    if q == 0:
        return [before, new]
    # L31 L21^H, from rows that L multiplies together with zeros.
    padded = torch.cat((across, across.new_zeros((*across.shape[:-2], q, k))), -2)
    common = _mm(packed, padded, n, LOWER, DENSE, DENSE)[..., p:, :]
    below = solve(corner.conj(), b[..., p:].mH - common, k, UPPER, left=False)  # L32.
    last, info = _update(_triangle(behind, n, p), below, q, True)
    check_positive_definite(name, _shifted(info, p + k))
    return [before, new, *_rows_behind(behind, n, p, p, below, last, p + k)]


def cholesky_delete(L: LowerTriangular, index: int | slice) -> LowerTriangular:
    """The Cholesky factor of a matrix that loses rows and the same columns.

    Of A = L L^H it is the factor of A without them. The rows before the first one deleted are
    copied, and those behind the last one updated by plane rotations, in O((n - p)^2 k) operations
    for k rows from p on. Differentiable. 16-bit types are computed in float32.

    Args:
        L: shape (*batch, n, n), a Cholesky factor.
        index: the row, or k neighbouring rows as a slice, to delete.

    Returns:
        shape (*batch, n - k, n - k).

    Raises:
        TypeError: when L is not a LowerTriangular, or ``index`` neither an integer nor a slice.
        ValueError: when a slice has a step.
        IndexError: when an integer is out of range.

    Example:
        >>> import torch, packedtri
        >>> L = packedtri.LowerTriangular(torch.tensor([1.0, 3.0, 4.0]))
        >>> packedtri.cholesky_delete(L, 0)
        LowerTriangular([[5.]])

    Source:
        Golub and Van Loan, Matrix Computations, 4th edition, section 6.5; qrupdate's dchdex.
    """
    name = "cholesky_delete"
    check_lower_factor(name, L)
    n, dtype = L.n, L._packed.dtype
    p, end = _deleted(name, index, n)
    packed, q, k = widened(_nodes.to_packed(L)), n - end, end - p
    if k == 0:
        return _nodes.from_packed(LowerTriangular, packed.to(dtype, copy=True), n)
    before, _, behind = packed.split(stored_between(0, p, end, n), -1)
    parts = [before]
    if q > 0:
        below = _unpack_block(packed, n, LOWER, end, p, q, k)
        last, info = _update(_triangle(behind, n, end), below, q, False)
        check_positive_definite(f"packedtri.{name}", _shifted(info, p))
        if p == 0:
            return _nodes.from_packed(LowerTriangular, last.to(dtype), q)
        parts += _rows_behind(behind, n, end, p, below[..., :0], last, p)
    return _nodes.from_packed(LowerTriangular, torch.cat(parts, -1).to(dtype), n - k)


def _triangle(behind: Tensor, n: int, p: int) -> Tensor:
    """The stored elements of the triangle from row and column p on, of those of the rows from p."""
    if p == 0:
        return behind
    strips = (strip[..., p:] for strip in dense_strips(behind, p, n))
    return torch.cat(pack_strips(strips, 0), -1)


def _rows_behind(
    behind: Tensor, n: int, p: int, left: int, between: Tensor, last: Tensor, first: int
) -> list[Tensor]:
    """Rows that keep columns on the left and get others and a triangle, as they are stored.

    Args:
        behind: the stored elements of the rows from p on, of n.
        left: the number of columns that they keep.
        between: the dense columns behind these, shape (*batch, n - p, k).
        last: the stored elements of the triangle behind them.
        first: which row the first of them is then.
    """
    columns = [
        between.split([strip.last - strip.first for strip in strips_of(p, n)], -2),
        dense_strips(last, 0, n - p),
    ]
    if left > 0:
        columns.insert(0, (strip[..., :left] for strip in dense_strips(behind, p, n)))
    return pack_strips((torch.cat(row, -1) for row in zip(*columns, strict=True)), first)


def _shifted(info: Tensor, rows: int) -> Tensor:
    """What a block says of a leading minor, for the matrix in which so many rows lie before it."""
    return torch.where(info > 0, info + rows, info)


def _check_rows(name: str, L: LowerTriangular, B: Any, C: Any) -> tuple[Tensor, Tensor]:
    """B, dense, and the lower triangle of C, packed."""
    for letter, given in (("B", B), ("C", C)):
        if not isinstance(given, Tensor):
            raise TypeError(f"[{name}] expected a tensor for {letter}; got {describe(given)}")
    if isinstance(C, PackedTensor) and C.kind not in layout.MIRRORED:
        raise TypeError(f"[{name}] expected a Symmetric, Hermitian or dense C; got {describe(C)}")
    B = as_dense(B)
    k = B.shape[-2] if B.dim() > 1 else -1
    if k < 0 or B.shape[-1] != L.n or C.dim() < 2 or C.shape[-2:] != (k, k):
        raise ValueError(
            f"[{name}] expected B of shape (..., k, {L.n}) and C of shape (..., k, k) for "
            f"{describe(L)}; got {describe(B)} and {describe(C)}"
        )
    packed = _nodes.to_packed(C) if isinstance(C, PackedTensor) else _pack(C, LOWER)
    own = L._packed
    for given, elements in ((B, B), (C, packed)):
        if (elements.dtype, elements.device) != (own.dtype, own.device):
            raise ValueError(
                f"[{name}] expected B and C of {own.dtype} on {own.device} for {describe(L)}; got "
                f"{describe(given)} of {elements.dtype} on {elements.device}"
            )
        check_batches(name, L, given, own.shape[:-1], given.shape[:-2])
    check_batches(name, B, C, B.shape[:-2], C.shape[:-2])
    return B, packed


def _place(name: str, at: Any, n: int) -> int:
    place = _integer(at)
    if place is None:
        raise TypeError(f"[{name}] expected an integer for at; got {describe(at)}")
    if not 0 <= place <= n:
        raise IndexError(f"[{name}] expected at from 0 to {n}; got {place}")
    return place


def _integer(value: Any) -> int | None:
    """An integer, also one of NumPy's or in a tensor; None of everything else."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _deleted(name: str, index: Any, n: int) -> tuple[int, int]:
    """The first row that is deleted, and the first one behind that is not."""
    if isinstance(index, slice):
        start, stop, step = index.indices(n)
        if step != 1:
            raise ValueError(f"[{name}] expected a slice without a step; got {index}")
        return start, max(start, stop)
    row = _integer(index)
    if row is None:
        raise TypeError(f"[{name}] expected an integer or a slice; got {describe(index)}")
    if not -n <= row < n:
        raise IndexError(f"[{name}] expected a row from {-n} to {n - 1}; got {row}")
    return row % n, row % n + 1
