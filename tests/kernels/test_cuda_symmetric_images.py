"""Tile images of symmetric operands, whole ones and of half a matrix, whose lines turn."""

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
    shifted,
    stored_product,
)
from torch import Tensor

from packedtri.layout import DENSE, LOWER, SYMMETRIC, UPPER, numel
from packedtri.testing import densify, random, random_integers

pytestmark = [pytest.mark.cuda, hopper, pytest.mark.sanitizer]

typed = pytest.mark.parametrize("element", ELEMENTS.values(), ids=ELEMENTS.keys())
# Tiles, how many blocks share a sum, and in what parts they are cut where none do.
tiled = pytest.mark.parametrize(
    ("tile", "split", "above"),
    [
        (0, 1, 1),
        (0, 2, 2),
        (0, 4, 1),
        (1, 1, 0),
        (1, 2, 1),
        (1, 2, 5),
        (2, 1, 1),
        (2, 2, 3),
        (2, 4, 1),
    ],
)
# Lines turn at multiples of 256: sizes one block before, at and behind these, and far from them. In
# small tiles images are of half a matrix from 2048 on, those of float32 in parts from 2500.
FAR = 2561
SIZES = (330,) if SMALL else (193, 256, 257, 449, 512, 700, 1030)
SIZES_OF_SMALL_TILES = SIZES if SMALL else (193, 700, 2049, FAR)
KINDS = (
    (SYMMETRIC, DENSE, DENSE),
    (DENSE, SYMMETRIC, DENSE),
    (SYMMETRIC, SYMMETRIC, DENSE),
    (SYMMETRIC, SYMMETRIC, LOWER),
    (SYMMETRIC, UPPER, DENSE),
    (LOWER, SYMMETRIC, DENSE),
)


def few_sizes(tile: int) -> tuple[int, ...]:
    """Such that large tiles, and small ones, read whole and half images."""
    return (330,) if SMALL or tile > 0 else (330, FAR)


def skip_tiles(element: Element, tile: int) -> None:
    if element.dtype == torch.float32 and not element.tf32 and tile > 0:
        pytest.skip("float32 in parts has tiles of one size")


@tiled
@typed
def test_products(
    element: Element,
    tile: int,
    split: int,
    above: int,
    device: str,
    rng: torch.Generator,
    force: Force,
) -> None:
    skip_tiles(element, tile)
    (dtype, tf32), failures = element, Failures()
    sizes = SIZES if tile == 1 else SIZES_OF_SMALL_TILES
    for n, (a_kind, b_kind, c_kind) in each(sizes, KINDS):
        a, b = (
            draw_operand(kind, n, dtype, rng, draw=random_integers) for kind in (a_kind, b_kind)
        )
        force(ENGINE, tile, split, above, 1 if split > 1 else 2)
        with failures.case(f"{n=}, kinds {a_kind}, {b_kind}, {c_kind}"):
            c = mm(a.stored, b.stored, n, a_kind, b_kind, c_kind, tf32)
            assert_exact(c, a, b, c_kind)
    failures.report()


@pytest.mark.parametrize("tile", [0, 1, 2])
@typed
def test_places(
    element: Element, tile: int, device: str, rng: torch.Generator, force: Force
) -> None:
    """A matrix times itself, batches, and matrices that begin anywhere in a word of memory."""
    skip_tiles(element, tile)
    (dtype, tf32), failures = element, Failures()
    # Matrices of order 303 are multiples of 16 bytes apart, those of 330 are not.
    sizes = (330,) if SMALL else (303, 330, 600) if tile > 0 else (330, FAR)
    for n, batch, skip in each(sizes, ((), (3,)), (0, 1, 8)):
        s = draw_operand(SYMMETRIC, n, dtype, rng, batch=batch, draw=random_integers)
        stored = shifted(s.stored, skip)
        x = draw_operand(DENSE, n, dtype, rng, batch=batch, cols=77, draw=random_integers)
        force(ENGINE, tile, 2, 2, 1)
        with failures.case(f"{n=}, {batch=}, {skip} elements off"):
            square = mm(stored, stored, n, SYMMETRIC, SYMMETRIC, LOWER, tf32)
            assert_exact(square, s, s, LOWER)
            product = mm(stored, x.stored, n, SYMMETRIC, DENSE, DENSE, tf32)
            assert_exact(product, s, x, DENSE)
        if not batch:
            continue
        with failures.case(f"{n=}, one matrix for {batch}, {skip} elements off"):
            one = Operand(s.stored[1], SYMMETRIC, n)
            product = mm(stored[1], x.stored, n, SYMMETRIC, DENSE, DENSE, tf32)
            assert_exact(product, one, x, DENSE)
    failures.report()


@pytest.mark.parametrize("split", [1, 4])
@pytest.mark.parametrize("tile", [0, 1, 2])
@typed
def test_what_is_not_finite(
    element: Element, tile: int, split: int, device: str, rng: torch.Generator, force: Force
) -> None:
    """On the diagonal and on either side of it, beside a triangle and dense columns."""
    skip_tiles(element, tile)
    (dtype, tf32), failures = element, Failures()
    kinds = ((SYMMETRIC, DENSE), (LOWER, SYMMETRIC), (SYMMETRIC, UPPER))
    for n, value, (a_kind, b_kind) in each(few_sizes(tile), (float("inf"), float("nan")), kinds):
        a, b = (
            draw_operand(kind, n, dtype, rng, draw=random_integers) for kind in (a_kind, b_kind)
        )
        s = a if a_kind == SYMMETRIC else b
        s.stored[[numel(5) + 5, numel(200) + 130, numel(300) + 7]] = value
        a, b = (Operand(x.stored, x.kind, n) for x in (a, b))
        expected = stored_product(a, b).to(dtype)
        force(ENGINE, tile, split, 1, 1)
        with failures.case(f"{n=}, {value}, kinds {a_kind}, {b_kind}"):
            c = mm(a.stored, b.stored, n, a_kind, b_kind, DENSE, tf32)
            # Such rows are made again as those of two triangles, and rounded between.
            atol = 4 if dtype == torch.bfloat16 else 0
            torch.testing.assert_close(c, expected, rtol=0, atol=atol, equal_nan=True)
    failures.report()


@pytest.mark.parametrize("small", [40, 280, 329])
@pytest.mark.parametrize("tile", [0, 1, 2])
def test_lines_below_the_range_of_float16(
    tile: int, small: int, device: str, rng: torch.Generator, force: Force
) -> None:
    """In TF32 a row and column of tiny elements is as good as dense torch has it."""
    failures = Failures()
    for n in few_sizes(tile):
        stored = random((numel(n),), torch.float32, device, rng)
        i, j = torch.tril_indices(n, n, device=device)
        stored[(i == small) | (j == small)] *= 2.0**-24
        s = Operand(stored, SYMMETRIC, n)
        x = draw_operand(DENSE, n, torch.float32, rng)
        for a, b in ((s, x), (x, s), (s, s)):
            force(ENGINE, tile, 1, 1, 1)
            with failures.case(f"{n=}, kinds {a.kind}, {b.kind}"):
                c = mm(a.stored, b.stored, n, a.kind, b.kind, DENSE, tf32=True)
                assert_lines_close(densify(c, n, DENSE), a.dense, b.dense)
    failures.report()


def assert_lines_close(c: Tensor, a: Tensor, b: Tensor) -> None:
    """Rounding each element to 11 bits changes a sum by no more than this."""
    a, b = a.double(), b.double()
    bound = 2.0**-10 * (a.abs() @ b.abs())
    assert ((c - a @ b).abs() <= 1.25 * bound).all()
