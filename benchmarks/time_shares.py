"""Times on this GPU again, in every way that a file of benchmarks/shares names, its products.

    PYTHONPATH=. python benchmarks/time_shares.py benchmarks/shares/nvidia-h200.json OUTPUT.json

Rows that have "us": ["half alone", ...] are new ones, of which nothing was timed yet. Files with
ways or operations that are none of its own are refused. What is chosen by estimates and limits is
fitted to these files, and tests compare both (tests/cpp/test_cpp.py).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import date
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from packedtri import _library
from packedtri._cli.cases import CASES, Problem
from packedtri._cli.timing import capture, cuda_pass, measuring_stream, sets_needed
from packedtri._cli.work import Work

# Numbers of methods and of tiles that csrc/cuda/config.h has.
ENGINE, HOPPER, MAPPED, SHARED_IMAGES = 1, 2, 9, 12
TILES = {
    "small": (ENGINE, 0),
    "large": (ENGINE, 1),
    "half": (ENGINE, 2),
    "square": (MAPPED, 0),
    "long": (MAPPED, 1),
}
#: Other ways than tiles with shares: the engine as it is chosen, images in shared memory, direct
#: tiles of Hopper, all as it is chosen, and without tile images.
WHOLE_WAYS = {
    "engine": (ENGINE, -1, -1, -1, -1),
    "images": (SHARED_IMAGES, -1, -1, -1, -1),
    "direct": (HOPPER, -1, -1, -1, -1),
    "free": (-1, -1, -1, -1, -1),
    "else": (-2, -1, -1, -1, -1),
}
#: What a user without the packed product would run.
DENSE = "dense"
# Square tiles have dense operands by the copy engine from this order of the triangle on.
LEAST_MAPPED = 160
SAMPLES = 5
Force = tuple[int, int, int, int, int]


def forced(way: str, n: int) -> Force:
    """What packedtri_cuda_force takes for a way of a product with a triangle of order n.

    Raises:
        ValueError: the way has another name than those that this file knows.
    """
    if way in WHOLE_WAYS:
        return WHOLE_WAYS[way]
    share = re.fullmatch(r"(\w+) (?:alone|(\d) from (\d+)|parts of ([\d.]+))", way)
    if share is None or share[1] not in TILES:
        raise ValueError(f"cannot time the way {way!r}")
    method, tile = TILES[share[1]]
    if share[1] == "square" and n < LEAST_MAPPED:
        method = HOPPER
    if share[4]:
        return method, tile, -1, -round(2 * float(share[4])), -1
    return method, tile, int(share[2] or 1), int(share[3] or -1), -1


def need(keys: Iterable[str], part: Any) -> None:
    """Raises ValueError where a part of a file has not all of these keys."""
    for key in keys:
        if not isinstance(part, dict) or key not in part:
            raise ValueError(f"there is no {key!r} in {json.dumps(part):.100}")


def check(row: dict[str, Any]) -> None:
    """Raises ValueError where a row cannot be timed."""
    need(("op", "dtype", "n", "m", "us"), row)
    if row["op"] not in CASES:
        raise ValueError(f"cannot time the operation {row['op']!r}")
    if not isinstance(getattr(torch, row["dtype"], None), torch.dtype):
        raise ValueError(f"torch has no dtype {row['dtype']!r}")
    for way in row["us"]:
        if way != DENSE:
            forced(way, row["n"])
        elif not CASES[row["op"]].converts:
            raise ValueError(f"{row['op']} is not compared with dense torch that converts")


@contextmanager
def precision(tf32: bool) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def microseconds(calls: list[Callable[[], Any]]) -> float:
    """Of a call, the median of replays of a graph of all of them."""
    calls[0]()
    timed = capture(calls, rounds=1)
    timed[0]()
    return round(median(cuda_pass(timed) for _ in range(SAMPLES)) * 1e3, 2)


def time_row(row: dict[str, Any], force: Callable[..., None]) -> dict[str, float]:
    """Microseconds of each way of a row, operands in turn."""
    device = torch.device("cuda")
    dtype = getattr(torch, row["dtype"])
    problem = Problem(row["op"], row["n"], row["m"], row.get("batch", 1), dtype, device)
    setup: Callable[[], Work] = partial(CASES[row["op"]].setup, problem)
    with precision(row.get("precision") == "tf32"), measuring_stream(device):
        works = [setup()]
        works += [setup() for _ in range(sets_needed(works[0], device) - 1)]
        us = {}
        for way in row["us"]:
            if way == DENSE:
                us[way] = microseconds([w.converting for w in works if w.converting])
                continue
            force(*forced(way, row["n"]))
            try:
                us[way] = microseconds([w.packed for w in works])
            finally:
                force(*WHOLE_WAYS["free"])
    return us


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the products of a file again.")
    parser.add_argument("source", type=Path, help="a file of benchmarks/shares")
    parser.add_argument("target", type=Path, help="where to write the new one")
    arguments = parser.parse_args()
    if arguments.target.resolve() == arguments.source.resolve():
        parser.error("the target is the source, whose timings would be lost")
    try:
        file = json.loads(arguments.source.read_text())
        need(("meta", "rows"), file)
        for row in file["rows"]:
            check(row)
    except (OSError, ValueError) as error:
        parser.error(f"{arguments.source}: {error}")
    if _library.cuda_library is None or not torch.cuda.is_available():
        parser.error("this needs a GPU, and packedtri with its CUDA library")
    force = ctypes.CDLL(str(_library.cuda_library)).packedtri_cuda_force
    force.argtypes, force.restype = [ctypes.c_int] * 5, None
    # What was timed before says nothing about the new timings.
    file["meta"].pop("commit", None)
    file["meta"] |= {
        "device": torch.cuda.get_device_name(),
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "date": date.today().isoformat(),
        "timing": f"graphs of a call for each set of operands, medians of {SAMPLES}",
    }
    # Row by row, so that what was timed is there if the rest is not.
    with arguments.target.open("w") as output:
        output.write('{"meta": ' + json.dumps(file["meta"]) + ',\n"rows": [')
        for number, row in enumerate(file["rows"]):
            timed = row | {"us": time_row(row, force)}
            output.write((",\n" if number else "\n") + json.dumps(timed))
            output.flush()
        output.write("\n]}\n")


if __name__ == "__main__":
    main()
