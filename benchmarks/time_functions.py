"""Times every function that has a packed form against unpacking, dense torch and packing.

    PYTHONPATH=. python benchmarks/time_functions.py OUTPUT.json --n 512 [--device cuda]

It finds functions that users had better call on dense copies. The calls are those of the tests
(tests/calls.py), in float64, and what the host does is timed with them. Both sides take turns, and
the file has the medians, those first that gain least.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import calls  # type: ignore[import-not-found]  # noqa: E402

from packedtri import LowerTriangular, PackedTensor, Symmetric, dispatch  # noqa: E402
from packedtri._cli import environment  # noqa: E402
from packedtri._cli.timing import (  # noqa: E402
    QUICK,
    Timing,
    measuring_stream,
    time_cpu,
    time_cuda,
)

# Of each row of the table.
MOST_CALLS = 3
# For thousands of calls, and with what the host does.
EFFORT = replace(QUICK, gpu_sample_ms=0.3, cpu_sample_ms=0.3, gpu_graphs=False)
Call = Callable[[], Any]


def unpacked(value: Any) -> Any:
    """An argument with packed types converted, also in lists and tuples."""
    if isinstance(value, PackedTensor):
        return value.to_dense()
    return type(value)(map(unpacked, value)) if type(value) in (list, tuple) else value


def packed(result: Any, like: Any) -> Any:
    """A dense result with the types that the packed form gives."""
    if isinstance(like, PackedTensor):
        return type(like).from_dense(result)
    if isinstance(like, (list, tuple)):
        return [packed(x, y) for x, y in zip(result, like, strict=True)]
    return result


def sides(row: dispatch.Row, args: tuple[Any, ...]) -> tuple[Call, Call] | None:
    """The call and what stands against it, where both work."""
    options = getattr(args, "kwargs", {})

    def dense() -> Any:
        keywords = {name: unpacked(x) for name, x in options.items()}
        return row.function(*unpacked(tuple(args)), **keywords)

    try:
        ours = row.function(*args, **options)
        packed(dense(), ours)
    except Exception:
        # Arguments are tried until some fit.
        return None
    if ours is None or ours is NotImplemented:
        return None
    return lambda: row.function(*args, **options), lambda: packed(dense(), ours)


def compare(pair: tuple[Call, Call], device: torch.device, seconds: float) -> Timing:
    """Times both, within about so many seconds."""
    effort = replace(EFFORT, gpu_budget_ms=1e3 * seconds, cpu_budget_s=seconds)
    ours, dense = ([call] for call in pair)
    if device.type == "cpu":
        return time_cpu(ours, dense, effort)
    return time_cuda(ours, dense, False, effort)


def described(value: Any) -> str:
    """An argument, or what it is where it is long."""
    if isinstance(value, torch.Tensor):
        return f"{type(value).__name__} {tuple(value.shape)}"
    if type(value) in (list, tuple):
        return f"({', '.join(map(described, value))})"
    return f"{value!r:.40}"


def given(args: tuple[Any, ...]) -> list[str]:
    """All arguments of a call, those by keywords too."""
    keywords = getattr(args, "kwargs", {}).items()
    return [*map(described, args), *(f"{name}={described(x)}" for name, x in keywords)]


def cases(names: list[str]) -> Iterator[tuple[dispatch.Row, tuple[Any, ...], tuple[Call, Call]]]:
    """The calls of all rows of the table, or of functions of these names, that can be timed."""
    for row in calls.COMPUTED:
        if row.how != "native" or (names and calls.name_of(row.function) not in names):
            continue
        for cls in (LowerTriangular,) if row.types else (LowerTriangular, Symmetric):
            known: set[str] = set()
            for args in calls.attempts(row, cls):
                text = str(given(args))
                if len(known) == MOST_CALLS or text in known or not calls.contains_packed(args):
                    continue
                if (pair := sides(row, args)) is not None:
                    known.add(text)
                    yield row, args, pair


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path, help="the file to write")
    parser.add_argument("--n", type=int, default=512, help="the order of the matrices")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--budget", type=float, default=0.02, help="seconds for each call")
    parser.add_argument("--name", action="append", default=[], help="a function, such as sum")
    arguments = parser.parse_args()
    if arguments.n < 1:
        parser.error(f"--n is the order of matrices, at least 1; got {arguments.n}")
    warnings.simplefilter("ignore")
    device = torch.device(arguments.device)
    torch.set_default_device(device)
    calls.N = arguments.n
    rows = []
    with torch.no_grad(), measuring_stream(device):
        for row, args, pair in cases(arguments.name):
            try:
                timing = compare(pair, device, arguments.budget)
            except Exception:
                # What is random, or changed in place again and again, may lose its structure.
                continue
            rows.append(
                {
                    "row": calls.row_id(row),
                    "args": given(args),
                    "us": 1e3 * timing.ms,
                    "dense_us": 1e3 * timing.dense_ms,
                    "ratio": timing.dense_ms / timing.ms,
                }
            )
    if not rows:
        parser.error(f"no function is named {' or '.join(arguments.name)}")
    rows.sort(key=lambda r: r["ratio"])
    content = {"meta": {**environment.meta(device), "n": arguments.n}, "rows": rows}
    arguments.output.write_text(json.dumps(content, indent=1) + "\n")
    slower = [r for r in rows if r["ratio"] < 1]
    print(f"{len(rows)} calls, of which {len(slower)} take longer than with conversions")
    for r in slower[:20]:
        times = f"{r['ratio']:.2f} {r['us']:10.1f} {r['dense_us']:10.1f} us"
        print(f"{times}  {r['row']} ({', '.join(r['args'])})")


if __name__ == "__main__":
    main()
