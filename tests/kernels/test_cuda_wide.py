"""A packed matrix times a hundred vectors, and of other sizes."""

from __future__ import annotations

import math

import pytest
import torch
from cases import (
    SIXTEEN_BITS,
    SMALL,
    STRIPS,
    WIDE,
    Failures,
    Force,
    Operand,
    assert_both_sides,
    assert_close_or_equal,
    assert_exact,
    assert_same,
    assert_vector_layouts,
    draw_operand,
    each,
    hopper,
    memory_filled,
    mm,
    shifted,
    stored_product,
    strip_kinds,
)
from torch import Tensor

from packedtri.layout import DENSE, LOWER, SYMMETRIC, UPPER, numel
from packedtri.testing import assert_product_close, random, random_integers

pytestmark = [pytest.mark.cuda, hopper]

KINDS = (LOWER, UPPER, SYMMETRIC)
dtypes = pytest.mark.parametrize("dtype", [*SIXTEEN_BITS, torch.float32, torch.float64], ids=str)


@pytest.mark.sanitizer
@pytest.mark.parametrize(
    "vectors", [12, 30, 56, 136] if SMALL else [1, 8, 16, 30, 33, 64, 72, 128, 200, 264]
)
@dtypes
def test_wide_forced(
    dtype: torch.dtype, vectors: int, device: str, rng: torch.Generator, force: Force
) -> None:
    """Columns, and rows on the other side, at sizes around those of tiles."""
    failures = Failures()
    sizes = (72, 200) if SMALL else (1, 2, 9, 64, 67, 127, 128, 129, 200, 328, 1030)
    force(WIDE, -1, -1, -1, -1)
    for n, kind, batch in each(sizes, KINDS, ((), (3,))):
        a = draw_operand(kind, n, dtype, rng, batch=batch, draw=random_integers)
        b = draw_operand(DENSE, n, dtype, rng, batch=batch, cols=vectors, draw=random_integers)
        c = draw_operand(DENSE, n, dtype, rng, batch=batch, rows=vectors, draw=random_integers)
        assert_vector_layouts(failures, a, b, c, f"n={n}, {batch}")
    failures.report()


@pytest.mark.sanitizer
@dtypes
def test_mapped_vectors_end_anywhere(
    dtype: torch.dtype, device: str, rng: torch.Generator, force: Force
) -> None:
    """Aligned rows that end within a word, with nan behind them."""
    failures = Failures()
    for method, kinds in ((WIDE, KINDS), (STRIPS, strip_kinds(dtype))):
        force(method, -1, -1, -1, -1)
        for n, m, kind in each((131,) if SMALL else (9, 131, 330), (13, 27, 70), kinds):
            a = draw_operand(kind, n, dtype, rng, draw=random_integers)
            b = draw_operand(DENSE, n, dtype, rng, cols=m, draw=random_integers)
            for name, right in {
                "rows": with_gaps(b.stored),
                "columns": with_gaps(b.stored.mT).mT,
            }.items():
                with failures.case(f"{method=}, {n=}, {kind=} times {m} {name}"):
                    assert_exact(mm(a.stored, right, n, kind, DENSE, DENSE), a, b, DENSE)
    failures.report()


