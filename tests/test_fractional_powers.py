"""Powers of symmetric and Hermitian matrices with exponents that are no integers."""

from __future__ import annotations

import numpy
import pytest
import torch
from derivatives import check_derivatives
from torch import Tensor
from twins import MIRRORED, dense, packed_vector, project, weighted_sum

import packedtri
from packedtri import (
    Hermitian,
    LowerTriangular,
    PackedTensor,
    Symmetric,
    fractional_matrix_power,
    herk,
    syrk,
)
from packedtri.testing import epsilon, wide_dtype

mirrored = pytest.mark.parametrize("cls", MIRRORED)
EXPONENTS = (0.5, -0.25, -1 / 3, 1.5, -2.5)


def positive_definite(cls: type, p: Tensor) -> PackedTensor:
    """One whose smallest eigenvalue is at least 0.5, made of the elements of a triangle."""
    t = LowerTriangular(p)
    square = herk(t) if cls is Hermitian else syrk(t)
    return square.add_diagonal(0.5)


def power(x: Tensor, exponent: float) -> Tensor:
    values, vectors = torch.linalg.eigh(x)
    return vectors * values.pow(exponent).unsqueeze(-2) @ vectors.mH


@mirrored
def test_values(cls, dtype, device):
    if cls is Symmetric and dtype.is_complex:
        pytest.skip("complex Symmetric matrices need not have eigenvectors")
    for n in (0, 1, 2, 3, 5, 17):
        for batch in ((), (0,), (2, 1)) if n == 3 else ((),):
            p = torch.randn(*batch, n * (n + 1) // 2, dtype=dtype, device=device) / max(n, 1) ** 0.5
            A = positive_definite(cls, p)
            for exponent in EXPONENTS:
                ours = fractional_matrix_power(A, exponent)
                assert type(ours) is cls and ours.dtype == dtype and ours.shape == A.shape
                expected = power(dense(A).to(wide_dtype(dtype)), exponent)
                # What is computed in float64 is rounded once.
                tolerance = 2 * max(epsilon(dtype), 1e-12)
                error = (dense(ours).to(expected.dtype) - expected).abs()
                size = expected.abs().amax((-2, -1), keepdim=True) if n else expected.abs()
                assert (error <= tolerance * size).all()


@mirrored
@pytest.mark.parametrize("exponent", EXPONENTS)
def test_derivatives(cls, exponent, device):
    wide = torch.complex128 if cls is Hermitian else torch.float64
    p = packed_vector(3, wide, (2,), device)

    def f(p: Tensor) -> Tensor:
        return fractional_matrix_power(positive_definite(cls, p), exponent).packed

    check_derivatives(f, (p,))


@mirrored
@pytest.mark.parametrize("exponent", EXPONENTS)
def test_equal_eigenvalues_have_derivatives(cls, exponent, device):
    A = (cls.eye(3, dtype=torch.float64, device=device) * 3).requires_grad_()
    weights = torch.randn(3, 3, dtype=torch.float64, device=device)
    total = (fractional_matrix_power(A, exponent).to_dense() * weights).sum()
    (first,) = torch.autograd.grad(total, A, create_graph=True)
    slope = exponent * 3 ** (exponent - 1)
    torch.testing.assert_close(dense(first.detach()), slope * project(cls, weights))
    (second,) = torch.autograd.grad(first.to_dense().diagonal().sum(), A)
    curvature = exponent * (exponent - 1) * 3 ** (exponent - 2)
    torch.testing.assert_close(dense(second), curvature * project(cls, weights))


@mirrored
def test_matrices_of_lower_rank(cls, device):
    """Where two eigenvalues are zero, the convention of the derivative is that of sqrtm."""
    B = torch.randn(5, 2, dtype=torch.float64, device=device)
    A = (syrk(B) if cls is Symmetric else herk(B)).requires_grad_()
    ours, theirs = fractional_matrix_power(A, 0.5), packedtri.sqrtm(A)
    torch.testing.assert_close(dense(ours), dense(theirs))
    ours, theirs = (torch.autograd.grad(weighted_sum(x.to_dense()), A)[0] for x in (ours, theirs))
    torch.testing.assert_close(dense(ours), dense(theirs))
    single = (syrk(B) if cls is Symmetric else herk(B)).float()
    root = fractional_matrix_power(single, 0.25)
    torch.testing.assert_close(
        dense(root @ root @ root @ root), dense(single), atol=1e-4, rtol=1e-4
    )


def test_zero_and_negative_eigenvalues(device):
    zero = Symmetric(torch.tensor([0.0, 0.0, 4.0], device=device))
    negative = Symmetric(torch.tensor([-1.0, 0.0, 4.0], device=device))
    assert fractional_matrix_power(zero, 0.5).packed.tolist() == [0.0, 0.0, 2.0]
    assert not fractional_matrix_power(zero, -0.5).packed.isfinite().all()
    assert fractional_matrix_power(negative, 0.5).packed.isnan().all()
    assert fractional_matrix_power(negative.requires_grad_(), 0.5).packed.isnan().all()
    nothing = Symmetric.zeros(3, device=device)
    assert not fractional_matrix_power(nothing, 0.5).packed.any()


@pytest.mark.parametrize("exponent", [-1, 0, 1, 2.0, 3])
@mirrored
def test_integers_are_powers_of_any_matrix(cls, exponent, device):
    A = cls.randn(4, dtype=torch.complex128, device=device)
    ours = fractional_matrix_power(A, exponent)
    assert type(ours) is cls
    expected = torch.linalg.matrix_power(A, int(exponent))
    torch.testing.assert_close(dense(ours), dense(expected))


def test_sizes_far_from_one(device):
    """Neither the value nor its derivative depends on the scale, but for the power of it."""
    one = positive_definite(Symmetric, torch.randn(6, dtype=torch.float64, device=device))
    grads = []
    for scale in (1.0, 2.0**200, 2.0**-200):
        A = (one.detach() * scale).requires_grad_()
        y = fractional_matrix_power(A, -0.25)
        torch.testing.assert_close(
            dense(y) * scale**0.25, dense(fractional_matrix_power(one, -0.25))
        )
        grads.append(dense(torch.autograd.grad(weighted_sum(y.to_dense()), A)[0]) * scale**1.25)
    torch.testing.assert_close(grads[1], grads[0])
    torch.testing.assert_close(grads[2], grads[0])


def test_transforms_and_graphs(device):
    p = torch.randn(5, 6, dtype=torch.float64, device=device, requires_grad=True)

    def f(p: Tensor) -> Tensor:
        return fractional_matrix_power(positive_definite(Symmetric, p), -0.25).packed

    expected = f(p)
    torch.testing.assert_close(torch.vmap(f)(p), expected)
    (grad,) = torch.autograd.grad(expected.square().sum(), p)
    each = torch.vmap(torch.func.grad(lambda p: f(p).square().sum()))(p)
    torch.testing.assert_close(each, grad)
    result = torch.compile(f, fullgraph=True, backend="aot_eager")(p)
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(torch.autograd.grad(result.square().sum(), p)[0], grad)


def test_errors(device):
    S, z = Symmetric.eye(2, device=device), Symmetric.eye(2, dtype=torch.complex64, device=device)
    for error, message, call in (
        (TypeError, "got Tensor", lambda: fractional_matrix_power(S.to_dense(), 0.5)),
        (TypeError, "logm", lambda: fractional_matrix_power(LowerTriangular.eye(2), 0.5)),
        (TypeError, "complex Symmetric", lambda: fractional_matrix_power(z, 0.5)),
        (TypeError, "real number; got complex", lambda: fractional_matrix_power(S, 1j)),
        (TypeError, "real number; got Symmetric", lambda: fractional_matrix_power(S, S)),
        (ValueError, "finite", lambda: fractional_matrix_power(S, float("inf"))),
        (ValueError, "finite", lambda: fractional_matrix_power(S, float("nan"))),
    ):
        with pytest.raises(error, match=rf"\[fractional_matrix_power\].*{message}"):
            call()


@mirrored
def test_gradients_at_zero(cls, device):
    """Nothing there has a derivative; they are taken for zero, as at all pairs of zeros."""
    t = cls.zeros(2, 3, device=device).requires_grad_()
    with torch.no_grad():
        t[1].copy_(cls.eye(3))
    fractional_matrix_power(t, 0.5).to_dense().sum().backward()
    assert torch.equal(t.grad[0].to_dense(), torch.zeros(3, 3, device=device))
    torch.testing.assert_close(t.grad[1].to_dense(), torch.full((3, 3), 0.5, device=device))


def test_exponents_of_numpy():
    S = Symmetric(torch.tensor([4.0, 0.0, 9.0]))
    torch.testing.assert_close(
        fractional_matrix_power(S, numpy.float32(0.5)).packed, torch.tensor([2.0, 0.0, 3.0])
    )
    torch.testing.assert_close(
        fractional_matrix_power(S, numpy.int64(2)).packed, torch.tensor([16.0, 0.0, 81.0])
    )
