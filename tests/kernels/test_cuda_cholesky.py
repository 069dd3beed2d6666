"""Cholesky factors on a GPU, against the matrices that they are factors of."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from cases import DIRECT, FRAGMENTS, SMALL, Failures, Force, assert_same, memory_filled
from solve_cases import SIZES, SOLVED, definite, kernels, matrix, pack, solved_dtypes
from torch import Tensor

from packedtri.layout import LOWER, numel
from packedtri.testing import epsilon

pytestmark = pytest.mark.cuda

ops = torch.ops.packedtri


def assert_factors(packed: Tensor, a: Tensor) -> None:
    """LAPACK's ratio: |L L^H - A| <= n epsilon |A|."""
    n = a.shape[-1]
    factor = matrix(packed, n, LOWER, False)
    a = a.tril().to(factor.dtype)
    ratio = (factor @ factor.mH).tril() - a
    ratio = torch.linalg.matrix_norm(ratio) / torch.linalg.matrix_norm(a)
    assert (ratio <= (n + 2) * epsilon(packed.dtype)).all(), f"ratio {ratio.amax()}"
    diagonal = factor.diagonal(dim1=-2, dim2=-1)
    assert (diagonal.real > 0).all()
    assert not factor.is_complex() or (diagonal.imag == 0).all()


@pytest.mark.sanitizer
@solved_dtypes
def test_cholesky(dtype: torch.dtype, device: str, rng: torch.Generator) -> None:
    failures = Failures()
    for n, batch in itertools.product(SIZES, ((), (3,), (2, 2))):
        a = definite(batch, n, dtype, rng)
        packed = pack(a)
        before = packed.clone()
        with failures.case(f"n={n}, batch {batch}"):
            factor, info = ops.cholesky(packed, n)
            assert info.shape == batch and (info == 0).all()
            assert_factors(factor, a)
            assert_same(packed, before)
    failures.report()


@pytest.mark.skipif(SMALL, reason="large sizes")
@pytest.mark.parametrize("n", [2048, 4700])
@pytest.mark.parametrize("dtype", SOLVED[:3], ids=str)
@kernels
def test_cholesky_large(
    method: int, n: int, dtype: torch.dtype, device: str, rng: torch.Generator, force: Force
) -> None:
    """By one panel or several, or by leaves where a way to multiply is forced."""
    force(method, -1, -1, -1, -1)
    a = definite((), n, dtype, rng)
    factor, info = ops.cholesky(pack(a), n)
    assert info.item() == 0
    assert_factors(factor, a)


@solved_dtypes
@pytest.mark.parametrize("method", [DIRECT, FRAGMENTS], ids=["direct", "fragments"])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_cholesky_by_leaves(
    batch: tuple[int, ...],
    method: int,
    dtype: torch.dtype,
    device: str,
    rng: torch.Generator,
    force: Force,
) -> None:
    """The way of large batches and of devices with little shared memory."""
    force(method, -1, -1, -1, -1)
    for n in (65, 129, 400):
        a = definite(batch, n, dtype, rng)
        a[..., n - 1, n - 1] = -1
        factor, info = ops.cholesky(pack(a), n)
        assert (info == n).all()
        m = n - 1
        assert_factors(factor[..., : numel(m)], a[..., :m, :m])


@solved_dtypes
@pytest.mark.skipif(SMALL, reason="large sizes")
def test_cholesky_of_more_matrices_than_a_panel_takes(
    dtype: torch.dtype, device: str, rng: torch.Generator
) -> None:
    """Their images are made for some of them at a time. Complex ones go by leaves."""
    n, batch = 200, 1700
    a = definite((batch,), n, dtype, rng)
    wrong = torch.arange(1, batch, 97, device=device)
    a[wrong, 150, 150] = -1
    factor, info = ops.cholesky(pack(a), n)
    expected = torch.zeros(batch, dtype=torch.int32, device=device)
    expected[wrong] = 151
    assert_same(info, expected)
    assert_factors(factor[info == 0], a[info == 0])


