"""Powers, exponentials, roots, logarithms and Kronecker products: values, types, derivatives."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from derivatives import check_derivatives, gradgradcheck
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import gradcheck
from twins import MIRRORED, TRIANGULAR, called, dense, each_type, project

import packedtri
from packedtri import LowerTriangular, PackedTensor, Symmetric, UpperTriangular

each_triangular = pytest.mark.parametrize("cls", TRIANGULAR)
each_mirrored = pytest.mark.parametrize("cls", MIRRORED)
functions = pytest.mark.parametrize("name", ["sqrtm", "logm"])
BACK = {"sqrtm": lambda x: x @ x, "logm": torch.matrix_exp}


def positive(cls: type[PackedTensor], *size: int, dtype: torch.dtype = torch.float64):
    """Random matrices whose eigenvalues are positive and whose inverses are moderate."""
    n = size[-1]
    t = cls.randn(*size, dtype=dtype) / max(n, 1) ** 0.5
    return t.set_diagonal_(1 + torch.rand(size).to(dtype))


@each_type
def test_powers(cls):
    for n, batch in ((0, ()), (1, (2,)), (3, (0,)), (33, ()), (5, (3, 4))):
        for power in (0, 1, 2, 5, 7, -1, -3):
            t = positive(cls, *batch, n)
            t = t + 3 * cls.eye(n, dtype=t.dtype)
            ours = torch.linalg.matrix_power(t, power)
            assert type(ours) is cls and type(t.matrix_power(power)) is cls
            expected = torch.linalg.matrix_power(t.to_dense(), power)
            torch.testing.assert_close(ours.to_dense(), expected)
    t = cls.randn(3)
    t.matrix_power(1).mul_(0)
    assert t.packed.any()
    t.requires_grad_().matrix_power(0).packed.sum().backward()
    assert type(t.grad) is cls and not t.grad.packed.any()
    vmapped = torch.vmap(lambda p: cls(p).matrix_power(0).packed)(torch.rand(2, 6))
    assert torch.equal(cls(vmapped), cls.eye(2, 3))


@each_mirrored
def test_powers_of_mirrored_matrices_compute_one_triangle(cls):
    """Powers of one matrix commute, so their product is symmetric, or Hermitian, as well."""
    for dtype in (torch.float64, torch.complex128):
        t = (cls.randn(2, 33, dtype=dtype) / 6).requires_grad_()
        x = t.detach().to_dense().requires_grad_()
        for power in (2, 3, 6, 7):
            ours, expected = (torch.linalg.matrix_power(s, power) for s in (t, x))
            assert type(ours) is cls
            torch.testing.assert_close(ours.to_dense(), expected)
            weights = torch.linspace(-1, 1, x.numel(), dtype=torch.float64).reshape(x.shape)
            grads = [
                torch.autograd.grad((f * weights).sum().real, s)[0]
                for f, s in ((ours.to_dense(), t), (expected, x))
            ]
            torch.testing.assert_close(grads[0].to_dense(), project(cls, grads[1]))
        ops = called(lambda t=t: torch.linalg.matrix_power(t.detach(), 7))
        assert ops.count("packedtri.mm.default") == 4
        assert not any("unpack" in op or "aten.mm" in op or "aten.bmm" in op for op in ops)


@each_mirrored
def test_derivatives_of_complex_powers(cls):
    p = (cls.randn(3, dtype=torch.complex128) / 2).packed.clone().requires_grad_()
    apply = lambda p: torch.linalg.matrix_power(cls(p), 3).packed  # noqa: E731
    check_derivatives(apply, p)


@each_type
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_matrices(cls, dtype):
    """Torch's exponential of dense ones overflows, and it has no inverse for them."""
    t = positive(cls, 5, dtype=torch.float64)
    if cls in MIRRORED:
        t = t + 5 * cls.eye(5, dtype=t.dtype)
    t = (t / 4).to(dtype)
    for f in (torch.matrix_exp, lambda t: torch.linalg.matrix_power(t, -2)):
        ours, expected = f(t), f(t.double())
        assert type(ours) is cls and ours.dtype == dtype
        scale = float(expected.packed.abs().max())
        tolerance = 50 * torch.finfo(dtype).eps * scale
        torch.testing.assert_close(ours.double(), expected, rtol=0, atol=tolerance)


