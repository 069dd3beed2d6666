"""The command that measures: what it times, what it writes, and what it says of both."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from commands import refusal, run
from typer.testing import CliRunner

from packedtri._cli import bench, report, sizes, timing
from packedtri._cli.app import app
from packedtri._cli.cases import CASES, Problem

pytestmark = pytest.mark.usefixtures("short_samples")

CPU = torch.device("cpu")
ROW_KEYS = {
    "op", "dtype", "precision", "n", "m", "batch", "ms", "dense_ms", "ratio", "error",
    "dense_error", "kernel",
}  # fmt: skip
META_KEYS = {"device", "driver", "cuda", "torch", "python", "commit", "date", "threads"}


def test_bench_writes_results_in_the_schema(tmp_path: Path) -> None:
    run("bench", "--device", "cpu", "--n", 24, "--batched-n", 5, "--batch", 3, "--output", tmp_path)
    content = json.loads((tmp_path / "bench.json").read_text())
    assert content["meta"].keys() >= META_KEYS
    rows = content["rows"]
    assert {(r["op"], r["n"], r["batch"]) for r in rows} == {
        (op, n, batch)
        for op, case in CASES.items()
        for n, batch in ((24, 1), (5, 3))
        if batch > 1 or not case.only_batched
    }
    for row in rows:
        assert row.keys() >= ROW_KEYS
        assert row["ratio"] == pytest.approx(row["dense_ms"] / row["ms"])
        assert row["timing"] == "wall clock"
        assert max(row["error"], row["dense_error"]) < 1e-6
    assert (tmp_path / "bench.png").stat().st_size > 10_000


def test_bench_refuses_unknown_operations() -> None:
    assert "'L@Q' is none of L@L" in refusal("bench", "--op", "L@Q")


def test_bench_runs_the_chosen_operations(tmp_path: Path) -> None:
    chosen = ["--op", "cholesky", "--op", "S@x"]
    run("bench", "--device", "cpu", "--n", 9, "--no-plot", "--output", tmp_path, *chosen)
    rows = json.loads((tmp_path / "bench.json").read_text())["rows"]
    assert [(row["op"], row["m"]) for row in rows] == [("cholesky", 9), ("S@x", 1)]


def test_bench_records_the_commit_that_it_is_told(tmp_path: Path) -> None:
    chosen = ["--op", "L@L", "--n", 4, "--no-plot", "--output", tmp_path]
    run("bench", "--device", "cpu", *chosen, "--commit", "of mine")
    assert json.loads((tmp_path / "bench.json").read_text())["meta"]["commit"] == "of mine"


def test_bench_marks_what_was_disturbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = iter([0.0, timing.CPU_WAITED, 0.9 * timing.CPU_WAITED, 3.0])
    measure = bench.measure
    fixed = {"dense_ms": 1.0, "ms": 0.5, "ratio": 2.0}
    monkeypatch.setattr(bench, "measure", lambda *a: measure(*a) | fixed | {"waited": next(waited)})
    chosen = ["--op", "L@L", "--n", "4:32:x2", "--no-plot", "--output", tmp_path]
    output = run("bench", "--device", "cpu", *chosen)
    rows = [line for line in output.splitlines() if "2.00×" in line]
    assert ["* 2.00×" in row for row in rows] == [False, True, False, True]
    assert "* Disturbed by other programs on this machine: 2 of 4 cases. Measure" in output


def test_bench_ends_where_there_is_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No machine has so large an address space.
    sizes = ["--n", 8, "--n", 999_999_999]
    arguments = ["bench", "--device", "cpu", "--op", "L@L", *sizes, "--output", tmp_path]
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    case = "L@L, float32, n = 999999999, m = 999999999"
    assert f"There is not enough memory for {case}. What was measured" in result.output
    assert [row["n"] for row in json.loads((tmp_path / "bench.json").read_text())["rows"]] == [8]

    def broken(*_: object) -> None:
        raise RuntimeError("a kernel failed")

    # Other errors are of the program, and show where.
    monkeypatch.setattr(bench, "measure", broken)
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert "a kernel failed" in str(result.exception)


def test_bench_refuses_numbers_that_torch_cannot_take() -> None:
    assert "--threads 100000: more than the" in refusal("bench", "--threads", 100_000)
    message = refusal("bench", "--batched-n", 4, "--batch", 10**30)
    assert "Invalid value for '--batch'" in message


def test_sizes_are_numbers_and_ranges() -> None:
    assert sizes.sizes(["7", "3", "7"]) == [3, 7]
    assert sizes.sizes(["32:256:x2", "48:200:x2"]) == [32, 48, 64, 96, 128, 192, 256]
    assert sizes.sizes(["10:30:x1.4"]) == [10, 14, 20, 27]
    assert sizes.sizes(["64", "65"], ragged=True) == [64, 65, 66]


@pytest.mark.parametrize(
    "text",
    [
        *["0", "-3", "ten", "8:4:x2", "8:64:x1", "8:64:2", "0:64:x2", "8:64"],
        # Too large for torch, or for anybody to wait for.
        *["9999999999", "8:9999999999:x2", "8:64:x9999999999", "8:64:x1.0000001"],
    ],
)
def test_bad_sizes_are_explained(text: str) -> None:
    assert f"'{text}' is no size: use a positive integer" in refusal("bench", f"--n={text}")


def test_columns_are_those_of_dense_operands() -> None:
    ops = ["L@L", "L@dense", "one L@dense", "L@x"]
    found = bench.problems(ops, [8], [torch.float32], CPU, [1, 16], [4], 3)
    assert [(p.op, p.n, p.m, p.batch) for p in found] == [
        ("L@L", 8, 8, 1),
        ("L@L", 4, 4, 3),
        ("L@dense", 8, 1, 1),
        ("L@dense", 8, 16, 1),
        ("L@dense", 4, 1, 3),
        ("L@dense", 4, 16, 3),
        ("one L@dense", 4, 1, 3),
        ("one L@dense", 4, 16, 3),
        ("L@x", 8, 1, 1),
        ("L@x", 4, 1, 3),
    ]


def test_bench_sweeps_and_names_what_is_slower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ratios = iter([1.5, 0.5, 0.25, 1.0])
    measure = bench.measure
    monkeypatch.setattr(bench, "measure", lambda *a: measure(*a) | {"ratio": next(ratios)})
    grid = ["--op", "S@dense", "--n", "4:8:x2", "--ragged", "--m", 3, "--quick"]
    output = run("bench", "--device", "cpu", *grid, "--output", tmp_path)
    assert "Slower than dense torch: 2 of 4 cases." in output
    content = json.loads((tmp_path / "bench.json").read_text())
    assert content["meta"]["quick"] is True
    assert [(r["n"], r["m"], r["samples"]) for r in content["rows"]] == [
        (n, 3, timing.QUICK.least_samples) for n in (4, 5, 8, 9)
    ]
    case = {"op": "S@dense", "dtype": "float32", "precision": "highest", "m": 3, "batch": 1}
    assert content["slower"] == [case | {"n": 8, "ratio": 0.25}, case | {"n": 5, "ratio": 0.5}]


@pytest.mark.parametrize(
    ("op", "limit"),
    [
        *[("L@L", 6), ("L@L backward", 6), ("L@L.mT", 6), ("L@U", 3), ("S@S", 2), ("L@dense", 2)],
        *[("S@dense", 1), ("L@x", 2), ("S@x", 2), ("cholesky", 1), ("inverse", 3), ("pack", None)],
    ],
)
def test_limits_of_the_ratio(op: str, limit: float | None) -> None:
    assert CASES[op].limit == (None if limit is None else pytest.approx(limit))


def drawn_lines(rows: list[dict], path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list]:
    """The lines in every panel of a plot, as lists of x and y."""
    figures: list = []
    monkeypatch.setattr(report, "_save", lambda figure, _: figures.append(figure))
    report.bench_plot(rows, "a device", path)
    (figure,) = figures
    return [
        [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines]
        for axes in figure.axes
    ]


def test_plot_has_times_ratios_and_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"op": "L@L", "dtype": "float32", "precision": "highest", "batch": 1}
    rows = [row | {"n": n, "m": n, "ms": n / 8, "dense_ms": n, "ratio": 8} for n in (8, 4, 5)]
    times, ratios = drawn_lines(rows, tmp_path, monkeypatch)
    assert times == [([4, 8], [0.5, 1]), ([4, 8], [4, 8]), ([5], [0.625]), ([5], [5])]
    *drawn, one, limit = ratios
    assert drawn == [([4, 8], [8, 8]), ([5], [8])]
    assert one[1] == [1, 1]
    assert limit[1] == pytest.approx([6, 6])


def test_plot_keeps_given_columns_on_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"op": "L@dense", "dtype": "float32", "precision": "highest", "batch": 1}
    shapes = [(8, 8), (16, 8), (8, 16), (16, 16)]
    rows = [row | {"n": n, "m": m, "ms": 1, "dense_ms": 2, "ratio": 2} for n, m in shapes]
    _, ratios = drawn_lines(rows, tmp_path, monkeypatch)
    assert [x for x, _ in ratios if x == [8, 16]] == [[8, 16]] * 2


def test_bench_sets_the_precision(tmp_path: Path) -> None:
    chosen = ["--op", "L@L", "--n", 9, "--no-plot", "--output", tmp_path]
    run("bench", "--device", "cpu", *chosen)
    (row,) = json.loads((tmp_path / "bench.json").read_text())["rows"]
    assert row["precision"] == "highest"
    run("bench", "--device", "cpu", *chosen, "--tf32", "--precision", "high")
    run("bench", "--device", "cpu", *chosen, "--tf32")
    (row,) = json.loads((tmp_path / "bench.json").read_text())["rows"]
    assert row["precision"] == "high"
    assert bench.precision(torch.float32, torch.device("cuda")) == "tf32"
    assert bench.precision(torch.float64, torch.device("cuda")) == "highest"


def test_bench_counts_conversions(tmp_path: Path) -> None:
    chosen = ["--op", "L@L", "--op", "pack", "--op", "cholesky", "--no-plot"]
    run("bench", "--device", "cpu", "--n", 9, "--conversions", "--output", tmp_path, *chosen)
    content = json.loads((tmp_path / "bench.json").read_text())
    assert content["meta"]["conversions"] is True
    assert [row["op"] for row in content["rows"]] == ["L@L", "cholesky"]
    assert all("with conversions" in row["baseline"] for row in content["rows"])


@pytest.mark.cuda
def test_bench_counts_what_the_host_does(tmp_path: Path) -> None:
    chosen = ["--op", "L@L", "--no-plot", "--quick"]
    run("bench", "--device", "cuda", "--n", 9, "--calls", "--output", tmp_path, *chosen)
    content = json.loads((tmp_path / "bench.json").read_text())
    assert content["meta"]["calls"] is True
    assert [row["timing"] for row in content["rows"]] == ["cuda stream"]


@pytest.mark.cuda
def test_bench_under_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_LOAD_MS", 20.0)
    chosen = ["--op", "L@L", "--no-plot", "--under-load"]
    run("bench", "--device", "cuda", "--n", 9, "--output", tmp_path, *chosen)
    content = json.loads((tmp_path / "bench.json").read_text())
    assert content["meta"]["under_load"] is True
    assert [row["samples"] for row in content["rows"]] == [timing.FULL.least_samples]


def test_passes_under_load(monkeypatch: pytest.MonkeyPatch) -> None:
    class Event:
        at = 0.0

        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.at = now

        def synchronize(self) -> None:
            pass

        def elapsed_time(self, end: Event) -> float:
            return end.at - self.at

    now = 0.0

    def run() -> None:
        nonlocal now
        # What comes first takes longer, until the clock has settled.
        now += 10.0 if now < 30 else 8.0

    effort = timing.FULL.under_load()
    assert effort.gpu_samples == effort.least_samples and effort.gpu_load_ms > 100
    monkeypatch.setattr(torch.cuda, "Event", Event)
    assert timing.cuda_pass((run, 2), load=3) == 4.0
    assert now == 3 * 10 + 3 * 8
    assert timing.cuda_pass((run, 2)) == 4.0


@pytest.mark.parametrize("op", [op for op, case in CASES.items() if case.converts])
def test_converting_gives_what_the_packed_operation_gives(op: str) -> None:
    done = CASES[op].setup(Problem(op, 6, 3, 2, torch.float64, CPU))
    assert done.converting is not None
    ours, theirs = done.packed(), done.converting()
    assert type(ours) is type(theirs)
    torch.testing.assert_close(ours, theirs)


def test_bench_leaves_out_what_dense_torch_has_not() -> None:
    dtypes = [torch.bfloat16, torch.float32]
    found = bench.problems(["cholesky", "L@L"], [8], dtypes, CPU)
    assert [(p.op, p.dtype) for p in found] == [
        ("cholesky", torch.float32),
        ("L@L", torch.bfloat16),
        ("L@L", torch.float32),
    ]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--op", "inverse", "--dtype", "float16"], "inverse (dense torch has none in float16)"),
        (["--op", "pack", "--conversions"], "pack (not compared with --conversions)"),
        (
            ["--op", "one L@dense"],
            "one L@dense (needs batches: give their orders with --batched-n)",
        ),
    ],
)
def test_bench_says_why_it_leaves_out_what_was_asked_for(
    arguments: list[str], reason: str, tmp_path: Path
) -> None:
    arguments = ["bench", "--device", "cpu", "--n", "4", *arguments]
    assert f"there is nothing to measure: {reason}" in refusal(*arguments)
    beside = ["--op", "L@L", "--no-plot", "--output", tmp_path]
    assert f"Left out: {reason}.\n" in run(*arguments, *beside)


def test_bench_says_nothing_of_what_was_not_asked_for(tmp_path: Path) -> None:
    arguments = ["--dtype", "float16", "--dtype", "float32", "--no-plot", "--output", tmp_path]
    output = run("bench", "--device", "cpu", "--n", 4, *arguments)
    assert "Left out" not in output
    arguments += ["--op", "one L@dense", "--op", "cholesky"]
    output = run("bench", "--device", "cpu", "--n", 4, "--batched-n", 3, *arguments)
    # In one of two dtypes; there are batches.
    assert output.count("Left out") == 1
    assert "Left out: cholesky (dense torch has none in float16).\n" in output


def test_bench_refuses_options_without_effect(tmp_path: Path) -> None:
    assert "--batch is for batches" in refusal("bench", "--device", "cpu", "--batch", 256)
    message = refusal("bench", "--device", "cpu", "--op", "L@x", "--op", "L@L", "--m", 3)
    assert "--m is for dense operands of many columns, as syrk, L@dense" in message
    for mode in ("highest", "medium"):
        message = refusal("bench", "--device", "cpu", "--tf32", "--precision", mode)
        assert f"--tf32 stands for --precision high: leave out --precision {mode}" in message
    assert "--calls is for a GPU" in refusal("bench", "--device", "cpu", "--calls")
    assert "--under-load is for a GPU" in refusal("bench", "--device", "cpu", "--under-load")


@pytest.mark.parametrize("op", list(CASES))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.complex64])
@pytest.mark.parametrize("batch", [1, 3])
def test_works_compute_the_same_on_both_sides(op: str, dtype: torch.dtype, batch: int) -> None:
    if dtype.itemsize == 2 and not CASES[op].sixteen_bits:
        pytest.skip("dense torch has none in 16-bit types")
    problem = Problem(op, 17, 1 if CASES[op].columns == "1" else 5, batch, dtype, CPU)
    job = CASES[op].setup(problem)
    tolerance = 4 * torch.finfo(dtype).eps
    assert job.error(job.dense()) < tolerance
    assert job.error(job.packed()) < tolerance


@pytest.mark.parametrize("op", ["L@L", "L@L.mT", "cholesky", "inverse"])
def test_errors_see_a_wrong_result(op: str) -> None:
    job = CASES[op].setup(Problem(op, 17, 17, 1, torch.float64, CPU))
    result = job.packed()
    result.packed[30] += 1.0
    assert job.error(result) > 1e-2


@pytest.mark.cuda
@pytest.mark.parametrize("op", list(CASES))
@pytest.mark.parametrize(
    ("n", "graph_below_ms", "method"), [(48, 100.0, "cuda graph"), (3000, 0.0, "cuda stream")]
)
def test_gpu_timing(
    op: str, n: int, graph_below_ms: float, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "_GRAPH_BELOW_MS", graph_below_ms)
    columns = 1 if CASES[op].columns == "1" else n
    problem = Problem(op, n, columns, 1, torch.float32, torch.device("cuda"))
    row = bench.measure(problem, timing.FULL)
    assert row["ms"] > 0
    assert row["error"] < 1e-5
    if op == "L@L":
        assert row["timing"] == method
