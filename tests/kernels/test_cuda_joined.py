"""One packed matrix times a batch of dense ones whose columns the engine joins to one product."""

from __future__ import annotations

import pytest
import torch
from cases import (
    ENGINE,
    IMAGED,
    SMALL,
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
from torch import Tensor

from packedtri.layout import DENSE, LOWER, SYMMETRIC, UPPER, numel
from packedtri.testing import assert_product_close, random, random_integers

pytestmark = [pytest.mark.cuda, hopper]

KINDS = (LOWER, UPPER, SYMMETRIC)
# Blocks of 64 columns: of one matrix alone, of pairs that two matrices share, and of both.
COLUMNS = (64, 128, 192, 320)
typed = pytest.mark.parametrize("dtype", IMAGED)
# Tiles, and how many blocks share a sum; float32 has tiles of one size.
tiled = pytest.mark.parametrize(("tile", "split"), [(0, 1), (0, 4), (1, 1), (2, 1), (2, 4)])


def layouts(x: Tensor) -> dict[str, Tensor]:
    """The same matrices, contiguous, with columns that lie side by side, in turn, and with gaps."""
    padded = x.new_full((*x.shape[:-1], x.shape[-1] + 8), float("nan"))
    padded[..., :-8] = x
    return {
        "contiguous": x.contiguous(),
        "columns": x.mT.contiguous().mT,
        "rows in turn": x.movedim(0, -2).contiguous().movedim(-2, 0),
        "gaps": padded[..., :-8],
    }


@pytest.mark.sanitizer
@tiled
@typed
def test_products(
    dtype: torch.dtype, tile: int, split: int, device: str, rng: torch.Generator, force: Force
) -> None:
    if dtype == torch.float32 and tile > 0:
        pytest.skip("float32 has tiles of one size")
    failures = Failures()
    sizes = (130,) if SMALL else (8, 33, 64, 130, 392, 705)
    batches = ((3,),) if SMALL else ((2,), (5,), (2, 3))
    for n, cols, kind, batch in each(sizes, COLUMNS[::2] if SMALL else COLUMNS, KINDS, batches):
        a = draw_operand(kind, n, dtype, rng, draw=random_integers)
        x = draw_operand(DENSE, n, dtype, rng, batch=batch, cols=cols, draw=random_integers)
        force(ENGINE, tile, split, 2, 1)
        for name, stored in layouts(x.stored).items():
            with failures.case(f"n={n}, {cols} columns, kind {kind}, batch {batch}, {name}"):
                assert_exact(mm(a.stored, stored, n, kind, DENSE, DENSE), a, x, DENSE)
    failures.report()


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e-40])
@tiled
@typed
def test_what_is_not_finite(
    dtype: torch.dtype,
    tile: int,
    split: int,
    value: float,
    device: str,
    rng: torch.Generator,
    force: Force,
) -> None:
    """It is computed from stored elements, in its matrix alone."""
    if dtype == torch.float32 and tile > 0:
        pytest.skip("float32 has tiles of one size")
    n, count, failures = 300, 3 if SMALL else 7, Failures()
    # What is left of 16-bit products of symmetric matrices is rounded twice.
    kinds = KINDS if dtype == torch.float32 else KINDS[:2]
    for kind, cols, in_a in each(kinds, COLUMNS, (True, False)):
        a = draw_operand(kind, n, dtype, rng, draw=random_integers)
        x = draw_operand(DENSE, n, dtype, rng, batch=(count,), cols=cols, draw=random_integers)
        if in_a:
            a.stored[[numel(150) + 149, 0]] = value
        else:
            x.stored[[0, 1, 2], [3, 299, 150], [0, cols - 1, 40]] = value
        a, x = Operand(a.stored, kind, n), Operand(x.stored, DENSE, n)
        expected = stored_product(a, x).to(dtype)
        force(ENGINE, tile, split, 2, 1)
        for name, stored in layouts(x.stored).items():
            with failures.case(f"{cols} columns, kind {kind}, in {'A' if in_a else 'X'}, {name}"):
                c = mm(a.stored, stored, n, kind, DENSE, DENSE)
                # A sum that cancels but for a tiny term depends on the order of its terms.
                torch.testing.assert_close(c, expected, rtol=0, atol=1e-30, equal_nan=True)
    failures.report()


@pytest.mark.skipif(SMALL, reason="large batches")
@pytest.mark.parametrize("kind", KINDS)
@typed
def test_chosen(dtype: torch.dtype, kind: int, device: str, rng: torch.Generator) -> None:
    """What sizes choose by themselves: twice the error of torch at most."""
    for n, batch, cols in ((2048, 32, 64), (1100, 24, 192), (4096, 3, 128)):
        a = draw_operand(kind, n, dtype, rng, draw=random)
        x = draw_operand(DENSE, n, dtype, rng, batch=(batch,), cols=cols, draw=random)
        c = mm(a.stored, x.stored, n, kind, DENSE, DENSE)
        assert_product_close(c, a.dense, x.dense)


@pytest.mark.skipif(SMALL, reason="large batches")
def test_launches(device: str, rng: torch.Generator, force: Force) -> None:
    """Of float32, images that take more than 256 MiB are made in parts; the last is shorter."""
    n, batch, cols = 520, 1301, 64
    a = draw_operand(LOWER, n, torch.float32, rng, draw=random_integers)
    x = draw_operand(DENSE, n, torch.float32, rng, batch=(batch,), cols=cols, draw=random_integers)
    force(ENGINE, 0, 1, 1, 1)
    assert_exact(mm(a.stored, x.stored, n, LOWER, DENSE, DENSE), a, x, DENSE)
