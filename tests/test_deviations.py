"""Variances, standard deviations and counts of nonzero elements against their dense twins."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from derivatives import check_derivatives
from torch import Tensor
from twins import MIRRORED, TRIANGULAR, called, dense, each_type, project, weighted_sum

from packedtri import LowerTriangular, Symmetric, UpperTriangular, dense_guard
from packedtri.ops import deviations
from packedtri.testing import DTYPES, epsilon, wide_dtype

FUNCTIONS = (torch.var, torch.std, torch.var_mean, torch.std_mean)
OPTIONS: tuple[dict[str, Any], ...] = (
    {}, {"correction": 0}, {"correction": 2.5, "keepdim": True}, {"correction": None},
    {"dim": None, "unbiased": False}, {"dim": (-1, -2)}, {"axis": (-2, 0, 3)},
    {"dim": (1, 2, -1), "correction": 0, "keepdims": True}, {"dim": 0}, {"dim": (0, -3)},
    {"dim": -4, "correction": 0, "keepdim": True}, {"dim": [1], "unbiased": False},
    {"dim": -1}, {"dim": (0, -2), "keepdim": True}, {"unbiased": False},
)  # fmt: skip


@pytest.fixture(autouse=True, params=[True, False], ids=["large", "little"])
def large(request, monkeypatch):
    """Whether the matrices are taken for large ones, of which torch is not quicker alone."""
    if request.param:
        monkeypatch.setattr(deviations, "_LITTLE", 1)
        monkeypatch.setattr(deviations, "_LITTLE_BATCH", 1)
    return request.param


def several(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else list(result)


def keeps(options: dict[str, Any]) -> bool:
    return options.get("dim") in (0, -4, (0, -3), [1])


def compare(f: Callable[[Tensor], Any], t: Any, kept: bool = False) -> None:
    """Values, types and gradients of ``f`` against those of the dense twin."""
    twin = t.detach().to_dense().requires_grad_()
    ours, expected = several(f(t)), several(f(twin))
    for a, b in zip(ours, expected, strict=True):
        assert type(a) is (type(t) if kept else Tensor) and a.dtype == b.dtype
        torch.testing.assert_close(dense(a), b, equal_nan=True)
    sums = [sum(weighted_sum(dense(r)) for r in results) for results in (ours, expected)]
    (grad,) = torch.autograd.grad(sums[0], t)
    (theirs,) = torch.autograd.grad(sums[1], twin)
    torch.testing.assert_close(dense(grad), project(type(t), theirs), equal_nan=True)


@each_type
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("shape", [(3, 2, 4), (4, 3, 1), (3, 2, 19)], ids=str)
def test_values_types_and_gradients(cls, dtype, shape):
    t = cls.randn(*shape, dtype=dtype)
    if dtype.is_complex:
        # Imaginary parts that are stored on the diagonal of a Hermitian are not its own.
        t.packed[..., 0] += 1j
    t.requires_grad_()
    for function in FUNCTIONS:
        for options in OPTIONS:
            compare(lambda t, f=function, o=options: f(t, **o), t, keeps(options))
    compare(lambda t: t.std(0, True, True), t, True)
    compare(lambda t: t.var(False), t)
    compare(lambda t: t[0, 0].std(), t)
    # Of an empty sequence of dimensions torch makes infinite gradients of dense ones.
    torch.testing.assert_close(t.std(()), t.to_dense().std(()))
    (grad,), (expected,) = (torch.autograd.grad(t.std(dim), t) for dim in ((), None))
    torch.testing.assert_close(grad.packed, expected.packed)


@each_type
@pytest.mark.parametrize("dtype", DTYPES)
def test_all_dtypes(cls, dtype, rng):
    t = cls.randn(3, 65, dtype=dtype, generator=rng)
    wide = t.to_dense().to(wide_dtype(dtype))
    for options in ({}, {"dim": (-1, -2)}, {"dim": 0}):
        for function in FUNCTIONS:
            for a, b in zip(
                several(function(t, **options)), several(function(wide, **options)), strict=True
            ):
                assert a.dtype == (dtype if b.is_complex() else dtype.to_real())
                rounding = max(128 * epsilon(dtype), 1e-12)  # Torch adds up naively.
                torch.testing.assert_close(
                    dense(a).to(b.dtype), b, rtol=rounding, atol=rounding, msg=f"{options}"
                )


@each_type
def test_nothing_cancels(cls, large):
    """The square of the mean is 10 ** 12 times the variance, or infinite."""
    if not large:
        return  # Torch alone is not as exact.
    p = 1e3 + 1e-3 * torch.randn(2, 820, dtype=torch.float64)
    for dtype, moved in ((torch.float64, p), (torch.float32, p.float())):
        t = cls(moved.to(dtype))
        if cls in MIRRORED:
            exact = t.to_dense().double()
            for dim in (None, (-1, -2)):
                ours, rough = t.var(dim).double(), 1e-8 if moved is p else 1e-3
                torch.testing.assert_close(ours, exact.var(dim), rtol=rough, atol=0)
        ours, expected = t.std(0), t.to_dense().double().std(0)
        torch.testing.assert_close(dense(ours).double(), expected, rtol=1e-5, atol=1e-12)
    constant = cls(torch.full((3, 820), 0.1))
    if cls in MIRRORED:
        assert constant.std() == 0
    assert constant.std(0).packed.count_nonzero() == 0
    large = cls(torch.full((3, 820), 300.0, dtype=torch.float16))
    torch.testing.assert_close(large.std(), large.to_dense().std())


@each_type
def test_elements_that_are_not_finite(cls):
    for value in (torch.inf, -torch.inf, torch.nan):
        t = cls.randn(4, 2, 3, dtype=torch.float64)
        t.packed[1, 0, 1] = value
        for function in FUNCTIONS:
            for dim in (None, (-1, -2), 0, (0, 1)):
                results = (several(function(x, dim)) for x in (t, t.to_dense()))
                for a, b in zip(*results, strict=True):
                    torch.testing.assert_close(dense(a), b, equal_nan=True)


@each_type
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_higher_derivatives_and_forward_mode(cls, dtype):
    p = torch.randn(2, 2, 3, dtype=dtype, requires_grad=True)
    for f in (
        lambda t: t.var(),
        lambda t: t.std((-1, -2), correction=0),
        lambda t: torch.std_mean(t, 0)[0],
        lambda t: torch.var_mean(t, (0, 2, 3))[0],
    ):
        loss = lambda p, f=f: weighted_sum(dense(f(cls(p))))  # noqa: E731
        check_derivatives(loss, p)
        torch.testing.assert_close(torch.func.grad(loss)(p), torch.autograd.grad(loss(p), p)[0])
        rows = torch.func.vmap(lambda q, f=f: dense(f(cls(q))))(torch.stack([p, 2 * p]))
        torch.testing.assert_close(rows[1], dense(f(cls(2 * p))))


@each_type
def test_the_gradient_of_no_deviation_is_zero(cls):
    """Torch takes it for that of the standard deviation, whose root has none there."""
    t = (cls.eye(4, 3, dtype=torch.float64) * 0).requires_grad_()
    for f in (lambda t: t.std(), lambda t: t.std(0), lambda t: torch.std_mean(t, (-1, -2))[0]):
        (grad,) = torch.autograd.grad(dense(f(t)).sum(), t)
        assert grad.packed.count_nonzero() == 0


@each_type
def test_too_few_numbers(cls):
    """Torch warns, and gives nan or infinity, of structural zeros as well."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for shape in ((1, 3), (2, 1), (0, 3), (2, 0), (1, 1)):
            t = cls.randn(*shape, dtype=torch.float64)
            for options in ({"dim": 0}, {"dim": 0, "correction": 3}, {}, {"correction": 0},
                            {"dim": (-1, -2)}, {"correction": 10**6}, {"correction": -1},
                            {"dim": 0, "correction": float("nan")}):  # fmt: skip
                for function in FUNCTIONS:
                    results = (several(function(x, **options)) for x in (t, t.to_dense()))
                    for a, b in zip(*results, strict=True):
                        torch.testing.assert_close(dense(a), b, equal_nan=True)
            assert type(t.std(0)) is cls or cls in TRIANGULAR