@each_type
def test_exponentials(cls):
    for size in ((0,), (1,), (33,), (3, 4, 5), (0, 2)):
        t = positive(cls, *size)
        assert type(torch.matrix_exp(t)) is type(torch.linalg.matrix_exp(t)) is cls
        torch.testing.assert_close(t.matrix_exp().to_dense(), torch.matrix_exp(t.to_dense()))


@each_type
def test_kronecker_products(cls):
    for a, b in (((2,), (3,)), ((2, 3), (2, 2)), ((0,), (2,))):
        a, b = cls.randn(*a), cls.randn(*b)
        assert type(torch.kron(a, b)) is type(a.kron(b)) is cls
        expected = torch.kron(a.to_dense(), b.to_dense())
        torch.testing.assert_close(torch.kron(a, b).to_dense(), expected)
    other = UpperTriangular if cls is LowerTriangular else LowerTriangular
    for b in (other.randn(2), torch.randn(3, 2)):
        for x, y in ((a, b), (b, a)):
            assert type(torch.kron(x, y)) is Tensor
            torch.testing.assert_close(torch.kron(x, y), torch.kron(dense(x), dense(y)))


def assert_agrees(cls, name, make, orders, dtype):
    """A function of matrices that ``make`` gives, with SciPy's and with its own inverse."""
    ours, oracle = getattr(packedtri, name), getattr(scipy.linalg, name)
    for n in orders:
        t = make(cls, n, dtype=dtype)
        result = ours(t)
        assert type(result) is cls and result.dtype == dtype
        expected = torch.from_numpy(np.asarray(oracle(t.to_dense().numpy()))).to(dtype)
        torch.testing.assert_close(result.to_dense(), expected)
    t = make(cls, 3, 4, 6, dtype=dtype)
    torch.testing.assert_close(BACK[name](ours(t)).packed, t.packed)
    for size in ((0,), (2, 0), (0, 3)):
        assert ours(cls.zeros(*size, dtype=dtype)).shape == (*size, size[-1])


@each_triangular
@functions
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex128])
def test_roots_and_logarithms(cls, name, dtype):
    assert_agrees(cls, name, positive, (1, 2, 3, 10, 33, 64), dtype)


@each_triangular
@functions
def test_wide_spectra_and_negative_eigenvalues(cls, name):
    f = getattr(packedtri, name)
    t = positive(cls, 8)
    t.set_diagonal_(torch.logspace(-6, 6, 8, dtype=torch.float64))
    back = BACK[name](f(t))
    error = torch.linalg.matrix_norm(back - t) / torch.linalg.matrix_norm(t)
    expected = torch.from_numpy(getattr(scipy.linalg, name)(t.to_dense().numpy()))
    assert error < 1e-7
    torch.testing.assert_close(f(t).to_dense(), expected, rtol=1e-9, atol=1e-9)
    t = -cls.eye(2, dtype=torch.float64)
    assert f(t).diagonal().isnan().all()
    root = {"sqrtm": 1j, "logm": np.pi * 1j}[name]
    torch.testing.assert_close(
        f(t.to(torch.complex128)).diagonal(), torch.full((2,), root, dtype=torch.complex128)
    )


@each_triangular
@functions
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_derivatives_of_roots_and_logarithms(cls, name, dtype):
    f = getattr(packedtri, name)
    p = positive(cls, 2, 3, dtype=dtype).packed.clone().requires_grad_()
    apply = lambda p: f(cls(p)).packed  # noqa: E731
    assert gradcheck(apply, p, check_forward_ad=True)
    if not dtype.is_complex:
        assert gradgradcheck(apply, p)
        q = p.detach()
        assert torch.func.jacrev(apply)(q).shape == (2, 6, 2, 6)
        torch.testing.assert_close(torch.vmap(apply)(q), apply(q))


