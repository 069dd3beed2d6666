"""Solves on a GPU, against the equations they solve; graphs and memory of all that solves."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import pytest
import torch
from cases import DIRECT, FRAGMENTS, SMALL, Failures, Force, assert_same
from solve_cases import SIZES, SOLVED, definite, kernels, matrix, pack, solved_dtypes, triangle
from torch import Tensor

from packedtri.layout import DENSE, LOWER, UPPER, numel
from packedtri.testing import densify, epsilon, random, wide_dtype

pytestmark = pytest.mark.cuda

ops = torch.ops.packedtri


def assert_solves(x: Tensor, t: Tensor, b: Tensor, left: bool) -> None:
    """|b - t x| <= n epsilon |t| |x|, element by element, which substitution grants."""
    wide = x.to(t.dtype)
    residual = (b.to(t.dtype) - (t @ wide if left else wide @ t)).abs()
    magnitude = t.abs() @ wide.abs() if left else wide.abs() @ t.abs()
    rounding = epsilon(x.dtype) * (4 if x.dtype.is_complex else 1)
    # A right-hand side that happens to be zero has no residual and grants none.
    allowed = (magnitude * rounding * (t.shape[-1] + 2)).clamp_min(1e-300)
    excess = (residual / allowed).amax().item()
    assert excess <= 1, f"the residual is {excess} times what is allowed"


def dense_cases(n: int) -> Iterator[tuple[int, bool, bool, int]]:
    """(kind, left, unit, right-hand sides)."""
    for kind, left in itertools.product((LOWER, UPPER), (True, False)):
        yield from ((kind, left, False, m) for m in (1, 3, 31, 70))
        yield kind, left, True, 5


@pytest.mark.sanitizer
@solved_dtypes
def test_solve_dense(dtype: torch.dtype, device: str, rng: torch.Generator) -> None:
    failures = Failures()
    for n in SIZES:
        for kind, left, unit, m in dense_cases(n):
            t = triangle((), n, dtype, rng, unit)
            b = random((n, m) if left else (m, n), dtype, device, rng)
            before = b.clone()
            with failures.case(f"n={n}, kind {kind}, left {left}, unit {unit}, m={m}"):
                x = ops.solve_triangular(t, b, n, kind, DENSE, left, unit)
                assert_solves(x, matrix(t, n, kind, unit), b, left)
                assert_same(b, before)
    failures.report()


@solved_dtypes
def test_solve_batches(dtype: torch.dtype, device: str, rng: torch.Generator) -> None:
    failures = Failures()
    batches = (((3, 4), (3, 4)), ((2, 1), (1, 3)), ((), (5,)), ((5,), ()), ((0,), (0,)))
    for n, (ours, theirs) in itertools.product((7, 64, 130), batches):
        for kind, left in itertools.product((LOWER, UPPER), (True, False)):
            t = triangle(ours, n, dtype, rng)
            b = random((*theirs, *((n, 9) if left else (9, n))), dtype, device, rng)
            with failures.case(f"n={n}, {ours} and {theirs}, kind {kind}, left {left}"):
                x = ops.solve_triangular(t, b, n, kind, DENSE, left, False)
                assert x.shape[:-2] == torch.broadcast_shapes(ours, theirs)
                if x.numel():
                    assert_solves(x, matrix(t, n, kind, False), b, left)
    failures.report()


@solved_dtypes
@pytest.mark.parametrize("method", [-1, DIRECT, FRAGMENTS], ids=["panels", "leaves", "fragments"])
def test_solve_of_middle_size(
    method: int, dtype: torch.dtype, device: str, rng: torch.Generator, force: Force
) -> None:
    """By one launch, whose blocks wait for each other's tiles, or by steps."""
    force(method, -1, -1, -1, -1)
    failures = Failures()
    n = 450
    batches: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
        ((), ()), ((3,), (3,)), ((), (2,)), ((2,), ()),
    )  # fmt: skip
    for (ours, theirs), kind in itertools.product(batches, (LOWER, UPPER)):
        for left, unit in itertools.product((True, False), (True, False)):
            t = triangle(ours, n, dtype, rng, unit)
            wide = matrix(t, n, kind, unit)
            b = random((*theirs, *((n, 70) if left else (70, n))), dtype, device, rng)
            with failures.case(f"{ours} and {theirs}, kind {kind}, left {left}, unit {unit}"):
                x = ops.solve_triangular(t, b, n, kind, DENSE, left, unit)
                assert_solves(x, wide, b, left)
                typed = pack(random((*theirs, n, n), dtype, device, rng))
                got = ops.solve_triangular(t, typed, n, kind, LOWER, left, unit)
                lower = densify(typed, n, LOWER).to(wide.dtype)
                solve = torch.linalg.solve_triangular
                expected = pack(solve(wide, lower, upper=kind == UPPER, left=left))
                error = ((got - expected).norm() / expected.norm()).item()
                assert error <= (10 + math.sqrt(n)) * epsilon(dtype), f"error {error}"
    failures.report()


