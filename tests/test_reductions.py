"""Sums, means, extremes, traces and norms against their dense twins: values, types, gradients."""

from __future__ import annotations

from collections.abc import Callable
from math import floor, inf, log2, nan

import pytest
import scipy.linalg
import torch
from derivatives import check_derivatives
from torch import Tensor
from twins import MIRRORED, TRIANGULAR, TYPES, called, dense, each_type, project

from packedtri import Hermitian, LowerTriangular, layout, rcond
from packedtri.ops import reduce
from packedtri.testing import DTYPES, epsilon, wide_dtype

DIMS = (None, 0, -1, -2, (-1, -2), (0, -1), (0, 1), (-2,), (0, -1, -2), ())


def cases() -> dict[str, Callable[[Tensor], Tensor]]:
    found: dict[str, Callable[[Tensor], Tensor]] = {
        "max": torch.max, "min": lambda t: t.min(), "sum": torch.sum, "mean": lambda t: t.mean(),
        "sum dtype": lambda t: t.float().sum(-1, dtype=torch.float64),
        "norm": torch.norm, "norm 1": lambda t: t.norm(1), "norm inf": lambda t: torch.norm(t, inf),
        "norm dim": lambda t: torch.norm(t, dim=(-2, -1)), "linalg.norm": torch.linalg.norm,
    }  # fmt: skip
    for dim in DIMS:
        for name in ("sum", "mean", "amax", "amin"):
            for keep in (False, True):
                f = getattr(torch, name)
                # Some functions take no None.
                found[f"{name} {dim} {keep}"] = lambda t, f=f, dim=dim, keep=keep: f(
                    t, () if dim is None else dim, keepdim=keep
                )
        for ord in (2, 1, 3, inf):
            found[f"vector_norm {ord} {dim}"] = lambda t, ord=ord, dim=dim: (
                torch.linalg.vector_norm(t, ord, dim or None, keepdim=True)
            )
    for ord in ("fro", "nuc", 1, -1, 2, -2, inf, -inf):
        for dims in ((-2, -1), (-1, -2)):
            found[f"matrix_norm {ord} {dims}"] = lambda t, ord=ord, dims=dims: (
                torch.linalg.matrix_norm(t, ord, dims)
            )
        found[f"linalg.norm {ord}"] = lambda t, ord=ord: torch.linalg.norm(t, ord, (-2, -1), True)
    return found


@each_type
@pytest.mark.parametrize("shape", [(3, 1), (3, 4, 2), (2, 1, 33)])
def test_values_and_gradients(cls, shape):
    for name, f in cases().items():
        t = cls.randn(*shape, dtype=torch.float64, requires_grad=True)
        twin = t.detach().to_dense().requires_grad_()
        try:
            expected = f(twin)
        except (IndexError, RuntimeError):
            with pytest.raises((IndexError, RuntimeError)):
                f(t)
            continue
        ours = f(t)
        torch.testing.assert_close(dense(ours), expected, msg=lambda m, name=name: f"{name}: {m}")
        weight = torch.randn_like(expected)
        (a,) = torch.autograd.grad((dense(ours) * weight).sum(), t)
        (b,) = torch.autograd.grad((expected * weight).sum(), twin)
        # This gradient is float32 on its way, where the halves of a mirrored one are added.
        rough = {"rtol": 1e-5, "atol": 1e-6} if name == "sum dtype" else {}
        torch.testing.assert_close(
            dense(a), project(cls, b), msg=lambda m, name=name: f"{name}: {m}", **rough
        )


@each_type
def test_sums_over_batches_keep_the_type(cls):
    t = cls.randn(2, 3, 4)
    assert type(t.sum(0)) is type(t.mean((0, 1))) is type(t.sum(1, keepdim=True)) is cls
    assert t.sum(1, keepdim=True).shape == (2, 1, 4, 4)
    assert type(t.sum(-1)) is type(t.sum((0, -1))) is Tensor


