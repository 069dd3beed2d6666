"""Norms of matrices that are known by products alone, such as inverses by solves.

Source:
    N. J. Higham, "FORTRAN codes for estimating the one-norm of a real or complex matrix", ACM TOMS
    14 (1988); LAPACK's dlacn2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from packedtri import layout
from packedtri._dtensor import beside
from packedtri.ops import elements
from packedtri.ops.positive import positive

Map = Callable[[Tensor], Tensor]

# LAPACK stops after as many steps. Estimates are nearly always final after two.
_STEPS = 5


@dataclass(frozen=True)
class Solves:
    """How systems with a matrix A are solved, for right-hand sides of shape (*batch, n, m).

    Attributes:
        direct: b -> A^-1 b.
        adjoint: b -> A^-H b.
        regular: which matrices of the batch are not singular, shape (*batch).
    """

    direct: Map
    adjoint: Map
    regular: Tensor


def solves(A: Any) -> Solves:
    """By substitution; of a Symmetric or Hermitian by Cholesky, or LU on a dense temporary."""
    return _by_factorization(A) if A.kind in layout.MIRRORED else _by_substitution(A)


def _by_substitution(A: Any) -> Solves:
    def solve(t: Any) -> Map:
        return partial(torch.linalg.solve_triangular, t, upper=t.kind == layout.UPPER)

    return Solves(solve(A), solve(A.mH), (elements.diagonal(A) != 0).all(-1))


def _by_factorization(A: Any) -> Solves:
    matrix = positive(A)
    if matrix is not None:
        every = A._packed.new_ones(A.shape[:-2], dtype=torch.bool)
        return Solves(matrix.solve, matrix.solve, every)
    lu, pivots, info = torch.linalg.lu_factor_ex(A.to_dense())
    solve = partial(torch.linalg.lu_solve, lu, pivots)
    return Solves(solve, partial(solve, adjoint=True), info == 0)


def one_norms(direct: Map, adjoint: Map, like: Tensor, size: float = 1.0) -> Tensor:
    """Estimates of the 1-norms of matrices M, one for each column that the maps are given.

    An estimate is never above the norm, but for rounding, and rarely below a third of it.

    Args:
        direct: x -> M x, of shape (*batch, n, m), a matrix for each column.
        adjoint: x -> M^H x.
        like: a tensor of that shape; its values do not count.
        size: of the vectors that the maps are given, where products with larger ones may overflow.

    Returns:
        ``size`` times the norms, shape (*batch, m). Where products overflow they may be nan.
    """
    n = like.shape[-2]
    k = torch.arange(n, device=like.device)
    rows = beside(like, k[:, None])
    x = torch.full_like(like, size / n)
    y = direct(x)
    estimate = y.abs().sum(-2)
    for _ in range(_STEPS - 1):
        z = adjoint(torch.where(y == 0, 1, torch.sgn(y)) * size)
        # The next vector is the unit vector of the direction of steepest ascent.
        x = (rows == z.abs().argmax(-2, keepdim=True)).to(x.dtype) * size
        y = direct(x)
        estimate = torch.maximum(estimate, y.abs().sum(-2))
    # Against matrices that are built to mislead the steps above.
    alternating = ((-1.0) ** k * (1 + k / max(n - 1, 1))).to(x.dtype)[:, None]
    alternating = beside(like, alternating).expand_as(x)
    lower_bound = direct(alternating * size).abs().sum(-2) / (1.5 * n)
    return torch.maximum(estimate, lower_bound)
