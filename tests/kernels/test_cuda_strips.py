"""A packed matrix times some vectors, by strips, at sizes that would go to other kernels too."""

from __future__ import annotations

import pytest
import torch
from cases import (
    FLOATS,
    SMALL,
    STRIPS,
    Failures,
    Force,
    Operand,
    assert_both_sides,
    assert_close_or_equal,
    assert_exact,
    assert_same,
    assert_vector_layouts,
    draw_operand,
    each,
    hopper,
    memory_filled,
    mm,
    shifted,
    stored_product,
    strip_kinds,
)

from packedtri import _library
from packedtri.layout import DENSE, LOWER, SYMMETRIC, UPPER, numel
from packedtri.testing import assert_product_close, random, random_integers

pytestmark = [pytest.mark.cuda, hopper]

KINDS = (LOWER, UPPER, SYMMETRIC)
# Of small matrices so many give every block of a GPU several bands, one after the other.
MANY = 60
dtypes = pytest.mark.parametrize("dtype", FLOATS, ids=str)


def by_strips(force: Force, dtype: torch.dtype) -> tuple[int, ...]:
    """Gives all products that can have it the kernel for strips; tells of which kinds."""
    force(STRIPS, -1, -1, -1, -1)
    device = torch.device("cuda", torch.cuda.current_device())
    kinds = strip_kinds(dtype)
    for kind in kinds:
        kernel = _library.cuda_kernel(dtype, 300, 12, 1, (kind, DENSE, DENSE), device)
        assert "strips" in kernel, kernel
    return kinds


@pytest.mark.sanitizer
@pytest.mark.parametrize(
    "vectors", [2, 12, 30, 40] if SMALL else [2, 8, 9, 16, 30, 32, 33, 64, 100]
)
@dtypes
def test_strips_forced(
    vectors: int, device: str, dtype: torch.dtype, rng: torch.Generator, force: Force
) -> None:
    """Columns, and rows on the other side, at sizes around those of bands, tiles and strips."""
    failures = Failures()
    sizes = (67, 300) if SMALL else (1, 2, 31, 32, 33, 127, 128, 129, 255, 257, 300, 513, 1030)
    kinds = by_strips(force, dtype)
    for n, kind, batch in each(sizes, kinds, ((), (MANY if SMALL else 3,))):
        a = draw_operand(kind, n, dtype, rng, batch=batch, draw=random_integers)
        b = draw_operand(DENSE, n, dtype, rng, batch=batch, cols=vectors, draw=random_integers)
        c = draw_operand(DENSE, n, dtype, rng, batch=batch, rows=vectors, draw=random_integers)
        assert_vector_layouts(failures, a, b, c, f"n={n}, {batch}")
    failures.report()


@pytest.mark.sanitizer
@dtypes
def test_strips_start_anywhere(
    dtype: torch.dtype, device: str, rng: torch.Generator, force: Force
) -> None:
    """Rows that begin at every place in a word of 16 bytes, and matrices of batches likewise."""
    failures = Failures()
    kinds = by_strips(force, dtype)
    for n, kind, by in each((290,) if SMALL else (290, 701), kinds, range(8)):
        a = draw_operand(kind, n, dtype, rng, batch=(2,), draw=random_integers)
        b = draw_operand(DENSE, n, dtype, rng, cols=11, draw=random_integers)
        with failures.case(f"{n=}, {kind=}, {by} elements further"):
            c = mm(shifted(a.stored, by), b.stored, n, kind, DENSE, DENSE)
            assert_exact(c, a, b, DENSE)
    failures.report()


@dtypes
def test_strips_of_batches(
    dtype: torch.dtype, device: str, rng: torch.Generator, force: Force
) -> None:
    """One matrix for many, and one dense operand for many."""
    failures = Failures()
    n = 290
    kinds = by_strips(force, dtype)
    for kind, (packed_batch, dense_batch), m in each(
        kinds, (((MANY,), ()), ((), (MANY,)), ((2, 1), (3,))), (5, 70)
    ):
        a = draw_operand(kind, n, dtype, rng, batch=packed_batch, draw=random_integers)
        b = draw_operand(DENSE, n, dtype, rng, batch=dense_batch, cols=m, draw=random_integers)
        assert_both_sides(failures, a, b, f"{kind=}, {packed_batch} and {dense_batch}, {m=}")
    failures.report()


@pytest.mark.skipif(SMALL, reason="large sizes")
@dtypes
def test_strips_accuracy(
    dtype: torch.dtype, device: str, rng: torch.Generator, force: Force
) -> None:
    """Elements with all of their bits, and sums that several blocks and strips share."""
    failures = Failures()
    for kind, m in each(by_strips(force, dtype), (5, 16, 32, 60)):
        n = 3001
        a = draw_operand(kind, n, dtype, rng)
        b = draw_operand(DENSE, n, dtype, rng, cols=m)
        with failures.case(f"{kind=}, {m} vectors"):
            c = mm(a.stored, b.stored, n, kind, DENSE, DENSE)
            assert_product_close(c, a.dense, b.dense)
    failures.report()


