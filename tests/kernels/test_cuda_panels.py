"""Products of the engine beside a dense operand that the L2 cache does not hold."""

from __future__ import annotations

import pytest
import torch
from cases import (
    ELEMENTS,
    ENGINE,
    SMALL,
    Element,
    Failures,
    Force,
    Operand,
    assert_exact,
    draw_operand,
    each,
    hopper,
    mm,
    stored_product,
)

from packedtri.layout import DENSE, LOWER, SYMMETRIC, UPPER, numel
from packedtri.testing import random_integers

pytestmark = [
    pytest.mark.cuda,
    hopper,
    pytest.mark.skipif(SMALL, reason="large matrices"),
]

typed = pytest.mark.parametrize("element", ELEMENTS.values(), ids=ELEMENTS.keys())
# Tiles, and how many blocks share a sum.
tiled = pytest.mark.parametrize(("tile", "split"), [(0, 1), (0, 4), (1, 1)])
# The order, and rows or columns of the dense operand: more than 40 MB of 2 bytes each. Panels of
# few tiles and of many, the last of which is not full.
SIZES = ((390, 68_008), (1030, 20_504))


def operands(
    n: int, many: int, kind: int, left: bool, dtype: torch.dtype, rng: torch.Generator
) -> tuple[Operand, Operand]:
    """A packed matrix and a dense one, in the order of their product."""
    packed = draw_operand(kind, n, dtype, rng, draw=random_integers)
    size = {"rows": many} if left else {"cols": many}
    dense = draw_operand(DENSE, n, dtype, rng, **size, draw=random_integers)
    return (dense, packed) if left else (packed, dense)


@tiled
@typed
def test_products(
    element: Element,
    tile: int,
    split: int,
    device: str,
    rng: torch.Generator,
    force: Force,
) -> None:
    (dtype, tf32), failures = element, Failures()
    for (n, many), kind, left in each(SIZES, (LOWER, UPPER, SYMMETRIC), (False, True)):
        a, b = operands(n, many, kind, left, dtype, rng)
        force(ENGINE, tile, split, 2, 1)
        with failures.case(f"{n=}, kind {kind}, dense {'left' if left else 'right'}"):
            c = mm(a.stored, b.stored, n, a.kind, b.kind, DENSE, tf32)
            assert_exact(c, a, b, DENSE)
    failures.report()


@tiled
@typed
def test_what_is_not_finite(
    element: Element,
    tile: int,
    split: int,
    device: str,
    rng: torch.Generator,
    force: Force,
) -> None:
    (dtype, tf32), failures = element, Failures()
    for (n, many), kind, left in each(SIZES, (LOWER, UPPER), (False, True)):
        a, b = operands(n, many, kind, left, dtype, rng)
        dense, packed = (a, b) if left else (b, a)
        packed.stored[[numel(150) + 149, 0]] = float("inf")
        dense.stored[[3, 140], [7, 300]] = float("nan")
        dense.stored[-1, -1] = float("inf")
        a, b = (Operand(x.stored, x.kind, n) for x in (a, b))
        expected = stored_product(a, b).to(dtype)
        force(ENGINE, tile, split, 2, 1)
        with failures.case(f"{n=}, kind {kind}, dense {'left' if left else 'right'}"):
            c = mm(a.stored, b.stored, n, a.kind, b.kind, DENSE, tf32)
            torch.testing.assert_close(c, expected, rtol=0, atol=0, equal_nan=True)
    failures.report()
