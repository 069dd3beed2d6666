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
    Operand,
    assert_close_or_equal,
    assert_exact,
    draw_operand,
    each,
    mm,
    part_of,
    shifted,
    stored_product,
    vector_layouts,
)
from test_cuda_mirrored import BAD

from packedtri import _library
from packedtri.layout import DENSE, HERMITIAN, LOWER, SYMMETRIC, UPPER, numel
from packedtri.testing import assert_product_close, densify, random, random_integers, take_part

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
        for name, stored in vector_layouts(x.stored).items():
            case = f"{n=}, {m=}, {kind=}, {s_batch}, {x_batch}, {warps=}, {name}"
            with failures.case(case):
                c = mm(shifted(s.stored), stored, n, kind, DENSE, DENSE)
                assert_exact(c, s, x, DENSE)
            with failures.case(f"{case} left"):
                c = mm(stored.mT, s.stored, n, DENSE, kind, DENSE)
                assert_exact(c, Operand(x.stored.mT, DENSE, n), s, DENSE)
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
    places = [numel(i) + j for i, j in BAD]
    kinds = (LOWER, UPPER, HERMITIAN if dtype.is_complex else SYMMETRIC, DENSE)
    for a_kind, b_kind, left in each(kinds, kinds, (True, False)):
        a = draw_operand(a_kind, n, dtype, rng, draw=random_integers)
        b = draw_operand(b_kind, n, dtype, rng, draw=random_integers)
        bad = a if left else b
        rows, cols = (torch.tensor(x, device=device) for x in zip(*BAD, strict=True))
        if bad.kind == DENSE:
            bad.stored[rows, cols] = value
        else:
            bad.stored[places] = value
        a, b = Operand(a.stored, a_kind, n), Operand(b.stored, b_kind, n)
        product = stored_product(a, b).to(dtype)
        for c_kind, warps in each((LOWER, DENSE), WARPS):
            by_fragments(force, dtype, warps)
            c = densify(mm(a.stored, b.stored, n, a_kind, b_kind, c_kind), n, c_kind)
            expected = take_part(product, part_of(c_kind))
            with failures.case(f"kinds {a_kind}, {b_kind}, {c_kind}, {left=}, {warps=}"):
                # Whether infinite times complex is infinite or nan depends on the parts.
                assert torch.equal(c.isfinite(), expected.isfinite())
                ok = c.isfinite() if dtype.is_complex else slice(None)
                assert_close_or_equal(c[ok], expected[ok], atol=0)
    failures.report()
