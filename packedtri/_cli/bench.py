"""Benchmarks packed operations against torch on dense matrices.

:func:`measure` times one case of :mod:`packedtri._cli.cases`. The rows of the results follow one
schema, which the documentation's performance page reads.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from packedtri._cli import environment
from packedtri._cli.cases import CASES, Problem
from packedtri._cli.timing import measuring_stream, sets_needed, time_works
from packedtri.ops.mm import tf32_is_set

Row = dict[str, Any]


def problems(
    ops: Sequence[str],
    sizes: Sequence[int],
    dtypes: Sequence[torch.dtype],
    device: torch.device,
    m: int | None = None,
    batched_sizes: Sequence[int] = (),
    batch: int = 256,
) -> list[Problem]:
    """Every operation in every dtype at every size, alone and, where asked for, in a batch.

    What dense torch does not have in a dtype is left out.
    """
    shapes = [(n, 1) for n in sizes] + [(n, batch) for n in batched_sizes]
    return [
        Problem(op, n, 1 if CASES[op].vector else m or n, count, dtype, device)
        for op in ops
        for dtype in dtypes
        if dtype.itemsize > 2 or CASES[op].sixteen_bits
        for n, count in shapes
    ]


def measure(problem: Problem) -> Row:
    """Time one problem and compare its result with float64."""
    case = CASES[problem.op]
    with measuring_stream(problem.device):
        first = case.setup(problem)
        more = range(sets_needed(first, problem.device) - 1)
        timing = time_works([first, *(case.setup(problem) for _ in more)], problem.device)
        error, dense_error = first.error(first.packed()), first.error(first.dense())
    return {
        "op": problem.op,
        "dtype": str(problem.dtype).removeprefix("torch."),
        "precision": precision(problem.dtype, problem.device),
        "n": problem.n,
        "m": problem.m,
        "batch": problem.batch,
        "ms": timing.ms,
        "dense_ms": timing.dense_ms,
        "ratio": timing.dense_ms / timing.ms,
        "error": error,
        "dense_error": dense_error,
        "kernel": environment.kernel(
            problem.device,
            problem.dtype,
            problem.n,
            problem.m,
            problem.batch,
            case.kinds,
            tf32_is_set(),
        ),
        "baseline": case.baseline,
        "timing": timing.method,
        "samples": timing.samples,
        "operand_sets": timing.sets,
        "waited": timing.waited,
        "tflops": case.flops(problem) / timing.ms / 1e9,
        "dense_equivalent_tflops": case.dense_flops(problem) / timing.ms / 1e9,
        "gbps": first.packed_bytes / timing.ms / 1e6,
    }


def precision(dtype: torch.dtype, device: torch.device) -> str:
    """The precision mode both sides run in; only float32 products have a choice."""
    if dtype != torch.float32:
        return "highest"
    if device.type == "cuda":
        return "tf32" if tf32_is_set() else "highest"
    return torch.get_float32_matmul_precision()


def save(path: Path, rows: Sequence[Row], device: torch.device, commit: str | None) -> None:
    """Write the rows with a header that says what they were measured on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"meta": environment.meta(device, commit), "rows": list(rows)}
    path.write_text(json.dumps(content, indent=1) + "\n")