def with_gaps(x: Tensor) -> Tensor:
    """The same matrix with rows that begin at multiples of 16 bytes, and nan between them."""
    memory = x.new_full((x.shape[0], -(-x.shape[1] // 8) * 8 + 8), math.nan)[:, : x.shape[1]]
    return memory.copy_(x)


@pytest.mark.sanitizer
@dtypes
def test_rows_start_anywhere(
    dtype: torch.dtype, device: str, rng: torch.Generator, force: Force
) -> None:
    """Rows that begin at every place in a word of 16 bytes, and matrices of batches likewise."""
    failures = Failures()
    force(WIDE, -1, -1, -1, -1)
    for n, kind, by in each((290,) if SMALL else (290, 701), KINDS, range(8)):
        a = draw_operand(kind, n, dtype, rng, batch=(2,), draw=random_integers)
        b = draw_operand(DENSE, n, dtype, rng, cols=48, draw=random_integers)
        with failures.case(f"{n=}, {kind=}, {by} elements further"):
            c = mm(shifted(a.stored, by), b.stored, n, kind, DENSE, DENSE)
            assert_exact(c, a, b, DENSE)
    failures.report()


@pytest.mark.skipif(SMALL, reason="large sizes")
@dtypes
def test_wide_accuracy(dtype: torch.dtype, device: str, rng: torch.Generator, force: Force) -> None:
    """Elements with all of their bits, and sums that several blocks share."""
    failures = Failures()
    force(WIDE, -1, -1, -1, -1)
    for kind, m, (name, change) in each(
        KINDS, (16, 30, 60, 100, 250), {"normal": lambda x: x, "positive": torch.abs}.items()
    ):
        n = 3001
        a = Operand(change(random((numel(n),), dtype, device, rng)), kind, n)
        b = Operand(change(random((n, m), dtype, device, rng)), DENSE, n)
        with failures.case(f"{kind=}, {m} {name} vectors"):
            c = mm(a.stored, b.stored, n, kind, DENSE, DENSE)
            assert_product_close(c, a.dense, b.dense)
    failures.report()


@pytest.mark.sanitizer
@pytest.mark.parametrize("few", [False, True])
def test_elements_of_any_size(few: bool, device: str, rng: torch.Generator, force: Force) -> None:
    """Small elements, which parts of bfloat16 hold when they are scaled, and large ones."""
    failures = Failures()
    dtype, n, m = torch.float32, 200, 40
    force(WIDE, -1, -1, -1, -1)
    sizes = {
        "small": (1e-36, 1.0),
        "subnormal": (1e-42, 1.0),
        "as in a kernel matrix": (1.0, 1e-40),
        "both small": (1e-36, 1e30),
        "large": (3e30, 1e-3),
        "both large": (1e18, 1e18),
    }
    for kind, (name, (of_a, of_b)) in each(KINDS, sizes.items()):
        x, y = random((numel(n),), dtype, device, rng), random((n, m), dtype, device, rng)
        if few:  # Beside others.
            x[::7] *= of_a
            y[::5] *= of_b
        else:
            x, y = x * of_a, y * of_b
        a = Operand(x, kind, n)
        with failures.case(f"{kind=}, {name}"):
            c = mm(x, y, n, kind, DENSE, DENSE)
            # What is left of a subnormal sum is counted in the smallest numbers.
            smallest = n * torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
            exact = a.dense.double() @ y.double()
            bound = 40 * torch.finfo(dtype).eps * (a.dense.double().abs() @ y.double().abs())
            assert ((c - exact).abs() <= bound + smallest).all()
    failures.report()


@pytest.mark.skipif(SMALL, reason="large sizes")
@dtypes
def test_wide_repeats(dtype: torch.dtype, device: str, rng: torch.Generator, force: Force) -> None:
    """Results do not depend on which block is first, nor on who reads a stage last."""
    force(WIDE, -1, -1, -1, -1)
    for kind, (n, m) in each(KINDS, ((2500, 100), (4096, 64))):
        a, b = random((numel(n),), dtype, device, rng), random((n, m), dtype, device, rng)
        first = mm(a, b, n, kind, DENSE, DENSE)
        for _ in range(200):
            assert_same(mm(a, b, n, kind, DENSE, DENSE), first)


@pytest.mark.skipif(SMALL, reason="large sizes")
@dtypes
def test_no_room_for_sums(dtype: torch.dtype, device: str, rng: torch.Generator) -> None:
    """Products that the memory left would not do for go without scratch memory."""
    n, m = 12000, 64
    a, b = random((numel(n),), dtype, device, rng), random((n, m), dtype, device, rng)
    expected = torch.ops.packedtri.mm(a, b, n, LOWER, DENSE, DENSE)
    # Room for the result, but not for the sums of 64 vectors, which take 7 MiB.
    with memory_filled(expected.nbytes, least=2**22):
        c = torch.ops.packedtri.mm(a, b, n, LOWER, DENSE, DENSE)
    # Another kernel adds up in another order.
    rounding = 256 * n**0.5 * torch.finfo(torch.float32).eps
    torch.testing.assert_close(c, expected, rtol=2 * torch.finfo(dtype).eps, atol=rounding)


@pytest.mark.sanitizer
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@dtypes
def test_wide_structural_zeros(
    dtype: torch.dtype, value: float, device: str, rng: torch.Generator, force: Force
) -> None:
    """Elements that are not finite meet no zero that is not stored, and lose nothing."""
    failures = Failures()
    n, m = (130, 72) if SMALL else (300, 136)
    force(WIDE, -1, -1, -1, -1)
    for kind, left, bad in each(KINDS, (True, False), ("packed", "dense")):
        x = random_integers((numel(n),), dtype, device, rng)
        y = random_integers((n, m) if left else (m, n), dtype, device, rng)
        if bad == "packed":
            x[[0, numel(n // 2), numel(n) - 1]] = value
        else:
            y[7, 5] = y[n // 4, n // 5] = y[-1, 3] = y[0, 1] = value
        a, b = Operand(x, kind, n), Operand(y, DENSE, n)
        a, b = (a, b) if left else (b, a)
        c = mm(a.stored, b.stored, n, a.kind, b.kind, DENSE)
        with failures.case(f"{kind=}, {left=}, {bad} bad"):
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
        KINDS, (((5,), ()), ((), (5,)), ((2, 1), (3,))), (64, 100, 99)
    ):
        a = draw_operand(kind, n, dtype, rng, batch=packed_batch, draw=random_integers)
        b = draw_operand(
            DENSE, n, dtype, rng, batch=dense_batch, rows=n, cols=m, draw=random_integers
        )
        assert_both_sides(failures, a, b, f"{kind=}, {packed_batch} and {dense_batch}, {m=}")
    failures.report()


@pytest.mark.skipif(SMALL, reason="large sizes")
@dtypes
def test_vectors_are_aligned_first(dtype: torch.dtype, device: str, rng: torch.Generator) -> None:
    """Where the copy engine cannot read a dense operand as it lies, as chosen."""
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
    # One dense matrix for some of the triangles.
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
