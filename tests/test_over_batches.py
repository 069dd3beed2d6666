"""Reductions and scans over batch dimensions, which keep the type, against their dense twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from derivatives import check_derivatives
from torch import Tensor
from twins import TRIANGULAR, TYPES, called, dense, each_type, project, weighted_sum

from packedtri import Hermitian, Symmetric, func
from packedtri.testing import DTYPES

# Each of one tensor, of shape (4, 2, 3, 3) or so. All give one result or several.
KEPT: dict[str, Callable[[Tensor], Any]] = {
    "amax": lambda t: t.amax(0),
    "amin": lambda t: torch.amin(t, (0, -3), keepdim=True),
    "aminmax": lambda t: torch.aminmax(t, dim=-4, keepdim=True),
    "max": lambda t: t.max(1),
    "min": lambda t: torch.min(t, dim=-4, keepdim=True),
    "median": lambda t: t.median(0),
    "nanmedian": lambda t: torch.nanmedian(t, 1, keepdim=True),
    "mode": lambda t: t.mode(0),
    "cummax": lambda t: t.cummax(0),
    "cummin": lambda t: torch.cummin(t, dim=-3),
    "prod": lambda t: t.prod(axis=0, keepdims=True),
    "cumprod": lambda t: torch.cumprod(t, -4),
    "nansum": lambda t: t.nansum((0, 1)),
    "nanmean": lambda t: torch.nanmean(t, -3, True),
    "sort": lambda t: t.sort(0, descending=True),
    "sort stably": lambda t: torch.sort(t, stable=True, dim=-3),
    "kthvalue": lambda t: t.kthvalue(1, dim=0, keepdim=True),
    "topk": lambda t: torch.topk(t, 1, -4),
    "quantile": lambda t: t.quantile(0.3, 0),
    "nanquantile": lambda t: torch.nanquantile(t, torch.tensor([0.2, 1], dtype=t.dtype), dim=1),
    "diff": lambda t: t.diff(dim=0, prepend=t[:1] * 2),
    "diff of second order": lambda t: torch.diff(t, 2, -3, None, t),
    "vector_norm": lambda t: torch.linalg.vector_norm(t, 3, 0),
    "vector_norm of several": lambda t: torch.linalg.vector_norm(t, dim=(0, 1), keepdim=True),
    "norm": lambda t: t.norm(dim=-3),
}
# What these make of zeros is not zero.
KEPT_OF_MIRRORED: dict[str, Callable[[Tensor], Any]] = {
    "logsumexp": lambda t: t.logsumexp(0),
    "logsumexp of several": lambda t: torch.logsumexp(t, dim=(0, 1), keepdim=True),
    "softmax": lambda t: torch.softmax(t, -4),
    "log_softmax": lambda t: torch.nn.functional.log_softmax(t, dim=1),
    "logcumsumexp": lambda t: t.logcumsumexp(0),
}


def cases(cls: type) -> dict[str, Callable[[Tensor], Any]]:
    return KEPT if cls in TRIANGULAR else {**KEPT, **KEPT_OF_MIRRORED}


def several(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else list(result)


def total(results: list[Tensor]) -> Tensor:
    """A number that depends on all results but positions."""
    return sum(weighted_sum(dense(r)) for r in results if r.dtype != torch.int64)


def compare(f: Callable[[Tensor], Any], t: Any, kept: bool = True) -> None:
    """Values, types and gradients of ``f`` against those of the dense twin."""
    twin = t.detach().to_dense().requires_grad_()
    ours, expected = several(f(t)), several(f(twin))
    for a, b in zip(ours, expected, strict=True):
        assert type(a) is (type(t) if kept and b.is_floating_point() | b.is_complex() else Tensor)
        torch.testing.assert_close(dense(a), b, equal_nan=True)
    sums = [total(results) for results in (ours, expected)]
    (grad,) = torch.autograd.grad(sums[0], t)
    (theirs,) = torch.autograd.grad(sums[1], twin)
    torch.testing.assert_close(dense(grad), project(type(t), theirs), equal_nan=True)


@each_type
@pytest.mark.parametrize("shape", [(4, 2, 3), (1, 2, 1), (3, 2, 33)], ids=str)
def test_values_types_and_gradients(cls, shape):
    for f in cases(cls).values():
        compare(f, cls.randn(*shape, dtype=torch.float64, requires_grad=True))


@each_type
def test_positions_of_elements_that_are_equal(cls):
    """Which of equal ones is named is torch's choice, of structural zeros too."""
    t = cls(torch.randint(-1, 2, (5, 2, 21)).double())
    t.packed[3] = torch.nan
    for name in ("max", "min", "median", "nanmedian", "mode", "cummax", "cummin", "sort"):
        for dim in (0, 1):
            ours, expected = (getattr(torch, name)(x, dim) for x in (t, t.to_dense()))
            assert type(ours) is type(expected)
            torch.testing.assert_close(ours.values.to_dense(), expected.values, equal_nan=True)
            assert torch.equal(ours.indices, expected.indices), name
    for f in (
        lambda t: t.argmax(0),
        lambda t: torch.argmin(t, -3, keepdim=True),
        lambda t: t.argsort(dim=1, descending=True, stable=True),
    ):
        assert type(f(t)) is Tensor
        assert torch.equal(f(t), f(t.to_dense()))