@solved_dtypes
@pytest.mark.parametrize("more", [0, 1])
def test_solve_as_many_as_have_room(
    more: int, dtype: torch.dtype, device: str, rng: torch.Generator
) -> None:
    """Two blocks of lines for each matrix, and a batch that fills the device with them."""
    batch = torch.cuda.get_device_properties(device).multi_processor_count // 2 + more
    for n in (129, 144, 145):
        t, b = triangle((batch,), n, dtype, rng), random((batch, n, 70), dtype, device, rng)
        x = ops.solve_triangular(t, b, n, LOWER, DENSE, True, False)
        assert_solves(x, matrix(t, n, LOWER, False), b, left=True)


@solved_dtypes
def test_solve_by_blocks_of_any_lines(
    dtype: torch.dtype, device: str, rng: torch.Generator
) -> None:
    """As many matrices as are solved at once by blocks of 8, 16, 32 and 64 lines, and one more."""
    blocks, m = torch.cuda.get_device_properties(device).multi_processor_count, 70
    failures = Failures()
    for n, lines, more, left in itertools.product(
        (33, 100), (8, 16, 32, 64), (0, 1), (True, False)
    ):
        batch = blocks // math.ceil(m / lines) + more
        t = triangle((batch,), n, dtype, rng)
        b = random((batch, n, m) if left else (batch, m, n), dtype, device, rng)
        with failures.case(f"n={n}, {lines} lines, {batch} matrices, left {left}"):
            x = ops.solve_triangular(t, b, n, LOWER, DENSE, left, False)
            assert_solves(x, matrix(t, n, LOWER, False), b, left)
    failures.report()


@pytest.mark.skipif(SMALL, reason="large sizes")
@pytest.mark.parametrize("dtype", SOLVED[2:], ids=str)
def test_complex_solves_left_to_dense(
    dtype: torch.dtype, device: str, rng: torch.Generator
) -> None:
    """Dense torch may get the transposed equation."""
    double = dtype == torch.complex128
    sizes = ((1200, 2600), (4000, 400)) if double else ((3500, 1750), (3500, 520))
    failures = Failures()
    for (n, m), kind, left, unit in itertools.product(
        sizes, (LOWER, UPPER), (True, False), (True, False)
    ):
        t = triangle((), n, dtype, rng, unit)
        b = random((n, m) if left else (m, n), dtype, device, rng)
        before = b.clone()
        with failures.case(f"n={n}, m={m}, kind {kind}, left {left}, unit {unit}"):
            x = ops.solve_triangular(t, b, n, kind, DENSE, left, unit)
            assert x.is_contiguous()
            assert x._base is None, "a view, of which autograd refuses changes in place"
            assert_solves(x, matrix(t, n, kind, unit), b, left)
            assert_same(b, before)
            one = ops.solve_triangular(t[None], b, n, kind, DENSE, left, unit)
            assert_solves(one[0], matrix(t, n, kind, unit), b, left)
    failures.report()


