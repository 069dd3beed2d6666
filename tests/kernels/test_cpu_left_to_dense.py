"""Products that dense torch computes on unpacked copies on some CPUs: only the time tells."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from cases import Failures, Operand, assert_close_or_equal, draw_operand, each, mm, stored_product

from packedtri import _library
from packedtri.layout import DENSE, HERMITIAN, LOWER, SYMMETRIC, UPPER
from packedtri.testing import random_integers

KINDS = (LOWER, UPPER, SYMMETRIC, HERMITIAN, DENSE)


@pytest.mark.parametrize("bad", [0.0, math.inf, math.nan], ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_left_to_dense(dtype: torch.dtype, bad: float, rng: torch.Generator) -> None:
    """One matrix of a batch with what is not finite, the other without."""
    failures = Failures()
    for n, m, a_kind, b_kind in each((230, 420), (3, 60), KINDS, KINDS):
        if DENSE not in (a_kind, b_kind) and (m == 3 or n == 420):
            continue
        a = draw_operand(a_kind, n, dtype, rng, batch=(2,), rows=m, cols=n, draw=random_integers)
        b = draw_operand(b_kind, n, dtype, rng, rows=n, cols=m, draw=random_integers)
        if bad:
            a.stored[1].view(-1)[a.stored[1].numel() // 2] = bad
            a = Operand(a.stored, a_kind, n)
        c = mm(a.stored, b.stored, n, a_kind, b_kind, DENSE)
        with failures.case(f"{n=}, {m=}, kinds {a_kind}, {b_kind}"):
            assert_close_or_equal(c, stored_product(a, b).to(dtype), atol=0)
    failures.report()


@pytest.mark.parametrize("bad", [0.0, math.inf], ids=str)
def test_large_symmetric(bad: float, rng: torch.Generator) -> None:
    """Large enough for dense torch wherever there are instructions for pairs."""
    n = 1500
    a = draw_operand(SYMMETRIC, n, torch.bfloat16, rng, draw=random_integers)
    b = draw_operand(DENSE, n, torch.bfloat16, rng, draw=random_integers)
    if bad:
        a.stored[n] = bad
        a = Operand(a.stored, SYMMETRIC, n)
    c = mm(a.stored, b.stored, n, SYMMETRIC, DENSE, DENSE)
    assert_close_or_equal(c, stored_product(a, b).bfloat16(), atol=0)


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_float32_stays_float32(precision: str, rng: torch.Generator) -> None:
    """Dense torch may be told to multiply float32 as bfloat16."""
    n = 300
    a, b = (draw_operand(kind, n, torch.float32, rng) for kind in (SYMMETRIC, DENSE))
    torch.set_float32_matmul_precision(precision)
    c = mm(a.stored, b.stored, n, SYMMETRIC, DENSE, DENSE)
    expected = a.dense.double() @ b.dense.double()
    assert (c - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_who_computes_is_told() -> None:
    product = (torch.bfloat16, 2048, 2048, 1, (SYMMETRIC, DENSE, DENSE))
    # Who names an instruction set wants its kernels. The name is read once, by a process.
    code = f"""
import torch
from packedtri import _library
print(_library.cpu_kernel{product})"""
    environment = {**os.environ, "PACKEDTRI_CPU_ISA": "portable"}
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment)
    assert told.stdout.decode().strip() == "portable"
    flags = Path("/proc/cpuinfo")
    named = "PACKEDTRI_CPU_ISA" in os.environ
    if not named and flags.exists() and "avx512_bf16" in flags.read_text():
        assert _library.cpu_kernel(*product) == "unpacked, then dense torch"
        narrow = (torch.bfloat16, 512, 16, 1, (DENSE, LOWER, DENSE))
        assert _library.cpu_kernel(*narrow) == _library.cpu_isa()
    triangles = (torch.float32, 512, 512, 1, (LOWER, LOWER, LOWER))
    assert _library.cpu_kernel(*triangles) == _library.cpu_isa()
