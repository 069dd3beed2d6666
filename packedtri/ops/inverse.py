"""The rows of inverses, which keep their types."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor

from packedtri import _nodes
from packedtri._bands import real_diagonal
from packedtri.dispatch import Function, row
from packedtri.ops.dense import functions
from packedtri.ops.positive import invert_by_factor, positive
from packedtri.ops.solve import begin_singular_check, by_lu, check_upper
from packedtri.ops.trsm import invert_triangle, widened
from packedtri.tensor import (
    Hermitian,
    LowerTriangular,
    PackedTensor,
    Symmetric,
    UpperTriangular,
)

P = TypeVar("P", bound=PackedTensor)


def _inverse_triangular(t: PackedTensor) -> PackedTensor:
    # The inverse of a transpose is the transpose of the inverse, so Upper keeps its storage order.
    return _nodes.from_packed(type(t), invert_triangle(_nodes.to_packed(t), t.n), t.n)


def _inverse_symmetric(a: PackedTensor, dense_inverse: Function) -> Any:
    """The inverse by the Cholesky factor, or else what ``dense_inverse`` makes of the matrix.

    Matrices that are not positive definite, and complex Symmetric ones, which are not Hermitian,
    unpack into a temporary for torch's LU factorization with pivoting.
    """
    matrix = positive(a)
    if matrix is None:
        return dense_inverse()
    return _typed(type(a), matrix.inverse().to(a._packed.dtype), a.n)


def _typed(cls: type[P], packed: Tensor, n: int) -> P:
    return _nodes.from_packed(cls, real_diagonal(packed, cls.kind, n), n)


def _inv_triangular(A: PackedTensor) -> PackedTensor:
    finish_check = begin_singular_check("linalg.inv", A)
    inverse = _inverse_triangular(A)
    finish_check()
    return inverse


def _inv_symmetric(A: PackedTensor) -> PackedTensor:
    return _inverse_symmetric(A, lambda: type(A).from_dense(by_lu(torch.linalg.inv, A)))


for _function in (torch.linalg.inv, *functions("inverse")):
    row(_function, LowerTriangular, result=LowerTriangular)(_inv_triangular)
    row(_function, UpperTriangular, result=UpperTriangular)(_inv_triangular)
    row(_function, Symmetric, result=Symmetric)(_inv_symmetric)
    row(_function, Hermitian, result=Hermitian)(_inv_symmetric)


def _inv_ex_triangular(A: PackedTensor, *, check_errors: bool = False) -> Any:
    finish_check = begin_singular_check("linalg.inv_ex", A, check_errors)
    inverse = _inverse_triangular(A)
    return torch.return_types.linalg_inv_ex((inverse, finish_check()))


def _inv_ex_symmetric(A: PackedTensor, *, check_errors: bool = False) -> Any:

    def dense_inverse() -> Any:
        inverse, info = by_lu(torch.linalg.inv_ex, A, check_errors=check_errors)
        return type(A).from_dense(inverse), info

    found = _inverse_symmetric(A, dense_inverse)
    if isinstance(found, PackedTensor):
        found = found, found._packed.new_zeros(found._packed.shape[:-1], dtype=torch.int32)
    return torch.return_types.linalg_inv_ex(found)


row(torch.linalg.inv_ex, LowerTriangular)(_inv_ex_triangular)
row(torch.linalg.inv_ex, UpperTriangular)(_inv_ex_triangular)
row(torch.linalg.inv_ex, Symmetric)(_inv_ex_symmetric)
row(torch.linalg.inv_ex, Hermitian)(_inv_ex_symmetric)


def _cholesky_inverse(input: PackedTensor, upper: bool = False) -> Tensor:
    """torch.cholesky_inverse of a packed factor, L with A = L L^H or U with A = U^H U."""
    check_upper("cholesky_inverse", input, upper)
    factor = _nodes.to_packed(input)
    # What is stored is the transpose of U, and U^H U = conj(T) T^T.
    factor = factor.conj() if upper else factor
    cls = Hermitian if factor.is_complex() else Symmetric
    packed = invert_by_factor(widened(factor), input.n).to(factor.dtype)
    return _typed(cls, packed, input.n)


for _cls in (LowerTriangular, UpperTriangular):
    row(functions("cholesky_inverse"), _cls, casts=True)(_cholesky_inverse)