@each_type
@pytest.mark.parametrize("dtype", DTYPES)
def test_all_dtypes(cls, dtype):
    t = cls.randn(3, 2, 5, dtype=dtype)
    # Imaginary parts that are stored on the diagonal of a Hermitian are not its own.
    if dtype.is_complex:
        t.packed[0, 0, 0] += 1j
    for name, f in cases(cls).items():
        try:
            expected = several(f(t.to_dense()))
        except (RuntimeError, NotImplementedError) as error:
            assert dtype.is_complex or (dtype.itemsize == 2 and "quantile" in name)
            with pytest.raises(type(error)):
                f(t)
            continue
        for a, b in zip(several(f(t)), expected, strict=True):
            assert a.dtype == b.dtype
            torch.testing.assert_close(dense(a), b)


@each_type
def test_elements_that_are_not_finite(cls):
    t = cls.randn(4, 2, 3, dtype=torch.float64)
    t.packed[1, 0, 1:4] = torch.tensor([torch.nan, torch.inf, -torch.inf]).double()
    t.packed[:, 1, 2] = torch.nan
    for f in cases(cls).values():
        for a, b in zip(several(f(t)), several(f(t.to_dense())), strict=True):
            torch.testing.assert_close(dense(a), b, equal_nan=True)


@each_type
def test_higher_derivatives_and_forward_mode(cls):
    p = torch.randn(3, 2, 3, dtype=torch.float64, requires_grad=True)
    for name, f in cases(cls).items():
        if name in ("mode", "nanmean", "nansum"):
            continue
        loss = lambda p, f=f: weighted_sum(dense(several(f(cls(p)))[0].pow(2)))  # noqa: E731
        check_derivatives(loss, p)
        torch.testing.assert_close(torch.func.grad(loss)(p), torch.autograd.grad(loss(p), p)[0])


@each_type
def test_compiled_and_mapped(cls):
    t = cls.randn(4, 2, 3, requires_grad=True)
    for name, f in cases(cls).items():
        torch._dynamo.reset()
        compiled = torch.compile(f, backend="aot_eager", fullgraph=True)
        ours, expected = several(compiled(t)), several(f(t))
        for a, b in zip(ours, expected, strict=True):
            assert type(a) is type(b)
            torch.testing.assert_close(dense(a), dense(b))
        grads = [torch.autograd.grad(total(results), t)[0] for results in (ours, expected)]
        torch.testing.assert_close(*map(dense, grads), msg=name)
    mapped = func.vmap(lambda t: t.amax(0))(t)
    assert type(mapped) is cls and torch.equal(dense(mapped), t.to_dense().amax(1))


@each_type
def test_batches_and_matrices_without_elements(cls):
    for shape in ((0, 2, 3), (2, 0, 3), (2, 3, 0)):
        t = cls.zeros(*shape)
        for name, f in cases(cls).items():
            try:
                expected = several(f(t.to_dense()))
            except (IndexError, RuntimeError) as error:
                with pytest.raises(type(error)):
                    f(t)
                continue
            for a, b in zip(several(f(t)), expected, strict=True):
                torch.testing.assert_close(dense(a), b, equal_nan=True, msg=f"{name} {shape}")