@each_type
def test_empty_matrices_and_batches(cls):
    for t in (cls.zeros(0), cls.zeros(0, 3), cls.zeros(2, 0)):
        for f in (torch.sum, lambda t: t.sum(-1), lambda t: t.sum(0), torch.norm):
            assert torch.equal(dense(f(t)), f(t.to_dense()))
        assert t.mean().isnan()
        with pytest.raises(RuntimeError):
            t.max()


@each_type
def test_all_dtypes(cls, dtype, rng):
    t = cls.randn(2, 129, dtype=dtype, generator=rng)
    wide = t.to_dense().to(wide_dtype(dtype))
    # Torch sums the squares of complex elements one after another: it strays from the norm by tens
    # of epsilons, too far for a reference. Their real and imaginary parts have the same norm.
    parts = torch.view_as_real(wide).flatten(-2) if wide.is_complex() else wide
    for f, operand in (
        (lambda t: t.sum((-2, -1)), wide),
        (lambda t: t.sum(-1), wide),
        (lambda t: t.mean(-2), wide),
        (lambda t: torch.linalg.matrix_norm(t), parts),
        (lambda t: torch.linalg.matrix_norm(t, 1), wide),
        (lambda t: torch.linalg.matrix_norm(t, -inf), wide),
        (lambda t: t.diagonal(0, -2, -1).sum(-1), wide),
    ):
        ours, reference = f(t), f(operand)
        assert ours.dtype == f(t.to_dense()).dtype
        theirs = (f(t.to_dense()).to(reference.dtype) - reference).abs().max()
        floor = 32 * epsilon(dtype) * max(1.0, wide.abs().sum(-1).max().item())
        assert (ours.to(reference.dtype) - reference).abs().max() <= 2 * theirs + floor
    assert len(DTYPES) == 6


@each_type
def test_higher_derivatives_and_forward_mode(cls):
    p = torch.randn(2, 6, dtype=torch.float64, requires_grad=True)
    for f in (
        lambda t: t.sum(-1),
        lambda t: t.sum((-2, -1)),
        lambda t: t.mean(0).to_dense(),
        lambda t: torch.linalg.matrix_norm(t),
        lambda t: torch.linalg.matrix_norm(t, 1),
        lambda t: t[0].trace(),
    ):
        loss = lambda p, f=f: f(cls(p)).pow(2).sum()  # noqa: E731
        check_derivatives(loss, p)


@each_type
def test_sums_do_not_round_under_autocast(cls):
    t = cls.randn(100)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        sums = t.sum(-1)
    torch.testing.assert_close(sums, t.to_dense().sum(-1))


@each_type
@pytest.mark.parametrize("ord", [2, 3.0, 0.5, inf])
def test_the_order_of_a_norm_in_a_tensor(cls, ord):
    """It is a number, whose own dtype says nothing."""
    t, number = cls.randn(2, 5, dtype=torch.float64), torch.tensor(ord)
    x = t.to_dense()
    for f in (torch.linalg.vector_norm, torch.norm, lambda t, p: torch._foreach_norm([t], p)[0]):
        torch.testing.assert_close(f(t, number), f(x, number), rtol=1e-12, atol=0)


@each_type
@pytest.mark.parametrize("keepdim", [False, True])
def test_norms_into_a_given_tensor(cls, keepdim, device):
    t = cls.randn(2, 3, device=device)
    for f, x in (
        (torch.linalg.vector_norm, t),
        (torch.linalg.vector_norm, t[0]),
        (lambda x, **k: torch.linalg.vector_norm(x, 3, (-2, -1), **k), t),
        (lambda x, **k: torch.linalg.vector_norm(x, inf, (-2, -1), **k), t),
        (torch.linalg.matrix_norm, t),
        (torch.linalg.norm, t),
    ):
        expected = f(x.to_dense(), keepdim=keepdim)
        for shape in ((0,), expected.shape):
            out = torch.empty(shape, device=device)
            assert f(x, keepdim=keepdim, out=out) is out
            torch.testing.assert_close(out, expected)
        with pytest.raises(RuntimeError, match="dtype"):
            f(x, keepdim=keepdim, out=out.to(torch.int64))


