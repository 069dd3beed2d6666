"""Times the two sides of a work against each other: one function for each kind of device."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from packedtri._cli.work import Work

# Shorter calls than this are timed as replays of a CUDA graph, so that the GPU is measured and not
# the host that launches on it.
_GRAPH_BELOW_MS = 100.0
#: A sample is a disturbed one from this on: the time for which threads waited for a processor,
#: summed over them, over the length of the sample.
CPU_WAITED = 0.02
# The clock of a GPU at its power limit settles within some tenths of a second.
_LOAD_MS = 300.0
# No more operand sets than this are rotated, however small they are.
_MOST_SETS = 32

#: The same call on different operands.
Side = Sequence[Callable[[], Any]]
#: What runs between two events, and how many calls that is.
Pass = tuple[Callable[[], Any], int]


@dataclass(frozen=True)
class Effort:
    """How many samples are taken, and how long they are."""

    least_samples: int
    gpu_samples: int
    gpu_sample_ms: float
    #: Long calls get no more samples than fill this, unless the least number does.
    gpu_budget_ms: float
    cpu_sample_ms: float
    #: How long a disturbed machine gets to bring forth other samples.
    cpu_budget_s: float
    #: Whether short calls on a GPU are timed as replays of a CUDA graph, without the host's part.
    gpu_graphs: bool = True
    #: How long a side runs before each of its samples on a GPU, and during it, where it is to have
    #: the clock that the GPU keeps under its load.
    gpu_load_ms: float = 0.0

    def under_load(self) -> Effort:
        """The same under load, which takes so long that there are few samples."""
        return replace(self, gpu_samples=self.least_samples, gpu_load_ms=_LOAD_MS)


FULL = Effort(
    least_samples=7,
    gpu_samples=21,
    gpu_sample_ms=2.0,
    gpu_budget_ms=4000.0,
    cpu_sample_ms=10.0,
    cpu_budget_s=5.0,
)
#: For hundreds of cases: enough to find what is slower, not to quote by how much.
QUICK = Effort(
    least_samples=5,
    gpu_samples=7,
    gpu_sample_ms=1.0,
    gpu_budget_ms=300.0,
    cpu_sample_ms=3.0,
    cpu_budget_s=0.5,
)


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
    #: How long threads waited for a processor in the most disturbed sample, summed over them, over
    #: its length; a timing with CPU_WAITED or more is not to be trusted. 0 on a GPU.
    waited: float = 0.0


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


def time_works(works: Sequence[Work], device: torch.device, effort: Effort) -> Timing:
    """Time equal works on different operands, on the device that holds them."""
    packed, dense = [w.packed for w in works], [w.dense for w in works]
    if device.type != "cuda":
        return time_cpu(packed, dense, effort)
    return time_cuda(packed, dense, all(w.capturable for w in works), effort)


def time_cpu(packed: Side, dense: Side, effort: Effort) -> Timing:
    """Wall-clock time of both sides in turn.

    Other programs may share the machine: samples in which threads of ours waited for a processor
    count only where there are too few others.
    """
    sides = (packed, dense)
    guess = [min(_cpu_pass(side, 1)[1] for _ in range(3)) for side in sides]
    rounds = [_calls_filling(effort.cpu_sample_ms, ms * len(packed)) for ms in guess]
    deadline = time.perf_counter() + effort.cpu_budget_s
    samples: list[list[tuple[float, float]]] = [[], []]
    while True:
        for side, count, taken in zip(sides, rounds, samples, strict=True):
            taken.append(_cpu_pass(side, count))
        undisturbed = min(sum(w < CPU_WAITED for w, _ in taken) for taken in samples)
        late = len(samples[0]) >= effort.least_samples and time.perf_counter() > deadline
        if undisturbed >= effort.least_samples or late:
            break
    best = [sorted(taken)[: effort.least_samples] for taken in samples]
    ms, dense_ms = (median(ms for _, ms in taken) for taken in best)
    waited = max(taken[-1][0] for taken in best)
    return Timing(ms, dense_ms, "wall clock", effort.least_samples, len(packed), waited)


def _cpu_pass(side: Side, rounds: int) -> tuple[float, float]:
    """How long threads waited, summed over them, over the length; and milliseconds a call."""
    waited, start = _waited_s(), time.perf_counter()
    _run(side, rounds)
    elapsed = time.perf_counter() - start
    return (_waited_s() - waited) / elapsed, elapsed * 1e3 / (rounds * len(side))


def _waited_s() -> float:
    """Seconds that the threads of this process were ready to run but did not; 0 if not known."""
    files = Path("/proc/self/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[1]) for file in files) / 1e9


def time_cuda(packed: Side, dense: Side, capturable: bool, effort: Effort) -> Timing:
    """GPU time of both sides in turn, between CUDA events, inside :func:`measuring_stream`."""
    sides = (packed, dense)
    passes: list[Pass] = [(partial(_run, side), len(side)) for side in sides]
    for run, _ in passes * 3:
        run()
    guess = [cuda_pass(p) for p in passes]
    method = "cuda stream"
    if effort.gpu_graphs and capturable and min(guess) < _GRAPH_BELOW_MS:
        rounds = [_calls_filling(effort.gpu_sample_ms, ms * len(packed)) for ms in guess]
        try:
            passes = [capture(side, r) for side, r in zip(sides, rounds, strict=True)]
            method = "cuda graph"
        except RuntimeError:  # A library that torch calls waits for the GPU at this size.
            torch.cuda.synchronize()
        guess = [cuda_pass(p) for p in passes]
    elif not effort.gpu_graphs:
        rounds = [_calls_filling(effort.gpu_sample_ms, ms * len(packed)) for ms in guess]
        passes = [
            (partial(_run, side, r), r * len(side)) for side, r in zip(sides, rounds, strict=True)
        ]
    pass_ms = [ms * calls for ms, (_, calls) in zip(guess, passes, strict=True)]
    fitting = int(effort.gpu_budget_ms / sum(pass_ms))
    count = max(effort.least_samples, min(effort.gpu_samples, fitting))
    loads = [math.ceil(effort.gpu_load_ms / ms) for ms in pass_ms]
    samples = [
        [cuda_pass(p, load) for p, load in zip(passes, loads, strict=True)] for _ in range(count)
    ]
    ms, dense_ms = (median(taken) for taken in zip(*samples, strict=True))
    return Timing(ms, dense_ms, method, count, len(packed))


def _run(side: Side, rounds: int = 1) -> None:
    for _ in range(rounds):
        for call in side:
            call()


def cuda_pass(timed: Pass, load: int = 0) -> float:
    """Milliseconds a call, of one pass, or of ``load`` of them after as many others."""
    run, calls = timed
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    timed_runs = max(load, 1)
    for _ in range(load):
        run()
    start.record()
    for _ in range(timed_runs):
        run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / (calls * timed_runs)


def capture(side: Side, rounds: int) -> Pass:
    """The replay of a CUDA graph of so many rounds of a side."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        _run(side, rounds)
    return graph.replay, rounds * len(side)


def _calls_filling(ms: float, one_call_ms: float) -> int:
    return max(1, min(math.ceil(ms / max(one_call_ms, 1e-4)), 2000))
