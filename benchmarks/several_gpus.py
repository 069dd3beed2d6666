"""Times functions of one matrix that several GPUs have in parts, and of the same on one GPU.

    PYTHONPATH=. torchrun --nproc-per-node 2 benchmarks/several_gpus.py OUTPUT.json

Each time is the median of some calls, from a moment when all processes are ready until all are
done. What the first process allocates meanwhile, at most, is counted in packed matrices.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import packedtri
from packedtri import Symmetric
from packedtri._cli import environment

ORDERS = (8192, 16384, 32768, 65536)
#: Above this order matrices of float64 are left out, whose copies for both take long to make.
MOST_FLOAT64 = 32768
COLUMNS = 8192
SAMPLES = 5


def functions(m: int) -> dict[str, Callable[[Any, Any, Any], Any]]:
    """What is timed, of a Symmetric, its factor and a dense matrix of m columns."""
    several = {
        "L @ x": lambda S, L, x: L @ x,
        "S @ x": lambda S, L, x: S @ x,
        "solve_triangular": lambda S, L, x: torch.linalg.solve_triangular(L, x, upper=False),
    }
    if m > 1:
        return several
    return {
        "cholesky": lambda S, L, x: torch.linalg.cholesky(S),
        "L @ L": lambda S, L, x: L @ L,
        "L @ L.mT": lambda S, L, x: L @ L.mT,
        "S @ S": lambda S, L, x: S @ S,
        "inverse": lambda S, L, x: torch.linalg.inv(L),
        "inv_quad_logdet with gradient": _gradient,
        **several,
    }


def _gradient(S: Any, L: Any, x: Any) -> Any:
    own = S.detach().requires_grad_()
    quad, logdet = packedtri.inv_quad_logdet(own, x)
    (quad + logdet).backward()
    return own.grad


def milliseconds(call: Callable[[], Any]) -> tuple[float, int]:
    """The time of a call, and how many bytes were allocated meanwhile."""
    times = []
    for _ in range(1 + SAMPLES):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        dist.barrier()
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return median(times[1:]), torch.cuda.max_memory_allocated() - before


def rows(n: int, dtype: torch.dtype, mesh: DeviceMesh) -> list[dict[str, Any]]:
    """The times of all functions at one order."""
    torch.manual_seed(0)
    packed = torch.empty(n * (n + 1) // 2, device="cuda", dtype=dtype).uniform_(-1, 1)
    alone = Symmetric(packed).add_diagonal(2 * n**0.5)
    factor = torch.linalg.cholesky(alone)
    cut = [type(t)(distribute_tensor(t.packed, mesh, [Shard(0)])) for t in (alone, factor)]
    found = []
    for m, placement in ((1, Replicate()), (COLUMNS, Shard(1))):
        x = torch.randn(n, m, device="cuda", dtype=dtype)
        spread = distribute_tensor(x, mesh, [placement])
        for name, function in functions(m).items():
            one, _ = milliseconds(partial(function, alone, factor, x))
            several, allocated = milliseconds(partial(function, cut[0], cut[1], spread))
            found.append({
                "op": name,
                "dtype": environment.dtype_name(dtype),
                "n": n,
                "m": m,
                "gpus": mesh.size(),
                "ms": several,
                "one_gpu_ms": one,
                "allocated": allocated / (packed.numel() * packed.itemsize),
            })  # fmt: skip
            if dist.get_rank() == 0:
                print(json.dumps(found[-1]), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="file for the results, of the first process")
    parser.add_argument("--commit", help="what the results belong to, where there is no git")
    given = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    found = []
    for dtype in (torch.float32, torch.float64):
        for n in ORDERS:
            if dtype == torch.float32 or n <= MOST_FLOAT64:
                found += rows(n, dtype, mesh)
    if dist.get_rank() == 0:
        meta = environment.meta(torch.device("cuda"), given.commit)
        given.output.write_text(json.dumps({"meta": meta, "rows": found}, indent=1) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
