"""Two products of triangles at once, as gradients are computed: each is what it is alone."""

from __future__ import annotations

import pytest
import torch
from cases import (
    DIRECT,
    ENGINE,
    FUSED,
    IMAGED,
    SMALL,
    Failures,
    Force,
    assert_exact,
    draw_operand,
    each,
    hopper,
    mm,
    shifted,
)
from torch import Tensor

from packedtri.layout import DENSE, LOWER, UPPER, numel
from packedtri.testing import random, random_integers

mm_pair = torch.ops.packedtri.mm_pair.default
KINDS = tuple(each(*((LOWER, UPPER),) * 4))


def assert_same(pair: tuple[Tensor, Tensor], alone: tuple[Tensor, Tensor]) -> None:
    for got, expected in zip(pair, alone, strict=True):
        assert got.shape == expected.shape
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "batches", [((),) * 4, ((3,), (), (), (3,)), ((2, 1), (3,)) * 2, ((0,),) * 4]
)
def test_each_is_what_it_is_alone(
    batches: tuple[tuple[int, ...], ...], device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    failures = Failures()
    for n, kinds in each((1, 5, 33, 130), KINDS):
        a, b, c, d = (
            draw_operand(kind, n, dtype, rng, batch=batch, draw=random).stored
            for kind, batch in zip(kinds, batches, strict=True)
        )
        with failures.case(f"n={n}, kinds {kinds}"):
            alone = mm(a, b, n, *kinds[:2], LOWER), mm(c, d, n, *kinds[2:], LOWER)
            assert_same(mm_pair(a, b, c, d, n, *kinds), alone)
    failures.report()


@hopper
@pytest.mark.sanitizer
@pytest.mark.parametrize(
    ("method", "tile", "split"),
    [(ENGINE, 0, 1), (ENGINE, 0, 4), (ENGINE, 1, 1), (ENGINE, 2, 1), (ENGINE, 2, 4), (FUSED, 1, 1)],
)
@pytest.mark.parametrize("dtype", IMAGED, ids=str)
def test_shared_operands(
    method: int,
    tile: int,
    split: int,
    device: str,
    dtype: torch.dtype,
    rng: torch.Generator,
    force: Force,
) -> None:
    """A gradient in both products, batches of which some have one operand for all."""
    if method == FUSED and dtype == torch.float32:
        pytest.skip("images of float32 are made before the product")
    failures = Failures()
    # Matrices of a batch are at aligned places only where n(n+1)/2 is a multiple of 8.
    sizes = (64, 544) if method == FUSED else (70, 260)
    batches = (((), (), ()),) if SMALL else (((), (), ()), ((3,), (), (3,)), ((2,), (2,), ()))
    for n, kinds, (g_batch, a_batch, b_batch) in each(sizes, each(*((LOWER, UPPER),) * 3), batches):
        g, a, b = (
            draw_operand(kind, n, dtype, rng, batch=batch, draw=random_integers)
            for kind, batch in zip(kinds, (g_batch, a_batch, b_batch), strict=True)
        )
        force(method, tile, split, 1, 1)
        with failures.case(f"n={n}, kinds {kinds}, batches {g_batch}, {a_batch}, {b_batch}"):
            x, y = mm_pair(
                g.stored, b.stored, a.stored, g.stored, n, kinds[0], kinds[2], kinds[1], kinds[0]
            )
            assert_exact(x, g, b, LOWER)
            assert_exact(y, a, g, LOWER)
    failures.report()


@hopper
@pytest.mark.parametrize("split", [1, 4])
@pytest.mark.parametrize("bad", [0, 1])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_what_is_not_finite_in_one(
    value: float, bad: int, split: int, device: str, rng: torch.Generator, force: Force
) -> None:
    n = 300
    a, b, c = (random((numel(n),), torch.bfloat16, device, rng) for _ in range(3))
    (a, c)[bad][5000] = value
    results = []
    for method, tile in ((ENGINE, 1), (FUSED, 1), (ENGINE, 0), (DIRECT, 0)):
        force(method, tile, split, 1, 1)
        results.append(mm_pair(a, b, b, c, n, LOWER, LOWER, UPPER, LOWER))
    for product, (large, fused, small, expected) in enumerate(zip(*results, strict=True)):
        torch.testing.assert_close(fused, large, rtol=0, atol=0, equal_nan=True)
        ok = expected.isfinite()
        assert ok.all() == (product != bad)
        for got in (large, small):
            assert torch.equal(got.isfinite(), ok)
            torch.testing.assert_close(got[ok], expected[ok], rtol=2e-2, atol=0.3)


@hopper
def test_one_at_an_odd_place(device: str, rng: torch.Generator, force: Force) -> None:
    """Its image cannot be made beside the products, so that neither product has images made so."""
    n = 544
    a, b, c, d = (random((numel(n),), torch.bfloat16, device, rng) for _ in range(4))
    results = []
    for method in (ENGINE, FUSED):
        force(method, 1, 1, 1, 1)
        results.append(mm_pair(shifted(a), b, c, d, n, LOWER, LOWER, UPPER, LOWER))
    assert_same(results[1], results[0])


def test_opcheck(device: str, rng: torch.Generator) -> None:
    operands = [random((2, 10), torch.float32, device, rng) for _ in range(4)]
    torch.library.opcheck(mm_pair, (*operands, 4, LOWER, UPPER, UPPER, LOWER))


def test_errors(device: str) -> None:
    x = torch.zeros(10, device=device)
    with pytest.raises(RuntimeError, match=r"expected kinds 0 \(lower\) or 1 \(upper\); got 3"):
        mm_pair(x, x, x, x, 4, LOWER, DENSE, LOWER, LOWER)
    with pytest.raises(RuntimeError, match="has n"):
        mm_pair(x, x, x, x[:9], 4, LOWER, LOWER, LOWER, LOWER)
