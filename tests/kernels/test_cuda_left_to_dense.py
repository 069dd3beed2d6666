"""Products that dense torch computes on unpacked copies: no one can tell but by the time."""

from __future__ import annotations

import math

import pytest
import torch
from cases import (
    SMALL,
    Failures,
    Operand,
    assert_close_or_equal,
    assert_exact,
    each,
    mm,
    stored_product,
)

from packedtri.layout import DENSE, LOWER, UPPER, numel
from packedtri.testing import random_integers

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(SMALL, reason="large sizes")]

dtypes = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)


@pytest.mark.parametrize("value", [math.inf, math.nan], ids=str)
@dtypes
def test_left_to_dense(dtype: torch.dtype, value: float, device: str, rng: torch.Generator) -> None:
    """What dense torch multiplies (config.cpp): structural zeros still meet no inf or nan."""
    n, m = 501, 504
    failures = Failures()
    for kind, left, batches in each((LOWER, UPPER), (True, False), (((), ()), ((2, 1), (3,)))):
        packed = random_integers((*batches[0], numel(n)), dtype, device, rng)
        dense = random_integers(
            (*batches[1], n, m) if left else (*batches[1], m, n), dtype, device, rng
        )
        for bad in ("none", "packed", "dense"):
            x, y = packed.clone(), dense.clone()
            if bad == "packed":
                x[..., [0, numel(n // 2), numel(n) - 1]] = value
            if bad == "dense":
                y[..., 7, 5] = y[..., n // 2, n // 3] = value
            a, b = Operand(x, kind, n), Operand(y, DENSE, n)
            a, b = (a, b) if left else (b, a)
            c = mm(a.stored, b.stored, n, a.kind, b.kind, DENSE)
            with failures.case(f"{kind=}, {left=}, {batches=}, {bad} bad"):
                assert c.is_contiguous()
                assert_close_or_equal(c, stored_product(a, b).to(dtype), atol=0)
    failures.report()


@dtypes
def test_gram_left_to_dense(dtype: torch.dtype, device: str, rng: torch.Generator) -> None:
    n = 500
    x = random_integers((2, n, n), dtype, device, rng)
    a, b = Operand(x, DENSE, n), Operand(x.mT, DENSE, n)
    assert_exact(mm(x, x.mT, n, DENSE, DENSE, LOWER), a, b, LOWER)
