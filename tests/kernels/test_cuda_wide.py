"""A packed matrix of 16-bit elements times a hundred vectors or so, at other sizes too."""

from __future__ import annotations

import math

import pytest
import torch
from cases import (
    SIXTEEN_BITS,
    SMALL,
    WIDE,
    Failures,
    Force,
    Operand,
    assert_both_sides,
    assert_close_or_equal,
    assert_exact,
    draw_operand,
    each,
    hopper,
    mm,
    stored_product,
)

from packedtri.layout import DENSE, LOWER, SYMMETRIC, UPPER, numel
from packedtri.testing import random_integers

pytestmark = [pytest.mark.cuda, hopper]

dtypes = pytest.mark.parametrize("dtype", SIXTEEN_BITS, ids=str)
splits = pytest.mark.parametrize("split", [1, 4] if SMALL else [-1, 1, 2, 8])


@pytest.mark.sanitizer
@pytest.mark.parametrize(
    ("tile", "vectors"),
    [(0, 56), (0, 200), (1, 136)] if SMALL else list(each((0, 1), (8, 64, 72, 264))),
)
@splits
@dtypes
def test_wide_forced(
    dtype: torch.dtype,
    split: int,
    tile: int,
    vectors: int,
    device: str,
    rng: torch.Generator,
    force: Force,
) -> None:
    """Columns, and rows on the other side, whose elements lie side by side in either direction."""
    failures = Failures()
    sizes = (72, 200) if SMALL else (2, 9, 64, 67, 128, 129, 200, 328, 1030)
    for n, kind, batch in each(sizes, (LOWER, UPPER, SYMMETRIC), ((), (3,))):
        a = draw_operand(kind, n, dtype, rng, batch=batch, draw=random_integers)
        across = random_integers((*batch, n, vectors), dtype, device, rng)
        # The copy engine wants distances of a multiple of 16 bytes.
        along = across.new_full((*batch, vectors, -(-n // 8) * 8 + 8), math.nan)[..., :n]
        along.copy_(random_integers((*batch, vectors, n), dtype, device, rng))
        force(WIDE, tile, split, -1, -1)
        for name, x in {"across": across, "along": along.mT}.items():
            b = Operand(x, DENSE, n)
            with failures.case(f"{n=}, {batch}, kind {kind} times {name}"):
                assert_exact(mm(a.stored, x, n, kind, DENSE, DENSE), a, b, DENSE)
            with failures.case(f"{n=}, {batch}, {name} times kind {kind}"):
                b = Operand(x.mT, DENSE, n)
                assert_exact(mm(x.mT, a.stored, n, DENSE, kind, DENSE), b, a, DENSE)
    failures.report()


@pytest.mark.sanitizer
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@dtypes
def test_wide_structural_zeros(
    dtype: torch.dtype, value: float, device: str, rng: torch.Generator, force: Force
) -> None:
    """Elements that are not finite meet no zero that is not stored, and lose nothing."""
    failures = Failures()
    n, m = (130, 72) if SMALL else (300, 136)
    for kind, left, bad, split in each(
        (LOWER, UPPER, SYMMETRIC), (True, False), ("packed", "dense"), (1, 4)
    ):
        x = random_integers((numel(n),), dtype, device, rng)
        y = random_integers((n, m) if left else (m, n), dtype, device, rng)
        if bad == "packed":
            x[[0, numel(n // 2), numel(n) - 1]] = value
        else:
            y[7, 5] = y[n // 4, n // 5] = y[-1, 3] = y[0, 1] = value
        a, b = Operand(x, kind, n), Operand(y, DENSE, n)
        a, b = (a, b) if left else (b, a)
        force(WIDE, -1, split, -1, -1)
        c = mm(a.stored, b.stored, n, a.kind, b.kind, DENSE)
        with failures.case(f"{kind=}, {left=}, {bad} bad, {split=}"):
            assert_close_or_equal(c, stored_product(a, b).to(dtype), atol=0)
    failures.report()


@dtypes
def test_wide_batches_and_alignment(
    dtype: torch.dtype, device: str, rng: torch.Generator, force: Force
) -> None:
    """One matrix for many, one dense operand for many, and what the copy engine cannot read."""
    failures = Failures()
    n = 130
    force(WIDE, -1, -1, -1, -1)
    for kind, (packed_batch, dense_batch), m in each(
        (LOWER, UPPER, SYMMETRIC), (((5,), ()), ((), (5,)), ((2, 1), (3,))), (64, 100, 99)
    ):
        a = draw_operand(kind, n, dtype, rng, batch=packed_batch, draw=random_integers)
        b = draw_operand(
            DENSE, n, dtype, rng, batch=dense_batch, rows=n, cols=m, draw=random_integers
        )
        assert_both_sides(failures, a, b, f"{kind=}, {packed_batch} and {dense_batch}, {m=}")
    failures.report()


@pytest.mark.skipif(SMALL, reason="large sizes")
@dtypes
def test_rows_are_aligned_first(dtype: torch.dtype, device: str, rng: torch.Generator) -> None:
    """Where the copy engine cannot read a dense operand, and a copy that it can read pays."""
    failures = Failures()
    cases = ((3001, 100, LOWER), (3008, 60, UPPER), (6001, 4, SYMMETRIC), (6008, 30, SYMMETRIC))
    for n, m, kind in cases:
        a = draw_operand(kind, n, dtype, rng, draw=random_integers)
        columns = random_integers((n, m), dtype, device, rng)
        rows = random_integers((m, n + 1), dtype, device, rng)[:, 1:]
        for name, x in {"columns": columns, "transposed rows": rows.mT}.items():
            with failures.case(f"{n=}, {kind=} times {m} {name}"):
                b = Operand(x, DENSE, n)
                assert_exact(mm(a.stored, x, n, kind, DENSE, DENSE), a, b, DENSE)
        for name, x in {"rows": rows, "transposed columns": columns.mT}.items():
            with failures.case(f"{n=}, {m} {name} times {kind=}"):
                b = Operand(x, DENSE, n)
                assert_exact(mm(x, a.stored, n, DENSE, kind, DENSE), b, a, DENSE)
    a = draw_operand(UPPER, 1501, dtype, rng, batch=(12,), draw=random_integers)
    for dense_batch in ((12,), ()):
        b = draw_operand(
            DENSE, 1501, dtype, rng, batch=dense_batch, rows=1501, cols=34, draw=random_integers
        )
        with failures.case(f"a batch times {dense_batch}"):
            assert_exact(mm(a.stored, b.stored, 1501, UPPER, DENSE, DENSE), a, b, DENSE)
    # One dense matrix for some of the triangles; a copy would not lie as the kernel reads it.
    a = draw_operand(LOWER, 1024, dtype, rng, batch=(4, 1), draw=random_integers)
    for dense_batch, m in (((3,), 33), ((3,), 40), ((4, 3), 33), ((1, 1), 33)):
        b = draw_operand(
            DENSE, 1024, dtype, rng, batch=dense_batch, rows=1024, cols=m, draw=random_integers
        )
        with failures.case(f"a batch of four in rows times {dense_batch}, {m=}"):
            assert_exact(mm(a.stored, b.stored, 1024, LOWER, DENSE, DENSE), a, b, DENSE)
    # The copy engine may not read one row for all.
    row = random_integers((64,), dtype, device, rng)
    b = Operand(row.expand(3008, 64), DENSE, 3008)
    a = draw_operand(LOWER, 3008, dtype, rng, draw=random_integers)
    with failures.case("one row for all"):
        assert_exact(mm(a.stored, b.stored, 3008, LOWER, DENSE, DENSE), a, b, DENSE)
    failures.report()
