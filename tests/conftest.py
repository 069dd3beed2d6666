"""Fixtures of all tests: devices, dtypes, seeds and threads.

A test that names `device` runs on the CPU and, marked `cuda`, on a GPU; one that names `dtype`
runs for all six element types. `rng` is a generator on the test's device whose seed is fresh in
every run and printed in its header; `--seed` repeats a run. With PACKEDTRI_TEST_SMALL=1 the tests
keep to small sizes, for runs under a checker that slows the device down.
"""

from __future__ import annotations

import os
import secrets
import sys
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

# Threads that spin while they wait make a test of many small operations ten times slower on a
# machine with other work. The OpenMP runtime reads this when torch loads it.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest
import torch

from packedtri import _library
from packedtri._cli import timing
from packedtri.testing import DTYPES

# Makes twins.py importable under every import mode of pytest.
sys.path.insert(0, str(Path(__file__).parent))

MARKERS = (
    "cuda: needs an NVIDIA GPU and the compiled CUDA library",
    "sanitizer: a small set that touches every kernel template, to run under compute-sanitizer",
)


SEED = pytest.StashKey[int]()


def seed_of(config: pytest.Config, name: str) -> int:
    """A seed for one purpose in this run; generators use the low 32 bits of a seed only."""
    return zlib.crc32(f"{config.stash[SEED]} {name}".encode())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help="repeat the random data of a run")


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    seed = config.getoption("--seed")
    # Workers of a distributed run must draw what their controller announces.
    workerinput = getattr(config, "workerinput", {})
    if seed is None:
        seed = workerinput.get("packedtri_seed", secrets.randbelow(2**31))
    config.stash[SEED] = seed


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: object) -> None:
    node.workerinput["packedtri_seed"] = node.config.stash[SEED]  # type: ignore[attr-defined]


def missing_cuda() -> str | None:
    """Why tests on a GPU cannot run here, or None where they can."""
    if not torch.cuda.is_available():
        return "torch sees no GPU"
    if _library.cuda_library is None:
        return "the CUDA library was not built"
    return None


def pytest_report_header(config: pytest.Config) -> str:
    reason = missing_cuda()
    cuda = f"{reason}; its tests are deselected" if reason else "yes"
    return f"packedtri: --seed={config.stash[SEED]}, cuda: {cuda}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marked = {m for mark in metafunc.definition.iter_markers("parametrize") for m in mark.args[:1]}
    if "device" in metafunc.fixturenames and "device" not in marked:
        devices = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
        if metafunc.definition.get_closest_marker("cuda"):
            devices = ["cuda"]
        metafunc.parametrize("device", devices)
    if "dtype" in metafunc.fixturenames and "dtype" not in marked:
        metafunc.parametrize("dtype", DTYPES, ids=lambda t: str(t).removeprefix("torch."))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what cannot run here: to skip ten thousand tests one by one takes a while."""
    if missing_cuda():
        left_out = [item for item in items if item.get_closest_marker("cuda")]
        items[:] = [item for item in items if not item.get_closest_marker("cuda")]
        config.hook.pytest_deselected(items=left_out)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> torch.Generator:
    """A generator on the test's device (the CPU for a test without one), seeded by its name."""
    parameters = getattr(request.node, "callspec", None)
    device = parameters.params.get("device", "cpu") if parameters else "cpu"
    return torch.Generator(device).manual_seed(seed_of(request.config, request.node.nodeid))


@pytest.fixture(autouse=True)
def global_state(request: pytest.FixtureRequest) -> Iterator[None]:
    """Seeds the global generator and restores the settings that tests may change."""
    torch.manual_seed(seed_of(request.config, f"global {request.node.nodeid}"))
    threads = torch.get_num_threads()
    torch.set_float32_matmul_precision("highest")
    yield
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


@pytest.fixture
def process_group() -> Iterator[None]:
    """A group of this process alone."""
    distributed = pytest.importorskip("torch.distributed")
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.fixture
def short_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of commands that measure: times are not looked at."""
    for name in ("FULL", "QUICK"):
        effort = replace(getattr(timing, name), cpu_sample_ms=0.1, cpu_budget_s=0.0)
        monkeypatch.setattr(timing, name, effort)
