"""What a product may read and write: the range of its sums, structural zeros, memory around it."""

from __future__ import annotations

import pytest
import torch
from cases import (
    PAIR_IDS,
    PAIRS,
    SMALL,
    Failures,
    assert_exact,
    assert_same,
    draw_operand,
    each,
    mm,
    part_of,
)
from torch import Tensor

from packedtri.layout import DENSE, LOWER, UPPER, numel
from packedtri.testing import densify, random_integers, structure, take_part

pairs = pytest.mark.parametrize(("a_kind", "b_kind"), PAIRS, ids=PAIR_IDS)


def test_sum_of_lower_by_lower(device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    """C[i, j] sums over j <= k <= i, since B[k, j] is zero for k < j.

    A sum over k <= min(i, j) has one nonzero term, A[i, j] B[j, j]; it agrees on the diagonal only.
    """
    for n in (2, 6, 33, 70):
        a = draw_operand(LOWER, n, dtype, rng, draw=random_integers)
        b = draw_operand(LOWER, n, dtype, rng, draw=random_integers)
        c = densify(mm(a.stored, b.stored, n, LOWER, LOWER, LOWER), n, LOWER)
        right = torch.zeros_like(c)
        for k in range(n):
            right[k:, : k + 1] += a.dense[k:, k, None] * b.dense[k, : k + 1]
        assert_same(c, right)
        wrong = a.dense * b.dense.diagonal()
        assert torch.equal(c.diagonal(), wrong.diagonal())
        assert not torch.equal(c, wrong), "the sum stops at k = min(i, j)"


# ------------------------------------------------------------------------------- structural zeros


def some_positions(n: int, kind: int, rng: torch.Generator) -> Tensor:
    """Indices into the storage of an operand: all if few, else corners and a random choice."""
    count = n * n if kind == DENSE else numel(n)
    if count <= 25:
        return torch.arange(count, device=rng.device)
    chosen = torch.randint(count, (28,), device=rng.device, generator=rng)
    diagonal = [numel(i + 1) - 1 if kind != DENSE else i * n + i for i in (31, n // 2, n - 1)]
    return torch.cat([chosen, torch.tensor([0, count - 1, *diagonal], device=rng.device)])


def affected(at: Tensor, n: int, a_kind: int, b_kind: int, left: bool) -> Tensor:
    """Which results read the stored elements `at` of the left or of the right operand.

    Returns:
        shape (len(at), n, n): a result (i, j) reads A[i, k] if B[k, j] is no structural zero.
    """
    kind = a_kind if left else b_kind
    stored = torch.zeros(len(at), n * n if kind == DENSE else numel(n), device=at.device)
    stored[torch.arange(len(at)), at] = 1
    one = densify(stored.view(-1, n, n) if kind == DENSE else stored, n, kind)
    other = structure(n, b_kind if left else a_kind, at.device).float()
    return (one @ other if left else other @ one) > 0


@pairs
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_structural_zeros(
    value: float, a_kind: int, b_kind: int, device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    """One bad element spoils exactly the results whose sums it belongs to.

    A kernel that multiplied the zeros of the other operand's empty half would spoil more (0 * nan
    is nan); one that skipped terms would spoil less.
    """
    failures = Failures()
    for n, left, c_kind in each((3, 5, 33) if SMALL else (5, 70, 130), (True, False), (0, 3)):
        a = draw_operand(a_kind, n, dtype, rng, draw=random_integers)
        b = draw_operand(b_kind, n, dtype, rng, draw=random_integers)
        expected = take_part(a.dense @ b.dense, part_of(c_kind))
        at = some_positions(n, a_kind if left else b_kind, rng)
        spoiled = (a if left else b).stored.flatten().repeat(len(at), 1)
        spoiled[torch.arange(len(at)), at] = value
        spoiled = spoiled.view(len(at), *(a if left else b).stored.shape)
        operands = (spoiled, b.stored) if left else (a.stored, spoiled)
        c = densify(mm(*operands, n, a_kind, b_kind, c_kind), n, c_kind)
        bad = take_part(affected(at, n, a_kind, b_kind, left), part_of(c_kind))
        with failures.case(f"n={n}, c_kind={c_kind}, {value} in the {'left' if left else 'right'}"):
            assert_spoiled(c, bad, expected)
    failures.report()


def test_structural_zeros_in_every_step(
    device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    """A bad element at any step of a tile's sum, whichever warp multiplies that step.

    Sums that stay finite must, whichever warp stores them.
    """
    n = 8 if SMALL else 64
    a = draw_operand(LOWER, n, dtype, rng, draw=random_integers)
    b = draw_operand(LOWER, n, dtype, rng, draw=random_integers)
    at = torch.tensor([k * (k + 1) // 2 for k in range(n)], device=a.stored.device)
    spoiled = b.stored.repeat(n, 1)
    spoiled[torch.arange(n), at] = float("nan")
    c = densify(mm(a.stored, spoiled, n, LOWER, LOWER, LOWER), n, LOWER)
    bad = take_part(affected(at, n, LOWER, LOWER, False), part_of(LOWER))
    assert_spoiled(c, bad, take_part(a.dense @ b.dense, part_of(LOWER)))


def assert_spoiled(c: Tensor, bad: Tensor, expected: Tensor) -> None:
    """Not finite exactly where `bad`, and equal to `expected` elsewhere."""
    leaked, missed = ~c.isfinite() & ~bad, c.isfinite() & bad
    assert not leaked.any(), f"leaked to {leaked.sum()} results, as {leaked.nonzero()[0].tolist()}"
    assert not missed.any(), f"missed {missed.sum()} results, as {missed.nonzero()[0].tolist()}"
    zero = torch.zeros((), dtype=c.dtype, device=c.device)
    assert_same(torch.where(bad, zero, c), torch.where(bad, zero, expected))


# -------------------------------------------------------------------------------- reproducibility


@pairs
def test_reproducible(
    a_kind: int, b_kind: int, device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    """The same call gives the same bits, and equal matrices of a batch give equal results.

    Dense matrices times one matrix are a single product, whose rows may be summed in any order.
    """
    failures = Failures()
    for n, c_kind in each((5, 33) if SMALL else (5, 129, 300), (LOWER, DENSE)):
        a = draw_operand(a_kind, n, dtype, rng)
        b = draw_operand(b_kind, n, dtype, rng)
        first = mm(a.stored, b.stored, n, a_kind, b_kind, c_kind)
        for _ in range(3):
            again = mm(a.stored.clone(), b.stored.clone(), n, a_kind, b_kind, c_kind)
            with failures.case(f"n={n}, c_kind={c_kind}, repeated"):
                assert_same(again, first)
        copies, same = (x.stored.expand(3, *x.stored.shape).contiguous() for x in (a, b))
        for right in (same,) if a_kind == DENSE else (same, b.stored):
            batched = mm(copies, right, n, a_kind, b_kind, c_kind)
            with failures.case(f"n={n}, c_kind={c_kind}, in a batch"):
                assert_same(batched[1:], batched[:1].expand_as(batched[1:]))
    failures.report()


@pairs
def test_batch_equals_single(
    a_kind: int, b_kind: int, device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    """Each matrix of a batch gives what it gives alone (kernels may order their sums otherwise, so
    the data are integers)."""
    for n in (5, 33) if SMALL else (5, 70, 129):
        a = draw_operand(a_kind, n, dtype, rng, batch=(3,), draw=random_integers)
        b = draw_operand(b_kind, n, dtype, rng, batch=(3,), draw=random_integers)
        together = mm(a.stored, b.stored, n, a_kind, b_kind, LOWER)
        for i in range(3):
            alone = mm(a.stored[i], b.stored[i], n, a_kind, b_kind, LOWER)
            assert_same(together[i], alone)


# ------------------------------------------------------------------------------- memory around it


@pairs
def test_operands_stay(
    a_kind: int, b_kind: int, device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    for n, c_kind in each((1, 5, 33, 70), (LOWER, DENSE)):
        a = draw_operand(a_kind, n, dtype, rng)
        b = draw_operand(b_kind, n, dtype, rng)
        before = a.stored.clone(), b.stored.clone()
        mm(a.stored, b.stored, n, a_kind, b_kind, c_kind)
        assert_same(a.stored, before[0])
        assert_same(b.stored, before[1])


@pytest.mark.parametrize("c_kind", [LOWER, DENSE])
def test_neighbours_stay(
    c_kind: int, device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    """The result takes the place of a freed tensor among many alike, which stay as they were."""
    for n, (a_kind, b_kind) in each((5, 33, 70), PAIRS):
        a = draw_operand(a_kind, n, dtype, rng, draw=random_integers)
        b = draw_operand(b_kind, n, dtype, rng, draw=random_integers)
        size = numel(n) if c_kind == LOWER else n * n
        row = [torch.full((size,), 7, dtype=dtype, device=device) for _ in range(24)]
        del row[1::3]
        c = mm(a.stored, b.stored, n, a_kind, b_kind, c_kind)
        assert_exact(c, a, b, c_kind)
        for x in row:
            assert_same(x, torch.full_like(x, 7))


@pytest.mark.parametrize(("a_kind", "b_kind"), [(LOWER, LOWER), (UPPER, DENSE)])
def test_wild_overlap(a_kind: int, b_kind: int, device: str, rng: torch.Generator) -> None:
    """Operands that share memory are only read, so any overlap is allowed."""
    n = 33
    buffer = random_integers((2 * n * n,), torch.float32, device, rng)
    a = draw_operand(a_kind, n, torch.float32, rng, draw=lambda *_: buffer[5 : 5 + numel(n)])
    stored = buffer[7 : 7 + numel(n)] if b_kind == LOWER else buffer[7:].as_strided((n, n), (3, 1))
    b = draw_operand(b_kind, n, torch.float32, rng, draw=lambda *_: stored)
    assert_exact(mm(a.stored, b.stored, n, a_kind, b_kind, LOWER), a, b, LOWER)
