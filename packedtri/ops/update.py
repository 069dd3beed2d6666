"""Changes of a Cholesky factor when its matrix changes by one of low rank: the op and its function.

The derivatives are those of the Cholesky factor L' of A' = L L^H + x x^H, see ``potrf``; like those
they use a dense n x n temporary. With M the gradient of A', made Hermitian as M + M^H, that of L is
(M + M^H) L and that of x is (M + M^H) x.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from packedtri import _nodes
from packedtri._autograd import Call, library, register_implicit
from packedtri._values import describe
from packedtri.layout import DENSE, LOWER, UPPER
from packedtri.ops.dense import as_dense
from packedtri.ops.factor import check_positive_definite
from packedtri.ops.mm import batch_first
from packedtri.ops.potrf import gradient_of_matrix, tangent_of_factor
from packedtri.ops.solve import check_batches
from packedtri.ops.trsm import widened
from packedtri.tensor import LowerTriangular, check_strided

_mm = torch.ops.packedtri.mm.default
_update = torch.ops.packedtri.cholesky_update.default


@torch.library.register_fake("packedtri::cholesky_update", lib=library)
def _(packed: Tensor, x: Tensor, n: int, downdate: bool) -> tuple[Tensor, Tensor]:
    batch = torch.broadcast_shapes(packed.shape[:-1], x.shape[:-2])
    return packed.new_empty((*batch, packed.shape[-1])), packed.new_empty(batch, dtype=torch.int32)


def _pullback(grad: Tensor, call: Call) -> list[Tensor | None]:
    packed, x, n, downdate = call.args
    assert call.result is not None
    m = gradient_of_matrix(call.result, grad, n)
    m = m + m.mH
    grad_x = m @ x
    return [_mm(m, packed, n, DENSE, LOWER, LOWER), -grad_x if downdate else grad_x]


def _pushforward(tangents: Sequence[Tensor | None], call: Call) -> Tensor | None:
    packed, x, n, downdate = call.args
    half: Tensor | None = None
    if tangents[0] is not None:
        half = _mm(tangents[0], packed.conj(), n, LOWER, UPPER, DENSE)
    if tangents[1] is not None:
        of_x = tangents[1] @ (-x if downdate else x).mH
        half = of_x if half is None else half + of_x
    if half is None or call.result is None:
        return None
    return tangent_of_factor(call.result, half + half.mH, n)


register_implicit(_update, (True, True), _pullback, _pushforward)


@torch.library.register_vmap("packedtri::cholesky_update", lib=library)
def _(
    info: Any, in_dims: Sequence[int | None], packed: Tensor, x: Tensor, n: int, downdate: bool
) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    packed, x = batch_first((packed, x), in_dims, (LOWER, DENSE))
    return _update(packed, x, n, downdate), (0, 0)


def cholesky_update(L: LowerTriangular, x: Tensor, *, downdate: bool = False) -> LowerTriangular:
    """The Cholesky factor of L L^H + x x^H, or of L L^H - x x^H.

    Differentiable in both arguments, to any order. Plane rotations turn x into L in O(n^2 k)
    operations; a downdate takes hyperbolic ones. The condition of L is never squared. 16-bit types
    are computed in float32.

    Args:
        L: shape (*batch, n, n), a Cholesky factor. It may be singular where the changed matrix is
            positive definite.
        x: shape (*batch, n) for a change of rank one, or (*batch, n, k) for one of rank k. Where L
            has batch dimensions b, a tensor of shape (*b, n) is read as vectors.
        downdate: subtract x x^H.

    Returns:
        shape (*batch, n, n), with a positive diagonal.

    Raises:
        torch.linalg.LinAlgError: when the changed matrix is not positive definite.
        TypeError: when L is not a LowerTriangular, or x not a strided tensor.
        ValueError: when shapes, dtypes or devices do not fit.

    Example:
        >>> import packedtri
        >>> L = packedtri.LowerTriangular(torch.tensor([3.0, 0.0, 3.0]))
        >>> packedtri.cholesky_update(L, torch.tensor([4.0, 0.0]))
        LowerTriangular([[5.,  .],
                         [0., 3.]])

    Source:
        LINPACK's chud and chdd.
    """
    name = "cholesky_update"
    check_lower_factor(name, L)
    packed, columns, dtype = _nodes.to_packed(L), _columns(name, L, x), L._packed.dtype
    factor, info = _update(widened(packed), widened(columns), L.n, downdate)
    check_positive_definite(f"packedtri.{name}", info)
    return _nodes.from_packed(LowerTriangular, factor.to(dtype), L.n)


def check_lower_factor(name: str, L: Any) -> None:
    """Raise where a factor is not one that is changed here."""
    if not isinstance(L, LowerTriangular):
        raise TypeError(
            f"[{name}] expected a LowerTriangular factor; got {describe(L)}. For U with A = U^H U "
            "pass U.mH"
        )


def _columns(name: str, L: LowerTriangular, x: Tensor) -> Tensor:
    """``x`` as columns (*batch, n, k), after checking that it fits."""
    if not isinstance(x, Tensor):
        raise TypeError(f"[{name}] expected a tensor for x; got {describe(x)}")
    given = x = as_dense(x)
    check_strided(name, x)
    batch = L._packed.shape[:-1]
    if x.dim() == 1 or tuple(x.shape) == (*batch, L.n):
        x = x.unsqueeze(-1)
    p = L._packed
    if x.dim() < 2 or x.shape[-2] != L.n or (x.dtype, x.device) != (p.dtype, p.device):
        raise ValueError(
            f"[{name}] expected x of shape (..., n) or (..., n, k), of {p.dtype} on {p.device} for "
            f"{describe(L)}; got {describe(given)} of {x.dtype} on {x.device}"
        )
    check_batches(name, L, given, batch, x.shape[:-2])
    return x
