"""The commands and their options."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from packedtri import LowerTriangular
from packedtri._cli import bench as benchmark
from packedtri._cli import covariance, environment, report, sizes, timing
from packedtri._cli import demo as demonstration
from packedtri._cli import info as information
from packedtri._cli.cases import CASES, Problem
from packedtri._cli.report import bytes_text

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Triangular and symmetric matrices that store and compute on one triangle.",
)
# Tables that go to a file or a pipe are not cut to the width of a screen.
console = Console(width=None if sys.stdout.isatty() else 120)


class DType(str, Enum):
    """The element types of packedtri, by torch's names."""

    float16 = "float16"
    bfloat16 = "bfloat16"
    float32 = "float32"
    float64 = "float64"
    complex64 = "complex64"
    complex128 = "complex128"

    @property
    def torch(self) -> torch.dtype:
        """torch's own object of that name."""
        return getattr(torch, self.value)


class RealDType(str, Enum):
    """The element types that a Cholesky factor of a real covariance may have."""

    float16 = "float16"
    bfloat16 = "bfloat16"
    float32 = "float32"
    float64 = "float64"


class Precision(str, Enum):
    """The modes of torch.set_float32_matmul_precision."""

    highest = "highest"
    high = "high"
    medium = "medium"


Device = Annotated[
    str, typer.Option(help="cpu, cuda or cuda:N; by default the GPU where there is one.")
]
Seed = Annotated[int, typer.Option(help="Seed of the random operands.")]
_SIZES = "each a number or FIRST:LAST:xFACTOR such as 32:8192:x1.4"


