"""Counts of FlopCounterMode against those of dense matrices of zeros and ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import packedtri
from packedtri import LowerTriangular, Symmetric
from packedtri._flops import product_flops
from packedtri.layout import DENSE, LOWER, SYMMETRIC, UPPER, numel


def flops(call: Callable[[], Any]) -> int:
    with FlopCounterMode(display=False) as mode:
        call()
    return mode.get_total_flops()


def pattern(kind: int, rows: int, cols: int) -> torch.Tensor:
    ones = torch.ones(rows, cols, dtype=torch.int64)
    return ones.tril() if kind == LOWER else ones.triu() if kind == UPPER else ones


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (5, 5, 5), (8, 8, 8), (5, 5, 3), (2, 6, 6), (4, 7, 4)]
)
def test_products_count_stored_elements(sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    for a, b, c in itertools.product(
        (LOWER, UPPER, SYMMETRIC, DENSE), (LOWER, UPPER, SYMMETRIC, DENSE), (LOWER, DENSE)
    ):
        if (a != DENSE and m != k) or (b != DENSE and k != n) or (c == LOWER and m != n):
            continue
        each = pattern(a, m, k) @ pattern(b, k, n)
        expected = (each.tril() if c == LOWER else each).sum().item()
        assert product_flops(m, k, n, a, b, c) == 2 * expected, (a, b, c)


def test_a_product_of_triangles_takes_a_sixth() -> None:
    n = 300
    L = LowerTriangular(torch.randn(numel(n)))
    dense = flops(lambda: L.to_dense() @ L.to_dense())
    assert flops(lambda: L @ L) == n * (n + 1) * (n + 2) // 3
    assert dense / flops(lambda: L @ L) == pytest.approx(6, rel=0.02)


def test_gradients_count() -> None:
    n = 40
    a, b = (LowerTriangular(torch.randn(3, numel(n))).requires_grad_() for _ in range(2))
    forward = flops(lambda: a @ b)
    both = flops(lambda: (a @ b).packed.sum().backward())
    assert forward == 3 * n * (n + 1) * (n + 2) // 3
    assert both == 3 * forward


def test_operands_of_every_shape() -> None:
    n = 6
    S, L = Symmetric(torch.randn(numel(n))), LowerTriangular(torch.randn(2, 1, numel(n)))
    assert flops(lambda: S @ torch.randn(n)) == 2 * n * n
    assert flops(lambda: L @ torch.randn(4, n, 3)) == 2 * 4 * n * (n + 1) * 3
    assert flops(lambda: torch.randn(3, n) @ L) == 2 * n * (n + 1) * 3
    assert flops(lambda: packedtri.syrk(torch.randn(n, 5))) == 5 * n * (n + 1)
    # Rows 2 to 5 of a triangle have 18 elements, 4 of them on the diagonal.
    rows, x = torch.randn(3, 18), torch.randn(n)
    for kind, expected in ((LOWER, 18), (UPPER, 18), (SYMMETRIC, 32)):
        count = flops(lambda kind=kind: torch.ops.packedtri.multiply_rows(rows, x, 2, n, kind))
        assert count == 2 * 3 * expected


def test_solves_and_factors() -> None:
    n, m = 7, 4
    S = Symmetric(torch.eye(n)[torch.tril_indices(n, n).unbind()].expand(2, -1).clone())
    cubes = n * (n + 1) * (2 * n + 1) // 6
    L = torch.linalg.cholesky(S)
    assert flops(lambda: torch.linalg.cholesky(S)) == 2 * cubes
    b, x = torch.ones(n, m), torch.ones(2, n, 3)
    assert flops(lambda: torch.linalg.solve_triangular(L, b, upper=False)) == 2 * n * n * m
    assert flops(lambda: torch.linalg.inv(L)) == 2 * cubes
    assert flops(lambda: packedtri.cholesky_update(L, x)) == 2 * 3 * 3 * n * (n + 1)
