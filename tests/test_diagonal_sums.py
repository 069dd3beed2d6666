"""add_diagonal and add_diagonal_ against sums with dense diagonal matrices."""

from __future__ import annotations

import numpy
import pytest
import torch
from derivatives import gradgradcheck
from torch import Tensor
from torch.autograd import gradcheck
from twins import Sizes, called, dense, each_type, packed_vector, project, weighted_sum

from packedtri import Hermitian, LowerTriangular, Symmetric

wide = pytest.mark.parametrize("wide", [torch.float64, torch.complex128])


@each_type
def test_sums(cls, dtype, device):
    for n in (0, 1, 2, 3, 5, 17):
        for batch in ((), (0,), (2, 3)):
            t = cls.randn(*batch, n, dtype=dtype, device=device)
            real = dtype.to_real() if cls is Hermitian else dtype
            for shape in ((), (n,), (1,), (*batch, n), (*batch, 1)):
                values = torch.randn(shape, dtype=real, device=device)
                ours = t.add_diagonal(values)
                assert type(ours) is cls and ours.dtype == dtype
                twin = dense(t) + torch.diag_embed(values.to(dtype).expand(*batch, n))
                assert torch.equal(dense(ours), twin)
                changed = t.clone()
                assert changed.add_diagonal_(values) is changed
                assert torch.equal(dense(changed), twin)


@each_type
def test_numbers_are_not_rounded_before(cls, device):
    t = cls.zeros(2, dtype=torch.float64, device=device)
    for number in (0.1, 3, True):
        expected = number * torch.eye(2, dtype=torch.float64, device=device)
        assert torch.equal(dense(t.add_diagonal(number)), expected)
    z = cls.zeros(2, dtype=torch.complex128, device=device)
    if cls is not Hermitian:
        assert dense(z.add_diagonal(0.1 + 0.2j))[1, 1] == 0.1 + 0.2j


@each_type
def test_more_diagonals_make_more_matrices(cls, device):
    t, values = cls.randn(2, 1, 3, device=device), torch.randn(5, 3, device=device)
    ours = t.add_diagonal(values)
    assert type(ours) is cls and ours.shape == (2, 5, 3, 3)
    assert torch.equal(dense(ours), dense(t) + torch.diag_embed(values))


@wide
@each_type
def test_derivatives(cls, wide, device):
    real = wide.to_real() if cls is Hermitian else wide
    p = packed_vector(3, wide, (2,), device)
    v = torch.randn(3, dtype=real, device=device, requires_grad=True)
    number = torch.randn((), dtype=real, device=device, requires_grad=True)

    def in_place(p: Tensor, v: Tensor, number: Tensor) -> Tensor:
        t = cls(p) * 1
        return t.add_diagonal_(v).add_diagonal_(number).packed

    def sums(p: Tensor, v: Tensor, number: Tensor) -> Tensor:
        return (cls(p).add_diagonal(v) * cls(p).add_diagonal(number)).packed

    assert gradcheck(sums, (p, v, number), check_forward_ad=True)
    # In place, types do not take part in both modes at once, as gradcheck has them.
    assert gradcheck(in_place, (p, v, number))
    for f in (sums, in_place):
        assert gradgradcheck(f, (p, v, number))


@each_type
def test_gradients_are_those_of_the_dense_twin(cls, device):
    t = cls.randn(2, 4, dtype=torch.complex128, device=device).requires_grad_()
    v = torch.randn(4, dtype=torch.complex128, device=device)
    v = (v.real + 0j if cls is Hermitian else v).requires_grad_()
    x = dense(t).detach().requires_grad_()
    ours = torch.autograd.grad(weighted_sum(t.add_diagonal(v).to_dense()), (t, v))
    theirs = torch.autograd.grad(weighted_sum(x + torch.diag_embed(v)), (x, v))
    torch.testing.assert_close(dense(ours[0]), project(cls, theirs[0]))
    torch.testing.assert_close(ours[1], theirs[1])


