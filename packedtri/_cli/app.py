"""The commands and their options."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, NoReturn

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
# Tables that go to a file or a pipe are not cut to the width of a screen. Names of files may have
# what rich takes for emojis.
console = Console(width=None if sys.stdout.isatty() else 120, emoji=False)


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
    str | None, typer.Option(help="cpu, cuda or cuda:N; by default the GPU where there is one.")
]
Seed = Annotated[int, typer.Option(help="Seed of the random operands.")]
_OPS = list(CASES)
_ORDERS = ["256", "1024", "2048"]
_BATCH = 256
_SIZES = "each a number or FIRST:LAST:xFACTOR such as 32:8192:x1.4"


def _device(name: str | None) -> torch.device:
    if name is None:
        return environment.default_device()
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise typer.BadParameter(f"{name!r} is no device; use cpu, cuda or cuda:N") from error
    if device.type not in ("cpu", "cuda"):
        raise typer.BadParameter(f"{name!r}: packedtri runs on cpu and cuda")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise typer.BadParameter(f"{name!r}: torch finds no GPU here; use --device cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise typer.BadParameter(f"{name!r}: torch finds {torch.cuda.device_count()} GPUs here")
    return device


def _set_seed(seed: int) -> None:
    try:
        torch.manual_seed(seed)
    except (RuntimeError, ValueError) as error:
        raise typer.BadParameter(
            f"--seed {seed}: torch takes seeds from -2**63 to 2**64 - 1"
        ) from error


def _set_threads(threads: int) -> None:
    processors = len(os.sched_getaffinity(0))
    if threads > processors:
        raise typer.BadParameter(f"--threads {threads}: more than the {processors} processors")
    torch.set_num_threads(threads)


def _make_folder(output: Path) -> None:
    """Makes the folder for results, and sees that files can be made in it."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=output):
            pass
    except OSError as error:
        raise typer.BadParameter(
            f"--output {output} is no folder that can be written: {error.strerror}"
        ) from error


def _say(text: str) -> None:
    """Prints a line as it is, with names that are not ours, and does not break it."""
    console.print(text, markup=False, soft_wrap=True)


def _say_what_was_disturbed(rows: Sequence[benchmark.Row]) -> None:
    if (text := report.disturbed_text(rows)) is not None:
        console.print(f"[yellow]{text}[/]")


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
        typer.Option(
            help="A covariance of your own (.npy, .pt or .pth) instead of the digits' kernel."
        ),
    ] = None,
    jitter: Annotated[
        float | None,
        typer.Option(help="Added to the diagonal; 1e-4 for the digits, 0 for your own.", min=0),
    ] = None,
    dtype: Annotated[RealDType, typer.Option(help="Element type of the factor.")] = (
        RealDType.float32
    ),
    device: Device = None,
    output: Annotated[Path, typer.Option(help="Folder for the plot.")] = Path("demo-output"),
    seed: Seed = 0,
) -> None:
    """Multiply, solve and differentiate with a covariance's Cholesky factor, packed and dense."""
    where = _device(device)
    _set_seed(seed)
    name = "digits RBF kernel" if matrix is None else matrix.name
    try:
        kernel = covariance.digits() if matrix is None else covariance.load(matrix)
        kernel.diagonal().add_(jitter if jitter is not None else 1e-4 if matrix is None else 0)
        lower = covariance.factor(kernel, name)
    except covariance.BadCovariance as error:
        raise typer.BadParameter(str(error)) from error
    factor = LowerTriangular(lower.packed.to(where, getattr(torch, dtype.value)))
    if not factor.packed.isfinite().all():
        raise typer.BadParameter(f"{name}: its factor has elements too large for {dtype.value}")
    n = factor.shape[-1]
    heading = f"{name}, n = {n}, {dtype.value}, {environment.device_name(where)}"
    _make_folder(output)
    console.print(heading, style="bold", markup=False)
    console.print(
        f"The factor takes {bytes_text(factor.packed.nbytes)} packed, "
        f"{bytes_text(n * n * factor.packed.element_size())} dense."
    )
    with _progress() as progress:
        total = len(demonstration.jobs(factor))
        rows = list(progress.track(demonstration.run(factor), total, description="running"))
    console.print(demonstration.table(rows, heading))
    _say_what_was_disturbed(rows)
    plot = output / "demo.png"
    report.demo_plot(rows, heading, plot)
    _say(f"Plot: {plot}")


