"""Times the two sides of a work against each other: one function for each kind of device."""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from packedtri._cli.work import Work

# Shorter calls than this are timed as replays of a CUDA graph, so that the GPU is measured and not
# the host that launches on it.
_GRAPH_BELOW_MS = 0.5
_GPU_SAMPLE_MS = 2.0
_GPU_SAMPLES = 21
_GPU_BUDGET_MS = 4000.0
_CPU_SAMPLE_MS = 10.0
_CPU_SAMPLES = 7
# A disturbed machine gets this many tries at undisturbed samples.
_CPU_TRIES = 15
# No more operand sets than this are rotated, however small they are.
_MOST_SETS = 32

Side = Sequence[Callable[[], Any]]


@dataclass(frozen=True)
class Timing:
    """Milliseconds a call, medians of interleaved samples."""

    ms: float
    dense_ms: float
    #: "cuda graph", "cuda stream" or "wall clock".
    method: str
    samples: int
    #: Operand sets taken in turn; 1 means that the cache may have been warm.
    sets: int


@contextmanager
def measuring_stream(device: torch.device) -> Iterator[None]:
    """Where to set up works and to time them: on a GPU, a stream of our own.

    CUDA graphs cannot be captured on the default stream, and a backward pass runs on the stream of
    its forward pass.
    """
    if device.type != "cuda":
        yield
        return
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.device(device), torch.cuda.stream(stream):
        yield
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()


def sets_needed(work: Work, device: torch.device) -> int:
    """How many operand sets flush the GPU's L2 cache between two uses of one of them."""
    if device.type != "cuda":
        return 1
    cache = torch.cuda.get_device_properties(device).L2_cache_size
    needed = math.ceil(2 * cache / max(work.packed_bytes, 1))
    return max(1, min(needed, _MOST_SETS))


def time_sides(packed: Side, dense: Side, device: torch.device) -> Timing:
    """Time two ways to do the same, each a list of calls on different operands of equal size."""
    return time_cuda(packed, dense) if device.type == "cuda" else time_cpu(packed, dense)


def time_works(works: Sequence[Work], device: torch.device) -> Timing:
    """Time equal works on different operands, on the device that holds them."""
    return time_sides([w.packed for w in works], [w.dense for w in works], device)


def time_cpu(packed: Side, dense: Side) -> Timing:
    """Wall-clock time of both sides in turn.

    Other programs may share the machine: samples in which a thread of ours was pushed aside count
    only where there are too few others.
    """
    sides = (packed, dense)
    calls = [_calls_filling(_CPU_SAMPLE_MS, _cpu_pass(side, 1)[0]) for side in sides]
    samples: list[list[tuple[int, float]]] = [[], []]
    for _ in range(_CPU_TRIES):
        for side, count, taken in zip(sides, calls, samples, strict=True):
            elapsed, disturbed = _cpu_pass(side, count)
            taken.append((disturbed, elapsed))
        if min(sum(not d for d, _ in taken) for taken in samples) >= _CPU_SAMPLES:
            break
    best = [[ms for _, ms in sorted(taken)[:_CPU_SAMPLES]] for taken in samples]
    return Timing(median(best[0]), median(best[1]), "wall clock", len(best[0]), len(packed))


def _cpu_pass(side: Side, count: int) -> tuple[float, int]:
    """Milliseconds a call over `count` rounds of a side, and how often we were preempted."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
    start = time.perf_counter()
    for _ in range(count):
        for call in side:
            call()
    elapsed = (time.perf_counter() - start) * 1e3 / (count * len(side))
    return elapsed, resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - before


def time_cuda(packed: Side, dense: Side) -> Timing:
    """GPU time of both sides in turn, between CUDA events, inside :func:`measuring_stream`."""
    for side in (packed, dense):
        for _ in range(3):
            _run(side, 1)
    guess = [_cuda_pass(lambda side=side: _run(side, 1), len(side)) for side in (packed, dense)]
    if min(guess) < _GRAPH_BELOW_MS:
        method = "cuda graph"
        replays = [
            _capture(side, _calls_filling(_GPU_SAMPLE_MS, ms * len(side)))
            for side, ms in zip((packed, dense), guess, strict=True)
        ]
        passes = [(graph.replay, calls) for graph, calls in replays]
    else:
        method = "cuda stream"
        passes = [(lambda side=side: _run(side, 1), len(side)) for side in (packed, dense)]
    affordable = int(_GPU_BUDGET_MS / max(sum(guess) * len(packed), 1e-3))
    count = max(_CPU_SAMPLES, min(_GPU_SAMPLES, affordable))
    samples: list[list[float]] = [[], []]
    for replay, calls in passes:
        _cuda_pass(replay, calls)
    for _ in range(count):
        for (replay, calls), taken in zip(passes, samples, strict=True):
            taken.append(_cuda_pass(replay, calls))
    return Timing(median(samples[0]), median(samples[1]), method, count, len(packed))


def _run(side: Side, rounds: int) -> None:
    for _ in range(rounds):
        for call in side:
            call()


def _cuda_pass(run: Callable[[], Any], calls: int) -> float:
    """Milliseconds a call of a function that makes that many calls."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / calls


def _capture(side: Side, rounds: int) -> tuple[torch.cuda.CUDAGraph, int]:
    """A graph of so many rounds of a side, and the calls it makes."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        _run(side, rounds)
    return graph, rounds * len(side)


def _calls_filling(ms: float, one_call_ms: float) -> int:
    return max(1, min(math.ceil(ms / max(one_call_ms, 1e-4)), 2000))