@each_type
def test_other_dimensions_and_arguments(cls):
    """What takes a dimension of the matrices, or casts to integers, converts as before."""
    t = cls.randn(4, 2, 3)
    for f in (
        lambda t: t.amax((0, -1)),
        lambda t: t.median(-1)[0],
        lambda t: t.median(),
        lambda t: t.prod(),
        lambda t: t.prod(0, dtype=torch.int64),
        lambda t: t.nansum(),
        lambda t: t.nansum(()),
        lambda t: t.mode()[0],
        lambda t: torch.aminmax(t)[1],
        lambda t: t.logsumexp((-1, -2)),
        lambda t: t.max(-1).values,
    ):
        assert type(f(t)) is Tensor
        torch.testing.assert_close(f(t), f(t.to_dense()))
    assert t.prod(0, dtype=torch.float64).dtype == torch.float64
    assert type(t.nansum(0, dtype=torch.float64)) is cls


@each_type
def test_wrong_arguments_raise_as_those_of_dense_tensors(cls):
    t = cls.randn(4, 2, 3)
    for f in (
        lambda t: t.amax(4),
        lambda t: t.median(-5),
        lambda t: t.amax((0, 0)),
        lambda t: t.nansum((0, -4)),
        lambda t: t.prod((0, 1)),
        lambda t: t.cumprod(),
        lambda t: t.cummax((0,)),
        lambda t: t.median(0, keepdim="yes"),
        lambda t: t.amax(0, dtype=torch.float64),
        lambda t: t.logsumexp(0.5),
        lambda t: t.prod(0, False, 3),
        lambda t: t.median("batch"),
        lambda t: torch.amax(t, dim=0, axis=0),
        lambda t: t.amin([0, 1.5]),
    ):
        with pytest.raises(Exception) as theirs:  # noqa: PT011
            f(t.to_dense())
        with pytest.raises(theirs.type):
            f(t)


@each_type
def test_results_in_given_tensors(cls):
    t = cls.randn(4, 2, 3)
    out = cls.zeros(2, 3)
    assert torch.amax(t, 0, out=out) is out and torch.equal(dense(out), t.to_dense().amax(0))
    values, indices = cls.zeros(2, 3), torch.empty(0, dtype=torch.int64)
    torch.median(t, 0, out=(values, indices))
    assert torch.equal(indices, t.median(0).indices)
    assert torch.equal(dense(values), t.to_dense().median(0).values)
    for name, other in (("prod", True), ("nansum", True), ("amax", False)):
        out = torch.empty(0, dtype=torch.float64)
        if not other:
            with pytest.raises(RuntimeError, match="dtype"):
                getattr(torch, name)(t, 0, out=out)
            continue
        getattr(torch, name)(t, 0, out=out)
        torch.testing.assert_close(out, getattr(torch, name)(t.to_dense(), 0).double())
    other = next(c for c in TYPES if c is not cls)
    with pytest.raises(TypeError, match=f"expected a {cls.__name__} for out"):
        torch.amax(t, 0, out=other.zeros(2, 3))


def test_logarithms_of_sums_have_no_type_where_they_lose_the_structure():
    for cls in TRIANGULAR:
        assert type(cls.randn(4, 3).logsumexp(0)) is Tensor
    z = torch.tensor([[0, 1 + 2j, 0], [0, 1 - 2j, 0]], dtype=torch.complex128)
    t = Hermitian(z)
    assert type(t.logsumexp(0)) is Tensor and type(Symmetric(z).logsumexp(0)) is Symmetric
    torch.testing.assert_close(t.logsumexp(0), t.to_dense().logsumexp(0))
    assert type(t.real.logsumexp(0)) is Hermitian


@each_type
def test_no_dense_matrix_is_made(cls):
    t = cls.randn(4, 2, 33)
    for name, f in cases(cls).items():
        if len(several(f(t))) == 1 or name == "aminmax":
            assert not any("unpack" in op for op in called(lambda f=f: f(t))), name
