"""A packed matrix times a few vectors: sizes from which kernels of their own read it."""

from __future__ import annotations

import math

import pytest
import torch
from cases import (
    SMALL,
    Failures,
    Operand,
    assert_exact,
    draw_operand,
    each,
    mm,
    shifted,
    vector_layouts,
)

from packedtri.layout import DENSE, HERMITIAN, LOWER, SYMMETRIC, UPPER, numel
from packedtri.testing import (
    assert_product_close,
    densify,
    epsilon,
    random,
    random_integers,
    wide_dtype,
)

ops = torch.ops.packedtri
KINDS = (LOWER, UPPER, SYMMETRIC, HERMITIAN)
ORDERS = (67, 130) if SMALL else (67, 130, 515, 1027, 2051)
COUNTS = (2, 3, 8, 16, 17, 33, 64)

few = pytest.mark.parametrize("kind", KINDS, ids=["L", "U", "S", "H"])


@few
@pytest.mark.parametrize("side", ["columns", "rows"])
def test_whole_numbers(
    kind: int, side: str, device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    """Equal to the last bit, so that no element is left out or taken twice."""
    failures = Failures()
    for n in ORDERS:
        t = draw_operand(kind, n, dtype, rng, draw=random_integers)
        for count in COUNTS:
            size = {"cols": count} if side == "columns" else {"rows": count}
            x = draw_operand(DENSE, n, dtype, rng, draw=random_integers, **size)
            a, b = (t, x) if side == "columns" else (x, t)
            with failures.case(f"{n=}, {count=}"):
                assert_exact(mm(a.stored, b.stored, n, a.kind, b.kind, DENSE), a, b, DENSE)
    failures.report()


@few
def test_errors_are_those_of_torch(
    kind: int, device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    n = ORDERS[-1]
    t = draw_operand(kind, n, dtype, rng)
    for count in (4, 20):
        x = draw_operand(DENSE, n, dtype, rng, cols=count)
        c = mm(t.stored, x.stored, n, kind, DENSE, DENSE)
        assert_product_close(c, t.dense, x.dense, case=f"{count} columns")


@few
@pytest.mark.parametrize("n", [130, ORDERS[-1]])
@pytest.mark.parametrize("count", [5, 21])
def test_layouts_and_batches(
    kind: int, n: int, count: int, device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    """Matrices of a batch are shared among threads as a whole where they are small."""
    packed = random_integers((2, numel(n)), dtype, device, rng)
    x = random_integers((2, n, count), dtype, device, rng)
    wide = wide_dtype(dtype)
    expected = (densify(packed, n, kind).to(wide) @ x.to(wide)).to(dtype)
    for view in (x.mT.contiguous().mT, shifted(x, 3), x.repeat_interleave(2, -1)[..., ::2]):
        assert torch.equal(ops.mm(packed, view, n, kind, DENSE, DENSE), expected)
    assert torch.equal(ops.mm(shifted(packed), x, n, kind, DENSE, DENSE), expected)
    both = ops.mm(packed[0], x, n, kind, DENSE, DENSE)
    assert torch.equal(both[0], expected[0])


@pytest.mark.parametrize("kind", [LOWER, UPPER], ids=["L", "U"])
def test_structural_zeros_are_not_multiplied(
    kind: int, device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    n, at = ORDERS[-1], ORDERS[-1] // 3
    t = draw_operand(kind, n, dtype, rng)
    x = random((n, 4), dtype, device, rng)
    finite = mm(t.stored, x, n, kind, DENSE, DENSE)
    x[at] = math.inf
    c = mm(t.stored, x, n, kind, DENSE, DENSE)
    rows = torch.arange(n, device=device)
    untouched = rows < at if kind == LOWER else rows > at
    assert c[untouched].isfinite().all()
    assert not c[~untouched].isfinite().all(-1).any()
    # Another kernel may compute what is left to do beside an inf.
    tolerance = max(1e-4, 4 * epsilon(dtype))
    torch.testing.assert_close(c[untouched], finite[untouched], rtol=tolerance, atol=tolerance)


@few
@pytest.mark.parametrize("threads", [1, 3])
def test_threads(kind: int, threads: int, dtype: torch.dtype, rng: torch.Generator) -> None:
    torch.set_num_threads(threads)
    n = ORDERS[-1]
    t = draw_operand(kind, n, dtype, rng, draw=random_integers)
    x = draw_operand(DENSE, n, dtype, rng, draw=random_integers, cols=7)
    assert_exact(mm(t.stored, x.stored, n, kind, DENSE, DENSE), t, x, DENSE)


@few
def test_one_matrix_for_a_batch(
    kind: int, device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    """Columns that are turned into the rows of one product, however they lie."""
    failures = Failures()
    # The last ones are enough to be turned on GPUs, and to be left to dense torch on some CPUs.
    sizes = [
        *each((24, 67), (1, 2, 3), ((4,), (2, 3), (1,), (0,))),
        (520, 3, (64,)),
        (520, 1, (8, 9)),
    ]
    for n, count, batch in sizes:
        t = draw_operand(kind, n, dtype, rng, draw=random_integers)
        x = random_integers((*batch, n, count), dtype, device, rng)
        gaps = x.new_full((*batch, n, count + 2), math.nan)[..., 1:-1].copy_(x)
        same = x[..., :1, :].expand(*batch, n, count)
        for name, dense in {
            **vector_layouts(x),
            "gaps on both sides": gaps,
            "one row": same,
        }.items():
            b = Operand(dense, DENSE, n)
            with failures.case(f"{n=}, {count} columns, {batch}, {name}"):
                c = mm(t.stored, dense, n, kind, DENSE, DENSE)
                assert_exact(c, t, b, DENSE)
                assert c.is_contiguous()
            with failures.case(f"{n=}, {count} columns, {batch}, {name}, expanded"):
                expanded = t.stored.expand(*batch, -1)
                assert_exact(mm(expanded, dense, n, kind, DENSE, DENSE), t, b, DENSE)
                rows = Operand(dense.mT, DENSE, n)
                c = mm(rows.stored, expanded, n, DENSE, kind, DENSE)
                assert_exact(c, rows, t, DENSE)
    failures.report()
