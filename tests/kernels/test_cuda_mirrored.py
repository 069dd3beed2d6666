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

from packedtri.layout import DENSE, HERMITIAN, LOWER, SYMMETRIC, UPPER, numel
from packedtri.testing import densify, random_integers, take_part

pytestmark = [pytest.mark.cuda, pytest.mark.sanitizer]


@pytest.fixture
def method(dtype: torch.dtype) -> int:
    """That of the kernels which mirror operands of a type."""
    if dtype not in SIXTEEN_BITS:
        return DIRECT
    if torch.cuda.get_device_capability()[0] != 9:
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
        for name, stored in vector_layouts(x.stored).items():
            force(method, 0, split, 1, 1)
            with failures.case(f"{n=}, {m=}, {kind=}, {s_batch}, {x_batch}, {split=}, {name}"):
                c = mm(shifted(s.stored), stored, n, kind, DENSE, DENSE)
                assert_exact(c, s, x, DENSE)
            with failures.case(f"{n=}, {m=}, {kind=}, {s_batch}, {x_batch}, {split=}, {name} left"):
                c = mm(stored.mT, s.stored, n, DENSE, kind, DENSE)
                assert_exact(c, Operand(x.stored.mT, DENSE, n), s, DENSE)
    failures.report()


# (row, column) in the stored triangle. No row of a symmetric matrix has two of them.
BAD = ((0, 0), (70, 69), (131, 131), (150, 149), (199, 3), (198, 130))


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
    places = [numel(i) + j for i, j in BAD]
    pairs = ((SYMMETRIC, DENSE), (DENSE, SYMMETRIC), (SYMMETRIC, SYMMETRIC), (SYMMETRIC, LOWER))
    for (a_kind, b_kind), left in each((*pairs, (UPPER, SYMMETRIC)), (True, False)):
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
        for c_kind, split in each((LOWER, DENSE), (1, 2, 8)):
            force(method, 0, split, 1, 1)
            c = densify(mm(a.stored, b.stored, n, a_kind, b_kind, c_kind), n, c_kind)
            expected = take_part(product, part_of(c_kind))
            with failures.case(f"kinds {a_kind}, {b_kind}, {c_kind}, {left=}, {split=}"):
                # Whether infinite times complex is infinite or nan depends on the parts.
                assert torch.equal(c.isfinite(), expected.isfinite())
                ok = c.isfinite() if dtype.is_complex else slice(None)
                assert_close_or_equal(c[ok], expected[ok], atol=0)
    failures.report()