def test_transforms_and_graphs(device):
    p, values = torch.randn(6, device=device), torch.randn(5, 3, device=device)
    ours = torch.vmap(lambda v: Symmetric(p).add_diagonal(v).packed)(values)
    torch.testing.assert_close(ours, Symmetric(p).add_diagonal(values).packed)
    S = Symmetric(p).requires_grad_()

    def f(S: Symmetric, v: Tensor) -> Symmetric:
        return (S.add_diagonal(v) * 1).add_diagonal_(0.1)

    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    expected, result = f(S, values[0]), compiled(S, values[0])
    assert type(result) is Symmetric and torch.equal(dense(result), dense(expected))
    (grad,) = torch.autograd.grad(weighted_sum(result.to_dense()), S)
    (expected,) = torch.autograd.grad(weighted_sum(expected.to_dense()), S)
    torch.testing.assert_close(dense(grad), dense(expected))


def test_no_dense_matrix_is_made(device):
    S, v = Symmetric.randn(5, device=device), torch.randn(5, device=device)
    assert not any("pack.default" in op for op in called(lambda: S.add_diagonal_(v)))


@each_type
def test_leaves_and_shared_elements(cls, device):
    t = cls.randn(3, device=device)
    view = t.mT
    t.add_diagonal_(1)
    torch.testing.assert_close(dense(view), dense(t).mT)
    with pytest.raises(RuntimeError, match="leaf"):
        t.requires_grad_().add_diagonal_(1)


def test_errors(device):
    def ones(*shape: int) -> Tensor:
        return torch.ones(shape, device=device)

    S = Symmetric.eye(2, 3, device=device)
    H = Hermitian.eye(3, dtype=torch.complex64, device=device)
    one = LowerTriangular.eye(1, device=device)
    for error, message, call in (
        (TypeError, "got Symmetric", lambda: S.add_diagonal(S)),
        (TypeError, "got list", lambda: S.add_diagonal([1.0])),
        (
            ValueError,
            r"broadcast with \(2, 3\); got Tensor \(2,\)",
            lambda: S.add_diagonal(ones(2)),
        ),
        (ValueError, r"broadcast with \(2, 3\)", lambda: S.add_diagonal(ones(4, 3))),
        (ValueError, r"broadcast to \(2, 3\)", lambda: S.add_diagonal_(ones(4, 1, 3))),
        (ValueError, r"broadcast with \(1,\)", lambda: one.add_diagonal(ones(4))),
        (ValueError, "expected real values", lambda: S.add_diagonal(1j)),
        (ValueError, "expected real values", lambda: S.add_diagonal(numpy.complex64(1j))),
        (ValueError, "expected real values", lambda: S.add_diagonal_(ones(3) * 1j)),
        (ValueError, "imaginary", lambda: H.add_diagonal(1j)),
        (ValueError, "imaginary", lambda: H.add_diagonal_(ones(3) * 1j)),
        (ValueError, "got meta", lambda: S.add_diagonal(ones(3).to("meta"))),
    ):
        with pytest.raises(error, match=message):
            call()


@each_type
@pytest.mark.parametrize(
    "change",
    [
        lambda t, v: t.add_diagonal_(v),
        lambda t, v: t.add_diagonal_(0.5),
        lambda t, v: t.set_diagonal_(v),
        lambda t, v: t.fill_diagonal_(2.0),
    ],
    ids=["add values", "add a number", "set", "fill"],
)
def test_the_rest_is_neither_read_nor_written(cls, change, device):
    """Autograd hears of the change all the same, and so do views."""
    t = cls.randn(4, dtype=torch.float64, device=device)
    values, before = t.packed[:4], dense(t).clone()  # The values change with the matrix.
    twin = change(cls.from_dense(before), values.clone())
    view = t.mT
    with Sizes() as sizes:
        assert change(t, values) is t
    assert sizes.most <= t.n
    torch.testing.assert_close(dense(t), dense(twin))
    torch.testing.assert_close(dense(view), dense(t).mT)
    rest = ~torch.eye(4, dtype=torch.bool, device=device)
    assert torch.equal(dense(t)[rest], before[rest]) and not torch.equal(dense(t), before)
    t.requires_grad_()
    y = (t * t).to_dense().sum()
    with torch.no_grad():
        change(t, values.detach())
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        y.backward()


@each_type
def test_matrices_that_share_memory_are_not_changed_together(cls, device):
    same = cls.randn(3, device=device).expand(2, 3, 3)
    for change in (same.add_diagonal_, same.set_diagonal_):
        with pytest.raises(RuntimeError, match="single memory location"):
            change(torch.ones(3, device=device))