@each_type
def test_norms_are_computed_in_the_dtype_asked_for(cls):
    large = cls(torch.full((3,), 60000.0, dtype=torch.float16))
    double = torch.float64
    for f in (
        lambda t: torch.linalg.vector_norm(t, dtype=torch.float32),
        lambda t: torch.linalg.vector_norm(t, 3, dtype=double),
        lambda t: torch.linalg.matrix_norm(t, "fro", dtype=torch.float32),
        lambda t: torch.linalg.matrix_norm(t, 1, dtype=torch.float32),
        lambda t: torch.linalg.norm(t, dtype=double),
        lambda t: torch.linalg.norm(t, inf, dtype=torch.float32),
        lambda t: torch.norm(t, dtype=torch.float32),
        lambda t: t.norm(1, dtype=double),
    ):  # fmt: skip
        torch.testing.assert_close(f(large), f(large.to_dense()))
    for f in (torch.linalg.vector_norm, torch.linalg.matrix_norm, torch.linalg.norm):
        for own, asked in (
            (double, torch.float32), (torch.float32, torch.complex64),
            (torch.complex64, torch.float32),
        ):  # fmt: skip
            for t in (cls.eye(2, dtype=own), torch.eye(2, dtype=own)):
                with pytest.raises(RuntimeError, match="dtype"):
                    f(t, dtype=asked)
        assert f(cls.eye(2, dtype=torch.complex64), dtype=torch.complex128).dtype == double


@pytest.mark.parametrize("cls", TRIANGULAR)
def test_extremes_share_their_gradient_with_structural_zeros(cls):
    for elements in ([0, 0, 0], [0, -1, -2], [-1, -1, -2], [1, 1, 0], [-inf, 0, 0], [0, 0, inf],
                     [nan, 0, 1], [0, 2, 0]):  # fmt: skip
        for sign in (1, -1):
            p = sign * torch.tensor([elements, [0, 0, -3]], dtype=torch.float64)
            for f in (torch.amax, torch.amin):
                for dim in ((0, 1, 2), (-1, -2)):
                    t = cls(p).requires_grad_()
                    twin = t.detach().to_dense().requires_grad_()
                    ours, expected = f(t, dim), f(twin, dim)
                    torch.testing.assert_close(ours, expected, equal_nan=True)
                    ours.sum().backward()
                    expected.sum().backward()
                    torch.testing.assert_close(
                        t.grad.to_dense(),
                        project(cls, twin.grad),
                        rtol=1e-14,
                        atol=0,
                        equal_nan=True,
                    )
    p = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.functional.jvp(lambda p: cls(p).max(), p, torch.ones_like(p))[1] == 0.75
    assert torch.autograd.grad(cls(p).half().min(), p)[0].tolist() == [0.25] * 3


@each_type
@pytest.mark.parametrize("f", [torch.max, torch.min, Tensor.max, Tensor.min])
def test_nan_elements_get_the_gradient_of_an_extreme(cls, f):
    for elements in ([1, nan, 3], [nan, -1, 3], [nan, 0, nan], [0, 1, nan]):
        p = torch.tensor([elements, [0, 0, -3]], dtype=torch.float64, requires_grad=True)
        twin = cls(p).detach().to_dense().requires_grad_()
        t = cls(p.detach()).requires_grad_()
        (grad,) = torch.autograd.grad(f(t), t, create_graph=True)
        (expected,) = torch.autograd.grad(f(twin), twin)
        torch.testing.assert_close(grad.to_dense(), project(cls, expected))
        # Its derivative in the factor of the sum is the gradient again.
        scale = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
        (grad,) = torch.autograd.grad(scale * f(t), t, create_graph=True)
        assert torch.autograd.grad(grad.sum(), scale)[0] == 1


