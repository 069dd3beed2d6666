"""The op solve_triangular: residuals, SciPy on the same bytes, batches, hard matrices."""

from __future__ import annotations

import itertools

import pytest
import torch
from cases import SMALL, Failures, each
from solve_cases import pack
from torch import Tensor

from packedtri.layout import DENSE, LOWER, UPPER, numel
from packedtri.testing import densify, epsilon, poisoned, random, wide_dtype

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: str(t).removeprefix("torch."))
# (kind, left, unit)
FORMS = tuple(itertools.product((LOWER, UPPER), (True, False), (False, True)))
SIZES = (
    (1, 2, 3, 5, 33, 64)
    if SMALL
    else (1, 2, 3, 15, 31, 32, 33, 63, 64, 65, 80, 81, 127, 128, 129, 144, 145, 257, 272)
)


def solve(
    packed: Tensor, b: Tensor, n: int, kind: int, b_kind: int, left: bool, unit: bool
) -> Tensor:
    with poisoned():
        return torch.ops.packedtri.solve_triangular(packed, b, n, kind, b_kind, left, unit)


def draw_triangle(
    n: int, dtype: torch.dtype, rng: torch.Generator, batch: tuple[int, ...] = ()
) -> Tensor:
    """A packed triangle whose inverse is of moderate size, read with its diagonal or with ones."""
    packed = random((*batch, numel(n)), dtype, rng.device, rng) / max(1, n)
    i = torch.arange(n, device=rng.device)
    packed[..., i * (i + 3) // 2] += 1
    return packed


def draw_rhs(n: int, m: int, left: bool, dtype: torch.dtype, rng: torch.Generator) -> Tensor:
    return random((n, m) if left else (m, n), dtype, rng.device, rng)


def read(packed: Tensor, n: int, kind: int, unit: bool) -> Tensor:
    t = densify(packed, n, kind)
    if unit:
        t = (
            t
            - torch.diag_embed(torch.diagonal(t, dim1=-2, dim2=-1))
            + torch.eye(n, device=t.device)
        )
    return t


def residual(t: Tensor, x: Tensor, b: Tensor, left: bool) -> float:
    """LAPACK's ratio: the residual over n |T| |X| epsilon, in the Frobenius norm."""
    wide = wide_dtype(x.dtype)
    t, y, b = t.to(wide), x.to(wide), b.to(wide)
    r = (t @ y if left else y @ t) - b
    norm = torch.linalg.matrix_norm
    ratio = norm(r) / (norm(t) * norm(y) * max(1, t.shape[-1]) * epsilon(x.dtype))
    return ratio.nan_to_num(torch.inf, posinf=torch.inf).max().item() if x.numel() else 0.0


@dtypes
@pytest.mark.parametrize("threads", [1, 3])
def test_dense_right_hand_sides(
    threads: int, device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    torch.set_num_threads(threads)
    failures = Failures()
    for n, m, (kind, left, unit) in each(SIZES, (1, 2, 7, 17, 70), FORMS):
        with failures.case(f"n={n}, m={m}, kind={kind}, left={left}, unit={unit}"):
            t, b = draw_triangle(n, dtype, rng), draw_rhs(n, m, left, dtype, rng)
            x = solve(t, b, n, kind, DENSE, left, unit)
            assert x.shape == b.shape
            ratio = residual(read(t, n, kind, unit), x, b, left)
            assert ratio < 30, f"residual {ratio}"
    failures.report()


def lower_part_of_solution(t: Tensor, b: Tensor, kind: int, left: bool) -> Tensor:
    wide = wide_dtype(t.dtype)
    x = torch.linalg.solve_triangular(t.to(wide), b.to(wide), upper=kind == UPPER, left=left)
    return x.tril()


@dtypes
@pytest.mark.parametrize("threads", [1, 3])
def test_packed_right_hand_sides(
    threads: int, device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    torch.set_num_threads(threads)
    failures = Failures()
    for n, (kind, left, unit) in each(SIZES, FORMS):
        with failures.case(f"n={n}, kind={kind}, left={left}, unit={unit}"):
            t = draw_triangle(n, dtype, rng)
            b = random((numel(n),), dtype, rng.device, rng)
            x = densify(solve(t, b, n, kind, LOWER, left, unit), n, LOWER)
            expected = lower_part_of_solution(
                read(t, n, kind, unit), densify(b, n, LOWER), kind, left
            )
            error = (x - expected).norm() / expected.norm() / epsilon(dtype)
            assert error < 30, f"error {error} epsilon"
    failures.report()


@pytest.mark.skipif(SMALL, reason="large sizes")
@dtypes
def test_large(device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    n = 700
    for m, kind, left in itertools.product((30, 333), (LOWER, UPPER), (True, False)):
        t, b = draw_triangle(n, dtype, rng), draw_rhs(n, m, left, dtype, rng)
        x = solve(t, b, n, kind, DENSE, left, False)
        assert residual(read(t, n, kind, False), x, b, left) < 30


@dtypes
def test_batches_broadcast(device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    failures = Failures()
    batches = (((3,), (3,)), ((3,), ()), ((), (3,)), ((2, 1), (3,)), ((0,), (1,)), ((2, 3), (2, 3)))
    for n, (t_batch, b_batch), (kind, left, unit) in each((1, 5, 66, 130), batches, FORMS):
        t = draw_triangle(n, dtype, rng, t_batch)
        for b_kind, shape in ((DENSE, (n, 4) if left else (4, n)), (LOWER, (numel(n),))):
            with failures.case(
                f"n={n}, {t_batch} and {b_batch}, {kind=} {left=} {unit=} {b_kind=}"
            ):
                b = random((*b_batch, *shape), dtype, rng.device, rng)
                x = solve(t, b, n, kind, b_kind, left, unit)
                batch = torch.broadcast_shapes(t_batch, b_batch)
                assert x.shape == (*batch, *shape)
                one_by_one = [
                    solve(p, q, n, kind, b_kind, left, unit)
                    for p, q in zip(
                        t.expand(*batch, -1).reshape(-1, numel(n)),
                        b.expand(*batch, *shape).reshape(-1, *shape),
                        strict=True,
                    )
                ]
                expected = torch.stack(one_by_one).reshape(x.shape) if one_by_one else x
                torch.testing.assert_close(x, expected)
    failures.report()


@dtypes
def test_strides_of_right_hand_sides(device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    t, b = draw_triangle(40, dtype, rng), random((40, 60), dtype, device, rng)
    for view in (b.mT.contiguous().mT, b[:, ::2], b[:, 5:6], b.expand(3, 40, 60), b.conj()):
        copy = view.contiguous().resolve_conj()
        ours = solve(t, view, 40, LOWER, DENSE, True, False)
        torch.testing.assert_close(ours, solve(t, copy, 40, LOWER, DENSE, True, False))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("kind", "unit"), list(itertools.product((LOWER, UPPER), (False, True))))
def test_scipy_tpsv_reads_the_same_bytes(
    kind: int, unit: bool, dtype: torch.dtype, rng: torch.Generator
) -> None:
    blas = pytest.importorskip("scipy.linalg").get_blas_funcs
    for n in (1, 2, 9, 70):
        t, b = draw_triangle(n, dtype, rng), random((n,), dtype, generator=rng)
        tpsv = blas("tpsv", dtype=b.numpy().dtype)
        # The rows of a lower triangle are the columns of its transpose, an upper one.
        expected = tpsv(n, t.numpy(), b.numpy(), lower=0, trans=kind == LOWER, diag=unit)
        x = solve(t, b.unsqueeze(-1), n, kind, DENSE, True, unit).squeeze(-1)
        torch.testing.assert_close(x, torch.from_numpy(expected))


def hard_triangles(dtype: torch.dtype, n: int, rng: torch.Generator) -> dict[str, Tensor]:
    """After LAPACK's test matrices: badly scaled, nearly singular, near underflow and overflow."""
    base, info = draw_triangle(n, dtype, rng), torch.finfo(dtype)
    i, j = torch.tril_indices(n, n, device=rng.device)
    grades = torch.logspace(0, -6, n, dtype=torch.float64, device=rng.device)
    graded = (base.abs() * 0 + 1) * grades[i].to(dtype)
    near_singular = base.clone()
    near_singular[(i == j) & (i % 60 == 50)] = 10 * info.eps
    return {
        "graded rows": base * graded,
        "nearly singular": near_singular,
        "near underflow": base * (info.tiny * 1e4),
        "near overflow": base * (info.max * 1e-4),
    }


@dtypes
def test_hard_matrices(device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    """Substitution has small residuals whatever the condition of the triangle."""
    n = 130
    for name, t in hard_triangles(dtype, n, rng).items():
        scale = t.abs().max()
        for kind, left in itertools.product((LOWER, UPPER), (True, False)):
            b = draw_rhs(n, 20, left, dtype, rng) * scale
            x = solve(t, b, n, kind, DENSE, left, False)
            # The residual is measured on matrices of moderate size.
            ratio = residual(densify(t / scale, n, kind), x, b / scale, left)
            assert ratio < 30, f"{name}, {kind=}, {left=}: residual {ratio}"


@dtypes
def test_inverses_of_hard_matrices(device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    """LAPACK's ratio: |I - T X| over n |T| |X| epsilon, for the inverse as the solution X."""
    n = 130
    i, j = torch.tril_indices(n, n, device=device)
    identity = torch.eye(n, dtype=dtype, device=device)
    for name, t in hard_triangles(dtype, n, rng).items():
        scale = t.abs().max()
        x = solve(t, (i == j).to(dtype), n, LOWER, LOWER, True, False) * scale
        ratio = residual(densify(t / scale, n, LOWER), densify(x, n, LOWER), identity, True)
        assert ratio < 30, f"{name}: residual {ratio}"


@dtypes
@pytest.mark.parametrize("batch", [(), (40,)], ids=str)
def test_extreme_pivots(
    batch: tuple[int, ...], device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    """Pivots whose reciprocals are infinite or subnormal, where the solution is of usual size."""
    failures = Failures()
    single = dtype in (torch.float32, torch.complex64)
    powers = torch.tensor([0, -140, 123] if single else [0, -1065, 1019], device=device)
    sizes = (1, 5, 31) if SMALL else (1, 5, 16, 31, 33, 64, 100, 200, 513)
    for n, m, (kind, left) in each(
        sizes, (1, 3, 70), itertools.product((LOWER, UPPER), (True, False))
    ):
        # Single vectors beside larger ones are left to dense torch, which takes reciprocals.
        if (batch and n * m > 20_000) or (device == "cuda" and not batch and m == 1 and n >= 192):
            continue
        # Few small integers, which powers of two leave exact: eight in a row and in a column.
        t = torch.zeros(*batch, n, n, dtype=dtype, device=device)
        for distance in range(0, min(n, 36), 5):
            line = torch.diagonal(t, -distance, -2, -1)
            low, high = (-1, 2) if distance else (8, 16)
            line.copy_(torch.randint(low, high, line.shape, generator=rng, device=device))
        if dtype.is_complex:
            t = t * (0.5 + 0.5j)
        shape = (*batch, n, m) if left else (*batch, m, n)
        x = torch.randint(-1, 2, shape, generator=rng, device=device).to(dtype)
        dense = t if kind == LOWER else t.mT
        b = (dense @ x) if left else (x @ dense)
        by = powers[torch.randint(0, 3, (*batch, n), generator=rng, device=device)]
        packed = pack(_times_powers(t, by, (kind == LOWER) == left))
        b = _times_powers(b, by, left)
        with failures.case(f"{n=}, {m=}, {kind=}, {left=}"):
            rounding = 8 * epsilon(dtype)
            torch.testing.assert_close(
                solve(packed, b, n, kind, DENSE, left, False), x, rtol=rounding, atol=rounding
            )
    failures.report()


def _times_powers(x: Tensor, powers: Tensor, rows: bool) -> Tensor:
    """Rows or columns times powers of two, in two steps since no number has the greatest."""
    powers = powers.unsqueeze(-1 if rows else -2)
    half = powers // 2
    two = torch.tensor(2, dtype=torch.float64, device=x.device)
    wide = x.to(wide_dtype(x.dtype))
    return (wide * two**half * two ** (powers - half)).to(x.dtype)


@dtypes
@pytest.mark.parametrize("value", [torch.inf, torch.nan])
@pytest.mark.parametrize(("kind", "left"), list(itertools.product((LOWER, UPPER), (True, False))))
def test_structural_zeros_are_not_multiplied(
    kind: int, left: bool, value: float, dtype: torch.dtype, rng: torch.Generator
) -> None:
    """A non-finite element of T reaches only what a sum over stored elements brings it to."""
    for n, position in ((5, 2), (70, 3), (70, 66), (150, 100)):
        t = draw_triangle(n, dtype, rng)
        t[numel(position) + position - 1] = value
        b = random((numel(n),), dtype, generator=rng)
        x = densify(solve(t, b, n, kind, LOWER, left, False), n, LOWER)
        dense, rhs = densify(t, n, kind), densify(b, n, LOWER)
        for c in range(n):
            # Of column c (row c from the right) only this part takes part.
            part = slice(c, n) if left else slice(0, c + 1)
            column = rhs[part, c : c + 1] if left else rhs[c : c + 1, part]
            expected = torch.linalg.solve_triangular(
                dense[part, part].contiguous(), column, upper=kind == UPPER, left=left
            )
            ours = x[part, c : c + 1] if left else x[c : c + 1, part]
            assert torch.equal(ours.isfinite(), expected.isfinite()), f"{n=} {position=} {c=}"


def test_the_other_half_and_a_unit_diagonal_are_not_read(device: str, rng: torch.Generator) -> None:
    n = 70
    t, b = draw_triangle(n, torch.float64, rng), random((n, 9), torch.float64, device, rng)
    poisoned_diagonal = t.clone()
    i = torch.arange(n, device=device)
    poisoned_diagonal[i * (i + 3) // 2] = torch.nan
    for kind in (LOWER, UPPER):
        expected = solve(t, b, n, kind, DENSE, True, True)
        assert torch.equal(solve(poisoned_diagonal, b, n, kind, DENSE, True, True), expected)


def test_a_singular_triangle_gives_infinities(device: str) -> None:
    x = solve(torch.zeros(1, device=device), torch.ones(1, 1, device=device), 1, 0, 3, True, False)
    assert x.isinf().all()


@pytest.mark.parametrize(
    ("packed", "b", "kinds", "message"),
    [
        (torch.zeros(6), torch.zeros(4, 2), (LOWER, DENSE), "n = 3"),
        (torch.zeros(5), torch.zeros(3, 2), (LOWER, DENSE), "a triangle of order 3"),
        (torch.zeros(6), torch.zeros(3, 2).double(), (LOWER, DENSE), "same dtype"),
        (torch.zeros(6), torch.zeros(3, 2), (2, DENSE), "kind to be 0"),
        (torch.zeros(6), torch.zeros(6), (LOWER, UPPER), "b_kind to be 0"),
        (
            torch.zeros(6).half(),
            torch.zeros(3, 2).half(),
            (LOWER, DENSE),
            "convert them to float32",
        ),
        (torch.zeros(2, 6), torch.zeros(3, 3, 2), (LOWER, DENSE), "do not broadcast"),
        (torch.zeros(6).int(), torch.zeros(3, 2).int(), (LOWER, DENSE), "expected float16"),
    ],
)
def test_errors(packed: Tensor, b: Tensor, kinds: tuple[int, int], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        torch.ops.packedtri.solve_triangular(packed, b, 3, *kinds, True, False)
