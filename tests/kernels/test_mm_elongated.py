"""Products of which one dimension is much longer than the others, on every device."""

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
    draw_operand,
    each,
    mm,
    stored_product,
)

from packedtri.layout import DENSE, LOWER, SYMMETRIC, UPPER
from packedtri.testing import densify, random_integers

pytestmark = pytest.mark.skipif(SMALL, reason="large sizes")


def test_small_matrices_beside_many_columns(
    dtype: torch.dtype, device: str, rng: torch.Generator
) -> None:
    """About the edges of what is cut off at a time, of one matrix and of several, in any layout."""
    failures = Failures()
    sizes = (
        *((5, 257, ()), (16, 1023, (3,)), (24, 3000, ()), (33, 513, (2,)), (64, 1025, ())),
        *((16, 30_000, ()), (40, 800, (12,)), (100, 12_000, ())),
    )
    for (n, m, batch), kind in each(sizes, (LOWER, UPPER, SYMMETRIC)):
        a = draw_operand(kind, n, dtype, rng, batch=batch, draw=random_integers)
        x = draw_operand(DENSE, n, dtype, rng, batch=batch, rows=n, cols=m, draw=random_integers)
        y = draw_operand(DENSE, n, dtype, rng, batch=batch, rows=m, cols=n, draw=random_integers)
        for layout in ("rows", "columns", "rows apart"):
            b, c = (Operand(_laid_out(z.stored, layout), DENSE, n) for z in (x, y))
            with failures.case(f"{kind=}, {n=}, {m=}, {batch=}, {layout}, columns"):
                assert_exact(mm(a.stored, b.stored, n, kind, DENSE, DENSE), a, b, DENSE)
            with failures.case(f"{kind=}, {n=}, {m=}, {batch=}, {layout}, rows"):
                assert_exact(mm(c.stored, a.stored, n, DENSE, kind, DENSE), c, a, DENSE)
    failures.report()


def _laid_out(x: torch.Tensor, layout: str) -> torch.Tensor:
    if layout == "columns":
        return x.mT.contiguous().mT
    return x if layout == "rows" else torch.cat((x, x), -1)[..., : x.shape[-1]]


@pytest.mark.parametrize("value", [math.inf, math.nan], ids=str)
def test_structural_zeros_beside_many_columns(
    value: float, dtype: torch.dtype, device: str, rng: torch.Generator
) -> None:
    """They meet no infinite element, and those that are one spoil their own columns alone."""
    if dtype.is_complex:
        pytest.skip("whether infinite times complex is infinite or nan depends on the parts")
    failures = Failures()
    for (n, m), kind in each(((8, 700), (23, 2049), (16, 70_000)), (LOWER, UPPER)):
        a = draw_operand(kind, n, dtype, rng, draw=random_integers)
        lines = torch.tensor([0, 255, 256, m - 1], device=device)
        for left in (True, False):
            shape = (n, m) if left else (m, n)
            x = random_integers(shape, dtype, device, rng)
            (x.mT if left else x)[lines, n // 2] = value
            pair = (a, Operand(x, DENSE, n)) if left else (Operand(x, DENSE, n), a)
            with failures.case(f"{kind=}, {n=}, {m=}, {left=}"):
                c = mm(pair[0].stored, pair[1].stored, n, pair[0].kind, pair[1].kind, DENSE)
                assert_close_or_equal(c, stored_product(*pair).to(dtype), atol=0)
    failures.report()


def test_few_long_sums(dtype: torch.dtype, device: str, rng: torch.Generator) -> None:
    """Half of the product of two dense matrices with many more columns than rows."""
    failures = Failures()
    sizes = (
        *((1, 9_001, ()), (2, 600, (3,)), (3, 33, ()), (4, 8_191, (2,)), (5, 50_000, ())),
        *((16, 1_025, ()), (70, 9_000, ()), (20, 8_193, (2,)), (20, 800, (60,))),
    )
    for n, k, batch in sizes:
        a, b = (torch.randn(*batch, n, k, dtype=dtype, device=device, generator=rng) for _ in "ab")
        # As many roundings as `assert_product_close` allows, whose reference takes 10 s here.
        single = dtype in (torch.float32, torch.complex64)
        roundings = max(4, (k / 12) ** 0.5) if single else 4
        across = a.mT.contiguous().mT
        rows = b.mT.contiguous()
        for y, z in ((a, a.mT), (a, b.mT), (across, b.mT), (across, across.mT), (a, rows)):
            expected = _sum_of_parts(y.to(torch.complex128), z.to(torch.complex128))
            size = y.abs().double() @ z.abs().double()
            with failures.case(f"{n=}, {k=}, {batch=}, one {z.data_ptr() == y.data_ptr()}"):
                c = densify(mm(y, z, n, DENSE, DENSE, LOWER), n, LOWER)
                error, torch_error = (
                    ((x - expected).tril().abs() / size).max().item() for x in (c, y @ z)
                )
                assert error <= 2 * torch_error + roundings * torch.finfo(dtype).eps
    failures.report()


def _sum_of_parts(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A product with hardly any error of its own, also beside one of float64."""
    parts = zip(a.split(64, -1), b.split(64, -2), strict=True)
    return torch.stack([x @ y for x, y in parts]).sum(0)


def test_long_sums_do_not_depend_on_threads() -> None:
    """On a CPU parts of them are added up in one order."""
    a = torch.randn(20, 50_000, generator=torch.Generator().manual_seed(1))
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            results.append(mm(a, a.mT, 20, DENSE, DENSE, LOWER))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*results)


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("element", "tf32"),
    [(torch.float32, False), (torch.float32, True), (torch.bfloat16, False)],
    ids=str,
)
def test_more_rows_than_half_of_what_int_holds(
    element: torch.dtype, tf32: bool, device: str, rng: torch.Generator
) -> None:
    """Both ways around, since a row of one operand is a column of the other."""
    n, period = 2, 1_000_003
    count = 2**30 // period + 1
    if torch.cuda.mem_get_info()[0] < 5 * count * period * n * element.itemsize:
        pytest.skip("needs more memory")
    torch.cuda.empty_cache()
    a = draw_operand(LOWER, n, element, rng, draw=random_integers)
    few = random_integers((period, n), element, device, rng)
    expected = few @ a.dense
    x = few.repeat(count, 1)
    y = mm(x, a.stored, n, DENSE, LOWER, DENSE, tf32=tf32)
    assert all(torch.equal(part, expected) for part in y.unflatten(0, (count, period)))
    y = mm(a.stored.new_tensor([1, 2, 3]), x.mT, n, UPPER, DENSE, DENSE, tf32=tf32).mT
    expected = few @ few.new_tensor([[1, 0], [2, 3]])
    assert all(torch.equal(part, expected) for part in y.unflatten(0, (count, period)))