@each_type
def test_compiled(cls):
    t = cls.randn(4, 3, requires_grad=True)
    for f in (lambda t: t.std(), lambda t: torch.var_mean(t, (-2, -1)), lambda t: t.std(0),
              lambda t: t.count_nonzero() * t.sum()):  # fmt: skip
        torch._dynamo.reset()
        ours = several(torch.compile(f, backend="aot_eager", fullgraph=True)(t))
        expected = several(f(t))
        grads = []
        for results in (ours, expected):
            loss = sum(weighted_sum(dense(r)) for r in results)
            grads.append(torch.autograd.grad(loss, t)[0].packed)
        for a, b in zip(ours, expected, strict=True):
            assert type(a) is type(b)
            torch.testing.assert_close(dense(a), dense(b))
        torch.testing.assert_close(*grads)


@each_type
def test_wrong_arguments_raise_as_those_of_dense_tensors(cls):
    t = cls.randn(4, 2, 3)
    x = t.to_dense()
    for f in (
        lambda t: t.std(unbiased=True, keepdim=True),
        lambda t: t.std(unbiased=True, correction=1),
        lambda t: t.std(0, 1),
        lambda t: t.var(0, unbiased=1),
        lambda t: t.var(0, unbiased=None),
        lambda t: t.std(keepdim=None),
        lambda t: t.std(0, keepdim=1),
        lambda t: t.std(correction="a"),
        lambda t: t.std(correction=1j),
        lambda t: t.std(True, keepdim=True),
        lambda t: t.std(True, dim=0),
        lambda t: t.std(0, dim=0),
        lambda t: t.std(0, True, True, True),
        lambda t: t.std(dim=True),
        lambda t: t.std(0.5),
        lambda t: t.std((0, 0)),
        lambda t: t.std((0, -4)),
        lambda t: t.std(4),
        lambda t: t.var((0, -5)),
        lambda t: t.std("batch"),
        lambda t: t.std(dtype=torch.float64),
        lambda t: torch.std_mean(t, 0, out=(t, t)),
        lambda t: torch.std_mean(t, out=(x, x)),
        lambda t: torch.var(t, out=torch.empty(0, dtype=torch.int64)),
        lambda t: t.count_nonzero(True),
        lambda t: t.count_nonzero(4),
        lambda t: t.count_nonzero((0, 0)),
        lambda t: t.count_nonzero(0.5),
        lambda t: t.count_nonzero(0, dim=1),
        lambda t: torch.count_nonzero(t, out=torch.empty(0, dtype=torch.int64)),
    ):
        with pytest.raises(Exception) as theirs:  # noqa: PT011
            f(x)
        # Where they are to be written to, types have an error of their own.
        with pytest.raises((theirs.type, NotImplementedError)):
            f(t)
    torch.testing.assert_close(t.std(correction=torch.tensor(1)), t.std())


