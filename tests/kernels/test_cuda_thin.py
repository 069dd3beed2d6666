"""A packed matrix times few vectors, at sizes that would go to other kernels too."""

from __future__ import annotations

import pytest
import torch
from cases import (
    FLOATS,
    SIXTEEN_BITS,
    SMALL,
    THIN,
    Failures,
    Force,
    assert_vector_layouts,
    draw_operand,
    each,
    mm,
)

from packedtri.layout import DENSE, LOWER, SYMMETRIC, UPPER
from packedtri.testing import random_integers

pytestmark = pytest.mark.cuda


@pytest.mark.sanitizer
@pytest.mark.parametrize("vectors", [2, 7, 20] if SMALL else [1, 2, 4, 5, 8, 9, 16, 17, 50])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_thin_forced(
    vectors: int, device: str, dtype: torch.dtype, rng: torch.Generator, force: Force
) -> None:
    """A packed matrix times few columns, and few rows times it, at all sizes."""
    failures = Failures()
    kinds = (LOWER, UPPER) if dtype in SIXTEEN_BITS else (LOWER, UPPER, SYMMETRIC)
    sizes = (67, 200) if SMALL else (1, 2, 31, 64, 67, 129, 300, 1030)
    for n, kind, batch in each(sizes, kinds, ((), (3,))):
        a = draw_operand(kind, n, dtype, rng, batch=batch, draw=random_integers)
        b = draw_operand(DENSE, n, dtype, rng, batch=batch, cols=vectors, draw=random_integers)
        c = draw_operand(DENSE, n, dtype, rng, batch=batch, rows=vectors, draw=random_integers)
        force(THIN, -1, -1, -1, -1)
        assert_vector_layouts(failures, a, b, c, f"n={n}, {batch}")
    failures.report()


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@pytest.mark.parametrize("kind", [LOWER, UPPER])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_thin_structural_zeros(
    dtype: torch.dtype, kind: int, value: float, device: str, rng: torch.Generator, force: Force
) -> None:
    """An infinite or nan element of a vector meets no zero that is not stored."""
    n = 300
    a = draw_operand(kind, n, dtype, rng, draw=random_integers)
    b = draw_operand(DENSE, n, dtype, rng, cols=5, draw=random_integers)
    b.stored[150, 2] = b.dense[150, 2] = value
    force(THIN, -1, -1, -1, -1)
    c = mm(a.stored, b.stored, n, kind, DENSE, DENSE)
    untouched = c[:150] if kind == LOWER else c[151:]
    assert untouched.isfinite().all()
    assert not c[150, 2].isfinite()
    assert c[:, [0, 1, 3, 4]].isfinite().all()
