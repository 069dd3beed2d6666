"""Tables and plots of what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # Plots are files: a screen need not be there.

from matplotlib import pyplot as plt
from rich import box
from rich.table import Table

Row = dict[str, Any]

PACKED_COLOUR, DENSE_COLOUR = "#1f77b4", "#bbbbbb"


def milliseconds(ms: float) -> str:
    """A time in the unit that suits it."""
    if ms < 1:
        return f"{ms * 1e3:.3g} µs"
    return f"{ms:.3g} ms" if ms < 1e3 else f"{ms / 1e3:.3g} s"


def bytes_text(count: float) -> str:
    """A size of memory in the unit that suits it."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} GiB"


def ratio_text(ratio: float) -> str:
    """How many times faster than dense, green where it is."""
    return f"[{'green' if ratio >= 1 else 'red'}]{ratio:.2f}×[/]"


def bench_table(rows: Iterable[Row], title: str) -> Table:
    """The rows of a benchmark, for the terminal."""
    table = Table(title=title, box=box.SIMPLE_HEAD)
    table.add_column("op", no_wrap=True)
    table.add_column("dtype", no_wrap=True)
    for name in ("n", "m", "batch", "packed", "dense", "ratio", "TFLOP/s", "error", "dense"):
        table.add_column(name, justify="right", no_wrap=True)
    for r in rows:
        table.add_row(
            r["op"],
            r["dtype"],
            str(r["n"]),
            str(r["m"]),
            str(r["batch"]),
            milliseconds(r["ms"]),
            milliseconds(r["dense_ms"]),
            ratio_text(r["ratio"]),
            f"{r['tflops']:.3g}" if r["tflops"] else "",
            f"{r['error']:.1e}",
            f"{r['dense_error']:.1e}",
        )
    return table


def bench_plot(rows: Sequence[Row], title: str, path: Path) -> None:
    """Ratio to dense torch over n, one line for each operation and dtype."""
    figure, axes = plt.subplots(figsize=(12, 6), layout="constrained")
    lines: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        lines.setdefault((row["op"], row["dtype"], row["batch"]), []).append(row)
    for (op, dtype, batch), points in lines.items():
        points.sort(key=lambda r: r["n"])
        label = f"{op} {dtype}" + (f" × {batch}" if batch > 1 else "")
        axes.plot([r["n"] for r in points], [r["ratio"] for r in points], "o-", label=label)
    axes.axhline(1, color=DENSE_COLOUR, linestyle="--", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_xlabel("order n")
    axes.set_ylabel("dense time / packed time")
    axes.set_title(title)
    figure.legend(loc="outside right upper", fontsize="x-small", ncols=1 + len(lines) // 32)
    _save(figure, path)


def demo_plot(rows: Sequence[Row], title: str, path: Path) -> None:
    """Time, memory and error of every operation of the demo, packed beside dense."""
    panels = (
        ("time (ms)", "ms", "dense_ms"),
        ("memory (MiB)", "mebibytes", "dense_mebibytes"),
        ("relative error", "error", "dense_error"),
    )
    figure, all_axes = plt.subplots(1, 3, figsize=(13, 4.5), layout="constrained", sharey=True)
    places = range(len(rows))
    for axes, (label, packed, dense) in zip(all_axes, panels, strict=True):
        axes.barh(
            [p - 0.2 for p in places],
            [r[packed] for r in rows],
            0.4,
            color=PACKED_COLOUR,
            label="packed",
        )
        axes.barh(
            [p + 0.2 for p in places],
            [r[dense] for r in rows],
            0.4,
            color=DENSE_COLOUR,
            label="dense",
        )
        axes.set_xlabel(label)
    all_axes[0].set_xscale("log")
    all_axes[0].set_yticks(list(places), [r["op"] for r in rows])
    all_axes[0].invert_yaxis()
    all_axes[0].legend()
    figure.suptitle(title)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
