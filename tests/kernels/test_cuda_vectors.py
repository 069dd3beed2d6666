"""Packed matrices times one vector, by every kernel that there is for them."""

from __future__ import annotations

import math

import pytest
import torch
from cases import (
    SMALL,
    Failures,
    Force,
    assert_exact,
    assert_same_nonfinite,
    draw_operand,
    each,
    memory_filled,
    mm,
    on_hopper,
    shifted,
    stored_product,
    with_bad,
)

from packedtri.layout import DENSE, HERMITIAN, LOWER, SYMMETRIC, UPPER
from packedtri.testing import random_integers

pytestmark = [pytest.mark.cuda, pytest.mark.sanitizer]

VECTOR = 6
ROWS, GROUPS, COLUMNS, BLOCK, PARTS, HELD = range(6)
# The kernels of each kind: the way, how many elements of the result a block has, and its warps; of
# HELD how many matrices, and the threads of a row.
HELDS = ((HELD, 1, 1), (HELD, 2, 1), (HELD, 1, 2), (HELD, 3, 4))
WAYS = {
    LOWER: ((ROWS, 0, 0), (GROUPS, 4, 4), (GROUPS, 4, 8), *HELDS),
    UPPER: (
        (GROUPS, 8, 8), (GROUPS, 8, 16), (GROUPS, 16, 16), (GROUPS, 32, 8), (GROUPS, 32, 16),
        (COLUMNS, 0, 0), *HELDS,
    ),
    SYMMETRIC: (
        (GROUPS, 4, 4), (GROUPS, 8, 8), (GROUPS, 16, 8), (GROUPS, 32, 8), (BLOCK, 0, 0),
        (PARTS, 0, 0), *HELDS,
    ),
}  # fmt: skip
WAYS[HERMITIAN] = WAYS[SYMMETRIC]
# About the edges of words and of what a warp has at once, and longer than that.
SIZES = (
    (1, 9, 70)
    if SMALL
    else (1, 2, 3, 4, 5, 7, 8, 9, 31, 33, 64, 65, 130, 167, 237, 257, 337, 476, 520, 1100)
)
# The largest of them that a block can hold, by the bytes of an element.
MOST_HELD = {2: 476, 4: 337, 8: 237, 16: 167}
MOST = {ROWS: 512, BLOCK: 256}  # Rows that a kernel can have.
BEHIND = 16  # Elements of nan behind each operand.


