"""The program that times the products of benchmarks/shares again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PROGRAM = ROOT / "benchmarks" / "time_shares.py"
SHARES = ROOT / "benchmarks" / "shares"
FILES = ("nvidia-h200", "beside-dense-nvidia-h200", "tile-images-nvidia-h200")


@pytest.fixture(scope="module")
def time_shares() -> Any:
    spec = spec_from_file_location("time_shares", PROGRAM)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*arguments: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROGRAM), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("name", FILES)
def test_it_knows_every_way_of_its_files(name: str, time_shares: Any) -> None:
    rows = json.loads((SHARES / f"{name}.json").read_text())["rows"]
    for row in rows:
        time_shares.check(row)
    ways = {way: row["n"] for row in rows for way in row["us"] if way != time_shares.DENSE}
    forces = {time_shares.forced(way, n) for way, n in ways.items()}
    # Square tiles of small and of large orders have two.
    assert len(ways) - 1 <= len(forces) <= len(ways) + 1


def test_names_of_ways(time_shares: Any) -> None:
    forced = time_shares.forced
    assert forced("half alone", 1024) == (time_shares.ENGINE, 2, 1, -1, -1)
    assert forced("small 2 from 13", 2048) == (time_shares.ENGINE, 0, 2, 13, -1)
    assert forced("long parts of 2.5", 1024) == (time_shares.MAPPED, 1, -1, -5, -1)
    assert forced("square alone", 128)[0] == time_shares.HOPPER
    for other in ("tiny alone", "half of them", "alone"):
        with pytest.raises(ValueError, match=other):
            forced(other, 1024)


def test_numbers_are_those_of_the_kernels(time_shares: Any) -> None:
    header = (ROOT / "csrc" / "cuda" / "config.h").read_text()
    methods, tiles = (
        [name.strip() for name in re.sub(r"//.*", "", body).split(",") if name.strip()]
        for body in re.findall(r"enum class (?:Method|TileSize) : int32_t \{(.*?)\}", header, re.S)
    )
    if "Direct" not in methods:
        methods, tiles = tiles, methods
    named = {"ENGINE": "Engine", "HOPPER": "Hopper", "MAPPED": "Mapped"}
    for constant, method in {**named, "SHARED_IMAGES": "SharedImages"}.items():
        assert getattr(time_shares, constant) == methods.index(method)
    for way, tile in {"small": "Small", "large": "Large", "half": "Half"}.items():
        assert time_shares.TILES[way][1] == tiles.index(tile)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("float64-nvidia-h200", "cannot time the way"),
        ("elongated-nvidia-h100-80gb-hbm3", "cannot time the operation"),
        ("shared-images-nvidia-h100-80gb-hbm3", "cannot time the operation"),
        ("tf32-nvidia-h200", "tf32-nvidia-h200.json: there is no 'dtype'"),
    ],
)
def test_other_files_are_refused(name: str, words: str, tmp_path: Path) -> None:
    result = run(SHARES / f"{name}.json", tmp_path / "output.json")
    assert result.returncode == 2 and words in result.stderr
    assert not (tmp_path / "output.json").exists()


def test_files_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    for source, words in ((tmp_path / "none.json", "No such file"), (broken, "broken.json")):
        result = run(source, tmp_path / "output.json")
        assert result.returncode == 2 and words in result.stderr
        assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[1, 2]", "there is no 'meta' in [1, 2]"),
        ('{"meta": {}}', "there is no 'rows' in"),
        ('{"meta": {}, "rows": [3]}', "there is no 'op' in 3"),
        ('{"meta": {}, "rows": [{"op": "L@L", "dtype": "float32", "n": 4}]}', "there is no 'm' in"),
    ],
)
def test_files_without_what_is_needed_are_told(
    content: str,
    words: str,
    time_shares: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = tmp_path / "source.json"
    source.write_text(content)
    monkeypatch.setattr(sys, "argv", ["time_shares.py", str(source), str(tmp_path / "output.json")])
    with pytest.raises(SystemExit, match="2"):
        time_shares.main()
    assert f"{source}: {words}" in capsys.readouterr().err


def test_timings_are_not_written_over(tmp_path: Path) -> None:
    source = tmp_path / "source.json"
    source.write_text('{"meta": {}, "rows": []}')
    result = run(source, tmp_path / ".." / tmp_path.name / "source.json")
    assert result.returncode == 2 and "would be lost" in result.stderr
    assert source.read_text() == '{"meta": {}, "rows": []}'


@pytest.mark.cuda
def test_it_times_rows_on_this_gpu(tmp_path: Path) -> None:
    ways = ["free", "else", "engine", "dense", "small alone"]
    row = {"op": "L@L", "dtype": "bfloat16", "precision": "highest", "n": 640, "m": 640, "us": ways}
    source, target = tmp_path / "source.json", tmp_path / "target.json"
    source.write_text(json.dumps({"meta": {}, "rows": [row, row | {"batch": 3}]}))
    result = run(source, target)
    assert result.returncode == 0, result.stderr
    timed = json.loads(target.read_text())
    assert timed["meta"]["device"] and len(timed["rows"]) == 2
    for timed_row in timed["rows"]:
        assert list(timed_row["us"]) == ways
        assert all(0 < us < 1e4 for us in timed_row["us"].values())
