"""Sums of a triangle and its own transpose, which are Symmetric or Hermitian."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from derivatives import gradgradcheck
from torch import Tensor
from torch.autograd import forward_ad as fwad
from torch.autograd import gradcheck
from twins import TRIANGULAR, called, dense, packed_vector, project, weighted_sum

from packedtri import Hermitian, LowerTriangular, PackedTensor, Symmetric

each_triangular = pytest.mark.parametrize("cls", TRIANGULAR)


def sums(t: PackedTensor) -> list[Tensor]:
    """Every way to add a triangle and its transpose, then the conjugate one."""
    results = []
    for twin in (t.mT, t.mH):
        results += [t + twin, twin + t, torch.add(t, twin), twin.add(t), t.__radd__(twin)]
    return results


@each_triangular
def test_sums(cls, dtype, device):
    for n in (0, 1, 2, 3, 5, 17):
        for batch in ((), (0,), (2, 1)):
            t = cls.randn(*batch, n, dtype=dtype, device=device)
            for i, ours in enumerate(sums(t)):
                conjugate = i >= 5 and dtype.is_complex
                assert type(ours) is (Hermitian if conjugate else Symmetric)
                x = dense(t)
                assert torch.equal(dense(ours), x + (x.mH if conjugate else x.mT))


@each_triangular
def test_only_the_same_tensor_makes_it_symmetric(cls, device):
    t = cls.randn(3, dtype=torch.float64, device=device, requires_grad=True)
    with torch.no_grad():
        unrecorded = t.mT
    eyes = cls.eye(2, 3, dtype=torch.float64, device=device)
    for other in (t.detach().mT, unrecorded, t.clone().mT, (2 * t).mT, eyes.mT):
        x, y = (dense(s).detach().requires_grad_() for s in (t, other))
        ours, theirs = t + other, x + y
        assert type(ours) is Tensor
        torch.testing.assert_close(ours, theirs)
        (ours,) = torch.autograd.grad(weighted_sum(t + other.detach()), t)
        (theirs,) = torch.autograd.grad(weighted_sum(theirs), x)
        torch.testing.assert_close(dense(ours), project(cls, theirs))
    with fwad.dual_level():
        dual = fwad.make_dual(t.detach(), cls.randn(3, dtype=torch.float64, device=device))
        assert type(dual + t.detach().mT) is Tensor
        assert type(dual + dual.mT) is Symmetric
    scaled = torch.add(t, t.mT, alpha=2)
    assert type(scaled) is Tensor
    torch.testing.assert_close(scaled, dense(t) + 2 * dense(t).mT)


@pytest.mark.parametrize("wide", [torch.float64, torch.complex128])
@each_triangular
def test_derivatives(cls, wide, device):
    p = packed_vector(3, wide, (2,), device)
    for f in (lambda p: cls(p) + cls(p).mT, transposed_sum(cls), adjoint_sum(cls)):
        assert gradcheck(lambda p: dense(f(p)), (p,), check_forward_ad=True)  # noqa: B023
        assert gradgradcheck(lambda p: dense(f(p)).square(), (p,))  # noqa: B023
    for f in (transposed_sum(cls), adjoint_sum(cls)):
        assert isinstance(f(p), PackedTensor)


def transposed_sum(cls: type) -> Callable[[Tensor], Tensor]:
    def f(p: Tensor) -> Tensor:
        t = cls(p)
        return t.mT + t

    return f


def adjoint_sum(cls: type) -> Callable[[Tensor], Tensor]:
    def f(p: Tensor) -> Tensor:
        t = cls(p)
        return t + t.mH

    return f


@each_triangular
def test_gradients_are_those_of_the_dense_twin(cls, device):
    t = cls.randn(2, 4, dtype=torch.complex128, device=device).requires_grad_()
    x = dense(t).detach().requires_grad_()
    for ours, theirs in ((t + t.mT, x + x.mT), (t.mH + t, x.mH + x)):
        assert isinstance(ours, PackedTensor)
        (ours,) = torch.autograd.grad(weighted_sum(ours.to_dense()), t)
        (theirs,) = torch.autograd.grad(weighted_sum(theirs), x)
        torch.testing.assert_close(dense(ours), project(cls, theirs))


def test_a_sum_in_graphs_and_transforms(device):
    f = torch.compile(lambda t: t + t.mT, fullgraph=True, backend="aot_eager")
    t = LowerTriangular.randn(4, device=device, requires_grad=True)
    assert type(f(t)) is Symmetric
    assert torch.equal(dense(f(t)), dense(t + t.mT))
    p = torch.randn(5, 10, device=device)
    ours = torch.vmap(lambda p: transposed_sum(LowerTriangular)(p).packed)(p)
    torch.testing.assert_close(ours, transposed_sum(LowerTriangular)(p).packed)


def test_no_dense_matrix_is_made(device):
    t = LowerTriangular.randn(5, device=device)
    assert not any("pack.default" in op for op in called(lambda: t + t.mT))