@each_mirrored
@pytest.mark.parametrize("name", ["sqrtm", "logm", "fractional_matrix_power"])
def test_third_derivatives_by_eigenvalues_are_refused(cls, name):
    """Rather than wrong, whichever way they are taken."""
    exponent = (-0.25,) if name == "fractional_matrix_power" else ()

    def f(p: Tensor) -> Tensor:
        return getattr(packedtri, name)(cls(p), *exponent).to_dense().sin().sum()

    p = torch.tensor([4.0, 1.0, 3.0], dtype=torch.float64, requires_grad=True)
    y = f(p)
    for _ in range(2):
        (grad,) = torch.autograd.grad(y, p, create_graph=True)
        y = grad.sum()
    q = p.detach()
    for again in (torch.func.jacrev, torch.func.jacfwd):
        torch.testing.assert_close(again(again(f))(q).sum(), y.detach())
        with pytest.raises(NotImplementedError, match="first and second derivatives"):
            again(again(again(f)))(q)
    with pytest.raises(NotImplementedError, match="first and second derivatives"):
        torch.autograd.grad(y, p)


@each_type
def test_derivatives_of_powers_and_exponentials(cls):
    p = positive(cls, 2, 3).packed.clone().requires_grad_()
    for f in (
        lambda t: torch.linalg.matrix_power(t, 3).packed,
        lambda t: torch.linalg.matrix_power(t, -2).packed,
        lambda t: torch.matrix_exp(t).packed,
        lambda t: torch.kron(t[0], t[1]).packed,
    ):
        apply = lambda p, f=f: f(cls(p))  # noqa: E731
        check_derivatives(apply, p)


@functions
def test_types_that_have_no_root_of_their_type(name):
    for value in (Symmetric.eye(2, dtype=torch.complex64), torch.eye(2)):
        with pytest.raises(TypeError, match=rf"\[{name}\].*{type(value).__name__} \(2, 2\)"):
            getattr(packedtri, name)(value)


@functions
@each_type
def test_roots_and_logarithms_in_whole_graphs(cls, name):
    def f(p: Tensor) -> Tensor:
        return getattr(packedtri, name)(cls(p)).packed

    p = (positive(cls, 2, 4) + 3 * cls.eye(4, dtype=torch.float64)).packed.requires_grad_()
    expected = f(p)
    (expected_grad,) = torch.autograd.grad(expected.square().sum(), p)
    torch._dynamo.reset()
    out = torch.compile(f, backend="aot_eager", fullgraph=True)(p)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(torch.autograd.grad(out.square().sum(), p)[0], expected_grad)


@pytest.mark.parametrize("op", ["sqrt_upper", "log_upper", "exp_dense"])
def test_ops_of_dense_matrices(op):
    x = positive(UpperTriangular, 2, 4).to_dense()
    for argument in (x, x.mT.contiguous().mT, x[:0], x[..., :0, :0]):
        torch.library.opcheck(
            getattr(torch.ops.packedtri, op).default, (argument.detach().requires_grad_(),)
        )


@functions
@each_triangular
def test_roots_and_logarithms_elsewhere(cls, name):
    """Where values cannot be looked at, and whatever device is the default."""
    f, t = getattr(packedtri, name), positive(cls, 2, 4)
    expected = f(t)
    with torch.device("meta"):
        assert torch.equal(f(t).packed, expected.packed)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = f(cls(mode.from_tensor(t.packed)))
    for ours in (f(t.to("meta")), fake):
        assert type(ours) is cls and ours.shape == t.shape and ours.dtype == t.dtype


def definite(cls: type[PackedTensor], *size: int, dtype: torch.dtype) -> Any:
    """Random positive definite matrices of moderate condition."""
    t = cls.randn(*size, dtype=dtype) / max(size[-1], 1) ** 0.5
    return t.set_diagonal_((3 + torch.rand(size)).to(dtype))


