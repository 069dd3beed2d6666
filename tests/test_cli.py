"""The command line: its commands run, write what they say, and explain bad input."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import help_of, refusal, run

from packedtri import LowerTriangular, Symmetric
from packedtri._cli import bench, covariance, demo, environment, report, timing, work
from packedtri._cli.app import RealDType

pytestmark = pytest.mark.usefixtures("short_samples")


def spd(n: int) -> torch.Tensor:
    x = torch.randn(n, 2 * n, dtype=torch.float64)
    return x @ x.mT / n + torch.eye(n)


# ------------------------------------------------------------------------------------------ info


def test_info_names_versions_libraries_and_kernels() -> None:
    output = run("info")
    assert torch.__version__ in output
    assert "_packedtri_cpu.so" in output
    assert "CPU kernels" in output


def test_info_prints_brackets_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "kernel", lambda *_, **__: "cpu [packedtri] :warning: foo")
    assert "cpu [packedtri] :warning: foo" in run("info")


def test_info_numbers_gpus_where_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    output = run("info")
    assert "none that torch can use" in output
    assert "GPU 0" not in output


def test_module_runs_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "packedtri", "info"], capture_output=True, text=True, check=True
    )
    assert "packedtri" in done.stdout


def test_missing_extra_is_explained() -> None:
    program = """
        import sys
        sys.modules["typer"] = None
        from packedtri.__main__ import main
        main()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "pip install 'packedtri[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


# ------------------------------------------------------------------------------------------ demo


def saved(matrix: torch.Tensor, path: Path) -> Path:
    """The path, to which the matrix is written as its ending says."""
    with path.open("wb") as file:
        if path.suffix.lower() == ".npy":
            np.save(file, matrix.numpy())
        else:
            torch.save(matrix, file)
    return path


@pytest.mark.parametrize("suffix", [".npy", ".pt"])
def test_demo_on_a_matrix_of_the_user(suffix: str, tmp_path: Path) -> None:
    path = saved(spd(40), tmp_path / f"mine{suffix}")
    output = run("demo", "--matrix", path, "--device", "cpu", "--output", tmp_path / "out")
    assert "n = 40" in output
    assert "L @ L" in output
    assert (tmp_path / "out" / "demo.png").stat().st_size > 10_000


@pytest.mark.parametrize("suffix", [".NPY", ".Pt", ".PTH"])
def test_endings_of_files_may_be_capitals(suffix: str, tmp_path: Path) -> None:
    matrix = spd(5)
    path = saved(matrix, tmp_path / f"mine{suffix}")
    torch.testing.assert_close(covariance.load(path), matrix)


def test_demo_on_a_packed_matrix_of_the_user(tmp_path: Path) -> None:
    packed = Symmetric.from_dense(spd(9)).float()
    for matrix in (packed, torch.nn.Parameter(packed)):
        path = saved(matrix, tmp_path / "mine.pt")
        loaded = covariance.load(path)
        assert type(loaded) is torch.Tensor
        torch.testing.assert_close(loaded, packed.to_dense().double())
    output = run("demo", "--matrix", path, "--device", "cpu", "--output", tmp_path)
    assert "mine.pt, n = 9" in output


@pytest.mark.parametrize("dtype", RealDType)
def test_demo_in_every_dtype(
    dtype: RealDType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "_save", lambda *_: None)
    path = saved(spd(9), tmp_path / "mine.npy")
    where = ["--device", "cpu", "--output", tmp_path]
    output = run("demo", "--matrix", path, "--dtype", dtype.value, *where)
    assert "L @ z" in output
    # Dense torch has no triangular solve in 16-bit types.
    assert ("L⁻¹ Z" in output) == (dtype.value in ("float32", "float64"))


def test_demo_refuses_a_dtype_that_cannot_hold_the_factor(tmp_path: Path) -> None:
    path = saved(1e12 * spd(9), tmp_path / "mine.npy")
    message = refusal("demo", "--matrix", path, "--dtype", "float16", "--output", tmp_path)
    assert "mine.npy: its factor has elements too large for float16" in message


def test_demo_tells_what_was_disturbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["demo", "--matrix", saved(spd(9), tmp_path / "mine.npy"), "--device", "cpu"]
    monkeypatch.setattr(timing, "_waited_s", lambda: 0.0)
    monkeypatch.setattr(report, "_save", lambda *_: None)
    assert "*" not in run(*arguments, "--output", tmp_path)
    monkeypatch.setattr(timing, "_waited_s", time.perf_counter)
    output = run(*arguments, "--output", tmp_path)
    assert output.count("* ") == 9
    assert "* Disturbed by other programs on this machine: 8 of 8 cases. Measure" in output


