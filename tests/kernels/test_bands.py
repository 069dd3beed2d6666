"""diagonal, embed_diagonal and scale_band: exact against dense matrices."""

from __future__ import annotations

import math

import pytest
import torch
from cases import SMALL, Failures, assert_same, each, shifted
from torch import Tensor

from packedtri.layout import LOWER, numel
from packedtri.testing import densify, poisoned, random, random_integers

ops = torch.ops.packedtri
ORDERS = (0, 1, 2, 5, 33, 70) if SMALL else (0, 1, 2, 5, 31, 33, 64, 130, 521)
BATCHES = ((), (3,), (2, 0))
# Factors of the band and of the rest: exact in every dtype, or as torch rounds them.
FACTORS = ((1, 0), (0, 1), (1, 0.5), (0.5, 1), (1, 2), (0, 0), (1, 1), (1, 0.3), (-1.7, 3.1))


def bands(n: int) -> list[tuple[int, int]]:
    """Nearest and farthest diagonals: the main one, others, all of them, and none."""
    return [(0, 0), (1, 1), (n // 3, n // 2), (0, n), (n // 2, n), (n - 1, n), (2, 1), (n, 9 * n)]


def scaled(packed: Tensor, n: int, nearest: int, farthest: int, factors: tuple) -> Tensor:
    below = torch.arange(n, device=packed.device)[:, None] - torch.arange(n, device=packed.device)
    below = below[below >= 0]  # In packed order.
    inside = (nearest <= below) & (below <= farthest)
    parts = [packed * factor if factor else torch.zeros_like(packed) for factor in factors]
    return torch.where(inside, *parts)


def test_scale_band(device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    failures = Failures()
    for n, batch, factors in each(ORDERS, BATCHES, FACTORS):
        packed = random((*batch, numel(n)), dtype, device, rng)
        for band in bands(n):
            with failures.case(f"{n=}, batch {batch}, {band=}, {factors=}"), poisoned():
                got = ops.scale_band(packed, n, *band, *map(float, factors), False)
                assert_same(got, scaled(packed, n, *band, factors))
    failures.report()


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.float32], ids=str)
def test_scale_band_of_hermitian(dtype: torch.dtype, device: str, rng: torch.Generator) -> None:
    for n in ORDERS:
        packed = random((3, numel(n)), dtype, device, rng)
        with poisoned():
            got = ops.scale_band(packed, n, 0, 0, 3.0, 0.5, True)
        expected = scaled(packed, n, 0, 0, (3.0, 0.5))
        dense = densify(expected, n, LOWER)
        real = dense.diagonal(dim1=-2, dim2=-1).real.to(dtype)
        assert_same(densify(got, n, LOWER), dense.diagonal_scatter(real, dim1=-2, dim2=-1))


def test_zero_factors_make_zeros_of_anything(device: str, dtype: torch.dtype) -> None:
    packed = torch.full((numel(40),), math.nan, dtype=dtype, device=device)
    assert ops.scale_band(packed, 40, 0, 3, 0.0, 0.0, True).count_nonzero() == 0
    assert ops.scale_band(packed, 40, 0, 0, 0.0, 1.0, False).isnan().sum() == numel(39)


def test_diagonals(device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    failures = Failures()
    for n, batch in each(ORDERS, BATCHES):
        packed = random((*batch, numel(n)), dtype, device, rng)
        dense = densify(packed, n, LOWER)
        for below in sorted({0, min(1, n), n // 2, max(n - 1, 0), n}):
            with failures.case(f"{n=}, batch {batch}, {below=}"), poisoned():
                found = ops.diagonal(packed, n, below)
                expected = dense.diagonal(-below, -2, -1) if n else dense.new_empty((*batch, 0))
                assert_same(found, expected.contiguous())
                embedded = ops.embed_diagonal(found, n, below)
                kept = scaled(packed, n, below, below, (1, 0))
                assert_same(embedded, kept)
    failures.report()


def test_layouts(device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    """Operands that lie in memory in any way, at any distance from an aligned address."""
    n = 37
    packed = random((4, numel(n)), dtype, device, rng)
    for view in (packed.mT.contiguous().mT, packed[:1].expand_as(packed), shifted(packed, 3)):
        whole = view.contiguous()
        got = ops.scale_band(view, n, 1, 4, 0.5, 2.0, False)
        assert_same(got, scaled(whole, n, 1, 4, (0.5, 2)))
        lines = ops.diagonal(view, n, 2)
        assert_same(lines, densify(whole, n, LOWER).diagonal(-2, -2, -1).contiguous())
    lines = random((n - 2, 4), dtype, device, rng).mT
    again = ops.diagonal(ops.embed_diagonal(lines, n, 2), n, 2)
    assert_same(again, lines.contiguous())


@pytest.mark.sanitizer
def test_small_and_large(device: str, rng: torch.Generator) -> None:
    """Many small triangles, where a thread meets several, and rows longer than a block's share."""
    for n, batch in ((1, 2000), (3, 700), (17, 90), (1500 if not SMALL else 150, 1)):
        packed = random_integers((batch, numel(n)), torch.float32, device, rng)
        with poisoned():
            got = ops.scale_band(packed, n, 0, 0, 1.0, 0.5, False)
            lines = ops.diagonal(packed, n, 0)
            alone = ops.embed_diagonal(lines, n, 0)
        assert_same(got, scaled(packed, n, 0, 0, (1, 0.5)))
        assert_same(got * 2 - alone, packed)


def test_wrong_arguments(device: str) -> None:
    packed = torch.ones(6, device=device)
    for below in (-1, 4):
        with pytest.raises(RuntimeError, match=r"diagonal\] expected a diagonal from 0 to n = 3"):
            ops.diagonal(packed, 3, below)
        with pytest.raises(RuntimeError, match=r"embed_diagonal\] expected a diagonal from 0 to"):
            ops.embed_diagonal(packed, 3, below)
    with pytest.raises(RuntimeError, match=r"expected elements \(..., 2\); got \(6\)"):
        ops.embed_diagonal(packed, 3, 1)
    with pytest.raises(RuntimeError, match="order 4 has"):
        ops.diagonal(packed, 4, 0)
    with pytest.raises(RuntimeError, match="order 4 has"):
        ops.scale_band(packed, 4, 0, 0, 1.0, 1.0, False)
    with pytest.raises(RuntimeError, match="expected float16"):
        ops.scale_band(packed.int(), 3, 0, 0, 1.0, 1.0, False)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads(threads: int, dtype: torch.dtype, rng: torch.Generator) -> None:
    torch.set_num_threads(threads)
    packed = random((numel(900),), dtype, "cpu", rng)
    got = ops.scale_band(packed, 900, 3, 700, 0.3, 1.0, False)
    assert_same(got, scaled(packed, 900, 3, 700, (0.3, 1)))
