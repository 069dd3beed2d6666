"""float64 on Hopper: blocks that go from tile to tile, and sums cut into parts."""

from __future__ import annotations

import pytest
import torch
from cases import (
    BY_TRIANGLES,
    FEW_PAIRS,
    HOPPER,
    PAIRS,
    SMALL,
    Failures,
    Force,
    Operand,
    assert_exact,
    draw_operand,
    each,
    hopper,
    memory_filled,
    mm,
    shifted,
    stored_product,
)

from packedtri import _library
from packedtri.layout import DENSE, LOWER, SYMMETRIC, UPPER, numel
from packedtri.testing import (
    assert_product_close,
    densify,
    poisoned,
    random,
    random_integers,
    take_part,
)

pytestmark = [pytest.mark.cuda, hopper]

F64 = torch.float64
# How many steps parts of sums have; a tile has four. Zero: no sum is cut.
PARTS = (0, 1, 2, 4, 7)
SIZES = (1, 2, 3, 31, 65, 130, 257)

tiles = pytest.mark.parametrize("tile", [0, 1], ids=["small", "large"])


@pytest.mark.sanitizer
@pytest.mark.parametrize("part", PARTS)
@tiles
def test_values(tile: int, part: int, device: str, rng: torch.Generator, force: Force) -> None:
    """Every way that memory runs, at even and odd addresses; parts of sums with nothing in them."""
    failures = Failures()
    # Of the smallest, large tiles have whole lines that bulk copies bring.
    small = ((257 if tile else 130,), FEW_PAIRS)
    sizes, pairs = small if SMALL else (SIZES, PAIRS)
    for n, (a_kind, b_kind), c_kind, odd in each(sizes, pairs, (LOWER, DENSE), (False, True)):
        a = draw_operand(a_kind, n, F64, rng, batch=(3,), draw=random_integers)
        b = draw_operand(b_kind, n, F64, rng, batch=(3,), draw=random_integers)
        x, y = (shifted(t.stored) if odd else t.stored for t in (a, b))
        force(HOPPER, tile, -1, part, 1)
        with failures.case(f"n={n}, kinds {a_kind}, {b_kind}, {c_kind}, odd address: {odd}"):
            assert_exact(mm(x, y, n, a_kind, b_kind, c_kind), a, b, c_kind)
    failures.report()


@pytest.mark.sanitizer
@pytest.mark.parametrize("part", PARTS)
@tiles
def test_rectangles(tile: int, part: int, device: str, rng: torch.Generator, force: Force) -> None:
    """More or fewer rows and columns than the triangle has, and sums of their own length."""
    failures = Failures()
    sizes = ((130, 5),) if SMALL else ((1, 300), (40, 129), (130, 5), (300, 128), (300, 700))
    for (n, m), kind, left in each(sizes, (LOWER, UPPER, DENSE), (False, True)):
        square = draw_operand(kind, n, F64, rng, draw=random_integers)
        rows, cols = (n, m) if left else (m, n)
        dense = draw_operand(DENSE, n, F64, rng, rows=rows, cols=cols, draw=random_integers)
        a, b = (square, dense) if left else (dense, square)
        force(HOPPER, tile, -1, part, 1)
        with failures.case(f"{n=}, {m=}, {kind=}, {left=}"):
            c = mm(a.stored, b.stored, n, a.kind, b.kind, DENSE)
            assert_exact(c.reshape(a.dense.shape[-2], -1), a, b, DENSE)
    failures.report()


@pytest.mark.parametrize(("a_kind", "b_kind"), FEW_PAIRS[:5])
def test_long_sums(a_kind: int, b_kind: int, device: str, rng: torch.Generator) -> None:
    """With fewer stages, of an order at which those are chosen."""
    n = 6200
    a, b = (draw_operand(kind, n, F64, rng, draw=random_integers) for kind in (a_kind, b_kind))
    assert_exact(mm(a.stored, b.stored, n, a_kind, b_kind, DENSE), a, b, DENSE)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@pytest.mark.parametrize("part", PARTS[::2])
