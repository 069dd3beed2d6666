"""Drop-in modules for three problems of KernelBench (level 1): products of structured matrices.

The problems multiply two dense tensors of order N = 4096 in float32 that happen to be symmetric
(13), upper triangular (14) or lower triangular (15). A solution is a file with a module `ModelNew`
that has no arguments and the same `forward(A, B)`, dense in and dense out. Each class here is one;
the file that hands one in is a single line, for problem 15

    from kernelbench import LowerProduct as ModelNew

For the triangular problems the modules pack both operands, multiply the triangles and unpack the
result; the conversions count in the time. All can be differentiated. Run this program to check the
modules against float64 and to time them:

    python examples/kernelbench.py --problem 15 --n 4096
    python examples/kernelbench.py --backward
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor, nn
from torch.utils.benchmark import Timer

from packedtri import LowerTriangular, UpperTriangular

Pair = tuple[Tensor, Tensor]


class SymmetricProduct(nn.Module):
    """Problem 13. The product of two symmetric matrices has no structure, and stays dense."""

    def forward(self, A: Tensor, B: Tensor) -> Tensor:
        """The product, shape (n, n), of A and B, each of shape (n, n)."""
        return torch.matmul(A, B)


class UpperProduct(nn.Module):
    """Problem 14: the product of two upper triangular matrices is one."""

    def forward(self, A: Tensor, B: Tensor) -> Tensor:
        """The product, shape (n, n), of A and B, each of shape (n, n)."""
        return (UpperTriangular.from_dense(A) @ UpperTriangular.from_dense(B)).to_dense()


class LowerProduct(nn.Module):
    """Problem 15: the product of two lower triangular matrices is one."""

    def forward(self, A: Tensor, B: Tensor) -> Tensor:
        """The product, shape (n, n), of A and B, each of shape (n, n)."""
        return (LowerTriangular.from_dense(A) @ LowerTriangular.from_dense(B)).to_dense()


@dataclass(frozen=True)
class Problem:
    """A problem: the solution, torch's dense form, and what makes a random matrix structured."""

    ModelNew: type[nn.Module]
    reference: Callable[[Tensor, Tensor], Tensor]
    structure: Callable[[Tensor], Tensor]


PROBLEMS = {
    13: Problem(SymmetricProduct, torch.matmul, lambda x: (x + x.mT) / 2),
    14: Problem(UpperProduct, lambda a, b: torch.triu(torch.matmul(a, b)), torch.triu),
    15: Problem(LowerProduct, lambda a, b: torch.tril(torch.matmul(a, b)), torch.tril),
}


def inputs(problem: Problem, n: int, device: torch.device, generator: torch.Generator) -> Pair:
    """Two structured matrices of uniform random numbers, dense."""
    a, b = (torch.rand(n, n, device=device, generator=generator) for _ in range(2))
    return problem.structure(a), problem.structure(b)


def gradients(forward: Callable[[Tensor, Tensor], Tensor], pair: Pair, seed: Tensor) -> Pair:
    """The gradients of both operands, for a gradient `seed` of the product."""
    a, b = (x.detach().requires_grad_() for x in pair)
    da, db = torch.autograd.grad(forward(a, b), (a, b), seed)
    return da, db


def relative_error(got: Tensor, exact: Tensor) -> float:
    """Largest error, relative to the largest element."""
    return ((got - exact).abs().max() / exact.abs().max()).item()


def check(problem: Problem, pair: Pair, seed: Tensor) -> tuple[float, float]:
    """Errors of the product and of its gradients, against torch in float64.

    The gradient of a structured operand is compared where it may be nonzero: dense torch also fills
    the half that structure keeps at zero.
    """
    model = problem.ModelNew()
    wide = (pair[0].double(), pair[1].double())
    forward = relative_error(model(*pair).double(), problem.reference(*wide))
    got = gradients(model, pair, seed)
    exact = gradients(problem.reference, wide, seed.double())
    backward = max(
        relative_error(problem.structure(g.double()), problem.structure(e))
        for g, e in zip(got, exact, strict=True)
    )
    return forward, backward


def milliseconds(*calls: Callable[[], object]) -> list[float]:
    """Median times of calls, taken in turn so that a busy machine disturbs all of them alike.

    The timer warms up before it measures, and waits for a GPU to finish.
    """
    threads = torch.get_num_threads()
    timers = [Timer("call()", globals={"call": c}, num_threads=threads) for c in calls]
    rounds = [[t.blocked_autorange(min_run_time=0.1).median for t in timers] for _ in range(5)]
    return [median(times) * 1e3 for times in zip(*rounds, strict=True)]


def timings(problem: Problem, pair: Pair, seed: Tensor, backward: bool) -> tuple[float, float]:
    """Milliseconds of the solution and of dense torch; with `backward`, of both passes."""
    model = problem.ModelNew()
    if backward:
        ours: Callable[[], object] = lambda: gradients(model, pair, seed)  # noqa: E731
        dense: Callable[[], object] = lambda: gradients(problem.reference, pair, seed)  # noqa: E731
    else:
        ours, dense = lambda: model(*pair), lambda: problem.reference(*pair)
    ours_ms, dense_ms = milliseconds(ours, dense)
    return ours_ms, dense_ms


def positive(text: str) -> int:
    """An order."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive integer")
    return int(text)


def usable_device(text: str) -> torch.device:
    """The CPU, or a GPU that is there."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is none of cpu, cuda and cuda:N")
    gpus = torch.cuda.device_count()
    if text != "cpu" and int(text.partition(":")[2] or 0) >= gpus:
        raise argparse.ArgumentTypeError(f"{text!r} is not here: torch finds {gpus} GPUs")
    return torch.device(text)


def main(arguments: list[str] | None = None) -> None:
    """Check and time the problems asked for."""
    default = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    parser = argparse.ArgumentParser(description="KernelBench problems 13, 14, 15 with packedtri.")
    parser.add_argument("--problem", type=int, choices=PROBLEMS, action="append")
    parser.add_argument("--n", type=positive, default=4096)
    parser.add_argument("--device", type=usable_device, default=default)
    parser.add_argument("--backward", action="store_true", help="time forward and backward")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    options = parser.parse_args(arguments)
    generator = torch.Generator(options.device).manual_seed(0)
    on_gpu = options.device.type == "cuda"
    name = torch.cuda.get_device_name(options.device) if on_gpu else "CPU"
    print(f"n = {options.n}, float32, {name}")
    for number in options.problem or PROBLEMS:
        problem = PROBLEMS[number]
        pair = inputs(problem, options.n, options.device, generator)
        seed = problem.structure(
            torch.randn(pair[0].shape, device=options.device, generator=generator)
        )
        errors = check(problem, pair, seed)
        if max(errors) > options.tolerance:
            raise SystemExit(f"problem {number}: errors {errors} exceed {options.tolerance}")
        ours, dense = timings(problem, pair, seed, options.backward)
        print(
            f"problem {number}: {ours:.3f} ms, dense torch {dense:.3f} ms, "
            f"ratio {dense / ours:.2f}, errors: product {errors[0]:.1e}, gradients {errors[1]:.1e}"
        )


if __name__ == "__main__":
    main()
