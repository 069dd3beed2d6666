"""Every row of the dispatch table on complex Hermitian matrices: value, type and gradient.

The diagonals of all of them have imaginary parts in memory, which nothing may read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from calls import (
    COMPUTED,
    DIFFERENTIABLE,
    NOT_COMPARED,
    NOT_UNIQUE,
    Keywords,
    assert_same,
    attempts,
    contains_packed,
    dense,
    divides_by_zero,
    name_of,
    row_id,
    works_on_dense,
)
from torch import Tensor
from torch.utils._pytree import tree_map
from twins import project

from packedtri import Hermitian, PackedTensor, dispatch

ROWS = [r for r in COMPUTED if Hermitian in r.types or not r.types]
# They are computed with dtypes that the arguments here do not have, or of integers.
UNFIT = NOT_COMPARED | {"complex", "polar"}
REFUSALS = ("contradicts", "diagonal is real", "in place, which works on a dense copy only")


def make_complex(value: Any) -> Any:
    """Complex elements in the place of real ones, and on the diagonals ones to be ignored."""
    if isinstance(value, PackedTensor):
        packed = value.packed.to(torch.complex128)
        return type(value)(packed + 1j * torch.randn_like(packed))
    if type(value) is Tensor and value.dtype == torch.float64:
        return value + 1j * torch.rand_like(value)
    return torch.complex128 if value is torch.float64 else value


def complex_attempts(row: dispatch.Row) -> Iterator[tuple[Any, ...]]:
    cls = row.types[0] if row.types else Hermitian
    for args in attempts(row, cls):
        if not contains_packed(args) or divides_by_zero(row, args):
            continue
        changed = tree_map(make_complex, tuple(args))
        yield Keywords(changed, getattr(args, "kwargs", {}))
        if len(args) == 2 and isinstance(args[1], (int, float)):
            yield (changed[0], 1.5 - 0.5j)
            yield (changed[0], torch.tensor(0.5))


def run(row: dispatch.Row, args: tuple[Any, ...]) -> Any:
    return row.function(*args, **getattr(args, "kwargs", {}))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", ROWS, ids=map(row_id, ROWS))
def test_value_of_every_row(row):
    if name_of(row.function) in UNFIT:
        pytest.skip("random, or about the object, or not for complex numbers")
    for args in complex_attempts(row):
        works, expected = works_on_dense(row.function, args)
        if not works:
            continue
        try:
            ours = run(row, args)
        except (ValueError, NotImplementedError) as error:
            # What cannot be written into the storage is refused, and says why.
            if any(reason in str(error) for reason in REFUSALS):
                continue
            raise
        if name_of(row.function) not in NOT_UNIQUE:
            assert_same(ours, expected)


GRADED = [r for r in DIFFERENTIABLE if Hermitian in r.types or not r.types]


def real_part(result: Any) -> Tensor:
    """A real function of a result with another derivative for each part of each element."""
    if isinstance(result, (tuple, list)):
        return sum(map(real_part, result))
    x = result.to_dense() if isinstance(result, PackedTensor) else result
    weights = torch.arange(1.0, x.numel() + 1, dtype=torch.float64).reshape(x.shape)
    return (x * torch.exp(1j * weights)).sum().real


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", GRADED, ids=map(row_id, GRADED))
def test_gradient_of_rows_is_the_projected_dense_gradient(row):
    for args in itertools.islice(complex_attempts(row), 12):
        works, expected = works_on_dense(row.function, args)
        if not works or not isinstance(expected, Tensor) or not expected.is_complex():
            continue
        ours, twins = (
            Keywords([f(a).requires_grad_() if isinstance(a, PackedTensor) else a for a in args],
                     getattr(args, "kwargs", {}))
            for f in (lambda a: a.detach(), dense)
        )  # fmt: skip
        if name_of(row.function) == "detach":
            continue
        real_part(run(row, ours)).backward()
        real_part(run(row, twins)).backward()
        for a, b in zip(ours, twins, strict=True):
            if isinstance(a, PackedTensor) and a.grad is not None:
                assert type(a.grad) is type(a)
                torch.testing.assert_close(dense(a.grad), project(type(a), b.grad), equal_nan=True)


def test_the_rows_serve_complex_matrices():
    served = [r for r in ROWS if any(works_on_dense(r.function, a)[0] for a in complex_attempts(r))]
    assert len(served) > 400
