"""Refined solutions and the bounds of their errors."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch
from systems import MIRRORED, TYPES, dense, make, wide
from torch import Tensor
from twins import called

from packedtri import (
    ErrorBounds,
    Hermitian,
    LowerTriangular,
    Symmetric,
    UpperTriangular,
    error_bounds,
    refine,
)
from packedtri.testing import wide_dtype

each_type = pytest.mark.parametrize("cls", TYPES)
mirrored = pytest.mark.parametrize("cls", MIRRORED)


def graded(cls: type, n: int, cond: float, dtype: torch.dtype, device: str = "cpu") -> Tensor:
    """Of about this condition number; a Hermitian, or real Symmetric, is positive definite."""
    sizes = torch.logspace(0, -torch.tensor(cond).log10().item(), n, dtype=torch.float64)
    if cls in MIRRORED:
        q, _ = torch.linalg.qr(torch.randn(n, n, dtype=dtype))
        return cls.from_dense((q * sizes) @ (q.mH if cls is Hermitian else q.mT)).to(device)
    t = cls.randn(n, dtype=dtype) / n
    return (t.set_diagonal_(sizes.to(dtype))).to(device)


def errors(x: Tensor, exact: Tensor) -> Tensor:
    return (x - exact).abs().amax(-2) / x.abs().amax(-2)


def backward_errors(A: Tensor, x: Tensor, b: Tensor) -> Tensor:
    """In long double, since a residual in double has an error as large as what is asked here."""
    wider = np.clongdouble if A.is_complex() else np.longdouble
    A_, x_, b_ = (v.resolve_conj().cpu().numpy().astype(wider) for v in (A, x, b))
    with np.errstate(invalid="ignore"):
        relative = np.abs(b_ - A_ @ x_) / (np.abs(A_) @ np.abs(x_) + np.abs(b_))
    return torch.from_numpy(np.nan_to_num(relative).max(-2).astype(np.float64)).to(A.device)


def eps(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps


@each_type
def test_bounds_hold_and_are_close(cls, dtype, device):
    """Of solutions that are wrong in the last digits, or far off."""
    for n in (1, 2, 3, 17, 40):
        A = make(cls, n, dtype, (2,), device)
        exact = torch.randn(2, n, 3, dtype=wide(A).dtype, device=device)
        b = (wide(A) @ exact).to(dtype)
        exact = torch.linalg.solve(wide(A), b.to(exact.dtype))
        work = torch.float32 if dtype.itemsize == 2 else dtype
        for size in (0.0, 1e-2):
            x = (exact + size * torch.randn_like(exact)).to(dtype)
            forward, backward = error_bounds(A, b, x)
            assert forward.dtype == backward.dtype == work.to_real()
            true = errors(x.to(exact.dtype), exact)
            # The bound is an estimate, as LAPACK's.
            assert (true <= forward * 3).all()
            if size:
                assert (forward <= 30 * true + 99 * n * eps(work)).all()
            expected = backward_errors(wide(A), x.to(exact.dtype), b.to(exact.dtype))
            torch.testing.assert_close(
                backward.to(expected), expected, rtol=1e-2, atol=4 * n * eps(work)
            )


@each_type
def test_steps_take_errors_away(cls, dtype, device):
    A = make(cls, 33, dtype, (2,), device)
    b = torch.randn(2, 33, 4, device=device).to(dtype)
    exact = torch.linalg.solve(wide(A), b.to(wide(A).dtype))
    x = (exact * (1 + 0.1 * torch.randn_like(exact))).to(dtype)
    before, found = x.clone(), refine(A, b, x)
    assert torch.equal(x, before)
    work = torch.float32 if dtype.itemsize == 2 else dtype
    assert found.dtype == work
    assert (errors(found.to(exact.dtype), exact) <= 40 * eps(work)).all()
    assert (
        backward_errors(wide(A), found.to(exact.dtype), b.to(exact.dtype)) <= 4 * eps(work)
    ).all()
    assert torch.equal(refine(A, b, x, max_steps=0), x.to(work))
    # One step divides the error by as much as a solve is exact.
    assert (errors(refine(A, b, x, max_steps=1).to(exact.dtype), exact) <= 1e-4).all()


@each_type
def test_no_step_makes_it_worse(cls, device):
    """What is as good as rounding allows stays as it is."""
    A = make(cls, 9, torch.float64, (), device)
    b = torch.randn(9, 5, dtype=torch.float64, device=device)
    x = refine(A, b, torch.zeros_like(b))
    again = refine(A, b, x)
    before, after = (backward_errors(wide(A), y, b) for y in (x, again))
    assert (after <= before + eps(torch.float64)).all()
    worse = LowerTriangular.eye(9, device=device) * 10
    if cls in MIRRORED:
        assert torch.equal(refine(A, b, b, factor=LowerTriangular(worse.packed * 1e-3)), b)


@mirrored
@pytest.mark.parametrize("low", [torch.float32, torch.bfloat16, torch.float16])
def test_factors_in_fewer_bits_give_all_bits(cls, low, device):
    cond = 1e4 if low is torch.float32 else 4
    A = graded(cls, 50, cond, torch.float64, device)
    b = torch.randn(50, 2, dtype=torch.float64, device=device)
    exact = torch.linalg.solve(dense(A), b)
    for upper in (False, True):
        L = torch.linalg.cholesky(A.to(low), upper=upper)
        x = torch.cholesky_solve(b.to(low), L, upper=upper)
        found = refine(A, b, x, factor=L)
        assert (errors(x.double(), exact) > 1e-7).any()
        assert (errors(found, exact) <= 100 * cond * eps(torch.float64)).all()
        assert (errors(found, exact) <= 3 * error_bounds(A, b, found, factor=L).forward).all()


def test_residuals_out_of_the_range_of_the_factor(device):
    S = graded(Symmetric, 9, 10, torch.float64, device) * 1e-30
    b = torch.randn(9, 1, dtype=torch.float64, device=device) * 1e-70
    L = torch.linalg.cholesky((S * 1e30).float())
    scaled = LowerTriangular(L.packed * 1e-15)
    found = refine(S, b, torch.zeros_like(b), factor=scaled)
    exact = torch.linalg.solve(dense(S), b)
    assert (errors(found, exact) < 1e-13).all()


@mirrored
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_lapack_says_the_same(cls, dtype):
    """posvx gives the bounds of the solution that it refines."""
    if cls is Symmetric and dtype.is_complex:
        pytest.skip("has no Cholesky factor")
    A = graded(cls, 20, 100, wide_dtype(dtype)).to(dtype)
    b = torch.randn(20, 3, dtype=dtype)
    (posvx,) = scipy.linalg.lapack.get_lapack_funcs(("posvx",), dtype=str(dtype)[6:])
    *_, x, _, forward, backward, info = posvx(dense(A).numpy(), b.numpy(), lower=1)
    assert info == 0
    found = error_bounds(A, b, torch.from_numpy(x))
    ratio = found.forward / torch.tensor(forward)
    assert ((ratio > 1 / 5) & (ratio < 5)).all(), ratio
    assert (found.backward <= 2 * torch.tensor(backward) + eps(dtype)).all()
    refined = error_bounds(A, b, refine(A, b, torch.linalg.solve(A, b)))
    assert (refined.backward <= 2 * torch.tensor(backward) + eps(dtype)).all()


@pytest.mark.parametrize("cls", TYPES[:2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex128])
def test_substitution_is_as_good_as_rounding_allows(cls, dtype):
    A = graded(cls, 20, 100, dtype)
    b = torch.randn(20, 3, dtype=dtype)
    x = torch.linalg.solve_triangular(A, b, upper=cls is UpperTriangular)
    found = error_bounds(A, b, x)
    exact = errors(x.to(wide(A).dtype), torch.linalg.solve(wide(A), b.to(wide(A).dtype)))
    assert (3 * found.forward >= exact).all()
    assert (found.backward <= 20 * eps(dtype)).all()


@mirrored
def test_indefinite_matrices(cls, device):
    A = graded(cls, 12, 10, torch.float64, device).add_diagonal(-0.3)
    b = torch.randn(12, 2, dtype=torch.float64, device=device)
    exact = torch.linalg.solve(dense(A), b)
    found = refine(A, b, exact * (1 + 1e-3))
    assert (errors(found, exact) < 1e-12).all()
    assert (errors(found, exact) <= 3 * error_bounds(A, b, found).forward).all()


@each_type
def test_singular_matrices_have_no_bound(cls, device):
    A, b = cls.zeros(2, 3, device=device), torch.ones(3, 1, device=device)
    x = torch.ones(2, 3, 1, device=device)
    assert torch.equal(refine(A, b, x), x)
    found = error_bounds(A, b, x)
    assert (found.forward == torch.inf).all() and (found.backward == 1).all()


@each_type
def test_zeros_and_small_numbers(cls, device):
    A = make(cls, 5, torch.float32, (), device)
    zero = torch.zeros(5, 1, device=device)
    assert torch.equal(refine(A, zero, zero), zero)
    found = error_bounds(A, zero, zero)
    assert found.backward == 0 and found.forward.isfinite().all()
    tiny = torch.full((5, 1), 1e-44, device=device)
    assert error_bounds(A, tiny, tiny).forward.isfinite().all()
    nan = torch.full((5, 1), torch.nan, device=device)
    assert error_bounds(A, tiny, nan).forward == torch.inf
    assert torch.equal(refine(A, tiny, nan), refine(A, tiny, zero))


@each_type
def test_starts_that_are_far_off(cls, device):
    """From where the first step leads to zero, or to nothing since the residual overflows."""
    b = torch.ones(3, 1, device=device)
    for size, start in ((1.0, 1e8), (1e30, 1e10), (1.0, torch.inf)):
        A = cls.eye(3, device=device) * size
        torch.testing.assert_close(refine(A, b, b * start), b / size)


@mirrored
def test_autocast_and_tf32_leave_the_precision(cls, device):
    A = graded(cls, 30, 10, torch.float64, device).float()
    b = torch.randn(30, 2, device=device)
    L = torch.linalg.cholesky(A.bfloat16())
    x = torch.cholesky_solve(b.bfloat16(), L).float()
    expected = refine(A, b, x, factor=L), *error_bounds(A, b, x, factor=L)
    with torch.autocast(device, dtype=torch.bfloat16):
        torch.set_float32_matmul_precision("medium")
        ours = refine(A, b, x, factor=L), *error_bounds(A, b, x, factor=L)
    # Other kernels may multiply then, which round otherwise, but not to fewer bits.
    for got, value in zip(ours, expected, strict=True):
        torch.testing.assert_close(got, value, rtol=1e-4, atol=1e-5)


@each_type
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_results_of_16_bits_are_taken_again(cls, dtype, device):
    A = make(cls, 9, dtype, (), device)
    b = torch.randn(9, 2, device=device).to(dtype)
    found = refine(A, b, torch.zeros_like(b))
    assert (error_bounds(A, b, found).backward <= 4 * eps(torch.float32)).all()
    torch.testing.assert_close(refine(A, b, found), found)


@each_type
def test_shapes(cls, device):
    A = make(cls, 4, torch.float64, (3, 1), device)
    b, x = torch.randn(2, 4, 5, device=device), torch.zeros(3, 2, 4, 5, device=device)
    found = refine(A, b.double(), x)
    torch.testing.assert_close(found, torch.linalg.solve(A, b.double()))
    bounds = error_bounds(A, b.double(), x)
    assert isinstance(bounds, ErrorBounds)
    assert bounds.forward.shape == bounds.backward.shape == (3, 2, 5)
    vector = refine(A[:, 0], b[0, :, 0].double(), x[:, 0, :, 0])
    torch.testing.assert_close(vector, found[:, 0, :, 0])
    bounds = error_bounds(A[:, 0], b[0, :, 0].double(), x[:, 0, :, 0])
    assert bounds.forward.shape == bounds.backward.shape == (3,)
    for shape in ((0, 4, 5), (3, 4, 0), (3, 0, 2)):
        empty = make(cls, shape[-2], torch.float32, shape[:1], device)
        none = torch.zeros(shape, device=device)
        assert refine(empty, none, none).shape == shape
        assert error_bounds(empty, none, none).forward.shape == (shape[0], shape[2])
    square = A[0, 0]
    typed = refine(square, square, torch.zeros(4, 4, device=device).double())
    torch.testing.assert_close(typed, torch.eye(4, device=device).double())


def test_nothing_is_dense_where_it_need_not_be(device):
    b = torch.ones(9, 2, device=device)
    for function in (refine, error_bounds):
        for cls in TYPES[:2]:
            A = make(cls, 9, torch.float32, (), device)
            ops = called(lambda A=A, f=function: f(A, b, b))
            assert not any("unpack.default" in op for op in ops)
        S = make(Symmetric, 9, torch.float32, (), device)
        L = torch.linalg.cholesky(S)
        ops = called(lambda S=S, L=L, f=function: f(S, b, b, factor=L))
        assert not any("unpack.default" in op or "cholesky" in op for op in ops)


def test_gradients_and_graphs(device):
    S = make(Symmetric, 6, torch.float64, (), device).requires_grad_()
    b = torch.randn(6, 2, dtype=torch.float64, device=device)
    x = torch.zeros_like(b)
    found, bounds = refine(S, b, x), error_bounds(S, b, b)
    assert not found.requires_grad and not any(t.requires_grad for t in bounds)
    plain = S.detach()
    many = torch.vmap(lambda p: refine(Symmetric(p), b, x, max_steps=3))(plain.packed[None])
    torch.testing.assert_close(many[0], found)
    many = torch.vmap(lambda p: tuple(error_bounds(Symmetric(p), b, b)))(plain.packed[None])
    torch.testing.assert_close([t[0] for t in many], list(bounds))
    compiled = torch.compile(refine, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(plain, b, x, max_steps=3), found)
    compiled = torch.compile(error_bounds, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(list(compiled(plain, b, b)), list(bounds))


@pytest.mark.parametrize("function", [refine, error_bounds])
def test_bad_arguments(function):
    L, b = LowerTriangular.eye(3), torch.ones(3, 2)
    S, Z = Symmetric.eye(3), Symmetric.eye(3, dtype=torch.complex64)
    cases = [
        (TypeError, "packed type for A; got Tensor", (torch.eye(3), b, b), None),
        (TypeError, "tensor for B; got float", (L, 1.0, b), None),
        (TypeError, "tensor for X; got NoneType", (L, b, None), None),
        (ValueError, "right-hand side", (L, torch.ones(4, 2), b), None),
        (ValueError, "right-hand side", (L, torch.ones(()), b), None),
        (ValueError, "same dtype", (L, b.double(), b), None),
        (ValueError, r"X of shape \(3, 2\)", (L, b, b[0]), None),
        (ValueError, "dtype that torch.float32 can", (L, b, b.cfloat()), None),
        (ValueError, "dtype that torch.float32 can", (L, b, b.double()), None),
        (TypeError, "Symmetric or Hermitian with a fac", (L, b, b), L),
        (TypeError, "no Cholesky", (Z, b.cfloat(), b.cfloat()), L.cfloat()),
        (TypeError, "triangular factor; got Symm", (S, b, b), S),
        (ValueError, "expected a factor of", (S, b, b), LowerTriangular.eye(4)),
        (ValueError, "expected a factor of", (S, b, b), L.cfloat()),
    ]
    for error, message, args, factor in cases:
        with pytest.raises(error, match=rf"\[{function.__name__}\].*{message}"):
            function(*args, factor=factor)
    for wrong in (-1, 1.5, None):
        with pytest.raises(ValueError, match=rf"\[refine\] expected an integer.*got {wrong}"):
            refine(L, b, b, max_steps=wrong)


def test_shapes_are_known_without_values():
    A, b = LowerTriangular.zeros(2, 3, device="meta"), torch.ones(3, 4, device="meta")
    x = torch.ones(2, 3, 4, device="meta")
    assert refine(A, b, x, max_steps=2).shape == (2, 3, 4)
    assert error_bounds(A, b, x).forward.shape == (2, 4)
