"""Factorizations of packed types: Cholesky and its updates, and those that convert to dense."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from derivatives import check_derivatives
from torch import Tensor

import packedtri
from packedtri import Hermitian, LowerTriangular, Symmetric, UpperTriangular
from packedtri.layout import UPPER
from packedtri.ops.dense import functions
from packedtri.testing import densify, epsilon, random, wide_dtype

WIDE = (torch.float64, torch.complex128)
OPS = torch.ops.packedtri
LinAlgError = torch.linalg.LinAlgError
BATCHES = [(), (0,), (1,), (3, 4), (2, 1)]


def positive(n, dtype, batch=(), device="cpu", rng=None) -> Symmetric:
    """A matrix whose lower triangle is that of a positive definite one."""
    a = random((*batch, n, n), dtype, device, rng) / max(1, n) ** 0.5
    a = a.to(wide_dtype(dtype))
    return Symmetric.from_dense((a @ a.mH + torch.eye(n, device=device)).to(dtype))


def hermitian(s: Symmetric) -> Tensor:
    """The matrix that Cholesky factorizations read of the lower triangle."""
    lower = densify(s._packed, s.n, 0).to(wide_dtype(s.dtype))
    return lower.tril(-1) + lower.tril(-1).mH + torch.diag_embed(lower.diagonal(0, -2, -1).real)


def assert_factor(factor: Any, s: Symmetric, case: str = "") -> None:
    """L L^H = S for a lower factor; U^H U is the matrix of the upper triangle, its conjugate."""
    assert factor.shape == s.shape and factor.dtype == s.dtype, case
    a, f = hermitian(s), densify(factor._packed, s.n, factor.kind).to(wide_dtype(s.dtype))
    product = (f.mH @ f).conj() if type(factor) is UpperTriangular else f @ f.mH
    if s.numel():
        ratio = (product - a).norm() / (a.norm() * s.n * epsilon(s.dtype))
        assert ratio < 30, f"{case}: residual {ratio}"


@pytest.mark.parametrize("upper", [False, True])
def test_cholesky(upper, dtype, device, rng):
    cls = UpperTriangular if upper else LowerTriangular
    for n in (0, 1, 2, 3, 31, 33, 64, 65, 129):
        s = positive(n, dtype, (), device, rng)
        found = [torch.linalg.cholesky(s, upper=upper), torch.linalg.cholesky_ex(s, upper=upper).L]
        found += [f(s, upper) for f in functions("cholesky")]
        for factor in found:
            assert type(factor) is cls
            assert_factor(factor, s, f"n={n}")


@pytest.mark.parametrize("batch", BATCHES)
def test_batches(batch, device, rng):
    for n in (1, 5, 70):
        s = positive(n, torch.float64, batch, device, rng)
        assert_factor(torch.linalg.cholesky(s), s)
        factor, info = torch.linalg.cholesky_ex(s)
        assert info.shape == batch and type(factor) is LowerTriangular


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("dtype", WIDE)
def test_cholesky_of_the_dense_twin(upper, dtype, rng):
    """Torch reads one triangle too, so that even a complex S has the factor of its twin."""
    s = positive(6, dtype, (2,), "cpu", rng)
    expected = torch.linalg.cholesky(s.to_dense(), upper=upper)
    torch.testing.assert_close(torch.linalg.cholesky(s, upper=upper).to_dense(), expected)


@pytest.mark.parametrize("cls", [LowerTriangular, UpperTriangular])
def test_cholesky_inverse(cls, dtype, device, rng):
    upper = cls.kind == UPPER
    for n, batch in ((1, ()), (4, (3,)), (65, ())):
        s = positive(n, dtype, batch, device, rng)
        factor = torch.linalg.cholesky(s, upper=upper)
        for inverse in (torch.cholesky_inverse(factor, upper), factor.cholesky_inverse(upper)):
            assert type(inverse) is (Hermitian if dtype.is_complex else Symmetric)
            a = hermitian(s).conj() if upper else hermitian(s)
            d = inverse.to_dense()
            error = (d.to(a.dtype) - torch.linalg.inv(a)).norm() / torch.linalg.inv(a).norm()
            assert error < 100 * epsilon(dtype), f"n={n}: {error / epsilon(dtype)} epsilon"


@pytest.mark.parametrize("batch", [(), (2,)])
def test_the_error_names_the_failing_minor(batch, device):
    s = Symmetric.eye(4, device=device).to_dense().expand(*batch, 4, 4).clone()
    s[..., 2, 2] = -1
    packed = Symmetric.from_dense(s)
    for f in (torch.linalg.cholesky, *functions("cholesky")):
        with pytest.raises(LinAlgError) as expected:
            f(s)
        with pytest.raises(LinAlgError) as got:
            f(packed)
        assert str(got.value) == str(expected.value)
        assert "order 3" in str(got.value)
    assert (torch.linalg.cholesky_ex(packed).info == 3).all()
    with pytest.raises(LinAlgError, match="order 3"):
        torch.linalg.cholesky_ex(packed, check_errors=True)


# -------------------------------------------------------------------------------------- derivatives


@pytest.mark.parametrize("wide", WIDE)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_derivatives_of_the_op(batch, wide):
    p = positive(3, wide, batch).packed.detach().requires_grad_()
    f = lambda p: OPS.cholesky(p, 3)[0]  # noqa: E731
    check_derivatives(f, p)


def test_opcheck(device):
    p = positive(4, torch.float32, (2,), device).packed.detach().requires_grad_()
    torch.library.opcheck(OPS.cholesky.default, (p, 4))


@pytest.mark.parametrize("upper", [False, True])
def test_gradients_are_those_of_the_dense_twin(upper, device, rng):
    """Real ones: for complex S torch takes the change of its argument for a Hermitian one."""
    s = positive(5, torch.float64, (2,), device, rng).detach().requires_grad_()
    d = s.detach().to_dense().requires_grad_()
    ours, theirs = (torch.linalg.cholesky(x, upper=upper) for x in (s, d))
    weight = torch.randn_like(theirs)
    (ours.to_dense() * weight).sum().abs().backward()
    (theirs * weight).sum().abs().backward()
    assert type(s.grad) is Symmetric
    torch.testing.assert_close(s.grad.to_dense(), (d.grad + d.grad.mT) / 2)


def test_torch_func_and_compile(rng):
    p = positive(4, torch.float64, (), "cpu", rng).packed

    def f(p: Tensor) -> Tensor:
        return torch.linalg.cholesky(Symmetric(p)).packed

    batch = torch.stack([p, 2 * p])
    torch.testing.assert_close(torch.vmap(f)(batch), torch.stack([f(p), f(2 * p)]))
    jacobians = torch.func.jacrev(f)(p), torch.func.jacfwd(f)(p)
    torch.testing.assert_close(*jacobians)
    compiled = torch.compile(torch.linalg.cholesky, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(Symmetric(p)).packed, f(p))


# ------------------------------------------------------------------------------------------ updates


@pytest.mark.parametrize("downdate", [False, True])
@pytest.mark.parametrize("rank", [None, 1, 3])
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_cholesky_update(batch, rank, downdate, device, rng):
    for dtype, n in ((torch.float32, 20), (torch.float64, 70), (torch.complex128, 7)):
        s = positive(n, dtype, batch, device, rng)
        shape = (*batch, n) if rank is None else (*batch, n, rank)
        x = random(shape, dtype, device, rng) / (4 * n**0.5)
        columns = x.unsqueeze(-1) if rank is None else x
        factor = torch.linalg.cholesky(s)
        changed = packedtri.cholesky_update(factor, x, downdate=downdate)
        assert type(changed) is LowerTriangular
        sign, wide = -1 if downdate else 1, wide_dtype(dtype)
        columns = columns.to(wide)
        expected = torch.linalg.cholesky(hermitian(s) + sign * columns @ columns.mH)
        error = (changed.to_dense().to(wide) - expected).norm() / expected.norm()
        assert error < 50 * epsilon(dtype), f"{error / epsilon(dtype)} epsilon"


@pytest.mark.parametrize("wide", WIDE)
@pytest.mark.parametrize("downdate", [False, True])
def test_cholesky_update_differentiates(downdate, wide, device):
    factor = torch.linalg.cholesky(positive(3, wide, (2,), device))
    x = torch.randn(2, 3, 2, dtype=wide, device=device) / 8

    def f(p: Tensor, x: Tensor) -> Tensor:
        return packedtri.cholesky_update(LowerTriangular(p), x, downdate=downdate).packed

    # A factor has a real diagonal; that of an argument which is none may be anything.
    inputs = factor.packed.detach().requires_grad_(), x.requires_grad_()
    check_derivatives(f, inputs)


def test_an_update_tells_what_shape_it_was_given(device):
    factor, batch = (LowerTriangular.eye(4, device=device).expand(*b, 4, 4) for b in ((), (2,)))
    for L, shape in (
        (factor, (3,)), (factor, (3, 2)), (batch, (3, 4)), (batch, (3, 4, 1)), (factor, ()),
    ):  # fmt: skip
        x = torch.ones(shape, device=device)
        with pytest.raises(ValueError, match=re.escape(f"Tensor {shape}")):
            packedtri.cholesky_update(L, x)


def test_an_update_does_not_square_the_condition(device):
    """L L^T is singular to working precision here, and could not be factored again."""
    n = 10
    factor = LowerTriangular.randn(n, device=device) * 0.1
    i = torch.arange(n, device=device)
    factor.packed[i * (i + 3) // 2] = torch.where(i % 3 == 1, 1e-4, 1.0)
    x = torch.randn(n, device=device)
    ours = packedtri.cholesky_update(factor, x).to_dense().double()
    wide = factor.to_dense().double()
    expected = torch.linalg.cholesky(wide @ wide.mT + torch.outer(x, x).double())
    assert (ours @ ours.mT - expected @ expected.mT).norm() / expected.norm() ** 2 < 1e-5


def test_downdating_undoes_an_update(dtype, device, rng):
    factor = torch.linalg.cholesky(positive(50, dtype, (2,), device, rng))
    x = random((2, 50, 2), dtype, device, rng) / 8
    there = packedtri.cholesky_update(factor, x)
    back = packedtri.cholesky_update(there, x, downdate=True)
    assert (back - factor).packed.abs().max() < 50 * epsilon(dtype)


@pytest.mark.parametrize("downdate", [False, True])
def test_opcheck_update(downdate, device):
    p = torch.linalg.cholesky(positive(4, torch.float32, (2,), device)).packed
    x = torch.randn(4, 2, device=device) / 9
    inputs = p.detach().requires_grad_(), x.requires_grad_()
    torch.library.opcheck(OPS.cholesky_update.default, (*inputs, 4, downdate))


def test_update_under_vmap(device, rng):
    factor = torch.linalg.cholesky(positive(4, torch.float64, (3,), device, rng))
    x = random((4, 3), torch.float64, device, rng)

    def f(p: Tensor, x: Tensor) -> Tensor:
        return packedtri.cholesky_update(LowerTriangular(p), x).packed

    expected = torch.stack([f(p, v) for p, v in zip(factor.packed, x.mT, strict=True)])
    torch.testing.assert_close(torch.vmap(f, (0, 1))(factor.packed, x), expected)


def test_a_failing_downdate_raises(device):
    eye, x = LowerTriangular.eye(40, device=device), torch.zeros(40, device=device)
    x[36] = 2
    with pytest.raises(LinAlgError, match="leading minor of order 37"):
        packedtri.cholesky_update(eye, x, downdate=True)


def test_cholesky_update_errors():
    eye, x = LowerTriangular.eye(3), torch.ones(3)
    with pytest.raises(TypeError, match="expected a tensor for x; got list"):
        packedtri.cholesky_update(LowerTriangular.eye(1), [1.0])
    with pytest.raises(ValueError, match="batch dimensions"):
        packedtri.cholesky_update(LowerTriangular.eye(2, 3), torch.ones(3, 3, 1))
    with pytest.raises(TypeError, match=r"expected a LowerTriangular .* got UpperTriangular"):
        packedtri.cholesky_update(eye.mT, x)
    for wrong in (torch.ones(4), x.double(), torch.tensor(1.0)):
        with pytest.raises(ValueError, match="expected x of shape"):
            packedtri.cholesky_update(eye, wrong)
    for L, other in ((eye, x.to("meta")), (eye.to("meta"), x)):
        with pytest.raises(ValueError, match=f"on {L.device} .* on {other.device}"):
            packedtri.cholesky_update(L, other)
    with pytest.raises(LinAlgError, match="leading minor of order 2"):
        packedtri.cholesky_update(LowerTriangular.zeros(3), x)


# ----------------------------------------------------------------------------------- through dense


@pytest.mark.parametrize(
    "function",
    ["ldl_factor", "ldl_factor_ex", "lu_factor", "lu_factor_ex", "eigh", "eigvalsh", "eigvals"],
)
def test_factorizations_that_unpack(function, rng):
    s = positive(5, torch.float64, (2,), "cpu", rng)
    f = getattr(torch.linalg, function)
    ours, theirs = f(s), f(s.to_dense())
    torch.testing.assert_close(ours, theirs)


def test_solves_with_factors_that_were_unpacked(rng):
    s, b = positive(5, torch.float64, (), "cpu", rng), torch.randn(5, 2, dtype=torch.float64)
    for solver, factors in (
        (torch.linalg.ldl_solve, torch.linalg.ldl_factor(s)),
        (torch.linalg.lu_solve, torch.linalg.lu_factor(s)),
    ):
        torch.testing.assert_close(solver(*factors, b), torch.linalg.solve(s.to_dense(), b))
        other = LowerTriangular.eye(5, dtype=torch.float64)
        expected = torch.linalg.inv(s).to_dense().tril(5)
        torch.testing.assert_close(solver(*factors, other), expected)
