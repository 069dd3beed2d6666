"""A small set that runs every kernel on ragged sizes: what compute-sanitizer and CI start with.

    PACKEDTRI_TEST_SMALL=1 PYTORCH_NO_CUDA_MEMORY_CACHING=1 \\
        compute-sanitizer python -m pytest -m "sanitizer and cuda"

Without torch's cache every tensor is an allocation of its own, whose bounds the tool knows. On the
CPU the same tests find accesses out of bounds in a library that was compiled with
`-DCMAKE_CXX_FLAGS="-fsanitize=address,undefined"`:

    LD_PRELOAD=$(g++ -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 \\
        python -m pytest -s -m "sanitizer and not cuda"
"""

from __future__ import annotations

import pytest
import torch
from cases import PAIR_IDS, PAIRS, SMALL, Failures, assert_exact, assert_same, draw_operand, each
from test_cholesky import DTYPES
from test_cholesky_update import assert_factors, changed_matrix, draw_columns, draw_factor

from packedtri.layout import DENSE, HERMITIAN, LOWER, MIRRORED, SYMMETRIC, UPPER, numel
from packedtri.testing import densify, random, random_integers

pytestmark = pytest.mark.sanitizer

ops = torch.ops.packedtri
SIZES = (1, 33, 130) if SMALL else (1, 33, 130, 260)


@pytest.mark.parametrize(("a_kind", "b_kind"), PAIRS, ids=PAIR_IDS)
def test_products(
    a_kind: int, b_kind: int, device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    """Not poisoned: initcheck must see an unwritten result for itself."""
    failures = Failures()
    for n, by_columns, c_kind in each(SIZES, (False, True), (LOWER, DENSE)):
        if by_columns and DENSE not in (a_kind, b_kind):
            continue
        a = draw_operand(a_kind, n, dtype, rng, draw=random_integers)
        b = draw_operand(b_kind, n, dtype, rng, draw=random_integers)
        for x in (a, b):
            if by_columns and x.kind == DENSE:
                x.stored = x.stored.mT.contiguous().mT
        with failures.case(f"n={n}, c_kind={c_kind}, by columns: {by_columns}"):
            assert_exact(ops.mm(a.stored, b.stored, n, a_kind, b_kind, c_kind), a, b, c_kind)
    failures.report()


@pytest.mark.parametrize("kind", [LOWER, UPPER])
def test_thin(kind: int, device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    failures = Failures()
    for n, thin in each(SIZES, (1, 3)):
        t = draw_operand(kind, n, dtype, rng, draw=random_integers)
        x = draw_operand(DENSE, n, dtype, rng, cols=thin, draw=random_integers)
        with failures.case(f"n={n}, {thin} columns"):
            assert_exact(ops.mm(t.stored, x.stored, n, kind, DENSE, DENSE), t, x, DENSE)
        x = draw_operand(DENSE, n, dtype, rng, rows=thin, draw=random_integers)
        with failures.case(f"n={n}, {thin} rows"):
            assert_exact(ops.mm(x.stored, t.stored, n, DENSE, kind, DENSE), x, t, DENSE)
    failures.report()


@pytest.mark.parametrize("kind", [SYMMETRIC, HERMITIAN])
def test_mirrored_vector(kind: int, device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    """Kernels of their own read the stored half of small and of large ones once."""
    failures = Failures()
    for n, batch in ((40, 2), (100, 2), (130, 20), (130, 100), (513, 2)):
        s = draw_operand(kind, n, dtype, rng, batch=(batch,), draw=random_integers)
        x = draw_operand(DENSE, n, dtype, rng, batch=(batch,), cols=1, draw=random_integers)
        y = draw_operand(DENSE, n, dtype, rng, batch=(batch,), rows=1, draw=random_integers)
        with failures.case(f"n={n}, {batch} times a column"):
            assert_exact(ops.mm(s.stored, x.stored, n, kind, DENSE, DENSE), s, x, DENSE)
        with failures.case(f"n={n}, {batch} rows times it"):
            assert_exact(ops.mm(y.stored, s.stored, n, DENSE, kind, DENSE), y, s, DENSE)
    failures.report()


@pytest.mark.parametrize("kind", [LOWER, UPPER, SYMMETRIC, HERMITIAN])
def test_rows_times_vectors(
    kind: int, device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    for first, last in ((0, 1), (5, 130), (70, 300)):
        packed = random_integers((2, numel(last)), dtype, device, rng)
        packed[:, : numel(first)] = 0
        x = random_integers((last,), dtype, device, rng)
        y = ops.multiply_rows(packed[:, numel(first) :].contiguous(), x, first, last, kind)
        wide = torch.complex128 if dtype.is_complex else torch.float64
        expected = densify(packed, last, kind).to(wide) @ x.to(wide)
        assert_same(y, expected.to(dtype))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nonfinite(value: float, device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    """Kernels may take another path where an element is not finite."""
    for n, (a_kind, b_kind) in each((33, 130), PAIRS):
        a = draw_operand(a_kind, n, dtype, rng)
        b = draw_operand(b_kind, n, dtype, rng)
        a.stored.view(-1)[-1] = value
        c = ops.mm(a.stored, b.stored, n, a_kind, b_kind, DENSE)
        assert not c[-1, -1].isfinite(), f"n={n}, kinds {a_kind}, {b_kind}"


@pytest.mark.parametrize("kind", [LOWER, UPPER, SYMMETRIC, HERMITIAN])
def test_conversions(kind: int, device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    for n, by_columns in each(SIZES, (False, True)):
        packed = random((2, numel(n)), dtype, device, rng)
        dense = ops.unpack(packed, n, kind)
        assert_same(dense, densify(packed, n, kind))
        if by_columns:
            dense = dense.mT.contiguous().mT
        half = densify(packed, n, kind).tril()
        got = ops.pack(dense, kind)
        if kind in MIRRORED:
            assert_same(densify(got, n, LOWER), half + half.tril(-1))
        else:
            assert_same(got, packed)


@pytest.mark.parametrize("k", [1, 9])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_cholesky_updates(k: int, device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    """About the 32 columns and the 8 columns of x that the CUDA kernel takes at a time."""
    for n, downdate in each((1, 32, 33, 65, 100), (False, True)):
        packed = draw_factor(n, dtype, rng, (2,))
        x = draw_columns(n, k, dtype, rng, (2,))
        factor, info = ops.cholesky_update(packed, x, n, downdate)
        assert not info.any()
        assert_factors(factor, changed_matrix(packed, x, n, downdate), n)
