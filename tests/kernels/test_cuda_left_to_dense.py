"""Products that dense torch computes on unpacked copies: no one can tell but by the time."""

from __future__ import annotations

import math

import pytest
import torch
from cases import (
    SIXTEEN_BITS,
    SMALL,
    Failures,
    Operand,
    assert_close_or_equal,
    assert_exact,
    draw_operand,
    each,
    hopper,
    mm,
    on_hopper,
    part_of,
    stored_product,
)

from packedtri.layout import DENSE, HERMITIAN, LOWER, SYMMETRIC, UPPER, numel
from packedtri.testing import densify, random_integers, take_part

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(SMALL, reason="large sizes")]

dtypes = pytest.mark.parametrize("dtype", SIXTEEN_BITS, ids=str)


@pytest.mark.parametrize("value", [math.inf, math.nan], ids=str)
@dtypes
def test_left_to_dense(dtype: torch.dtype, value: float, device: str, rng: torch.Generator) -> None:
    """What dense torch multiplies: structural zeros still meet no inf or nan."""
    failures = Failures()
    sizes = (
        (904, 912, (), ()),
        (904, 912, (2, 1), (3,)),
        (136, 144, (130,), ()),
        (901, 904, (), ()),
    )
    for kind, left, (n, m, packed_batch, dense_batch) in each((LOWER, UPPER), (True, False), sizes):
        packed = random_integers((*packed_batch, numel(n)), dtype, device, rng)
        dense = random_integers((*dense_batch, *((n, m) if left else (m, n))), dtype, device, rng)
        for bad in ("none", "packed", "dense"):
            x, y = packed.clone(), dense.clone()
            if bad == "packed":
                x[..., [0, numel(n // 2), numel(n) - 1]] = value
            if bad == "dense":
                y[..., 7, 5] = y[..., n // 2, n // 3] = value
            a, b = Operand(x, kind, n), Operand(y, DENSE, n)
            a, b = (a, b) if left else (b, a)
            c = mm(a.stored, b.stored, n, a.kind, b.kind, DENSE)
            with failures.case(f"{kind=}, {left=}, {n=}, {packed_batch}, {bad} bad"):
                assert c.is_contiguous()
                assert_close_or_equal(c, stored_product(a, b).to(dtype), atol=0)
    failures.report()


@pytest.mark.parametrize("bad", [0.0, math.inf, math.nan], ids=str)
@pytest.mark.parametrize(
    ("element", "n", "m", "batch"),
    [
        (torch.float16, 1000, 1000, (2,)),
        (torch.bfloat16, 1000, 1000, (2,)),
        (torch.bfloat16, 901, 901, ()),
        (torch.float64, 203, 210, ()),
        (torch.float64, 130, 128, (3,)),
        (torch.float64, 700, 100, ()),
        (torch.float64, 1201, 100, ()),
    ],
    ids=str,
)
def test_results_that_are_dense(
    element: torch.dtype,
    n: int,
    m: int,
    batch: tuple[int, ...],
    bad: float,
    device: str,
    rng: torch.Generator,
) -> None:
    """Two triangles of 16 bits, and float64 with dense matrices."""
    failures = Failures()
    other = (LOWER, UPPER) if element.itemsize == 2 else (DENSE,)
    for kind, b_kind in each((LOWER, UPPER), other):
        if kind == b_kind:
            continue
        a = draw_operand(kind, n, element, rng, batch=batch, draw=random_integers)
        b = draw_operand(b_kind, n, element, rng, rows=n, cols=m, draw=random_integers)
        if bad:
            b.stored.view(-1)[b.stored.numel() // 3] = bad
            a.stored.view(-1)[a.stored.numel() // 2] = bad
            a, b = Operand(a.stored, kind, n), Operand(b.stored, b_kind, n)
        c = mm(a.stored, b.stored, n, kind, b_kind, DENSE)
        with failures.case(f"kinds {kind}, {b_kind}"):
            assert_close_or_equal(c, stored_product(a, b).to(element), atol=0)
    failures.report()


@hopper
@pytest.mark.parametrize("bad", [0.0, math.inf], ids=str)
@pytest.mark.parametrize("element", ["float16", "bfloat16", "tf32"])
def test_rows_that_are_not_aligned(
    element: str, bad: float, device: str, rng: torch.Generator
) -> None:
    """Dense torch would be slow, so these stay here, symmetric operands too."""
    failures = Failures()
    tf32 = element == "tf32"
    dtype = torch.float32 if tf32 else getattr(torch, element)
    kinds = (
        (SYMMETRIC, DENSE),
        (DENSE, SYMMETRIC),
        (SYMMETRIC, SYMMETRIC),
        (SYMMETRIC, UPPER),
        (LOWER, SYMMETRIC),
        (LOWER, DENSE),
        (DENSE, UPPER),
        (LOWER, UPPER),
        (DENSE, DENSE),
    )
    sizes = ((901, 1001, ()), (898, 898, ()), (385, 391, (9,)), (161, 161, (130,)))
    for (n, m, batch), (a_kind, b_kind) in each(sizes, kinds):
        m = n if DENSE not in (a_kind, b_kind) or a_kind == b_kind else m
        a = draw_operand(a_kind, n, dtype, rng, batch=batch, rows=m, cols=n, draw=random_integers)
        b = draw_operand(b_kind, n, dtype, rng, rows=n, cols=m, draw=random_integers)
        c_kind = LOWER if a_kind == b_kind == DENSE else DENSE
        # Beside a triangle direct kernels compute what is not finite, and what is near, and round
        # both halves of a symmetric operand.
        triangle = LOWER in (a_kind, b_kind) or UPPER in (a_kind, b_kind)
        twice = bad and not tf32 and triangle and SYMMETRIC in (a_kind, b_kind)
        if bad:
            a.stored.view(-1)[a.stored.numel() // 3] = bad
            a = Operand(a.stored, a_kind, n)
        with failures.case(f"{n=}, {m=}, {batch}, kinds {a_kind}, {b_kind}"):
            c = densify(mm(a.stored, b.stored, n, a_kind, b_kind, c_kind, tf32), n, c_kind)
            expected = take_part(stored_product(a, b).to(dtype), part_of(c_kind))
            assert_close_or_equal(c, expected, atol=2 if twice else 0)
    failures.report()


@pytest.mark.parametrize("tf32", [False, True])
def test_lower_triangles_of_symmetric_products(
    tf32: bool, dtype: torch.dtype, device: str, rng: torch.Generator
) -> None:
    """Only half is computed, of unpacked copies or of images; of one matrix there is one copy."""
    if tf32 and dtype is not torch.float32:
        pytest.skip("a setting of float32")
    failures = Failures()
    mirrored = (SYMMETRIC, HERMITIAN) if dtype.is_complex else (SYMMETRIC,)
    for n, batch, kind in each((9, 70, 136, 301, 520, 645), ((), (3,), (40,)), mirrored):
        if n > 300 and len(batch) and batch[0] > 3:
            continue
        a, b = (
            draw_operand(k, n, dtype, rng, batch=batch, draw=random_integers) for k in (kind, kind)
        )
        x = draw_operand(DENSE, n, dtype, rng, rows=n, cols=n, draw=random_integers)
        for y, z in ((a, a), (a, b), (a, x), (x, b)):
            with failures.case(f"{n=}, {batch=}, kinds {y.kind}, {z.kind}, one {y is z}"):
                c = mm(y.stored, z.stored, n, y.kind, z.kind, LOWER, tf32)
                assert_exact(c, y, z, LOWER)
    failures.report()


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_complex(dtype: torch.dtype, device: str, rng: torch.Generator) -> None:
    """What is infinite meets no structural zero."""
    failures = Failures()
    # On Hopper the large ones are left to it in complex128, and others have kernels of their own.
    sizes = (
        *((130, 140, ()), (310, 33, ()), (260, 260, ()), (64, 70, (5,)), (40, 30, (7,))),
        *((640, 650, ()), (200, 190, (40,))),
    )
    kinds = ((LOWER, DENSE), (DENSE, UPPER), (UPPER, DENSE), (LOWER, UPPER), (DENSE, DENSE))
    for (n, m, batch), (a_kind, b_kind) in each(sizes, kinds):
        c_kind = LOWER if a_kind == b_kind else DENSE
        rows = n if c_kind == LOWER else m
        a = draw_operand(
            a_kind, n, dtype, rng, batch=batch, rows=rows, cols=n, draw=random_integers
        )
        b = draw_operand(b_kind, n, dtype, rng, rows=n, cols=rows, draw=random_integers)
        with failures.case(f"{n=}, {m=}, {batch=}, kinds {a_kind}, {b_kind}"):
            assert_exact(mm(a.stored, b.stored, n, a_kind, b_kind, c_kind), a, b, c_kind)
        if (a_kind, b_kind) != (LOWER, DENSE):
            continue
        expected = stored_product(a, b)[..., : n // 2, :].to(dtype)
        b.stored[n // 2, :5] = math.inf
        with failures.case(f"{n=}, {m=}, {batch=}, inf in the middle of columns"):
            c = mm(a.stored, b.stored, n, a_kind, b_kind, c_kind)
            assert torch.equal(c[..., : n // 2, :], expected)
            assert not c[..., n // 2 :, :5].isfinite().any()
    failures.report()


def test_symmetric_left_to_dense(device: str, rng: torch.Generator) -> None:
    """Symmetric matrices of float32 that are too small for tile images."""
    failures = Failures()
    for n, batch, (a_kind, b_kind) in each(
        (9, 70, 301), ((), (3,)), ((SYMMETRIC, DENSE), (DENSE, SYMMETRIC), (SYMMETRIC, SYMMETRIC))
    ):
        a, b = (
            draw_operand(kind, n, torch.float32, rng, batch=batch, draw=random_integers)
            for kind in (a_kind, b_kind)
        )
        for c_kind in (DENSE, LOWER):
            with failures.case(f"{n=}, {batch=}, kinds {a_kind}, {b_kind}, {c_kind}"):
                assert_exact(mm(a.stored, b.stored, n, a_kind, b_kind, c_kind), a, b, c_kind)
    failures.report()


@pytest.mark.parametrize("bad", [0.0, math.inf], ids=str)
def test_symmetric_and_triangle(
    bad: float, dtype: torch.dtype, device: str, rng: torch.Generator
) -> None:
    """Only the symmetric operand is unpacked: zeros of the triangle still meet nothing."""
    if bad and dtype.is_complex:
        pytest.skip("products of complex infinities differ in their nan")
    failures = Failures()
    symmetric = HERMITIAN if dtype.is_complex else SYMMETRIC
    for n, kind, left, batch, c_kind in each(
        (1, 9, 70, 301), (LOWER, UPPER), (True, False), ((), (3,)), (DENSE, LOWER)
    ):
        s = draw_operand(symmetric, n, dtype, rng, batch=batch, draw=random_integers)
        if bad:
            s.stored[..., numel(n // 2)] = bad
            s = Operand(s.stored, symmetric, n)
        t = draw_operand(kind, n, dtype, rng, draw=random_integers)
        a, b = (s, t) if left else (t, s)
        c = densify(mm(a.stored, b.stored, n, a.kind, b.kind, c_kind), n, c_kind)
        expected = take_part(stored_product(a, b).to(dtype), part_of(c_kind))
        with failures.case(f"{n=}, {kind=}, {left=}, {batch}, {c_kind=}"):
            assert_close_or_equal(c, expected, atol=0)
    failures.report()


def test_many_small_vectors(dtype: torch.dtype, device: str, rng: torch.Generator) -> None:
    """Batches of packed matrices times vectors, unpacked or not, by blocks of every shape."""
    failures = Failures()
    sizes = (
        (5, 700),
        (16, 300),
        (33, 200),
        (70, 140),
        (130, 60),
        (200, 9),
        (256, 110),
        (300, 9),
        (300, 20),
    )
    for (n, batch), kind in each((*sizes, (600, 7)), (LOWER, UPPER, SYMMETRIC, HERMITIAN)):
        a = draw_operand(kind, n, dtype, rng, batch=(batch,), draw=random_integers)
        x = draw_operand(DENSE, n, dtype, rng, batch=(batch,), rows=n, cols=1, draw=random_integers)
        with failures.case(f"{n=}, {batch=}, {kind=}"):
            assert_exact(mm(a.stored, x.stored, n, kind, DENSE, DENSE), a, x, DENSE)
            b = draw_operand(
                DENSE, n, dtype, rng, batch=(batch,), rows=1, cols=n, draw=random_integers
            )
            assert_exact(mm(b.stored, a.stored, n, DENSE, kind, DENSE), b, a, DENSE)
    failures.report()


@pytest.mark.parametrize("allowed", [False, True])
def test_symmetric_is_rounded_where_that_is_allowed(
    allowed: bool, device: str, rng: torch.Generator
) -> None:
    """Dense torch rounds to TF32 what it gets, and gets it unrounded otherwise."""
    n = 500
    a = draw_operand(SYMMETRIC, n, torch.float32, rng)
    b = draw_operand(DENSE, n, torch.float32, rng)
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    c = mm(a.stored, b.stored, n, SYMMETRIC, DENSE, DENSE, tf32=allowed)
    expected = a.dense.double() @ b.dense.double()
    error = ((c - expected).abs().max() / expected.abs().max()).item()
    assert error <= (2e-3 if allowed else 1e-5)
    if allowed and on_hopper():
        assert error > 1e-5, "smaller ones are not left to it"


@pytest.mark.parametrize("bad", [0.0, math.inf], ids=str)
def test_long_and_narrow_products_that_may_be_rounded(
    bad: float, device: str, rng: torch.Generator
) -> None:
    """By kernels that keep all bits, or by dense torch; no structural zero meets what is bad."""
    torch.set_float32_matmul_precision("high")
    failures = Failures()
    sizes = ((8, 200_000, ()), (100, 20_000, ()), (128, 800, (130,)), (300, 500, (10,)))
    kinds = ((LOWER, DENSE), (DENSE, LOWER), (UPPER, DENSE), (DENSE, UPPER), (SYMMETRIC, DENSE))
    for (n, m, batch), (a_kind, b_kind) in each(sizes, kinds):
        a, b = (
            draw_operand(
                kind, n, torch.float32, rng, batch=batch, rows=r, cols=c, draw=random_integers
            )
            for kind, r, c in ((a_kind, m, n), (b_kind, n, m))
        )
        if bad and SYMMETRIC not in (a_kind, b_kind):
            dense = b.stored if b_kind == DENSE else a.stored.mT
            dense[..., n // 2, [0, m // 2, m - 1]] = bad
            a, b = Operand(a.stored, a_kind, n), Operand(b.stored, b_kind, n)
        with failures.case(f"{n=}, {m=}, {batch=}, kinds {a_kind}, {b_kind}"):
            c = mm(a.stored, b.stored, n, a_kind, b_kind, DENSE, tf32=True)
            assert_close_or_equal(c, stored_product(a, b).float(), atol=0)
    failures.report()


@pytest.mark.parametrize("dtype", [*SIXTEEN_BITS, torch.float64], ids=str)
def test_gram_left_to_dense(dtype: torch.dtype, device: str, rng: torch.Generator) -> None:
    for n, batch in ((800, (2,)), (30, (3,)), (50, (200,))):
        x = random_integers((*batch, n, n), dtype, device, rng)
        a, b = Operand(x, DENSE, n), Operand(x.mT, DENSE, n)
        assert_exact(mm(x, x.mT, n, DENSE, DENSE, LOWER), a, b, LOWER)


@pytest.mark.parametrize("bad", [0.0, math.inf, math.nan], ids=str)
@pytest.mark.parametrize(
    ("element", "n", "batch"),
    [
        (torch.complex128, 130, ()),
        (torch.complex128, 257, ()),
        (torch.float32, 704, ()),
        (torch.float32, 256, (3,)),
        (torch.float32, 256, (2, 2)),
    ],
    ids=str,
)
def test_triangle_and_its_transpose(
    element: torch.dtype,
    n: int,
    batch: tuple[int, ...],
    bad: float,
    device: str,
    rng: torch.Generator,
) -> None:
    """Half of the product of one copy with its transpose, float32 in TF32: zeros spoil nothing."""
    failures = Failures()
    for kind, other in ((LOWER, UPPER), (UPPER, LOWER)):
        stored = random_integers((*batch, numel(n)), element, device, rng)
        if bad:
            # In an early row, in the middle, and the last element of all.
            stored.view(-1)[[numel(5) - 2, numel(n) // 2, -1]] = bad
        a, b = Operand(stored, kind, n), Operand(stored, other, n)
        expected = take_part(stored_product(a, b), "lower").to(element)
        c = densify(mm(stored, stored, n, kind, other, LOWER, element is torch.float32), n, LOWER)
        with failures.case(f"kinds {kind}, {other}"):
            finite = expected.isfinite()
            assert torch.equal(c.isfinite(), finite)
            assert torch.equal(c[finite], expected[finite])
            assert finite.all() != bool(bad)
    failures.report()
