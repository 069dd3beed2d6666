"""Determinants, from the diagonal of a triangle or of a Cholesky factor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from packedtri import _nodes
from packedtri._bands import diagonal
from packedtri._recording import forward_mode
from packedtri._values import describe
from packedtri.dispatch import Function, row
from packedtri.layout import REAL
from packedtri.ops.dense import as_dense, functions
from packedtri.ops.factor import check_positive_definite
from packedtri.ops.positive import Positive, factored, positive
from packedtri.ops.solve import by_lu, check_system, is_vector
from packedtri.ops.trsm import narrowed, widened
from packedtri.tensor import (
    Hermitian,
    LowerTriangular,
    PackedTensor,
    Symmetric,
    UpperTriangular,
)


def _lu_diagonal(a: Tensor) -> Tensor:
    """The diagonal of the LU factors of dense matrices, with the sign of their permutation.

    Forward mode of torch's determinants takes the factors for constants: what it computes is right,
    but not the derivatives of that.
    """
    lu, pivots, _ = torch.linalg.lu_factor_ex(a)
    swaps = (pivots != torch.arange(1, a.shape[-1] + 1, device=a.device)).sum(-1, keepdim=True)
    diagonal = lu.diagonal(0, -2, -1)
    return torch.cat([diagonal[..., :1] * (1 - 2 * (swaps % 2)), diagonal[..., 1:]], -1)


def _det(diagonal: Tensor) -> Tensor:
    return diagonal.prod(-1)


def _sign_and_log(diagonal: Tensor) -> tuple[Tensor, Tensor]:
    sign = diagonal.sgn().prod(-1)
    if diagonal.is_complex():
        return sign, diagonal.abs().log().sum(-1)
    # The derivative of torch.abs is zero at zero, and zero times inf is nan.
    absolute = torch.where(diagonal < 0, -diagonal, diagonal)
    return sign, absolute.log().sum(-1)


def _logdet(diagonal: Tensor) -> Tensor:
    sign, logabsdet = _sign_and_log(diagonal)
    if sign.is_complex():
        return sign.log() + logabsdet
    # Torch has no logarithm of a negative determinant, and -inf for that of a singular matrix.
    return torch.where(sign == -1, torch.nan, logabsdet)


def _triangular(function: Function, finish: Function) -> Function:
    """A handler for triangles: from the diagonal, in float32 where it has 16-bit elements."""

    def handler(A: PackedTensor) -> Any:
        found = finish(widened(diagonal(_nodes.to_packed(A), A.n)))
        return narrowed(found, A._packed.dtype)

    return handler


def _symmetric(function: Function, of_diagonal: Function, of_positive: Function) -> Function:
    """A handler for Symmetric and Hermitian: from the Cholesky factor, else by torch's LU.

    The latter unpacks into a temporary. It serves matrices that are not positive definite, complex
    Symmetric ones, which are not Hermitian, and those whose values cannot be looked at.
    """

    def handler(A: PackedTensor) -> Any:
        matrix = positive(A)
        if matrix is not None:
            return of_positive(matrix, A._packed.dtype)
        if not forward_mode():
            return by_lu(function, A)
        found = of_diagonal(_lu_diagonal(widened(A.to_dense())))
        return narrowed(found, A._packed.dtype)

    return handler


# Results have the dtype of the matrix, which torch's logarithm of a complex determinant has too.


def _det_of_positive(matrix: Positive, dtype: torch.dtype) -> Tensor:
    return matrix.det().to(dtype)


def _logdet_of_positive(matrix: Positive, dtype: torch.dtype) -> Tensor:
    return matrix.logdet().to(dtype)


def _add_slogdet(function: Function, returned: Function) -> None:
    """Rows for a function that returns a named tuple of this type."""

    def of_diagonal(diagonal: Tensor) -> Any:
        return returned(_sign_and_log(diagonal))

    def of_positive(matrix: Positive, dtype: torch.dtype) -> Any:
        logdet = matrix.logdet()
        # It is one, and constant, but takes part in autograd as torch's does.
        sign = (logdet.abs() + 1).sgn().to(dtype)
        return returned((sign, logdet.to(REAL.get(dtype, dtype))))

    _add([function], of_diagonal, of_positive, None)


def _add(
    found: list[Function],
    of_diagonal: Function,
    of_positive: Function,
    result: type | None = Tensor,
) -> None:
    for function in found:
        for triangular in (LowerTriangular, UpperTriangular):
            row(function, triangular, result=result)(_triangular(function, of_diagonal))
        for mirrored in (Symmetric, Hermitian):
            handler = _symmetric(function, of_diagonal, of_positive)
            row(function, mirrored, result=result)(handler)


_add([*functions("det"), torch.linalg.det], _det, _det_of_positive)
_add(functions("logdet"), _logdet, _logdet_of_positive)
_add_slogdet(torch.linalg.slogdet, torch.return_types.linalg_slogdet)
for _function in functions("slogdet"):
    _add_slogdet(_function, torch.return_types.slogdet)


def inv_quad_logdet(S: Symmetric | Hermitian, rhs: Tensor) -> tuple[Tensor, Tensor]:
    """The quadratic form of the inverse, tr(B^H S^-1 B), and log det S, from one factorization.

    These are the two terms of a Gaussian's log likelihood. The name is linear_operator's.

    Args:
        S: shape (*batch, n, n), positive definite, and Hermitian where it is complex.
        rhs: B, shape (n,) or (*batch, n, m), dense or packed. Where S has batch dimensions b, a
            dense tensor of shape (*b, n) is read as vectors, one for each matrix, as by
            torch.linalg.solve.

    Returns:
        The quadratic form summed over the columns of ``rhs``, and the logarithm of the determinant,
        both real and of the shape (*batch) to which the batches of both arguments broadcast. Both
        come from one autograd graph: call ``backward`` once, on a sum of them. One after the other
        needs ``retain_graph=True`` for the first.

    Raises:
        torch.linalg.LinAlgError: when S is not positive definite.
        TypeError: when S is neither a real Symmetric nor a Hermitian, or ``rhs`` is not a strided
            tensor.
        ValueError: when ``rhs`` does not fit.

    Example:
        >>> import packedtri
        >>> S = packedtri.Symmetric(torch.tensor([4.0, 0.0, 1.0]))
        >>> inv_quad, logdet = packedtri.inv_quad_logdet(S, torch.tensor([2.0, 3.0]))
        >>> inv_quad, logdet
        (tensor(10.), tensor(1.3863))
    """
    name = "inv_quad_logdet"
    symmetric = isinstance(S, Symmetric) and not S._packed.is_complex()
    if not symmetric and not isinstance(S, Hermitian):
        raise TypeError(f"[{name}] expected a real Symmetric or a Hermitian; got {describe(S)}")
    if not isinstance(rhs, Tensor):
        raise TypeError(f"[{name}] expected a tensor of right-hand sides; got {describe(rhs)}")
    vectors = is_vector(S, rhs) and not isinstance(rhs, PackedTensor)
    columns = rhs.unsqueeze(-1) if vectors else as_dense(rhs)
    check_system(name, S, columns, left=True)
    matrix, info = factored(S)
    check_positive_definite("linalg.cholesky", info, f"[{name}] ")
    dtype = REAL.get(S.dtype, S.dtype)
    inv_quad, logdet = (x.to(dtype) for x in matrix.inv_quad_logdet(columns))
    same = logdet.shape == inv_quad.shape
    return inv_quad, logdet if same else logdet.expand(inv_quad.shape)
