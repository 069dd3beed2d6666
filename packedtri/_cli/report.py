"""Tables and plots of what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from operator import itemgetter
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # Plots are files: a screen need not be there.

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator
from rich import box
from rich.markup import escape
from rich.table import Table

from packedtri._cli.cases import CASES
from packedtri._cli.timing import CPU_WAITED

Row = dict[str, Any]

PACKED_COLOUR, DENSE_COLOUR = "#1f77b4", "#bbbbbb"

_PANELS_ACROSS = 3
_SERIES_COLOURS = [f"C{index}" for index in range(10)]
# The dense side is drawn in the colour of the packed one, and fainter.
_DENSE_ALPHA = 0.6
_ONE_LINE: dict[str, Any] = {"color": "#888888", "linestyle": "-", "linewidth": 1}
_LIMIT_LINE: dict[str, Any] = {"color": "black", "linestyle": "-.", "linewidth": 1}


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


def ratio_text(row: Row) -> str:
    """How many times faster than dense, green where it is, with a star where it was disturbed."""
    ratio = row["ratio"]
    star = "* " if _disturbed(row) else ""
    return f"{star}[{'green' if ratio >= 1 else 'red'}]{ratio:.2f}×[/]"


def _disturbed(row: Row) -> bool:
    return row["waited"] >= CPU_WAITED


def disturbed_text(rows: Sequence[Row]) -> str | None:
    """What the stars of a table mean; None where it has none."""
    count = sum(_disturbed(row) for row in rows)
    if not count:
        return None
    return (
        f"* Disturbed by other programs on this machine: {count} of {len(rows)} cases. "
        "Measure them again."
    )


def bench_table(rows: Iterable[Row], title: str) -> Table:
    """The rows of a benchmark, for the terminal."""
    table = Table(title=escape(title), box=box.SIMPLE_HEAD)
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
            ratio_text(r),
            f"{r['tflops']:.3g}" if r["tflops"] else "",
            f"{r['error']:.1e}",
            f"{r['dense_error']:.1e}",
        )
    return table


def bench_plot(rows: Sequence[Row], title: str, path: Path) -> None:
    """Time and ratio to dense torch over n: two panels for each operation, one above the other.

    Odd orders are drawn apart from even ones, because the rows of dense matrices are not aligned
    there and a line through both would go up and down.
    """
    panels: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        panels.setdefault(row["op"], {}).setdefault(_series(row, rows), []).append(row)
    names = list(dict.fromkeys(name for series in panels.values() for name in series))
    colours = dict(zip(names, cycle(_SERIES_COLOURS), strict=False))
    across = min(len(panels), _PANELS_ACROSS)
    down = -(-len(panels) // across)
    figure = plt.figure(figsize=(max(3.7 * across, 7.5), 4.6 * down + 1), layout="constrained")
    cells = figure.subplots(2 * down, across, squeeze=False)
    pairs = [cells[2 * y : 2 * y + 2, x] for y in range(down) for x in range(across)]
    for (times, ratios), (op, series) in zip(pairs, panels.items(), strict=False):
        for name, points in series.items():
            _draw_series(times, ratios, points, colours[name])
        ratios.axhline(1, **_ONE_LINE)
        if (limit := CASES[op].limit) is not None:
            ratios.axhline(limit, **_LIMIT_LINE)
        times.set_title(op)
        times.set_ylabel("time (ms)")
        ratios.set_ylabel("dense time / packed time")
        ratios.set_xlabel("order n")
        _number_axes(times, ratios)
    for times, ratios in pairs[len(panels) :]:
        times.set_axis_off()
        ratios.set_axis_off()
    figure.suptitle(title, parse_math=False)
    figure.legend(handles=_keys(colours), loc="outside lower center", fontsize="small", ncols=4)
    _save(figure, path)


def _keys(colours: Mapping[str, str]) -> list[Line2D]:
    return [
        *(Line2D([], [], color=c, marker="o", label=name) for name, c in colours.items()),
        Line2D([], [], color="black", linestyle=":", marker="x", label="odd n"),
        Line2D([], [], color="black", linestyle="--", alpha=_DENSE_ALPHA, label="dense torch"),
        Line2D([], [], **_ONE_LINE, label="ratio 1"),
        Line2D([], [], **_LIMIT_LINE, label="limit by count"),
    ]


def _series(row: Row, rows: Iterable[Row]) -> str:
    """What a line of the plot stands for, beside its operation: all of a row but its order."""
    name = row["dtype"] if row["precision"] == "highest" else f"{row['dtype']} {row['precision']}"
    if CASES[row["op"]].columns == "m":
        # Where m is given, one of the orders may be equal to it.
        given = {r["m"] for r in rows if r["op"] == row["op"] and r["m"] != r["n"]}
        name += f", m = {row['m']}" if row["m"] in given else ""
    return name + (f" × {row['batch']}" if row["batch"] > 1 else "")


def _draw_series(times: Axes, ratios: Axes, points: Sequence[Row], colour: str) -> None:
    """The times of one line on both sides, and their ratio."""
    shared: dict[str, Any] = {"color": colour, "markersize": 3, "linewidth": 1.2}
    for odd, marker, line in ((0, "o", "-"), (1, "x", ":")):
        chosen = sorted((p for p in points if p["n"] % 2 == odd), key=itemgetter("n"))
        n, ms, dense, ratio = ([p[key] for p in chosen] for key in ("n", "ms", "dense_ms", "ratio"))
        times.plot(n, ms, marker + line, **shared)
        times.plot(n, dense, marker + "--", alpha=_DENSE_ALPHA, **shared)
        ratios.plot(n, ratio, marker + line, **shared)


def _number_axes(times: Axes, ratios: Axes) -> None:
    """Logarithmic axes with numbers that a person reads."""
    # Nine ticks in each of many powers of ten take as long to draw as all the rest.
    times.set_yscale("log", subs=(2, 5))
    ratios.set_yscale("log", base=2)
    ratios.yaxis.set_major_formatter(_plain)
    for axes in (times, ratios):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(LogLocator(base=2, numticks=6))
        axes.xaxis.set_major_formatter(_plain)
        axes.grid(color="#eeeeee")


def _plain(number: float, _: object) -> str:
    return f"{number:g}"


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
    figure.suptitle(title, parse_math=False)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
