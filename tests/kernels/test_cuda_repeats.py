"""Results on a GPU do not depend on timing: many runs, and several streams and graphs at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import pytest
import torch
from cases import (
    ENGINE,
    FLOATS,
    FUSED,
    HOPPER,
    SIXTEEN_BITS,
    SMALL,
    STRIPS,
    WIDE,
    Force,
    draw_operand,
    each,
    hopper,
    mm,
    strip_kinds,
)
from torch import Tensor

from packedtri import _library
from packedtri.layout import DENSE, HERMITIAN, LOWER, SYMMETRIC, UPPER, numel
from packedtri.testing import random

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(SMALL, reason="many runs")]

Call = Callable[[], Tensor]

engines = pytest.mark.parametrize(
    ("element", "tf32"),
    [
        (torch.bfloat16, False),
        (torch.float32, False),
        (torch.float32, True),
        (torch.float64, False),
    ],
    ids=["bfloat16", "float32", "tf32", "float64"],
)


# Of a triangle whose square has ragged tiles, and several blocks for its longest sums.
ORDER = 2100


def draw_square(element: torch.dtype, tf32: bool, rng: torch.Generator) -> Call:
    """L @ L for a random L, into a poisoned result."""
    n = ORDER
    packed = random((numel(n),), element, rng.device, rng)
    return partial(mm, packed, packed, n, LOWER, LOWER, LOWER, tf32)


def assert_shares_sums(element: torch.dtype, tf32: bool) -> None:
    device, n = torch.device("cuda", torch.cuda.current_device()), ORDER
    kernel = _library.cuda_kernel(element, n, n, 1, (LOWER, LOWER, LOWER), device, tf32)
    words = ("loaded by", "cut every") if element == torch.float64 else ("tile images", "shared by")
    assert all(word in kernel for word in words), kernel


def differs(x: Tensor, y: Tensor) -> Tensor:
    """Whether any bit does, without waiting for the device."""
    return (x.view(torch.uint8) != y.view(torch.uint8)).any()


def assert_repeats(call: Call) -> None:
    first = call()
    assert first.isfinite().all()
    different = torch.zeros((), dtype=torch.bool, device=first.device)
    for _ in range(10_000):
        different |= differs(call(), first)
    assert not different.item()


@hopper
@engines
def test_repeats(element: torch.dtype, tf32: bool, device: str, rng: torch.Generator) -> None:
    """10,000 runs agree in every bit."""
    assert_shares_sums(element, tf32)
    assert_repeats(draw_square(element, tf32, rng))


@hopper
@pytest.mark.parametrize(
    ("element", "tf32", "method"),
    [
        (torch.bfloat16, False, ENGINE),
        (torch.float32, True, ENGINE),
        (torch.float64, False, HOPPER),
    ],
    ids=["bfloat16", "tf32", "float64"],
)
def test_repeats_of_parts(
    element: torch.dtype,
    tf32: bool,
    method: int,
    device: str,
    rng: torch.Generator,
    force: Force,
) -> None:
    """The same where any blocks compute the parts of a sum, and whoever comes last adds them up."""
    force(method, 1, -1, 5, 1)
    assert_repeats(draw_square(element, tf32, rng))


# ---------------------------------------------------------------------- streams and graphs at once


@dataclass
class Lane:
    """A stream with a call of its own, or with the replays of a graph of the call."""

    name: str
    run: Call
    expected: Tensor
    different: Tensor
    stream: torch.cuda.Stream


def replay(call: Call) -> Call:
    """Captures the call and returns what replays it into a poisoned result."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()

    def run() -> Tensor:
        result.fill_(float("nan"))
        graph.replay()
        return result

    return run


def assert_independent(calls: Sequence[Call], turns: int) -> None:
    """Runs each call on one stream and replays it on another, all at once: the bits of its result
    are those that it has alone."""
    lanes = []
    for number, call in enumerate(calls):
        alone = call()
        assert alone.isfinite().all()
        for way, run in (("called", call), ("replayed", replay(call))):
            different = torch.zeros((), dtype=torch.bool, device=alone.device)
            name = f"call {number}, {way}"
            lanes.append(Lane(name, run, alone, different, torch.cuda.Stream()))
    torch.cuda.synchronize()
    # Behind the gate calls queue up, so that the device has work of all streams.
    gate = torch.cuda.Stream()
    with torch.cuda.stream(gate):
        torch.cuda._sleep(100_000_000)
    for lane in lanes:
        lane.stream.wait_stream(gate)
    for _ in range(turns):
        for lane in lanes:
            with torch.cuda.stream(lane.stream):
                lane.different |= differs(lane.run(), lane.expected)
    torch.cuda.synchronize()
    wrong = [lane.name for lane in lanes if lane.different.item()]
    assert not wrong, f"other bits than alone: {wrong}"


