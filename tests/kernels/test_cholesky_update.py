"""The op cholesky_update: residuals about the panels of the kernels, info, hard factors."""

from __future__ import annotations

import pytest
import torch
from cases import SMALL, Failures, assert_same, each
from test_cholesky import draw_positive, dtypes, pack, residual
from torch import Tensor

from packedtri.layout import LOWER, numel
from packedtri.testing import densify, epsilon, poisoned, random, wide_dtype

# About the 32 columns of L and the 8 columns of x that the CUDA kernel takes at a time.
SIZES = (1, 31, 33, 65) if SMALL else (1, 2, 31, 32, 33, 63, 64, 65, 100, 200)
RANKS = (1, 3, 9) if SMALL else (0, 1, 3, 8, 9, 17)
either = pytest.mark.parametrize("downdate", [False, True])


def update(packed: Tensor, x: Tensor, n: int, downdate: bool) -> tuple[Tensor, Tensor]:
    with poisoned():
        return torch.ops.packedtri.cholesky_update(packed, x, n, downdate)


def draw_factor(
    n: int, dtype: torch.dtype, rng: torch.Generator, batch: tuple[int, ...] = ()
) -> Tensor:
    """A factor whose columns are turned by random phases: its diagonal need not be positive."""
    wide = densify(draw_positive(n, wide_dtype(dtype), rng, batch), n, LOWER)
    factor = torch.linalg.cholesky(wide.tril() + wide.tril(-1).mH)
    return pack(factor * random((*batch, 1, n), wide.dtype, rng.device, rng).sgn()).to(dtype)


def draw_columns(
    n: int, k: int, dtype: torch.dtype, rng: torch.Generator, batch: tuple[int, ...] = ()
) -> Tensor:
    """So small that L L^H - x x^H is positive definite: no eigenvalue of L L^H is below 0.1."""
    x = random((*batch, n, k), dtype, rng.device, rng)
    return x / (5 * torch.linalg.matrix_norm(x, keepdim=True).clamp_min(0.1))


def changed_matrix(packed: Tensor, x: Tensor, n: int, downdate: bool) -> Tensor:
    wide = wide_dtype(packed.dtype)
    factor, x = densify(packed, n, LOWER).to(wide), x.to(wide)
    change = x @ x.mH
    return factor @ factor.mH + (-change if downdate else change)


def assert_factors(factor: Tensor, a: Tensor, n: int) -> None:
    """LAPACK's ratio is small and the diagonal positive."""
    dense = densify(factor, n, LOWER).to(a.dtype)
    norm = torch.linalg.matrix_norm
    ratio = norm(dense @ dense.mH - a) / (norm(a) * n * epsilon(factor.dtype))
    assert (ratio < 30).all(), f"residual {ratio.max().item()}"
    diagonal = dense.diagonal(dim1=-2, dim2=-1)
    assert (diagonal.real > 0).all() and (diagonal == diagonal.real).all()


