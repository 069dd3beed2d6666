"""generalized_eigh: eigenvalues of A x = λ B x against SciPy, residuals, derivatives and errors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from derivatives import check_derivatives
from torch import Tensor
from twins import dense, wide

import packedtri
from packedtri import Hermitian, LowerTriangular, Symmetric, generalized_eigh, generalized_eigvalsh
from packedtri.layout import numel
from packedtri.testing import epsilon, random, wide_dtype

SIZES = (0, 1, 2, 5, 17, 64, 65)


def pair(n: int, dtype: torch.dtype, device: str, rng: Any, *batch: int) -> tuple[Any, Any]:
    """A matrix with eigenvalues of both signs, and a positive definite one."""
    cls = Hermitian if dtype.is_complex else Symmetric
    A = cls(random((*batch, numel(n)), dtype, device, rng))
    F = random((*batch, n, n + 2), dtype, device, rng) / (n + 2) ** 0.5
    B = packedtri.herk(F) if dtype.is_complex else packedtri.syrk(F)
    return A, B.add_diagonal(0.5)


def test_values(dtype, device, rng):
    for n in SIZES:
        for batch in ((), (0,), (2, 1)) if n == 5 else ((),):
            A, B = pair(n, dtype, device, rng, *batch)
            values, vectors = generalized_eigh(A, B)
            real = torch.zeros((), dtype=dtype).real.dtype
            assert values.shape == (*batch, n) and values.dtype == real
            assert vectors.shape == (*batch, n, n) and vectors.dtype == dtype
            assert (values.diff() >= 0).all()
            a, b, x = (dense(t).to(wide_dtype(dtype)) for t in (A, B, vectors))
            eigenvalues = values.to(x.dtype).diag_embed()
            # B is no smaller than a half.
            scale = (torch.linalg.matrix_norm(a) * 4 + 1)[..., None, None] if n else 1
            bound = 30 * max(n, 1) * epsilon(dtype) * scale
            assert ((x.mH @ b @ x - torch.eye(n, device=device)).abs() <= bound).all()
            assert ((x.mH @ a @ x - eigenvalues).abs() <= bound).all()
            again = generalized_eigvalsh(A, B)
            assert again.dtype == real and again.shape == values.shape
            assert ((again - values).abs() <= bound[..., 0]).all() if n else True


@wide
def test_scipy(wide, rng):
    scipy_linalg = pytest.importorskip("scipy.linalg")
    A, B = pair(12, wide, "cpu", rng)
    expected = scipy_linalg.eigh(dense(A).numpy(), dense(B).numpy(), eigvals_only=True)
    torch.testing.assert_close(generalized_eigvalsh(A, B), torch.from_numpy(expected))


@wide
def test_batches_broadcast(wide, device, rng):
    A, _ = pair(4, wide, device, rng, 3)
    _, B = pair(4, wide, device, rng, 2, 1)
    values, vectors = generalized_eigh(A, B)
    assert values.shape == (2, 3, 4) and vectors.shape == (2, 3, 4, 4)
    torch.testing.assert_close(values[1, 2], generalized_eigvalsh(A[2], B[1, 0]))


@pytest.mark.parametrize(("n", "of_a", "of_b"), [(3, (), (3,)), (3, (3,), (3, 3)), (1, (), (1,)),
                                                  (0, (), (0,))])  # fmt: skip
@wide
def test_matrices_that_look_like_batches_of_vectors(n, of_a, of_b, wide, device, rng):
    A, _ = pair(n, wide, device, rng, *of_a)
    _, B = pair(n, wide, device, rng, *of_b)
    values, x = generalized_eigh(A, B)
    assert values.shape == (*of_b, n) and x.shape == (*of_b, n, n)
    one = torch.eye(n, dtype=wide, device=device).expand(x.shape)
    torch.testing.assert_close(x.mH @ dense(B) @ x, one)
    assert generalized_eigvalsh(A, B).shape == values.shape


@wide
def test_derivatives(wide, device, rng):
    """Of functions that do not depend on the factors of eigenvectors."""
    A, B = pair(3, wide, device, rng, 2)
    cls, eye = type(A), torch.eye(3, dtype=wide, device=device)

    def function(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        values, x = generalized_eigh(cls(a), cls(b))
        return values, (x * values.exp().unsqueeze(-2)) @ x.mH

    # Elements on the diagonal of a Hermitian are real.
    real = cls.from_dense(torch.ones(3, 3, device=device) + 1j * (1 - eye.real)).packed
    keep = (lambda p: torch.complex(p.real, p.imag * real.imag.abs())) if wide.is_complex else None

    def checked(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        found = function(*((a, b) if keep is None else (keep(a), keep(b))))
        return (*found, generalized_eigvalsh(cls(a), cls(b)))

    inputs = [t.packed.detach().requires_grad_() for t in (A, B)]
    check_derivatives(checked, inputs)


def test_gradients_are_of_the_types(device, rng):
    A, B = (t.requires_grad_() for t in pair(5, torch.float64, device, rng))
    generalized_eigvalsh(A, B)[-1].backward()
    assert type(A.grad) is type(B.grad) is Symmetric
    # Of a single eigenvalue: x x^T, and -λ x x^T.
    values, x = generalized_eigh(A.detach(), B.detach())
    outer = torch.outer(x[:, -1], x[:, -1])
    torch.testing.assert_close(dense(A.grad), outer)
    torch.testing.assert_close(dense(B.grad), -values[-1] * outer)


def test_compiled_and_mapped(device, rng):
    A, B = pair(4, torch.float64, device, rng, 3)
    compiled = torch.compile(generalized_eigvalsh, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(A, B), generalized_eigvalsh(A, B))
    mapped = packedtri.func.vmap(generalized_eigvalsh)(A, B)
    torch.testing.assert_close(mapped, generalized_eigvalsh(A, B))


def test_errors(device):
    S, H = (cls.eye(3, device=device) for cls in (Symmetric, Hermitian))
    cases: tuple[tuple[type[Exception], str, Any, Any], ...] = (
        (TypeError, r"for A; got LowerTriangular \(3, 3\)", LowerTriangular.eye(3), S),
        (TypeError, r"for B; got Tensor \(3, 3\)", S, torch.eye(3)),
        (TypeError, r"of one type; got Symmetric \(3, 3\) and Hermitian", S, H),
        (TypeError, "complex Symmetric are not real", S.to(torch.complex64), S.to(torch.complex64)),
        (ValueError, "expected one order", S, Symmetric.eye(4, device=device)),
        (ValueError, "same dtype", S, S.double()),
        (ValueError, "batch dimensions", S.expand(2, 3, 3), S.expand(3, 3, 3)),
        (
            torch.linalg.LinAlgError, "B is not positive definite: .*minor of order 3",
            S, diagonal(1.0, 1.0, -1.0, device=device),
        ),
    )  # fmt: skip
    for error, message, A, B in cases:
        for function in (generalized_eigh, generalized_eigvalsh):
            with pytest.raises(error, match=rf"\[{function.__name__}\] .*{message}"):
                function(A, B)


def diagonal(*elements: float, device: str) -> Symmetric:
    S = Symmetric.zeros(len(elements), device=device)
    S.set_diagonal_(torch.tensor(elements, device=device))
    return S
