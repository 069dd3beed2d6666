"""Batches that have one launch of the engine: forced, and where their sizes choose it."""

from __future__ import annotations

import pytest
import torch
from cases import (
    DIRECT,
    ELEMENTS,
    ENGINE,
    FUSED,
    SMALL,
    Element,
    Failures,
    Force,
    Operand,
    assert_exact,
    assert_same,
    draw_operand,
    each,
    hopper,
    mm,
    part_of,
    stored_product,
)
from torch import Tensor

from packedtri.layout import DENSE, LOWER, SYMMETRIC, UPPER, numel
from packedtri.testing import (
    assert_product_close,
    densify,
    random,
    random_integers,
    take_part,
)

pytestmark = [pytest.mark.cuda, hopper]


typed = pytest.mark.parametrize("element", ELEMENTS.values(), ids=ELEMENTS.keys())

KINDS = (
    (LOWER, LOWER, LOWER),
    (LOWER, UPPER, DENSE),
    (UPPER, LOWER, LOWER),
    (LOWER, DENSE, DENSE),
    (DENSE, UPPER, DENSE),
    (SYMMETRIC, DENSE, DENSE),
    (DENSE, DENSE, LOWER),
)


@pytest.mark.sanitizer
@pytest.mark.parametrize(
    ("tile", "split"), [(0, 1), (0, 2), (0, 4), (1, 1), (2, 1), (2, 2), (2, 4)]
)
@typed
def test_batches(
    element: Element,
    tile: int,
    split: int,
    device: str,
    rng: torch.Generator,
    force: Force,
) -> None:
    """Every matrix of a batch, also where one operand is the same for all."""
    dtype, tf32 = element
    if element == (torch.float32, False) and tile > 0:
        pytest.skip("float32 has tiles of one size")
    failures = Failures()
    sizes = (130,) if SMALL else (1, 64, 130, 392)
    batches = (((3,), ()),) if SMALL else (((5,), (5,)), ((5,), ()), ((), (5,)), ((2, 3), (3,)))
    for n, (a_kind, b_kind, c_kind), (a_batch, b_batch) in each(
        sizes, KINDS[:1] + KINDS[-3:] if SMALL else KINDS, batches
    ):
        a = draw_operand(a_kind, n, dtype, rng, batch=a_batch, draw=random_integers)
        b = draw_operand(b_kind, n, dtype, rng, batch=b_batch, draw=random_integers)
        force(ENGINE, tile, split, 2, 1)
        with failures.case(f"n={n}, kinds {a_kind}, {b_kind}, {c_kind}, {a_batch}, {b_batch}"):
            assert_exact(mm(a.stored, b.stored, n, a_kind, b_kind, c_kind, tf32), a, b, c_kind)
    failures.report()


@typed
def test_strides(element: Element, device: str, rng: torch.Generator, force: Force) -> None:
    """Dense operands whose matrices interleave, have gaps, or lie where no map reaches."""
    n, failures = 136, Failures()
    dtype, tf32 = element

    def dense(shape: tuple[int, ...]) -> Tensor:
        return random_integers(shape, dtype, rng.device, rng)

    layouts = {
        "contiguous": dense((4, n, n)),
        "transposed": dense((4, n, n)).mT,
        "rows in turn": dense((n, 4, n)).transpose(0, 1),
        "columns in turn": dense((n, 4, n)).permute(1, 2, 0),
        "padded": dense((4, n + 8, n + 16))[:, 8:, :n],
        "at odd places": dense((4, n * n + 1))[:, 1:].view(4, n, n),
        "overlapping": dense((n * n + 24,)).as_strided((4, n, n), (8, n, 1)),
    }
    for (name, x), tile in each(tuple(layouts.items()), (0, 1)):
        t = draw_operand(LOWER, n, dtype, rng, batch=(4,), draw=random_integers)
        force(ENGINE, tile, 1, 1, 1)
        wide = t.dense.double(), x.double()
        with failures.case(f"{name}, tile {tile}"):
            right = mm(t.stored, x, n, LOWER, DENSE, DENSE, tf32)
            assert_same(right, (wide[0] @ wide[1]).to(dtype))
            left = mm(x, t.stored, n, DENSE, LOWER, DENSE, tf32)
            assert_same(left, (wide[1] @ wide[0]).to(dtype))
            gram = mm(x, x.mT, n, DENSE, DENSE, LOWER, tf32)
            assert_same(densify(gram, n, LOWER), (wide[1] @ wide[1].mT).tril().to(dtype))
    failures.report()


