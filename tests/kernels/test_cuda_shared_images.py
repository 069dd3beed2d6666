"""Batches of 16-bit products with images of their packed operands in shared memory."""

from __future__ import annotations

import pytest
import torch
from cases import (
    SHARED_IMAGES,
    SIXTEEN_BITS,
    SMALL,
    Failures,
    Force,
    Operand,
    assert_exact,
    assert_same_nonfinite,
    draw_operand,
    each,
    hopper,
    mm,
    shifted,
    stored_product,
    with_bad,
)

from packedtri import _library
from packedtri.layout import DENSE, LOWER, SYMMETRIC, UPPER
from packedtri.testing import assert_product_close, random, random_integers

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.sanitizer,
    hopper,
    pytest.mark.parametrize("dtype", SIXTEEN_BITS, ids=str),
]

PACKED = (LOWER, UPPER, SYMMETRIC)
# About the edges of blocks and of words, and the largest; with results whose rows are aligned.
ORDERS = (3, 72, 200) if SMALL else (1, 2, 5, 8, 33, 63, 64, 65, 96, 129, 192, 200, 250, 256)


def shared_images(
    force: Force, dtype: torch.dtype, n: int, kinds: tuple[int, int, int], m: int | None = None
) -> None:
    """Gives all products like this one the kernel, where it can have them."""
    force(SHARED_IMAGES, -1, -1, -1, -1)
    device = torch.device("cuda", torch.cuda.current_device())
    kernel = _library.cuda_kernel(dtype, n, n if m is None else m, 5, kinds, device)
    assert "packed operands in shared memory, as tile images" in kernel, f"{n=} {kinds=}: {kernel}"


def aligned(n: int, c_kind: int) -> bool:
    """Whether the kernel has results of this kind: rows of dense ones end with a word."""
    return c_kind == LOWER or n % 8 == 0


def test_packed_pairs(dtype: torch.dtype, device: str, rng: torch.Generator, force: Force) -> None:
    """Two packed matrices, which begin anywhere in a word, and whose result does."""
    failures = Failures()
    for n, a_kind, b_kind, c_kind in each(ORDERS, PACKED, PACKED, (LOWER, DENSE)):
        if not aligned(n, c_kind):
            continue
        a = draw_operand(a_kind, n, dtype, rng, batch=(5,), draw=random_integers)
        b = draw_operand(b_kind, n, dtype, rng, batch=(5,), draw=random_integers)
        with failures.case(f"{n=}, {a_kind=}, {b_kind=}, {c_kind=}"):
            shared_images(force, dtype, n, (a_kind, b_kind, c_kind))
            c = mm(shifted(a.stored), shifted(b.stored, 6), n, a_kind, b_kind, c_kind)
            assert_exact(c, a, b, c_kind)
    failures.report()


def test_same_matrix(dtype: torch.dtype, device: str, rng: torch.Generator, force: Force) -> None:
    """A matrix times its transpose, or itself, which has one image."""
    failures = Failures()
    pairs = (
        (LOWER, UPPER),
        (UPPER, LOWER),
        (LOWER, LOWER),
        (SYMMETRIC, SYMMETRIC),
        (SYMMETRIC, UPPER),
    )
    for n, (a_kind, b_kind), c_kind in each(ORDERS, pairs, (LOWER, DENSE)):
        if not aligned(n, c_kind):
            continue
        a = draw_operand(a_kind, n, dtype, rng, batch=(3,), draw=random_integers)
        b = Operand(a.stored, b_kind, n)
        with failures.case(f"{n=}, {a_kind=}, {b_kind=}, {c_kind=}"):
            shared_images(force, dtype, n, (a_kind, b_kind, c_kind))
            assert_exact(mm(a.stored, b.stored, n, a_kind, b_kind, c_kind), a, b, c_kind)
    failures.report()


def test_beside_dense(dtype: torch.dtype, device: str, rng: torch.Generator, force: Force) -> None:
    """Beside aligned dense matrices, by rows or by columns, one of which may be for all."""
    failures = Failures()
    widths = (8, 72) if SMALL else (8, 64, 72, 200, 256, 520)
    batches = (((3,), (3,)),) if SMALL else (((3,), ()), ((), (3,)), ((5,), (5,)))
    for n, m, kind, (s_batch, x_batch) in each(ORDERS, widths, PACKED, batches):
        s = draw_operand(kind, n, dtype, rng, batch=s_batch, draw=random_integers)
        x = draw_operand(DENSE, n, dtype, rng, batch=x_batch, cols=m, draw=random_integers)
        case = f"{n=}, {m=}, {kind=}, {s_batch}, {x_batch}"
        shared_images(force, dtype, n, (kind, DENSE, DENSE), m)
        with failures.case(f"{case}, left"):
            assert_exact(mm(shifted(s.stored), x.stored, n, kind, DENSE, DENSE), s, x, DENSE)
        if n % 8 > 0:
            continue
        columns = x.stored.mT.contiguous().mT
        with failures.case(f"{case}, left, columns"):
            assert_exact(mm(s.stored, columns, n, kind, DENSE, DENSE), s, x, DENSE)
        rows = Operand(x.stored.mT, DENSE, n)
        for name, stored in (("rows", columns.mT), ("columns", x.stored.mT)):
            with failures.case(f"{case}, right, {name}"):
                assert_exact(mm(stored, s.stored, n, DENSE, kind, DENSE), rows, s, DENSE)
    failures.report()