LINES: dict[str, Callable[[Tensor, int], Tensor]] = {
    "amax": torch.amax,
    "amin": torch.amin,
    "norm": lambda t, dim: t.norm(dim=dim),
    "norm 1": lambda t, dim: torch.linalg.norm(t, 1, dim),
    "norm 0": lambda t, dim: torch.linalg.vector_norm(t, 0, dim, keepdim=True),
    "norm -1": lambda t, dim: torch.linalg.vector_norm(t, -1, dim),
    "norm -inf": lambda t, dim: torch.linalg.vector_norm(t, -inf, dim),
    "norm dtype": lambda t, dim: torch.linalg.vector_norm(t.real, 2, dim, dtype=torch.float64),
}


@each_type
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.complex64])
@pytest.mark.parametrize("part", [1, 1000])
def test_extremes_and_norms_along_lines_of_large_matrices(cls, dtype, part, monkeypatch):
    """Dense rows are read some at a time, where nothing records."""
    monkeypatch.setattr(reduce, "_LARGE_COPY", 1)
    monkeypatch.setattr(reduce, "_PART_OF_COPY", part)
    for size in ((1,), (17,), (2, 3, 7), (0, 2)):
        t = cls.randn(*size, dtype=dtype)
        for name, f in LINES.items():
            if dtype.is_complex and name.startswith("am"):
                continue
            for dim in (-1, -2):
                ours, expected = f(t, dim), f(t.to_dense(), dim)
                torch.testing.assert_close(ours, expected, msg=lambda m, name=name: f"{name}: {m}")
    assert "packedtri.unpack.default" not in called(lambda: cls.randn(9).norm(dim=-2))


@each_type
def test_dimensions_as_torch_takes_them(cls):
    t = cls.randn(2, 3)
    reductions = (torch.sum, torch.mean, torch.amax, torch.linalg.vector_norm)
    for f in reductions:
        for dim in ((0, 0), (-1, 2), (0, 1, -2)):
            with pytest.raises(RuntimeError, match="appears multiple times"):
                f(t, dim=dim)
        with pytest.raises(IndexError):
            f(t, dim=3)
    for f in (*reductions, torch.linalg.norm):
        for dim in ((0, 1, 2) if f is torch.linalg.vector_norm else (-1, -2), (1, 2)):
            ours = f(t, axis=dim, keepdims=True)
            torch.testing.assert_close(ours, f(t.to_dense(), axis=dim, keepdims=True))
    assert type(t.sum(axis=0)) is type(t.mean(axis=0, keepdims=True)) is cls
    torch.testing.assert_close(t.max(axis=1), t.to_dense().max(axis=1))
    torch.testing.assert_close(
        torch.linalg.matrix_norm(t, axis=(2, 1)), torch.linalg.matrix_norm(t.to_dense())
    )


def test_infinities_do_not_leave_their_line():
    t = LowerTriangular.eye(3)
    t[1, 0] = inf
    assert t.sum(-1).tolist() == [1, inf, 1] and t.sum(-2).tolist() == [inf, 1, 1]
    assert t.max() == inf and t.min() == 0 and (-LowerTriangular.eye(1)).max() == -1


@pytest.mark.parametrize("cls", MIRRORED)
def test_sums_of_mirrored_types_overflow_only_where_dense_ones_do(cls):
    large = torch.finfo(torch.float32).max
    for elements in (
        [inf, 1, 2], [1, inf, 2], [-inf, 1, 2], [large, 0, 0], [large, -large / 2, 0],
        [0, -large / 2, large], [large, large, 1], [inf, 1, -inf], [nan, 1, 1],
    ):  # fmt: skip
        t = cls(torch.tensor(elements, dtype=torch.float32))
        for f in (torch.sum, torch.mean):
            torch.testing.assert_close(f(t), f(t.to_dense()), equal_nan=True, msg=f"{elements} {f}")


@each_type
@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
def test_sums_of_complex_infinities(cls, batch):
    """Each part of a number is added up by itself where all of a matrix is."""
    matrices = [[1, inf, 2], [inf, 1, -inf], [nan, 1, 1]]
    if cls is not Hermitian:  # The sum of one is known to be real, whatever its elements are.
        matrices.append([complex(1, inf), complex(inf, 2), 3])
    for elements in matrices:
        t = cls(torch.tensor(elements, dtype=torch.complex128).expand(*batch, 3).clone())
        x = t.to_dense()
        for f in (torch.sum, torch.mean):
            for dim in (None, (-1, -2)):
                torch.testing.assert_close(f(t, dim), f(x, dim), equal_nan=True)


