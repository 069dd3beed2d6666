"""CUDA kernels that are chosen for certain products only: small ones in batches, and those with one
vector."""

from __future__ import annotations

import pytest
import torch
from cases import (
    FEW_PAIRS,
    PAIRS,
    SMALL,
    WHOLE,
    Failures,
    Force,
    Operand,
    assert_exact,
    assert_same,
    draw_operand,
    each,
    mm,
    shifted,
    stored_product,
)
from torch import Tensor

from packedtri.layout import DENSE, HERMITIAN, LOWER, SYMMETRIC, UPPER
from packedtri.testing import densify, random_integers

pytestmark = pytest.mark.cuda


def assert_same_finite(c: Tensor, a: Operand, b: Operand, c_kind: int) -> None:
    expected = stored_product(a, b)
    if c_kind == LOWER:
        expected = expected.tril()
    assert_same(densify(c, a.n, c_kind).isfinite(), expected.isfinite())


# ------------------------------------------------------------------------------- small, in batches


@pytest.mark.sanitizer
@pytest.mark.parametrize("n", [5, 33] if SMALL else [1, 2, 16, 31, 32, 33, 64, 65, 100, 128])
def test_small(n: int, device: str, dtype: torch.dtype, rng: torch.Generator, force: Force) -> None:
    """More products than multiprocessors."""
    force(WHOLE, -1, -1, -1, -1)
    failures = Failures()
    for (a_kind, b_kind), c_kind, odd in each(PAIRS, (LOWER, DENSE), (False, True)):
        a = draw_operand(a_kind, n, dtype, rng, batch=(150,), draw=random_integers)
        b = draw_operand(b_kind, n, dtype, rng, batch=(150,), draw=random_integers)
        x, y = (shifted(t.stored) if odd else t.stored for t in (a, b))
        with failures.case(f"kinds {a_kind}, {b_kind}, {c_kind}, odd address: {odd}"):
            assert_exact(mm(x, y, n, a_kind, b_kind, c_kind), a, b, c_kind)
    failures.report()


