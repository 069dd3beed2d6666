"""Runs the examples of the README, the documentation and the docstrings."""

from __future__ import annotations

import doctest
import importlib
import json
import pkgutil
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import packedtri

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# An opening fence with its language, and what stands up to the closing one.
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL

MODULES = [
    module.name
    for module in pkgutil.walk_packages(packedtri.__path__, "packedtri.")
    if not module.name.startswith(("packedtri._cli", "packedtri.__main__", "packedtri._packedtri"))
]


def examples_of(page: Path) -> str:
    """The Python examples of a page, as one session."""
    return "\n".join(FENCE.findall(page.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "page", [p for p in PAGES if examples_of(p)], ids=lambda p: str(p.relative_to(ROOT))
)
def test_examples_of_pages(page: Path) -> None:
    examples = examples_of(page)
    assert ">>>" in examples, "Python examples are sessions, so that they can be run"
    test = doctest.DocTestParser().get_doctest(examples, {}, page.name, str(page), 0)
    assert doctest.DocTestRunner(optionflags=FLAGS).run(test).failed == 0


@pytest.mark.parametrize("name", ["packedtri", *MODULES])
def test_examples_of_docstrings(name: str) -> None:
    module = importlib.import_module(name)
    finder = doctest.DocTestFinder()
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    # The types come from packedtri and torch, as a user has them.
    names = {**vars(module), **vars(packedtri), "torch": sys.modules["torch"]}
    for test in finder.find(module, name, globs=names):
        runner.run(test)
    assert runner.failures == 0


def test_the_picture_is_what_its_script_draws() -> None:
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        picture = importlib.import_module("draw_storage")
    finally:
        sys.path.pop(0)
    assert picture.PICTURE.read_text(encoding="utf-8") == picture.draw()


def test_command_line_page_names_every_option() -> None:
    pytest.importorskip("typer")
    app = importlib.import_module("packedtri._cli.app").app
    commands = importlib.import_module("typer.main").get_command(app).commands
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for name, command in commands.items():
        section = page.partition(f"## `{name}`")[2].partition("\n## ")[0]
        assert section
        options = [o for p in command.params for o in (*p.opts, *p.secondary_opts)]
        named = set(
            re.findall(r"--[a-z0-9-]+", "".join(re.findall(r"(?m)^\| (`--.*?) \|", section)))
        )
        assert named == set(options) - {"--help"}
    fields = set(re.findall(r"`(\w+)`", "".join(re.findall(r"(?m)^\| (`[a-z].*?) \|", page))))
    row = json.loads(sorted(RESULTS.glob("*/*.json"))[-1].read_text())["rows"][-1]
    assert fields == set(row)


def extension(name: str) -> ModuleType:
    """One of our own extensions of Sphinx."""
    pytest.importorskip("sphinx")
    sys.path.insert(0, str(ROOT / "docs" / "_ext"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


@pytest.fixture
def performance() -> ModuleType:
    pytest.importorskip("packedtri._cli.report")
    return extension("performance")


@pytest.fixture(scope="module")
def operations() -> ModuleType:
    return extension("operations")


def test_operations_page_names_every_function(operations) -> None:
    text = operations.operations_markdown()
    functions = torch.overrides.get_testing_overrides()
    names = {operations._short_name(function) for function in functions} - {None}
    missing = {name for name in names if f"`{name}`" not in text}
    assert {name for name in missing if not operations._LEFT_OUT.fullmatch(name)} == set()
    assert not operations._LEFT_OUT.fullmatch("addmm")


def test_operations_page_tells_what_depends_on_arguments(operations) -> None:
    text = operations.operations_markdown()
    beside_the_tables = text.partition("## Results that depend")[2].partition("Functions whose")[0]
    for name in ("pow", "remainder", "floor_divide", "fmod"):
        assert f"`{name}`" in beside_the_tables


@pytest.mark.parametrize("name", ["sqrt", "exp", "log", "abs", "erf", "det", "inverse"])
def test_operations_page_tells_types_of_results(operations, name: str) -> None:
    [line] = [
        line
        for line in operations.operations_markdown().partition("two matrices")[0].splitlines()
        if f"`{name}`" in line
    ]
    cells = [cell.strip() for cell in line.strip("|").split("|")][1:]
    types = (packedtri.LowerTriangular, packedtri.UpperTriangular, packedtri.Symmetric)
    for cls, cell in zip(types, cells, strict=False):
        matrix = cls.eye(3) * 2
        letter = {torch.Tensor: "dense"} | {t: t.__name__[0] for t in types}
        result = letter[type(getattr(torch, name)(matrix))]
        assert result == ("dense" if cell == "converts" else cell)


def results_file(folder: Path, name: str, rows: list[dict], **meta: object) -> None:
    """Write a file of results as ``python -m packedtri bench`` does."""
    facts = {"device": "a device", "torch": "2.x", "commit": "abc", "date": "2026-01-02T03:04:05"}
    (folder / "device").mkdir(exist_ok=True)
    content = {"meta": facts | meta, "rows": rows}
    (folder / "device" / f"{name}.json").write_text(json.dumps(content))


ROW = {"op": "L@L", "dtype": "float32", "precision": "highest", "n": 4096, "m": 4096, "batch": 1}
ROW |= {
    "ms": 0.5,
    "dense_ms": 2.25,
    "ratio": 4.5,
    "error": 1e-7,
    "dense_error": 2e-7,
    "kernel": "k",
}


def test_performance_page_without_results(performance, tmp_path: Path) -> None:
    assert "No results" in performance.results_markdown(tmp_path, tmp_path, tmp_path)
    assert "No results" in performance.slower_markdown(tmp_path)


def test_performance_page_shows_every_row(performance, tmp_path: Path) -> None:
    results_file(tmp_path, "run", [ROW, {**ROW, "n": 8192, "m": 8192}])
    text = performance.results_markdown(tmp_path / "plots", tmp_path, tmp_path)
    assert "## a device: run" in text
    assert "torch 2.x" in text
    assert "driver" not in text
    assert "packedtri commit abc" in text
    assert "few samples" not in text
    assert "4,096" in text
    assert "8,192" in text
    assert text.count("**4.50**") == 2
    assert "](<plots/device/run.svg>)" in text
    assert (tmp_path / "plots" / "device" / "run.svg").stat().st_size > 10_000


def test_performance_page_names_files_of_many_rows(performance, tmp_path: Path) -> None:
    results_file(tmp_path, "sweep", [{**ROW, "n": n, "m": n} for n in range(1, 302)])
    results_file(tmp_path, "run", [{**ROW, "n": n, "m": n} for n in range(1, 301)])
    text = performance.results_markdown(tmp_path / "plots", tmp_path, tmp_path)
    assert "All 301 cases: `benchmarks/results/device/sweep.json`." in text
    assert text.count("**4.50**") == 300


def test_performance_page_says_where_samples_are_few(performance, tmp_path: Path) -> None:
    results_file(tmp_path, "sweep", [ROW], quick=True)
    assert "few samples" in performance.results_markdown(tmp_path, tmp_path, tmp_path)


def test_performance_page_tells_what_dense_torch_converts(performance, tmp_path: Path) -> None:
    results_file(tmp_path, "conversions", [{**ROW, "ratio": 0.5}], conversions=True)
    assert "converts packed operands" in performance.results_markdown(tmp_path, tmp_path, tmp_path)
    assert "No results" in performance.slower_markdown(tmp_path)


def test_performance_page_tells_what_calls_take(performance, tmp_path: Path) -> None:
    results_file(tmp_path, "calls", [{**ROW, "ratio": 0.5}], calls=True)
    assert "what the host does" in performance.results_markdown(tmp_path, tmp_path, tmp_path)
    assert "No results" in performance.slower_markdown(tmp_path)


def test_performance_page_lists_what_is_slower(performance, tmp_path: Path) -> None:
    small, smaller = ({**ROW, "n": n, "m": n, "ratio": r} for n, r in ((1024, 0.5), (512, 0.75)))
    thin = {**ROW, "op": "L@dense", "m": 16, "ratio": 0.25}
    tf32 = {**ROW, "precision": "tf32", "ratio": 0.875}
    results_file(tmp_path, "one", [ROW, small, smaller, thin, tf32])
    text = performance.slower_markdown(tmp_path)
    assert "On a device, 4 of 5 measured cases are slower than dense torch:" in text
    assert text.splitlines()[-3:] == [
        "| L@dense | float32 | 16 | 1 | 4,096 | 1 of 1 | 0.25 (4,096) |",
        "| L@L | float32 | n | 1 | 512–1,024 | 2 of 3 | 0.50 (1,024) |",
        "| L@L | float32, tf32 | n | 1 | 4,096 | 1 of 1 | 0.88 (4,096) |",
    ]
    # The same cases, faster, in a file that comes earlier by name but not by date.
    now = [{**row, "ratio": 2.0} for row in (small, smaller, thin, tf32)]
    results_file(tmp_path, "a", now, date="2026-02-02T03:04:05")
    text = performance.slower_markdown(tmp_path)
    assert text == "On a device, 0 of 5 measured cases are slower than dense torch."


def test_performance_page_sets_odd_orders_apart(performance) -> None:
    measured = [8, 9, 16, 17, 32, 33, 64, 65]
    assert performance._ranges([8, 9, 16, 64], measured) == "8–16, 64"
    assert performance._ranges([8, 16, 32, 64], measured) == "8–64"
    assert performance._ranges([9, 17, 64], measured) == "64, odd 9–17"


def test_every_device_has_a_page_of_results() -> None:
    pages = sorted((ROOT / "docs" / "results").glob("*.md"))
    assert [page.stem for page in pages] == sorted(path.name for path in RESULTS.iterdir())
    for page in pages:
        assert f"{{performance-results}} {page.stem}\n" in page.read_text(encoding="utf-8")


def test_committed_results_can_be_drawn(tmp_path: Path) -> None:
    """One file; building the documentation draws all."""
    report = pytest.importorskip("packedtri._cli.report")
    path, picture = RESULTS / "nvidia-h100-80gb-hbm3" / "float32.json", tmp_path / "plot.svg"
    report.bench_plot(json.loads(path.read_text())["rows"], path.stem, picture)
    assert picture.stat().st_size > 10_000


# A table of ratios names in a comment above it what its results are of; see `ratios_of_table`.
MARKER = re.compile(r"^<!-- ratios (.*) -->\n\n((?:^\|.*\n)+)", re.MULTILINE)
PAGES_WITH_RATIOS = [ROOT / "README.md", ROOT / "docs" / "performance.md"]
# How tables name operations, and how files of results do: the operation, and its columns where
# these are not n.
OPERATIONS: dict[str, tuple[str, int | None]] = {
    "L @ L": ("L@L", None),
    "both gradients": ("L@L backward", None),
    "L @ L.mT": ("L@L.mT", None),
    "S @ S": ("S@S", None),
    "syrk": ("syrk", None),
    "L @ dense": ("L@dense", None),
    "S @ dense": ("S@dense", None),
    "L @ x": ("L@x", 1),
    "S @ x": ("S@x", 1),
    "solve, n right-hand sides": ("solve_triangular", None),
    "solve, one right-hand side": ("solve_triangular vector", 1),
    "Cholesky factor": ("cholesky", None),
    "inverse of L": ("inverse", None),
    "`inv_quad_logdet` with its gradient": ("inv_quad_logdet gradient", None),
}
COLUMNS = re.compile(r"((?:one )?[LS]) @ (\d+) columns")

# Device, with "calls" where the host's part counts, operation, dtype, precision, columns where they
# are not n, batch, and order.
Case = tuple[str, str, str, str, int | None, int, int]


def measured_ratios() -> dict[Case, float]:
    """The newest ratio of every case: with many samples, and without conversions."""
    contents = [
        (path.parent.name, json.loads(path.read_text())) for path in RESULTS.glob("*/*.json")
    ]
    ratios: dict[Case, float] = {}
    for device, content in sorted(contents, key=lambda c: c[1]["meta"]["date"]):
        if content["meta"].get("quick") or content["meta"].get("conversions"):
            continue
        device += " calls" * content["meta"].get("calls", False)
        for row in content["rows"]:
            columns = None if row["m"] == row["n"] else row["m"]
            kind = (row["op"], row["dtype"], row["precision"], columns)
            ratios[(device, *kind, row["batch"], row["n"])] = row["ratio"]
    return ratios


def ratios_of_table(settings: str, table: str) -> dict[Case, str]:
    """The cells of a table, by the cases that they are of.

    A head of ``L @ L`` is followed by types, others by operations, which may be followed by a type.
    """
    given = dict(setting.split("=") for setting in settings.split())
    device = f"{given['device']} {given['of']}" if "of" in given else given["device"]
    head, _, *rows = (
        [cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines()
    )
    orders = [int(cell.removeprefix("n = ")) for cell in head[1:]]
    cells = {}
    for label, *texts in rows:
        *name, last = label.split(", ")
        precision = "highest"
        if last == "TF32 allowed":
            precision, (*name, last) = "tf32", name
        if last in ("float32", "float64", "bfloat16"):
            operation, dtype = ", ".join(name) or head[0], last
        else:
            operation, dtype = ", ".join([*name, last]), given["dtype"]
        if found := COLUMNS.fullmatch(operation):
            op, columns = f"{found[1]}@dense", int(found[2])
        else:
            op, columns = OPERATIONS[operation]
        for order, text in zip(orders, texts, strict=True):
            kind = (op, dtype, precision, columns)
            cells[(device, *kind, int(given.get("batch", 1)), order)] = text
    return cells


def ratio_text(ratio: float | None) -> str:
    """How tables print a ratio: one digit after the point, below 1 two."""
    if ratio is None:
        return ""
    return f"{ratio:.2f}" if ratio < 0.995 else f"{ratio:.1f}"


# The same of a table of one matrix on several GPUs, and how it names functions.
OF_SEVERAL_GPUS = re.compile(
    r"^<!-- several-gpus device=(\S+) dtype=(\S+) -->\n\n((?:^\|.*\n)+)", re.MULTILINE
)
ON_SEVERAL_GPUS = {
    "Cholesky factor": ("cholesky", 1),
    "`inv_quad_logdet` with its gradient": ("inv_quad_logdet with gradient", 1),
    "L @ L": ("L @ L", 1),
    "L @ L.mT": ("L @ L.mT", 1),
    "S @ S": ("S @ S", 1),
    "inverse of L": ("inverse", 1),
    "L @ 8192 columns": ("L @ x", 8192),
    "S @ 8192 columns": ("S @ x", 8192),
    "solve, 8192 right-hand sides": ("solve_triangular", 8192),
    "L @ x": ("L @ x", 1),
    "S @ x": ("S @ x", 1),
    "solve, one right-hand side": ("solve_triangular", 1),
}


def test_tables_of_several_gpus_are_what_was_measured() -> None:
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    tables = OF_SEVERAL_GPUS.findall(text)
    assert tables
    wrong = []
    for device, dtype, table in tables:
        content = json.loads((ROOT / f"benchmarks/several_gpus/{device}.json").read_text())
        measured = {(r["op"], r["m"], r["n"]): r for r in content["rows"] if r["dtype"] == dtype}
        head, _, *rows = (
            [cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines()
        )
        orders = [int(cell.removeprefix("n = ")) for cell in head[1:-1]]
        for label, *cells, memory in rows:
            found = [measured[(*ON_SEVERAL_GPUS[label], n)] for n in orders]
            expected = [ratio_text(r["one_gpu_ms"] / r["ms"]) for r in found]
            expected.append(f"{found[-1]['allocated']:.1f}")
            if [*cells, memory] != expected:
                wrong.append(f"{dtype}, {label}: {cells}, {memory}; measured {expected}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", PAGES_WITH_RATIOS, ids=lambda p: p.name)
def test_tables_of_ratios_are_what_was_measured(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    tables = MARKER.findall(text)
    assert tables
    known = len(tables) + len(OF_SEVERAL_GPUS.findall(text))
    assert known == len(re.findall(r"^\|.*\| n = \d+ \|", text, re.MULTILINE)), (
        "a table of ratios has no comment that says what it is of"
    )
    measured = measured_ratios()
    wrong = [
        f"{case}: {cell or 'nothing'}, measured {ratio_text(measured.get(case)) or 'nothing'}"
        for settings, table in tables
        for case, cell in ratios_of_table(settings, table).items()
        if cell != ratio_text(measured.get(case))
    ]
    assert not wrong, "\n".join(wrong)
