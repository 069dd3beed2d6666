"""Diagonals and parts of the matrices: ``diagonal``, ``diagonal_scatter``, ``tril`` and ``triu``.

A diagonal of a packed type is no strided view of it. ``diagonal`` therefore returns a copy, and
``set_diagonal_``, ``fill_diagonal_`` and ``diagonal_scatter`` write one.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from packedtri import layout
from packedtri._dtensor import beside
from packedtri._values import REALS, describe
from packedtri.dispatch import Function, row
from packedtri.ops import elements
from packedtri.ops.dense import densify, functions
from packedtri.ops.dims import from_front
from packedtri.ops.lost_writes import forget
from packedtri.tensor import LowerTriangular, PackedTensor, UpperTriangular


def _matrix_offset(t: PackedTensor, offset: int, dim1: int, dim2: int) -> int | None:
    """The offset of a diagonal of the matrices; None where it runs along other dimensions."""
    rank = t._packed.dim() + 1
    dims = (from_front(dim1, rank), from_front(dim2, rank))
    if dims == (rank - 2, rank - 1):
        return offset
    return -offset if dims == (rank - 1, rank - 2) else None


def _diagonal(
    function: Function, input: PackedTensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    at = _matrix_offset(input, offset, dim1, dim2)
    if at is None:
        return densify(function, input, offset, dim1, dim2)
    return elements.diagonal(input, at)


def _linalg_diagonal(A: PackedTensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    return _diagonal(torch.diagonal, A, offset, dim1, dim2)


def _diag(function: Function, input: PackedTensor, diagonal: int = 0, **kwargs: Any) -> Tensor:
    if input._packed.dim() != 1 or kwargs:
        return densify(function, input, diagonal, **kwargs)
    return elements.diagonal(input, diagonal)


def _diagonal_scatter(
    function: Function, input: Any, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    forget(src)
    packed = isinstance(input, PackedTensor) and not isinstance(src, PackedTensor)
    at = _matrix_offset(input, offset, dim1, dim2) if packed else None
    # A mirrored type would get the mirrored diagonal as well, and that of a Hermitian is real.
    real = input.kind != layout.HERMITIAN or not src.is_complex() if packed else False
    if at is None or not ((at == 0 and real) or _triangular_stores(input, at)):
        return densify(function, input, src, offset, dim1, dim2)
    expected = (*input._packed.shape[:-1], max(input.n - abs(at), 0))
    if src.shape != expected:
        raise ValueError(
            f"[diagonal_scatter] expected src of shape {expected}; got {tuple(src.shape)}"
        )
    return elements.with_diagonal(input, src, at)


def _triangular_stores(t: PackedTensor, offset: int) -> bool:
    return t.kind not in layout.MIRRORED and elements.stores_diagonal(t.kind, offset)


def _fill_diagonal_(input: PackedTensor, fill_value: Any, wrap: bool = False) -> Tensor:
    if input._packed.dim() != 1:
        raise ValueError(
            f"[fill_diagonal_] expected one matrix; got {describe(input)}, of which torch would "
            "fill the one diagonal that runs through all dimensions. set_diagonal_ takes batches"
        )
    if not isinstance(fill_value, REALS):
        elements.check_not_complex("fill_diagonal_", input, torch.as_tensor(fill_value))
    packed = input._packed
    value = torch.as_tensor(fill_value, dtype=packed.dtype, device=packed.device)
    value = beside(packed, value)
    return elements.set_diagonal_(input, value)


def _tril(function: Function, input: PackedTensor, diagonal: int = 0, **kwargs: Any) -> Tensor:
    if kwargs or (input.kind in layout.MIRRORED and diagonal > 0):
        return densify(function, input, diagonal, **kwargs)
    cls = LowerTriangular if input.kind in layout.MIRRORED else type(input)
    return elements.band(input, cls, -input.n, diagonal)


def _triu(function: Function, input: PackedTensor, diagonal: int = 0, **kwargs: Any) -> Tensor:
    if kwargs or (input.kind in layout.MIRRORED and diagonal < 0):
        return densify(function, input, diagonal, **kwargs)
    cls = UpperTriangular if input.kind in layout.MIRRORED else type(input)
    return elements.band(input, cls, diagonal, input.n)


for _name, _compute in (
    ("diagonal diagonal_copy", _diagonal),
    ("diag", _diag),
    ("tril", _tril),
    ("triu", _triu),
):
    for _function in functions(_name):
        row(_function, PackedTensor)(partial(_compute, _function))
for _function in functions("diagonal_scatter"):
    row(_function)(partial(_diagonal_scatter, _function))
row(torch.linalg.diagonal, PackedTensor)(_linalg_diagonal)
row(Tensor.fill_diagonal_, PackedTensor)(_fill_diagonal_)