@pytest.mark.sanitizer
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@dtypes
def test_strips_not_finite(
    dtype: torch.dtype, value: float, device: str, rng: torch.Generator, force: Force
) -> None:
    """Elements that are not finite meet no zero that is not stored, and lose nothing."""
    failures = Failures()
    n, m, batch = (300, 12, MANY) if SMALL else (700, 40, 20)
    kinds = by_strips(force, dtype)
    for kind, left, bad in each(kinds, (True, False), ("packed", "dense", "one row")):
        x = random_integers((batch, numel(n)), dtype, device, rng)
        y = random_integers((batch, n, m) if left else (batch, m, n), dtype, device, rng)
        # What a block has found in one matrix must not be taken for what is in the next.
        some_x, some_y = x[::3], y[::3]
        if bad == "packed":
            some_x[:, [0, numel(n // 2), numel(n - 40) + 3, numel(n) - 1]] = value
        elif bad == "dense":
            for i, j in ((7, 5), (n // 4 if left else 2, 3), (-1, 1), (0, 1)):
                some_y[:, i, j] = value
        else:
            (some_y if left else some_y.mT)[:, n // 2] = value
        a, b = Operand(x, kind, n), Operand(y, DENSE, n)
        a, b = (a, b) if left else (b, a)
        c = mm(a.stored, b.stored, n, a.kind, b.kind, DENSE)
        with failures.case(f"{kind=}, {left=}, {bad} bad"):
            assert_close_or_equal(c, stored_product(a, b).to(dtype), atol=0)
    failures.report()


@pytest.mark.parametrize(
    ("of_packed", "of_dense"),
    [(-118, 0), (-118, 118), (-106, 0), (100, -100), (0, -118), (0, -106), (-100, 100)],
)
def test_strips_of_tiny_and_huge_elements(
    of_packed: int, of_dense: int, device: str, rng: torch.Generator, force: Force
) -> None:
    """Elements of float32 whose three parts would lose bits, or are subnormal, or large."""
    n = 400
    by_strips(force, torch.float32)
    failures = Failures()
    for kind in KINDS:
        a = draw_operand(kind, n, torch.float32, rng)
        b = draw_operand(DENSE, n, torch.float32, rng, cols=9)
        a.stored.mul_(2.0**of_packed)
        b.stored.mul_(2.0**of_dense)
        with failures.case(f"{kind=}"):
            c = mm(a.stored, b.stored, n, kind, DENSE, DENSE)
            assert_product_close(c, Operand(a.stored, kind, n).dense, b.stored)
    failures.report()


@pytest.mark.parametrize("large", [0, 25], ids=["ordinary", "large"])
def test_strips_of_some_tiny_elements(
    large: int, device: str, rng: torch.Generator, force: Force
) -> None:
    """A tile of tiny elements and others, as of a kernel that decays: nothing is lost of either."""
    n = 400
    by_strips(force, torch.float32)
    failures = Failures()
    for kind in KINDS:
        packed = random_integers((numel(n),), torch.float32, device, rng)
        x = random_integers((n, 9), torch.float32, device, rng)
        packed[::7] *= 2.0**-140
        packed[3::50] *= 2.0**large
        alone = torch.where(packed.abs() < 1, packed, 0)
        for case, stored in (("beside others", packed), ("alone", alone)):
            a, b = Operand(stored, kind, n), Operand(x, DENSE, n)
            with failures.case(f"{kind=}, {case}"):
                c = mm(stored, x, n, kind, DENSE, DENSE)
                expected = stored_product(a, b)
                bound = a.dense.double().abs() @ x.double().abs()
                # The largest elements alone have sums that round.
                rounding = 2 * n**0.5 * 2.0**-24
                excess = ((c - expected).abs() / (rounding * bound + 2.0**-149)).max().item()
                assert excess <= 1, f"the error is {excess} times what is allowed"
    failures.report()


def test_rounding_of_parts_has_no_sign(device: str, force: Force) -> None:
    """What products of parts leave out would be 3.9 epsilon of a sum of these elements."""
    n, m = 32, 16
    by_strips(force, torch.float32)
    element = torch.tensor(0x3F80FFFF, dtype=torch.int32, device=device).view(torch.float32)
    packed, x = element.expand(numel(n)).clone(), element.expand(n, m).clone()
    c = mm(packed, x, n, SYMMETRIC, DENSE, DENSE)
    expected = n * element.double() ** 2
    assert ((c - expected).abs() <= 2.5 * torch.finfo(torch.float32).eps * expected).all()


@pytest.mark.skipif(SMALL, reason="large sizes")
@dtypes
def test_strips_repeat(dtype: torch.dtype, device: str, rng: torch.Generator, force: Force) -> None:
    """Results do not depend on which block is first."""
    n, m = 2500, 24
    for kind in by_strips(force, dtype):
        a, b = random((numel(n),), dtype, device, rng), random((n, m), dtype, device, rng)
        first = mm(a, b, n, kind, DENSE, DENSE)
        for _ in range(200):
            assert_same(mm(a, b, n, kind, DENSE, DENSE), first)


@pytest.mark.skipif(SMALL, reason="large sizes")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_no_room_for_strips(dtype: torch.dtype, device: str, rng: torch.Generator) -> None:
    """Products that the memory left would not do for go without scratch memory."""
    n, m = 12000, 12
    a, b = random((numel(n),), dtype, device, rng), random((n, m), dtype, device, rng)
    expected = torch.ops.packedtri.mm(a, b, n, SYMMETRIC, DENSE, DENSE)
    # Room for the result, but not for the sums of 16 vectors, which take 21 MiB and more.
    with memory_filled(expected.nbytes, least=2**22):
        c = torch.ops.packedtri.mm(a, b, n, SYMMETRIC, DENSE, DENSE)
    # Another kernel adds up in another order.
    rounding = 256 * n**0.5 * torch.finfo(dtype).eps
    torch.testing.assert_close(c, expected, rtol=0, atol=rounding)
