"""The product op against dense torch: every pair of kinds, both results, ragged sizes, batches."""

from __future__ import annotations

import pytest
import torch
from cases import (
    PAIR_IDS,
    PAIRS,
    SIZES,
    SMALL,
    Draw,
    Failures,
    assert_exact,
    draw_operand,
    each,
    mm,
    part_of,
)
from torch import Tensor

from packedtri.layout import DENSE, HERMITIAN, LOWER, SYMMETRIC, UPPER
from packedtri.testing import (
    assert_product_close,
    densify,
    random,
    random_integers,
)

pairs = pytest.mark.parametrize(("a_kind", "b_kind"), PAIRS, ids=PAIR_IDS)

# (a_kind, b_kind, c_kind): the typed products and one of each dense flavour.
LARGE = (
    (LOWER, LOWER, LOWER),
    (LOWER, UPPER, LOWER),
    (UPPER, LOWER, DENSE),
    (LOWER, DENSE, DENSE),
    (DENSE, UPPER, DENSE),
    (DENSE, DENSE, LOWER),
    (SYMMETRIC, DENSE, DENSE),
    (DENSE, SYMMETRIC, DENSE),
    (HERMITIAN, DENSE, DENSE),
    (DENSE, HERMITIAN, DENSE),
    (HERMITIAN, HERMITIAN, LOWER),
)


def check_square(
    n: int,
    kinds: tuple[int, int, int],
    dtype: torch.dtype,
    rng: torch.Generator,
    draw: Draw = random,
) -> None:
    """One product of square operands, judged by the tolerance rule."""
    a_kind, b_kind, c_kind = kinds
    a = draw_operand(a_kind, n, dtype, rng, draw=draw)
    b = draw_operand(b_kind, n, dtype, rng, draw=draw)
    c = densify(mm(a.stored, b.stored, n, *kinds), n, c_kind)
    assert_product_close(c, a.dense, b.dense, part=part_of(c_kind))