def fits(way: int, group: int, warps: int, n: int, dtype: torch.dtype) -> bool:
    if way == HELD:
        lines = -(-n // 32) * 32
        stored = n * (n + 1) // 2 * dtype.itemsize + 16
        sums = lines * warps * max(dtype.itemsize, 4)
        threads, size = group * lines * warps, group * (stored + sums)
        return on_hopper() and threads <= 1024 and size <= 226 * 1024
    return n <= MOST.get(way, n) and not (way == PARTS and n <= 256)


@pytest.mark.parametrize("kind", WAYS)
def test_every_way(
    kind: int, device: str, dtype: torch.dtype, rng: torch.Generator, force: Force
) -> None:
    """Matrices and vectors that begin anywhere in a word, from either side, and batches."""
    failures = Failures()
    if kind == LOWER and on_hopper():
        assert fits(HELD, 1, 2, MOST_HELD[dtype.itemsize], dtype)
    for n, batch in each(SIZES, ((), (3,))):
        t = draw_operand(kind, n, dtype, rng, batch=batch, draw=random_integers)
        x = draw_operand(DENSE, n, dtype, rng, batch=batch, cols=1, draw=random_integers)
        y = draw_operand(DENSE, n, dtype, rng, batch=batch, rows=1, draw=random_integers)
        for skip, (way, group, warps) in each((0, 1, 2, 3), WAYS[kind]):
            if not fits(way, group, warps, n, dtype):
                continue
            stored = shifted(t.stored, skip, BEHIND)
            force(VECTOR, way, warps, -1, group)
            with failures.case(f"{n=}, {batch=}, {skip=}, {way=}, {group=}, {warps=}"):
                for there in (0, 1 + skip):
                    column = shifted(x.stored, there, BEHIND)
                    assert_exact(mm(stored, column, n, kind, DENSE, DENSE), t, x, DENSE)
            # Rows times T are the rows of its transpose times columns, which has the other sums.
            if kind in (SYMMETRIC, HERMITIAN):
                with failures.case(f"from the left, {n=}, {batch=}, {skip=}, {way=}, {group=}"):
                    row = shifted(y.stored, skip, BEHIND)
                    assert_exact(mm(row, stored, n, DENSE, kind, DENSE), y, t, DENSE)
    failures.report()


@pytest.mark.parametrize("kind", WAYS)
def test_as_chosen(kind: int, device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    """About the limits of each kernel, from either side, and vectors with gaps."""
    failures = Failures()
    cases = (
        ((30, 9), (70, 2))
        if SMALL
        else (
            (32, 9), (16, 2100), (64, 100), (65, 16), (65, 600), (100, 40), (128, 1030), (200, 70),
            (300, 20), (400, 30), (513, 40), (1200, 2), (1601, 1), (2301, 1), (4700, 1),
        )
    )  # fmt: skip
    for n, batch in cases:
        t = draw_operand(kind, n, dtype, rng, batch=(batch,), draw=random_integers)
        x = draw_operand(DENSE, n, dtype, rng, batch=(batch,), cols=1, draw=random_integers)
        y = draw_operand(DENSE, n, dtype, rng, batch=(batch,), rows=1, draw=random_integers)
        with failures.case(f"{n=}, {batch=}"):
            assert_exact(mm(t.stored, x.stored, n, kind, DENSE, DENSE), t, x, DENSE)
            assert_exact(mm(y.stored, t.stored, n, DENSE, kind, DENSE), y, t, DENSE)
        gaps = x.stored.new_full((batch, n, 3), math.nan)
        gaps[..., :1] = x.stored
        with failures.case(f"{n=}, {batch=}, gaps"):
            assert_exact(mm(t.stored, gaps[..., :1], n, kind, DENSE, DENSE), t, x, DENSE)
    failures.report()


@pytest.mark.parametrize("value", [math.inf, math.nan])
@pytest.mark.parametrize("kind", WAYS)
def test_nonfinite(
    kind: int,
    value: float,
    device: str,
    dtype: torch.dtype,
    rng: torch.Generator,
    force: Force,
) -> None:
    """What is not finite reaches the elements in whose rows it is stored, and no others."""
    failures = Failures()
    n = 75 if SMALL else 230
    t = with_bad(draw_operand(kind, n, dtype, rng, draw=random_integers), value)
    x = draw_operand(DENSE, n, dtype, rng, cols=1, draw=random_integers)
    bad = with_bad(draw_operand(DENSE, n, dtype, rng, draw=random_integers), value)
    bad.stored = bad.stored[:, 69:70].contiguous()
    bad.dense = bad.stored
    plain = draw_operand(kind, n, dtype, rng, draw=random_integers)
    for (way, group, warps), (a, b) in each(WAYS[kind], ((t, x), (plain, bad))):
        if not fits(way, group, warps, n, dtype):
            continue
        force(VECTOR, way, warps, -1, group)
        with failures.case(f"{way=}, {group=}, {warps=}"):
            product = stored_product(a, b).to(dtype)
            assert_same_nonfinite(mm(a.stored, b.stored, n, kind, DENSE, DENSE), product, n, DENSE)
    failures.report()


@pytest.mark.skipif(SMALL, reason="large sizes")
@pytest.mark.parametrize("element", [torch.float32, torch.float64], ids=str)
def test_no_room_for_sums(element: torch.dtype, device: str, rng: torch.Generator) -> None:
    """A symmetric matrix is read twice where memory has no room for the sums of its columns."""
    n = 12000
    s = draw_operand(SYMMETRIC, n, element, rng, draw=random_integers)
    x = draw_operand(DENSE, n, element, rng, cols=1, draw=random_integers)
    with memory_filled(x.stored.nbytes, least=2**21):
        y = torch.ops.packedtri.mm(s.stored, x.stored, n, SYMMETRIC, DENSE, DENSE)
    assert_exact(y, s, x, DENSE)
