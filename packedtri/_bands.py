"""Diagonals of packed triangles, and triangles whose diagonals are scaled, as plain tensors.

Each is one op, since small matrices wait for launches: their derivatives are these ops again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from packedtri import layout
from packedtri._autograd import (
    library,
    quick,
    register_multilinear,
    register_vmap_over_batch,
)
from packedtri._dtensor import beside, cut_of, cutting, is_spread

_diagonal = torch.ops.packedtri.diagonal.default
_embed_diagonal = torch.ops.packedtri.embed_diagonal.default
_scale_band = torch.ops.packedtri.scale_band.default
_quick_diagonal = quick(_diagonal)
_quick_embed_diagonal = quick(_embed_diagonal)
_quick_scale_band = quick(_scale_band)


def diagonal(packed: Tensor, n: int, below: int = 0) -> Tensor:
    """The elements on the diagonal so far below the main one, shape (*batch, n - below)."""
    return _quick_diagonal(packed, n, min(below, n))


def embed_diagonal(elements: Tensor, n: int, below: int = 0) -> Tensor:
    """Zeros with this diagonal, shape (*batch, n(n+1)/2), for elements (*batch, n - below)."""
    return _quick_embed_diagonal(elements, n, below)


def scale_band(
    packed: Tensor,
    n: int,
    nearest: int,
    farthest: int,
    inside: float,
    outside: float,
    hermitian: bool = False,
) -> Tensor:
    """Packed triangles, shape (*batch, n(n+1)/2), whose diagonals are multiplied by two factors.

    Args:
        packed: the triangles.
        n: order.
        nearest, farthest: the diagonals so far below the main one, and all between them.
        inside: the factor for these. Zero gives zeros, also where there are nan and inf.
        outside: the factor for the others.
        hermitian: also take imaginary parts on the main diagonal for zero.
    """
    return _quick_scale_band(packed, n, nearest, farthest, float(inside), float(outside), hermitian)


def scale_off_diagonal(packed: Tensor, factor: float, n: int, kind: int = layout.LOWER) -> Tensor:
    """Multiply all elements but those on the main diagonal, which is real if ``kind`` has it so."""
    return scale_band(packed, n, 0, 0, 1, factor, kind == layout.HERMITIAN)


def halve_diagonal(packed: Tensor, n: int, kind: int = layout.LOWER) -> Tensor:
    """The sum of two halves with the diagonal, which both have, counted once."""
    return scale_band(packed, n, 0, 0, 0.5, 1, kind == layout.HERMITIAN)


def add_diagonal(packed: Tensor, values: Tensor, n: int) -> Tensor:
    """Packed triangles with these values, shape (*batch, n), added to their diagonals."""
    cut = cut_of(packed)
    if cut is None:
        return packed.index_add(-1, beside(packed, diagonal_index(n, packed.device)), values)
    with cutting(cut):
        return packed + embed_diagonal(values, n)


def replace_diagonal(packed: Tensor, values: Tensor, n: int, below: int = 0) -> Tensor:
    """Packed triangles with these values, shape (*batch, n - below), on one of their diagonals."""
    cut = cut_of(packed)
    if cut is None:
        return packed.index_copy(
            -1, beside(packed, diagonal_index(n, packed.device, below)), values
        )
    with cutting(cut):
        return scale_band(packed, n, below, below, 0, 1) + embed_diagonal(values, n, below)


def without_diagonal(packed: Tensor, n: int) -> Tensor:
    """The triangles with zeros on the main diagonal."""
    return scale_band(packed, n, 0, 0, 0, 1)


def real_diagonal(packed: Tensor, kind: int, n: int) -> Tensor:
    """Stored elements as the matrix has them, whose diagonal is real where it is Hermitian.

    The kernels of products, conversions and factorizations see to that themselves.
    """
    if kind != layout.HERMITIAN or not packed.is_complex():
        return packed
    return scale_band(packed, n, 0, 0, 1, 1, True)


def diagonal_index(n: int, device: torch.device, below: int = 0) -> Tensor:
    """Positions in packed order of the diagonal so far below the main one, shape (n - below,)."""
    # From one row to the next, they differ by the length of that row.
    steps = torch.arange(below + 1, max(n, below) + 1, device=device)
    return steps.cumsum(0) - (below + 1 - layout.numel(below))


def clear_imaginary_diagonal_(packed: Tensor, n: int) -> None:
    """``real_diagonal`` in place, for complex elements that autograd does not watch."""
    if is_spread(packed):
        # Their imaginary parts are no views.
        packed.copy_(real_diagonal(packed, layout.HERMITIAN, n))
        return
    packed.imag.index_fill_(-1, diagonal_index(n, packed.device), 0)


@torch.library.register_fake("packedtri::diagonal", lib=library)
def _(packed: Tensor, n: int, below: int) -> Tensor:
    return packed.new_empty((*packed.shape[:-1], n - below))


@torch.library.register_fake("packedtri::embed_diagonal", lib=library)
def _(elements: Tensor, n: int, below: int) -> Tensor:
    return elements.new_empty((*elements.shape[:-1], layout.numel(n)))


@torch.library.register_fake("packedtri::scale_band", lib=library)
def _(packed: Tensor, *_: Any) -> Tensor:
    return packed.new_empty(packed.shape)


for _op in (_diagonal, _embed_diagonal, _scale_band):
    register_vmap_over_batch(_op)


def _diagonal_adjoint(grad: Tensor, args: Sequence[Any], shape: torch.Size) -> Tensor:
    return _embed_diagonal(grad, *args[1:])


def _embed_diagonal_adjoint(grad: Tensor, args: Sequence[Any], shape: torch.Size) -> Tensor:
    return _diagonal(grad, *args[1:])


def _scale_band_adjoint(grad: Tensor, args: Sequence[Any], shape: torch.Size) -> Tensor:
    return _scale_band(grad, *args[1:])


register_multilinear(_diagonal, _diagonal_adjoint)
register_multilinear(_embed_diagonal, _embed_diagonal_adjoint)
register_multilinear(_scale_band, _scale_band_adjoint)
