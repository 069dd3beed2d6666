"""The op cholesky: residuals, SciPy on the same bytes, info, hard matrices."""

from __future__ import annotations

import math

import pytest
import torch
from cases import SMALL, Failures
from torch import Tensor

from packedtri import LowerTriangular
from packedtri.layout import LOWER, numel
from packedtri.testing import densify, epsilon, poisoned, random, wide_dtype

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: str(t).removeprefix("torch."))
SIZES = (0, 1, 2, 3, 5, 33, 64) if SMALL else (
    0, 1, 2, 3, 5, 6, 10, 11, 15, 16, 17, 31, 32, 33, 50, 63, 64, 65, 127, 129, 257, 400
)  # fmt: skip


def cholesky(packed: Tensor, n: int) -> tuple[Tensor, Tensor]:
    with poisoned():
        return torch.ops.packedtri.cholesky(packed, n)


def pack(dense: Tensor) -> Tensor:
    n = dense.shape[-1]
    i, j = torch.tril_indices(n, n, device=dense.device)
    return dense[..., i, j]


def draw_positive(
    n: int, dtype: torch.dtype, rng: torch.Generator, batch: tuple[int, ...] = ()
) -> Tensor:
    """A packed positive definite matrix with eigenvalues of order one."""
    a = random((*batch, n, n), dtype, rng.device, rng) / max(1, n) ** 0.5
    return pack(a @ a.mH + 0.1 * torch.eye(n, device=rng.device))


def hermitian(packed: Tensor, n: int) -> Tensor:
    lower = densify(packed, n, LOWER)
    diagonal = torch.diagonal(lower, dim1=-2, dim2=-1).real
    return lower.tril(-1) + lower.tril(-1).mH + torch.diag_embed(diagonal)


def residual(packed: Tensor, factor: Tensor, n: int) -> float:
    """LAPACK's ratio: |L L^H - A| over n |A| epsilon."""
    wide = wide_dtype(packed.dtype)
    a, lower = hermitian(packed, n).to(wide), densify(factor, n, LOWER).to(wide)
    norm = torch.linalg.matrix_norm
    ratio = norm(lower @ lower.mH - a) / (norm(a) * n * epsilon(packed.dtype))
    return ratio.nan_to_num(torch.inf, posinf=torch.inf).max().item()


