"""Blocks and rows, to and from packed storage: exact against whole matrices, for every block."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch
from cases import SMALL, Failures, assert_same, each, shifted
from torch import Tensor

from packedtri.layout import DENSE, HERMITIAN, LOWER, MIRRORED, SYMMETRIC, UPPER, numel
from packedtri.testing import densify, poisoned, random, random_integers

ops = torch.ops.packedtri
kinds = pytest.mark.parametrize(
    "kind", [LOWER, UPPER, SYMMETRIC, HERMITIAN], ids=["L", "U", "S", "H"]
)
ORDERS = (0, 1, 2, 5, 33, 70) if SMALL else (0, 1, 2, 5, 31, 33, 64, 70, 131)
BATCHES = ((), (3,), (2, 0))


def edges(n: int) -> list[int]:
    """Where blocks begin and end: at borders of tiles and beside them."""
    return sorted({x for x in (0, 1, n // 3, 16, 32, 33, 65, n - 1, n) if 0 <= x <= n})


def blocks(n: int) -> Iterator[tuple[slice, slice]]:
    """On the diagonal, beside it on both sides, crossing it at corners, and empty ones."""
    spans = [slice(a, b) for a, b in itertools.combinations_with_replacement(edges(n), 2)]
    # All pairs would be thousands; those of a span with others far from it in the list do.
    for k, rows in enumerate(spans):
        for step in (0, 1, 5, 11):
            yield rows, spans[(k + step) % len(spans)]


def unpack_block(packed: Tensor, n: int, kind: int, rows: slice, cols: slice) -> Tensor:
    with poisoned():
        size = (rows.stop - rows.start, cols.stop - cols.start)
        return ops.unpack_block(packed, n, kind, rows.start, cols.start, *size)


def pack_block(dense: Tensor, n: int, kind: int, rows: slice, cols: slice) -> Tensor:
    with poisoned():
        return ops.pack_block(dense, n, kind, rows.start, cols.start)


def write_block(
    packed: Tensor, block: Tensor, n: int, kind: int, rows: slice, cols: slice
) -> Tensor:
    changed = packed.clone()
    ops.write_block_(changed, block, n, kind, rows.start, cols.start)
    return changed


def written(packed: Tensor, block: Tensor, n: int, kind: int, rows: slice, cols: slice) -> Tensor:
    """What write_block_ makes of the packed matrices, by way of dense ones."""
    dense = densify(packed, n, kind)
    dense[..., rows, cols] = block
    if kind in MIRRORED:
        # Above the diagonal a matrix holds what the block has there alone.
        inside = torch.zeros(n, n, dtype=torch.bool, device=packed.device)
        inside[rows, cols] = True
        mirror = dense.mH if kind == HERMITIAN else dense.mT
        dense = torch.where(inside.tril(), dense, torch.where(inside.mT, mirror, dense))
        if kind == HERMITIAN and dense.is_complex():
            line = dense.diagonal(dim1=-2, dim2=-1)
            own = torch.where(inside.diagonal(), line.real.to(dense.dtype), line)
            dense = dense.diagonal_scatter(own, dim1=-2, dim2=-1)
    return ops.pack(dense, UPPER if kind == UPPER else LOWER)


def whole(block: Tensor, n: int, rows: slice, cols: slice) -> Tensor:
    """The matrices that have the block and zeros elsewhere."""
    matrices = block.new_zeros((*block.shape[:-2], n, n))
    matrices[..., rows, cols] = block
    return matrices


@kinds
def test_unpack_block(kind: int, device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    failures = Failures()
    for n, batch in each(ORDERS, BATCHES):
        packed = random((*batch, numel(n)), dtype, device, rng)
        dense = densify(packed, n, kind)
        for rows, cols in blocks(n):
            with failures.case(f"n={n}, batch {batch}, [{rows}, {cols}]"):
                block = unpack_block(packed, n, kind, rows, cols)
                assert_same(block, dense[..., rows, cols].contiguous())
                assert block.is_contiguous(), "the result is not contiguous"
    failures.report()


@kinds
def test_pack_block(kind: int, device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    failures = Failures()
    for n, batch in each(ORDERS, BATCHES):
        for rows, cols in blocks(n):
            shape = (*batch, rows.stop - rows.start, cols.stop - cols.start)
            block = random(shape, dtype, device, rng)
            with failures.case(f"n={n}, batch {batch}, [{rows}, {cols}]"):
                expected = ops.pack(whole(block, n, rows, cols), kind)
                assert_same(pack_block(block, n, kind, rows, cols), expected)
    failures.report()


@kinds
def test_write_block(kind: int, device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    failures = Failures()
    for n, batch in each(ORDERS, BATCHES):
        packed = ops.scale_band(
            random((*batch, numel(n)), dtype, device, rng), n, 0, 0, 1.0, 1.0, kind == HERMITIAN
        )
        for rows, cols in blocks(n):
            shape = (*batch, rows.stop - rows.start, cols.stop - cols.start)
            block = random(shape, dtype, device, rng)
            with failures.case(f"n={n}, batch {batch}, [{rows}, {cols}]"):
                got = write_block(packed, block, n, kind, rows, cols)
                assert_same(got, written(packed, block, n, kind, rows, cols))
    failures.report()


def test_rows(device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    """Rows of a triangle of which nothing else is there."""
    failures = Failures()
    for n, batch in each(ORDERS, BATCHES):
        packed = random((*batch, numel(n)), dtype, device, rng)
        dense = densify(packed, n, LOWER)
        for first, last in itertools.combinations_with_replacement(edges(n), 2):
            with failures.case(f"n={n}, batch {batch}, rows [{first}, {last})"):
                rows = packed[..., numel(first) : numel(last)]
                expected = dense[..., first:last, :last].contiguous()
                with poisoned():
                    got = ops.unpack_rows(rows, first, last)
                assert_same(got, expected)
                # What lies past the diagonal is not looked at.
                past = random(expected.shape, dtype, device, rng).triu(first + 1)
                with poisoned():
                    again = ops.pack_rows(expected + past, first)
                assert_same(again, rows.contiguous())
    failures.report()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: ops.unpack_rows(x(2, 4), 1, 3), r"expected rows \(\.\.\., 5\); got \(2, 4\)"),
        (lambda x: ops.unpack_rows(x(5), 3, 1), "expected rows from first to last; got 3 and 1"),
        (lambda x: ops.unpack_rows(x(5), -1, 1), "expected rows from first to last; got -1 and 1"),
        (lambda x: ops.pack_rows(x(2, 4), 1), r"\(\.\.\., k, first \+ k\) from row first = 1 on"),
        (lambda x: ops.pack_rows(x(4), 1), r"\(\.\.\., k, first \+ k\)"),
    ],
)
def test_wrong_rows(call, message: str, device: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        call(lambda *shape: torch.zeros(shape, device=device))


@kinds
def test_layouts(kind: int, device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    """Operands that lie in memory in any way, at any distance from an aligned address."""
    n, rows, cols = 70, slice(3, 64), slice(20, 69)
    packed = random((3, numel(n)), dtype, device, rng)
    for view in (packed.mT.contiguous().mT, packed[:1].expand_as(packed), shifted(packed, 3)):
        block = unpack_block(view, n, kind, rows, cols)
        assert_same(block, densify(view.contiguous(), n, kind)[..., rows, cols].contiguous())
        part = view[..., numel(5) : numel(64)]
        assert_same(
            ops.unpack_rows(part, 5, 64),
            densify(view.contiguous(), n, LOWER)[..., 5:64, :64].contiguous(),
        )
    dense = random((3, 61, 49), dtype, device, rng)
    for view in (dense.mT.contiguous().mT, dense[:, :1].expand_as(dense), shifted(dense)):
        expected = ops.pack(whole(view.contiguous(), n, rows, cols), kind)
        assert_same(pack_block(view, n, kind, rows, cols), expected)


@kinds
def test_adjoint(kind: int, device: str, rng: torch.Generator) -> None:
    """<pack x, y> = <x, unpack y>, on which derivatives of indexing rest; exact on integers."""
    n, rows, cols = 40, slice(1, 37), slice(5, 40)
    for dtype in (torch.float64, torch.complex128):
        x = random_integers((36, 35), dtype, device, rng)
        y = random_integers((numel(n),), dtype, device, rng)
        left = (pack_block(x, n, kind, rows, cols).conj() * y).sum()
        right = (x.conj() * unpack_block(y, n, kind, rows, cols)).sum()
        left, right = (s.real if kind == HERMITIAN else s for s in (left, right))
        assert left == right


@kinds
def test_what_is_outside_is_not_read(kind: int, device: str, rng: torch.Generator) -> None:
    """Neither the other half of a triangle nor the rest of the matrix reaches the result."""
    n, rows, cols = 70, slice(20, 50), slice(10, 40)
    packed = random((numel(n),), torch.float32, device, rng)
    i, j = torch.tril_indices(n, n, device=device)
    inside = (rows.start <= i) & (i < rows.stop) & (cols.start <= j) & (j < cols.stop)
    mirror = (rows.start <= j) & (j < rows.stop) & (cols.start <= i) & (i < cols.stop)
    read = inside if kind == LOWER else mirror if kind == UPPER else inside | mirror
    spoiled = torch.where(read, packed, float("nan"))
    block = unpack_block(spoiled, n, kind, rows, cols)
    assert_same(block, densify(packed, n, kind)[rows, cols].contiguous())
    unused = torch.full((30, 30), float("nan"), device=device)
    k, m = torch.arange(20, 50, device=device)[:, None], torch.arange(10, 40, device=device)
    if kind not in MIRRORED:
        x = torch.where(m <= k if kind == LOWER else m >= k, 1.0, unused)
        assert pack_block(x, n, kind, rows, cols).isfinite().all()


@pytest.mark.parametrize(
    ("top", "left", "rows", "cols"),
    [(-1, 0, 1, 1), (0, 4, 1, 1), (2, 0, 2, 1), (0, 2, 1, 2), (0, 0, -1, 1), (2**62, 0, 1, 1)],
)
def test_blocks_beyond_the_matrix(top: int, left: int, rows: int, cols: int, device: str) -> None:
    packed = torch.ones(6, device=device)
    message = "is not within matrices of order 3"
    with pytest.raises(RuntimeError, match=message):
        ops.unpack_block(packed, 3, LOWER, top, left, rows, cols)
    if rows >= 0:
        with pytest.raises(RuntimeError, match=message):
            ops.pack_block(torch.ones(rows, cols, device=device), 3, LOWER, top, left)


def test_wrong_arguments(device: str) -> None:
    packed, dense = torch.ones(6, device=device), torch.ones(2, 2, device=device)
    for kind, tail in ((DENSE, "expected kind 0, 1, 2 or 4; got 3"), (7, "expected kind to be")):
        with pytest.raises(RuntimeError, match=f"unpack_block] {tail}"):
            ops.unpack_block(packed, 3, kind, 0, 0, 1, 1)
        with pytest.raises(RuntimeError, match=f"pack_block] {tail}"):
            ops.pack_block(dense, 3, kind, 0, 0)
    with pytest.raises(RuntimeError, match="a triangle of order 4 has"):
        ops.unpack_block(packed, 4, LOWER, 0, 0, 1, 1)
    with pytest.raises(RuntimeError, match="expected blocks"):
        ops.pack_block(dense[0], 3, LOWER, 0, 0)
    with pytest.raises(RuntimeError, match="expected float16"):
        ops.unpack_block(packed.int(), 3, LOWER, 0, 0, 1, 1)


def test_what_cannot_be_written(device: str) -> None:
    packed, block = torch.ones(2, 6, device=device), torch.zeros(2, 2, 2, device=device)
    for wrong, message in (
        ((packed.mT.contiguous().mT, block), "contiguous triangles"),
        ((packed, block[:1]), "as many blocks"),
        ((packed, block.double()), "one dtype and device"),
        ((packed[0, 0], block), "got a scalar"),
    ):
        with pytest.raises(RuntimeError, match=rf"write_block_\].*{message}"):
            ops.write_block_(*wrong, 3, LOWER, 0, 0)
    with pytest.raises(RuntimeError, match="is not within"):
        ops.write_block_(packed, block, 3, LOWER, 2, 0)
    with pytest.raises(RuntimeError, match="is not within"):
        ops.pack_block(block, 2**32, LOWER, 0, 0)
    assert bool((packed == 1).all())


@pytest.mark.parametrize("threads", [1, 3])
@kinds
def test_threads(threads: int, kind: int, rng: torch.Generator) -> None:
    torch.set_num_threads(threads)
    n, rows, cols = 900, slice(17, 800), slice(130, 899)
    packed = random((numel(n),), torch.float32, "cpu", rng)
    block = unpack_block(packed, n, kind, rows, cols)
    assert_same(block, densify(packed, n, kind)[rows, cols].contiguous())
    assert_same(pack_block(block, n, kind, rows, cols), ops.pack(whole(block, n, rows, cols), kind))
    new = random(block.shape, torch.float32, "cpu", rng)
    got = write_block(packed, new, n, kind, rows, cols)
    assert_same(got, written(packed, new, n, kind, rows, cols))
