"""The programs under examples/ run, at small sizes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

PATH = Path(__file__).parents[1] / "examples" / "kernelbench.py"


@pytest.fixture(scope="module")
def kernelbench() -> ModuleType:
    specification = importlib.util.spec_from_file_location("kernelbench", PATH)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["kernelbench"] = module  # dataclasses look their module up
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("problem", [13, 14, 15])
@pytest.mark.parametrize("n", [1, 67])
def test_modules_agree_with_dense_torch(kernelbench, problem: int, n: int, device: str) -> None:
    chosen = kernelbench.PROBLEMS[problem]
    generator = torch.Generator(device).manual_seed(problem)
    pair = kernelbench.inputs(chosen, n, torch.device(device), generator)
    seed = chosen.structure(torch.randn(n, n, device=device, generator=generator))
    assert max(kernelbench.check(chosen, pair, seed)) < 1e-5


@pytest.mark.parametrize(
    ("name", "problem"), [("SymmetricProduct", 13), ("UpperProduct", 14), ("LowerProduct", 15)]
)
def test_a_solution_file_is_one_line(kernelbench, name: str, problem: int) -> None:
    solution: dict[str, type[torch.nn.Module]] = {}
    exec(f"from kernelbench import {name} as ModelNew", solution)
    chosen = kernelbench.PROBLEMS[problem]
    a, b = kernelbench.inputs(chosen, 33, torch.device("cpu"), torch.Generator().manual_seed(0))
    torch.testing.assert_close(solution["ModelNew"]()(a, b), chosen.reference(a, b))


def test_the_example_uses_public_names_only() -> None:
    assert "packedtri._" not in PATH.read_text(encoding="utf-8")


def test_a_wrong_module_is_noticed(kernelbench) -> None:
    generator = torch.Generator().manual_seed(0)
    lower, upper = kernelbench.PROBLEMS[15], kernelbench.PROBLEMS[14]
    wrong = kernelbench.Problem(upper.ModelNew, lower.reference, lower.structure)
    pair = kernelbench.inputs(lower, 20, torch.device("cpu"), generator)
    assert max(kernelbench.check(wrong, pair, lower.structure(torch.rand(20, 20)))) > 0.1


@pytest.mark.parametrize(
    "arguments", [["--n", "0"], ["--n=-2"], ["--n", "x"], ["--device", "gpu"], ["--device", "meta"]]
)
def test_the_program_refuses_bad_arguments(kernelbench, arguments: list[str], capsys) -> None:
    with pytest.raises(SystemExit, match="2"):
        kernelbench.main(arguments)
    assert f"error: argument {arguments[0].partition('=')[0]}: '" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "gpus"), [("cuda", 0), ("cuda:2", 2)])
def test_the_program_needs_the_gpu_that_it_is_told(
    kernelbench, name: str, gpus: int, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with pytest.raises(SystemExit, match="2"):
        kernelbench.main(["--device", name])
    assert f"'{name}' is not here: torch finds {gpus} GPUs" in capsys.readouterr().err


@pytest.mark.parametrize("backward", [[], ["--backward"]])
def test_the_program_checks_and_times(kernelbench, backward, capsys) -> None:
    kernelbench.main(["--n", "48", "--device", "cpu", *backward])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert all("ratio" in line for line in lines[1:])
