"""Solves and factorizations on every instruction set, and what memory they take."""

from __future__ import annotations

import pytest
import torch
from test_cpu import run
from test_solve import draw_rhs, draw_triangle, read, solve

from packedtri.layout import DENSE, LOWER, UPPER

# Residuals of all element types about the edges of vectors and of small triangles.
CHECK = """
import sys
import torch
import test_cholesky, test_solve
from test_solve import DTYPES, FORMS
from packedtri import _library
from packedtri.layout import DENSE, LOWER, numel
from packedtri.testing import densify, random

assert _library.cpu_isa() == sys.argv[1], _library.cpu_isa()
rng = torch.Generator().manual_seed(int(sys.argv[2]))
for dtype in DTYPES:
    for n in (1, 3, 8, 9, 17, 64, 65, 130):
        packed = test_cholesky.draw_positive(n, dtype, rng)
        factor, info = test_cholesky.cholesky(packed, n)
        assert info.item() == 0 and test_cholesky.residual(packed, factor, n) < 30
        x = random((n, 2), dtype, generator=rng) / n
        changed, info = torch.ops.packedtri.cholesky_update(factor, x, n, False)
        a = test_cholesky.hermitian(packed, n) + x @ x.mH
        assert info.item() == 0
        assert test_cholesky.residual(test_cholesky.pack(a), changed, n) < 30
        for kind, left, unit in FORMS:
            t = test_solve.draw_triangle(n, dtype, rng)
            dense = test_solve.read(t, n, kind, unit)
            for m in (1, 3, 7, 40):
                b = test_solve.draw_rhs(n, m, left, dtype, rng)
                x = test_solve.solve(t, b, n, kind, DENSE, left, unit)
                assert test_solve.residual(dense, x, b, left) < 30, (dtype, n, m, kind, left, unit)
            b = random((numel(n),), dtype, generator=rng)
            x = densify(test_solve.solve(t, b, n, kind, LOWER, left, unit), n, LOWER)
            lower = densify(b, n, LOWER)
            expected = test_solve.lower_part_of_solution(dense, lower, kind, left)
            assert torch.allclose(x.to(expected.dtype), expected, rtol=1e-3, atol=1e-3)
"""

PEAK = """
import resource
import torch, packedtri
from packedtri.layout import LOWER, numel

ops, n = torch.ops.packedtri, 2500
a = torch.randn(numel(n)) / n
a[torch.arange(1, n + 1).cumsum(0) - 1] = 1

def run(a, n):
    factor, _ = ops.cholesky(a, n)
    ops.solve_triangular(factor, a, n, LOWER, LOWER, True, False)

run(a[: numel(300)], 300)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
run(a, n)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 - 2 * a.nbytes, a.nbytes)
"""


@pytest.mark.parametrize("isa", ["portable", "avx2", "avx512"])
def test_instruction_sets(isa: str, rng: torch.Generator, request: pytest.FixtureRequest) -> None:
    """The choice is made once in a process, so each has its own."""
    here = str(request.path.parent)
    script = f"import sys; sys.path[:0] = [{here!r}]" + CHECK
    result = run(script, isa, str(rng.initial_seed()), PACKEDTRI_CPU_ISA=isa)
    if "names no instruction set of this machine" in result.stderr:
        pytest.skip(f"this machine has no {isa}")
    assert result.returncode == 0, result.stderr[-2000:]


def test_peak_memory() -> None:
    """A factorization and a typed solve take their results and a few panels, nothing dense."""
    result = run(PEAK)
    assert result.returncode == 0, result.stderr[-2000:]
    extra, result_bytes = map(int, result.stdout.split())
    assert extra < result_bytes // 2, f"{extra} bytes beside results of {result_bytes}"


@pytest.mark.parametrize("kind", [LOWER, UPPER], ids=["L", "U"])
@pytest.mark.parametrize("left", [True, False], ids=["left", "right"])
def test_errors_do_not_grow_with_the_order(kind: int, left: bool, rng: torch.Generator) -> None:
    """Few right-hand sides of a large triangle: sums of sums, as in dense torch's blocks."""
    n, count = 2000, 4
    t = draw_triangle(n, torch.float32, rng)
    dense = read(t, n, kind, False)
    b = draw_rhs(n, count, left, torch.float32, rng)

    def dense_solve(dtype: torch.dtype) -> torch.Tensor:
        return torch.linalg.solve_triangular(
            dense.to(dtype), b.to(dtype), upper=kind == UPPER, left=left
        )

    exact = dense_solve(torch.float64)
    ours = (solve(t, b, n, kind, DENSE, left, False) - exact).norm()
    assert ours <= 2.5 * (dense_solve(torch.float32) - exact).norm()