@pytest.mark.skipif(SMALL, reason="many launches")
def test_views(dtype: torch.dtype, device: str, rng: torch.Generator, force: Force) -> None:
    """Dense matrices with gaps between rows and between matrices, any number of rows, and packed
    matrices that are one for the whole batch.
    """
    failures = Failures()
    for n, kind, m in each((72, 200), PACKED, (2, 13, 70, 200)):
        s = draw_operand(kind, n, dtype, rng, batch=(4,), draw=random_integers)
        x = draw_operand(DENSE, n, dtype, rng, batch=(4,), rows=m, draw=random_integers)
        case = f"{n=}, {kind=}, {m=}"
        shared_images(force, dtype, n, (DENSE, kind, DENSE), m)
        gaps = x.stored.new_full((4, m + 1, n + 8), float("nan"))[:, :m, :n].copy_(x.stored)
        tall = x.stored.new_full((4, n, m + 8 - m % 8), float("nan"))[..., :m].copy_(x.stored.mT)
        for name, stored in (("gaps", gaps), ("columns with gaps", tall.mT)):
            with failures.case(f"{case}, {name}"):
                assert_exact(mm(stored, s.stored, n, DENSE, kind, DENSE), x, s, DENSE)
        one = Operand(s.stored[0], kind, n)
        other = draw_operand(LOWER, n, dtype, rng, batch=(4,), draw=random_integers)
        with failures.case(f"{case}, one for all"):
            c = mm(one.stored, other.stored, n, kind, LOWER, LOWER)
            assert_exact(c, one, other, LOWER)
    failures.report()


@pytest.mark.skipif(SMALL, reason="many products")
def test_many_products(dtype: torch.dtype, device: str, rng: torch.Generator, force: Force) -> None:
    """A block has one product after another, and no element of one reaches the next."""
    failures = Failures()
    cases = (
        (LOWER, LOWER, LOWER),
        (UPPER, LOWER, DENSE),
        (SYMMETRIC, DENSE, DENSE),
        (DENSE, UPPER, DENSE),
    )
    for n, (a_kind, b_kind, c_kind), by in each((40, 65, 72, 129, 200, 250, 256), cases, (0, 3)):
        if not aligned(n, c_kind):
            continue
        a, b = (
            draw_operand(kind, n, dtype, rng, batch=(1100,), draw=random_integers)
            for kind in (a_kind, b_kind)
        )
        stored = [x.stored if x.kind == DENSE else shifted(x.stored, by) for x in (a, b)]
        shared_images(force, dtype, n, (a_kind, b_kind, c_kind))
        with failures.case(f"{n=}, {a_kind=}, {b_kind=}, {c_kind=}, {by=}"):
            c = mm(*stored, n, a_kind, b_kind, c_kind)
            assert_exact(c, a, b, c_kind)
            for _ in range(3):
                assert torch.equal(mm(*stored, n, a_kind, b_kind, c_kind), c)
    failures.report()


@pytest.mark.skipif(SMALL, reason="initcheck does not see what the dense product stores")
def test_rounding(dtype: torch.dtype, device: str, rng: torch.Generator, force: Force) -> None:
    """Errors of random products are those of sums in float32."""
    for n, a_kind, b_kind in each((72, 200), (LOWER, SYMMETRIC, DENSE), (UPPER, DENSE)):
        if a_kind == b_kind:
            continue
        a, b = (
            draw_operand(kind, n, dtype, rng, batch=(2,), draw=random) for kind in (a_kind, b_kind)
        )
        shared_images(force, dtype, n, (a_kind, b_kind, DENSE))
        c = mm(a.stored, b.stored, n, a_kind, b_kind, DENSE)
        assert_product_close(c, a.dense, b.dense)


@pytest.mark.skipif(SMALL, reason="many launches")
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_nonfinite(
    value: float, dtype: torch.dtype, device: str, rng: torch.Generator, force: Force
) -> None:
    """Elements that are not finite meet no structural zeros, nor anything past the end."""
    failures = Failures()
    kinds = (*PACKED, DENSE)
    for n, a_kind, b_kind, c_kind, a_bad in each(
        (152, 150, 200), kinds, kinds, (LOWER, DENSE), (True, False)
    ):
        dense = (a_kind == DENSE) + (b_kind == DENSE)
        if dense == 2 or (c_kind == LOWER and dense) or not aligned(n, c_kind):
            continue
        # In the second matrix of a batch.
        a, b = (
            draw_operand(kind, n, dtype, rng, batch=(3,), draw=random_integers)
            for kind in (a_kind, b_kind)
        )
        bad = a if a_bad else b
        bad.stored[1] = with_bad(Operand(bad.stored[1], bad.kind, n), value).stored
        product = stored_product(*(Operand(x.stored[1], x.kind, n) for x in (a, b))).to(dtype)
        shared_images(force, dtype, n, (a_kind, b_kind, c_kind))
        with failures.case(f"{n=}, {a_kind=}, {b_kind=}, {c_kind=}, {a_bad=}"):
            c = mm(a.stored, b.stored, n, a_kind, b_kind, c_kind)
            assert_same_nonfinite(c[1], product, n, c_kind)
            others = (Operand(x.stored[::2], x.kind, n) for x in (a, b))
            assert_exact(c[::2], *others, c_kind)
    failures.report()