@either
@dtypes
def test_ragged_sizes(
    downdate: bool, device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    failures = Failures()
    for n, k in each(SIZES, RANKS):
        packed, x = draw_factor(n, dtype, rng), draw_columns(n, k, dtype, rng)
        before = packed.clone(), x.clone()
        with failures.case(f"n={n}, k={k}"):
            factor, info = update(packed, x, n, downdate)
            assert factor.shape == packed.shape
            assert info.shape == () and info.dtype == torch.int32 and info.item() == 0
            a = changed_matrix(packed, x, n, downdate)
            assert_factors(factor, a, n)
            expected = torch.linalg.cholesky(a)
            error = (densify(factor, n, LOWER) - expected).norm() / expected.norm()
            assert error < 50 * epsilon(dtype), f"error {error / epsilon(dtype)} epsilon"
            assert_same(packed, before[0])
            assert_same(x, before[1])
    failures.report()


@either
@dtypes
def test_batches_broadcast(
    downdate: bool, device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    """Every matrix of a batch gets what it gets alone."""
    failures = Failures()
    batches = (((3,), (3,)), ((3,), ()), ((), (3,)), ((2, 1), (3,)), ((0,), (1,)), ((2, 3), (2, 3)))
    for n, k, (ours, theirs) in each((1, 7, 33, 70), (1, 3, 9), batches):
        packed, x = draw_factor(n, dtype, rng, ours), draw_columns(n, k, dtype, rng, theirs)
        batch = torch.broadcast_shapes(ours, theirs)
        with failures.case(f"n={n}, k={k}, {ours} and {theirs}"):
            factor, info = update(packed, x, n, downdate)
            assert factor.shape == (*batch, numel(n)) and info.shape == batch and not info.any()
            wide = packed.expand(*batch, -1).reshape(-1, numel(n))
            columns = x.expand(*batch, n, k).reshape(-1, n, k)
            for got, p, c in zip(factor.reshape(-1, numel(n)), wide, columns, strict=True):
                assert_same(got, update(p, c, n, downdate)[0])
    failures.report()


@dtypes
def test_many_small_factors(device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    for n, k in each((4, 32), (1, 2)):
        packed, x = draw_factor(n, dtype, rng, (300,)), draw_columns(n, k, dtype, rng, (300,))
        factor, info = update(packed, x, n, True)
        assert not info.any()
        assert_factors(factor, changed_matrix(packed, x, n, True), n)


@dtypes
def test_strides(device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    n = 40
    packed, x = draw_factor(n, dtype, rng), draw_columns(n, 6, dtype, rng)
    for view in (x.mT.contiguous().mT, x[:, ::2], x[:, 5:6], x.expand(3, n, 6), x.conj()):
        copy = view.contiguous().resolve_conj()
        assert_same(update(packed, view, n, False)[0], update(packed, copy, n, False)[0])


@dtypes
def test_info_of_a_downdate_is_the_order_of_the_failing_minor(
    device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    """One matrix of the batch fails late and in the first column of x, but early in the last."""
    failures = Failures()
    for n, k in each((1, 5, 32, 33, 64, 65, 100), (1, 3, 17)):
        positions = sorted({1, n // 2 + 1, n})
        batch = (len(positions) + 2,)
        packed, x = draw_factor(n, dtype, rng, batch), draw_columns(n, k, dtype, rng, batch)
        for b, order in enumerate(positions):
            x[b, order - 1, k // 2] = 3 * packed[b, numel(order) - 1].abs()
        both, early = len(positions), n // 3
        x[both, n - 1, 0] = 3 * packed[both, -1].abs()
        x[both, early, k - 1] = 3 * packed[both, numel(early + 1) - 1].abs()
        with failures.case(f"n={n}, k={k}"):
            factor, info = update(packed, x, n, True)
            assert info.tolist() == [*positions, early + 1, 0]
            assert_factors(factor[-1], changed_matrix(packed[-1], x[-1], n, True), n)
    failures.report()


@either
def test_a_nan_or_zero_on_the_diagonal_is_not_positive(downdate: bool, device: str) -> None:
    for value in (0.0, torch.nan):
        packed = torch.tensor([1.0, 0.0, value], device=device)
        for k in (0, 1):
            x = torch.zeros(2, k, device=device)
            assert update(packed, x, 2, downdate)[1].item() == 2


@dtypes
def test_singular_factors_become_regular(
    device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    """Zeros on the diagonal are filled by any column of x, not by the first one alone."""
    failures = Failures()
    for n, k in each((1, 2, 5, 33, 40), (1, 9, 40, 70)):
        x = random((n, k), dtype, device, rng)
        x[:, : k // 2] = 0
        factor, info = update(x.new_zeros(numel(n)), x, n, False)
        with failures.case(f"{n=}, {k=}"):
            rank = k - k // 2
            assert info.item() == 0 if rank >= n else info.item() > rank
            if rank >= n:
                wide = densify(factor, n, LOWER).to(wide_dtype(dtype))
                right = x.to(wide.dtype) @ x.to(wide.dtype).mH
                error = torch.linalg.matrix_norm(wide @ wide.mH - right)
                assert error <= 20 * k * epsilon(dtype) * torch.linalg.matrix_norm(right)
    one = torch.tensor([0.0, 0.0, 1.0], dtype=dtype, device=device)
    for columns in ([[0.0, 1.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 0.0]]):
        x = torch.tensor(columns, dtype=dtype, device=device)
        factor, info = update(one, x, 2, False)
        assert info == 0 and factor.tolist() == [1, 0, 1]
    failures.report()


@dtypes
def test_hard_factors(device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    """Residuals are small for a nearly singular, a badly scaled and a very small or large factor,
    whose product L L^H may leave the range."""
    n, k, info = 130, 3, torch.finfo(dtype)
    base = draw_factor(n, dtype, rng)
    x = random((n, k), dtype, device, rng) / n**0.5
    i, j = torch.tril_indices(n, n, device=device)
    near_singular = base.clone()
    near_singular[(i == j) & (i % 60 == 50)] = 10 * info.eps
    rows = torch.logspace(0, -6, n, dtype=torch.float64, device=device).to(dtype)
    cases = {
        "nearly singular": (near_singular, x, 1.0),
        "badly scaled": (base * rows[i], x * rows[:, None], 1.0),
        "near underflow": (base, x, info.tiny * 1e6),
        "near overflow": (base, x, info.max * 1e-6),
    }
    for name, (packed, columns, scale) in cases.items():
        factor, failed = update(packed * scale, columns * scale, n, False)
        assert failed.item() == 0, name
        # The residual is measured on matrices of moderate size.
        a = pack(changed_matrix(packed, columns, n, False))
        ratio = residual(a.to(dtype), factor / scale, n)
        assert ratio < 30, f"{name}: residual {ratio}"


def test_errors() -> None:
    with pytest.raises(RuntimeError, match="n = 3"):
        torch.ops.packedtri.cholesky_update(torch.zeros(6), torch.zeros(2, 1), 3, False)
    half = torch.zeros(6).bfloat16(), torch.zeros(3, 1).bfloat16()
    with pytest.raises(RuntimeError, match="convert them to float32"):
        torch.ops.packedtri.cholesky_update(*half, 3, False)
    with pytest.raises(RuntimeError, match="same dtype"):
        torch.ops.packedtri.cholesky_update(torch.zeros(6), torch.zeros(3, 1).double(), 3, False)
