"""The rows of solves, with triangles, symmetric and Hermitian matrices and Cholesky factors.

A triangular right-hand side of the same type gives a triangular solution, since inverses of
triangular matrices are triangular. With U = L^T, U1^-1 U2 = (L2 L1^-1)^T, so that Upper swaps the
sides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from packedtri import _nodes
from packedtri._dtensor import whole
from packedtri._recording import forward_mode, is_recorded, values_visible
from packedtri._typed import attempt
from packedtri._values import describe
from packedtri.dispatch import Function, row
from packedtri.layout import DENSE, HERMITIAN, LOWER, UPPER
from packedtri.ops.aten import bump_version
from packedtri.ops.dense import as_dense, densify, functions, stored_of, takes
from packedtri.ops.dims import can_broadcast
from packedtri.ops.positive import positive, solve_by_factor
from packedtri.ops.trsm import first_zero, narrowed, solve, solve_into, widened
from packedtri.tensor import (
    Hermitian,
    LowerTriangular,
    PackedTensor,
    Symmetric,
    UpperTriangular,
    check_strided,
)

_TRIANGULAR = (LowerTriangular, UpperTriangular)
_op = torch.ops.packedtri.solve_triangular.default


def check_upper(name: str, t: PackedTensor, upper: bool) -> None:
    """Raise where ``upper`` contradicts a type, which would read its zeros for a triangle."""
    if bool(upper) != (t.kind == UPPER):
        raise ValueError(
            f"[{name}] upper={upper} contradicts {describe(t)}, whose other triangle is "
            "zero. Convert with .to_dense() to read that"
        )


def check_system(name: str, a: PackedTensor, b: Tensor, left: bool) -> None:
    """Raise where a matrix and dense or packed right-hand sides do not go together."""
    # A vector has no rows, also where a matrix has none.
    rows = b.size(-2 if left else -1) if b.dim() > 1 else None
    if rows != a._n:
        expected = "(..., n, m)" if left else "(..., m, n)"
        raise ValueError(
            f"[{name}] expected a right-hand side {expected} for {describe(a)}; got {describe(b)}"
        )
    p, q = a._packed, stored_of(b)
    check_strided(name, q)
    if p.dtype is not q.dtype or p.device != q.device:
        raise ValueError(
            f"[{name}] expected both operands to have the same dtype and device; "
            f"got {describe(a)} of {p.dtype} on {p.device} and "
            f"{describe(b)} of {q.dtype} on {q.device}"
        )
    # One matrix goes with every batch.
    if p.dim() > 1:
        batch = q.shape[:-1] if isinstance(b, PackedTensor) else q.shape[:-2]
        check_batches(name, a, b, p.shape[:-1], batch)


def check_batches(name: str, a: Tensor, b: Tensor, p: torch.Size, q: torch.Size) -> None:
    """Raise where the batch dimensions ``p`` of ``a`` and ``q`` of ``b`` do not broadcast."""
    if p != q and not can_broadcast(p, q):
        raise ValueError(
            f"[{name}] expected batch dimensions that broadcast; "
            f"got {describe(a)} and {describe(b)}"
        )


def begin_singular_check(
    name: str, t: PackedTensor, check_errors: bool = True
) -> Callable[[], Tensor]:
    """Ask whether a triangular matrix has a zero on its diagonal, before work that must not wait.

    Returns:
        A function to call when the work is under way. It raises torch's error for a zero where
        errors are checked, or returns LAPACK's info, shape (*batch): 0, or the position of the
        first zero counted from 1.
    """
    if not check_errors:
        return lambda: singular_info(t)
    info = whole(singular_info(t))
    known = _to_host(info) if values_visible(info) else None

    def answer() -> Tensor:
        if known is None or known().any():
            torch._linalg_check_errors(info, name, is_matrix=info.dim() == 0)
        return info

    return answer


def _to_host(x: Tensor) -> Callable[[], Tensor]:
    """What ``x`` holds, once it is known: the host waits for this, not for later work."""
    if not x.is_cuda or torch.cuda.is_current_stream_capturing():
        return lambda: x
    copy = torch.empty_like(x, device="cpu", pin_memory=True).copy_(x, non_blocking=True)
    with torch.cuda.device(x.device):
        known = torch.cuda.current_stream().record_event()

    def value() -> Tensor:
        known.synchronize()
        return copy

    return value


def singular_info(t: PackedTensor) -> Tensor:
    """Position, counted from 1, of the first zero on the diagonal of a triangle, or 0."""
    return first_zero(t._packed.detach(), t.n)


def solve_dense(a: PackedTensor, b: Tensor, left: bool = True, unit: bool = False) -> Tensor:
    """The solution for dense right-hand sides; packed ones are converted."""
    b = as_dense(b)
    found = _attempt(a, b, left, unit)
    return _solve_in_general(a, b, left, unit) if found is None else found


def _solve_in_general(a: PackedTensor, b: Tensor, left: bool, unit: bool) -> Tensor:
    return solve(_nodes.to_packed(a), b, a.n, a.kind, DENSE, left, unit)


def _attempt(a: PackedTensor, b: Tensor, left: bool, unit: bool) -> Tensor | None:
    """The same for a plain ``b``; None where it goes the general way."""
    p, n = a._packed, a._n
    if p.dtype.itemsize == 2:
        return None
    found: Tensor | None = attempt(_op, None, n, (a, b), (p, b), n, a.kind, DENSE, left, unit)
    return found


def solve_typed(a: PackedTensor, b: PackedTensor, left: bool, unit: bool = False) -> PackedTensor:
    """The solution for a right-hand side of the type of the triangular ``a``."""
    p, q, from_left = _nodes.to_packed(a), _nodes.to_packed(b), left == (a.kind == LOWER)
    return _nodes.from_packed(type(a), solve(p, q, a.n, LOWER, LOWER, from_left, unit), a.n)


def _solve_triangular(
    A: PackedTensor,
    B: Tensor,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """torch.linalg.solve_triangular for a triangular ``A``, whose type says ``upper`` already."""
    name = "linalg.solve_triangular"
    check_upper(name, A, upper)
    if out is not None and type(B) is Tensor and B.dim() >= 2:
        check_system(name, A, B, left)
        if _solved_into(out, A, B, left, unitriangular):
            return out
    if type(B) is not Tensor:
        check_system(name, A, B, left)
        if isinstance(B, PackedTensor) and type(A) is type(B):
            return solve_typed(A, B, left, unitriangular)
        return solve_dense(A, B, left, unitriangular)
    # The op refuses what does not go together. Only then is it asked here what that is.
    problem = None
    try:
        found = _attempt(A, B, left, unitriangular)
        if found is not None:
            return found
    except RuntimeError as error:
        problem = error
    check_system(name, A, B, left)
    if problem is not None:
        raise problem
    return _solve_in_general(A, B, left, unitriangular)


def _solved_into(out: Tensor, a: PackedTensor, b: Tensor, left: bool, unit: bool) -> bool:
    """Whether the solution was written to ``out``, which may be ``b``."""
    if is_recorded(a):
        return False
    p = _nodes.to_packed(a)
    batch = torch.broadcast_shapes(p.shape[:-1], b.shape[:-2])
    if not takes(out, (*batch, *b.shape[-2:]), p):
        return False
    if not solve_into(out, p, b, a.n, a.kind, left, unit):
        return False
    bump_version(out)
    return True


def by_lu(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Call a function of torch's, which factors dense matrices into L and U with pivoting.

    In float32 where elements have 16 bits, of which torch factors none; results are rounded once.
    """
    return narrowed(densify(function, *map(widened, args), **kwargs), args[0].dtype)


