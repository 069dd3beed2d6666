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
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

import torch

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import calls  # type: ignore[import-not-found]  # noqa: E402

from packedtri import LowerTriangular, PackedTensor, Symmetric, dispatch  # noqa: E402

# Of each row of the table.
MOST_CALLS = 3
LEAST_SAMPLES, MOST_SAMPLES = 3, 25
# Calls are timed together until they take this many seconds.
SAMPLE_SECONDS = 3e-4
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


def seconds(call: Call, synchronize: Call, count: int = 1) -> float:
    """How long a call takes in the mean of so many."""
    begin = time.perf_counter()
    for _ in range(count):
        call()
    synchronize()
    return (time.perf_counter() - begin) / count


def compare(pair: tuple[Call, Call], budget: float, synchronize: Call) -> list[float]:
    """The medians of both, within about so many seconds."""
    once = max(*(seconds(call, synchronize) for call in pair), 1e-6)
    count = max(1, int(SAMPLE_SECONDS / once))
    samples = min(max(int(budget / (once * count)), LEAST_SAMPLES), MOST_SAMPLES)
    taken = [[seconds(call, synchronize, count) for call in pair] for _ in range(samples)]
    return [median(side) for side in zip(*taken, strict=True)]


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
    torch.set_default_device(arguments.device)
    synchronize = torch.cuda.synchronize if arguments.device == "cuda" else lambda: None
    calls.N = arguments.n
    rows = []
    with torch.no_grad():
        for row, args, pair in cases(arguments.name):
            try:
                ours, dense = compare(pair, arguments.budget, synchronize)
            except Exception:
                # What is random, or changed in place again and again, may lose its structure.
                continue
            rows.append(
                {
                    "row": calls.row_id(row),
                    "args": given(args),
                    "us": 1e6 * ours,
                    "dense_us": 1e6 * dense,
                    "ratio": dense / ours,
                }
            )
    if not rows:
        parser.error(f"no function is named {' or '.join(arguments.name)}")
    rows.sort(key=lambda r: r["ratio"])
    meta = {"n": arguments.n, "device": arguments.device, "torch": torch.__version__}
    content = {"meta": {**meta, "date": str(date.today())}, "rows": rows}
    arguments.output.write_text(json.dumps(content, indent=1) + "\n")
    slower = [r for r in rows if r["ratio"] < 1]
    print(f"{len(rows)} calls, of which {len(slower)} take longer than with conversions")
    for r in slower[:20]:
        times = f"{r['ratio']:.2f} {r['us']:10.1f} {r['dense_us']:10.1f} us"
        print(f"{times}  {r['row']} ({', '.join(r['args'])})")


if __name__ == "__main__":
    main()
