"""Iterative refinement of solutions, with bounds of their errors."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from packedtri import layout
from packedtri._dtensor import whole
from packedtri._recording import values_visible
from packedtri._values import describe
from packedtri.layout import DENSE
from packedtri.ops.dense import as_dense
from packedtri.ops.mm import without_autocast
from packedtri.ops.norm_estimates import Map, one_norms, solves
from packedtri.ops.positive import solve_by_factor
from packedtri.ops.solve import check_system
from packedtri.ops.trsm import widened
from packedtri.tensor import LowerTriangular, PackedTensor, UpperTriangular

_mm = torch.ops.packedtri.mm.default


class ErrorBounds(NamedTuple):
    """What ``error_bounds`` returns, a number for each right-hand side.

    Attributes:
        forward: bounds of max |x - x*| / max |x|, where x* is the true solution.
        backward: the least w for which x solves a system whose elements each differ by a factor of
            at most 1 ± w from those of A and B.
    """

    forward: Tensor
    backward: Tensor


class _Residual(NamedTuple):
    """Of approximate solutions, shape (*batch, n, m): B - A X, |A| |X| + |B|, backward errors."""

    value: Tensor
    scale: Tensor
    error: Tensor


def refine(
    A: PackedTensor,
    B: Tensor,
    X: Tensor,
    *,
    factor: LowerTriangular | UpperTriangular | None = None,
    max_steps: int = 10,
) -> Tensor:
    """Improve approximate solutions of A X = B.

    A step solves for the residual B - A X and adds the result to X. Steps end where the backward
    error is that of rounding, or is no longer halved; none is taken that increases it. They start
    from zero where X is not finite, or its residual overflows.

    With a ``factor`` in a lower precision this is the mixed-precision solver of the field: the
    factorization and the solves take the time of the lower precision, and the solution has the
    accuracy of the dtype of A, if its condition number is well below the reciprocal of the
    factor's epsilon. Without one, systems are solved as ``torch.linalg.solve`` solves them.

    Args:
        A: shape (*batch, n, n), of any packed type.
        B: shape (*batch, n, m), or (n,) for a single vector; batches broadcast.
        X: approximate solutions, of the shape of the solution; of any dtype that B's can hold, or
            float32 beside 16 bits.
        factor: the Cholesky factor of a Symmetric or Hermitian A, as ``torch.linalg.cholesky``
            gives it, in any dtype.
        max_steps: at most so many steps. All are taken where nobody can look at values, as in
            torch.compile and vmap.

    Returns:
        The solutions, of the shape of X and the dtype of A, or float32 for 16-bit types; without a
        gradient.

    Raises:
        TypeError: when ``A`` or ``factor`` is not packed, ``B`` or ``X`` no tensor, or ``factor``
            comes with a triangle or a complex Symmetric, which have none.
        ValueError: when shapes, dtypes or devices do not match, or ``max_steps`` is negative.

    Example:
        >>> import torch, packedtri
        >>> S = packedtri.Symmetric(torch.tensor([3.0, 1.0, 2.0], dtype=torch.float64))
        >>> B = torch.tensor([[1.0], [1.0]], dtype=torch.float64)
        >>> L = torch.linalg.cholesky(S.float())
        >>> X = torch.cholesky_solve(B.float(), L)
        >>> bool((S @ X.double() - B).abs().max() < 1e-15)
        False
        >>> bool((S @ packedtri.refine(S, B, X, factor=L) - B).abs().max() < 1e-15)
        True

    Source:
        LAPACK's dpprfs and dsposv; Higham, Accuracy and Stability of Numerical Algorithms, 2nd
        edition, chapter 12.
    """
    if not isinstance(max_steps, int) or max_steps < 0:
        raise ValueError(f"[refine] expected an integer max_steps >= 0; got {max_steps}")
    _check("refine", A, B, X, factor)
    with torch.no_grad(), without_autocast(A.device.type):
        found = _refined(*_columns(A, B, X), factor, max_steps)
    return found[..., 0] if B.dim() == 1 else found


def error_bounds(
    A: PackedTensor,
    B: Tensor,
    X: Tensor,
    *,
    factor: LowerTriangular | UpperTriangular | None = None,
) -> ErrorBounds:
    """How far approximate solutions of A X = B are off.

    The forward error is bounded by the norm of |A⁻¹| (|B - A X| + (n+1) ε (|A| |X| + |B|)), whose
    second term is the rounding of the residual. That norm is estimated from ten solves.

    Args:
        A: shape (*batch, n, n), of any packed type.
        B: shape (*batch, n, m), or (n,) for a single vector; batches broadcast.
        X: approximate solutions, of the shape of the solution; of any dtype that B's can hold, or
            float32 beside 16 bits.
        factor: the Cholesky factor of a Symmetric or Hermitian A, in any dtype. Without one it is
            factored as ``torch.linalg.solve`` does it.

    Returns:
        ErrorBounds(forward, backward), each of shape (*batch, m), or (*batch,) for a single
        vector; real, of the precision of A, or float32 for 16-bit types; without a gradient.
        The forward bound is an estimate, almost always large enough, and rarely below a third of
        the error; it is inf where A is singular.

    Raises:
        TypeError: when ``A`` or ``factor`` is not packed, ``B`` or ``X`` no tensor, or ``factor``
            comes with a triangle or a complex Symmetric, which have none.
        ValueError: when shapes, dtypes or devices do not match.

    Example:
        >>> import torch, packedtri
        >>> L = packedtri.LowerTriangular(torch.tensor([1.0, 2.0, 4.0]))
        >>> B = torch.tensor([[1.0], [6.0]])
        >>> packedtri.error_bounds(L, B, torch.tensor([[1.0], [1.1]])).backward
        tensor([0.0323])

    Source:
        LAPACK's dtprfs and dpprfs; Higham, Accuracy and Stability of Numerical Algorithms, 2nd
        edition, sections 7.2 and 15.3.
    """
    _check("error_bounds", A, B, X, factor)
    with torch.no_grad(), without_autocast(A.device.type):
        a, b, x = _columns(A, B, X)
        forward, backward = _bounds(a, b, x, factor)
    if B.dim() == 1:
        forward, backward = forward[..., 0], backward[..., 0]
    return ErrorBounds(forward, backward)


def _columns(A: Any, B: Tensor, X: Tensor) -> tuple[Any, Tensor, Tensor]:
    """A, B and X in the precision of the computation, vectors as a column."""
    A, b, x = widened(A.detach()), widened(as_dense(B).detach()), as_dense(X).detach()
    if b.dim() == 1:
        b, x = b[:, None], x[..., None]
    return A, b, x.to(b.dtype)


def _refined(A: Any, b: Tensor, x: Tensor, factor: Any, max_steps: int) -> Tensor:
    if x.numel() == 0 or max_steps == 0:
        return x.clone()
    direct, _ = _maps(A, factor)
    absolute, epsilon, given = abs(A), torch.finfo(x.dtype).eps, x
    value, _, error = _residual(A, absolute, b, x)
    # Where that overflows, steps start from zero.
    begun = error.isfinite()
    x = torch.where(begun[..., None, :], x, 0)
    value = torch.where(begun[..., None, :], value, b)
    error = torch.where(begun, error, torch.inf)
    active = error > epsilon
    for step in range(max_steps):
        if values_visible(active) and not whole(active).any():
            break
        tried = x + direct(value)
        new = _residual(A, absolute, b, tried)
        # The first step may lead from far off to zero, which is as wrong by that measure.
        better = active & (new.error <= error if step == 0 else new.error < error)
        active = better & (new.error > epsilon)
        if step > 0:
            active &= 2 * new.error <= error
        x = torch.where(better[..., None, :], tried, x)
        value = torch.where(better[..., None, :], new.value, value)
        error = torch.where(better, new.error, error)
    return torch.where(error.isfinite()[..., None, :], x, given)


def _bounds(A: Any, b: Tensor, x: Tensor, factor: Any) -> tuple[Tensor, Tensor]:
    if x.numel() == 0:
        none = x.abs().sum(-2)
        return none, none.clone()
    residual = _residual(A, abs(A), b, x)
    return _forward_error(residual, x, *_maps(A, factor)), residual.error


def _maps(A: Any, factor: Any) -> tuple[Map, Map]:
    """Solves with A and with its adjoint, by a factor in its own precision where there is one."""
    if factor is None:
        found = solves(A)
        return found.direct, found.adjoint
    lower = widened((factor.mH if factor.kind == layout.UPPER else factor).detach()._packed)

    def solve(b: Tensor) -> Tensor:
        # Residuals may be out of the range of the lower precision.
        size = b.abs().amax(-2, keepdim=True)
        size = torch.where((size > 0) & size.isfinite(), size, 1)
        return solve_by_factor(lower, (b / size).to(lower.dtype), A.n).to(b.dtype) * size

    return solve, solve


def _residual(A: Any, absolute: Any, b: Tensor, x: Tensor) -> _Residual:
    value, scale = b - _product(A, x), _product(absolute, x.abs()) + b.abs()
    # One of zeros, as triangles have, is none.
    return _Residual(value, scale, (value.abs() / _raised(scale, scale)).amax(-2))


def _raised(x: Tensor, scale: Tensor) -> Tensor:
    """``x`` and what residuals of this scale lose by underflow, where that counts."""
    info = torch.finfo(x.dtype)
    least = (x.shape[-2] + 1) * info.tiny
    return torch.where(scale > least / info.eps, x, x + least)


def _product(A: Any, x: Tensor) -> Tensor:
    # As matmul, but not in TF32.
    return _mm(A._packed, x, A.n, A.kind, DENSE, DENSE)


def _forward_error(residual: _Residual, x: Tensor, direct: Map, adjoint: Map) -> Tensor:
    """The norm of A^-1 times what the residual may be, with its own rounding."""
    rounding = (x.shape[-2] + 1) * torch.finfo(x.dtype).eps * residual.scale
    weight = _raised(residual.value.abs() + rounding, residual.scale)
    # max |A^-1 W| is the 1-norm of W A^-H.
    bound = one_norms(lambda y: weight * adjoint(y), lambda y: direct(weight * y), x)
    largest = x.abs().amax(-2)
    bound = torch.where(largest > 0, bound / largest, bound)
    return torch.where(bound.isnan(), torch.inf, bound)


def _check(name: str, A: Any, B: Any, X: Any, factor: Any) -> None:
    if not isinstance(A, PackedTensor):
        raise TypeError(f"[{name}] expected a packed type for A; got {describe(A)}")
    for letter, given in (("B", B), ("X", X)):
        if not isinstance(given, Tensor):
            raise TypeError(f"[{name}] expected a tensor for {letter}; got {describe(given)}")
    b = B[:, None] if B.dim() == 1 else B
    check_system(name, A, b, True)
    shape = (*torch.broadcast_shapes(A.shape[:-2], b.shape[:-2]), *b.shape[-2:])
    shape = shape[:-1] if B.dim() == 1 else shape
    work = torch.promote_types(B.dtype, torch.float32)
    fits = torch.promote_types(X.dtype, work) == work and X.device == B.device
    if X.shape != shape or not fits:
        raise ValueError(
            f"[{name}] expected X of shape {shape} on {B.device}, of a dtype that {work} can "
            f"hold; got {describe(X)} of {X.dtype} on {X.device}"
        )
    if factor is not None:
        _check_factor(name, A, factor)


def _check_factor(name: str, A: PackedTensor, factor: Any) -> None:
    if A.kind not in layout.MIRRORED or (A.kind == layout.SYMMETRIC and A.is_complex()):
        raise TypeError(
            f"[{name}] expected a Symmetric or Hermitian with a factor; got {describe(A)} of "
            f"{A.dtype}, which has no Cholesky factor"
        )
    if not isinstance(factor, (LowerTriangular, UpperTriangular)):
        raise TypeError(f"[{name}] expected a triangular factor; got {describe(factor)}")
    alike = factor.device == A.device and factor.is_complex() == A.is_complex()
    if factor.shape != A.shape or not alike:
        raise ValueError(
            f"[{name}] expected a factor of {describe(A)} of {A.dtype} on {A.device}; got "
            f"{describe(factor)} of {factor.dtype} on {factor.device}"
        )
