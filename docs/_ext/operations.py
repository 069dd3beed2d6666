"""Sphinx extension: what torch functions do with packed types, from the dispatch table itself.

The directive ``operations`` lists the functions by what they do: those computed on packed storage
with the types they take and give, then those that convert to dense.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from numbers import Number

import torch
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from packedtri import LowerTriangular, Symmetric, UpperTriangular
from packedtri.dispatch import Row, rows

_LETTERS: dict[type, str] = {
    LowerTriangular: "L",
    UpperTriangular: "U",
    Symmetric: "S",
    torch.Tensor: "dense",
    Number: "number",
}


def operations_markdown() -> str:
    """The table as Markdown."""
    rules: dict[str, set[str]] = defaultdict(set)
    dependent: set[str] = set()
    dense: set[str] = set()
    for row in rows():
        name = _short_name(row)
        if name is None:
            continue
        if row.how == "native" and (rule := _rule(row)):
            rules[name].add(rule)
        elif row.how == "native":
            dependent.add(name)
        elif row.how == "dense":
            dense.add(name)
    functions: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, found in rules.items():
        functions[tuple(sorted(found))].append(name)
    table = [f"| {', '.join(rule)} | {_listed(functions[rule])} |" for rule in sorted(functions)]
    paragraphs = [
        "\n".join(["| operands → result | functions |", "| --- | --- |", *table]),
        "Types without a rule convert to dense in these functions.",
        "The result depends on the arguments, and stays packed where it can: "
        f"{_listed(dependent - rules.keys())}.",
        f"Always by conversion to dense: {_listed(dense - dependent - rules.keys())}.",
    ]
    return "\n\n".join(paragraphs)


def _short_name(row: Row) -> str | None:
    """The function's name without its module; None for operators and private functions."""
    name = row.name.removesuffix(".__get__").rpartition(".")[2]
    # torch.mm is known to torch's own table of names by this older one.
    name = "mm" if name == "spmm" else name
    return None if name.startswith("_") else name


def _rule(row: Row) -> str:
    """Operands and result, or nothing where the table does not tell them by type."""
    if row.result not in _LETTERS or not all(t in _LETTERS for t in row.types):
        return ""
    operands = " · ".join(_LETTERS[t] for t in row.types)
    return f"{operands} → {_LETTERS[row.result]}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


class Operations(SphinxDirective):
    """Puts the table where it stands."""

    def run(self) -> list[nodes.Node]:
        """Parse the Markdown of the table in place."""
        container = nodes.section()
        container.document = self.state.document
        lines = StringList(operations_markdown().splitlines(), source="packedtri.dispatch")
        self.state.nested_parse(lines, self.content_offset, container)
        return container.children


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("operations", Operations)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
