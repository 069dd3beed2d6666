"""Batches beside dense matrices whose packed operand shared memory holds as a whole."""

from __future__ import annotations

import pytest
import torch
from cases import (
    RESIDENT,
    SMALL,
    Failures,
    Force,
    assert_same_nonfinite,
    assert_vectors,
    draw_operand,
    each,
    hopper,
    mm,
    stored_product,
    with_bad,
)

from packedtri import _library
from packedtri.layout import DENSE, HERMITIAN, LOWER, SYMMETRIC, UPPER
from packedtri.testing import assert_product_close, random, random_integers

pytestmark = [pytest.mark.cuda, pytest.mark.sanitizer, hopper]

# The size of a warp's tile, how many warps a block has, and how many matrices.
SHAPES = ((0, 4, 1), (1, 2, 2)) if SMALL else ((0, 4, 1), (1, 8, 1), (1, 4, 3), (0, 1, 2))
KINDS = (LOWER, UPPER, SYMMETRIC, HERMITIAN)


def resident(force: Force, dtype: torch.dtype, n: int, shape: tuple[int, int, int]) -> None:
    """Gives all products of this order this kernel."""
    tile, warps, matrices = shape
    force(RESIDENT, tile, warps, -1, matrices)
    device = torch.device("cuda", torch.cuda.current_device())
    kernel = _library.cuda_kernel(dtype, n, n + 1, 5, (LOWER, DENSE, DENSE), device)
    assert "packed operand in shared memory" in kernel, kernel


def test_layouts(device: str, dtype: torch.dtype, rng: torch.Generator, force: Force) -> None:
    """Beside dense matrices of any width and layout, one of which may be for the whole batch."""
    failures = Failures()
    # About the edges of tiles and of steps.
    sizes = ((9, 5), (40, 3)) if SMALL else (
        (1, 9), (2, 2), (7, 40), (16, 16), (17, 33),
        (33, 70), (64, 64), (65, 8), (100, 129), (144, 20)
    )  # fmt: skip
    batches = (
        (((), (3,)), ((5,), (5,))) if SMALL else (((), ()), ((3,), ()), ((), (3,)), ((5,), (5,)))
    )
    for (n, m), kind, (s_batch, x_batch), shape in each(sizes, KINDS, batches, SHAPES):
        s = draw_operand(kind, n, dtype, rng, batch=s_batch, draw=random_integers)
        x = draw_operand(DENSE, n, dtype, rng, batch=x_batch, cols=m, draw=random_integers)
        resident(force, dtype, n, shape)
        assert_vectors(failures, s, x, f"{n=}, {m=}, {kind=}, {s_batch}, {x_batch}, {shape=}")
    failures.report()


def test_rounding(device: str, dtype: torch.dtype, rng: torch.Generator, force: Force) -> None:
    """Errors of random products are those of sums in the type itself."""
    for n, kind, shape in each((50, 140), (LOWER, SYMMETRIC), SHAPES):
        a = draw_operand(kind, n, dtype, rng, batch=(2,), draw=random)
        b = draw_operand(DENSE, n, dtype, rng, batch=(2,), draw=random)
        resident(force, dtype, n, shape)
        c = mm(a.stored, b.stored, n, kind, DENSE, DENSE)
        assert_product_close(c, a.dense, b.dense)


@pytest.mark.skipif(SMALL, reason="many launches")
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_nonfinite(
    value: float, device: str, dtype: torch.dtype, rng: torch.Generator, force: Force
) -> None:
    """Elements that are not finite meet no structural zeros, nor anything past the end."""
    failures = Failures()
    for n, kind, packed_first, packed_bad in each((151, 160), KINDS, (True, False), (True, False)):
        packed = draw_operand(kind, n, dtype, rng, draw=random_integers)
        dense = draw_operand(DENSE, n, dtype, rng, draw=random_integers)
        if packed_bad:
            packed = with_bad(packed, value)
        else:
            dense = with_bad(dense, value)
        a, b = (packed, dense) if packed_first else (dense, packed)
        product = stored_product(a, b).to(dtype)
        for shape in SHAPES:
            resident(force, dtype, n, shape)
            c = mm(a.stored, b.stored, n, a.kind, b.kind, DENSE)
            with failures.case(f"{n=}, kinds {a.kind}, {b.kind}, {packed_bad=}, {shape=}"):
                assert_same_nonfinite(c, product, n, DENSE)
    failures.report()
