"""The main job on real data: products and gradients of a covariance's Cholesky factor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from rich.table import Table

from packedtri import LowerTriangular
from packedtri._cli import work
from packedtri._cli.report import bytes_text, milliseconds, ratio_text
from packedtri._cli.timing import measuring_stream, time_works
from packedtri._cli.work import Work

Row = dict[str, Any]

# Samples drawn from the Gaussian with the given covariance, and vectors to take quadratic forms of.
_DRAWS = 256


def jobs(factor: LowerTriangular) -> list[tuple[str, Callable[[], Work]]]:
    """What to run on the factor, by name; each is set up only when its turn comes."""
    n = factor.shape[-1]

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=factor.dtype, device=factor.device)

    cotangent = LowerTriangular(torch.randn_like(factor.packed))
    return [
        ("L @ L", lambda: work.product(factor, factor)),
        ("gradient of L @ L", lambda: work.backward(factor, factor, cotangent)),
        ("draws: L @ Z", lambda: work.product(factor, normal(n, _DRAWS))),
        ("quadratic forms: L.mT @ Z", lambda: work.product(factor.mT, normal(n, _DRAWS))),
        ("Z @ L", lambda: work.product(normal(_DRAWS, n), factor)),
        ("covariance: L @ L.mT", lambda: work.product(factor, factor.mT)),
        ("one draw: L @ z", lambda: work.product(factor, normal(n))),
    ]


def run(factor: LowerTriangular) -> Iterator[Row]:
    """Run every job in both forms; yields a row of results for each."""
    for name, setup in jobs(factor):
        with measuring_stream(factor.device):
            job = setup()
            timing = time_works([job], factor.device)
            error, dense_error = job.error(job.packed()), job.error(job.dense())
        yield {
            "op": name,
            "ms": timing.ms,
            "dense_ms": timing.dense_ms,
            "ratio": timing.dense_ms / timing.ms,
            "megabytes": job.packed_bytes / 1e6,
            "dense_megabytes": job.dense_bytes / 1e6,
            "error": error,
            "dense_error": dense_error,
        }


def table(rows: list[Row], title: str) -> Table:
    """The rows, for the terminal."""
    result = Table(title=title, caption="errors: relative, against float64")
    result.add_column("operation")
    for name in ("packed", "dense", "ratio", "memory packed", "dense", "error packed", "dense"):
        result.add_column(name, justify="right")
    for r in rows:
        result.add_row(
            r["op"],
            milliseconds(r["ms"]),
            milliseconds(r["dense_ms"]),
            ratio_text(r["ratio"]),
            bytes_text(r["megabytes"] * 1e6),
            bytes_text(r["dense_megabytes"] * 1e6),
            f"{r['error']:.1e}",
            f"{r['dense_error']:.1e}",
        )
    return result
