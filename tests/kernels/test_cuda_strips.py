"""A packed matrix times some vectors, by strips, at sizes that would go to other kernels too."""

from __future__ import annotations

import pytest
import torch
from cases import (
    SMALL,
    STRIPS,
    Failures,
    Force,
    Operand,
    assert_close_or_equal,
    assert_exact,
    assert_same,
    draw_operand,
    each,
    hopper,
    mm,
    shifted,
    stored_product,
    vector_layouts,
)

from packedtri.layout import DENSE, LOWER, SYMMETRIC, UPPER, numel
from packedtri.testing import assert_product_close, random, random_integers

pytestmark = [pytest.mark.cuda, hopper]

KINDS = (LOWER, UPPER, SYMMETRIC)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


@pytest.mark.sanitizer
@pytest.mark.parametrize("vectors", [2, 12, 40] if SMALL else [2, 8, 9, 16, 30, 32, 33, 64, 100])
@dtypes
def test_strips_forced(
    vectors: int, device: str, dtype: torch.dtype, rng: torch.Generator, force: Force
) -> None:
    """Columns, and rows on the other side, at sizes around those of bands, tiles and strips."""
    failures = Failures()
    sizes = (67, 300) if SMALL else (1, 2, 31, 32, 33, 127, 128, 129, 255, 257, 300, 513, 1030)
    force(STRIPS, -1, -1, -1, -1)
    for n, kind, batch in each(sizes, KINDS, ((), (3,))):
        a = draw_operand(kind, n, dtype, rng, batch=batch, draw=random_integers)
        b = draw_operand(DENSE, n, dtype, rng, batch=batch, cols=vectors, draw=random_integers)
        c = draw_operand(DENSE, n, dtype, rng, batch=batch, rows=vectors, draw=random_integers)
        for name, right in vector_layouts(b.stored).items():
            with failures.case(f"n={n}, {batch}, kind {kind} times {name}"):
                assert_exact(mm(a.stored, right, n, kind, DENSE, DENSE), a, b, DENSE)
        for name, left in vector_layouts(c.stored).items():
            with failures.case(f"n={n}, {batch}, {name} times kind {kind}"):
                assert_exact(mm(left, a.stored, n, DENSE, kind, DENSE), c, a, DENSE)
    failures.report()


@pytest.mark.sanitizer
@dtypes
def test_strips_start_anywhere(
    dtype: torch.dtype, device: str, rng: torch.Generator, force: Force
) -> None:
    """Rows that begin at every place in a word of 16 bytes, and matrices of batches likewise."""
    failures = Failures()
    force(STRIPS, -1, -1, -1, -1)
    for n, kind, by in each((290,) if SMALL else (290, 701), KINDS, (0, 1, 2, 3)):
        a = draw_operand(kind, n, dtype, rng, batch=(2,), draw=random_integers)
        b = draw_operand(DENSE, n, dtype, rng, cols=11, draw=random_integers)
        with failures.case(f"{n=}, {kind=}, {by} elements further"):
            c = mm(shifted(a.stored, by), b.stored, n, kind, DENSE, DENSE)
            assert_exact(c, a, b, DENSE)
    failures.report()


@pytest.mark.skipif(SMALL, reason="large sizes")
@dtypes
def test_strips_accuracy(
    dtype: torch.dtype, device: str, rng: torch.Generator, force: Force
) -> None:
    """Elements with all of their bits, and sums that several blocks and strips share."""
    failures = Failures()
    force(STRIPS, -1, -1, -1, -1)
    for kind, m in each(KINDS, (5, 16, 32, 60)):
        n = 3001
        a = draw_operand(kind, n, dtype, rng)
        b = draw_operand(DENSE, n, dtype, rng, cols=m)
        with failures.case(f"{kind=}, {m} vectors"):
            c = mm(a.stored, b.stored, n, kind, DENSE, DENSE)
            assert_product_close(c, a.dense, b.dense)
    failures.report()


@pytest.mark.sanitizer
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@dtypes
def test_strips_not_finite(
    dtype: torch.dtype, value: float, device: str, rng: torch.Generator, force: Force
) -> None:
    """Elements that are not finite meet no zero that is not stored, and lose nothing."""
    failures = Failures()
    n, m = (300, 12) if SMALL else (700, 40)
    force(STRIPS, -1, -1, -1, -1)
    for kind, left, bad in each(KINDS, (True, False), ("packed", "dense", "one row")):
        x = random_integers((numel(n),), dtype, device, rng)
        y = random_integers((n, m) if left else (m, n), dtype, device, rng)
        if bad == "packed":
            x[[0, numel(n // 2), numel(n - 40) + 3, numel(n) - 1]] = value
        elif bad == "dense":
            y[7, 5] = y[n // 4 if left else 2, 3] = y[-1, 1] = y[0, 1] = value
        else:
            (y if left else y.mT)[n // 2] = value
        a, b = Operand(x, kind, n), Operand(y, DENSE, n)
        a, b = (a, b) if left else (b, a)
        c = mm(a.stored, b.stored, n, a.kind, b.kind, DENSE)
        with failures.case(f"{kind=}, {left=}, {bad} bad"):
            assert_close_or_equal(c, stored_product(a, b).to(dtype), atol=0)
    failures.report()


@pytest.mark.parametrize("tiny", ["packed", "dense"])
def test_strips_of_tiny_elements(
    tiny: str, device: str, rng: torch.Generator, force: Force
) -> None:
    """Elements of float32 whose three parts would lose bits keep them."""
    n = 400
    force(STRIPS, -1, -1, -1, -1)
    failures = Failures()
    for kind in KINDS:
        a = draw_operand(kind, n, torch.float32, rng)
        b = draw_operand(DENSE, n, torch.float32, rng, cols=9)
        down = 2.0**-118
        small, other = (a, b) if tiny == "packed" else (b, a)
        small.stored.mul_(down)
        other.stored.div_(down)
        with failures.case(f"{kind=}"):
            c = mm(a.stored, b.stored, n, kind, DENSE, DENSE)
            dense = Operand(a.stored, kind, n).dense
            assert_product_close(c, dense, b.stored)
    failures.report()


@pytest.mark.skipif(SMALL, reason="large sizes")
@dtypes
def test_strips_repeat(dtype: torch.dtype, device: str, rng: torch.Generator, force: Force) -> None:
    """Results do not depend on which block is first."""
    n, m = 2500, 24
    force(STRIPS, -1, -1, -1, -1)
    for kind in KINDS:
        a, b = random((numel(n),), dtype, device, rng), random((n, m), dtype, device, rng)
        first = mm(a, b, n, kind, DENSE, DENSE)
        for _ in range(200):
            assert_same(mm(a, b, n, kind, DENSE, DENSE), first)


@pytest.mark.skipif(SMALL, reason="large sizes")
@dtypes
def test_no_room_for_strips(dtype: torch.dtype, device: str, rng: torch.Generator) -> None:
    """A product that the memory left would not do for goes without scratch memory."""
    n, m = 6000, 12
    a, b = random((numel(n),), dtype, device, rng), random((n, m), dtype, device, rng)
    expected = torch.ops.packedtri.mm(a, b, n, SYMMETRIC, DENSE, DENSE)
    torch.cuda.empty_cache()
    limit = torch.cuda.memory_reserved() + 2 * expected.nbytes
    try:
        torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.mem_get_info()[1])
        c = torch.ops.packedtri.mm(a, b, n, SYMMETRIC, DENSE, DENSE)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    torch.testing.assert_close(c, expected)