@pytest.mark.skipif(SMALL, reason="large batches")
@typed
def test_launches(element: Element, device: str, rng: torch.Generator, force: Force) -> None:
    """Images that take more than 256 MiB are made in parts, of which the last is shorter."""
    n, count = 33, 40_009
    dtype, tf32 = element
    a, b = (random_integers((count, numel(n)), dtype, rng.device, rng) for _ in range(2))
    results = []
    for method in (DIRECT, ENGINE):
        force(method, 0, 1, 1, 1)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        results.append(mm(a, b, n, LOWER, LOWER, LOWER, tf32))
    taken = torch.cuda.max_memory_allocated() - before
    assert_same(results[1], results[0])
    assert taken <= a.nbytes + 257 * 2**20


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e-40])
@typed
def test_nonfinite(
    element: Element, value: float, device: str, rng: torch.Generator, force: Force
) -> None:
    """What images cannot hold, or would meet padded zeros, in some of many tiles."""
    dtype, tf32 = element
    if tf32 and abs(value) < 1:
        pytest.skip("TF32 has no smaller range")
    n, count, failures = 300, 20 if SMALL else 40, Failures()
    # What is left of 16-bit products of symmetric matrices is rounded twice.
    kinds = KINDS[:6] if dtype == torch.float32 else KINDS[:5]
    for tile, (a_kind, b_kind, c_kind) in each((0, 1), kinds):
        a = draw_operand(a_kind, n, dtype, rng, batch=(count,), draw=random_integers)
        b = draw_operand(b_kind, n, dtype, rng, batch=(count,), draw=random_integers)
        a.stored[2].view(-1)[numel(150) + 149] = value
        b.stored[5].view(-1)[numel(40) + 3] = value
        # In first rows too, since tiles of the matrix before reach past its last row.
        a.stored[7:].view(count - 7, -1)[:, 0] = value
        a, b = Operand(a.stored, a_kind, n), Operand(b.stored, b_kind, n)
        expected = take_part(stored_product(a, b), part_of(c_kind)).to(dtype)
        force(ENGINE, tile, 1, 1, 1)
        c = densify(mm(a.stored, b.stored, n, a_kind, b_kind, c_kind, tf32), n, c_kind)
        with failures.case(f"tile {tile}, kinds {a_kind}, {b_kind}, {c_kind}"):
            # A sum that cancels but for a tiny term depends on the order of its terms.
            torch.testing.assert_close(c, expected, rtol=0, atol=1e-30, equal_nan=True)
    failures.report()


@pytest.mark.skipif(SMALL, reason="large matrices")
@pytest.mark.parametrize(("method", "tile"), [(ENGINE, 0), (ENGINE, 1), (ENGINE, 2), (FUSED, 1)])
def test_nonfinite_in_many_tiles(
    method: int, tile: int, device: str, rng: torch.Generator, force: Force
) -> None:
    """Each block computes what is left in several tiles of one large matrix."""
    n = 2311
    a, b = (random_integers((numel(n),), torch.bfloat16, device, rng) for _ in range(2))
    for x in (a, b):
        x[torch.randint(numel(n), (12,), device=device, generator=rng)] = float("inf")
    left, right = Operand(a, LOWER, n), Operand(b, LOWER, n)
    expected = stored_product(left, right).tril().to(torch.bfloat16)
    force(method, tile, 1, 1, 1)
    c = densify(mm(a, b, n, LOWER, LOWER, LOWER), n, LOWER)
    torch.testing.assert_close(c, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.skipif(SMALL, reason="large batches")
@pytest.mark.parametrize(
    ("element", "n", "batch", "kinds"),
    [
        ("bfloat16", 512, 32, KINDS[0]),
        ("bfloat16", 392, 40, KINDS[3]),
        ("float16", 1030, 9, KINDS[1]),
        ("float32", 515, 4, KINDS[0]),
        ("tf32", 256, 40, KINDS[6]),
        ("tf32", 512, 8, KINDS[3]),
        ("tf32", 300, 8, KINDS[5]),
        ("tf32", 520, 1, KINDS[5]),
        ("tf32", 600, 1, KINDS[1]),
    ],
)
def test_chosen(
    element: str, n: int, batch: int, kinds: tuple[int, ...], device: str, rng: torch.Generator
) -> None:
    """What sizes choose by themselves: twice the error of torch at most."""
    dtype, tf32 = ELEMENTS[element]
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    *operands, c_kind = kinds
    a, b = (draw_operand(k, n, dtype, rng, batch=(batch,), draw=random) for k in operands)
    c = mm(a.stored, b.stored, n, a.kind, b.kind, c_kind, tf32)
    assert_product_close(densify(c, n, c_kind), a.dense, b.dense, part=part_of(c_kind))


@pytest.mark.skipif(SMALL, reason="large batches")
@pytest.mark.parametrize(("tile", "cols"), [(0, 64), (1, 64), (1, 192)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_boxes_of_short_sums(
    dtype: torch.dtype, tile: int, cols: int, device: str, rng: torch.Generator, force: Force
) -> None:
    """Tiles with an odd number of boxes follow one another while these are still being copied."""
    n, count = 64, 4000
    a = draw_operand(LOWER, n, dtype, rng, batch=(count,), draw=random_integers)
    b = draw_operand(DENSE, n, dtype, rng, batch=(count,), cols=cols, draw=random_integers)
    force(ENGINE, tile, 1, 1, 1)
    for _ in range(20):
        assert_exact(mm(a.stored, b.stored, n, LOWER, DENSE, DENSE), a, b, DENSE)
