"""Small tiles of any type by the tensor cores for float64: operands go from memory to registers."""

from __future__ import annotations

import pytest
import torch
from cases import (
    FRAGMENTS,
    PAIRS,
    SMALL,
    Failures,
    Force,
    assert_exact,
    assert_same_nonfinite,
    assert_vectors,
    draw_operand,
    each,
    mm,
    stored_product,
    with_bad,
)

from packedtri import _library
from packedtri.layout import DENSE, HERMITIAN, LOWER, SYMMETRIC, UPPER
from packedtri.testing import assert_product_close, random, random_integers

pytestmark = [pytest.mark.cuda, pytest.mark.sanitizer]

# How many warps share a sum.
WARPS = (1, 4) if SMALL else (1, 2, 8)


def by_fragments(force: Force, dtype: torch.dtype, warps: int) -> None:
    """Gives all products this kernel, with so many warps for a sum."""
    force(FRAGMENTS, -1, warps, -1, -1)
    device = torch.device("cuda", torch.cuda.current_device())
    kernel = _library.cuda_kernel(dtype, 50, 50, 1, (LOWER, DENSE, DENSE), device)
    assert "straight to registers" in kernel, kernel


def test_pairs(device: str, dtype: torch.dtype, rng: torch.Generator, force: Force) -> None:
    """Every pair of operands, at sizes about the edges of tiles and of steps, dense and packed."""
    failures = Failures()
    sizes = (17, 33) if SMALL else (1, 2, 7, 15, 16, 17, 31, 32, 33, 47, 65, 100, 130)
    for n, (a_kind, b_kind) in each(sizes, PAIRS):
        a = draw_operand(a_kind, n, dtype, rng, batch=(2,), draw=random_integers)
        b = draw_operand(b_kind, n, dtype, rng, batch=(2,), draw=random_integers)
        for c_kind, warps in each((DENSE, LOWER), WARPS):
            by_fragments(force, dtype, warps)
            with failures.case(f"{n=}, kinds {a_kind}, {b_kind}, {c_kind}, {warps=}"):
                c = mm(a.stored, b.stored, n, a_kind, b_kind, c_kind)
                assert_exact(c, a, b, c_kind)
    failures.report()


def test_vectors(device: str, dtype: torch.dtype, rng: torch.Generator, force: Force) -> None:
    """Dense operands of any width and layout, and batches of which one operand is broadcast."""
    failures = Failures()
    sizes = ((9, 5), (40, 3)) if SMALL else ((1, 9), (9, 70), (64, 8), (65, 33), (200, 20))
    batches = (((), ()), ((3,), ()), ((), (3,)))
    kinds = (LOWER, UPPER, SYMMETRIC, HERMITIAN, DENSE)
    for (n, m), kind, (s_batch, x_batch), warps in each(sizes, kinds, batches, WARPS):
        s = draw_operand(kind, n, dtype, rng, batch=s_batch, draw=random_integers)
        x = draw_operand(DENSE, n, dtype, rng, batch=x_batch, cols=m, draw=random_integers)
        by_fragments(force, dtype, warps)
        case = f"{n=}, {m=}, {kind=}, {s_batch}, {x_batch}, {warps=}"
        assert_vectors(failures, s, x, case)
    failures.report()


def test_rounding(device: str, dtype: torch.dtype, rng: torch.Generator, force: Force) -> None:
    """Errors of random products are those of sums in the type itself."""
    for n, (a_kind, b_kind), warps in each((50, 190), ((LOWER, LOWER), (SYMMETRIC, DENSE)), WARPS):
        a = draw_operand(a_kind, n, dtype, rng, draw=random)
        b = draw_operand(b_kind, n, dtype, rng, draw=random)
        by_fragments(force, dtype, warps)
        c = mm(a.stored, b.stored, n, a_kind, b_kind, DENSE)
        assert_product_close(c, a.dense, b.dense)


@pytest.mark.skipif(SMALL, reason="many launches")
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_nonfinite(
    value: float, device: str, dtype: torch.dtype, rng: torch.Generator, force: Force
) -> None:
    """Elements that are not finite meet no structural zeros."""
    n, failures = 200, Failures()
    kinds = (LOWER, UPPER, HERMITIAN if dtype.is_complex else SYMMETRIC, DENSE)
    for a_kind, b_kind, left in each(kinds, kinds, (True, False)):
        a = draw_operand(a_kind, n, dtype, rng, draw=random_integers)
        b = draw_operand(b_kind, n, dtype, rng, draw=random_integers)
        a, b = (with_bad(a, value), b) if left else (a, with_bad(b, value))
        product = stored_product(a, b).to(dtype)
        for c_kind, warps in each((LOWER, DENSE), WARPS):
            by_fragments(force, dtype, warps)
            c = mm(a.stored, b.stored, n, a_kind, b_kind, c_kind)
            with failures.case(f"kinds {a_kind}, {b_kind}, {c_kind}, {left=}, {warps=}"):
                assert_same_nonfinite(c, product, n, c_kind)
    failures.report()