@pytest.mark.sanitizer
@pytest.mark.parametrize("n", [5, 33] if SMALL else [1, 2, 17, 32, 33, 64, 65, 100, 128])
def test_small_symmetric(
    n: int, device: str, dtype: torch.dtype, rng: torch.Generator, force: Force
) -> None:
    """One block or one warp mirrors symmetric operands, however few products there are."""
    if n > 64 and dtype.itemsize > 4:
        pytest.skip("has no room in shared memory")
    failures = Failures()
    mirrored = [pair for pair in PAIRS if {SYMMETRIC, HERMITIAN} & set(pair)]
    force(WHOLE, -1, -1, -1, -1)
    for (a_kind, b_kind), c_kind, batch in each(mirrored, (LOWER, DENSE), ((3,), ())):
        a = draw_operand(a_kind, n, dtype, rng, batch=batch, draw=random_integers)
        b = draw_operand(b_kind, n, dtype, rng, batch=(3,), draw=random_integers)
        with failures.case(f"kinds {a_kind}, {b_kind}, {c_kind}, batch {batch}"):
            assert_exact(mm(shifted(a.stored), b.stored, n, a_kind, b_kind, c_kind), a, b, c_kind)
        b.stored[1].view(-1)[n // 2] = float("inf")
        with failures.case(f"kinds {a_kind}, {b_kind}, {c_kind}, infinite"):
            c = mm(a.stored, b.stored, n, a_kind, b_kind, c_kind)
            one = Operand(a.stored[1] if batch else a.stored, a_kind, n)
            assert_same_finite(c[1], one, Operand(b.stored[1], b_kind, n), c_kind)
            assert c[2].isfinite().all()
    failures.report()


@pytest.mark.skipif(SMALL, reason="many products")
@pytest.mark.parametrize(
    ("n", "batch"),
    [(16, 40_000), (31, 20_000), (32, 20_000), (64, 5_000), (65, 1_500), (128, 1_000)],
)
def test_small_turns(
    n: int, batch: int, device: str, dtype: torch.dtype, rng: torch.Generator, force: Force
) -> None:
    """Blocks and warps take several products in turn.

    Of 8, 16 and 32 threads a product, 132 multiprocessors of 2048 threads hold 33,792, 16,896 and
    8,448 at once; of larger ones their shared memory holds less than half of the batch.
    """
    force(WHOLE, -1, -1, -1, -1)
    failures = Failures()
    pairs = (*FEW_PAIRS, (SYMMETRIC, DENSE), (LOWER, HERMITIAN), (HERMITIAN, HERMITIAN))
    for a_kind, b_kind in pairs:
        a = draw_operand(a_kind, n, dtype, rng, batch=(batch,), draw=random_integers)
        b = draw_operand(b_kind, n, dtype, rng, batch=(batch,), draw=random_integers)
        for c_kind in (LOWER, DENSE):
            with failures.case(f"kinds {a_kind}, {b_kind}, {c_kind}"):
                assert_exact(mm(a.stored, b.stored, n, a_kind, b_kind, c_kind), a, b, c_kind)
    failures.report()


@pytest.mark.skipif(SMALL, reason="many products")
@pytest.mark.parametrize(
    ("n", "batch"), [(48, 30), (80, 130), (130, 40), (192, 9), (256, 34), (300, 12), (513, 8)]
)
def test_batches_by_tiles(
    n: int, batch: int, device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    """Batches whose kernels are chosen by how many tiles there are, and how empty they would be."""
    failures = Failures()
    for (a_kind, b_kind), c_kind in each(FEW_PAIRS, (LOWER, DENSE)):
        a = draw_operand(a_kind, n, dtype, rng, batch=(batch,), draw=random_integers)
        b = draw_operand(b_kind, n, dtype, rng, batch=(batch,), draw=random_integers)
        with failures.case(f"kinds {a_kind}, {b_kind}, {c_kind}"):
            assert_exact(mm(a.stored, b.stored, n, a_kind, b_kind, c_kind), a, b, c_kind)
    failures.report()


@pytest.mark.parametrize("n", [7, 40, 100])
def test_small_shapes(
    n: int, device: str, dtype: torch.dtype, rng: torch.Generator, force: Force
) -> None:
    """Thin dense operands, by rows and by columns, with gaps, and one operand for the batch."""
    force(WHOLE, -1, -1, -1, -1)
    failures = Failures()
    for kind, m, batch in each((LOWER, UPPER), (2, 19), ((140,), ())):
        t = draw_operand(kind, n, dtype, rng, batch=batch, draw=random_integers)
        x = draw_operand(DENSE, n, dtype, rng, batch=(140,), cols=m, draw=random_integers)
        y = draw_operand(DENSE, n, dtype, rng, batch=(140,), rows=m, draw=random_integers)
        by_columns = x.stored.mT.contiguous().mT
        gaps = torch.cat([x.stored, x.stored], -1)[..., :m]
        for name, stored in (("rows", x.stored), ("columns", by_columns), ("gaps", gaps)):
            with failures.case(f"kind {kind}, m={m}, batch {batch}, {name}"):
                assert_exact(mm(t.stored, stored, n, kind, DENSE, DENSE), t, x, DENSE)
        with failures.case(f"kind {kind}, m={m}, batch {batch}, from the left"):
            assert_exact(mm(y.stored, t.stored, n, DENSE, kind, DENSE), y, t, DENSE)
    failures.report()


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@pytest.mark.parametrize("n", [9, 40, 100])
def test_small_nonfinite(
    n: int, value: float, device: str, dtype: torch.dtype, rng: torch.Generator, force: Force
) -> None:
    force(WHOLE, -1, -1, -1, -1)
    failures = Failures()
    for (a_kind, b_kind), c_kind in each(PAIRS, (LOWER, DENSE)):
        a = draw_operand(a_kind, n, dtype, rng, batch=(140,))
        b = draw_operand(b_kind, n, dtype, rng, batch=(140,))
        for x in (a, b):
            x.stored[3].view(-1)[n // 2] = value
        few = [Operand(x.stored[2:5], x.kind, n) for x in (a, b)]
        with failures.case(f"kinds {a_kind}, {b_kind}, {c_kind}"):
            c = mm(a.stored, b.stored, n, a_kind, b_kind, c_kind)
            assert_same_finite(c[2:5], few[0], few[1], c_kind)
            assert c[5:].isfinite().all()
    failures.report()


# ----------------------------------------------------------------------------------------- vectors


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 63, 64, 65, 130, 511, 1025, 2049])
def test_vector(n: int, device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    failures = Failures()
    kinds = (LOWER, UPPER, SYMMETRIC, HERMITIAN)
    for kind, batch, odd in each(kinds, ((), (3,)), (False, True)):
        t = draw_operand(kind, n, dtype, rng, batch=batch, draw=random_integers)
        stored = shifted(t.stored) if odd else t.stored
        x = draw_operand(DENSE, n, dtype, rng, batch=batch, cols=1, draw=random_integers)
        with failures.case(f"kind {kind}, batch {batch}, odd address: {odd}"):
            assert_exact(mm(stored, x.stored, n, kind, DENSE, DENSE), t, x, DENSE)
        x = draw_operand(DENSE, n, dtype, rng, batch=batch, rows=1, draw=random_integers)
        with failures.case(f"from the left, kind {kind}, batch {batch}, odd address: {odd}"):
            assert_exact(mm(x.stored, stored, n, DENSE, kind, DENSE), x, t, DENSE)
    failures.report()


@pytest.mark.parametrize("n", [40, 200])
def test_vector_nonfinite(n: int, device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    """An inf in the vector reaches the elements whose rows have something stored at its place."""
    for kind in (LOWER, UPPER):
        t = draw_operand(kind, n, dtype, rng)
        x = draw_operand(DENSE, n, dtype, rng, cols=1)
        x.stored[n // 2] = float("inf")
        c = mm(t.stored, x.stored, n, kind, DENSE, DENSE)
        assert_same_finite(c, t, Operand(x.stored, DENSE, n), DENSE)


@pytest.mark.parametrize("n", [60, 3000])
def test_vector_repeats(n: int, device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    for kind in (LOWER, UPPER, SYMMETRIC):
        t, x = draw_operand(kind, n, dtype, rng), draw_operand(DENSE, n, dtype, rng, cols=1)
        results = [mm(t.stored, x.stored, n, kind, DENSE, DENSE) for _ in range(3)]
        assert_same(results[0], results[1])
        assert_same(results[0], results[2])
