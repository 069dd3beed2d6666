"""Sphinx extension: the committed benchmark results, for the performance page.

Everything is made from ``benchmarks/results/<device>/*.json`` when the documentation is built. The
directive ``performance-slower`` lists the cases in which dense torch is faster, and
``performance-results`` shows a plot of every file of the device that it names, and a table unless
that would be very long: what was measured, on what, and with which commit.
"""

from __future__ import annotations

import json
import os
from itertools import groupby
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from packedtri._cli import cases, report

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"

Row = dict[str, Any]

_NONE_YET = "No results have been committed yet."
# Nobody reads a longer table, which takes longer to build than all the rest: its file is named.
_MOST_ROWS = 300
_COLUMNS = (
    "op",
    "dtype",
    "precision",
    "n",
    "m",
    "batch",
    "packed (ms)",
    "dense (ms)",
    "ratio",
    "error",
    "dense error",
    "kernel",
)


def slower_markdown(folder: Path = RESULTS) -> str:
    """A table for each device of the orders at which dense torch is faster, worst case first.

    Files in which dense torch converts operands are left out, and those with the host's part.
    """
    devices: dict[str, list[tuple[str, list[Row]]]] = {}
    for path in _files(folder):
        meta, rows = _read(path)
        if meta.get("conversions") or meta.get("calls"):
            continue
        devices.setdefault(meta["device"], []).append((meta["date"], rows))
    parts = []
    for device, files in devices.items():
        # Of a case that was measured more than once the last measurement counts.
        latest = {
            (_case(row), row["n"]): row["ratio"]
            for _, rows in sorted(files, key=lambda file: file[0])
            for row in rows
        }
        parts.append(_slower_on(device, latest))
    return "\n\n".join(parts) or _NONE_YET


def results_markdown(
    pictures: Path, beside: Path, folder: Path = RESULTS, device: str = "*"
) -> str:
    """All results of a device under a folder as Markdown, a section for each file.

    Plots are drawn into ``pictures`` and named by their paths from ``beside``.
    """
    files = _files(folder, device)
    return "\n\n".join(_file_markdown(p, pictures, beside) for p in files) or _NONE_YET


def _files(folder: Path, device: str = "*") -> list[Path]:
    return sorted(folder.glob(f"{device}/*.json"))


def _read(path: Path) -> tuple[Row, list[Row]]:
    content = json.loads(path.read_text())
    return content["meta"], content["rows"]


def _case(row: Row) -> tuple[str, ...]:
    """What tells a row from others, but its order."""
    dtype = row["dtype"] if row["precision"] == "highest" else f"{row['dtype']}, {row['precision']}"
    return row["op"], dtype, "n" if row["m"] == row["n"] else f"{row['m']:,}", f"{row['batch']:,}"


def _slower_on(device: str, latest: dict[tuple[tuple[str, ...], int], float]) -> str:
    orders: dict[tuple[str, ...], dict[int, float]] = {}
    for (case, n), ratio in sorted(latest.items()):
        orders.setdefault(case, {})[n] = ratio
    lines = []
    for case, ratios in sorted(orders.items(), key=lambda item: min(item[1].values())):
        if slower := [n for n, ratio in ratios.items() if ratio < 1]:
            worst = min(ratios, key=lambda n: ratios[n])
            cells = [
                *case,
                _ranges(slower, list(ratios)),
                f"{len(slower)} of {len(ratios)}",
                f"{ratios[worst]:.2f} ({worst:,})",
            ]
            lines.append("| " + " | ".join(cells) + " |")
    count = sum(ratio < 1 for ratio in latest.values())
    summary = f"On {device}, {count} of {len(latest)} measured cases are slower than dense torch"
    if not lines:
        return summary + "."
    columns = ("op", "dtype", "m", "batch", "slower for n in", "orders", "worst ratio (n)")
    return "\n".join([summary + ":", "", *_head(columns), *lines])


