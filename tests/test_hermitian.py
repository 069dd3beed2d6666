"""Hermitian: its storage, elements and products, with SciPy's hp routines."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from derivatives import check_derivatives
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import blas
from torch import Tensor
from torch.autograd import forward_ad as fwad
from twins import dense, packed_vector, weighted_sum

import packedtri
from packedtri import Hermitian, LowerTriangular, Symmetric, UpperTriangular, layout
from packedtri._bands import diagonal_index, real_diagonal
from packedtri.layout import HERMITIAN
from packedtri.testing import densify, epsilon, random, random_integers, wide_dtype

COMPLEX = (torch.complex64, torch.complex128)
WIDE = (torch.float64, torch.complex128)
SIZES = (0, 1, 2, 3, 31, 33, 65)
each_complex = pytest.mark.parametrize("dtype", COMPLEX)
wide = pytest.mark.parametrize("wide", WIDE)


def make(n: int, dtype: torch.dtype, batch=(), device="cpu", rng=None) -> Hermitian:
    """With imaginary parts stored on the diagonal, which nothing may read."""
    return Hermitian(random((*batch, layout.numel(n)), dtype, device, rng))


def stored_imaginary(h: Hermitian) -> Tensor:
    return h.packed[..., diagonal_index(h.n, h.device)].imag


# ----------------------------------------------------------------------------------------- storage


def test_one_triangle_and_its_conjugate():
    h = Hermitian(torch.tensor([1 + 9j, 2 + 3j, 4 - 9j]))
    assert torch.equal(h.to_dense(), torch.tensor([[1, 2 - 3j], [2 + 3j, 4]]))
    assert repr(h) == "Hermitian([[1.+0.j, 2.-3.j],\n           [2.+3.j, 4.+0.j]])"
    assert h[0, 1] == 2 - 3j and h[1, 0] == 2 + 3j and h[1, 1] == 4
    assert h.mH is h and type(h.mT) is Hermitian
    assert h.mT.packed.data_ptr() == h.packed.data_ptr()
    assert torch.equal(h.mT.to_dense(), h.conj().to_dense())


def test_what_makes_hermitian_matrices_makes_real_diagonals():
    h, generator = make(5, torch.complex64), torch.Generator().manual_seed(1)
    for made in (
        Hermitian.from_dense(torch.randn(3, 3, dtype=torch.complex64)),
        Hermitian.randn(4, dtype=torch.complex64, generator=generator),
        h @ h,
        h + h,
        h.exp(),
        packedtri.herk(torch.randn(4, 7, dtype=torch.complex64)),
        torch.linalg.inv(packedtri.herk(torch.randn(6, 6, dtype=torch.complex64))),
        h.clone().mul_(2),
        torch._foreach_add([h], [h])[0],
    ):
        assert type(made) is Hermitian and not stored_imaginary(made).any()


def test_check_finds_what_is_not_hermitian(rng):
    x = Hermitian.randn(2, 4, dtype=torch.complex128, generator=rng).to_dense()
    Hermitian.from_dense(x, check=True)
    for i, j in ((0, 3), (2, 2)):
        wrong = x.clone()
        wrong[1, i, j] += 1j
        with pytest.raises(ValueError, match=rf"Hermitian.from_dense\] element \(1, {i}, {j}\)"):
            Hermitian.from_dense(wrong, check=True)
    with pytest.raises(ValueError, match="Hermitian"):
        Hermitian.from_dense(Symmetric.randn(3, dtype=torch.complex64).to_dense(), check=True)


def test_assignments_conjugate_and_refuse(rng):
    h = Hermitian.zeros(3, dtype=torch.complex128)
    h[0, 2] = 1 + 2j
    h[1, 1] = 3
    h[2, :2] = torch.tensor([1 - 2j, 5j])
    expected = torch.tensor([[0, 0, 1 + 2j], [0, 3, -5j], [1 - 2j, 5j, 0]], dtype=h.dtype)
    assert torch.equal(h.to_dense(), expected)
    h[:2, :2] = torch.tensor([[1, 2j], [-2j, 1]])
    assert h[1, 0] == -2j
    with pytest.raises(ValueError, match="another value"):
        h[:2, :2] = torch.tensor([[1, 2j], [2j, 1]])
    for write in (
        lambda: h.set_diagonal_(torch.full((3,), 1j, dtype=h.dtype)),
        lambda: h.fill_diagonal_(1j),
        lambda: h.__setitem__((1, 1), 1j),
    ):
        with pytest.raises(ValueError, match="diagonal is real"):
            write()
    assert h.set_diagonal_(torch.ones(3, dtype=h.dtype)).diagonal().eq(1).all()


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h.mul_(2j), lambda h: h.add_(1j), lambda h: h.fill_(1j), lambda h: h.sqrt_(),
        lambda h: h.add_(h, alpha=1j), lambda h: h.div_(torch.tensor(1j)), lambda h: h.log_(),
        lambda h: torch._foreach_mul_([h], 2j), lambda h: torch._foreach_sqrt_([h]),
        lambda h: h.__imul__(1j), lambda h: h.__iadd__(1j), lambda h: h.addcmul_(h, h, value=1j),
    ],
)  # fmt: skip
def test_changes_that_are_not_hermitian_are_refused(change):
    h = Hermitian.randn(3, dtype=torch.complex64)
    before = h.to_dense()
    with pytest.raises(NotImplementedError, match="Hermitian"):
        change(h)
    assert torch.equal(h.to_dense(), before)


def test_in_place_products_ignore_what_is_stored_on_the_diagonal(rng):
    h, g = (make(4, torch.complex128, rng=rng) for _ in range(2))
    x, y = dense(h), dense(g)
    torch.testing.assert_close(dense(h.mul_(g)), x * y)
    torch._foreach_addcmul_([h], [g], [g])
    torch.testing.assert_close(dense(h), x * y + y * y)
    assert torch.equal(g, Hermitian.from_dense(y)) and torch.allclose(g, Hermitian.from_dense(y))
    assert torch.ops.aten.equal(g, Hermitian.from_dense(y))


def test_elementwise_types(rng):
    h, s = make(4, torch.complex128, rng=rng), Hermitian.randn(4)
    for kept in (h + h, h - 2, 2 * h, h / 3, h * h, h.exp(), h.abs(), h.real, h**2, -h, h.sin(),
                 torch.tensor(2.0) * h, s.sqrt(), s * s, s.exp(), 1 / h,
                 torch.full_like(h, 2)):  # fmt: skip
        assert type(kept) is Hermitian
    for lost in (1j * h, h * (1 + 1j), h + 1j, torch.tensor(1j) * h, h.sqrt(), h.log(), h.imag,
                 h.angle(), h * torch.ones(4, 4), h + Symmetric.eye(4), h**0.5, h**-1.5,
                 torch.add(h, h, alpha=2j), torch.complex(s, s),
                 torch.full_like(h, 2j)):  # fmt: skip
        assert type(lost) is Tensor


@each_complex
def test_storage_and_pickling(dtype, tmp_path):
    h, file = make(5, dtype, (2,)), tmp_path / "h.pt"
    torch.save([h, h.mT], file)
    again, transposed = torch.load(file, weights_only=True)
    assert type(again) is Hermitian and torch.equal(again, h)
    assert torch.equal(transposed.to_dense(), h.mT.to_dense())


# ---------------------------------------------------------------------------------------- products


def routine(name: str, dtype: torch.dtype) -> Any:
    return getattr(blas, ("z" if dtype == torch.complex128 else "c") + name)


@each_complex
def test_products_with_vectors_are_those_of_blas(dtype, rng):
    for n in SIZES[1:]:
        h, x = make(n, dtype, rng=rng), random((n,), dtype, "cpu", rng)
        for uplo in "LU":
            ap = h.to_lapack(uplo).numpy()
            expected = routine("hpmv", dtype)(n, 1, ap, x.numpy(), lower=uplo == "L")
            tolerance = {"rtol": 0, "atol": 40 * n * epsilon(dtype)}
            torch.testing.assert_close(h @ x, torch.from_numpy(expected), **tolerance)
            torch.testing.assert_close(
                (x.conj() @ h).conj(), torch.from_numpy(expected), **tolerance
            )


@each_complex
def test_squares_are_hermitian(dtype, device, rng):
    for n, batch in ((0, ()), (1, (2,)), (33, (2, 1)), (70, ())):
        for cls in (LowerTriangular, UpperTriangular, Symmetric):
            a = cls(random((*batch, layout.numel(n)), dtype, device, rng))
            for c, x in (
                (a @ a.mH, dense(a)),
                (a.mH @ a, dense(a).mH),
                (a.conj() @ a.mT, dense(a).conj()),
            ):
                assert type(c) is Hermitian, cls
                torch.testing.assert_close(dense(c), x @ x.mH, rtol=1e-4, atol=1e-3)
        h = make(n, dtype, batch, device, rng)
        for c in (h @ h, h @ h.mH, h.mH @ h):
            assert type(c) is Hermitian
            torch.testing.assert_close(dense(c), dense(h) @ dense(h), rtol=1e-4, atol=1e-3)
        assert type(h @ h.mT) is type(h @ h.clone()) is Tensor


def test_constant_adjoints_leave_products_dense(device):
    t = LowerTriangular.randn(3, dtype=torch.complex128, device=device, requires_grad=True)
    for constant in (t.detach().mH, t.mH.detach()):
        assert type(t @ constant) is Tensor
    x = t.detach()
    assert type(x @ x.mH.detach()) is Hermitian
    with fwad.dual_level():
        dual = fwad.make_dual(x, LowerTriangular.randn(3, dtype=x.dtype, device=device))
        assert type(dual @ x.mH) is Tensor
        assert type(dual @ dual.mH) is Hermitian


def test_a_compiled_square_has_the_type_of_an_eager_one():
    t = LowerTriangular.randn(4, dtype=torch.complex128, requires_grad=True)
    f = lambda t: t @ t.mH  # noqa: E731
    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")(t)
    assert type(compiled) is type(f(t)) is Hermitian
    torch.testing.assert_close(compiled.to_dense(), f(t).to_dense())
    h = Hermitian.randn(4, dtype=torch.complex128, requires_grad=True)
    g = lambda h: weighted_sum((h @ h + h.mT * 2 - h.mH).to_dense())  # noqa: E731
    ours = torch.compile(g, fullgraph=True, backend="aot_eager")(h)
    (ours_grad,), (grad,) = (torch.autograd.grad(y, h) for y in (ours, g(h)))
    assert type(ours_grad) is Hermitian
    torch.testing.assert_close(dense(ours_grad), dense(grad))


@each_complex
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_no_imaginary_part_of_the_diagonal_is_read(value, dtype, device, rng):
    for n in (1, 5, 33, 130):
        clean = Hermitian(real_diagonal(make(n, dtype, (), device, rng).packed, HERMITIAN, n))
        spoiled = clean.packed.clone()
        spoiled.imag[diagonal_index(n, spoiled.device)] = value
        h = Hermitian(spoiled)
        x, y = (random((n, k), dtype, device, rng) for k in (1, 7))
        for f in (
            lambda t: t.to_dense(), lambda t, x=x: t @ x, lambda t, x=x: x.mT @ t,
            lambda t, y=y: t @ y, lambda t, y=y: y.mT @ t, lambda t: t @ t, lambda t: t.sum(),
            lambda t: t + t, lambda t: t.norm(), lambda t: t.exp(), lambda t: t.diagonal(),
            lambda t: torch.linalg.cholesky_ex(t).info,
        ):  # fmt: skip
            assert torch.equal(dense(f(h)), dense(f(clean)))


# -------------------------------------------------------------------------------------- herk, her2k


def test_herk(dtype, device, rng):
    for n, k, batch in ((0, 3, ()), (1, 1, ()), (3, 0, ()), (5, 33, (3, 1)), (65, 7, ())):
        a = random_integers((*batch, n, k), dtype, device, rng)
        x = a.to(wide_dtype(dtype))
        for c in (packedtri.herk(a), packedtri.herk(a.mH, trans=True)):
            assert type(c) is Hermitian
            assert torch.equal(dense(c), (x @ x.mH).to(dtype)), f"{n} x {k} {batch}"


@pytest.mark.parametrize("cls", [LowerTriangular, UpperTriangular, Symmetric, Hermitian])
def test_herk_of_packed_types(cls, dtype, device, rng):
    a = cls(random_integers((2, layout.numel(9)), dtype, device, rng))
    x = dense(a).to(wide_dtype(dtype))
    assert torch.equal(dense(packedtri.herk(a)), (x @ x.mH).to(dtype))
    assert torch.equal(dense(packedtri.herk(a, trans=True)), (x.mH @ x).to(dtype))


def test_herk_and_her2k_add_to_a_matrix(device, rng):
    dtype = torch.complex128
    a, b = (random((2, 4, 3), dtype, device, rng) for _ in range(2))
    C = make(4, dtype, (2,), device, rng)
    twin, close = dense(C), torch.testing.assert_close
    for trans in (False, True):
        x, y = (a.mH, b.mH) if trans else (a, b)
        alpha = 1 + 2j
        both = alpha * (a @ b.mH) + (alpha * (a @ b.mH)).mH
        for beta in (None, 0, 0.5):
            added = twin * (1 if beta is None else beta)
            one = packedtri.herk(x, alpha=-3, beta=beta, C=C, trans=trans)
            two = packedtri.her2k(x, y, alpha=alpha, beta=beta, C=C, trans=trans)
            close(dense(one), -3 * a @ a.mH + added)
            close(dense(two), both + added)
            assert not stored_imaginary(one).any() and not stored_imaginary(two).any()
    out = C.clone()
    assert packedtri.herk(a, C=out, out=out) is out
    close(dense(out), a @ a.mH + twin)
    assert packedtri.her2k(a, b, out=out) is out
    close(dense(out), a @ b.mH + b @ a.mH)
    nan = Hermitian(torch.full_like(C.packed, torch.nan))
    assert not dense(packedtri.herk(a, C=nan, beta=0)).isnan().any()
    real = torch.randn(4, 3, device=device)
    close(dense(packedtri.her2k(real, 2 * real)), 4 * real @ real.mT)


def test_errors_of_herk_and_her2k():
    a, s, h = torch.randn(3, 2), Symmetric.eye(3), Hermitian.eye(3)
    z = a.to(torch.complex64)
    for error, message, call in (
        (
            TypeError,
            "herk.*expected a Hermitian for C; got Symmetric",
            lambda: packedtri.herk(a, C=s),
        ),
        (
            TypeError,
            "syrk.*expected a Symmetric for C; got Hermitian",
            lambda: packedtri.syrk(a, C=h),
        ),
        (TypeError, "herk.*complex alpha.*alpha=1j", lambda: packedtri.herk(z, alpha=1j)),
        (TypeError, "her2k.*complex beta.*beta=1j", lambda: packedtri.her2k(z, z, C=h, beta=1j)),
        (ValueError, "her2k.*real alpha", lambda: packedtri.her2k(a, a, alpha=1j)),
        (ValueError, "herk.*beta is the factor", lambda: packedtri.herk(a, beta=2)),
        (ValueError, "herk.*C of order 3", lambda: packedtri.herk(a, C=Hermitian.eye(2))),
        (ValueError, "herk.*out of shape", lambda: packedtri.herk(z, out=h)),
        (ValueError, "her2k.*one shape", lambda: packedtri.her2k(a, a.mT)),
        (TypeError, "herk.*expected a tensor", lambda: packedtri.herk(2.0)),
    ):
        with pytest.raises(error, match=message):
            call()
    with pytest.raises(RuntimeError, match="out="):
        packedtri.herk(a.requires_grad_(), out=h)


@wide
def test_derivatives_of_herk_her2k_and_forms(wide, device):
    a, b = (torch.randn(2, 3, 2, dtype=wide, device=device, requires_grad=True) for _ in range(2))
    p = packed_vector(3, wide, (2,), device)
    x = torch.randn(2, 3, dtype=wide, device=device, requires_grad=True)
    alpha = 2 - 1j if wide.is_complex else 2
    for f, inputs in (
        (lambda a, p: packedtri.herk(a, alpha=2, C=Hermitian(p), beta=-1).to_dense(), (a, p)),
        (lambda a, b: packedtri.her2k(a, b, alpha=alpha).to_dense(), (a, b)),
        (lambda p: packedtri.herk(LowerTriangular(p)).to_dense(), (p,)),
        (lambda p: packedtri.herk(Symmetric(p), trans=True).to_dense(), (p,)),
        (lambda p: packedtri.herk(Hermitian(p)).to_dense(), (p,)),
        (lambda p, x: packedtri.quadratic_form(Hermitian(p), x), (p, x)),
        (lambda p, x: packedtri.bilinear_form(x, Hermitian(p), x * 2), (p, x)),
    ):
        check_derivatives(f, inputs)


# ------------------------------------------------------------------------------------- Hypothesis


@st.composite
def matrices(draw: Any) -> tuple[Hermitian, ...]:
    n, dtype = draw(st.integers(0, 9)), draw(st.sampled_from((torch.float64, *COMPLEX)))
    batch = draw(st.sampled_from(((), (1,), (2,))))
    rng = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    shape = (*batch, layout.numel(n))
    return tuple(Hermitian(random_integers(shape, dtype, "cpu", rng)) for _ in range(2))


@given(matrices())
def test_algebra(pair):
    a, b = pair
    x, y = dense(a), dense(b)
    assert torch.equal(dense(a), dense(a).mH)
    assert torch.equal(dense(a @ b), x @ y) and torch.equal(dense(b @ a), (x @ y).mH)
    assert torch.equal(dense(a @ a), x @ x) and torch.equal(dense(a + b), x + y)
    # The Jordan product of Hermitian matrices is Hermitian, their commutator is not.
    assert torch.equal(dense(packedtri.her2k(x, y)), x @ y + y @ x)
    assert torch.equal(dense(a.mT), x.mT) and torch.equal(dense(a.conj().mT), x)
    for i, j in itertools.product(range(min(a.n, 3)), repeat=2):
        assert torch.equal(a[..., i, j], x[..., i, j])
    assert torch.equal(densify(a.packed, a.n, layout.HERMITIAN), x)
    trace = torch.linalg.diagonal(a).sum(-1)
    assert torch.equal(trace, x.diagonal(0, -2, -1).sum(-1))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_complex_numbers_for_each_matrix_leave_the_type(dtype):
    """Neither sums with them nor choices or weights are Hermitian, whatever their shape."""
    a, b = Hermitian.randn(2, 3, dtype=dtype), Hermitian.randn(2, 3, dtype=dtype)
    mask = torch.tensor([True, False])[:, None, None]
    for number in (torch.tensor(1j), torch.full((2, 1, 1), 1j), torch.tensor([1j])):
        number = number.to(torch.complex128)
        for f in (
            lambda x, y, c=number: x + c, lambda x, y, c=number: c - x,
            lambda x, y, c=number: torch.where(mask, x, c),
            lambda x, y: torch.where(mask, x, 1j),
        ):  # fmt: skip
            torch.testing.assert_close(f(a, b), f(a.to_dense(), b.to_dense()))
        if dtype.is_complex:
            found = torch.lerp(a, b, number)
            torch.testing.assert_close(found, torch.lerp(a.to_dense(), b.to_dense(), number))
