"""Autograd through conjugates and negatives that torch keeps lazy."""

from __future__ import annotations

import itertools

import pytest
import torch
from derivatives import gradgradcheck
from torch import Tensor
from torch.autograd import gradcheck
from twins import dense, each_type, packed_vector, project, weighted_sum

from packedtri import Hermitian, LowerTriangular
from packedtri._bands import real_diagonal


def test_conj_in_place_is_differentiated(device):
    t = LowerTriangular.randn(3, dtype=torch.complex128, device=device, requires_grad=True)
    x = t.detach().to_dense().requires_grad_()
    for value in (t, x):
        m = value.clone()
        m.conj().mul_(2j)
        weighted_sum(dense(m)).backward()
    torch.testing.assert_close(t.grad.to_dense(), x.grad.tril())


LAZY_USES = {
    "mH": lambda w: w @ w.mH,
    "conj": lambda w: w.conj() @ w,
    "conj of the stored elements": lambda w: type(w)(w.packed.conj()) @ w * 2,
    "conj in place": lambda w: conj_in_place(w) @ w.mH,
    "neg of the conj": lambda w: w.conj() * w - (-w.conj()),
    "real multiple of the conj in place": lambda w: w.clone().conj().mul_(2).add_(w),
}


def conj_in_place(w: Tensor) -> Tensor:
    m = w.clone()
    m.conj().mul_(2j).add_(w)
    return m


@pytest.mark.parametrize("use", LAZY_USES)
@each_type
def test_lazy_conjugates_accumulate_and_train(cls, use, device):
    """A conjugate is lazy, and the sums that the engine and the optimizers form must read it."""
    f = LAZY_USES[use]
    if cls is Hermitian and use == "conj in place":
        with pytest.raises(NotImplementedError, match="not Hermitian"):
            f(cls.randn(3, dtype=torch.complex128, device=device))
        return
    for options in ({"foreach": False}, {"foreach": True}):
        t = cls.randn(3, dtype=torch.complex128, device=device, requires_grad=True)
        x = t.detach().to_dense().requires_grad_()
        x.register_hook(lambda g: project(cls, g))
        twin = f if use != "conj of the stored elements" else LAZY_USES["conj"]
        factor = 2 if use == "conj of the stored elements" else 1
        optimizers = [torch.optim.SGD([w], lr=0.1, momentum=0.9, **options) for w in (t, x)]
        for _ in range(2):
            for _ in range(2):
                for y in (f(t), twin(x) * factor):
                    weighted_sum((dense(y) * (1 + 2j)).mT).backward()
            torch.testing.assert_close(t.grad.to_dense(), x.grad)
            for optimizer in optimizers:
                optimizer.step()
            torch.testing.assert_close(t.detach().to_dense(), x.detach())


@each_type
@pytest.mark.parametrize("foreach", [False, True])
def test_optimizers_that_need_a_view_of_real_numbers_raise(cls, foreach):
    """Their steps would go to a dense copy and be lost."""
    t = cls.randn(3, dtype=torch.complex64).requires_grad_()
    before = t.detach().clone()
    optimizer = torch.optim.Adam([t], lr=0.1, foreach=foreach)
    weighted_sum(t.to_dense()).backward()
    with pytest.raises(NotImplementedError, match=r"view_as_real.*SGD"):
        optimizer.step()
    assert torch.equal(t.detach(), before)


@each_type
def test_derivatives_through_lazy_stored_elements(cls, device):
    b = packed_vector(3, torch.complex128, device=device)
    c = torch.randn(6, dtype=torch.complex128, device=device)

    def f(b: Tensor) -> Tensor:
        # What is stored beside a real diagonal has no derivative.
        b = real_diagonal(b, cls.kind, 3)
        t = cls(b)
        return (t.packed.conj() * c + t.packed * c * c + cls(b.conj()).packed).abs()

    assert gradcheck(f, (b,)) and gradgradcheck(f, (b,))


def test_in_place_on_lazy_views(device):
    x = torch.randn(6, dtype=torch.complex128, device=device)
    for lazy, op in itertools.product(
        (torch.conj, torch._neg_view),
        (
            lambda t, u: t.mul_(2j),
            lambda t, u: t.add_(u),
            lambda t, u: u.sub_(t),
            lambda t, u: torch._foreach_mul_([t], 2j),
            lambda t, u: torch._foreach_addcmul_([t], [t], [u]),
            lambda t, u: torch._foreach_add_([u], [t]),
        ),
    ):
        source = x.clone()
        t, u = LowerTriangular(lazy(source)), LowerTriangular(source * 3)
        # Torch's own list operations refuse to write lazy tensors.
        p, q = lazy(source).clone(), source * 3
        op(t, u)
        op(p, q)
        for ours, expected in ((t.packed, p), (u.packed, q), (lazy(source), p)):
            torch.testing.assert_close(ours.clone(), expected)