@each_mirrored
@functions
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128])
def test_roots_and_logarithms_by_eigenvalues(cls, name, dtype):
    if cls is Symmetric and dtype.is_complex:
        pytest.skip("it need not have eigenvectors, and raises")
    assert_agrees(cls, name, definite, (1, 2, 3, 10, 33), dtype)
    assert getattr(packedtri, name)(-cls.eye(2, dtype=dtype)).to_dense().isnan().any()


@each_mirrored
def test_roots_of_singular_matrices(cls):
    """Eigenvalues that rounding has made negative are zero, and derivatives there stay finite."""
    x = torch.randn(2, 5, 2, dtype=torch.float64)
    t = cls.from_dense(x @ x.mT).requires_grad_()
    root = packedtri.sqrtm(t)
    torch.testing.assert_close(root @ root, t, rtol=1e-7, atol=1e-7)
    root.packed.sum().backward()
    assert t.grad.packed.isfinite().all()
    narrow = packedtri.sqrtm(cls.from_dense((x @ x.mT).float()))
    expected = root.detach().to_dense().float()
    torch.testing.assert_close(narrow.to_dense(), expected, rtol=0, atol=5e-3)
    assert torch.equal(packedtri.sqrtm(cls.zeros(3)).packed, torch.zeros(6))


@each_mirrored
def test_roots_of_many_singular_matrices(cls):
    """Rounding leaves eigenvalues of any size instead of zeros, by which nothing may be divided."""
    x = torch.randn(5000, 5, 2, dtype=torch.float64)
    t = cls.from_dense(x @ x.mT).requires_grad_()
    root = packedtri.sqrtm(t)
    scale = t.detach().to_dense().abs().amax((-2, -1))
    error = ((root @ root).to_dense() - t.to_dense()).detach().abs().amax((-2, -1))
    assert (error <= 1e-12 * scale).all()
    root.packed.sum().backward()
    smallest = torch.linalg.eigvalsh(t.detach().to_dense())[:, -2]
    bound = 30 / smallest.sqrt()
    # Rounding of the matrix itself may leave a few with an eigenvalue that is none of that of eigh.
    assert t.grad.packed.isfinite().all()
    assert (t.grad.packed.abs().amax(-1) <= bound).double().mean() > 0.99


@each_mirrored
@functions
@pytest.mark.parametrize("diagonal", [None, (2.0, 2.0, 2.0), (2.0, 2.0, 5.0), (2.0, 2.0001, 5.0)])
def test_derivatives_where_eigenvalues_are_equal(cls, name, diagonal):
    """Those of eigenvectors do not exist there; those of roots and logarithms do."""
    dtype = torch.float64 if cls is Symmetric else torch.complex128
    t = definite(cls, 3, dtype=dtype)
    if diagonal is not None:
        t = cls.zeros(3, dtype=dtype).set_diagonal_(torch.tensor(diagonal, dtype=dtype))
    p = t.packed.clone().requires_grad_()
    apply = lambda p: getattr(packedtri, name)(cls(p)).packed  # noqa: E731
    check_derivatives(apply, p)


@each_mirrored
@functions
def test_derivatives_of_matrices_of_any_size(cls, name):
    """They scale as the function does, and so does their relative error."""
    x = torch.randn(6, 6, dtype=torch.float64)
    t = cls.from_dense(x @ x.mT + torch.eye(6))
    weights = torch.randn(6, 6, dtype=torch.float64)

    def gradients(scale):
        p = (t * scale).detach().requires_grad_()
        y = (getattr(packedtri, name)(p).to_dense() * weights).sum()
        (first,) = torch.autograd.grad(y, p, create_graph=True)
        (second,) = torch.autograd.grad((first.to_dense() * weights).sum(), p)
        root = scale**0.5 if name == "sqrtm" else 1.0
        return first.detach().packed * (scale / root), second.packed * (scale / root) * scale

    expected = gradients(1.0)
    for scale in (1e-60, 1e-20, 1e-12, 3.0, 1e15, 1e60):
        torch.testing.assert_close(gradients(scale), expected, rtol=1e-9, atol=1e-9)


