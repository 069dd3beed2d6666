"""Runs a script in several processes at once, as torch.distributed wants it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch


def run(script: str, world: int, device: str, folder: Path) -> None:
    """Run ``python script RANK WORLD STORE DEVICE`` for each rank, and fail where one does.

    Args:
        script: a file of this folder.
        world: how many processes.
        device: "cpu", or "cuda" for as many GPUs, without which the test is skipped.
        folder: for what they write.
    """
    if device == "cuda" and torch.cuda.device_count() < world:
        pytest.skip(f"fewer than {world} GPUs")
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name(script))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    logs = [folder / f"{rank}.log" for rank in range(world)]
    started = []
    for rank, log in enumerate(logs):
        with log.open("w") as file:
            arguments = [*command, str(rank), str(world), str(folder / "store"), device]
            started.append(subprocess.Popen(arguments, stdout=file, stderr=file, env=environment))
    deadline = time.monotonic() + 180
    try:
        codes = [process.wait(timeout=deadline - time.monotonic()) for process in started]
    except subprocess.TimeoutExpired:
        codes = [process.poll() for process in started]
    finally:
        for process in started:
            process.kill()
    assert codes == [0] * world, "\n".join(log.read_text() for log in logs)
