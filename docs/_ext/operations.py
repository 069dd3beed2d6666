"""Sphinx extension: what torch functions do with packed types, from the dispatch table itself.

The directive ``operations`` says how many functions there are of each class, and lists them by
what they do: those computed on packed storage with the types they take and give, those that convert
to dense, and those that raise.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from itertools import groupby
from numbers import Number

import torch
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from packedtri import Hermitian, LowerTriangular, Symmetric, UpperTriangular
from packedtri._values import function_name
from packedtri.dispatch import Function, How, classify, rest, rows

_LETTERS: dict[type, str] = {
    LowerTriangular: "L",
    UpperTriangular: "U",
    Symmetric: "S",
    Hermitian: "H",
    torch.Tensor: "dense",
    Number: "number",
}
_PACKED = ("L", "U", "S", "H")
_OPERANDS = (*_PACKED, "dense", "number")

# What a function gives for operands of the first types, by their letters.
Results = dict[tuple[str, ...], str]

# Functions for tensors of other kinds and for other devices, and forms of functions that torch uses
# inside: they convert, raise or pass like others, but nobody looks for them here.
_LEFT_OUT = re.compile(
    r"""(quantized|fbgemm|miopen|q|quantize|fake_quantize|fused|choose_qparams)_.*"""
    r"""|(?!index_copy).*_copy|.*(sparse|mkldnn).*|batch_norm_.*|(c?col|c?row)_indices|indices"""
    r"""|values|sspaddmm|saddmm|hsmm|smm|dsmm|coalesce|int_repr|dequantize|qscheme|hash_tensor"""
    r"""|slice_inverse|dim_order|ipu|mtia|xpu|to_dense|sym_.*|const_data_ptr"""
)

# Families of functions by the names of their modules, in the order in which they are listed.
_FAMILIES = {
    "torch.linalg": "`torch.linalg`",
    "torch.special": "`torch.special`",
    "torch.fft": "`torch.fft`",
    "torch.nn.functional": "`torch.nn.functional`",
    "torch.nn.init": "`torch.nn.init`",
    "torch.distributed": "`torch.distributed`",
}
_OTHERS = "`torch` and `torch.Tensor`"


def operations_markdown() -> str:
    """The table as Markdown, with the coverage of torch's functions."""
    families = _families()
    fixed, dependent = _results()
    unary = {n: r for n, r in fixed.items() if all(len(types) == 1 for types in r)}
    alike = {n: r for n, r in fixed.items() if n not in unary and _is_of_equal_types(r)}
    others = {n: r for n, r in fixed.items() if n not in unary and n not in alike}
    classes = coverage()
    native = _names(classes["native"]) | dependent | set(fixed)
    dense, refused = (_names(classes[how]) - native for how in ("dense", "refused"))
    in_place = {n for n in native if n.endswith("_")} - dependent - set(fixed)
    passed = native - in_place - dependent - set(fixed)
    parts = [
        _summary(classes),
        "## Functions of one matrix",
        _lined_up(unary, 1),
        "## Functions of two matrices of the same type",
        _lined_up(alike, 2),
        "## Other functions of two operands",
        "The first operand stands at the left, the second above. Operands that a table does not "
        "have are converted.",
        *_squares(others),
        "## Results that depend on the arguments",
        "Functions of the tables above whose result depends on the arguments as well, so that more "
        "operands than the tables show keep the type: `L ** 2` does, `L ** 0` does not.",
        _by_family(dependent & fixed.keys(), families),
        "Functions whose result always depends on the arguments, and that keep the type where they "
        "can:",
        _by_family(dependent - fixed.keys(), families),
        "## Functions in place",
        "Where the result still has the type of the matrix; otherwise they raise an error.",
        _folded(in_place, families),
        "## Properties of a tensor",
        "They ask for its shape, type, device or graph, and work as for any tensor.",
        _folded(passed, families),
        "## Functions that always convert",
        "They convert to dense first, differentiably, and give a dense result.",
        _folded(dense, families),
        "## Functions that raise an error",
        _folded(refused - dense, families),
        "Left out of these lists are functions for sparse and quantized tensors and for other "
        "devices, and the forms of functions that torch uses inside (`…_copy`). They follow the "
        "same rules.",
    ]
    return "\n\n".join(parts)


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


def _results() -> tuple[dict[str, Results], set[str]]:
    """What each function gives, where it has a rule by types, and those with results that depend.

    The former name every combination of types that the function has a row for; those whose result
    the row does not tell are said to depend.
    """
    told: dict[str, Results] = defaultdict(dict)
    depending: dict[str, Results] = defaultdict(dict)
    dependent: set[str] = set()
    others: dict[str, str] = {}
    for row in rows():
        name = _short_name(row.function)
        if name is None or row.how != "native":
            continue
        others[name] = "depends" if rest(row.function).how in ("native", "passed") else "converts"
        types = tuple(_LETTERS.get(t, "") for t in row.types)
        if row.result in _LETTERS and types and all(types):
            told[name][types] = _LETTERS[row.result]
        else:
            dependent.add(name)
            depending[name][types] = "depends"
    for name, results in told.items():
        for types, result in depending[name].items():
            results.setdefault(types, result)
        results[()] = others[name]
    return {name: _of_one_length(results) for name, results in told.items()}, dependent


