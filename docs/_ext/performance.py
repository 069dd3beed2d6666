"""Sphinx extension: tables of the committed benchmark results, for the performance page.

The directive ``performance-results`` reads every ``benchmarks/results/<device>/*.json`` and shows
what was measured, on what, and with which commit.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"

_NONE_YET = "No results have been committed yet."
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


def results_markdown(folder: Path = RESULTS) -> str:
    """All results under a folder as Markdown, a section for each file."""
    files = sorted(folder.glob("*/*.json"))
    return "\n\n".join(_file_markdown(path) for path in files) if files else _NONE_YET


def _file_markdown(path: Path) -> str:
    content = json.loads(path.read_text())
    meta, rows = content["meta"], content["rows"]
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
    heading = f"## {meta['device']}: {path.stem}"
    origin = f"Measured {meta['date'][:10]}; {', '.join(facts)}."
    return "\n\n".join([heading, origin, _table(rows)])


def _table(rows: list[dict[str, Any]]) -> str:
    lines = ["| " + " | ".join(_COLUMNS) + " |", "|" + " --- |" * len(_COLUMNS)]
    lines += ["| " + " | ".join(_cells(row)) + " |" for row in rows]
    return "\n".join(lines)


def _cells(row: dict[str, Any]) -> list[str]:
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


class PerformanceResults(SphinxDirective):
    """Puts the tables where it stands."""

    def run(self) -> list[nodes.Node]:
        """Parse the Markdown of the results in place."""
        for path in RESULTS.glob("*/*.json"):
            self.env.note_dependency(str(path))
        container = nodes.section()
        container.document = self.state.document
        lines = StringList(results_markdown().splitlines(), source=str(RESULTS))
        self.state.nested_parse(lines, self.content_offset, container, match_titles=True)
        return container.children


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("performance-results", PerformanceResults)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