@hopper
@engines
def test_squares_at_once(
    element: torch.dtype, tf32: bool, device: str, rng: torch.Generator
) -> None:
    assert_shares_sums(element, tf32)
    assert_independent([draw_square(element, tf32, rng) for _ in range(4)], turns=300)


@hopper
@pytest.mark.parametrize("n", [1500, 5100])
def test_fused_at_once(n: int, device: str, rng: torch.Generator, force: Force) -> None:
    """Launches that make images while they multiply share the device: some blocks of each run
    only when others have ended."""
    force(FUSED, -1, -1, -1, -1)
    calls: list[Call] = []
    for _ in range(3):
        a, b = (random((numel(n),), torch.bfloat16, rng.device, rng) for _ in range(2))
        calls.append(partial(mm, a, b, n, LOWER, LOWER, LOWER))
    assert_independent(calls, turns=300)


def test_vectors_at_once(device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    """A symmetric matrix times a vector, whose parts meet in scratch memory from n = 512 on."""
    n = 1100
    calls: list[Call] = []
    for kind, left in each((SYMMETRIC, HERMITIAN), (False, True)):
        s = draw_operand(kind, n, dtype, rng, batch=(2,)).stored
        if left:
            y = draw_operand(DENSE, n, dtype, rng, batch=(2,), rows=1).stored
            calls.append(partial(mm, y, s, n, DENSE, kind, DENSE))
        else:
            x = draw_operand(DENSE, n, dtype, rng, batch=(2,), cols=1).stored
            calls.append(partial(mm, s, x, n, kind, DENSE, DENSE))
    assert_independent(calls, turns=300)


@hopper
def test_strips_at_once(device: str, rng: torch.Generator, force: Force) -> None:
    """Some vectors, whose sums meet in scratch memory."""
    n, m = 2600, 16
    force(STRIPS, -1, -1, -1, -1)
    calls: list[Call] = []
    cases = [(dtype, kind) for dtype in FLOATS for kind in strip_kinds(dtype)]
    for dtype, kind in cases:
        gpu = torch.device("cuda", torch.cuda.current_device())
        kernel = _library.cuda_kernel(dtype, n, m, 1, (kind, DENSE, DENSE), gpu)
        assert "strips" in kernel, kernel
        a, x = random((numel(n),), dtype, device, rng), random((n, m), dtype, device, rng)
        calls.append(partial(mm, a, x, n, kind, DENSE, DENSE))
    assert_independent(calls, turns=200)


@hopper
def test_wide_at_once(device: str, rng: torch.Generator, force: Force) -> None:
    """A hundred vectors or so, whose sums meet in scratch memory."""
    n = 2600
    force(WIDE, -1, -1, -1, -1)
    calls: list[Call] = []
    for dtype, kind, m in each(SIXTEEN_BITS, (LOWER, UPPER, SYMMETRIC), (12, 100)):
        a, x = random((numel(n),), dtype, device, rng), random((n, m), dtype, device, rng)
        calls.append(partial(mm, a, x, n, kind, DENSE, DENSE))
    assert_independent(calls, turns=100)


def test_factors_at_once(device: str, rng: torch.Generator) -> None:
    """Cholesky factors and solves, whose blocks wait for each other's tiles, share the device."""
    calls: list[Call] = []
    for dtype, (n, batch) in each(
        (torch.float32, torch.float64), ((130, (40,)), (1000, ()), (2100, ()))
    ):
        root = random((*batch, n, n), dtype, rng.device, rng)
        a = root @ root.mT / n + torch.eye(n, dtype=dtype, device=device)
        i, j = torch.tril_indices(n, n, device=device)
        packed = a[..., i, j].contiguous()
        calls.append(lambda packed=packed, n=n: torch.ops.packedtri.cholesky(packed, n)[0])
        factor = calls[-1]()
        calls.append(
            lambda t=factor, n=n: torch.ops.packedtri.solve_triangular(
                t, t, n, UPPER, LOWER, True, False
            )
        )
    assert_independent(calls, turns=300)
