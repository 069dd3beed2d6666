"""Eigenvalues of A x = λ B x, for a positive definite B: what LAPACK's spgv and hpgv compute."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from packedtri._values import describe
from packedtri.ops.factor import check_positive_definite
from packedtri.ops.matmul import check_elements
from packedtri.ops.solve import check_batches
from packedtri.ops.trsm import narrowed, widened
from packedtri.tensor import Hermitian, LowerTriangular, Symmetric

S = TypeVar("S", Symmetric, Hermitian)


class GeneralizedEigh(NamedTuple):
    """What :func:`generalized_eigh` returns.

    Attributes:
        eigenvalues: real, shape (*batch, n), in ascending order.
        eigenvectors: the columns of X, shape (*batch, n, n), with X^H B X = 1.
    """

    eigenvalues: Tensor
    eigenvectors: Tensor


def generalized_eigh(A: S, B: S) -> GeneralizedEigh:
    """Eigenvalues and eigenvectors of ``A x = λ B x``, as of vibrations or discriminants.

    With B = L L^H they are those of L^-1 A L^-H, by the packed Cholesky factor of B and packed
    solves, and by :func:`torch.linalg.eigh` of a dense temporary. Where B is badly conditioned,
    eigenvalues that are small beside the largest lose digits by that. 16-bit types are computed in
    float32.

    Eigenvectors are unique but for factors of size one, where eigenvalues are all different. As
    with :func:`torch.linalg.eigh` derivatives are right for functions that do not depend on these
    factors. Where two eigenvalues are equal, eigenvectors have no derivatives.

    Args:
        A: shape (*batch, n, n), Symmetric or Hermitian.
        B: shape (*batch, n, n), positive definite, of the type of ``A``; batches broadcast.

    Returns:
        The named tuple ``(eigenvalues, eigenvectors)``. Eigenvalues are real, shape (*batch, n),
        in ascending order. Eigenvectors are the columns of a dense X, shape (*batch, n, n), with
        X^H B X = 1 and X^H A X = diag(λ).

    Raises:
        TypeError: when ``A`` and ``B`` are not both Symmetric or both Hermitian, or are complex
            and Symmetric, which have other eigenvalues.
        ValueError: when orders, batches, dtypes or devices do not match.
        torch.linalg.LinAlgError: when a ``B`` is not positive definite.

    Example:
        >>> import torch, packedtri
        >>> stiffness = packedtri.Symmetric(torch.tensor([2.0, -1.0, 2.0]))
        >>> mass = packedtri.Symmetric(torch.tensor([1.0, 0.0, 2.0]))
        >>> packedtri.generalized_eigh(stiffness, mass).eigenvalues
        tensor([0.6340, 2.3660])

    Source:
        R. S. Martin and J. H. Wilkinson, "Reduction of the Symmetric Eigenproblem Ax = λBx and
        Related Problems to Standard Form", Numerische Mathematik 11 (1968).
    """
    L, reduced = _reduced("generalized_eigh", A, B)
    values, vectors = torch.linalg.eigh(reduced)
    found = GeneralizedEigh(values, torch.linalg.solve_triangular(L.mH, vectors, upper=True))
    return GeneralizedEigh(*(narrowed(x, A.dtype) for x in found))


def generalized_eigvalsh(A: S, B: S) -> Tensor:
    """The eigenvalues that :func:`generalized_eigh` returns, and no vectors.

    Args:
        A: shape (*batch, n, n), Symmetric or Hermitian.
        B: shape (*batch, n, n), positive definite, of the type of ``A``; batches broadcast.

    Returns:
        Real, shape (*batch, n), in ascending order. Their derivatives are right where they are all
        different.

    Raises:
        TypeError, ValueError, torch.linalg.LinAlgError: as ``generalized_eigh`` does.

    Example:
        >>> import torch, packedtri
        >>> between = packedtri.syrk(torch.tensor([[1.0], [2.0]]))
        >>> within = packedtri.Symmetric(torch.tensor([1.0, 0.0, 4.0]))
        >>> packedtri.generalized_eigvalsh(between, within)
        tensor([0., 2.])
    """
    _, reduced = _reduced("generalized_eigvalsh", A, B)
    values: Tensor = narrowed(torch.linalg.eigvalsh(reduced), A.dtype)
    return values


def _reduced(name: str, A: S, B: S) -> tuple[LowerTriangular, Tensor]:
    """The Cholesky factor L of B, and the dense L^-1 A L^-H."""
    _check(name, A, B)
    L, info = torch.linalg.cholesky_ex(widened(B))
    check_positive_definite("linalg.cholesky", info, f"[{name}] B is not positive definite: ")
    # torch.linalg.solve would take matrices of some shapes for a batch of vectors.
    half = torch.linalg.solve_triangular(L, widened(A).to_dense(), upper=False)
    return L, torch.linalg.solve_triangular(L, half.mH, upper=False)


def _check(name: str, A: Any, B: Any) -> None:
    for label, X in (("A", A), ("B", B)):
        if not isinstance(X, (Symmetric, Hermitian)):
            raise TypeError(
                f"[{name}] expected a Symmetric or Hermitian for {label}; got {describe(X)}"
            )
    if A.kind != B.kind:
        raise TypeError(
            f"[{name}] expected A and B of one type; got {describe(A)} and {describe(B)}"
        )
    if isinstance(A, Symmetric) and A.is_complex():
        raise TypeError(
            f"[{name}] the eigenvalues of a complex Symmetric are not real; got {describe(A)}. "
            "Take torch.linalg.eig of torch.linalg.solve(B, A), or Hermitian matrices"
        )
    if A.n != B.n:
        raise ValueError(f"[{name}] expected one order; got {describe(A)} and {describe(B)}")
    check_elements(name, A, B, A._packed, B._packed)
    check_batches(name, A, B, A.shape[:-2], B.shape[:-2])