def _of_one_length(results: Results) -> Results:
    """The results for as many types as rules tell; what other operands get is named by ()."""
    told = [types for types, result in results.items() if types and result != "depends"]
    count = max(map(len, told))
    found = {types: result for types, result in results.items() if len(types) == count}
    missing = results[()]
    operands = _PACKED if count == 1 else _OPERANDS
    for types in [(a,) for a in operands] if count == 1 else _pairs():
        found.setdefault(types, missing)
    return found


def _pairs() -> list[tuple[str, str]]:
    return [(a, b) for a in _OPERANDS for b in _OPERANDS if a in _PACKED or b in _PACKED]


def _is_of_equal_types(results: Results) -> bool:
    """Whether a type is told only for two matrices of it."""
    return all(
        (types[0] == types[1] and result in (types[0], "depends"))
        or result in ("converts", "depends")
        for types, result in results.items()
    )


def _lined_up(functions: dict[str, Results], count: int) -> str:
    """A table with a column for each type."""
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, results in functions.items():
        groups[tuple(results[(letter,) * count] for letter in _PACKED)].append(name)
    lines = [
        "| " + " | ".join([_listed(groups[cells]), *cells]) + " |"
        for cells in sorted(groups, key=lambda cells: (-len(groups[cells]), cells))
    ]
    head = ["| functions | L | U | S | H |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([*head, *lines])


def _squares(functions: dict[str, Results]) -> list[str]:
    """A table of first and second operands for each group of functions."""
    groups: dict[tuple[tuple[tuple[str, ...], str], ...], list[str]] = defaultdict(list)
    for name, results in functions.items():
        groups[tuple(sorted(results.items()))].append(name)
    parts = []
    for key, names in sorted(groups.items(), key=lambda group: min(group[1])):
        results = dict(key)
        # Operands with which everything is converted are left out.
        told = [types for types, result in results.items() if result != "converts"]
        first, second = (
            [x for x in _OPERANDS if x in {types[at] for types in told}] for at in (0, 1)
        )
        head = ["| | " + " | ".join(second) + " |", "|" + " --- |" * (len(second) + 1)]
        lines = [
            "| " + " | ".join([f"**{a}**", *(results.get((a, b), "") for b in second)]) + " |"
            for a in first
        ]
        parts += [f"{_listed(names)}:", "\n".join([*head, *lines])]
    return parts


def _families() -> dict[str, str]:
    """The family of each function that torch knows or the table has, by its short name."""
    functions = [*torch.overrides.get_testing_overrides(), *(row.function for row in rows())]
    found: dict[str, str] = {}
    for function in functions:
        module = function_name(function).removesuffix(".__get__").rpartition(".")[0]
        if name := _short_name(function):
            # What torch has under several names is looked for in torch itself.
            family = _FAMILIES.get(module, _OTHERS)
            found[name] = family if found.get(name, family) == family else _OTHERS
    return found


def _by_family(names: Iterable[str], families: dict[str, str]) -> str:
    """A list with an item for each family."""
    order = [_OTHERS, *_FAMILIES.values()]
    shown = sorted(
        (n for n in names if not _LEFT_OUT.fullmatch(n)),
        key=lambda n: (order.index(families[n]), n),
    )
    return "\n".join(
        f"- {family}: {_listed(group)}" for family, group in groupby(shown, lambda n: families[n])
    )


def _folded(names: Iterable[str], families: dict[str, str]) -> str:
    """The same, folded away where the output can do that."""
    return (
        f"<details><summary>Show the list</summary>\n\n{_by_family(names, families)}\n\n</details>"
    )


def _names(functions: Iterable[Function]) -> set[str]:
    return {name for function in functions if (name := _short_name(function))}


def _short_name(function: Function) -> str | None:
    """The function's name without its module; None for operators and private functions."""
    name = function_name(function).removesuffix(".__get__").rpartition(".")[2]
    return None if name.startswith("_") else name


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


class Operations(SphinxDirective):
    """Puts the table where it stands."""

    def run(self) -> list[nodes.Node]:
        """Parse the Markdown of the table in place."""
        container = nodes.section()
        container.document = self.state.document
        lines = StringList(operations_markdown().splitlines(), source="packedtri.dispatch")
        self.state.nested_parse(lines, self.content_offset, container, match_titles=True)
        return container.children


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("operations", Operations)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
