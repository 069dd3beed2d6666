"""Powers of symmetric and Hermitian matrices whose exponents are no integers.

The value comes from the eigenvalues, and the derivatives from exp(p log S) beside the diagonal
matrix of these: the vectors have none where two eigenvalues are equal.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, TypeVar

import torch
from torch import Tensor

from packedtri import _nodes
from packedtri._recording import values_visible
from packedtri._values import REALS, describe
from packedtri.ops.matrix_functions import logm, matrix_power
from packedtri.tensor import Hermitian, Symmetric

S = TypeVar("S", Symmetric, Hermitian)

# Stands for zero in logarithms, beside a largest eigenvalue of about one: its roots are below
# rounding, and its logarithm is a number.
_NEARLY_ZERO = 2.0**-1000


def fractional_matrix_power(A: S, exponent: float) -> S:
    """The real power of positive semidefinite matrices, on a dense temporary, as A^(-1/4).

    An exponent that is an integer gives ``torch.linalg.matrix_power``, of any matrix. Others take
    the power of the eigenvalues, in float64 or complex128, with first and second derivatives. A
    negative eigenvalue has no real power: the result is nan, unless it is as small as rounding
    leaves of zero, for which it is taken. Zero has the power zero, and infinity for negative
    exponents: the result is not finite. Add to the diagonal before, by ``add_diagonal``, where
    that may happen. Derivatives that concern two eigenvalues that are zero but for rounding are
    taken for zero, as by :func:`sqrtm`.

    Args:
        A: shape (*batch, n, n), a Hermitian or a Symmetric, for exponents that are no integers a
            real one.
        exponent: a real number, such as -0.5.

    Returns:
        shape (*batch, n, n), of the type of ``A``.

    Raises:
        TypeError: when ``A`` is neither Symmetric nor Hermitian, or a complex Symmetric, or the
            exponent no real number.
        ValueError: when the exponent is not finite.
        torch.linalg.LinAlgError: when ``A`` is singular and the exponent a negative integer.

    Example:
        >>> import torch, packedtri
        >>> S = packedtri.Symmetric(torch.tensor([16.0, 0.0, 1.0]))
        >>> packedtri.fractional_matrix_power(S, -0.25)
        Symmetric([[0.5000, 0.0000],
                   [0.0000, 1.0000]])

    Source:
        V. Gupta, T. Koren and Y. Singer, "Shampoo: preconditioned stochastic tensor optimization",
        ICML 2018, for what it is needed; N. J. Higham, Functions of Matrices, SIAM 2008.
    """
    _check(A, exponent)
    if exponent == int(exponent):
        return matrix_power(A, int(exponent))  # type: ignore[return-value]
    exponent = float(exponent)
    if A.dtype.is_complex and isinstance(A, Symmetric):
        raise TypeError(
            f"[fractional_matrix_power] a complex Symmetric need not have eigenvectors; got "
            f"{describe(A)}. Use Hermitian, or convert with .to_dense()"
        )
    x = A.to_dense().to(torch.complex128 if A.dtype.is_complex else torch.float64)
    if x.numel() == 0:
        return type(A).from_dense(x.to(A.dtype))
    values, vectors = torch.linalg.eigh(x.detach())
    values = _without_rounding(values, A.n, A.dtype)
    powers = values.pow(exponent)
    if not _nodes.recorded(A) and values_visible(A._packed):
        y = vectors * powers.unsqueeze(-2) @ vectors.mH
    else:
        change = _derivatives(type(A), vectors.mH @ x @ vectors, values, exponent)
        y = vectors @ (torch.diag_embed(powers) + change) @ vectors.mH
    return type(A).from_dense(y.to(A.dtype))


def _check(A: Any, exponent: Any) -> None:
    name = "fractional_matrix_power"
    if not isinstance(A, (Symmetric, Hermitian)):
        raise TypeError(
            f"[{name}] expected a Symmetric or Hermitian; got {describe(A)}. Of a triangle T, "
            "torch.matrix_exp(exponent * packedtri.logm(T)) is the power"
        )
    if not isinstance(exponent, (Real, *REALS)):
        raise TypeError(f"[{name}] expected a real number; got {describe(exponent)}")
    if not math.isfinite(exponent):
        raise ValueError(f"[{name}] expected a finite exponent; got {exponent}")


def _without_rounding(values: Tensor, n: int, dtype: torch.dtype) -> Tensor:
    """Eigenvalues, with zero for negative ones that rounding of the matrix may have made of it."""
    rounding = min(max(8 * n**0.5, n) * torch.finfo(dtype).eps, 0.0625)
    least = -rounding * values.abs().amax(-1, keepdim=True)
    return torch.where((values < 0) & (values >= least), 0, values)


def _derivatives(cls: type[S], target: Tensor, values: Tensor, exponent: float) -> Tensor:
    """Zeros with the derivatives of the power at a diagonal matrix.

    Args:
        cls: the type of the matrix.
        target: the matrix, shape (*batch, n, n), which carries the derivatives.
        values: its diagonal, shape (*batch, n).
        exponent: of the power.
    """
    size = values.abs().amax(-1, keepdim=True)
    # Derivatives that concern nothing but zeros are taken for zero.
    target = torch.where(size.unsqueeze(-1) > 0, target, target.detach())
    size = torch.where((size > 0) & size.isfinite(), size, 1)
    positive = torch.where(values > 0, values / size, _NEARLY_ZERO)
    change = (target - target.detach()) / size.unsqueeze(-1)
    logarithm = logm(cls.from_dense(torch.diag_embed(positive) + change)).to_dense()
    y = torch.ops.packedtri.exp_dense(exponent * logarithm)
    return (y - y.detach()) * size.unsqueeze(-1).pow(exponent)
