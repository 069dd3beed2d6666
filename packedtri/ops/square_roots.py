"""Triangular square roots of A A^H that never form it: what square-root filters need."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from packedtri import _nodes
from packedtri._recording import values_visible
from packedtri._values import describe
from packedtri.ops.dense import as_dense
from packedtri.ops.trsm import widened
from packedtri.tensor import LowerTriangular, check_dtype


def tria(A: Tensor) -> LowerTriangular:
    """The lower triangle L with L L^H = A A^H and a diagonal that is nowhere negative.

    It is found by a QR factorization of A^H, on dense temporaries of the size of A, so that the
    condition of A is not squared, as it would be by a Cholesky factor of A A^H. Where that product
    is singular L is one of its factors too: with k below n it has zeros in all columns from k on.
    16-bit types are computed in float32.

    It is differentiable to any order where the first min(n, k) rows of A are linearly independent.
    Elsewhere there is no derivative, and what is computed for it is nan, or rounding magnified.

    Args:
        A: shape (*batch, n, k), a dense matrix or a packed type. Several ones side by side, as
            ``torch.cat((F @ L, Q), -1)``, give the root of a sum, here of F L L^H F^H + Q Q^H.

    Returns:
        shape (*batch, n, n).

    Raises:
        TypeError: when ``A`` is no tensor of a floating or complex dtype.
        ValueError: when ``A`` has fewer than two dimensions.

    Example:
        >>> import torch, packedtri
        >>> packedtri.tria(torch.tensor([[3.0, 4.0], [0.0, 5.0]]))
        LowerTriangular([[5.,  .],
                         [4., 3.]])

    Source:
        I. Arasaratnam and S. Haykin, "Cubature Kalman filters", IEEE Transactions on Automatic
        Control 54 (2009), who name it Tria.
    """
    _check(A)
    n, x = A.shape[-2], widened(as_dense(A))
    factor = _right_factor(x.mH)
    diagonal = factor.diagonal(0, -2, -1).detach()
    # Of the rows of R each may be multiplied by any number of size one.
    signs = torch.where(diagonal == 0, 1, diagonal.sgn())
    factor = factor * signs.conj().unsqueeze(-1)
    missing = n - factor.shape[-2]
    factor = torch.nn.functional.pad(factor, (0, 0, 0, missing)) if missing else factor
    return LowerTriangular.from_dense(factor.mH.to(A.dtype))


def _right_factor(x: Tensor) -> Tensor:
    """R of x = Q R, shape (*batch, min(k, n), n); Q is computed for derivatives alone."""
    mode = "reduced" if _nodes.recorded(x) or not values_visible(x) else "r"
    return torch.linalg.qr(x, mode=mode).R


def _check(A: Any) -> None:
    if not isinstance(A, Tensor):
        raise TypeError(f"[tria] expected a tensor; got {describe(A)}")
    check_dtype("tria", A)
    if A.dim() < 2:
        raise ValueError(f"[tria] expected matrices (..., n, k); got {describe(A)}")
