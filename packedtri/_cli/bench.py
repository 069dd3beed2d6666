"""Benchmarks packed operations against torch on dense matrices.

A case says how to make one set of operands and what to run on it; :func:`measure` times it. The
rows of the results follow one schema, which the documentation's performance page reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from packedtri import LowerTriangular, PackedTensor, UpperTriangular
from packedtri._cli import environment, work
from packedtri._cli.timing import measuring_stream, sets_needed, time_works
from packedtri._cli.work import Work
from packedtri.layout import DENSE, LOWER, UPPER

Row = dict[str, Any]
Triangle = TypeVar("Triangle", bound=PackedTensor)


@dataclass(frozen=True)
class Problem:
    """What to measure: an operation, its sizes, and where."""

    op: str
    n: int
    m: int
    batch: int
    dtype: torch.dtype
    device: torch.device

    def triangle(self, kind: type[Triangle]) -> Triangle:
        """A random matrix of a packed type, scaled so that products keep its size."""
        return kind(self.random(self.n * (self.n + 1) // 2))

    def random(self, *shape: int) -> torch.Tensor:
        """Normal numbers of variance 1/n, with the batch dimension in front where there is one."""
        batch = (self.batch,) if self.batch > 1 else ()
        x = torch.randn(*batch, *shape, dtype=self.dtype, device=self.device)
        return x / max(self.n, 1) ** 0.5


@dataclass(frozen=True)
class Case:
    """An operation: how to set it up, and what it costs."""

    setup: Callable[[Problem], Work]
    #: What dense torch runs.
    baseline: str
    #: Floating-point operations that the packed and the dense form need; 0 for moves.
    flops: Callable[[Problem], float]
    dense_flops: Callable[[Problem], float]
    #: The product that it runs, or the first of them; None for moves.
    kinds: environment.Kinds | None = None


def _triangle_product(kind: type[PackedTensor]) -> Callable[[Problem], Work]:
    return lambda p: work.product(p.triangle(kind), p.triangle(kind))


def _backward(p: Problem) -> Work:
    a, b, cotangent = (p.triangle(LowerTriangular) for _ in range(3))
    return work.backward(a, b, cotangent)


def _pack(p: Problem) -> Work:
    dense = p.triangle(LowerTriangular).to_dense()
    rows, columns = torch.tril_indices(p.n, p.n, device=p.device)
    packed_bytes = LowerTriangular.from_dense(dense).packed.nbytes
    return Work(
        packed=lambda: LowerTriangular.from_dense(dense).packed,
        dense=lambda: dense[..., rows, columns],
        error=lambda output: work.relative(LowerTriangular(output).to_dense(), dense),
        packed_bytes=2 * packed_bytes,
        dense_bytes=2 * packed_bytes,
    )


def _unpack(p: Problem) -> Work:
    packed = p.triangle(LowerTriangular)
    rows, columns = torch.tril_indices(p.n, p.n, device=p.device)
    dense = packed.to_dense()

    def scatter() -> torch.Tensor:
        out = torch.zeros_like(dense)
        out[..., rows, columns] = packed.packed
        return out

    moved = work.nbytes(packed, dense)
    return Work(
        packed=packed.to_dense,
        dense=scatter,
        error=lambda output: work.relative(output, dense),
        packed_bytes=moved,
        dense_bytes=moved,
    )


def _cube(factor: float) -> Callable[[Problem], float]:
    return lambda p: factor * p.batch * p.n**3


def _by_dense(factor: float) -> Callable[[Problem], float]:
    return lambda p: factor * p.batch * p.n**2 * p.m


def _by_vector(factor: float) -> Callable[[Problem], float]:
    return lambda p: factor * p.batch * p.n**2


_MATMUL = "torch.matmul(A, B, out=C)"
_LLL = (LOWER, LOWER, LOWER)
_LUL = (LOWER, UPPER, LOWER)

CASES: dict[str, Case] = {
    "L@L": Case(_triangle_product(LowerTriangular), _MATMUL, _cube(1 / 3), _cube(2), _LLL),
    "L@L backward": Case(_backward, "torch.autograd.grad(A @ B)", _cube(2 / 3), _cube(4), _LUL),
    "U@U": Case(_triangle_product(UpperTriangular), _MATMUL, _cube(1 / 3), _cube(2), _LLL),
    "L@dense": Case(
        lambda p: work.product(p.triangle(LowerTriangular), p.random(p.n, p.m)),
        _MATMUL,
        _by_dense(1),
        _by_dense(2),
        (LOWER, DENSE, DENSE),
    ),
    "dense@L": Case(
        lambda p: work.product(p.random(p.m, p.n), p.triangle(LowerTriangular)),
        _MATMUL,
        _by_dense(1),
        _by_dense(2),
        (DENSE, LOWER, DENSE),
    ),
    "L@x": Case(
        lambda p: work.product(
            p.triangle(LowerTriangular), p.random(p.n) if p.batch == 1 else p.random(p.n, 1)
        ),
        _MATMUL,
        _by_vector(1),
        _by_vector(2),
        (LOWER, DENSE, DENSE),
    ),
    "pack": Case(_pack, "A[..., rows, columns]", _cube(0), _cube(0)),
    "unpack": Case(_unpack, "zeros; A[..., rows, columns] = t", _cube(0), _cube(0)),
}


def problems(
    ops: Sequence[str],
    sizes: Sequence[int],
    dtypes: Sequence[torch.dtype],
    device: torch.device,
    m: int | None = None,
    batched_sizes: Sequence[int] = (),
    batch: int = 256,
) -> list[Problem]:
    """Every operation in every dtype at every size, alone and, where asked for, in a batch."""
    shapes = [(n, 1) for n in sizes] + [(n, batch) for n in batched_sizes]
    return [
        Problem(op, n, 1 if op == "L@x" else m or n, count, dtype, device)
        for op in ops
        for dtype in dtypes
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
        "precision": precision(problem.dtype),
        "n": problem.n,
        "m": problem.m,
        "batch": problem.batch,
        "ms": timing.ms,
        "dense_ms": timing.dense_ms,
        "ratio": timing.dense_ms / timing.ms,
        "error": error,
        "dense_error": dense_error,
        "kernel": environment.kernel(
            problem.device, problem.dtype, problem.n, problem.m, problem.batch, case.kinds
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


def precision(dtype: torch.dtype) -> str:
    """The precision mode both sides run in; only float32 products have a choice."""
    return torch.get_float32_matmul_precision() if dtype == torch.float32 else "highest"


def save(path: Path, rows: Sequence[Row], device: torch.device, commit: str | None) -> None:
    """Write the rows with a header that says what they were measured on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"meta": environment.meta(device, commit), "rows": list(rows)}
    path.write_text(json.dumps(content, indent=1) + "\n")
