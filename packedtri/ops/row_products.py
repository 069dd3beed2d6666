"""The op ``multiply_rows``: what some rows of a triangle add to its product with a vector.

The rows are all that there is of the triangle; the others are taken for zeros. As in ``mm`` the
gradients are the product of the adjoint, and what the triangle stores of an outer product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from packedtri._autograd import library, register_multilinear
from packedtri.layout import HERMITIAN, LOWER, MIRRORED, UPPER
from packedtri.ops.mm import adjoint, batch_first

_multiply_rows = torch.ops.packedtri.multiply_rows.default
_pack_rows = torch.ops.packedtri.pack_rows.default


@torch.library.register_fake("packedtri::multiply_rows", lib=library)
def _(rows: Tensor, x: Tensor, first: int, last: int, kind: int) -> Tensor:
    return rows.new_empty((*torch.broadcast_shapes(rows.shape[:-1], x.shape[:-1]), last))


@torch.library.register_vmap("packedtri::multiply_rows", lib=library)
def _(
    info: Any, in_dims: Sequence[int | None], rows: Tensor, x: Tensor, *rest: int
) -> tuple[Tensor, int]:
    # Vectors have their batch where packed operands have it.
    return _multiply_rows(*batch_first((rows, x), in_dims[:2], (LOWER, LOWER)), *rest), 0


def _rows_adjoint(grad: Tensor, args: Sequence[Any], shape: torch.Size) -> Tensor:
    _, x, first, _, kind = args
    x = x.conj()
    if kind == UPPER:
        grad, x = x, grad
    outer = _outer(grad, x, first)
    if kind in MIRRORED:
        other = _outer(x, grad, first)
        both = outer + (other.conj() if kind == HERMITIAN else other)
        # The diagonal is in both.
        beside = both.tril(first - 1)
        outer = beside + (both - beside) / 2
    return _pack_rows(outer, first)


def _outer(a: Tensor, b: Tensor, first: int) -> Tensor:
    return a[..., first:].unsqueeze(-1) * b.unsqueeze(-2)


def _x_adjoint(grad: Tensor, args: Sequence[Any], shape: torch.Size) -> Tensor:
    rows, _, first, last, kind = args
    rows, kind = adjoint(rows, kind)
    return _multiply_rows(rows, grad, first, last, kind)


register_multilinear(_multiply_rows, _rows_adjoint, _x_adjoint)