def is_vector(a: PackedTensor, b: Tensor) -> bool:
    """torch.linalg.solve takes a batch of vectors where the shape of ``b`` is that of rows."""
    return b.dim() == 1 or tuple(b.shape) == (*a._packed.shape[:-1], a.n)


def _solve(A: PackedTensor, B: Tensor, *, left: bool = True) -> Tensor:
    return _by_substitution("linalg.solve", A, B, left, True)[0]


def _solve_ex(A: PackedTensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    found = _by_substitution("linalg.solve_ex", A, B, left, check_errors)
    return torch.return_types.linalg_solve_ex(found)


def _by_substitution(
    name: str, A: PackedTensor, B: Tensor, left: bool, check_errors: bool
) -> tuple[Tensor, Tensor]:
    """The solution for a triangular ``A``, and where its diagonal has the first zero."""
    vector = is_vector(A, B)
    B = as_dense(B) if vector else B
    columns = B.unsqueeze(-1) if vector else B
    check_system(name, A, columns, left)
    # Torch words its error by this name.
    finish_check = begin_singular_check(f"torch.{name}", A, check_errors)
    x = solve_typed(A, B, left) if type(A) is type(B) else solve_dense(A, columns, left)
    info = finish_check()
    return x.squeeze(-1) if vector else x, info


def _solve_symmetric(A: PackedTensor, B: Tensor, *, left: bool = True) -> Tensor:
    """torch.linalg.solve for a Symmetric or Hermitian ``A``.

    A positive definite matrix is solved by its Cholesky factor. Any other, a complex Symmetric
    among them, converts to dense and takes torch's LU factorization with pivoting (`by_lu`), as all
    do where values cannot be looked at, in torch.compile and torch.func.
    """
    x = _solve_positive("linalg.solve", A, B, left)
    if x is not None:
        return x
    if not forward_mode():
        return by_lu(torch.linalg.solve, A, B, left=left)
    return _solve_lu("torch.linalg.solve", A, B, left, True)[0]


def _solve_ex_symmetric(
    A: PackedTensor, B: Tensor, *, left: bool = True, check_errors: bool = False
) -> Any:
    """torch.linalg.solve_ex, likewise."""
    x = _solve_positive("linalg.solve_ex", A, B, left)
    if x is not None:
        found: Any = x, x.new_zeros(A.shape[:-2], dtype=torch.int32)
    elif not forward_mode():
        found = by_lu(torch.linalg.solve_ex, A, B, left=left, check_errors=check_errors)
    else:
        found = _solve_lu("torch.linalg.solve_ex", A, B, left, check_errors)
    return torch.return_types.linalg_solve_ex(found)


def _solve_positive(name: str, A: PackedTensor, B: Tensor, left: bool) -> Tensor | None:
    """The solution for a Symmetric or Hermitian ``A`` that is known to be positive definite."""
    vector = is_vector(A, B)
    b = B.unsqueeze(-1) if vector else as_dense(B)
    check_system(name, A, b, left)
    matrix = positive(A)
    if matrix is None:
        return None
    # With A = A^H the rows of X in X A = B are the conjugate columns of A X^H = B^H.
    x = matrix.solve(b if left else b.mH)
    x = x if left else x.mH
    return x.squeeze(-1) if vector else x


def _solve_lu(
    name: str, A: PackedTensor, B: Tensor, left: bool, check_errors: bool
) -> tuple[Tensor, Tensor]:
    """torch.linalg.solve_ex, whose own forward mode takes the factors for constants.

    What it computes is right, but not the derivatives of that.
    """
    vector = is_vector(A, B)
    b = B.unsqueeze(-1) if vector else as_dense(B)
    lu, pivots, info = torch.linalg.lu_factor_ex(widened(A.to_dense()))
    if check_errors:
        torch._linalg_check_errors(info, name, is_matrix=info.dim() == 0)
    # The matrix is its own transpose or adjoint: from the right torch conjugates views of complex
    # tensors, which it then cannot differentiate again in forward mode.
    turned = torch.adjoint if A.kind == HERMITIAN else Tensor.mT.__get__
    x = torch.linalg.lu_solve(lu, pivots, widened(b if left else turned(b)))
    x = narrowed(x if left else turned(x), b.dtype)
    return x.squeeze(-1) if vector else x, info


def _cholesky_solve(input: Tensor, input2: PackedTensor, upper: bool = False) -> Tensor:
    """torch.cholesky_solve for a packed factor, L with A = L L^H or U with A = U^H U."""
    name = "cholesky_solve"
    check_upper(name, input2, upper)
    check_system(name, input2, input, True)
    factor = _nodes.to_packed(input2)
    if input2.kind == UPPER:
        # What is stored is the transpose of U, and U^H U = conj(T) T^T.
        factor = factor.conj()
    return solve_by_factor(factor, as_dense(input), input2.n)


def _triangular_solve(
    input: Tensor,
    A: PackedTensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> Any:
    """torch.triangular_solve, the older name, which has ``upper=True`` by default."""
    name = "triangular_solve"
    check_upper(name, A, upper)
    check_system(name, A, input, True)
    kind = A.kind if not transpose else UPPER if A.kind == LOWER else LOWER
    x = solve(_nodes.to_packed(A), as_dense(input), A.n, kind, DENSE, True, unitriangular)
    coefficient = A.expand(*x.shape[:-2], A.n, A.n).clone()
    return torch.return_types.triangular_solve((x, coefficient))


for _cls in _TRIANGULAR:
    row(torch.linalg.solve_triangular, _cls, Tensor, result=Tensor, writes=True)(_solve_triangular)
    row(torch.linalg.solve, _cls, Tensor, result=Tensor)(_solve)
    row(torch.linalg.solve_ex, _cls, Tensor)(_solve_ex)
    for _rhs in (Tensor, PackedTensor):
        row(functions("cholesky_solve"), _rhs, _cls, result=Tensor, casts=True)(_cholesky_solve)
        row(functions("triangular_solve"), _rhs, _cls)(_triangular_solve)
    for _other in (*_TRIANGULAR, Symmetric, Hermitian):
        _result = _cls if _cls is _other else Tensor
        row(torch.linalg.solve_triangular, _cls, _other, result=_result)(_solve_triangular)
        row(torch.linalg.solve, _cls, _other, result=_result)(_solve)
        row(torch.linalg.solve_ex, _cls, _other)(_solve_ex)
for _rhs in (Tensor, PackedTensor):
    for _mirrored in (Symmetric, Hermitian):
        row(torch.linalg.solve, _mirrored, _rhs, result=Tensor)(_solve_symmetric)
        row(torch.linalg.solve_ex, _mirrored, _rhs)(_solve_ex_symmetric)
