"""Small tiles of products with symmetric operands, of which they mirror the stored half."""

from __future__ import annotations

import pytest
import torch
from cases import (
    DIRECT,
    HOPPER,
    SIXTEEN_BITS,
    SMALL,
    Failures,
    Force,
    assert_same_nonfinite,
    assert_vectors,
    draw_operand,
    each,
    mm,
    on_hopper,
    stored_product,
    with_bad,
)

from packedtri.layout import DENSE, HERMITIAN, LOWER, SYMMETRIC, UPPER
from packedtri.testing import random_integers

pytestmark = [pytest.mark.cuda, pytest.mark.sanitizer]


@pytest.fixture
def method(dtype: torch.dtype) -> int:
    """That of the kernels which mirror operands of a type."""
    if dtype not in SIXTEEN_BITS:
        return DIRECT
    if not on_hopper():
        pytest.skip("Hopper's tensor cores")
    return HOPPER


def test_vectors(
    method: int, dtype: torch.dtype, device: str, rng: torch.Generator, force: Force
) -> None:
    """Dense operands of any width and layout, and batches of which one operand is broadcast."""
    failures = Failures()
    sizes = ((9, 5), (70, 3)) if SMALL else ((1, 9), (9, 70), (64, 8), (65, 33), (200, 20))
    kinds = (SYMMETRIC, HERMITIAN) if dtype.is_complex else (SYMMETRIC,)
    batches = (((), ()), ((3,), ()), ((), (3,)))
    for (n, m), kind, (s_batch, x_batch), split in each(sizes, kinds, batches, (1, 4)):
        s = draw_operand(kind, n, dtype, rng, batch=s_batch, draw=random_integers)
        x = draw_operand(DENSE, n, dtype, rng, batch=x_batch, cols=m, draw=random_integers)
        force(method, 0, split, 1, 1)
        case = f"{n=}, {m=}, {kind=}, {s_batch}, {x_batch}, {split=}"
        assert_vectors(failures, s, x, case)
    failures.report()


@pytest.mark.skipif(SMALL, reason="many launches")
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_nonfinite(
    value: float,
    method: int,
    dtype: torch.dtype,
    device: str,
    rng: torch.Generator,
    force: Force,
) -> None:
    """There are no structural zeros in what is mirrored; beside a triangle there are."""
    n, failures = 200, Failures()
    pairs = ((SYMMETRIC, DENSE), (DENSE, SYMMETRIC), (SYMMETRIC, SYMMETRIC), (SYMMETRIC, LOWER))
    for (a_kind, b_kind), left in each((*pairs, (UPPER, SYMMETRIC)), (True, False)):
        a = draw_operand(a_kind, n, dtype, rng, draw=random_integers)
        b = draw_operand(b_kind, n, dtype, rng, draw=random_integers)
        a, b = (with_bad(a, value), b) if left else (a, with_bad(b, value))
        product = stored_product(a, b).to(dtype)
        for c_kind, split in each((LOWER, DENSE), (1, 2, 8)):
            force(method, 0, split, 1, 1)
            c = mm(a.stored, b.stored, n, a_kind, b_kind, c_kind)
            with failures.case(f"kinds {a_kind}, {b_kind}, {c_kind}, {left=}, {split=}"):
                assert_same_nonfinite(c, product, n, c_kind)
    failures.report()