@dtypes
@pytest.mark.parametrize("threads", [1, 3])
def test_ragged_sizes(threads: int, device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    torch.set_num_threads(threads)
    failures = Failures()
    for n in SIZES:
        with failures.case(f"n={n}"):
            packed = draw_positive(n, dtype, rng)
            factor, info = cholesky(packed, n)
            assert factor.shape == packed.shape
            assert info.shape == () and info.dtype == torch.int32 and info.item() == 0
            if n:
                ratio = residual(packed, factor, n)
                diagonal = torch.diagonal(densify(factor, n, LOWER))
                assert ratio < 30, f"residual {ratio}"
                assert (
                    (diagonal.real > 0).all() and (diagonal.imag == 0).all()
                    if (dtype.is_complex)
                    else (diagonal > 0).all()
                )
    failures.report()


@dtypes
@pytest.mark.parametrize("batch", [(0,), (1,), (3, 4), (200,)])
def test_batches(batch: tuple[int, ...], device: str, dtype: torch.dtype, rng: torch.Generator):
    for n in (0, 1, 7, 40, 70):
        packed = draw_positive(n, dtype, rng, batch)
        factor, info = cholesky(packed, n)
        assert info.shape == batch and not info.any()
        if n and packed.numel():
            assert residual(packed, factor, n) < 30
    wide = draw_positive(7, dtype, rng, (2, 1)).expand(2, 3, -1)
    torch.testing.assert_close(cholesky(wide, 7)[0], cholesky(wide.contiguous(), 7)[0])


@dtypes
def test_scipy_pptrf_reads_the_same_bytes(dtype: torch.dtype, rng: torch.Generator) -> None:
    lapack = pytest.importorskip("scipy.linalg").get_lapack_funcs
    for n in (1, 2, 9, 70):
        packed = draw_positive(n, dtype, rng)
        pptrf = lapack("pptrf", dtype=packed.numpy().dtype)
        # LAPACK's upper triangle by columns: U^H U is the conjugate of L L^H, and U = L^T.
        expected, info = pptrf(n, packed.numpy(), lower=0)
        assert info == 0
        ours, _ = cholesky(packed, n)
        tolerance = 50 * epsilon(dtype)
        torch.testing.assert_close(ours, torch.from_numpy(expected), rtol=tolerance, atol=tolerance)


@dtypes
def test_info_is_the_order_of_the_failing_minor(
    device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    for n in (1, 5, 64, 65, 200):
        positions = sorted({1, n // 2 + 1, n})
        packed = draw_positive(n, dtype, rng, (len(positions) + 1,))
        for b, k in enumerate(positions):
            packed[b, numel(k) - 1] = -1
        factor, info = cholesky(packed, n)
        assert info.tolist() == [*positions, 0]
        assert residual(packed[-1], factor[-1], n) < 30
        dense_info = torch.linalg.cholesky_ex(hermitian(packed, n)).info
        assert torch.equal(info, dense_info)


def test_a_nan_or_zero_pivot_is_not_positive(device: str) -> None:
    for value in (0.0, torch.nan):
        packed = torch.tensor([1.0, 0.0, value], device=device)
        assert cholesky(packed, 2)[1].item() == 2


def hard_matrices(n: int, dtype: torch.dtype, rng: torch.Generator) -> dict[str, Tensor]:
    """After LAPACK's test matrices: badly scaled, nearly singular, near underflow and overflow."""
    device, info = rng.device, torch.finfo(dtype)
    q, _ = torch.linalg.qr(random((n, n), wide_dtype(dtype), device, rng))
    smallest = epsilon(dtype) * n * 10
    values = torch.logspace(0, math.log10(smallest), n, dtype=torch.float64, device=device)
    base = draw_positive(n, dtype, rng)
    d = torch.logspace(0, -5, n, dtype=torch.float64, device=device).to(dtype.to_real())
    i, j = torch.tril_indices(n, n, device=device)
    return {
        "nearly singular": pack((q * values) @ q.mH).to(dtype),
        "badly scaled": base * d[i] * d[j],
        "near underflow": base * (info.tiny * 1e6),
        "near overflow": base * (info.max * 1e-6),
    }


@dtypes
def test_hard_matrices(device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    """The factorization has small residuals on badly scaled and on nearly singular matrices, and
    at the ends of the range."""
    n = 130
    for name, packed in hard_matrices(n, dtype, rng).items():
        factor, failed = cholesky(packed, n)
        assert failed.item() == 0, name
        scale = packed.abs().max()
        ratio = residual(packed / scale, factor / scale.sqrt(), n)
        assert ratio < 30, f"{name}: residual {ratio}"


@dtypes
def test_solutions_and_inverses_of_hard_matrices(
    device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    """LAPACK's ratios: |B - A X| over n |A| |X| epsilon, and |I - A X| for an inverse."""
    n, wide, norm = 130, wide_dtype(dtype), torch.linalg.matrix_norm
    identity = torch.eye(n, dtype=dtype, device=device)
    for name, packed in hard_matrices(n, dtype, rng).items():
        scale = packed.abs().max()
        factor = LowerTriangular(cholesky(packed, n)[0])
        a = hermitian(packed / scale, n).to(wide)
        b = random((n, 20), dtype, device, rng)
        inverse = torch.cholesky_inverse(factor).to_dense() * scale
        for case, x, rhs in (
            ("solution", torch.cholesky_solve(b * scale, factor), b),
            ("inverse", inverse, identity),
        ):
            x = x.to(wide)
            ratio = norm(rhs - a @ x) / (n * norm(a) * norm(x) * epsilon(dtype))
            assert ratio < 30, f"{name}, {case}: residual {ratio}"


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_the_imaginary_part_of_the_diagonal_is_not_read(
    device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    for n in (3, 70):
        packed = draw_positive(n, dtype, rng)
        i = torch.arange(n, device=device)
        tilted = packed.clone()
        tilted[i * (i + 3) // 2] += 3j
        assert torch.equal(cholesky(tilted, n)[0], cholesky(packed, n)[0])


def test_errors() -> None:
    with pytest.raises(RuntimeError, match="a triangle of order 3"):
        torch.ops.packedtri.cholesky(torch.zeros(5), 3)
    with pytest.raises(RuntimeError, match="convert them to float32"):
        torch.ops.packedtri.cholesky(torch.zeros(6).bfloat16(), 3)