@each_type
def test_results_in_given_tensors(cls):
    t = cls.randn(4, 3)
    out = torch.empty(0)
    assert torch.std(t, out=out) is out and out.shape == ()
    assert torch.equal(torch.var(t, 0, out=cls.zeros(3)).packed, t.var(0).packed)
    half = torch.empty(0, dtype=torch.float16)
    torch.testing.assert_close(torch.std(t, (1, 2), out=half), t.std((1, 2)).half())


@each_type
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.complex64])
def test_numbers_of_nonzero_elements(cls, dtype):
    p = torch.randint(-1, 2, (3, 2, 21)).to(dtype)
    p[0, 0, 3] = torch.nan
    if dtype.is_complex:
        p[1, :, 0] = 1j
    for t in (cls(p), cls(p[0, 1]), cls.zeros(2, 0), cls.zeros(0, 3), cls.eye(1)):
        rank = t.dim()
        for dim in (None, (), (-1, -2), (0, -2, -1), 0, -1, (-2,), tuple(range(rank))):
            if isinstance(dim, tuple) and len({d % rank for d in dim}) < len(dim):
                continue
            ours, expected = t.count_nonzero(dim), t.to_dense().count_nonzero(dim)
            assert type(ours) is Tensor and ours.dtype == torch.int64
            assert torch.equal(ours, expected), dim
        assert torch.equal(torch.count_nonzero(t, dim=(-1, -2)), t.count_nonzero(-2, -1))


@each_type
def test_no_dense_matrix_is_made_of_large_ones(cls, large):
    t = cls.randn(3, 40)
    with dense_guard("raise"):
        for f in (
            lambda t: t.std(),
            lambda t: torch.var_mean(t, (-1, -2)),
            lambda t: t.var(0),
            lambda t: t.count_nonzero(),
            lambda t: t.count_nonzero((1, 2)),
        ):
            unpacked = any("unpack" in op for op in called(lambda f=f: f(t)))
            assert not (unpacked and large)


@pytest.mark.parametrize("cls", [LowerTriangular, UpperTriangular, Symmetric])
def test_moments_on_other_devices(cls, monkeypatch):
    """There torch's own function is quicker."""
    t = cls.randn(3, 2, 5, dtype=torch.complex128)
    ours = deviations._moments(t.packed, (0, -1))

    class Elsewhere(Tensor):
        device = torch.device("cuda")

    theirs = deviations._moments(t.packed.as_subclass(Elsewhere), (0, -1))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b.as_subclass(Tensor))
