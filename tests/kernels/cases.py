"""What the tests of the raw ops share: sizes, operands with their dense twins, grouped cases."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from packedtri.layout import DENSE, HERMITIAN, LOWER, SYMMETRIC, UPPER, numel
from packedtri.testing import (
    densify,
    epsilon,
    poisoned,
    random,
    take_part,
    wide_dtype,
)

SMALL = os.environ.get("PACKEDTRI_TEST_SMALL", "0") not in ("", "0")

NAMES = {
    LOWER: "lower",
    UPPER: "upper",
    SYMMETRIC: "symmetric",
    DENSE: "dense",
    HERMITIAN: "hermitian",
}
PAIRS = tuple(itertools.product(NAMES, repeat=2))
# All that differ in how their memory is read, for tools that take a second a launch.
FEW_PAIRS = tuple(itertools.product((LOWER, UPPER, DENSE), repeat=2))
PAIR_IDS = [f"{NAMES[a]}-{NAMES[b]}" for a, b in PAIRS]

# What the fixture `force` takes: the method, the tile, the split of sums and from what length
# on, and the grouping of tiles.
Force = Callable[[int, int, int, int, int], None]
DIRECT, ENGINE, HOPPER, THIN, FUSED, WIDE, WHOLE, STRIPS, MAPPED = 0, 1, 2, 3, 4, 5, 7, 8, 9
FRAGMENTS, RESIDENT, SHARED_IMAGES = 10, 11, 12
# Free, but for symmetric operands of float64 (choice.h).
BY_TRIANGLES = -3
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
SIXTEEN_BITS = FLOATS[:2]
# What the engine multiplies.
IMAGED = (torch.float16, torch.bfloat16, torch.float32)


class Element(NamedTuple):
    """An element type, and whether it may be rounded to TF32."""

    dtype: torch.dtype
    tf32: bool = False


ELEMENTS = {
    "float16": Element(torch.float16),
    "bfloat16": Element(torch.bfloat16),
    "float32": Element(torch.float32),
    "tf32": Element(torch.float32, tf32=True),
}


def on_hopper() -> bool:
    return torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9


hopper = pytest.mark.skipif(not on_hopper(), reason="Hopper's tensor cores")

# Sizes about the tile edges of any kernel, and none that all tiles divide.
SIZES = (0, 1, 2, 3, 5, 33, 64) if SMALL else (
    0, 1, 2, 3, 4, 5, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 257, 300
)  # fmt: skip


def mm(
    a: Tensor, b: Tensor, n: int, a_kind: int, b_kind: int, c_kind: int, tf32: bool = False
) -> Tensor:
    """The op, with a poisoned result: an element that the kernel does not write stays NaN."""
    with poisoned():
        return torch.ops.packedtri.mm(a, b, n, a_kind, b_kind, c_kind, tf32)


def pack(dense: Tensor, kind: int) -> Tensor:
    with poisoned():
        return torch.ops.packedtri.pack(dense, kind)


def unpack(packed: Tensor, n: int, kind: int) -> Tensor:
    with poisoned():
        return torch.ops.packedtri.unpack(packed, n, kind)


@dataclass
class Operand:
    """An operand as the op takes it, beside the dense matrix that it stands for."""

    stored: Tensor
    kind: int
    n: int
    dense: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.dense = densify(self.stored, self.n, self.kind)


Draw = Callable[..., Tensor]


def shifted(x: Tensor, by: int = 1, behind: int = 0) -> Tensor:
    """The same elements, ``by`` elements further from an aligned address, with nan before them.

    And with ``behind`` elements of nan behind them.
    """
    memory = torch.full((by + x.numel() + behind,), math.nan, dtype=x.dtype, device=x.device)
    return memory[by : by + x.numel()].view(x.shape).copy_(x)


def draw_operand(
    kind: int,
    n: int,
    dtype: torch.dtype,
    rng: torch.Generator,
    *,
    batch: tuple[int, ...] = (),
    rows: int | None = None,
    cols: int | None = None,
    draw: Draw = random,
) -> Operand:
    """A random operand; rows and cols apply to dense ones and are n unless told."""
    if kind == DENSE:
        shape = (*batch, n if rows is None else rows, n if cols is None else cols)
    else:
        shape = (*batch, numel(n))
    return Operand(draw(shape, dtype, rng.device, rng), kind, n)


def strip_kinds(dtype: torch.dtype) -> tuple[int, ...]:
    """The kinds of matrices whose products with some vectors can go by strips."""
    return (SYMMETRIC,) if dtype in SIXTEEN_BITS else (LOWER, UPPER, SYMMETRIC)


def vector_layouts(x: Tensor) -> dict[str, Tensor]:
    """The same matrices with rows, or columns, that lie side by side, with and without gaps."""
    gaps = x.new_full((*x.shape[:-1], x.shape[-1] + 3), math.nan)
    gaps[..., :-3] = x
    return {"rows": x.contiguous(), "columns": x.mT.contiguous().mT, "gaps": gaps[..., :-3]}


def assert_vector_layouts(
    failures: Failures, a: Operand, b: Operand, c: Operand, case: str
) -> None:
    """A packed matrix times columns `b`, and rows `c` times it, in each layout of these."""
    for name, right in vector_layouts(b.stored).items():
        with failures.case(f"{case}, kind {a.kind} times {name}"):
            assert_exact(mm(a.stored, right, a.n, a.kind, DENSE, DENSE), a, b, DENSE)
    for name, left in vector_layouts(c.stored).items():
        with failures.case(f"{case}, {name} times kind {a.kind}"):
            assert_exact(mm(left, a.stored, a.n, DENSE, a.kind, DENSE), c, a, DENSE)


def part_of(c_kind: int) -> str:
    """The part of the product that a result of this kind keeps."""
    return "lower" if c_kind == LOWER else "full"


def stored_product(a: Operand, b: Operand) -> Tensor:
    """The product over stored elements only: no structural zero meets an inf or a nan.

    Dense matrices are multiplied in float64 or complex128 but for the steps of the sum in which an
    element is not finite; of these the terms of stored elements are added one step at a time.
    """
    left, right = (x.dense.to(wide_dtype(x.dense.dtype)) for x in (a, b))
    in_left, in_right = (
        densify(torch.ones_like(x.stored), x.n, x.kind).to(torch.bool) for x in (a, b)
    )
    bad = ~(left.isfinite().flatten(0, -2).all(0) & right.mT.isfinite().flatten(0, -2).all(0))
    product = left[..., ~bad] @ right[..., ~bad, :]
    for k in bad.nonzero().flatten().tolist():
        terms = left[..., k, None] * right[..., None, k, :]
        product += terms.where(in_left[..., k, None] & in_right[..., None, k, :], 0)
    return product


def assert_exact(c: Tensor, a: Operand, b: Operand, c_kind: int) -> None:
    """For operands of small integers: equal to the rounded reference, bit for bit."""
    product = a.dense.to(wide_dtype(c.dtype)) @ b.dense.to(wide_dtype(c.dtype))
    expected = take_part(product, part_of(c_kind)).to(c.dtype)
    assert c.dtype == a.dense.dtype, f"the result is {c.dtype}"
    assert_same(densify(c, a.n, c_kind), expected)


def assert_vectors(failures: Failures, s: Operand, x: Operand, case: str) -> None:
    """A packed matrix times a dense one of every layout, and transposes of this times the other."""
    for name, stored in vector_layouts(x.stored).items():
        with failures.case(f"{case}, {name}"):
            c = mm(shifted(s.stored), stored, s.n, s.kind, DENSE, DENSE)
            assert_exact(c, s, x, DENSE)
        with failures.case(f"{case}, {name} left"):
            c = mm(stored.mT, s.stored, s.n, DENSE, s.kind, DENSE)
            assert_exact(c, Operand(x.stored.mT, DENSE, s.n), s, DENSE)


def assert_both_sides(failures: Failures, a: Operand, b: Operand, case: str) -> None:
    """A packed matrix times a dense one, and the transpose of this times the packed one."""
    with failures.case(f"{case}, columns"):
        assert_exact(mm(a.stored, b.stored, a.n, a.kind, DENSE, DENSE), a, b, DENSE)
    rows = Operand(b.stored.mT, DENSE, a.n)
    with failures.case(f"{case}, rows"):
        assert_exact(mm(rows.stored, a.stored, a.n, DENSE, a.kind, DENSE), rows, a, DENSE)


def assert_same(got: Tensor, expected: Tensor) -> None:
    """Equal shapes and elements; a NaN equals nothing."""
    assert got.shape == expected.shape, f"shape {tuple(got.shape)}, not {tuple(expected.shape)}"
    wrong = (got != expected).nonzero().tolist()
    if wrong:
        first = tuple(wrong[0])
        raise AssertionError(
            f"{len(wrong)} of {got.numel()} elements differ, first at {first}: "
            f"{got[first].item()} for {expected[first].item()}"
        )


def assert_close_or_equal(c: Tensor, expected: Tensor, atol: float) -> None:
    """Finite elements within one rounding, infinite ones equal, and nan in the same places."""
    torch.testing.assert_close(c, expected, rtol=epsilon(c.dtype), atol=atol, equal_nan=True)


# (row, column) in the stored triangle. No row of a symmetric matrix has two of them.
BAD = ((0, 0), (70, 69), (131, 131), (150, 149), (199, 3), (198, 130))


def with_bad(x: Operand, value: float) -> Operand:
    """The same operand but for elements of this value at `BAD`, as far as it has rows."""
    stored = x.stored.clone()
    bad = [(i, j) for i, j in BAD if i < x.n]
    if x.kind == DENSE:
        rows, cols = (torch.tensor(at, device=stored.device) for at in zip(*bad, strict=True))
        stored[rows, cols] = value
    else:
        stored[[numel(i) + j for i, j in bad]] = value
    return Operand(stored, x.kind, x.n)


def assert_same_nonfinite(c: Tensor, product: Tensor, n: int, c_kind: int) -> None:
    """A result of `mm` against the product of stored elements, some of which are not finite."""
    got, expected = densify(c, n, c_kind), take_part(product, part_of(c_kind))
    # Whether infinite times complex is infinite or nan depends on the parts.
    assert torch.equal(got.isfinite(), expected.isfinite())
    ok = got.isfinite() if got.is_complex() else slice(None)
    assert_close_or_equal(got[ok], expected[ok], atol=0)


class Failures:
    """Runs many small cases in one test and reports every one that failed, by name."""

    def __init__(self) -> None:
        self.count = 0
        self.messages: list[str] = []

    @contextlib.contextmanager
    def case(self, name: str) -> Iterator[None]:
        self.count += 1
        try:
            yield
        except (AssertionError, RuntimeError) as error:
            # torch appends a C++ stack to what its checks say.
            self.messages.append(f"{name}: {str(error).split(chr(10))[0]}")

    def report(self) -> None:
        assert self.count > 0, "the test ran no case"
        shown = "\n".join(self.messages[:20])
        assert not self.messages, f"{len(self.messages)} of {self.count} cases failed:\n{shown}"


def each(*axes: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """The cases of a loop over every combination."""
    return itertools.product(*axes)


@contextlib.contextmanager
def memory_filled(room: int, least: int) -> Iterator[None]:
    """Takes all GPU memory that torch may have, by `least` bytes and more, but for `room` bytes.

    What runs then must have asked for more than that.
    """
    # Small tensors have memory of their own.
    spare = [torch.empty(n, dtype=torch.uint8, device="cuda") for n in (2**19, room)]
    torch.cuda.empty_cache()
    limit = torch.cuda.memory_reserved() / torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(limit)
    pieces: list[Tensor] = []
    size = 2**32
    try:
        while size >= least:
            with contextlib.suppress(torch.OutOfMemoryError):
                pieces.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
                continue
            size //= 2
        spare.clear()
        failed = torch.cuda.memory_stats()["num_ooms"]
        yield
        assert torch.cuda.memory_stats()["num_ooms"] > failed, "there was room"
    finally:
        pieces.clear()
        torch.cuda.set_per_process_memory_fraction(1.0)
