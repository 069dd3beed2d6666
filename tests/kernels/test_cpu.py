"""What holds on a CPU only: every instruction set the kernels were compiled for, and memory."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from cases import Failures, assert_exact, draw_operand, each, mm

from packedtri.layout import DENSE, LOWER, SYMMETRIC, UPPER
from packedtri.testing import DTYPES, random_integers

CHECK = """
import itertools, sys
import torch
from packedtri import _library
from packedtri.layout import LOWER, UPPER, SYMMETRIC, HERMITIAN, DENSE, numel
from packedtri.testing import *

assert _library.cpu_isa() == sys.argv[1], _library.cpu_isa()
rng = torch.Generator().manual_seed(int(sys.argv[2]))
KINDS = (LOWER, UPPER, SYMMETRIC, HERMITIAN, DENSE)
for dtype, n, pair in itertools.product(
    DTYPES, (1, 7, 33, 130, 200), itertools.product(KINDS, repeat=2)
):
    if HERMITIAN in pair and not dtype.is_complex:
        continue  # The same as SYMMETRIC.
    shapes = [(n, n) if kind == DENSE else (numel(n),) for kind in pair]
    a, b = (random(shape, dtype, generator=rng) for shape in shapes)
    dense = [densify(x, n, kind) for x, kind in zip((a, b), pair)]
    for c_kind, part in ((LOWER, "lower"), (DENSE, "full")):
        with poisoned():
            c = torch.ops.packedtri.mm(a, b, n, *pair, c_kind)
        case = f"n={n}, kinds {pair}, {c_kind}"
        assert_product_close(densify(c, n, c_kind), *dense, part=part, case=case)
    for kind, x in zip(pair, (a, b)):
        if kind == DENSE:
            for mirrored, other in ((SYMMETRIC, x.mT), (HERMITIAN, x.mH)):
                with poisoned():
                    sums = torch.ops.packedtri.pack(x, mirrored)
                diagonal = x.diagonal().real if mirrored == HERMITIAN else x.diagonal()
                expected = (x + other).tril(-1) + diagonal.to(dtype).diag()
                case = f"n={n}, {mirrored}, {dtype}"
                assert torch.equal(densify(sums, n, LOWER), expected), f"sum of halves, {case}"
                full = densify(sums, n, mirrored)
                with poisoned():
                    again = torch.ops.packedtri.unpack(sums, n, mirrored)
                assert torch.equal(again, full), f"mirror, {case}"
        else:
            # Whole numbers are exact: a sum of few terms may by luck have no error in torch.
            whole, column = (random_integers(s, dtype, generator=rng) for s in (x.shape, (n, 1)))
            y = torch.ops.packedtri.mm(whole, column, n, kind, DENSE, DENSE)
            exact = densify(whole, n, kind).to(wide_dtype(dtype)) @ column.to(wide_dtype(dtype))
            assert torch.equal(y, exact.to(dtype)), f"vector, n={n}, {kind}, {dtype}"
            with poisoned():
                full = torch.ops.packedtri.unpack(x, n, kind)
                again = torch.ops.packedtri.pack(full, UPPER if kind == UPPER else LOWER)
                block = torch.ops.packedtri.unpack_block(x, n, kind, n // 5, 0, n // 2, n)
                zeros = torch.ops.packedtri.pack_block(block, n, kind, n // 5, 0)
                part = torch.zeros_like(full)
                part[n // 5 : n // 5 + n // 2] = full[n // 5 : n // 5 + n // 2]
                expected = torch.ops.packedtri.pack(part, kind)
                shares = torch.ops.packedtri.scale_band(x, n, 0, 0, 1.0, 0.3, False)
            assert torch.equal(shares[..., 1:2], x[..., 1:2] * 0.3), f"scaled, n={n}, {dtype}"
            assert torch.equal(block, part[n // 5 : n // 5 + n // 2]), f"block, n={n}, {kind}"
            assert torch.equal(zeros, expected), f"block packed, n={n}, {kind}, {dtype}"
            assert torch.equal(full, densify(x, n, kind)), f"unpack, n={n}, {kind}, {dtype}"
            stored = densify(x, n, kind).tril() if kind == HERMITIAN else densify(x, n, LOWER)
            assert torch.equal(densify(again, n, LOWER), stored), f"pack, n={n}, {kind}, {dtype}"

# Batches of vectors, of which each matrix fits in registers or just does not, from both sides.
for dtype, kind, n in itertools.product(DTYPES, (LOWER, UPPER, SYMMETRIC), range(1, 19)):
    stored = random_integers((5, numel(n)), dtype, generator=rng)
    stored[stored == 0] = 1
    x = random_integers((5, n, 2), dtype, generator=rng)[..., 1:]
    wide, exact = (t.to(wide_dtype(dtype)) for t in (densify(stored, n, kind), x))
    for vectors in (x, x.squeeze(-1).contiguous().unsqueeze(-1), x[:1].expand(5, n, 1)):
        with poisoned():
            y = torch.ops.packedtri.mm(stored, vectors, n, kind, DENSE, DENSE)
            z = torch.ops.packedtri.mm(vectors.mT, stored, n, DENSE, kind, DENSE)
        case = f"batch of vectors, n={n}, {kind}, {dtype}"
        columns = vectors.to(wide.dtype)
        assert torch.equal(y, (wide @ columns).to(dtype)), case
        assert torch.equal(z, (columns.mT @ wide).to(dtype)), case
    bad = x.clone()
    bad[:, n // 2] = torch.inf
    y = torch.ops.packedtri.mm(stored, bad, n, kind, DENSE, DENSE)
    met = wide[..., n // 2] != 0
    assert torch.equal(~y[..., 0].isfinite(), met), f"infinity, {case}"
    beside = (wide @ exact).to(dtype)[..., 0][~met]
    assert torch.equal(y[..., 0][~met], beside), f"beside an infinity, {case}"
"""

PEAK = """
import resource
import torch
import packedtri
from packedtri.layout import LOWER, numel

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

n = 2500
a, b = torch.randn(numel(n)), torch.randn(numel(n))
small = torch.randn(numel(500))
torch.ops.packedtri.mm(small, small, 500, LOWER, LOWER, LOWER)
before = peak()
c = torch.ops.packedtri.mm(a, b, n, LOWER, LOWER, LOWER)
print(peak() - before - c.nbytes, c.nbytes)
"""


def run(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("isa", ["portable", "avx2", "avx512", "avx512_bf16", "amx"])
def test_instruction_sets(isa: str, rng: torch.Generator) -> None:
    """The choice is made once in a process, so each has its own."""
    result = run(CHECK, isa, str(rng.initial_seed()), PACKEDTRI_CPU_ISA=isa)
    if "names no instruction set of this machine" in result.stderr:
        pytest.skip(f"this machine has no {isa}")
    assert result.returncode == 0, result.stderr[-2000:]


def test_unknown_instruction_set() -> None:
    script = "import torch, packedtri; torch.ops.packedtri.pack(torch.ones(1, 1), 0)"
    result = run(script, PACKEDTRI_CPU_ISA="mmx")
    assert result.returncode != 0
    assert "PACKEDTRI_CPU_ISA=mmx names no instruction set of this machine" in result.stderr
    assert "portable" in result.stderr, "the message lists what can be chosen"


@pytest.mark.parametrize("threads", [1, 2])
def test_tiles_of_many_rows(threads: int, rng: torch.Generator) -> None:
    """Rows of A are packed a part of a tile at a time; tiles are larger where threads are few."""
    failures = Failures()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for n, dtype, (a_kind, b_kind, c_kind) in each(
            (770,),
            DTYPES,
            (
                (LOWER, LOWER, LOWER),
                (UPPER, LOWER, DENSE),
                (LOWER, DENSE, DENSE),
                (SYMMETRIC, UPPER, DENSE),
                (DENSE, DENSE, LOWER),
            ),
        ):
            a, b = (draw_operand(k, n, dtype, rng, draw=random_integers) for k in (a_kind, b_kind))
            with failures.case(f"{n=}, {dtype}, kinds {a_kind}, {b_kind}"):
                assert_exact(mm(a.stored, b.stored, n, a_kind, b_kind, c_kind), a, b, c_kind)
    finally:
        torch.set_num_threads(before)
    failures.report()


def test_peak_memory() -> None:
    """L @ L takes its result and a few panels; a dense matrix would take twice the result."""
    result = run(PEAK)
    assert result.returncode == 0, result.stderr[-2000:]
    extra, result_bytes = map(int, result.stdout.split())
    assert extra < result_bytes // 2, f"{extra} bytes beside a result of {result_bytes}"