@solved_dtypes
def test_solve_packed(dtype: torch.dtype, device: str, rng: torch.Generator) -> None:
    """The lower triangle of a solution whose right-hand side is a triangle."""
    failures = Failures()
    for n, kind, left, batch in itertools.product(SIZES, (LOWER, UPPER), (True, False), ((), (2,))):
        t, b = triangle(batch, n, dtype, rng), random((n * (n + 1) // 2,), dtype, device, rng)
        dense, wide = matrix(t, n, kind, False), densify(b, n, LOWER).to(wide_dtype(dtype))
        inverse = torch.linalg.inv(dense)
        expected = pack(inverse @ wide if left else wide @ inverse)
        with failures.case(f"n={n}, kind {kind}, left {left}, batch {batch}"):
            x = ops.solve_triangular(t, b, n, kind, LOWER, left, False)
            error = ((x - expected).norm() / expected.norm()).item()
            assert error <= (10 + math.sqrt(n)) * epsilon(dtype), f"error {error}"
    failures.report()


@solved_dtypes
def test_inverse(dtype: torch.dtype, device: str, rng: torch.Generator) -> None:
    """An inverse is the solution for the identity; it must be one from either side."""
    for n in SIZES:
        t = triangle((), n, dtype, rng)
        identity = pack(torch.eye(n, dtype=dtype, device=device))
        inverse = ops.solve_triangular(t, identity, n, LOWER, LOWER, True, False)
        x, dense = matrix(inverse, n, LOWER, False), matrix(t, n, LOWER, False)
        for product in (x @ dense, dense @ x):
            error = (product - torch.eye(n, device=device)).norm().item()
            assert error <= 4 * n * epsilon(dtype) * x.norm().item() * dense.norm().item()


@solved_dtypes
def test_solve_ill_conditioned(dtype: torch.dtype, device: str, rng: torch.Generator) -> None:
    """The residual stays small where the inverse is huge."""
    n = 300
    t = triangle((), n, dtype, rng)
    scales = torch.logspace(0, -6, n, device=device, dtype=torch.float64)
    dense = densify(t, n, LOWER) * scales[torch.randperm(n, device=device)].to(dtype)
    t = pack(dense)
    for kind, left in itertools.product((LOWER, UPPER), (True, False)):
        wide = matrix(t, n, kind, False)
        benign = random((n, n), dtype, device, rng).to(wide.dtype)
        b = (wide @ benign if left else benign @ wide).to(dtype)
        x = ops.solve_triangular(t, b, n, kind, DENSE, left, False)
        assert_solves(x, wide, b, left)


def growing(n: int, dtype: torch.dtype, rng: torch.Generator) -> Tensor:
    """A triangle whose inverse grows exponentially in all of its blocks, and stays finite."""
    dense = random((n, n), dtype, rng.device, rng).tril()
    diagonal = dense.diagonal()
    diagonal.copy_(torch.where(diagonal.abs() < 0.25, 0.25, diagonal))
    return dense


def of_kernel(n: int, dtype: torch.dtype, rng: torch.Generator) -> Tensor:
    """The Cholesky factor of a Gaussian kernel, which is close to singular."""
    x = torch.linspace(0, 3, n, device=rng.device, dtype=torch.float64)
    kernel = torch.exp(-((x[:, None] - x) ** 2)) + 1e-6 * torch.eye(n, device=rng.device)
    return torch.linalg.cholesky(kernel).to(dtype)


@solved_dtypes
@pytest.mark.parametrize("draw", [growing, of_kernel])
@pytest.mark.parametrize("m", [1, 3, 9, 33, 70])
def test_solve_with_large_inverse(
    draw: Callable[..., Tensor],
    m: int,
    dtype: torch.dtype,
    device: str,
    rng: torch.Generator,
) -> None:
    """Blocks of the diagonal are not replaced with their inverses, whose rounding would show."""
    failures = Failures()
    for n in (16, 33, 64, 100):
        dense = draw(n, dtype, rng)
        t = pack(dense)
        for kind, left in itertools.product((LOWER, UPPER), (True, False)):
            b = random((n, m) if left else (m, n), dtype, device, rng)
            with failures.case(f"n={n}, kind {kind}, left {left}"):
                x = ops.solve_triangular(t, b, n, kind, DENSE, left, False)
                assert_solves(x, matrix(t, n, kind, False), b, left)
    failures.report()


@pytest.mark.skipif(SMALL, reason="large sizes")
@pytest.mark.parametrize("left", [True, False])
def test_solve_many_sides(left: bool, device: str, rng: torch.Generator) -> None:
    """A batch of huge right-hand sides."""
    n, m = 33, 300_001
    t = triangle((2,), n, torch.float32, rng)
    b = random((2, n, m) if left else (2, m, n), torch.float32, device, rng)
    x = ops.solve_triangular(t, b, n, LOWER, DENSE, left, False)
    assert_solves(x, matrix(t, n, LOWER, False), b, left)


@pytest.mark.skipif(SMALL, reason="large sizes")
@pytest.mark.parametrize("n", [2048, 4097])
@pytest.mark.parametrize("dtype", SOLVED[:3], ids=str)
@kernels
def test_solve_large(
    method: int, n: int, dtype: torch.dtype, device: str, rng: torch.Generator, force: Force
) -> None:
    force(method, -1, -1, -1, -1)
    t = triangle((), n, dtype, rng)
    for kind, left in itertools.product((LOWER, UPPER), (True, False)):
        b = random((n, 257) if left else (257, n), dtype, device, rng)
        x = ops.solve_triangular(t, b, n, kind, DENSE, left, False)
        assert_solves(x, matrix(t, n, kind, False), b, left)


@solved_dtypes
def test_solve_left_to_dense(dtype: torch.dtype, device: str, rng: torch.Generator) -> None:
    """What dense torch solves: the result is as that of our kernels."""
    n, many = (1030, 64) if dtype == torch.float64 else (600, 40)
    failures = Failures()
    for kind, left, unit, m in itertools.product(
        (LOWER, UPPER), (True, False), (True, False), (1, many)
    ):
        t = triangle((), n, dtype, rng, unit)
        for batch in ((), (2,)):
            b = random((*batch, n, m) if left else (*batch, m, n), dtype, device, rng)
            with failures.case(f"{kind=}, {left=}, {unit=}, {m=}, {batch=}"):
                x = ops.solve_triangular(t, b, n, kind, DENSE, left, unit)
                assert x.is_contiguous()
                assert_solves(x, matrix(t, n, kind, unit), b, left)
    failures.report()


@pytest.mark.skipif(SMALL, reason="large sizes")
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64], ids=str)
def test_rows_left_of_one_triangle(dtype: torch.dtype, device: str, rng: torch.Generator) -> None:
    """Dense torch, which solves these, must not copy the triangle for each matrix of rows."""
    n, batch = 800, (8, 16)
    t, b = triangle((), n, dtype, rng), random((*batch, 2, n), dtype, device, rng)
    # The first call may give cuBLAS memory that it keeps.
    ops.solve_triangular(t, b, n, LOWER, DENSE, False, False)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    x = ops.solve_triangular(t, b, n, LOWER, DENSE, False, False)
    added = torch.cuda.max_memory_allocated() - before
    assert_solves(x, matrix(t, n, LOWER, False), b, False)
    assert x.shape == b.shape and added <= 4 * (b.nbytes + n * n * t.element_size())


