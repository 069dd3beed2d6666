"""Condition numbers without inverses, from solves by substitution or by a factorization."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from packedtri import _nodes
from packedtri._dtensor import whole_if_tiny
from packedtri._values import describe
from packedtri.ops.norm_estimates import one_norms, solves
from packedtri.ops.trsm import widened
from packedtri.tensor import PackedTensor

# Right-hand sides are this small, so that solutions of size 1 / rcond stay in the range of float32
# wherever rcond does.
_SMALL = 2.0**-60


def rcond(A: PackedTensor) -> Tensor:
    """An estimate of the reciprocal condition number 1 / (‖A‖ ‖A⁻¹‖) in the 1-norm.

    The norm of the inverse is estimated from a few solves, of O(n^2) operations each, where
    ``torch.linalg.cond(A, 1)`` inverts the matrix. The estimate is never below the true value and
    rarely above three times it: a matrix may be conditioned worse than it says, but not better.

    A Symmetric or Hermitian is factored for the solves: by Cholesky on packed storage where all
    matrices of the batch are positive definite, else by LU on a dense temporary, as in
    torch.linalg.solve.

    Args:
        A: shape (*batch, n, n), of any packed type.

    Returns:
        shape (*batch), real; 0 for a singular matrix, and for an indefinite one whose true value is
        below the smallest normal number. It has no gradient. For 16-bit types it is float32, since
        a rounding to 16 bits could take it below the true value, or to 0.

    Raises:
        TypeError: when ``A`` is not packed.

    Example:
        >>> import packedtri
        >>> packedtri.rcond(packedtri.LowerTriangular(torch.tensor([1.0, 0.0, 4.0])))
        tensor(0.2500)

    Source:
        N. J. Higham, "FORTRAN codes for estimating the one-norm of a real or complex matrix", ACM
        TOMS 14 (1988); LAPACK's dtpcon, dppcon and dgecon.
    """
    if not isinstance(A, PackedTensor):
        raise TypeError(
            f"[rcond] expected a packed type; got {describe(A)}. torch.linalg.cond takes any matrix"
        )
    with torch.no_grad():
        return _reciprocal(A.detach())


def _reciprocal(A: Any) -> Tensor:
    A = widened(A)
    if A.n == 0:
        return torch.full(A.shape[:-2], torch.inf, dtype=A._packed.real.dtype, device=A.device)
    # The result has no scale, but norms and solutions have one that may overflow.
    A = _scaled(A)
    solve = solves(A)
    inverse = one_norms(
        solve.direct, solve.adjoint, A._packed.new_empty((*A.shape[:-1], 1)), _SMALL
    ).squeeze(-1)
    # Solutions that overflow have differences inf - inf on the way. Of a singular matrix they mean
    # nothing, and the last line leaves them out.
    inverse = torch.where(inverse.isnan(), torch.inf, inverse)
    value = _SMALL / (torch.linalg.matrix_norm(A, 1) * inverse)
    return torch.where(solve.regular, value, 0)


def _scaled(A: Any) -> Any:
    """Each matrix over the power of two below its largest element, which is exact."""
    packed = whole_if_tiny(A._packed)
    # Of complex elements the larger part counts: their absolute values may overflow.
    parts = torch.view_as_real(packed.resolve_conj()) if packed.is_complex() else packed[..., None]
    largest = parts.abs().amax((-2, -1), keepdim=True)
    mantissa = torch.frexp(largest).mantissa
    power = torch.where((largest > 0) & largest.isfinite(), largest / (2 * mantissa), 1)
    parts = parts / power
    packed = torch.view_as_complex(parts) if packed.is_complex() else parts.squeeze(-1)
    return _nodes.from_packed(type(A), packed, A.n)
