"""Hermitian: factorizations, solves, derivatives and transforms, with SciPy's hp routines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from derivatives import check_derivatives
from scipy.linalg import lapack
from torch import Tensor
from twins import dense, weighted_sum

import packedtri
from packedtri import Hermitian, LowerTriangular, UpperTriangular, layout
from packedtri._bands import diagonal_index, real_diagonal
from packedtri.testing import epsilon, random, wide_dtype

COMPLEX = (torch.complex64, torch.complex128)
WIDE = (torch.float64, torch.complex128)
each_complex = pytest.mark.parametrize("dtype", COMPLEX)
wide = pytest.mark.parametrize("wide", WIDE)


def positive(n: int, dtype: torch.dtype, batch=(), device="cpu", rng=None) -> Hermitian:
    """Positive definite, with imaginary parts stored on the diagonal, which nothing may read."""
    x = random((*batch, n, n), dtype, device, rng) / (max(1, n) * 4)
    shift = 2 * torch.eye(n, dtype=dtype, device=device)
    packed = Hermitian.from_dense(x + x.mH + shift).packed.clone()
    if dtype.is_complex:
        packed[..., diagonal_index(n, packed.device)] += 1j
    return Hermitian(packed)


def routine(name: str, dtype: torch.dtype) -> Any:
    return getattr(lapack, ("z" if dtype == torch.complex128 else "c") + name)


@each_complex
def test_cholesky_solve_and_inverse_are_those_of_lapack(dtype, rng):
    for n in (1, 2, 3, 31, 33, 65):
        h, b = positive(n, dtype, rng=rng), random((n, 3), dtype, "cpu", rng)
        ap, tolerance = h.to_lapack("L").numpy(), {"rtol": 0, "atol": 100 * epsilon(dtype)}
        factor, info = routine("pptrf", dtype)(n, ap, lower=1)
        assert info == 0
        L = torch.linalg.cholesky(h)
        assert type(L) is LowerTriangular
        torch.testing.assert_close(L.to_lapack("L"), torch.from_numpy(factor), **tolerance)
        x, _ = routine("pptrs", dtype)(n, factor, b.numpy(), lower=1)
        for ours in (torch.linalg.solve(h, b), torch.cholesky_solve(b, L)):
            torch.testing.assert_close(ours, torch.from_numpy(np.asarray(x)), **tolerance)
        inverse, _ = routine("pptri", dtype)(n, factor, lower=1)
        for ours in (torch.linalg.inv(h), torch.cholesky_inverse(L)):
            assert type(ours) is Hermitian
            torch.testing.assert_close(ours.to_lapack("L"), torch.from_numpy(inverse), **tolerance)


def test_factors_and_solutions_of_dense_twins(dtype, device, rng):
    close = {"rtol": 200 * epsilon(dtype), "atol": 200 * epsilon(dtype)}
    for n, batch in ((1, ()), (4, (3,)), (33, (2, 1)), (65, ())):
        h = positive(n, dtype, batch, device, rng)
        x = dense(h).to(wide_dtype(dtype))
        b = random((*batch, n, 2), dtype, device, rng)
        B = b.to(x.dtype)
        pairs = [
            (torch.linalg.solve(h, b), torch.linalg.solve(x, B)),
            (torch.linalg.solve(h, b.mT, left=False), torch.linalg.solve(x, B.mT, left=False)),
            (torch.logdet(h), torch.logdet(x)),
            (torch.linalg.slogdet(h)[0], torch.linalg.slogdet(x)[0]),
            (torch.linalg.slogdet(h)[1], torch.linalg.slogdet(x)[1]),
            (torch.linalg.inv(h), torch.linalg.inv(x)),
            (torch.linalg.inv_ex(h)[0], torch.linalg.inv(x)),
        ]
        for upper in (False, True):
            factor = torch.linalg.cholesky(h, upper=upper)
            assert type(factor) is (UpperTriangular if upper else LowerTriangular)
            product = factor.mH @ factor if upper else factor @ factor.mH
            pairs.append((product, x))
            pairs.append((torch.cholesky_inverse(factor, upper), torch.linalg.inv(x)))
            pairs.append((torch.cholesky_solve(b, factor, upper), torch.linalg.solve(x, B)))
        for ours, theirs in pairs:
            torch.testing.assert_close(dense(ours).to(theirs.dtype), theirs, **close)
        quad, logdet = packedtri.inv_quad_logdet(h, b)
        assert quad.dtype == logdet.dtype == dtype.to_real()
        expected = (B.mH @ torch.linalg.solve(x, B)).diagonal(0, -2, -1).sum(-1).real
        torch.testing.assert_close(quad.to(expected.dtype), expected, **close)
        torch.testing.assert_close(logdet.to(expected.dtype), torch.logdet(x).real, **close)


@each_complex
def test_indefinite_matrices(dtype, rng):
    h, b = Hermitian.randn(2, 6, dtype=dtype, generator=rng), random((2, 6, 2), dtype, "cpu", rng)
    x, close = dense(h), {"rtol": 1e-3, "atol": 1e-3}
    torch.testing.assert_close(torch.linalg.solve(h, b), torch.linalg.solve(x, b), **close)
    assert type(torch.linalg.inv(h)) is Hermitian
    torch.testing.assert_close(dense(torch.linalg.inv(h)), torch.linalg.inv(x), **close)
    torch.testing.assert_close(torch.linalg.det(h), torch.linalg.det(x), **close)
    torch.testing.assert_close(torch.linalg.eigvalsh(h), torch.linalg.eigvalsh(x), **close)
    assert torch.linalg.cholesky_ex(h).info.any()
    with pytest.raises(torch.linalg.LinAlgError):
        torch.linalg.cholesky(h)
    values, vectors = torch.linalg.eigh(h)
    assert values.dtype == dtype.to_real()
    torch.testing.assert_close(vectors * values.unsqueeze(-2) @ vectors.mH, x, **close)


def test_matrix_functions_keep_the_type():
    h = Hermitian.randn(2, 4, dtype=torch.complex128) / 3
    power = torch.linalg.matrix_power
    for f in (
        torch.matrix_exp,
        lambda t: power(t, 3),
        lambda t: power(t, -2),
        lambda t: power(t, 0),
        lambda t: torch.kron(t, t),
    ):
        t = h[0] if f(torch.eye(2)).shape[-1] == 4 else h
        assert type(f(t)) is Hermitian
        torch.testing.assert_close(dense(f(t)), f(dense(t)))


FUNCTIONS = {
    "cholesky": lambda h, b: torch.linalg.cholesky(h).to_dense(),
    "upper cholesky": lambda h, b: torch.linalg.cholesky(h, upper=True).to_dense(),
    "solve": torch.linalg.solve,
    "solve right": lambda h, b: torch.linalg.solve(h, b.mT, left=False),
    "inv": lambda h, b: torch.linalg.inv(h).to_dense(),
    "cholesky_inverse": lambda h, b: torch.cholesky_inverse(torch.linalg.cholesky(h)).to_dense(),
    "logdet": lambda h, b: torch.logdet(h),
    "det": lambda h, b: torch.linalg.det(h),
    "inv_quad": lambda h, b: packedtri.inv_quad_logdet(h, b)[0],
    "square": lambda h, b: (h @ h).to_dense(),
    "product": lambda h, b: (b.mT @ h) @ (h.mT @ b),
    "elements": lambda h, b: h[..., 0, 1] * h[..., 1, :2].sum(-1) + h.diagonal(0, -2, -1).sum(-1),
    "sum": lambda h, b: h.sum() + h.sum(-1).square().sum() + torch.linalg.norm(h[0]),
    "triangles": lambda h, b: (h.tril() @ h.triu()) + h.triu(1).to_dense(),
    "exp": lambda h, b: (h.exp() * h).to_dense(),
    "matrix_exp": lambda h, b: torch.matrix_exp(h).to_dense(),
}


@wide
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives(name, wide):
    f = FUNCTIONS[name]
    p = positive(3, wide, (2,)).packed.detach().requires_grad_()
    b = torch.randn(2, 3, 2, dtype=wide, requires_grad=True)
    g = lambda p, b: f(Hermitian(p), b) + 0 * b.sum()  # noqa: E731
    check_derivatives(g, (p, b))


def test_gradients_are_hermitian_and_steps_stay_so():
    p = random((layout.numel(4),), torch.complex128)
    t = Hermitian(real_diagonal(p, layout.HERMITIAN, 4)).requires_grad_()
    x = t.detach().to_dense().requires_grad_()
    loss = lambda t: weighted_sum(dense(t @ t)) + (dense(t) * (1 + 3j)).sum().imag  # noqa: E731
    for foreach in (False, True):
        ours, theirs = (torch.optim.SGD([w], 0.1, foreach=foreach, momentum=0.9) for w in (t, x))
        for _ in range(2):
            t.grad = x.grad = None
            loss(t).backward()
            loss(x).backward()
            assert type(t.grad) is Hermitian
            assert not t.grad.packed[diagonal_index(4, t.device)].imag.any()
            x.grad = (x.grad + x.grad.mH) / 2
            torch.testing.assert_close(dense(t.grad), x.grad)
            ours.step()
            theirs.step()
            torch.testing.assert_close(dense(t.detach()), x.detach())


def test_transforms_over_the_vector():
    p = random((layout.numel(3),), torch.complex128)

    def f(p: Tensor) -> Tensor:
        h = Hermitian(p)
        return (h.mT @ h.mH @ torch.arange(3.0).to(p.dtype)).abs().sum()

    def twin(p: Tensor) -> Tensor:
        x = torch.ops.packedtri.unpack(p, 3, layout.HERMITIAN)
        return (x.mT @ x @ torch.arange(3.0).to(p.dtype)).abs().sum()

    torch.testing.assert_close(torch.func.grad(f)(p), torch.func.grad(twin)(p))
    batch = torch.stack([p, 2 * p])
    torch.testing.assert_close(torch.vmap(f)(batch), torch.stack([f(p), f(2 * p)]))