@solved_dtypes
def test_solve_packed_left_to_dense(
    dtype: torch.dtype, device: str, rng: torch.Generator, force: Force
) -> None:
    """Typed right-hand sides: dense torch's results against those of our kernels."""
    n = 321
    t = triangle((), n, dtype, rng)
    b = random((numel(n),), dtype, device, rng)
    for kind, left in itertools.product((LOWER, UPPER), (True, False)):
        force(DIRECT, -1, -1, -1, -1)
        expected = ops.solve_triangular(t, b, n, kind, LOWER, left, False)
        force(-1, -1, -1, -1, -1)
        x = ops.solve_triangular(t, b, n, kind, LOWER, left, False)
        assert x.shape == b.shape and x.is_contiguous()
        error = torch.linalg.vector_norm(x - expected) / torch.linalg.vector_norm(expected)
        assert error <= 4 * n * epsilon(dtype), f"{kind=}, {left=}: {error}"


def test_zero_on_diagonal(device: str, rng: torch.Generator) -> None:
    """No error; what does not depend on the zero is solved for."""
    n = 100
    t = densify(triangle((), n, torch.float32, rng), n, LOWER)
    t[70, 70] = 0
    b = random((n, 3), torch.float32, device, rng)
    x = ops.solve_triangular(pack(t), b, n, LOWER, DENSE, True, False)
    assert x[:70].isfinite().all() and not x[70:].isfinite().any()


# ---------------------------------------------------------------------- beside Cholesky factors


def calls(n: int, dtype: torch.dtype, rng: torch.Generator) -> Iterator[tuple[str, Callable]]:
    t, b = triangle((), n, dtype, rng), random((n, 65), dtype, rng.device, rng)
    for kind in (LOWER, UPPER):
        yield f"solve {kind}", lambda k=kind: ops.solve_triangular(t, b, n, k, DENSE, True, False)
        yield f"packed {kind}", lambda k=kind: ops.solve_triangular(t, t, n, k, LOWER, True, False)
    a = pack(definite((), n, dtype, rng))
    yield "cholesky", lambda: ops.cholesky(a, n)[0]
    for k in (1, 3):
        yield f"update {k}", lambda k=k: ops.cholesky_update(t, b[:, :k], n, False)[0]


@solved_dtypes
@pytest.mark.parametrize("n", [20, 300, 600])
def test_graph(n: int, dtype: torch.dtype, device: str, rng: torch.Generator) -> None:
    """Calls can be captured, so they do not wait for the device, and repeat bit by bit."""
    for _name, call in calls(n, dtype, rng):
        expected = call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            x = call()
        x.fill_(math.nan)
        graph.replay()
        assert_same(x, expected)


@solved_dtypes
def test_peak_memory(dtype: torch.dtype, device: str, rng: torch.Generator, force: Force) -> None:
    """Our kernels allocate nothing of order n^2 but the results."""
    force(DIRECT, -1, -1, -1, -1)
    n = 64 if SMALL else 700
    for name, call in calls(n, dtype, rng):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        x = call()
        added = torch.cuda.max_memory_allocated() - before
        assert added <= x.nbytes + 2**20, f"{name}: {added} bytes for a result of {x.nbytes}"