def test_names_of_files_are_printed_and_drawn_as_they_are(tmp_path: Path) -> None:
    name = r"[bold] $\foo$ :warning:.npy"
    path = saved(spd(9), tmp_path / name)
    # Too long for a line of the console.
    folder = tmp_path / f"[red]{100 * 'x'}"
    output = run("demo", "--matrix", path, "--device", "cpu", "--output", folder)
    assert output.count(f"{name}, n = 9") == 2
    assert f"Plot: {folder}/demo.png\n" in output
    chosen = ["--op", "L@L", "--n", 4, "--output", folder]
    output = run("bench", "--device", "cpu", *chosen)
    assert f"Results: {folder}/bench.json\n" in output
    assert f"Plot: {folder}/bench.png\n" in output


def test_demo_errors_are_small() -> None:
    factor = LowerTriangular.from_dense(torch.linalg.cholesky(spd(70)))
    rows = list(demo.run(factor))
    assert len(rows) == len(demo.jobs(factor))
    assert max(row["error"] for row in rows) < 1e-14
    assert all(row["mebibytes"] < row["dense_mebibytes"] for row in rows)


def test_digits_kernel_is_a_covariance() -> None:
    kernel = covariance.checked(covariance.digits(), "digits")
    assert kernel.shape == (1797, 1797)
    kernel.diagonal().add_(1e-4)
    factor = covariance.factor(kernel, "digits")
    assert work.relative(factor @ factor.mT, kernel) < 1e-12


def broken(name: str) -> torch.Tensor:
    matrix = spd(5)
    if name == "not square":
        return matrix[:4]
    if name == "asymmetric":
        matrix[3, 1] += 1
    if name == "indefinite":
        matrix -= 10 * torch.eye(5)
    if name == "triangular":
        return LowerTriangular.from_dense(matrix)
    if name == "nan":
        matrix[2, 2] = float("nan")
    return matrix.to(torch.complex128) if name == "complex" else matrix


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("not square", "expected a square matrix (n, n); got shape (4, 5)"),
        ("asymmetric", "is not symmetric: element (1, 3)"),
        ("triangular", "is not symmetric: element ("),
        ("indefinite", "is not positive definite"),
        ("nan", "inf or nan"),
        ("complex", "expected real numbers"),
    ],
)
def test_bad_matrices_are_explained(name: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.pt"
    torch.save(broken(name), path)
    assert message in refusal("demo", "--matrix", path)


def test_unreadable_files_are_explained(tmp_path: Path) -> None:
    assert "there is no such file" in refusal("demo", "--matrix", tmp_path / "none.npy")
    (tmp_path / "a.txt").write_text("1 2 3")
    assert "expected one of .npy, .pt, .pth" in refusal("demo", "--matrix", tmp_path / "a.txt")
    (tmp_path / "a.npy").write_text("no array")
    assert "cannot be read" in refusal("demo", "--matrix", tmp_path / "a.npy")
    torch.save({"matrix": spd(3)}, tmp_path / "a.pt")
    assert "expected one tensor; got dict" in refusal("demo", "--matrix", tmp_path / "a.pt")


def test_bad_devices_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "is no device" in refusal("demo", "--device", "gpu")
    if not torch.cuda.is_available():
        assert "torch finds no GPU here" in refusal("demo", "--device", "cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert "'cuda:2': torch finds 2 GPUs here" in refusal("demo", "--device", "cuda:2")


@pytest.mark.parametrize("command", ["demo", "bench"])
def test_seeds_that_torch_refuses_are_explained(command: str) -> None:
    for seed in (2**64, -(2**63) - 1):
        assert f"--seed {seed}: torch takes seeds from" in refusal(command, f"--seed={seed}")


@pytest.mark.parametrize("command", ["demo", "bench"])
def test_no_folder_for_results_is_told_before_the_work(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "time_works", None)
    monkeypatch.setattr(bench, "time_works", None)
    file = tmp_path / "file"
    file.touch()
    arguments = ["--matrix", saved(spd(9), tmp_path / "mine.npy")] if command == "demo" else []
    # Even root makes no file in the last.
    for output in (file, file / "folder", Path("/proc")):
        message = refusal(command, "--device", "cpu", *arguments, "--output", output)
        assert "is no folder that can be written: " in message


def test_help_shows_the_defaults() -> None:
    text = help_of("bench")
    for default in ("all", "256, 1024, 2048; none with --batched-n", "256", "float32", "highest"):
        assert f"[default: ({default})]" in text
    assert "instead of what git tells" in text
    for command in ("bench", "demo"):
        assert "auto" not in help_of(command)
    assert ".npy, .pt or .pth" in help_of("demo")
    assert "Multiply, solve and differentiate" in help_of("demo")
