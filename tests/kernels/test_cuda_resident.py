"""Batches beside dense matrices whose packed operand shared memory holds as a whole."""

from __future__ import annotations

import pytest
import torch
from cases import (
    RESIDENT,
    SMALL,
    Failures,
    Force,
    Operand,
    assert_both_sides,
    assert_exact,
    assert_same_nonfinite,
    assert_vectors,
    draw_operand,
    each,
    hopper,
    mm,
    shifted,
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
    """Gives all products of this order with dense matrices this kernel."""
    tile, warps, matrices = shape
    force(RESIDENT, tile, warps, -1, matrices)
    device = torch.device("cuda", torch.cuda.current_device())
    for kinds in ((LOWER, DENSE, DENSE), (DENSE, SYMMETRIC, DENSE)):
        kernel = _library.cuda_kernel(dtype, n, n + 1, 5, kinds, device)
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


def test_views(device: str, dtype: torch.dtype, rng: torch.Generator, force: Force) -> None:
    """Dense matrices that begin anywhere, and such whose rows are all one row."""
    n, failures = 40, Failures()
    for kind, m, shape in each((LOWER, UPPER, SYMMETRIC), (24, 40), SHAPES):
        s = draw_operand(kind, n, dtype, rng, batch=(5,), draw=random_integers)
        resident(force, dtype, n, shape)
        for by in (1, 2, 4, 8):
            x = draw_operand(DENSE, n, dtype, rng, batch=(5,), cols=m, draw=random_integers)
            with failures.case(f"{kind=}, {m=}, {shape=}, {by} further"):
                c = mm(s.stored, shifted(x.stored, by), n, kind, DENSE, DENSE)
                assert_exact(c, s, x, DENSE)
        rows = random_integers((5, n, m), dtype, rng.device, rng)[:, -1:]
        x = Operand(rows.expand(5, n, m), DENSE, n)
        with failures.case(f"{kind=}, {m=}, {shape=}, one row"):
            assert_exact(mm(s.stored, x.stored, n, kind, DENSE, DENSE), s, x, DENSE)
    failures.report()


@pytest.mark.skipif(SMALL, reason="large matrices")
def test_largest_orders(
    device: str, dtype: torch.dtype, rng: torch.Generator, force: Force
) -> None:
    """Packed matrices that leave no room beside them in shared memory."""
    n = {2: 480, 4: 339, 8: 239, 16: 169}[dtype.itemsize]
    failures = Failures()
    for kind, m, shape in each((LOWER, UPPER, HERMITIAN), (20, 200), ((0, 4, 1), (1, 12, 1))):
        s = draw_operand(kind, n, dtype, rng, batch=(3,), draw=random_integers)
        x = draw_operand(DENSE, n, dtype, rng, batch=(3,), cols=m, draw=random_integers)
        resident(force, dtype, n, shape)
        assert_both_sides(failures, s, x, f"{kind=}, {m=}, {shape=}")
    failures.report()


def test_rounding(device: str, dtype: torch.dtype, rng: torch.Generator, force: Force) -> None:
    """Errors of random products are those of sums in the type itself."""
    for n, kind, left, shape in each((50, 140), (LOWER, SYMMETRIC), (True, False), SHAPES):
        packed = draw_operand(kind, n, dtype, rng, batch=(2,), draw=random)
        dense = draw_operand(DENSE, n, dtype, rng, batch=(2,), draw=random)
        a, b = (packed, dense) if left else (dense, packed)
        resident(force, dtype, n, shape)
        c = mm(a.stored, b.stored, n, a.kind, b.kind, DENSE)
        assert_product_close(c, a.dense, b.dense)


@pytest.mark.skipif(SMALL, reason="many launches")
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_nonfinite(
    value: float, device: str, dtype: torch.dtype, rng: torch.Generator, force: Force
) -> None:
    """Elements that are not finite meet no structural zeros, nor anything past the end."""
    failures = Failures()
    kinds = (LOWER, UPPER, HERMITIAN if dtype.is_complex else SYMMETRIC)
    for n, kind, left, packed_bad in each((151, 160), kinds, (True, False), (True, False)):
        # In the last matrix of a batch.
        packed = draw_operand(kind, n, dtype, rng, batch=(3,), draw=random_integers)
        dense = draw_operand(DENSE, n, dtype, rng, batch=(3,), draw=random_integers)
        changed = packed if packed_bad else dense
        changed.stored[-1] = with_bad(Operand(changed.stored[-1], changed.kind, n), value).stored
        a, b = (packed, dense) if left else (dense, packed)
        a, b = Operand(a.stored, a.kind, n), Operand(b.stored, b.kind, n)
        last = (Operand(x.stored[-1], x.kind, n) for x in (a, b))
        product = stored_product(*last).to(dtype)
        for shape in SHAPES:
            resident(force, dtype, n, shape)
            c = mm(a.stored, b.stored, n, a.kind, b.kind, DENSE)
            with failures.case(f"{n=}, kinds {a.kind}, {b.kind}, {packed_bad=}, {shape=}"):
                assert_same_nonfinite(c[-1], product, n, DENSE)
                assert_exact(c[:-1], _without_last(a), _without_last(b), DENSE)
    failures.report()


def _without_last(x: Operand) -> Operand:
    """All matrices of a batch but the last."""
    return Operand(x.stored[:-1], x.kind, x.n)