@each_type
@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_make_few_copies(cls, dtype):
    t = cls.randn(2, 33, dtype=dtype)
    for f in (torch.sum, torch.mean, lambda t: t.sum((-2, -1))):
        ours, expected = f(t), f(t.to_dense().to(wide_dtype(dtype)))
        close = {"rtol": 8 * epsilon(dtype), "atol": 400 * epsilon(dtype)}
        torch.testing.assert_close(ours.to(expected.dtype), expected, **close)
    if not dtype.is_complex:
        assert "packedtri.scale_band.default" not in called(lambda: t.sum())
    total = t.requires_grad_().sum().real
    grads: list[Tensor] = []
    ops = called(lambda: grads.extend(torch.autograd.grad(total, t)))
    assert "aten.add.Tensor" not in ops
    assert torch.equal(dense(grads[0]), project(cls, torch.ones(2, 33, 33).to(dtype)))


@each_type
def test_sums_of_16_bit_batches_are_rounded_once(cls):
    t = cls(torch.full((2, layout.numel(300)), 300.0, dtype=torch.float16))
    t[1].neg_()
    for dim in ((0, -1), (0, -2), None):
        torch.testing.assert_close(t.sum(dim), t.to_dense().double().sum(dim).half())


@each_type
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_means_of_16_bit_elements_are_rounded_once(cls, dtype, rng):
    large = cls(torch.full((layout.numel(300),), torch.finfo(dtype).max / 2, dtype=dtype))
    batches = large.expand(3, 300, 300)
    for t, dims in ((large, (None, 0, -1)), (batches, (0, (0, -1), (0, 1, 2)))):
        for dim in dims:
            ours, expected = t.mean(dim), t.to_dense().mean(dim)
            assert ours.dtype == dtype and type(ours) is (
                cls if dim == 0 == t.dim() - 3 else Tensor
            )
            torch.testing.assert_close(dense(ours), expected)
    t = cls.randn(2, 65, dtype=dtype, generator=rng)
    for dim in (None, 0, -1, -2, (1, 2)):
        exact = t.to_dense().double().mean(dim)
        rounding = 0.51 * epsilon(dtype)
        torch.testing.assert_close(dense(t.mean(dim)).double(), exact, rtol=rounding, atol=1e-6)
    assert t.mean(dtype=torch.float32).dtype == torch.float32
    assert t.float().mean(-1, dtype=dtype).dtype == dtype
    with pytest.raises(RuntimeError, match="dtype"):
        t.mean(dtype=torch.int64)


@pytest.mark.parametrize("ord", [0.0005, 0.005, 0.01])
@pytest.mark.parametrize("cls", MIRRORED)
def test_norms_of_tiny_order(cls, ord, dtype):
    """Two equal elements have a norm 2 ** (1 / ord) times theirs, which is beyond every dtype."""
    for elements in ([0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]):
        t = cls(torch.tensor([elements, [1.0, 0.0, 0.0]]).to(dtype))
        for over in (None, (-2, -1)):
            ours = torch.linalg.vector_norm(t, ord, over)
            theirs = torch.linalg.vector_norm(dense(t), ord, over)
            torch.testing.assert_close(ours, theirs)
    t = cls(torch.tensor([0.0, 0.0, 2.0]).to(dtype)).requires_grad_()
    torch.linalg.vector_norm(t, ord).backward()
    expected = torch.tensor([0, 0, 1]).to(dtype)
    torch.testing.assert_close(t.grad.packed, expected, rtol=16 * epsilon(dtype), atol=1e-4)


