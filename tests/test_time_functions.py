"""The program that times every function with a packed form."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(output: Path, *options: str) -> subprocess.CompletedProcess[str]:
    program = ROOT / "benchmarks" / "time_functions.py"
    return subprocess.run(
        [sys.executable, str(program), str(output), "--n", "6", "--budget", "0.001", *options],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_calls_of_functions_are_timed_on_both_sides(tmp_path):
    output = tmp_path / "functions.json"
    result = run(output, "--name", "matmul", "--name", "block_diag", "--name", "__getitem__")
    assert result.returncode == 0, result.stderr
    content = json.loads(output.read_text())
    assert content["meta"]["n"] == 6
    rows = content["rows"]
    assert str(len(rows)) in result.stdout
    found = {row["row"].partition("-")[0] for row in rows}
    assert found == {"matmul", "Tensor.matmul", "block_diag", "Tensor.__getitem__"}
    assert [row["ratio"] for row in rows] == sorted(row["ratio"] for row in rows)
    for row in rows:
        assert row["us"] > 0
        assert row["ratio"] * row["us"] == pytest.approx(row["dense_us"])


def test_unknown_names_and_sizes_are_told(tmp_path):
    for options, problem in ((("--name", "nothing"), "nothing"), (("--n", "0"), "at least 1")):
        result = run(tmp_path / "none.json", *options)
        assert result.returncode == 2
        assert problem in result.stderr
        assert not (tmp_path / "none.json").exists()