@app.command()
def bench(
    ops: Annotated[
        list[str] | None,
        typer.Option("--op", help=f"One of {', '.join(_OPS)}; repeatable.", show_default="all"),
    ] = None,
    orders: Annotated[
        list[str] | None,
        typer.Option(
            "--n",
            help=f"Orders, {_SIZES}; repeatable.",
            show_default=f"{', '.join(_ORDERS)}; none with --batched-n",
        ),
    ] = None,
    batched_orders: Annotated[
        list[str] | None,
        typer.Option("--batched-n", help="Orders of batches, written likewise; repeatable."),
    ] = None,
    ragged: Annotated[
        bool, typer.Option("--ragged", help="Take n + 1 beside each order n, for its alignment.")
    ] = False,
    batch: Annotated[
        int | None,
        typer.Option(
            help="Matrices in a batch, with --batched-n.",
            min=2,
            max=sizes.LARGEST,
            show_default=str(_BATCH),
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--m", help="Columns of dense operands, n by default; repeatable."),
    ] = None,
    dtypes: Annotated[
        list[DType] | None,
        typer.Option("--dtype", help="Element types; repeatable.", show_default="float32"),
    ] = None,
    precision: Annotated[
        Precision | None,
        typer.Option(help="float32 matmul precision, for both sides.", show_default="highest"),
    ] = None,
    tf32: Annotated[
        bool,
        typer.Option("--tf32", help="Allow TF32 in float32 products on CUDA: --precision high."),
    ] = False,
    device: Device = None,
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
        str | None, typer.Option(help="Recorded in the results, instead of what git tells.")
    ] = None,
    seed: Seed = 0,
) -> None:
    """Time packed operations against torch on dense matrices; write JSON and a plot."""
    where = _device(device)
    _set_seed(seed)
    if threads:
        _set_threads(threads)
    if tf32 and precision not in (None, Precision.high):
        raise typer.BadParameter(
            f"--tf32 stands for --precision high: leave out --precision {precision.value}"
        )
    precision = Precision.high if tf32 else precision or Precision.highest
    torch.set_float32_matmul_precision(precision.value)
    if calls and where.type != "cuda":
        raise typer.BadParameter("--calls is for a GPU; on a CPU all calls are timed so")
    if under_load and where.type != "cuda":
        raise typer.BadParameter("--under-load is for a GPU, whose clock depends on what it does")
    if batch and not batched_orders:
        raise typer.BadParameter("--batch is for batches: give their orders with --batched-n")
    for op in ops or ():
        if op not in CASES:
            raise typer.BadParameter(f"{op!r} is none of {', '.join(CASES)}")
    if not orders and not batched_orders:
        orders = _ORDERS
    torch_dtypes = [d.torch for d in dtypes or [DType.float32]]
    problems = benchmark.problems(
        ops or _OPS,
        _sizes(orders, ragged),
        torch_dtypes,
        where,
        _sizes(columns),
        _sizes(batched_orders, ragged),
        batch or _BATCH,
        conversions,
    )
    # Only of what was asked for by name.
    left_out = benchmark.left_out(ops or (), torch_dtypes, bool(batched_orders), conversions)
    if not problems:
        raise typer.BadParameter(f"there is nothing to measure: {'; '.join(left_out)}")
    if columns and not any(CASES[p.op].columns == "m" for p in problems):
        which = ", ".join(op for op, case in CASES.items() if case.columns == "m")
        raise typer.BadParameter(f"--m is for dense operands of many columns, as {which} have them")
    _make_folder(output)
    for text in left_out:
        _say(f"Left out: {text}.")
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
    _say_what_was_disturbed(rows)
    _say(f"Results: {results}")
    if plot:
        picture = output / "bench.png"
        report.bench_plot(rows, title, picture)
        _say(f"Plot: {picture}")


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
            try:
                rows.append(benchmark.measure(problem, effort))
            except (RuntimeError, MemoryError) as error:
                if not _is_of_memory(error):
                    raise
                _end_without_memory(problem, results if rows else None)
            # Written after each problem, so that a run cut short keeps what it measured.
            benchmark.save(results, rows, meta)
            progress.advance(task)
    return rows


def _is_of_memory(error: Exception) -> bool:
    """Whether there was no memory; on a CPU torch has no type of error for that."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or bool(
        re.search(r"allocate memory|not enough memory|size calculation overflowed", str(error))
    )


def _end_without_memory(problem: Problem, results: Path | None) -> NoReturn:
    case = (
        f"{problem.op}, {environment.dtype_name(problem.dtype)}, n = {problem.n}, m = {problem.m}"
    )
    if problem.batch > 1:
        case += f", batch = {problem.batch}"
    text = f"There is not enough memory for {case}."
    if results is not None:
        text += f" What was measured before it is in {results}."
    typer.echo(text, err=True)
    raise typer.Exit(1)
