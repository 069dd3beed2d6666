"""Runs the examples of the README, the documentation and the docstrings."""

from __future__ import annotations

import doctest
import importlib
import json
import pkgutil
import re
import sys
from pathlib import Path

import pytest

import packedtri

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# An opening fence with its language, and what stands up to the closing one.
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL

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


@pytest.fixture
def performance() -> object:
    pytest.importorskip("sphinx")
    sys.path.insert(0, str(ROOT / "docs" / "_ext"))
    try:
        return importlib.import_module("performance")
    finally:
        sys.path.pop(0)


def test_performance_page_without_results(performance, tmp_path: Path) -> None:
    assert "No results" in performance.results_markdown(tmp_path)


def test_performance_page_shows_every_row(performance, tmp_path: Path) -> None:
    meta = {"device": "a device", "torch": "2.x", "commit": "abc", "date": "2026-01-02T03:04:05"}
    row = {"op": "L@L", "dtype": "float32", "precision": "highest", "n": 4096, "m": 4096}
    row |= {"batch": 1, "ms": 0.5, "dense_ms": 2.25, "ratio": 4.5, "kernel": "k"}
    row |= {"error": 1e-7, "dense_error": 2e-7}
    (tmp_path / "device").mkdir()
    content = {"meta": meta, "rows": [row, {**row, "n": 8192}]}
    (tmp_path / "device" / "run.json").write_text(json.dumps(content))
    text = performance.results_markdown(tmp_path)
    assert "## a device: run" in text
    assert "torch 2.x" in text
    assert "driver" not in text
    assert "packedtri commit abc" in text
    assert "4,096" in text
    assert "8,192" in text
    assert text.count("**4.50**") == 2
