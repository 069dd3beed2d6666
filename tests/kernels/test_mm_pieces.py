"""Batches that are left to dense torch in pieces, where copies of all of them have no room."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from cases import Failures, assert_exact, draw_operand, mm
from torch.profiler import profile

from packedtri._library import cpu_kernel, cuda_kernel
from packedtri.layout import DENSE, HERMITIAN, LOWER, SYMMETRIC, UPPER
from packedtri.testing import random_integers

# What dense torch has on some machines: kinds of both operands and of the result.
LEFT = (
    (torch.bfloat16, SYMMETRIC, DENSE, DENSE),
    (torch.bfloat16, DENSE, SYMMETRIC, DENSE),
    (torch.bfloat16, SYMMETRIC, SYMMETRIC, DENSE),
    (torch.bfloat16, LOWER, DENSE, DENSE),
    (torch.bfloat16, DENSE, DENSE, LOWER),
    (torch.complex128, UPPER, DENSE, DENSE),
    (torch.complex128, HERMITIAN, HERMITIAN, LOWER),
)
# Of both operands.
BATCHES = (
    ((6,), (6,)),
    ((2, 3), (2, 3)),
    ((1, 6), (1, 6)),
    ((2, 1), (3,)),
    ((), (6,)),
    ((3, 1), ()),
)


@pytest.mark.parametrize(("element", "a_kind", "b_kind", "c_kind"), LEFT, ids=str)
@pytest.mark.parametrize("at_once", [0, 1, 2.5, 4], ids=str)
def test_pieces(
    element: torch.dtype,
    a_kind: int,
    b_kind: int,
    c_kind: int,
    at_once: float,
    limit_copies: Callable[[int], None],
    device: str,
    rng: torch.Generator,
) -> None:
    """As many matrices at once, and one at least where none has room."""
    failures = Failures()
    n, m = 408, 416
    rows = n if a_kind != DENSE or c_kind == LOWER else m
    cols = n if b_kind != DENSE or c_kind == LOWER else m
    count = (a_kind != DENSE) + (b_kind != DENSE) + (c_kind == LOWER)
    limit_copies(int(at_once * count * n * n * element.itemsize))
    for a_batch, b_batch in BATCHES:
        a = draw_operand(a_kind, n, element, rng, batch=a_batch, rows=rows, draw=random_integers)
        b = draw_operand(b_kind, n, element, rng, batch=b_batch, cols=cols, draw=random_integers)
        with failures.case(f"{a_batch}, {b_batch}"):
            assert_exact(mm(a.stored, b.stored, n, a_kind, b_kind, c_kind), a, b, c_kind)
    failures.report()


def test_pieces_are_as_large_as_memory_allows(
    limit_copies: Callable[[int], None], device: str, rng: torch.Generator
) -> None:
    n, m = 408, 2048
    product = (torch.bfloat16, n, m, 6, (SYMMETRIC, DENSE, DENSE))
    on_cpu = device == "cpu"
    kernel = cpu_kernel(*product) if on_cpu else cuda_kernel(*product, torch.device(device))
    if "dense torch" not in kernel:
        pytest.skip("dense torch is no faster here")
    s = draw_operand(SYMMETRIC, n, torch.bfloat16, rng, batch=(2, 3), draw=random_integers)
    x = draw_operand(DENSE, n, torch.bfloat16, rng, batch=(2, 3), cols=m, draw=random_integers)
    for at_once, pieces in ((6, 1), (5, 2), (3, 2), (2, 4), (1, 6)):
        limit_copies(at_once * n * n * 2)
        with profile() as calls:
            mm(s.stored, x.stored, n, SYMMETRIC, DENSE, DENSE)
        matmuls = [call for call in calls.events() if call.name == "aten::matmul"]
        assert len(matmuls) == pieces, at_once
