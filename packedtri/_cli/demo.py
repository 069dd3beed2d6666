"""The main job on real data: products, solves and gradients of a covariance's Cholesky factor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from rich import box
from rich.markup import escape
from rich.table import Table

from packedtri import LowerTriangular
from packedtri._cli import timing, work
from packedtri._cli.report import milliseconds, ratio_text
from packedtri._cli.work import Work

Row = dict[str, Any]

# Vectors that are multiplied at once.
_DRAWS = 256


def jobs(factor: LowerTriangular) -> list[tuple[str, Callable[[], Work]]]:
    """What to run on the factor, by name; each is set up only when its turn comes.

    L @ Z draws from the Gaussian with the covariance, L⁻¹ Z whitens such draws, L.mT @ Z is half of
    its quadratic forms, and L @ L.mT rebuilds it. In 16-bit types, in which dense torch solves
    nothing, there is no L⁻¹ Z.
    """
    n = factor.shape[-1]
    cotangent = LowerTriangular(torch.randn_like(factor.packed))

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=factor.dtype, device=factor.device)

    def solve() -> Work:
        return work.function(_solve, (factor, normal(n, _DRAWS)))

    return [
        ("L @ L", lambda: work.product(factor, factor)),
        ("its gradient", lambda: work.backward(factor, factor, cotangent)),
        ("L @ Z", lambda: work.product(factor, normal(n, _DRAWS))),
        *([("L⁻¹ Z", solve)] if factor.dtype.itemsize > 2 else []),
        ("L.mT @ Z", lambda: work.product(factor.mT, normal(n, _DRAWS))),
        ("Z @ L", lambda: work.product(normal(_DRAWS, n), factor)),
        ("L @ L.mT", lambda: work.product(factor, factor.mT)),
        ("L @ z", lambda: work.product(factor, normal(n))),
    ]


def _solve(factor: torch.Tensor, right_sides: torch.Tensor) -> torch.Tensor:
    return torch.linalg.solve_triangular(factor, right_sides, upper=False)


def run(factor: LowerTriangular) -> Iterator[Row]:
    """Run every job in both forms; yields a row of results for each."""
    for name, setup in jobs(factor):
        with timing.measuring_stream(factor.device):
            job = setup()
            times = timing.time_works([job], factor.device, timing.FULL)
            error, dense_error = job.error(job.packed()), job.error(job.dense())
        yield {
            "op": name,
            "ms": times.ms,
            "dense_ms": times.dense_ms,
            "ratio": times.dense_ms / times.ms,
            "mebibytes": job.packed_bytes / 2**20,
            "dense_mebibytes": job.dense_bytes / 2**20,
            "error": error,
            "dense_error": dense_error,
            "waited": times.waited,
        }


def table(rows: list[Row], title: str) -> Table:
    """The rows, for the terminal."""
    result = Table(
        title=escape(title),
        caption=f"Z: {_DRAWS} vectors, z: one; memory of operands and result; relative errors",
        box=box.SIMPLE_HEAD,
    )
    result.add_column("", no_wrap=True)
    for name in ("packed", "dense", "ratio", "MiB", "dense", "error", "dense"):
        result.add_column(name, justify="right", no_wrap=True)
    for r in rows:
        result.add_row(
            r["op"],
            milliseconds(r["ms"]),
            milliseconds(r["dense_ms"]),
            ratio_text(r),
            f"{r['mebibytes']:.1f}",
            f"{r['dense_mebibytes']:.1f}",
            f"{r['error']:.1e}",
            f"{r['dense_error']:.1e}",
        )
    return result
