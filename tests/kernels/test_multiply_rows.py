"""What rows of a triangle add to its product with a vector, where nothing else of it is there."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from cases import NAMES, SMALL, Failures, shifted
from torch import Tensor

from packedtri.layout import HERMITIAN, LOWER, SYMMETRIC, UPPER, numel
from packedtri.testing import assert_product_close, densify, poisoned, random

ops = torch.ops.packedtri
kinds = pytest.mark.parametrize(
    "kind", [LOWER, UPPER, SYMMETRIC, HERMITIAN], ids=[NAMES[k] for k in (0, 1, 2, 4)]
)
# Rows of a block are 64 on a GPU, and its columns 256; on a CPU a strip has 2¹⁸ elements.
LAST = (1, 2, 3, 65, 130) if SMALL else (1, 2, 3, 31, 64, 65, 130, 256, 257, 900)


def multiply_rows(rows: Tensor, x: Tensor, first: int, last: int, kind: int) -> Tensor:
    with poisoned():
        return ops.multiply_rows(rows, x, first, last, kind)


def rows_of(first: int, last: int, dtype, device: str, rng, *batch: int) -> tuple[Tensor, Tensor]:
    """Rows, and the whole triangle with zeros for the others."""
    packed = random((*batch, numel(last)), dtype, device, rng)
    packed[..., : numel(first)] = 0
    return packed[..., numel(first) :].contiguous(), packed


def firsts(last: int) -> list[int]:
    return sorted({f for f in (0, 1, last // 3, 63, 64, 255, 256, last - 1) if 0 <= f < last})


@kinds
def test_values(kind: int, device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    failures = Failures()
    for last in LAST:
        for first in firsts(last):
            rows, packed = rows_of(first, last, dtype, device, rng)
            # The error of a single sum, where there is one row, is luck.
            x = random((64, last), dtype, device, rng)
            with failures.case(f"rows [{first}, {last})"):
                y = multiply_rows(rows, x, first, last, kind)
                assert y.shape == x.shape and y.is_contiguous()
                assert_product_close(y.mT, densify(packed, last, kind), x.mT)
                one = multiply_rows(rows, x[0], first, last, kind)
                assert torch.equal(one, y[0]), "sums depend on timing, or on the batch"
    failures.report()


@kinds
def test_batches_and_layouts(kind: int, device: str, dtype: torch.dtype, rng) -> None:
    """Batches that broadcast, and rows and vectors anywhere in memory, with nan around them."""
    failures = Failures()
    first, last = 5, 70
    batches = [((3,), (3,)), ((), (2, 2)), ((2, 1), (3,)), ((4,), ()), ((0,), ()), ((2,), (1, 2))]
    for (batch, other), by in itertools.product(batches, (0, 1, 3)):
        rows, packed = rows_of(first, last, dtype, device, rng, *batch)
        x = random((*other, last), dtype, device, rng)
        with failures.case(f"batches {batch} and {other}, {by} elements further"):
            moved, vectors = (shifted(t, by, 64) if t.numel() else t for t in (rows, x))
            if other:
                vectors = vectors.mT.contiguous().mT if len(other) == 1 else vectors
            y = multiply_rows(moved, vectors, first, last, kind)
            dense = densify(packed, last, kind)
            wide = torch.broadcast_shapes(batch, other)
            assert y.shape == (*wide, last)
            if y.numel():
                assert_product_close(
                    y.unsqueeze(-1), dense.expand(*wide, last, last), x.unsqueeze(-1)
                )
    failures.report()


@kinds
def test_what_does_not_meet(kind: int, device: str, dtype: torch.dtype, rng) -> None:
    """Elements of x that meet no row that is there, and what is not finite in those that do."""
    first, last = 70, 130
    rows, _ = rows_of(first, last, dtype, device, rng)
    x = random((last,), dtype, device, rng)
    y = multiply_rows(rows, x, first, last, kind)
    if kind == UPPER:
        x[:first] = math.nan
        assert torch.equal(multiply_rows(rows, x, first, last, kind), y)
    if kind == LOWER:
        assert not y[:first].any()
        x[last - 1] = math.inf
        again = multiply_rows(rows, x, first, last, kind)
        assert torch.equal(again[: last - 1], y[: last - 1])
        assert not again[last - 1].isfinite()


def test_no_rows_and_no_elements(device: str) -> None:
    x = torch.ones(2, 4, device=device)
    for first, last in ((4, 4), (0, 0)):
        y = multiply_rows(x[:, :0], x[:, :last], first, last, SYMMETRIC)
        assert torch.equal(y, torch.zeros(2, last, device=device))


@pytest.mark.skipif(SMALL, reason="takes long")
def test_far_rows(device: str, rng: torch.Generator) -> None:
    """Where blocks of the triangle are too many for 32 bits."""
    last = 17_000_101
    row, x = (random((last,), torch.float32, device, rng) for _ in range(2))
    y = multiply_rows(row, x, last - 1, last, SYMMETRIC)
    assert torch.equal(y[:-1], row[:-1] * x[-1])
    expected = row.double() @ x.double()
    assert (y[-1] - expected).abs() <= 1e-6 * row.double().norm() * x.double().norm()


@pytest.mark.skipif(SMALL, reason="takes long")
def test_many_small_matrices(device: str, rng: torch.Generator) -> None:
    """More than a grid has in its second dimension."""
    rows, packed = rows_of(1, 3, torch.float32, device, rng, 70000)
    x = random((3,), torch.float32, device, rng)
    y = multiply_rows(rows, x, 1, 3, SYMMETRIC)
    torch.testing.assert_close(y, densify(packed, 3, SYMMETRIC) @ x)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: ops.multiply_rows(x(4), x(3), 1, 3, LOWER), r"expected rows \(\.\.\., 5\)"),
        (lambda x: ops.multiply_rows(x(5), x(2), 1, 3, LOWER), r"expected vectors \(\.\.\., 3\)"),
        (lambda x: ops.multiply_rows(x(5), x(3), 3, 1, LOWER), "rows from first to last"),
        (lambda x: ops.multiply_rows(x(5), x(3), 1, 3, 3), "expected kind 0, 1, 2 or 4; got 3"),
        (lambda x: ops.multiply_rows(x(5), x(3).double(), 1, 3, LOWER), "one dtype and device"),
        (lambda x: ops.multiply_rows(x(2, 5), x(3, 3), 1, 3, LOWER), "broadcast"),
    ],
)
def test_errors(call, message: str, device: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        call(lambda *shape: torch.zeros(shape, device=device))
