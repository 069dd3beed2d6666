"""Every template of the CUDA kernels: forced, since most sizes would choose another."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import pytest
import torch
from cases import (
    DIRECT,
    ENGINE,
    FEW_PAIRS,
    FUSED,
    HOPPER,
    IMAGED,
    PAIRS,
    SIXTEEN_BITS,
    SMALL,
    Failures,
    Force,
    Operand,
    assert_close_or_equal,
    assert_exact,
    assert_same,
    draw_operand,
    each,
    hopper,
    mm,
    part_of,
    shifted,
    stored_product,
)

from packedtri.layout import DENSE, HERMITIAN, LOWER, SYMMETRIC, UPPER, numel
from packedtri.testing import (
    assert_product_close,
    densify,
    random,
    random_integers,
    take_part,
)

pytestmark = pytest.mark.cuda

ops = torch.ops.packedtri


def forced_cases() -> Iterator[tuple[int, int, int, int, int]]:
    """(n, a_kind, b_kind, c_kind, above, group): ragged sizes, and every template of a kernel.

    These differ in whether each operand's memory runs along the sum or across it. Where `above` is
    negative, four blocks, three, two or one have each sum, so that parts have that many half tiles
    at most.
    """
    sizes = (
        ((130, 2, 2), (130, -2, 1))
        if SMALL
        else ((1, 1, 1), (33, 1, 8), (130, 2, 1), (260, 3, 3), (130, -2, 1), (330, -3, 1))
    )
    pairs = tuple(each((LOWER, UPPER), (LOWER, UPPER))) if SMALL else PAIRS
    for (n, above, group), ((a_kind, b_kind), c_kind) in each(sizes, each(pairs, (LOWER, DENSE))):
        yield n, a_kind, b_kind, c_kind, above, group


def check_forced(
    method: int, tile: int, split: int, dtype: torch.dtype, rng: torch.Generator, force: Force
) -> None:
    failures = Failures()
    mirrored = [
        (130, SYMMETRIC, DENSE, DENSE, 2, 1),
        (130, LOWER, SYMMETRIC, DENSE, 1, 2),
        (130, HERMITIAN, DENSE, DENSE, 2, 1),
        (130, HERMITIAN, HERMITIAN, LOWER, 1, 2),
    ]
    for n, a_kind, b_kind, c_kind, above, group in itertools.chain(forced_cases(), mirrored):
        a = draw_operand(a_kind, n, dtype, rng, draw=random_integers)
        b = draw_operand(b_kind, n, dtype, rng, draw=random_integers)
        force(method, tile, split, above, group)
        with failures.case(f"n={n}, kinds {a_kind}, {b_kind}, {c_kind}, {above}, {group}"):
            assert_exact(mm(a.stored, b.stored, n, a_kind, b_kind, c_kind), a, b, c_kind)
    failures.report()


@pytest.mark.sanitizer
@pytest.mark.parametrize("split", [1, 2, 8])
@pytest.mark.parametrize("tile", [0, 1])
def test_forced(
    tile: int, split: int, device: str, dtype: torch.dtype, rng: torch.Generator, force: Force
) -> None:
    """Configurations that the size of a product would not choose are right too."""
    check_forced(DIRECT, tile, split, dtype, rng, force)


@pytest.mark.sanitizer
@pytest.mark.parametrize("above", [1, 2, -2, -3])
def test_many_blocks(
    above: int, device: str, dtype: torch.dtype, rng: torch.Generator, force: Force
) -> None:
    """Blocks that share a multiprocessor: in another order, and in float64 by another kernel."""
    failures = Failures()
    n, batch, pairs = (65, 70, FEW_PAIRS[:3]) if SMALL else (130, 80, PAIRS)
    methods = (DIRECT, HOPPER) if dtype in SIXTEEN_BITS else (DIRECT,)
    for (a_kind, b_kind), c_kind, method in each(pairs, (LOWER, DENSE), methods):
        a = draw_operand(a_kind, n, dtype, rng, batch=(batch,), draw=random_integers)
        b = draw_operand(b_kind, n, dtype, rng, batch=(batch,), draw=random_integers)
        force(method, 0, 2, above, 1)
        with failures.case(f"kinds {a_kind}, {b_kind}, {c_kind}, method {method}"):
            assert_exact(mm(a.stored, b.stored, n, a_kind, b_kind, c_kind), a, b, c_kind)
    failures.report()


@hopper
@pytest.mark.sanitizer
@pytest.mark.parametrize("split", [1, 2, 4, 8])
@pytest.mark.parametrize("dtype", SIXTEEN_BITS, ids=str)
def test_hopper_forced(
    split: int, device: str, dtype: torch.dtype, rng: torch.Generator, force: Force
) -> None:
    """16-bit tiles multiplied by warpgroups, at every distance of rows from aligned addresses."""
    check_forced(HOPPER, 0, split, dtype, rng, force)
    failures = Failures()
    sizes, pairs, skips = (
        ((9, 67), FEW_PAIRS, (0, 3))
        if SMALL
        else ((8, 9, 15, 33, 64, 67, 128, 131, 200), PAIRS, (0, 3, 6))
    )
    for n, (a_kind, b_kind), skip in each(sizes, pairs, skips):
        a = draw_operand(a_kind, n, dtype, rng, batch=(3,), draw=random_integers)
        b = draw_operand(b_kind, n, dtype, rng, batch=(3,), draw=random_integers)
        x, y = (shifted(t.stored, skip + i) for i, t in enumerate((a, b)))
        force(HOPPER, 0, split, 1, 1)
        with failures.case(f"n={n}, kinds {a_kind}, {b_kind}, {skip} elements off"):
            assert_exact(mm(x, y, n, a_kind, b_kind, DENSE), a, b, DENSE)
    failures.report()


@hopper
@pytest.mark.sanitizer
@pytest.mark.parametrize("dtype", SIXTEEN_BITS, ids=str)
def test_hopper_few_vectors(
    dtype: torch.dtype, device: str, rng: torch.Generator, force: Force
) -> None:
    """The same with few rows, or columns as many as a word holds and more."""
    failures = Failures()
    sizes, vectors = ((12, 70), (1, 2, 8)) if SMALL else ((12, 70, 130, 300), (1, 2, 5, 8, 13, 31))
    for n, m, split, kind in each(sizes, vectors, (1, 4), (LOWER, UPPER)):
        t = draw_operand(kind, n, dtype, rng, draw=random_integers)
        for left in (True, False):
            if left and m < 8:
                continue
            rows, cols = (n, m) if left else (m, n)
            d = draw_operand(DENSE, n, dtype, rng, rows=rows, cols=cols, draw=random_integers)
            a, b = (t, d) if left else (d, t)
            force(HOPPER, 0, split, 1, 1)
            with failures.case(f"{n=}, {m=}, {split=}, {kind=}, {left=}"):
                c = mm(a.stored, b.stored, n, a.kind, b.kind, DENSE)
                assert_exact(c.reshape(a.dense.shape[-2], -1), a, b, DENSE)
    failures.report()


@hopper
@pytest.mark.sanitizer
@pytest.mark.parametrize("split", [1, 2, 4])
@pytest.mark.parametrize("tile", [0, 1, 2])
@pytest.mark.parametrize("dtype", IMAGED, ids=str)
def test_engine_forced(
    tile: int, split: int, device: str, dtype: torch.dtype, rng: torch.Generator, force: Force
) -> None:
    """Products by tile images, which only large ones would choose."""
    if dtype == torch.float32 and tile > 0:
        pytest.skip("float32 has tiles of one size")
    check_forced(ENGINE, tile, split, dtype, rng, force)


# Operands of which one, both, or the only one are triangles; and the kind of the result.
TRIANGLES = (
    *((a, b, c) for a, b, c in each((LOWER, UPPER), (LOWER, UPPER), (LOWER, DENSE))),
    (LOWER, DENSE, DENSE),
    (DENSE, UPPER, DENSE),
)


@hopper
@pytest.mark.sanitizer
@pytest.mark.parametrize("dtype", SIXTEEN_BITS, ids=str)
def test_fused(device: str, dtype: torch.dtype, rng: torch.Generator, force: Force) -> None:
    """Images that are made beside the product, against those that a kernel makes before it."""
    failures = Failures()
    # In batches those whose n(n+1)/2 is a multiple of 8 have their images made on the way.
    sizes = (130, 544) if SMALL else (1, 63, 130, 257, 511, 544, 550, 768, 1031, 2311)
    shapes = ((), 1), ((), 3), ((3,), 1)
    for n, (a_kind, b_kind, c_kind), (batch, group) in each(
        sizes,
        TRIANGLES[:4] + TRIANGLES[-2:] if SMALL else TRIANGLES,
        shapes[1:2] if SMALL else shapes,
    ):
        # Lines of a dense operand are aligned, or there would be no image to make on the way.
        m = (n + 8) // 8 * 8
        a = draw_operand(a_kind, n, dtype, rng, batch=batch, rows=m).stored
        b = draw_operand(b_kind, n, dtype, rng, cols=m).stored
        if a_kind == DENSE:
            a = a.mT.contiguous().mT
        if a_kind == b_kind and n == 550 and not batch:
            b = a
        results = []
        for method in (ENGINE, FUSED):
            force(method, 1, 1, 1, group)
            results.append(mm(a, b, n, a_kind, b_kind, c_kind))
        with failures.case(f"{n=}, kinds {a_kind}, {b_kind}, {c_kind}, {batch}, {group=}"):
            assert results[0].isfinite().all()
            assert_same(results[1], results[0])
    failures.report()


@hopper
@pytest.mark.skipif(SMALL, reason="large sizes")
@pytest.mark.parametrize("n", [1000, 2311])
@pytest.mark.parametrize("dtype", IMAGED, ids=str)
def test_engine_accuracy(
    n: int, dtype: torch.dtype, device: str, rng: torch.Generator, force: Force
) -> None:
    """Twice the error of torch at most; operands that are positive, or differ widely in size."""
    failures = Failures()
    scale = torch.exp2(torch.randint(-20, 21, (numel(n),), generator=rng, device=device).float())
    for name, change in {
        "normal": lambda x: x,
        "positive": torch.abs,
        "wide": lambda x: x if dtype == torch.float16 else (x * scale).to(dtype),
    }.items():
        a, b = (change(random((numel(n),), dtype, device, rng)) for _ in range(2))
        for a_kind, b_kind in each((LOWER, UPPER), (LOWER, UPPER)):
            force(ENGINE, -1, -1, -1, -1)
            c = mm(a, b, n, a_kind, b_kind, LOWER)
            force(-1, -1, -1, -1, -1)
            with failures.case(f"{name}, kinds {a_kind}, {b_kind}"):
                dense = densify(a, n, a_kind), densify(b, n, b_kind)
                assert_product_close(densify(c, n, LOWER), *dense, part="lower")
    failures.report()


# (row, column) in the stored triangle, in different tiles of any side. No row and no column comes
# twice, so a sum has at most one of these from each operand.
BAD = ((0, 0), (70, 69), (131, 131), (150, 149), (200, 3), (299, 130))


@hopper
@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan"), 1e-36, 3.4e38])
@pytest.mark.parametrize("dtype", IMAGED, ids=str)
@pytest.mark.parametrize(
    ("method", "tile"), [*each((DIRECT, ENGINE, HOPPER), (0, 1)), (ENGINE, 2), (FUSED, 1)]
)
def test_nonfinite(
    method: int,
    tile: int,
    value: float,
    dtype: torch.dtype,
    device: str,
    rng: torch.Generator,
    force: Force,
) -> None:
    """Elements that images cannot hold, or that would meet padded zeros, against sums over stored
    elements."""
    if dtype == torch.float32 and (method in (HOPPER, FUSED) or (method == ENGINE and tile > 0)):
        pytest.skip("float32 has no such kernel")
    n = 300
    places = [numel(i) + j for i, j in BAD]
    failures = Failures()
    for a_kind, b_kind, bad in each((LOWER, UPPER), (LOWER, UPPER), ("left", "right", "both")):
        # With a large one from either side the result would depend on the order of the sum.
        if bad == "both" and math.isfinite(value):
            continue
        x, y = (random_integers((numel(n),), dtype, device, rng) for _ in range(2))
        if bad != "right":
            x[places] = value
        if bad != "left":
            y[places] = value
        a, b = Operand(x, a_kind, n), Operand(y, b_kind, n)
        product = stored_product(a, b).to(dtype)
        for c_kind, split in each((LOWER, DENSE), (1, 2, 4)):
            force(method, tile, split, 1, 1)
            c = densify(mm(x, y, n, a_kind, b_kind, c_kind), n, c_kind)
            expected = take_part(product, part_of(c_kind))
            with failures.case(f"kinds {a_kind}, {b_kind}, {c_kind}, {bad} bad, split {split}"):
                assert_close_or_equal(c, expected, atol=1e-30)
                # Sums of one term, in which a tiny element is not lost beside larger ones.
                if a_kind == b_kind:
                    assert_close_or_equal(c.diagonal(), expected.diagonal(), atol=0)
    failures.report()


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@pytest.mark.parametrize(
    ("element", "tile"),
    [(torch.float64, 0), (torch.float64, 1), (torch.complex64, 0), (torch.complex128, 0)],
)
def test_nonfinite_direct(
    element: torch.dtype,
    tile: int,
    value: float,
    device: str,
    rng: torch.Generator,
    force: Force,
) -> None:
    """The same of types without images: what structural zeros may have spoiled is made again."""
    n = 300
    places = [numel(i) + j for i, j in BAD]
    failures = Failures()
    for a_kind, b_kind, left in each((LOWER, UPPER), (LOWER, UPPER), (True, False)):
        x, y = (random_integers((numel(n),), element, device, rng) for _ in range(2))
        (x if left else y)[places] = value
        product = stored_product(Operand(x, a_kind, n), Operand(y, b_kind, n))
        for c_kind, split in each((LOWER, DENSE), (1, 2, 8)):
            force(DIRECT, tile, split, 1, 1)
            c = densify(mm(x, y, n, a_kind, b_kind, c_kind), n, c_kind)
            expected = take_part(product, part_of(c_kind))
            with failures.case(f"kinds {a_kind}, {b_kind}, {c_kind}, {left=}, split {split}"):
                # Whether infinite times complex is infinite or nan depends on the parts.
                assert torch.equal(c.isfinite(), expected.isfinite())
                ok = c.isfinite()
                assert torch.equal(c[ok], expected[ok].to(element))
    failures.report()


@hopper
@pytest.mark.skipif(SMALL, reason="many runs")
@pytest.mark.parametrize(
    ("method", "tile", "split"),
    [
        (ENGINE, 0, 2),
        (ENGINE, 0, 4),
        (ENGINE, 1, 1),
        (ENGINE, 1, 2),
        (ENGINE, 2, 2),
        (ENGINE, 2, 4),
        (FUSED, 1, 1),
    ],
)
def test_engine_repeats(
    method: int, tile: int, split: int, device: str, rng: torch.Generator, force: Force
) -> None:
    """Thousands of runs, with and without sums in parts, agree in every bit."""
    n = 1500
    a, b = (random((numel(n),), torch.bfloat16, device, rng) for _ in range(2))
    force(method, tile, split, 1, 1)
    first = ops.mm(a, b, n, LOWER, LOWER, LOWER)
    different = torch.zeros((), dtype=torch.int64, device=device)
    for _ in range(5000):
        different += (ops.mm(a, b, n, LOWER, LOWER, LOWER) != first).sum()
    assert different.item() == 0


@hopper
@pytest.mark.skipif(SMALL, reason="large matrices")
@pytest.mark.parametrize("split", [1, 2, 4])
def test_nonfinite_in_sums_into_a_result(
    split: int, device: str, rng: torch.Generator, force: Force
) -> None:
    """A solve subtracts once from its right-hand side, also beside rows that are not finite."""
    n, m = 2500, 200
    t = random((n, n), torch.float32, device, rng) / (2 * n**0.5)
    t.diagonal().fill_(1)
    b = random((n, m), torch.float32, device, rng)
    b[100, 7], b[1500, 150] = math.inf, math.nan
    i, j = torch.tril_indices(n, n, device=device)
    results = []
    for method in (DIRECT, ENGINE):
        force(method, 0, split if method == ENGINE else 1, 1, 1)
        results.append(ops.solve_triangular(t[i, j], b, n, LOWER, DENSE, True, False))
    expected, x = results
    assert torch.equal(x.isfinite(), expected.isfinite())
    ok = expected.isfinite()
    assert not ok[2300, 7] and not ok[2300, 150] and ok[:, 8:150].all()
    torch.testing.assert_close(x[ok], expected[ok], rtol=1e-4, atol=1e-4)