@pytest.mark.skipif(SMALL, reason="large sizes")
def test_cholesky_without_room_for_a_panel(device: str, rng: torch.Generator) -> None:
    """By leaves, whose products do without scratch memory in float32."""
    n, dtype = 2000, torch.float32
    a = definite((), n, dtype, rng)
    packed = pack(a)
    torch.cuda.synchronize()
    # The factor and `info`, but no images, which take as much again.
    with memory_filled(packed.nbytes + 2**21, least=2**21):
        factor, info = ops.cholesky(packed, n)
    assert info.item() == 0
    assert_factors(factor, a)


@pytest.mark.parametrize("dtype", SOLVED[2:], ids=str)
def test_cholesky_left_to_dense(dtype: torch.dtype, device: str, rng: torch.Generator) -> None:
    """What dense torch factors: values, info and layout are as those of ours."""
    n = 2300 if dtype == torch.complex64 else 300
    a = definite((), n, dtype, rng)
    packed = pack(a)
    packed[torch.arange(n, device=device).add(1).cumsum(0) - 1] += 0.5j  # It is not read.
    before = packed.clone()
    factor, info = ops.cholesky(packed, n)
    assert factor.is_contiguous() and info.shape == () and info.dtype == torch.int32
    assert info.item() == 0
    assert_factors(factor, a)
    assert_same(packed, before)
    for value in (-1, 0, math.nan):
        a[n // 2, n // 2] = value
        assert ops.cholesky(pack(a), n)[1].item() == n // 2 + 1, value


@solved_dtypes
def test_cholesky_info(dtype: torch.dtype, device: str, rng: torch.Generator) -> None:
    """The order of the first minor that is not positive; the rest of the batch is not concerned.

    A factor of order 2300 takes several launches, of which later ones meet nan only.
    """
    failures = Failures()
    for n in (1, 5, 40, 64, 100, 321, *(() if SMALL else (2300,))):
        a = definite((4,), n, dtype, rng)
        first, last = n // 2, n - 1
        a[1, first, first] = -1
        a[2, last, last] = math.nan
        a[3, 0, 0] = 0
        factor, info = ops.cholesky(pack(a), n)
        with failures.case(f"n={n}"):
            assert info.tolist() == [0, first + 1, last + 1, 1]
            assert_factors(factor[0], a[0])
    failures.report()


@solved_dtypes
@pytest.mark.parametrize("magnitude", [1e-30, 1e30])
def test_cholesky_scaled(
    magnitude: float, dtype: torch.dtype, device: str, rng: torch.Generator
) -> None:
    n = 150
    a = definite((), n, dtype, rng) * magnitude
    factor, info = ops.cholesky(pack(a), n)
    assert info.item() == 0
    assert_factors(factor, a)


@solved_dtypes
@pytest.mark.parametrize("method", [-1, DIRECT], ids=["chosen", "leaves"])
def test_cholesky_exact(method: int, device: str, dtype: torch.dtype, force: Force) -> None:
    """Roots of squares are exact, by our kernels at least."""
    force(method, -1, -1, -1, -1)
    n = 300 if dtype == torch.complex64 else 90
    roots = torch.arange(1, n + 1, device=device).to(dtype)
    assert_same(ops.cholesky(pack(torch.diag(roots**2)), n)[0], pack(torch.diag(roots)))


@solved_dtypes
def test_cholesky_of_infinite_and_tiny_pivots(dtype: torch.dtype, device: str) -> None:
    """Beyond what the quick roots take: infinity has an infinite one, tiny numbers theirs."""
    n = 300 if dtype == torch.complex64 else 90
    least = torch.finfo(dtype).smallest_normal
    diagonal = torch.ones(n, dtype=dtype, device=device)
    for i, value in ((3, math.inf), (40, least), (70, least / 1024)):
        diagonal[i] = value
    factor, info = ops.cholesky(pack(torch.diag(diagonal)), n)
    assert info.item() == 0
    roots = matrix(factor, n, LOWER, False).diagonal().to(dtype)
    torch.testing.assert_close(roots, diagonal.sqrt(), rtol=4 * epsilon(dtype), atol=0)