@each_mirrored
def test_derivatives_at_small_eigenvalues_that_are_no_rounding(cls):
    for dtype, n in ((torch.bfloat16, 200), (torch.float32, 1000)):
        t = cls.eye(n, dtype=dtype).requires_grad_()
        packedtri.sqrtm(t).diagonal().sum().backward()
        torch.testing.assert_close(t.grad.to_dense(), 0.5 * torch.eye(n, dtype=dtype))
    small = cls.eye(10).set_diagonal_(torch.tensor([1e-6] + [1.0] * 9)).requires_grad_()
    packedtri.sqrtm(small)[0, 0].backward()
    torch.testing.assert_close(small.grad[0, 0], torch.tensor(500.0))
    negative = cls.eye(64, dtype=torch.bfloat16)
    negative[0, 0] = -0.5
    assert packedtri.sqrtm(negative)[0, 0].isnan()


@pytest.mark.filterwarnings("ignore:Matrix is singular")
@each_triangular
def test_roots_between_zero_eigenvalues(cls):
    """As SciPy has them where there is one, and not finite where there is none."""
    for packed in ([0, 0, 0], [0, 0, 0, 0, 0, 4], [0, 0, 0, 1, 1, 4], [0, 0, 4, 0, 1, 0]):
        t = cls(torch.tensor(packed, dtype=torch.float64))
        expected = torch.from_numpy(scipy.linalg.sqrtm(t.to_dense().numpy()))
        torch.testing.assert_close(packedtri.sqrtm(t).to_dense(), expected)
    assert not packedtri.sqrtm(cls(torch.tensor([0.0, 1.0, 0.0]))).packed[1].isfinite()
    zeros = cls(torch.tensor([[0.0, nan, 0.0], [0.0, inf, 0.0]]))
    assert not packedtri.sqrtm(zeros).packed[:, 1].isfinite().any()
    p = torch.tensor([0, 0, 4, 0, 1, 9], dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(packedtri.sqrtm(cls(p)).packed[4], p)
    torch.testing.assert_close(grad[4], torch.tensor(0.2, dtype=torch.float64))


@pytest.mark.parametrize("cls", [LowerTriangular, UpperTriangular])
def test_second_derivatives_of_tiny_triangles(cls):
    def second(scale):
        t = cls.from_dense(torch.tensor([[2.0, 1], [1, 3]], dtype=torch.float64) * scale)
        p = t.requires_grad_()
        (g,) = torch.autograd.grad(packedtri.logm(p).to_dense().sum(), p, create_graph=True)
        return torch.autograd.grad(g.packed.sum(), p)[0].packed * scale * scale

    torch.testing.assert_close(second(1e-150), second(1.0))


@each_mirrored
@functions
def test_batches_of_tangents(cls, name):
    def f(x):
        return getattr(packedtri, name)(cls.from_dense((x + x.mT) / 2)).to_dense()

    x = 2 * torch.eye(3, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian
    forward = jacobian(f, x, vectorize=True, strategy="forward-mode")
    torch.testing.assert_close(forward, jacobian(f, x))


@each_mirrored
def test_values_that_are_not_finite_are_the_same_where_they_are_recorded(cls):
    t = cls.from_dense(torch.diag(torch.tensor([0.0, 1.0])))
    for function in (packedtri.logm, packedtri.sqrtm):
        recorded = function(t.clone().requires_grad_()).detach()
        torch.testing.assert_close(recorded.packed, function(t).packed, equal_nan=True)


def test_roots_of_singular_products_in_float32():
    for seed in range(20):
        a = torch.randn(2, 20000, generator=torch.Generator().manual_seed(seed))
        root = packedtri.sqrtm(packedtri.syrk(torch.cat([a, a.sum(0, keepdim=True)])))
        assert root.packed.isfinite().all()
