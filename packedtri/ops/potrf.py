"""The op ``cholesky``: its shape rule, derivatives and vmap.

The derivatives are those of Murray (Differentiation of the Cholesky decomposition, 2016): with
A = L L^H and Phi, which takes the lower triangle and halves its diagonal,

    dL = L Phi(L^-1 dA L^-H),    gradient of A = L^-H Phi(L^H G) L^-1,

the latter folded onto the stored triangle. Products and solves of the table do it all, but a
symmetric matrix between two solves has no packed form here: derivatives, unlike the factorization
itself, use a dense n x n temporary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from packedtri._autograd import Call, library, quick, register_implicit
from packedtri._bands import halve_diagonal
from packedtri.layout import DENSE, LOWER, UPPER

_mm = torch.ops.packedtri.mm.default
_pack, _unpack = torch.ops.packedtri.pack.default, torch.ops.packedtri.unpack.default
_solve = torch.ops.packedtri.solve_triangular.default
_cholesky = torch.ops.packedtri.cholesky.default
_quick_cholesky = quick(_cholesky)


def cholesky(packed: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The op. Elements of 16 bits are computed in float32: LAPACK has no routine for them.

    Args:
        packed: shape (*batch, n(n+1)/2), the lower triangle of a symmetric or Hermitian matrix.
        n: order.

    Returns:
        The packed factor, and ``info`` of shape (*batch): 0, or the order of the first leading
        minor that is not positive definite. The factor's elements are undefined then.
    """
    if packed.dtype.itemsize == 2:
        factor, info = cholesky(packed.float(), n)
        return factor.to(packed.dtype), info
    return _quick_cholesky(packed, n)


@torch.library.register_fake("packedtri::cholesky", lib=library)
def _(packed: Tensor, n: int) -> tuple[Tensor, Tensor]:
    return packed.new_empty(packed.shape), packed.new_empty(packed.shape[:-1], dtype=torch.int32)


def gradient_of_matrix(factor: Tensor, grad: Tensor, n: int) -> Tensor:
    """M = L^-H Phi(L^H G) L^-1, dense: G changes by the real part of <M, dA> with Hermitian dA."""
    adjoint = factor.conj()
    inner = halve_diagonal(_mm(adjoint, grad, n, UPPER, LOWER, LOWER), n)
    right = _unpack(_solve(factor, inner, n, LOWER, LOWER, False, False), n, LOWER)
    return _solve(adjoint, right, n, UPPER, DENSE, True, False)


def tangent_of_factor(factor: Tensor, tangent: Tensor, n: int) -> Tensor:
    """L Phi(L^-1 dA L^-H), packed, for a dense Hermitian dA."""
    left = _solve(factor, tangent, n, LOWER, DENSE, True, False)
    both = _solve(factor.conj(), left, n, UPPER, DENSE, False, False)
    return _mm(factor, halve_diagonal(_pack(both, LOWER), n), n, LOWER, LOWER, LOWER)


def _pullback(grad: Tensor, call: Call) -> list[Tensor | None]:
    assert call.result is not None
    n = call.args[1]
    m = gradient_of_matrix(call.result, grad, n)
    return [halve_diagonal(_pack(m, LOWER) + _pack(m, UPPER).conj(), n)]


def _pushforward(tangents: Sequence[Tensor | None], call: Call) -> Tensor | None:
    factor, n, tangent = call.result, call.args[1], tangents[0]
    if tangent is None or factor is None:
        return None
    half = _unpack(halve_diagonal(tangent, n), n, LOWER)
    return tangent_of_factor(factor, half + half.mH, n)


register_implicit(_cholesky, (False,), _pullback, _pushforward)


@torch.library.register_vmap("packedtri::cholesky", lib=library)
def _(
    info: Any, in_dims: Sequence[int | None], packed: Tensor, n: int
) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    assert in_dims[0] is not None
    return _cholesky(packed.movedim(in_dims[0], 0), n), (0, 0)