@pairs
def test_ragged_sizes(
    a_kind: int, b_kind: int, device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    failures = Failures()
    for n, c_kind in each(SIZES, (LOWER, DENSE)):
        with failures.case(f"n={n}, c_kind={c_kind}"):
            check_square(n, (a_kind, b_kind, c_kind), dtype, rng)
    failures.report()


@pytest.mark.skipif(SMALL, reason="large sizes")
@pytest.mark.parametrize("kinds", LARGE)
def test_thousand(
    kinds: tuple[int, int, int], device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    # The reference of complex128 costs many products.
    check_square(500 if dtype == torch.complex128 else 1000, kinds, dtype, rng)


@pytest.mark.parametrize("kind", [LOWER, UPPER, SYMMETRIC, HERMITIAN])
def test_long_vectors(kind: int, device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    """Vectors so long that several threads or blocks share them, from either side."""
    n = 70 if SMALL else 800
    for batch in ((), (2,)):
        t = draw_operand(kind, n, dtype, rng, batch=batch, draw=random_integers)
        column = draw_operand(DENSE, n, dtype, rng, cols=1, draw=random_integers)
        row = draw_operand(DENSE, n, dtype, rng, rows=1, draw=random_integers)
        assert_exact(mm(t.stored, column.stored, n, kind, DENSE, DENSE), t, column, DENSE)
        assert_exact(mm(row.stored, t.stored, n, DENSE, kind, DENSE), row, t, DENSE)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads(threads: int, dtype: torch.dtype, rng: torch.Generator) -> None:
    """The CPU kernels share out their work among any number of threads, even an odd one."""
    torch.set_num_threads(threads)
    failures = Failures()
    for (a_kind, b_kind), c_kind in each(PAIRS, (LOWER, DENSE)):
        with failures.case(f"kinds {a_kind}, {b_kind}, {c_kind}"):
            check_square(33 if SMALL else 200, (a_kind, b_kind, c_kind), dtype, rng)
    failures.report()


def positive(
    shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, rng: torch.Generator
) -> Tensor:
    """Terms that never cancel: the error of a long sum shows in every element."""
    x = random(shape, dtype, device, rng)
    return torch.complex(x.real.abs(), x.imag.abs()) if dtype.is_complex else x.abs()


def wide_range(
    shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, rng: torch.Generator
) -> Tensor:
    """Magnitudes from 2^-4 to 2^4, so that many elements matter only componentwise, and sums stay
    in the range of float16."""
    exponent = torch.randint(-4, 5, shape, device=device, generator=rng)
    return random(shape, dtype, device, rng) * torch.exp2(exponent.float()).to(dtype)


@pytest.mark.parametrize("draw", [positive, wide_range])
def test_kinds_of_data(draw: Draw, device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    failures = Failures()
    for n, (a_kind, b_kind) in each((33,) if SMALL else (65, 257), PAIRS):
        for c_kind in (LOWER, DENSE):
            with failures.case(f"n={n}, kinds {a_kind}, {b_kind}, {c_kind}"):
                check_square(n, (a_kind, b_kind, c_kind), dtype, rng, draw)
    failures.report()


# Batches of a and b: equal, broadcast from either side, of different ranks, empty.
BATCHES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((3,), (3,)),
    ((3,), ()),
    ((), (3,)),
    ((1,), (2, 3)),
    ((2, 3), (1, 3)),
    ((2, 1), (2, 3)),
    ((2, 1), (1, 3)),
    ((2, 3), (3,)),
    ((0,), (0,)),
    ((0,), ()),
    ((1,), (0,)),
    ((2, 0, 3), (2, 1, 1)),
)


@pairs
def test_batches(
    a_kind: int, b_kind: int, device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    failures = Failures()
    for n, (a_batch, b_batch), c_kind in each((0, 1, 5, 33, 70), BATCHES, (LOWER, DENSE)):
        if n == 70 and SMALL:
            continue
        case = f"n={n}, batches {a_batch} and {b_batch}, c_kind={c_kind}"
        a = draw_operand(a_kind, n, dtype, rng, batch=a_batch, draw=random_integers)
        b = draw_operand(b_kind, n, dtype, rng, batch=b_batch, draw=random_integers)
        with failures.case(case):
            assert_exact(mm(a.stored, b.stored, n, a_kind, b_kind, c_kind), a, b, c_kind)
    failures.report()


@pytest.mark.parametrize("n", [4] if SMALL else [4, 40])
def test_many_small(n: int, device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    """A batch longer than any grid of blocks or list of threads is likely to be."""
    count = 70 if SMALL else 70_000 if n == 4 and device == "cuda" else 300
    failures = Failures()
    for a_kind, b_kind in PAIRS:
        a = draw_operand(a_kind, n, dtype, rng, batch=(count,), draw=random_integers)
        b = draw_operand(b_kind, n, dtype, rng, batch=(count,), draw=random_integers)
        with failures.case(f"kinds {a_kind}, {b_kind}"):
            assert_exact(mm(a.stored, b.stored, n, a_kind, b_kind, DENSE), a, b, DENSE)
    failures.report()


@pytest.mark.parametrize("kind", [LOWER, UPPER, SYMMETRIC, HERMITIAN, DENSE])
def test_rectangular(kind: int, device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    """A dense operand of m rows on the left, or of m columns on the right, of a square one."""
    failures = Failures()
    sizes = (1, 5, 33) if SMALL else (1, 5, 64, 129, 200)
    batches = (((), ()), ((2,), ()), ((), (2,)), ((2, 1), (3,)))
    for n, m, (batch, other) in each(sizes, (0, 1, 3, 17, 130), batches):
        square = draw_operand(kind, n, dtype, rng, batch=other, draw=random_integers)
        tall = draw_operand(DENSE, n, dtype, rng, batch=batch, rows=m, draw=random_integers)
        wide = draw_operand(DENSE, n, dtype, rng, batch=batch, cols=m, draw=random_integers)
        with failures.case(f"n={n}, {m} rows, batches {batch} and {other}"):
            c = mm(tall.stored, square.stored, n, DENSE, kind, DENSE)
            assert_exact(c, tall, square, DENSE)
        with failures.case(f"n={n}, {m} columns, batches {batch} and {other}"):
            c = mm(square.stored, wide.stored, n, kind, DENSE, DENSE)
            assert_exact(c, square, wide, DENSE)
    failures.report()


def test_dense_by_dense(device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    """No packed operand: any m, k and n for a dense result, any k for a triangle (as in syrk)."""
    failures = Failures()
    lengths = (0, 1, 3, 33) if SMALL else (0, 1, 3, 33, 130)
    for m, k, n in each(lengths, lengths, lengths):
        c_kinds = (LOWER, DENSE) if m == n else (DENSE,)
        for c_kind, batch in each(c_kinds, ((), (2,))):
            case = f"{m} x {k} by {k} x {n}, c_kind={c_kind}, batch {batch}"
            a = draw_operand(
                DENSE, n, dtype, rng, batch=batch, rows=m, cols=k, draw=random_integers
            )
            b = draw_operand(DENSE, n, dtype, rng, rows=k, cols=n, draw=random_integers)
            with failures.case(case):
                assert_exact(mm(a.stored, b.stored, n, DENSE, DENSE, c_kind), a, b, c_kind)
    failures.report()


@pairs
def test_rows_in_one_vector(
    a_kind: int, b_kind: int, device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    """Every order about those whose rows fit in one vector; dense operands by rows and columns."""

    def laid_out(x: torch.Tensor, kind: int) -> tuple[torch.Tensor, ...]:
        if kind != DENSE:
            return (x,)
        gaps = x.new_full((*x.shape[:-2], x.shape[-1], x.shape[-2] + 3), float("nan")).mT
        gaps = gaps[..., : x.shape[-2], :].copy_(x)
        return x, x.mT.contiguous().mT, gaps

    failures = Failures()
    for n, m in each(range(1, 18), (2, 4, 7, 16, 17)):
        a = draw_operand(a_kind, n, dtype, rng, batch=(3,), rows=m, draw=random_integers)
        b = draw_operand(b_kind, n, dtype, rng, batch=(3,), cols=m, draw=random_integers)
        for left, right in each(laid_out(a.stored, a_kind), laid_out(b.stored, b_kind)):
            case = f"{n=}, {m=}, strides {left.stride()} and {right.stride()}"
            with failures.case(case):
                c = mm(left, right, n, a_kind, b_kind, DENSE)
                assert_exact(c, a, b, DENSE)
            if m == n and a_kind == b_kind == DENSE:
                with failures.case(f"{case}, half"):
                    assert_exact(mm(left, right, n, DENSE, DENSE, LOWER), a, b, LOWER)
    failures.report()
