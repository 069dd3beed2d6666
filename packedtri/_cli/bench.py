"""Benchmarks packed operations against torch on dense matrices.

:func:`measure` times one case of :mod:`packedtri._cli.cases`. The rows of the results follow one
schema, which the documentation's performance page reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch

from packedtri._cli import environment
from packedtri._cli.cases import CASES, Problem
from packedtri._cli.timing import Effort, measuring_stream, sets_needed, time_works
from packedtri._cli.work import Work
from packedtri.ops.mm import tf32_is_set

Row = dict[str, Any]

# What tells a row from the others, and how it ended.
_NAMING = ("op", "dtype", "precision", "n", "m", "batch", "ratio")


def problems(
    ops: Sequence[str],
    sizes: Sequence[int],
    dtypes: Sequence[torch.dtype],
    device: torch.device,
    columns: Sequence[int] = (),
    batched_sizes: Sequence[int] = (),
    batch: int = 256,
    conversions: bool = False,
) -> list[Problem]:
    """Every operation in every dtype at every size, alone and, where asked for, in a batch.

    ``columns`` are those of dense operands, as many as the order where none are given. What cannot
    be measured is left out, for the reasons that :func:`left_out` gives.
    """
    shapes = [(n, 1) for n in sizes] + [(n, batch) for n in batched_sizes]
    return [
        Problem(op, n, m, count, dtype, device, conversions)
        for op in ops
        for dtype in dtypes
        for n, count in shapes
        if _obstacle(op, dtype, count > 1, conversions) is None
        for m in _columns(op, n, columns)
    ]


def left_out(
    ops: Sequence[str], dtypes: Sequence[torch.dtype], batched: bool, conversions: bool
) -> list[str]:
    """Which operations :func:`problems` leaves out in some dtype, or altogether, and why."""
    obstacles = [(op, _obstacle(op, dtype, batched, conversions)) for op in ops for dtype in dtypes]
    return list(dict.fromkeys(f"{op} ({why})" for op, why in obstacles if why is not None))


def _obstacle(op: str, dtype: torch.dtype, batched: bool, conversions: bool) -> str | None:
    """Why an operation cannot be measured; None where it can."""
    case = CASES[op]
    if conversions and not case.converts:
        return "not compared with --conversions"
    if dtype.itemsize <= 2 and not case.sixteen_bits:
        return f"dense torch has none in {environment.dtype_name(dtype)}"
    if case.only_batched and not batched:
        return "needs batches: give their orders with --batched-n"
    return None


def _columns(op: str, n: int, asked_for: Sequence[int]) -> Sequence[int]:
    if CASES[op].columns == "1":
        return (1,)
    return asked_for or (n,) if CASES[op].columns == "m" else (n,)


def measure(problem: Problem, effort: Effort) -> Row:
    """Time one problem and compare its result with float64."""
    case = CASES[problem.op]
    elements = problem.batch * problem.n**2 * problem.m
    with measuring_stream(problem.device):
        first = case.setup(problem)
        more = range(sets_needed(first, problem.device) - 1)
        works = [first, *(case.setup(problem) for _ in more)]
        if problem.conversions:
            works = [_with_conversions(work) for work in works]
        timing = time_works(works, problem.device, effort)
        error, dense_error = first.error(first.packed()), first.error(first.dense())
    return {
        "op": problem.op,
        "dtype": environment.dtype_name(problem.dtype),
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
        "baseline": f"{case.baseline}, with conversions" if problem.conversions else case.baseline,
        "timing": timing.method,
        "samples": timing.samples,
        "operand_sets": timing.sets,
        "waited": timing.waited,
        "tflops": case.flops * elements / timing.ms / 1e9,
        "dense_equivalent_tflops": case.dense_flops * elements / timing.ms / 1e9,
        "gbps": first.packed_bytes / timing.ms / 1e6,
    }


def _with_conversions(work: Work) -> Work:
    if work.converting is None:
        raise ValueError("this operation has no form with conversions")
    return replace(work, dense=work.converting)


def precision(dtype: torch.dtype, device: torch.device) -> str:
    """The precision mode both sides run in; only float32 products have a choice."""
    if dtype != torch.float32:
        return "highest"
    if device.type == "cuda":
        return "tf32" if tf32_is_set() else "highest"
    return torch.get_float32_matmul_precision()


def slower(rows: Iterable[Row]) -> list[Row]:
    """The rows in which dense torch is faster, worst first."""
    return sorted((row for row in rows if row["ratio"] < 1), key=itemgetter("ratio"))


def save(path: Path, rows: Sequence[Row], meta: Row) -> None:
    """Write the rows with a header that says what they were measured on.

    What is slower than dense torch is named once more at the end, without the details.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "meta": meta,
        "rows": list(rows),
        "slower": [{key: row[key] for key in _NAMING} for row in slower(rows)],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