def _ranges(slower: list[int], measured: list[int]) -> str:
    """The orders, with what lies between two neighbours of the measured ones as a range.

    Odd orders, whose rows are aligned otherwise, stand apart where that takes fewer ranges.
    """
    together = _neighbours(slower, measured)
    apart = [
        prefix + text
        for prefix, odd in (("", 0), ("odd ", 1))
        for text in _neighbours(*([n for n in ns if n % 2 == odd] for ns in (slower, measured)))
    ]
    return ", ".join(apart if len(apart) < len(together) else together)


def _neighbours(slower: list[int], measured: list[int]) -> list[str]:
    grouped = groupby(sorted(measured), lambda n: n in slower)
    runs = [list(run) for is_slower, run in grouped if is_slower]
    return [f"{run[0]:,}" + (f"–{run[-1]:,}" if len(run) > 1 else "") for run in runs]


def _file_markdown(path: Path, pictures: Path, beside: Path) -> str:
    meta, rows = _read(path)
    facts = [
        f"{name} {meta[key]}"
        for name, key in (
            ("driver", "driver"),
            ("CUDA", "cuda"),
            ("torch", "torch"),
            ("Python", "python"),
            ("threads", "threads"),
            ("packedtri commit", "commit"),
        )
        if meta.get(key) is not None
    ]
    title = f"{meta['device']}: {path.stem}"
    samples = ", with few samples of each case" if meta.get("quick") else ""
    against = (
        " Dense torch converts packed operands and results in its time."
        if meta.get("conversions")
        else " Times are of calls, with what the host does for each."
        if meta.get("calls")
        else ""
    )
    if meta.get("under_load"):
        against += " Each side ran for a while before its samples."
    origin = f"Measured {meta['date'][:10]}{samples}; {', '.join(facts)}.{against}"
    picture = pictures / path.parent.name / f"{path.stem}.svg"
    report.bench_plot(rows, title, picture)
    plot = f"![Times and ratios over n, {title}](<{os.path.relpath(picture, beside)}>)"
    if len(rows) > _MOST_ROWS:
        table = f"All {len(rows):,} cases: `benchmarks/results/{path.parent.name}/{path.name}`."
        return "\n\n".join([f"## {title}", origin, plot, table])
    # Long tables are folded away where the output can do that.
    fold = f"<details><summary>All {len(rows)} cases as a table</summary>"
    return "\n\n".join([f"## {title}", origin, plot, fold, _table(rows), "</details>"])


def _head(columns: tuple[str, ...]) -> list[str]:
    return ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]


def _table(rows: list[Row]) -> str:
    return "\n".join(_head(_COLUMNS) + ["| " + " | ".join(_cells(row)) + " |" for row in rows])


def _cells(row: Row) -> list[str]:
    return [
        row["op"],
        row["dtype"],
        row["precision"],
        f"{row['n']:,}",
        f"{row['m']:,}",
        f"{row['batch']:,}",
        f"{row['ms']:.4g}",
        f"{row['dense_ms']:.4g}",
        f"**{row['ratio']:.2f}**",
        f"{row['error']:.1e}",
        f"{row['dense_error']:.1e}",
        str(row["kernel"]),
    ]


class _FromResults(SphinxDirective):
    """Puts Markdown made from the results where it stands."""

    def markdown(self) -> str:
        """What to put there."""
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        """Parse the Markdown in place."""
        for path in (*_files(RESULTS), report.__file__, cases.__file__):
            self.env.note_dependency(str(path))
        container = nodes.section()
        container.document = self.state.document
        lines = StringList(self.markdown().splitlines(), source=str(RESULTS))
        self.state.nested_parse(lines, self.content_offset, container, match_titles=True)
        return container.children


class PerformanceSlower(_FromResults):
    """What is slower than dense torch."""

    def markdown(self) -> str:
        """The tables of the slower cases."""
        return slower_markdown()


class PerformanceResults(_FromResults):
    """All results of the device whose folder is named."""

    required_arguments = 1

    def markdown(self) -> str:
        """Plots and tables. The plots lie beside what else the build keeps for itself."""
        pictures = Path(self.env.doctreedir) / "plots"
        beside = Path(self.env.doc2path(self.env.docname)).parent
        return results_markdown(pictures, beside, device=self.arguments[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("performance-slower", PerformanceSlower)
    app.add_directive("performance-results", PerformanceResults)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
