"""Changes of a Cholesky factor when its matrix changes by one of low rank."""

from __future__ import annotations

import torch
from torch import Tensor

from packedtri import _nodes
from packedtri.dispatch import describe
from packedtri.layout import DENSE, LOWER
from packedtri.ops.factor import check_positive_definite
from packedtri.ops.potrf import cholesky
from packedtri.ops.trsm import identity, solve
from packedtri.tensor import LowerTriangular, PackedTensor

_mm = torch.ops.packedtri.mm.default


def cholesky_update(L: LowerTriangular, x: Tensor, *, downdate: bool = False) -> LowerTriangular:
    """The Cholesky factor of L L^H + x x^H, or of L L^H - x x^H.

    Differentiable in both arguments, to any order.

    Args:
        L: shape (*batch, n, n), a Cholesky factor.
        x: shape (*batch, n) for a change of rank one, or (*batch, n, k) for one of rank k. Where L
            has batch dimensions b, a tensor of shape (*b, n) is read as vectors.
        downdate: subtract x x^H.

    Returns:
        shape (*batch, n, n), with a positive diagonal.

    Raises:
        torch.linalg.LinAlgError: when L L^H - x x^H is not positive definite.
        TypeError: when L is no LowerTriangular.
        ValueError: when the shapes do not fit.

    Example:
        >>> import packedtri
        >>> L = packedtri.LowerTriangular(torch.tensor([3.0, 0.0, 3.0]))
        >>> packedtri.cholesky_update(L, torch.tensor([4.0, 0.0]))
        LowerTriangular([[5., .],
                         [0., 3.]])

    With V = L^-1 x the new factor is L C, where C is the Cholesky factor of 1 + V V^H. That takes a
    factorization of order n, O(n^3), but never squares the condition of L as L L^H would. The same
    identity is behind the LINPACK routines chud and chdd.
    """
    name = "cholesky_update"
    if not isinstance(L, LowerTriangular):
        raise TypeError(
            f"[{name}] expected a LowerTriangular factor; got {describe(L)}. For U with A = U^H U "
            "pass U.mH"
        )
    x = _columns(name, L, x)
    n, packed = L.n, _nodes.to_packed(L)
    v = solve(packed, x, n, LOWER)
    product = _mm(v, v.mH, n, DENSE, DENSE, LOWER)
    changed = identity(packed, n) + (-product if downdate else product)
    factor, info = cholesky(changed, n)
    check_positive_definite(f"packedtri.{name}", info)
    return _nodes.from_packed(LowerTriangular, _mm(packed, factor, n, LOWER, LOWER, LOWER), n)


def _columns(name: str, L: LowerTriangular, x: Tensor) -> Tensor:
    """``x`` as columns (*batch, n, k), after checking that it fits."""
    if isinstance(x, PackedTensor):
        x = x.to_dense()
    batch = L._packed.shape[:-1]
    if x.dim() == 1 or tuple(x.shape) == (*batch, L.n):
        x = x.unsqueeze(-1)
    if x.dim() < 2 or x.shape[-2] != L.n or x.dtype is not L._packed.dtype:
        raise ValueError(
            f"[{name}] expected x of shape (..., n) or (..., n, k) and {L._packed.dtype} for "
            f"{describe(L)}; got {describe(x)} of {x.dtype}"
        )
    return x