@pytest.mark.parametrize("cls", TYPES[:2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex128])
def test_reciprocal_condition_numbers(cls, dtype):
    """Never below the true value and close to it, as LAPACK's estimate."""
    for n in (1, 2, 3, 33):
        # Well-conditioned, since the true value is not known better than to eps / value.
        t = cls.randn(4, n, dtype=dtype) / n**0.5
        t.set_diagonal_(1 + torch.rand(4, n))
        exact = 1 / torch.linalg.cond(t.to_dense().to(wide_dtype(dtype)), 1)
        ours = rcond(t)
        assert ours.dtype == dtype.to_real() and ours.shape == (4,)
        # Most estimates are within a factor of 3.
        assert (ours >= exact * (1 - 1e-3)).all() and (ours <= 10 * exact).all()
        (trcon,) = scipy.linalg.lapack.get_lapack_funcs(("trcon",), dtype=str(dtype)[6:])
        uplo = "L" if cls is LowerTriangular else "U"
        theirs = [trcon(m.to_dense().numpy(), uplo=uplo)[0] for m in t]
        torch.testing.assert_close(ours, torch.tensor(theirs).to(ours), rtol=0.5, atol=0)
    t = cls.eye(3)
    t[1, 1] = 0
    assert rcond(t) == 0 and rcond(cls.eye(2, 3)).tolist() == [1, 1] and rcond(cls.zeros(0)) == inf
    with pytest.raises(TypeError, match=r"\[rcond\] expected a packed type; got Tensor"):
        rcond(torch.eye(2))


@pytest.mark.parametrize("cls", TYPES[:2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_condition_numbers_do_not_depend_on_the_scale(cls, dtype):
    t = cls.randn(2, 9, dtype=dtype) / 3 + cls.eye(9, dtype=dtype)
    # Powers of two, so that the elements are the same but for their exponents.
    largest = t.packed.abs().max()
    expected, info = rcond(t), torch.finfo(dtype)
    for scale in (2.0**-40, info.tiny * 2**30, info.max * 0.4 / largest.item()):
        scale = 2.0 ** floor(log2(scale))
        assert torch.equal(rcond(t * scale), expected)
    # Each matrix of a batch has a scale of its own.
    scales = torch.tensor([[info.tiny * 2**40], [2.0**70]], dtype=dtype)
    assert torch.equal(rcond(cls(t.packed * scales)), expected)


@pytest.mark.parametrize("cls", TYPES[:2])
def test_condition_numbers_at_the_ends_of_the_range(cls):
    assert rcond(cls.eye(2000) * 1e-35) == 1
    for scale in (1e-45, 1e-39, 3e38):
        assert rcond(cls.eye(2) * scale) == 1
    # The true value is 0.25, and the estimate for a lower triangle 0.375.
    big = torch.full((3,), 3e38)
    for packed in (big, torch.complex(big, big)):
        expected = 0.375 if cls is LowerTriangular else 0.25
        torch.testing.assert_close(rcond(cls(packed)), torch.tensor(expected))
    # The inverse is beyond the range of float32, the result is not; the last one is.
    for small in (1e-30, 1e-39, 2.0**-140):
        found = rcond(cls(torch.tensor([1.0, 0.0, small])))
        torch.testing.assert_close(found, torch.tensor(small), rtol=1e-4, atol=2.0**-149)
    assert rcond(cls(torch.tensor([1.0, 1e20, 1e-20, 1.0, 1e20, 1e-20]))) == 0
    # nan is not hidden.
    for position in range(3):
        packed = torch.ones(3)
        packed[position] = torch.nan
        assert rcond(cls(packed)).isnan()


@pytest.mark.parametrize("cls", TYPES[:2])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_condition_numbers_of_16_bit_matrices(cls, dtype):
    """In float32, since a rounding to 16 bits could go below the true value."""
    t = (cls.randn(4, 20) / 20**0.5 + cls.eye(20)).to(dtype)
    found = rcond(t)
    assert found.dtype == torch.float32 and torch.equal(found, rcond(t.float()))
    assert (found >= 1 / torch.linalg.cond(t.to_dense().double(), 1) * (1 - 1e-5)).all()
    # Neither a sum of 2000 rows nor the inverse fits into float16.
    assert rcond(cls.eye(2000, dtype=dtype) * 2.0**-20) == 1
    assert rcond(cls.zeros(0, dtype=dtype)).dtype == torch.float32
