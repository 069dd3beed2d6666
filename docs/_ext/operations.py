"""Sphinx extension: what torch functions do with packed types, from the dispatch table itself.

The directive ``operations`` says how many functions there are of each class, and lists them by
what they do: those computed on packed storage with the types they take and give, those that convert
to dense, and those that raise.
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

from packedtri import Hermitian, LowerTriangular, Symmetric, UpperTriangular
from packedtri.dispatch import Function, How, Row, classify, function_name, rows

_LETTERS: dict[type, str] = {
    LowerTriangular: "L",
    UpperTriangular: "U",
    Symmetric: "S",
    Hermitian: "H",
    torch.Tensor: "dense",
    Number: "number",
}


def operations_markdown() -> str:
    """The table as Markdown, with the coverage of torch's functions."""
    rules: dict[str, set[str]] = defaultdict(set)
    dependent: set[str] = set()
    for row in rows():
        name = _short_name(row.function)
        if name is None or row.how != "native":
            continue
        if rule := _rule(row):
            rules[name].add(rule)
        else:
            dependent.add(name)
    functions: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, found in rules.items():
        functions[tuple(sorted(found))].append(name)
    table = [f"| {', '.join(rule)} | {_listed(functions[rule])} |" for rule in sorted(functions)]
    classes = coverage()
    native = {name for f in classes["native"] if (name := _short_name(f))} | dependent | set(rules)
    dense, refused = (
        {name for f in classes[how] if (name := _short_name(f))} - native
        for how in ("dense", "refused")
    )
    in_place = {name for name in native if name.endswith("_")} - dependent - set(rules)
    paragraphs = [
        _summary(classes),
        "\n".join(["| operands → result | functions |", "| --- | --- |", *table]),
        "Types without a rule convert to dense in these functions.",
        "The result depends on the arguments, and stays packed where it can: "
        f"{_listed(dependent - rules.keys())}.",
        "In place, where the result has the type still, and otherwise refused: "
        f"{_listed(in_place)}.",
        f"Always by conversion to dense: {_listed(dense)}.",
        f"Refused with an error: {_listed(refused - dense)}.",
    ]
    return "\n\n".join(paragraphs)


def coverage() -> dict[How, list[Function]]:
    """What becomes of every function that torch lets a tensor type override."""
    classes: dict[How, list[Function]] = {"native": [], "dense": [], "refused": []}
    for function in torch.overrides.get_testing_overrides():
        classes[classify(function)].append(function)
    return classes


def _summary(classes: dict[How, list[Function]]) -> str:
    native, dense, refused = (len(classes[how]) for how in ("native", "dense", "refused"))
    return (
        f"Of the {native + dense + refused} functions and methods that torch {torch.__version__} "
        f"lets a tensor type override, {native} work on packed storage for some types or all, "
        f"{dense} convert to dense, and {refused} raise an error."
    )


def _short_name(function: Function) -> str | None:
    """The function's name without its module; None for operators and private functions."""
    name = function_name(function).removesuffix(".__get__").rpartition(".")[2]
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