def _device(name: str) -> torch.device:
    if name == "auto":
        return environment.default_device()
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise typer.BadParameter(f"{name!r} is no device; use cpu, cuda or cuda:N") from error
    if device.type not in ("cpu", "cuda"):
        raise typer.BadParameter(f"{name!r}: packedtri runs on cpu and cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise typer.BadParameter(f"{name!r}: torch finds no GPU here; use --device cpu")
    return device


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


@app.command()
def info() -> None:
    """Show versions, libraries, devices and kernels."""
    console.print(information.table())


@app.command()
def demo(
    matrix: Annotated[
        Path | None,
        typer.Option(help="A covariance of your own (.npy or .pt) instead of the digits' kernel."),
    ] = None,
    jitter: Annotated[
        float | None,
        typer.Option(help="Added to the diagonal; 1e-4 for the digits, 0 for your own.", min=0),
    ] = None,
    dtype: Annotated[RealDType, typer.Option(help="Element type of the factor.")] = (
        RealDType.float32
    ),
    device: Device = "auto",
    output: Annotated[Path, typer.Option(help="Folder for the plot.")] = Path("demo-output"),
    seed: Seed = 0,
) -> None:
    """Multiply and differentiate the Cholesky factor of a real covariance, packed and dense."""
    where = _device(device)
    torch.manual_seed(seed)
    name = "digits RBF kernel" if matrix is None else matrix.name
    try:
        kernel = covariance.digits() if matrix is None else covariance.load(matrix)
        kernel.diagonal().add_(jitter if jitter is not None else 1e-4 if matrix is None else 0)
        lower = covariance.factor(kernel, name)
    except covariance.BadCovariance as error:
        raise typer.BadParameter(str(error)) from error
    factor = LowerTriangular(lower.packed.to(where, getattr(torch, dtype.value)))
    n = factor.shape[-1]
    heading = f"{name}, n = {n}, {dtype.value}, {environment.device_name(where)}"
    console.print(f"[bold]{heading}[/]")
    console.print(
        f"The factor takes {bytes_text(factor.packed.nbytes)} packed, "
        f"{bytes_text(n * n * factor.packed.element_size())} dense."
    )
    with _progress() as progress:
        total = len(demonstration.jobs(factor))
        rows = list(progress.track(demonstration.run(factor), total, description="running"))
    console.print(demonstration.table(rows, heading))
    plot = output / "demo.png"
    report.demo_plot(rows, heading, plot)
    console.print(f"Plot: {plot}")


@app.command()
def bench(
    ops: Annotated[
        list[str] | None,
        typer.Option("--op", help=f"One of {', '.join(CASES)}; repeatable."),
    ] = None,
    orders: Annotated[
        list[str] | None, typer.Option("--n", help=f"Orders, {_SIZES}; repeatable.")
    ] = None,
    batched_orders: Annotated[
        list[str] | None,
        typer.Option("--batched-n", help="Orders of batches, written likewise; repeatable."),
    ] = None,
    ragged: Annotated[
        bool, typer.Option("--ragged", help="Take n + 1 beside each order n, for its alignment.")
    ] = False,
    batch: Annotated[int, typer.Option(help="Matrices in a batched problem.", min=2)] = 256,
    columns: Annotated[
        list[str] | None,
        typer.Option("--m", help="Columns of dense operands, n by default; repeatable."),
    ] = None,
    dtypes: Annotated[
        list[DType] | None, typer.Option("--dtype", help="Element types; repeatable.")
    ] = None,
    precision: Annotated[
        Precision, typer.Option(help="float32 matmul precision, for both sides.")
    ] = Precision.highest,
    tf32: Annotated[
        bool,
        typer.Option("--tf32", help="Allow TF32 in float32 products on CUDA: --precision high."),
    ] = False,
    device: Device = "auto",
    threads: Annotated[
        int | None, typer.Option(help="CPU threads; torch's choice by default.", min=1)
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few samples of each case, for a sweep over many.")
    ] = False,
    conversions: Annotated[
        bool,
        typer.Option(
            "--conversions", help="Let dense torch convert packed operands and results in its time."
        ),
    ] = False,
    calls: Annotated[
        bool,
        typer.Option(
            "--calls",
            help="On a GPU, time calls as a program makes them, with what the host does for each, "
            "not replays of CUDA graphs.",
        ),
    ] = False,
    under_load: Annotated[
        bool,
        typer.Option(
            "--under-load",
            help="On a GPU, let each side run for a while before its samples, at the clock that "
            "the GPU then keeps.",
        ),
    ] = False,
    output: Annotated[Path, typer.Option(help="Folder for bench.json and the plot.")] = Path(
        "bench-output"
    ),
    plot: Annotated[bool, typer.Option(help="Draw times and ratios over n.")] = True,
    commit: Annotated[
        str | None, typer.Option(help="Recorded in the results where git cannot tell it.")
    ] = None,
    seed: Seed = 0,
) -> None:
    """Time packed operations against torch on dense matrices; write JSON and a plot."""
    where = _device(device)
    torch.manual_seed(seed)
    torch.set_float32_matmul_precision(Precision.high.value if tf32 else precision.value)
    if threads:
        torch.set_num_threads(threads)
    if calls and where.type != "cuda":
        raise typer.BadParameter("--calls is for a GPU; on a CPU all calls are timed so")
    if under_load and where.type != "cuda":
        raise typer.BadParameter("--under-load is for a GPU, whose clock depends on what it does")
    for op in ops or ():
        if op not in CASES:
            raise typer.BadParameter(f"{op!r} is none of {', '.join(CASES)}")
    if not orders and not batched_orders:
        orders = ["256", "1024", "2048"]
    problems = benchmark.problems(
        ops or list(CASES),
        _sizes(orders, ragged),
        [d.torch for d in dtypes or [DType.float32]],
        where,
        _sizes(columns),
        _sizes(batched_orders, ragged),
        batch,
        conversions,
    )
    if not problems:
        if conversions and not any(CASES[op].converts for op in ops or CASES):
            raise typer.BadParameter("these operations are not compared with --conversions")
        raise typer.BadParameter("dense torch has none of these operations for that")
    results = output / "bench.json"
    # Taken once: it asks the driver, which takes longer than many a case.
    kind = {
        "quick": quick,
        "conversions": conversions,
        "calls": calls,
        "under_load": under_load,
    }
    meta = environment.meta(where, commit) | kind
    effort = replace(timing.QUICK if quick else timing.FULL, gpu_graphs=not calls)
    effort = effort.under_load() if under_load else effort
    rows = _measure_all(problems, results, meta, effort)
    title = f"{environment.device_name(where)}, torch {torch.__version__}"
    console.print(report.bench_table(rows, title))
    slower = benchmark.slower(rows)
    if slower:
        console.print(report.bench_table(slower, "Slower than dense torch, worst first"))
    console.print(f"Slower than dense torch: {len(slower)} of {len(rows)} cases.")
    console.print(f"Results: {results}")
    if plot:
        picture = output / "bench.png"
        report.bench_plot(rows, title, picture)
        console.print(f"Plot: {picture}")


def _sizes(texts: Sequence[str] | None, ragged: bool = False) -> list[int]:
    try:
        return sizes.sizes(texts or (), ragged)
    except sizes.BadSize as error:
        raise typer.BadParameter(str(error)) from error


def _measure_all(
    problems: Sequence[Problem], results: Path, meta: benchmark.Row, effort: timing.Effort
) -> list[benchmark.Row]:
    rows: list[benchmark.Row] = []
    with _progress() as progress:
        task = progress.add_task("starting", total=len(problems))
        for problem in problems:
            progress.update(task, description=f"{problem.op} n = {problem.n}")
            rows.append(benchmark.measure(problem, effort))
            # Written after each problem, so that a run cut short keeps what it measured.
            benchmark.save(results, rows, meta)
            progress.advance(task)
    return rows
