"""Congruences F P F^T against dense products: types, values, derivatives and errors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from derivatives import check_derivatives
from torch import Tensor
from twins import MIRRORED, TYPES, called, dense, packed_vector, project, weighted_sum

import packedtri
from packedtri import Hermitian, LowerTriangular, Symmetric, layout
from packedtri.testing import random, wide_dtype

wide = pytest.mark.parametrize("wide", [torch.float64, torch.complex128])
mirrored = pytest.mark.parametrize("cls", MIRRORED)


def twin(F: Any, P: Any, trans: bool = False) -> Tensor:
    x, p = dense(F), dense(P)
    flipped = x.mH if isinstance(P, Hermitian) else x.mT
    return flipped @ p @ x if trans else x @ p @ flipped


@mirrored
def test_values(cls, dtype, device, rng):
    for m, n in ((0, 3), (3, 0), (1, 1), (2, 5), (5, 2), (17, 33), (65, 31)):
        batches = [((), ())]
        if n == 2:
            batches += [((0,), ()), ((3,), (3,)), ((2, 1), (3,)), ((), (3,)), ((4,), ())]
        for batch, other in batches:
            F = random((*batch, m, n), dtype, device, rng)
            P = cls(random((*other, layout.numel(n)), dtype, device, rng))
            wide_F, wide_P = F.to(wide_dtype(dtype)), P.to(wide_dtype(dtype))
            expected = twin(wide_F, wide_P)
            size = twin(wide_F.abs(), wide_P.abs()).abs()
            for ours in (
                packedtri.congruence(F, P),
                packedtri.congruence(F.mT if cls is Symmetric else F.mH, P, trans=True),
            ):
                assert type(ours) is cls and ours.dtype == dtype
                error = (dense(ours).to(expected.dtype) - expected).abs()
                assert (error <= (n + 8) ** 0.5 * 4 * torch.finfo(dtype).eps * size).all()


@pytest.mark.parametrize("left", TYPES)
@mirrored
@wide
def test_packed_operands(cls, left, wide, device):
    F = left.randn(2, 6, dtype=wide, device=device)
    P = cls.randn(6, dtype=wide, device=device)
    for trans in (False, True):
        ours = packedtri.congruence(F, P, trans=trans)
        assert type(ours) is cls
        torch.testing.assert_close(dense(ours), twin(F, P, trans))
    torch.testing.assert_close(dense(packedtri.congruence(P, P)), twin(P, P))


@mirrored
def test_a_matrix_is_added(cls, device):
    options = {"dtype": torch.float64, "device": device}
    F, P, C = torch.randn(2, 4, 3, **options), cls.randn(3, **options), cls.randn(2, 4, **options)
    product, twin_C = twin(F, P), dense(C)
    ours = packedtri.congruence(F, P, alpha=3, C=C, beta=0.5)
    torch.testing.assert_close(dense(ours), 3 * product + 0.5 * twin_C)
    nothing = packedtri.congruence(F, P, C=C * float("nan"), beta=0)
    torch.testing.assert_close(dense(nothing), product)
    out = C.clone()
    assert packedtri.congruence(F, P, C=out, out=out) is out
    torch.testing.assert_close(dense(out), product + twin_C)
    square = torch.randn(3, 3, **options)
    expected = twin(square, P)
    packedtri.congruence(square, P, out=P)
    torch.testing.assert_close(dense(P), expected)


@mirrored
@wide
def test_derivatives(cls, wide, device):
    F = torch.randn(2, 1, 3, 2, dtype=wide, device=device, requires_grad=True)
    p, c = (packed_vector(n, wide, b, device) for n, b in ((2, (2,)), (3, ())))
    a = torch.tensor(0.5, dtype=torch.float64, device=device, requires_grad=True)
    for f in (
        lambda F, p, c, a: packedtri.congruence(F, cls(p), alpha=a, C=cls(c), beta=2).packed,
        lambda F, p, c, a: packedtri.congruence(F.mT.mT.mT, cls(p), trans=True).packed,
        lambda F, p, c, a: packedtri.congruence(LowerTriangular(c), cls(c)).packed,
    ):
        check_derivatives(f, (F, p, c, a))


@mirrored
def test_gradients_are_those_of_the_dense_twin(cls, device):
    options = {"dtype": torch.complex128, "device": device}
    F = torch.randn(2, 4, 3, **options, requires_grad=True)
    P = cls.randn(3, **options).requires_grad_()
    x, p = F.detach().clone().requires_grad_(), dense(P).detach().requires_grad_()
    ours = torch.autograd.grad(weighted_sum(packedtri.congruence(F, P).to_dense()), (F, P))
    flipped = x.mH if cls is Hermitian else x.mT
    theirs = torch.autograd.grad(weighted_sum(x @ p @ flipped), (x, p))
    assert type(ours[1]) is cls
    torch.testing.assert_close(ours[0], theirs[0])
    torch.testing.assert_close(dense(ours[1]), project(cls, theirs[1]))


def test_transforms_and_graphs(device):
    F, p = torch.randn(5, 4, 3, device=device), torch.randn(6, device=device)
    ours = torch.vmap(lambda F: packedtri.congruence(F, Symmetric(p)).packed)(F)
    torch.testing.assert_close(ours, packedtri.congruence(F, Symmetric(p)).packed)
    compiled = torch.compile(packedtri.congruence, fullgraph=True, backend="aot_eager")
    P = Symmetric(p).requires_grad_()
    expected = packedtri.congruence(F, P)
    result = compiled(F, P)
    assert type(result) is Symmetric
    torch.testing.assert_close(dense(result), dense(expected))
    ours, theirs = (
        torch.autograd.grad(weighted_sum(r.to_dense()), P)[0] for r in (result, expected)
    )
    torch.testing.assert_close(dense(ours), dense(theirs))


def test_half_of_the_second_product_is_computed(device):
    F, P = torch.randn(4, 3, device=device), Symmetric.randn(3, device=device)
    ops = called(lambda: packedtri.congruence(F, P))
    assert ops.count("packedtri.mm.default") == 2 and len(ops) <= 4


def test_autocast():
    F, P = torch.randn(4, 3), Symmetric.randn(3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert packedtri.congruence(F, P).dtype == torch.bfloat16


def test_errors(device):
    P, H = Symmetric.eye(3, device=device), Hermitian.eye(3, device=device)
    F = torch.randn(2, 3, device=device)
    batches = F.expand(2, 2, 3), P.expand(3, 3, 3)
    for error, message, call in (
        (TypeError, "for P; got Tensor", lambda: packedtri.congruence(F, P.to_dense())),
        (TypeError, "tensor for F; got list", lambda: packedtri.congruence([1.0], P)),
        (ValueError, r"\(\.\.\., m, 3\)", lambda: packedtri.congruence(F.mT, P)),
        (ValueError, r"\(\.\.\., 3, m\)", lambda: packedtri.congruence(F, P, trans=True)),
        (ValueError, r"\(\.\.\., m, 3\)", lambda: packedtri.congruence(F[0], P)),
        (ValueError, "same dtype", lambda: packedtri.congruence(F.double(), P)),
        (ValueError, "same device", lambda: packedtri.congruence(F.to("meta"), P)),
        (ValueError, "broadcast", lambda: packedtri.congruence(*batches)),
        (ValueError, "beta is", lambda: packedtri.congruence(F, P, beta=2)),
        (ValueError, "C of order 2", lambda: packedtri.congruence(F, P, C=P)),
        (TypeError, "Hermitian for C", lambda: packedtri.congruence(F.mT @ F, H, C=P)),
        (TypeError, "complex alpha", lambda: packedtri.congruence(F, H, alpha=1j)),
        (TypeError, "no dimensions", lambda: packedtri.congruence(F, P, alpha=torch.ones(2))),
    ):
        with pytest.raises(error, match=rf"\[congruence\].*{message}"):
            call()
