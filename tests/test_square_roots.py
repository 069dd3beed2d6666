"""tria: triangular square roots of A A^H by QR."""

from __future__ import annotations

import pytest
import torch
from derivatives import check_derivatives
from twins import TYPES, dense, weighted_sum

from packedtri import LowerTriangular, tria
from packedtri.testing import epsilon, random, wide_dtype

wide = pytest.mark.parametrize("wide", [torch.float64, torch.complex128])
SIZES = ((0, 0), (0, 3), (3, 0), (1, 1), (1, 4), (2, 5), (5, 2), (5, 5), (17, 16), (33, 70))


def test_values(dtype, device, rng):
    for n, k in SIZES:
        for batch in ((), (0,), (2, 1)) if n == 5 else ((),):
            A = random((*batch, n, k), dtype, device, rng)
            L = tria(A)
            assert type(L) is LowerTriangular and L.dtype == dtype
            assert L.shape == (*batch, n, n)
            x, factor = A.to(wide_dtype(dtype)), dense(L).to(wide_dtype(dtype))
            size = x.abs().square().sum(-1).sqrt()
            error = (factor @ factor.mH - x @ x.mH).abs()
            bound = 8 * (n + k) * epsilon(dtype)
            assert (error <= bound * size.unsqueeze(-1) * size.unsqueeze(-2)).all()
            diagonal = factor.diagonal(0, -2, -1)
            assert torch.equal(diagonal, diagonal.abs().to(diagonal.dtype))
            assert not dense(L)[..., k:].any()


@pytest.mark.parametrize("cls", TYPES)
@wide
def test_packed_operands_and_rows_side_by_side(cls, wide, device):
    A = cls.randn(2, 5, dtype=wide, device=device)
    both = torch.cat((dense(A), torch.randn(2, 5, 3, dtype=wide, device=device)), -1)
    for x in (A, both):
        L = dense(tria(x))
        torch.testing.assert_close(L @ L.mH, dense(x) @ dense(x).mH)


def test_the_condition_is_not_squared(device):
    """A Cholesky factor of A A^T has no correct digit here, or does not exist."""
    options = {"dtype": torch.float64, "device": device}
    scales = torch.logspace(0, -12, 6, **options)
    expected = torch.randn(6, 6, **options).tril(-1) + torch.eye(6, **options)
    expected = scales[:, None] * expected
    rotation = torch.linalg.qr(torch.randn(6, 6, **options)).Q
    ours = dense(tria(expected @ rotation))
    torch.testing.assert_close(ours / scales[:, None], expected / scales[:, None])


@wide
def test_derivatives(wide, device):
    for n, k in ((3, 2), (3, 3), (2, 4), (1, 2)):
        A = torch.randn(2, n, k, dtype=wide, device=device, requires_grad=True)
        check_derivatives(lambda A: tria(A).packed, (A,))


@wide
def test_gradients_are_those_of_the_cholesky_factor(wide, device):
    A = torch.randn(3, 4, 6, dtype=wide, device=device, requires_grad=True)
    (ours,) = torch.autograd.grad(weighted_sum(tria(A).to_dense()), A)
    (theirs,) = torch.autograd.grad(weighted_sum(torch.linalg.cholesky(A @ A.mH)), A)
    torch.testing.assert_close(ours, theirs)


def test_transforms_and_graphs(device):
    A = torch.randn(5, 3, 4, device=device, requires_grad=True)
    ours = torch.vmap(lambda A: tria(A).packed)(A)
    torch.testing.assert_close(ours, tria(A).packed)
    (expected,) = torch.autograd.grad(tria(A).packed.square().sum(), A)
    each = torch.vmap(torch.func.grad(lambda A: tria(A).packed.square().sum()))(A)
    torch.testing.assert_close(each, expected)
    compiled = torch.compile(tria, fullgraph=True, backend="aot_eager")
    result = compiled(A)
    assert type(result) is LowerTriangular
    torch.testing.assert_close(dense(result), dense(tria(A)))
    (grad,) = torch.autograd.grad(result.packed.square().sum(), A)
    torch.testing.assert_close(grad, expected)


def test_a_root_without_derivatives_has_none(device):
    A = torch.zeros(2, 3, device=device, requires_grad=True)
    (grad,) = torch.autograd.grad(tria(A).packed.sum(), A)
    assert not grad.isfinite().all()


def test_errors(device):
    for error, message, call in (
        (TypeError, "expected a tensor; got list", lambda: tria([1.0])),
        (TypeError, "expected one of float16", lambda: tria(torch.ones(2, 2, dtype=torch.long))),
        (ValueError, r"\(\.\.\., n, k\); got Tensor \(2,\)", lambda: tria(torch.ones(2))),
    ):
        with pytest.raises(error, match=rf"\[tria\].*{message}"):
            call()
