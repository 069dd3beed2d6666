"""Small tiles of 16-bit elements: the copy engine brings those of an aligned dense operand."""

from __future__ import annotations

import math

import pytest
import torch
from cases import (
    MAPPED,
    SIXTEEN_BITS,
    SMALL,
    Failures,
    Force,
    Operand,
    assert_close_or_equal,
    assert_exact,
    draw_operand,
    each,
    hopper,
    mm,
    shifted,
    stored_product,
)
from torch import Tensor

from packedtri.layout import DENSE, LOWER, SYMMETRIC, UPPER, numel
from packedtri.testing import random_integers

pytestmark = [
    hopper,
    pytest.mark.cuda,
    pytest.mark.sanitizer,
    pytest.mark.parametrize("dtype", SIXTEEN_BITS, ids=str),
]


def aligned(x: Tensor, columns: bool) -> Tensor:
    """The same matrices, with rows or columns at multiples of 16 bytes, and nan between them."""
    if columns:
        return aligned(x.mT, columns=False).mT
    pitch = -(-x.shape[-1] // 8) * 8
    memory = x.new_full((*x.shape[:-1], pitch), math.nan)
    memory[..., : x.shape[-1]] = x
    return memory[..., : x.shape[-1]]


SIZES = ((70, 9), (130, 70)) if SMALL else ((8, 8), (63, 65), (64, 64), (130, 9), (300, 200))
KINDS = (LOWER, UPPER, SYMMETRIC)
# Tiles of 64 x 64, and with twice as many rows or columns of the dense operand.
TILES = (0, 1)
# How many blocks share sums, and from how many tiles on; or up to four of those with more half
# tiles than so many.
SHARES = ((1, 1), (2, 1), (8, 1), (4, -3))


def test_mapped(device: str, dtype: torch.dtype, rng: torch.Generator, force: Force) -> None:
    """Either operand, by rows or columns, in batches of which one operand is broadcast."""
    failures = Failures()
    batches = (((), ()), ((3,), ()), ((), (3,)), ((3,), (3,)))
    for (n, m), kind, (t_batch, x_batch), columns, tile, (split, above) in each(
        SIZES, KINDS, batches, (False, True), TILES, SHARES
    ):
        t = draw_operand(kind, n, dtype, rng, batch=t_batch, draw=random_integers)
        x = draw_operand(DENSE, n, dtype, rng, batch=x_batch, cols=m, draw=random_integers)
        y = aligned(x.stored, columns)
        force(MAPPED, tile, split, above, 1)
        case = f"{n=}, {m=}, {kind=}, {t_batch}, {x_batch}, {columns=}, {tile=}, {split=}, {above=}"
        with failures.case(case):
            assert_exact(mm(shifted(t.stored), y, n, kind, DENSE, DENSE), t, x, DENSE)
        with failures.case(f"{case} left"):
            c = mm(y.mT, t.stored, n, DENSE, kind, DENSE)
            assert_exact(c, Operand(x.stored.mT, DENSE, n), t, DENSE)
    failures.report()


def test_lower_part(device: str, dtype: torch.dtype, rng: torch.Generator, force: Force) -> None:
    """Half of a product of dense matrices of which one is mapped, or of a packed and a dense."""
    failures = Failures()
    for n, kind, columns, split in each((70, 130, 257), (DENSE, LOWER), (False, True), (1, 4)):
        a = draw_operand(kind, n, dtype, rng, draw=random_integers)
        b = draw_operand(DENSE, n, dtype, rng, draw=random_integers)
        force(MAPPED, 0, split, 1, 1)
        with failures.case(f"{n=}, {kind=}, {columns=}, {split=}"):
            c = mm(a.stored, aligned(b.stored, columns), n, kind, DENSE, LOWER)
            assert_exact(c, a, b, LOWER)
    failures.report()


@pytest.mark.skipif(SMALL, reason="many launches")
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_nonfinite(
    value: float, device: str, dtype: torch.dtype, rng: torch.Generator, force: Force
) -> None:
    """What is not finite meets no structural zero."""
    n, m, failures = 300, 96, Failures()
    for kind, in_packed, tile, split in each(KINDS, (True, False), TILES, (1, 2, 8)):
        t = draw_operand(kind, n, dtype, rng, draw=random_integers)
        x = draw_operand(DENSE, n, dtype, rng, cols=m, draw=random_integers)
        if in_packed:
            t.stored[[numel(i) + j for i, j in ((0, 0), (131, 70), (299, 200))]] = value
        else:
            x.stored[[0, 70, 131, 299], [3, 95, 40, 0]] = value
        a, b = Operand(t.stored, kind, n), Operand(x.stored, DENSE, n)
        force(MAPPED, tile, split, 1, 1)
        with failures.case(f"{kind=}, {in_packed=}, {tile=}, {split=}"):
            c = mm(a.stored, b.stored, n, kind, DENSE, DENSE)
            assert_close_or_equal(c, stored_product(a, b).to(dtype), atol=0)
        with failures.case(f"{kind=}, {in_packed=}, {tile=}, {split=} left"):
            flipped = {LOWER: UPPER, UPPER: LOWER, SYMMETRIC: SYMMETRIC}[kind]
            left, right = Operand(b.stored.mT, DENSE, n), Operand(a.stored, flipped, n)
            c = mm(left.stored, right.stored, n, DENSE, flipped, DENSE)
            assert_close_or_equal(c, stored_product(left, right).to(dtype), atol=0)
    failures.report()


@pytest.mark.parametrize("tile", TILES)
def test_repeats(
    tile: int, device: str, dtype: torch.dtype, rng: torch.Generator, force: Force
) -> None:
    """Many steps in a ring of some stages, again and again, agree in every bit."""
    n, m = (300, 64) if SMALL else (2048, 512)
    t = draw_operand(LOWER, n, dtype, rng)
    x = draw_operand(DENSE, n, dtype, rng, cols=m)
    force(MAPPED, tile, 2, 1, 1)
    first = mm(t.stored, x.stored, n, LOWER, DENSE, DENSE)
    different = torch.zeros((), dtype=torch.int64, device=device)
    for _ in range(3 if SMALL else 500):
        different += (mm(t.stored, x.stored, n, LOWER, DENSE, DENSE) != first).sum()
    assert different.item() == 0
