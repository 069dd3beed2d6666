"""The product op on operands of every memory layout: strides, offsets, lazy conjugates.

The data are small integers, so results are compared for equality and a wrong stride cannot hide in
a tolerance. Memory beside a view holds NaN, which would show if a kernel computed with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from cases import PAIRS, SMALL, Failures, assert_exact, draw_operand, each, mm
from torch import Tensor

from packedtri.layout import DENSE, HERMITIAN, LOWER, SYMMETRIC, UPPER, numel
from packedtri.testing import random_integers

SIZES = (1, 2, 5, 33) if SMALL else (1, 2, 5, 33, 64, 131)
NAN = float("nan")


def in_buffer(x: Tensor, before: int, after: int = 9) -> Tensor:
    """A copy of x, contiguous, `before` elements into a buffer of NaN."""
    buffer = x.new_full((before + x.numel() + after,), NAN)
    return buffer[before : before + x.numel()].view(x.shape).copy_(x)


def strided(x: Tensor, row: int, col: int, before: int = 0) -> Tensor:
    """A copy of the matrices x with these strides, in a buffer of NaN."""
    *batch, m, n = x.shape
    span = max(1, m) * row + max(1, n) * col
    buffer = x.new_full((before + span * max(1, math.prod(batch)),), NAN)
    strides, step = [], span
    for size in reversed(batch):
        strides.insert(0, step)
        step *= size
    view = buffer.as_strided(x.shape, (*strides, row, col), before)
    return view.copy_(x)


# Each takes a batch of matrices (*batch, m, n) to the same values in another layout.
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "row-major": lambda x: x.contiguous(),
    "column-major": lambda x: x.mT.contiguous().mT,
    "offset": lambda x: in_buffer(x, 3),
    "padded rows": lambda x: strided(x, x.shape[-1] + 5, 1, 1),
    "padded columns": lambda x: strided(x, 1, x.shape[-2] + 3, 7),
    "aligned pitch": lambda x: strided(x, -(-x.shape[-1] // 8) * 8, 1),
    "no unit stride": lambda x: strided(x, 2 * x.shape[-1] + 1, 2, 2),
    "transposed, no unit stride": lambda x: strided(x, 3, 3 * x.shape[-2] + 2),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", [LOWER, UPPER, SYMMETRIC, HERMITIAN, DENSE])
def test_dense_layouts(
    kind: int, layout: str, device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    """Either operand dense in this layout, square or thin (whose strides along 1 mean nothing)."""
    place = LAYOUTS[layout]
    failures = Failures()
    for n, thin, batch in each(SIZES, (1, 2, 17, None), ((), (3,))):
        other = draw_operand(kind, n, dtype, rng, draw=random_integers)
        x = draw_operand(DENSE, n, dtype, rng, batch=batch, cols=thin, draw=random_integers)
        with failures.case(f"n={n}, {thin} columns, batch {batch}, right"):
            assert_exact(mm(other.stored, place(x.stored), n, kind, DENSE, DENSE), other, x, DENSE)
        x = draw_operand(DENSE, n, dtype, rng, batch=batch, rows=thin, draw=random_integers)
        with failures.case(f"n={n}, {thin} rows, batch {batch}, left"):
            assert_exact(mm(place(x.stored), other.stored, n, DENSE, kind, DENSE), x, other, DENSE)
        x = draw_operand(DENSE, n, dtype, rng, batch=batch, draw=random_integers)
        with failures.case(f"n={n}, batch {batch}, packed result"):
            assert_exact(mm(place(x.stored), other.stored, n, DENSE, kind, LOWER), x, other, LOWER)
    failures.report()


@pytest.mark.parametrize("kind", [LOWER, UPPER, SYMMETRIC, HERMITIAN, DENSE])
def test_expanded(kind: int, device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    """Dense operands with strides of zero, along rows, columns, both, or the batch."""
    failures = Failures()
    shapes = (((1, None), ()), ((None, 1), ()), ((1, 1), ()), ((None, None), (4,)))
    for n, ((rows, cols), batch) in each(SIZES, shapes):
        other = draw_operand(kind, n, dtype, rng, draw=random_integers)
        x = draw_operand(DENSE, n, dtype, rng, rows=rows, cols=cols, draw=random_integers)
        x.stored = x.dense = x.stored.expand(*batch, n, n)
        for c_kind in (LOWER, DENSE):
            with failures.case(f"n={n}, from {rows} x {cols}, batch {batch}, c_kind={c_kind}"):
                c = mm(x.stored, other.stored, n, DENSE, kind, c_kind)
                assert_exact(c, x, other, c_kind)
                c = mm(other.stored, x.stored, n, kind, DENSE, c_kind)
                assert_exact(c, other, x, c_kind)
    failures.report()


@pytest.mark.parametrize("kind", [LOWER, UPPER, SYMMETRIC, HERMITIAN])
def test_packed_offsets(kind: int, device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    """Packed triangles that begin at any offset: rows of a triangle have every alignment anyway,
    but its first element must not be assumed to have one either."""
    failures = Failures()
    for n, before, other_kind in each(SIZES, range(8), (LOWER, UPPER, DENSE)):
        x = draw_operand(kind, n, dtype, rng, draw=random_integers)
        y = draw_operand(other_kind, n, dtype, rng, draw=random_integers)
        x.stored, y.stored = in_buffer(x.stored, before), in_buffer(y.stored, 7 - before)
        for c_kind in (LOWER, DENSE):
            with failures.case(f"n={n}, offset {before}, other {other_kind}, c_kind={c_kind}"):
                c = mm(x.stored, y.stored, n, kind, other_kind, c_kind)
                assert_exact(c, x, y, c_kind)
                c = mm(y.stored, x.stored, n, other_kind, kind, c_kind)
                assert_exact(c, y, x, c_kind)
    failures.report()


PACKED_LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "every third element": lambda x: strided(x, 3 * x.shape[-1] + 1, 3, 1),
    "elements of one batch apart": lambda x: x.mT.contiguous().mT,
    "padded batch": lambda x: strided(x, x.shape[-1] + 3, 1, 5),
    "reversed batch dimensions": lambda x: (
        x.expand(2, 3, *x.shape).permute(2, 1, 0, 3).contiguous().permute(2, 1, 0, 3)
    ),
}


@pytest.mark.parametrize("layout", PACKED_LAYOUTS)
@pytest.mark.parametrize("kind", [LOWER, UPPER, SYMMETRIC, HERMITIAN])
def test_packed_layouts(
    kind: int, layout: str, device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    failures = Failures()
    for n, other_kind in each(SIZES, (LOWER, UPPER, DENSE)):
        values = random_integers((4, numel(n)), dtype, device, rng)
        x = draw_operand(kind, n, dtype, rng, draw=lambda *_, v=values: v)
        y = draw_operand(other_kind, n, dtype, rng, draw=random_integers)
        x.stored = PACKED_LAYOUTS[layout](x.stored)
        x.dense = x.dense.expand(*x.stored.shape[:-1], n, n)
        with failures.case(f"n={n}, other {other_kind}"):
            assert_exact(mm(x.stored, y.stored, n, kind, other_kind, LOWER), x, y, LOWER)
            assert_exact(mm(y.stored, x.stored, n, other_kind, kind, DENSE), y, x, DENSE)
    failures.report()


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=["c64", "c128"])
def test_lazy_views(device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    """torch keeps conjugates and negations as bits of a view; the op must not miss them."""
    views: dict[str, Callable[[Tensor], Tensor]] = {
        "conjugate": lambda x: x.conj(),
        "conjugate transpose": lambda x: x.mT.contiguous().mT.conj(),
        "negative": lambda x: torch._neg_view(x),
        "negative conjugate": lambda x: torch._neg_view(x.conj()),
    }
    failures = Failures()
    for n, (a_kind, b_kind), (name, view) in each((1, 5, 33), PAIRS, tuple(views.items())):
        if "transpose" in name and DENSE not in (a_kind, b_kind):
            continue
        a = draw_operand(a_kind, n, dtype, rng, draw=random_integers)
        b = draw_operand(b_kind, n, dtype, rng, draw=random_integers)
        plain = draw_operand(b_kind, n, dtype, rng, draw=random_integers)
        for x in (a, b):
            if x.kind == DENSE or "transpose" not in name:
                x.stored, x.dense = view(x.stored), view(x.dense).resolve_neg().resolve_conj()
        with failures.case(f"n={n}, kinds {a_kind}, {b_kind}, {name}"):
            c = mm(a.stored, b.stored, n, a_kind, b_kind, DENSE)
            assert_exact(c, a, b, DENSE)
            c = mm(a.stored, plain.stored, n, a_kind, b_kind, LOWER)
            assert_exact(c, a, plain, LOWER)
    failures.report()


def test_negative_imaginary_part(device: str, rng: torch.Generator) -> None:
    """The imaginary part of a conjugate is a real tensor with the negative bit."""
    a = draw_operand(LOWER, 33, torch.float32, rng, draw=random_integers)
    b = draw_operand(DENSE, 33, torch.float32, rng, draw=random_integers)
    b.stored = torch.complex(torch.ones_like(b.stored), -b.stored).conj().imag
    assert b.stored.is_neg()
    assert_exact(mm(a.stored, b.stored, 33, LOWER, DENSE, DENSE), a, b, DENSE)


def test_same_tensor_twice(device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    failures = Failures()
    for n, (a_kind, b_kind), c_kind in each(SIZES, PAIRS, (LOWER, DENSE)):
        if (a_kind == DENSE) != (b_kind == DENSE):
            continue
        a = draw_operand(a_kind, n, dtype, rng, draw=random_integers)
        b = draw_operand(b_kind, n, dtype, rng, draw=lambda *_, a=a: a.stored)
        with failures.case(f"n={n}, kinds {a_kind}, {b_kind}, c_kind={c_kind}"):
            assert_exact(mm(a.stored, a.stored, n, a_kind, b_kind, c_kind), a, b, c_kind)
    failures.report()
