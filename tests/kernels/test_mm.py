"""The product op against dense torch: every pair of kinds, both results, ragged sizes, batches."""

from __future__ import annotations

import pytest
import torch
from cases import (
    PAIR_IDS,
    PAIRS,
    SIZES,
    SMALL,
    Failures,
    draw_operand,
    each,
    mm,
    part_of,
)
from torch import Tensor

from packedtri.testing import (
    DENSE,
    LOWER,
    UPPER,
    assert_product_close,
    densify,
    random_integers,
    reference_product,
    take_part,
)

pairs = pytest.mark.parametrize(("a_kind", "b_kind"), PAIRS, ids=PAIR_IDS)


def assert_exact(c: Tensor, a: Tensor, b: Tensor, c_kind: int, case: str) -> None:
    """For operands of small integers: equal to the rounded reference, bit for bit."""
    expected = take_part(reference_product(a, b), part_of(c_kind)).to(c.dtype)
    assert c.shape == expected.shape, f"{case}: shape {c.shape}, expected {expected.shape}"
    wrong = (c != expected).nonzero().tolist()
    assert not wrong, f"{case}: {len(wrong)} elements differ, first at {wrong[0]}"


@pairs
def test_ragged_sizes(
    a_kind: int, b_kind: int, device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    failures = Failures()
    for n, c_kind in each(SIZES, (LOWER, DENSE)):
        a = draw_operand(a_kind, n, dtype, rng)
        b = draw_operand(b_kind, n, dtype, rng)

        def body(a=a, b=b, n=n, c_kind=c_kind) -> None:
            c = densify(mm(a.stored, b.stored, n, a_kind, b_kind, c_kind), n, c_kind)
            assert_product_close(c, a.dense, b.dense, part=part_of(c_kind))

        failures.check(f"n={n}, c_kind={c_kind}", body)
    failures.report()