@tiles
def test_nonfinite(
    tile: int, part: int, value: float, device: str, rng: torch.Generator, force: Force
) -> None:
    """No structural zero meets what is not finite, in the first, middle or last steps of a sum."""
    failures = Failures()
    for n, (a_kind, b_kind), c_kind, many in each(
        (33, 150, 300, 700), FEW_PAIRS, (LOWER, DENSE), (False, True)
    ):
        a, b = (draw_operand(kind, n, F64, rng) for kind in (a_kind, b_kind))
        for x in (a, b):
            flat = x.stored.view(-1)
            some = torch.randint(len(flat), (n // 15,), device=device, generator=rng).tolist()
            flat[some if many else [n // 2, -n]] = value
        a, b = Operand(a.stored, a_kind, n), Operand(b.stored, b_kind, n)
        expected = take_part(stored_product(a, b), "lower" if c_kind == LOWER else "full")
        force(HOPPER, tile, -1, part, 1)
        with failures.case(f"n={n}, kinds {a_kind}, {b_kind}, {c_kind}, many: {many}"):
            c = densify(mm(a.stored, b.stored, n, a_kind, b_kind, c_kind), n, c_kind)
            torch.testing.assert_close(c, expected, equal_nan=True)
    failures.report()


@pytest.mark.parametrize("part", PARTS[::2])
@pytest.mark.parametrize("kind", [LOWER, UPPER])
@tiles
def test_blocks_of_triangles(
    tile: int, kind: int, part: int, device: str, rng: torch.Generator, force: Force
) -> None:
    """Solves and factors subtract products of blocks of packed triangles from others, in place."""
    n, m = 700, 333
    diagonal = [numel(i) + i for i in range(n)]
    t, one = (
        random((numel(n),), F64, rng.device, rng) / n,
        torch.zeros(numel(n), dtype=F64, device=device),
    )
    t[diagonal] = 1 + random((n,), F64, rng.device, rng).abs()
    one[diagonal] = 1
    dense = densify(t, n, kind)
    b = random((n, m), F64, rng.device, rng)
    a = dense.mT @ dense
    i, j = torch.tril_indices(n, n, device=device)
    force(HOPPER, tile, -1, part, 1)
    with poisoned():
        x = torch.ops.packedtri.solve_triangular(t, b, n, kind, DENSE, True, False)
        inverse = torch.ops.packedtri.solve_triangular(t, one, n, LOWER, LOWER, True, False)
        factor, info = torch.ops.packedtri.cholesky(a[i, j].contiguous(), n)
    torch.testing.assert_close(dense @ x, b)
    lower = densify(t, n, LOWER)
    torch.testing.assert_close(
        lower @ densify(inverse, n, LOWER), torch.eye(n, dtype=F64, device=device)
    )
    assert info.item() == 0
    found = densify(factor, n, LOWER)
    torch.testing.assert_close(found @ found.mT, a)


@pytest.mark.skipif(SMALL, reason="large sizes")
@pytest.mark.parametrize(
    ("n", "a_kind", "b_kind", "c_kind"),
    [
        (2100, LOWER, LOWER, LOWER),
        (2100, DENSE, DENSE, LOWER),
        (2311, UPPER, LOWER, LOWER),
        (2311, LOWER, UPPER, DENSE),
        (900, UPPER, LOWER, DENSE),
        (1000, UPPER, DENSE, DENSE),
        (1300, LOWER, LOWER, LOWER),
        (2560, LOWER, DENSE, DENSE),
        (2560, DENSE, DENSE, LOWER),
    ],
)
def test_chosen(
    n: int, a_kind: int, b_kind: int, c_kind: int, device: str, rng: torch.Generator
) -> None:
    """What the choice makes of sizes that have some sums in parts and others whole."""
    gpu = torch.device("cuda", torch.cuda.current_device())
    kernel = _library.cuda_kernel(F64, n, n, 1, (a_kind, b_kind, c_kind), gpu)
    assert "warps of their own" in kernel, kernel
    a, b = (draw_operand(kind, n, F64, rng) for kind in (a_kind, b_kind))
    c = densify(mm(a.stored, b.stored, n, a_kind, b_kind, c_kind), n, c_kind)
    assert_product_close(c, a.dense, b.dense, part="lower" if c_kind == LOWER else "full")


@pytest.mark.sanitizer
def test_symmetric_by_triangles(device: str, rng: torch.Generator, force: Force) -> None:
    """One after the other; both operands may be symmetric, and the result may be packed."""
    failures = Failures()
    pairs = [
        *((SYMMETRIC, DENSE), (DENSE, SYMMETRIC), (SYMMETRIC, LOWER), (UPPER, SYMMETRIC)),
        (SYMMETRIC, SYMMETRIC),
    ]
    for n, (a_kind, b_kind), c_kind in each((65,) if SMALL else SIZES, pairs, (LOWER, DENSE)):
        a = draw_operand(a_kind, n, F64, rng, batch=(3,), draw=random_integers)
        b = draw_operand(b_kind, n, F64, rng, draw=random_integers)
        force(BY_TRIANGLES, -1, -1, -1, -1)
        with failures.case(f"n={n}, kinds {a_kind}, {b_kind}, {c_kind}"):
            assert_exact(mm(a.stored, b.stored, n, a_kind, b_kind, c_kind), a, b, c_kind)
    failures.report()


@pytest.mark.skipif(SMALL, reason="large sizes")
@pytest.mark.parametrize(("n", "m"), [(3600, 161), (3601, 130), (4096, 600)])
@pytest.mark.parametrize("left", [True, False], ids=["left", "right"])
def test_columns_beside_symmetric(
    left: bool, n: int, m: int, device: str, rng: torch.Generator
) -> None:
    kinds = (SYMMETRIC, DENSE) if left else (DENSE, SYMMETRIC)
    gpu = torch.device("cuda", torch.cuda.current_device())
    assert "two triangles" in _library.cuda_kernel(F64, n, m, 1, (*kinds, DENSE), gpu)
    rows, cols = (n, m) if left else (m, n)
    a, b = (
        draw_operand(kind, n, F64, rng, rows=rows, cols=cols, draw=random_integers)
        for kind in kinds
    )
    assert_exact(mm(a.stored, b.stored, n, *kinds, DENSE), a, b, DENSE)


@pytest.mark.skipif(SMALL, reason="large sizes")
@pytest.mark.parametrize(("n", "a_kind"), [(1500, LOWER), (2560, DENSE)])
def test_no_room_for_parts(n: int, a_kind: int, device: str, rng: torch.Generator) -> None:
    """No sum is cut where memory has no room for parts."""
    c_kind = DENSE if a_kind == LOWER else LOWER
    a, b = (draw_operand(kind, n, F64, rng, draw=random_integers) for kind in (a_kind, DENSE))
    size = mm(a.stored, b.stored, n, a_kind, DENSE, c_kind).nbytes
    with memory_filled(size, least=2**21):
        c = torch.ops.packedtri.mm(a.stored, b.stored, n, a_kind, DENSE, c_kind)
    assert_exact(c, a, b, c_kind)


@pytest.mark.skipif(SMALL, reason="many runs")
@pytest.mark.parametrize("c_kind", [LOWER, DENSE])
@tiles
def test_repeats(tile: int, c_kind: int, device: str, rng: torch.Generator, force: Force) -> None:
    """10,000 runs agree in every bit, whichever part of a sum comes last."""
    n = 1000
    a, b = (random((numel(n),), F64, rng.device, rng) for _ in range(2))
    force(HOPPER, tile, -1, 4, 1)
    first = mm(a, b, n, LOWER, UPPER, c_kind)
    assert first.isfinite().all()
    different = torch.zeros((), dtype=torch.int64, device=device)
    for _ in range(10_000):
        different += (torch.ops.packedtri.mm(a, b, n, LOWER, UPPER, c_kind) != first).sum()
    assert different.item() == 0
