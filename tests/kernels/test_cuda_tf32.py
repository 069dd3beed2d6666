"""float32 products in TF32 on Hopper's tensor cores: forced, since only larger ones choose them.

Through tile images they multiply float16 of scaled elements: as many significant bits, but less
range. Small tiles of operands as they lie in memory have the elements themselves, rounded.
"""

from __future__ import annotations

import pytest
import torch
from cases import (
    DIRECT,
    ENGINE,
    HOPPER,
    PAIRS,
    SMALL,
    Failures,
    Force,
    assert_exact,
    draw_operand,
    each,
    hopper,
    mm,
    part_of,
)
from torch import Tensor

from packedtri import LowerTriangular
from packedtri.layout import DENSE, LOWER, SYMMETRIC, UPPER, numel
from packedtri.testing import densify, random, random_integers, take_part

pytestmark = [pytest.mark.cuda, hopper]

FLOAT = torch.float32
DEVICE = torch.device("cuda")
# About the edges of blocks and of tiles, and none that all divide.
SIZES = (1, 31, 65, 130) if SMALL else (1, 31, 33, 64, 65, 97, 128, 130, 260, 515)
# Through tile images, by tiles of each size, and by small tiles without images.
WAYS = [(ENGINE, 0), (ENGINE, 1), (ENGINE, 2), (HOPPER, 0)]


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator(DEVICE).manual_seed(torch.initial_seed() % 2**63)


@pytest.mark.sanitizer
@pytest.mark.parametrize("split", [1, 2, 4])
@pytest.mark.parametrize(("method", "tile"), WAYS)
def test_exact(method: int, tile: int, split: int, rng: torch.Generator, force: Force) -> None:
    """Small integers are TF32 numbers, so their products are those of float64, bit for bit."""
    failures = Failures()
    for n, (a_kind, b_kind), c_kind in each(SIZES, PAIRS, (LOWER, DENSE)):
        a, b = (draw_operand(k, n, FLOAT, rng, draw=random_integers) for k in (a_kind, b_kind))
        force(method, tile, split, 2, 1)
        with failures.case(f"n={n}, kinds {a_kind}, {b_kind}, {c_kind}"):
            c = mm(a.stored, b.stored, n, a_kind, b_kind, c_kind, tf32=True)
            assert_exact(c, a, b, c_kind)
    failures.report()


@pytest.mark.parametrize(("split", "above"), [(8, 1), (-1, -3), (-1, -4), (-1, -9)])
def test_shared_small_tiles(split: int, above: int, rng: torch.Generator, force: Force) -> None:
    """Sums that eight blocks of a cluster share, or by their lengths two, three and four."""
    failures = Failures()
    for n, (a_kind, b_kind), c_kind in each((65, 257, 515), PAIRS, (LOWER, DENSE)):
        a, b = (draw_operand(k, n, FLOAT, rng, draw=random_integers) for k in (a_kind, b_kind))
        force(HOPPER, 0, split, above, 1)
        with failures.case(f"n={n}, kinds {a_kind}, {b_kind}, {c_kind}"):
            c = mm(a.stored, b.stored, n, a_kind, b_kind, c_kind, tf32=True)
            assert_exact(c, a, b, c_kind)
    failures.report()


@pytest.mark.parametrize("split", [1, 4])
def test_batches_of_small_tiles(split: int, rng: torch.Generator, force: Force) -> None:
    """Several matrices in a launch, one operand for all of them, and matrices at any place."""
    failures = Failures()
    for n, (a_kind, b_kind), batches in each((31, 130), PAIRS, (((3,), (3,)), ((3,), ()))):
        a, b = (
            draw_operand(k, n, FLOAT, rng, batch=batch, draw=random_integers)
            for k, batch in zip((a_kind, b_kind), batches, strict=True)
        )
        force(HOPPER, 0, split, 1, 1)
        with failures.case(f"n={n}, kinds {a_kind}, {b_kind}, {batches}"):
            c = mm(a.stored, b.stored, n, a_kind, b_kind, DENSE, tf32=True)
            assert_exact(c, a, b, DENSE)
    failures.report()


@pytest.mark.parametrize("columns", [1, 40, 300])
@pytest.mark.parametrize("pad", [0, 1, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_dense_operands(
    columns: int, pad: int, transposed: bool, rng: torch.Generator, force: Force
) -> None:
    """Rows along the sum and across it, at aligned distances and others."""
    n, failures = 196, Failures()

    def dense(rows: int, cols: int) -> Tensor:
        shape = (cols, rows + pad) if transposed else (rows, cols + pad)
        x = random_integers(shape, FLOAT, DEVICE, rng)
        return x[:, : x.shape[1] - pad].mT if transposed else x[:, : x.shape[1] - pad]

    ways = ((ENGINE, 0), (ENGINE, 1), (HOPPER, 0))
    for (method, tile), kind in each(ways, (LOWER, UPPER, SYMMETRIC)):
        packed = draw_operand(kind, n, FLOAT, rng, draw=random_integers)
        x, y = dense(n, columns), dense(columns, n)
        force(method, tile, 1, 1, 1)
        with failures.case(f"method {method}, tile {tile}, kind {kind}"):
            right = mm(packed.stored, x, n, kind, DENSE, DENSE, tf32=True)
            left = mm(y, packed.stored, n, DENSE, kind, DENSE, tf32=True)
            assert torch.equal(right.double(), packed.dense.double() @ x.double())
            assert torch.equal(left.double(), y.double() @ packed.dense.double())
    failures.report()


@pytest.mark.parametrize("n", [130, 1000] if SMALL else [130, 1000, 2311])
@pytest.mark.parametrize(("method", "tile"), WAYS)
def test_accuracy(n: int, method: int, tile: int, rng: torch.Generator, force: Force) -> None:
    """Twice the error of torch in TF32 at most, in all; and each element as near as TF32 is."""
    torch.set_float32_matmul_precision("high")
    failures = Failures()
    draws = {"normal": random, "positive": lambda *args: random(*args).abs()}
    for (name, draw), (a_kind, b_kind), c_kind in each(tuple(draws.items()), PAIRS, (LOWER, DENSE)):
        a, b = (draw_operand(k, n, FLOAT, rng, draw=draw) for k in (a_kind, b_kind))
        force(method, tile, -1, -1, -1)
        c = densify(mm(a.stored, b.stored, n, a_kind, b_kind, c_kind, tf32=True), n, c_kind)
        with failures.case(f"{name}, kinds {a_kind}, {b_kind}, {c_kind}"):
            exact, of_torch = (
                take_part(x, part_of(c_kind)).double()
                for x in (a.dense.double() @ b.dense.double(), a.dense @ b.dense)
            )
            assert (c - exact).norm() <= 2 * (of_torch - exact).norm()
            assert_each_close(c, exact, a.dense, b.dense)
    failures.report()


def assert_each_close(c: Tensor, exact: Tensor, a: Tensor, b: Tensor) -> None:
    """Each element is rounded to 11 bits, or by a 2^-27 of the largest of its matrix.

    But by no more than a 2^-11 of the largest of its row of A, or its column of B.
    """
    a, b = a.double().abs(), b.double().abs()
    least_a = torch.minimum(a.max() * 2.0**-27, a.amax(1, keepdim=True) * 2.0**-11)
    least_b = torch.minimum(b.max() * 2.0**-27, b.amax(0, keepdim=True) * 2.0**-11)
    bound = 2.0**-10 * (a @ b) + least_a * b.sum(0) + a.sum(1, keepdim=True) * least_b
    excess = (c - exact).abs() - 1.25 * bound - torch.finfo(FLOAT).tiny  # A quarter for the sums.
    assert not c.isnan().any() and (excess <= 0).all(), f"{excess.max()} more at {excess.argmax()}"


def scaled_rows(x: Tensor, least: float, most: float) -> Tensor:
    """Rows times powers of two from ``2**least`` on, to ``2**most``."""
    exponents = torch.linspace(least, most, x.shape[-2], device=x.device).round()
    return x * torch.exp2(exponents)[:, None]


@pytest.mark.parametrize(("method", "tile"), WAYS)
def test_range(method: int, tile: int, rng: torch.Generator, force: Force) -> None:
    """Elements of any size: what float16 cannot hold is computed from the float32 elements."""
    torch.set_float32_matmul_precision("high")
    n, failures = 300, Failures()

    def outlier(x: Tensor) -> Tensor:
        return x.index_put((torch.tensor([200]), torch.tensor([100])), torch.tensor(1e6).cuda())

    def banded(x: Tensor) -> Tensor:
        return x.tril(2).triu(-2)

    draws = {
        "small": lambda x: x * 2.0**-100,
        "large": lambda x: x * 2.0**50,
        "denormal": lambda x: x * 2.0**-140,
        "rows": lambda x: scaled_rows(x, -30, 30),
        "columns": lambda x: scaled_rows(x.mT, 25, -25).mT,
        "a few small rows": lossy_rows,
        "outlier": outlier,
        "one small row": lambda x: torch.cat([x[:70], x[70:71] * 2.0**-35, x[71:]]),
        "banded": banded,
        "decaying": lambda x: x * 0.5 ** (grid(n)[0] - grid(n)[1]).abs(),
        "zero": torch.zeros_like,
        "nearly zero": lambda x: torch.where(random((n, n), FLOAT, DEVICE, rng) > 2.5, x * 1e-9, 0),
        "identity": lambda x: torch.eye(n, device=DEVICE),
    }
    for (name, change), (a_kind, b_kind) in each(tuple(draws.items()), PAIRS):
        x, y = (random((n, n), FLOAT, DEVICE, rng) for _ in range(2))
        for a, b in ((change(x), y), (x, change(y))):
            left, right = stored(a, a_kind), stored(b, b_kind)
            a, b = densify(left, n, a_kind), densify(right, n, b_kind)
            force(method, tile, -1, -1, -1)
            c = mm(left, right, n, a_kind, b_kind, DENSE, tf32=True)
            with failures.case(f"{name}, kinds {a_kind}, {b_kind}"):
                assert_each_close(c, a.double() @ b.double(), a, b)
    failures.report()


def lossy_rows(x: Tensor) -> Tensor:
    """Rows of very different size, in any order."""
    return scaled_rows(x, 0, -40)[torch.randperm(len(x))]


@pytest.mark.parametrize(("tile", "split"), [(0, 1), (0, 4), (1, 1), (2, 1), (2, 4)])
def test_range_in_a_batch(tile: int, split: int, rng: torch.Generator, force: Force) -> None:
    """Few matrices have lost bits, the last one among them: each has lines and marks of its own."""
    n, count = 300, 8 if SMALL else 40
    a, b = (random((count, n, n), FLOAT, DEVICE, rng).tril() for _ in range(2))
    for i in (2, count - 1):
        a[i] = lossy_rows(a[i]).tril()
    b[5] = lossy_rows(b[5].mT).mT.tril()
    left, right = (torch.stack([stored(m, LOWER) for m in x]) for x in (a, b))
    force(ENGINE, tile, split, 1, 1)
    c = densify(mm(left, right, n, LOWER, LOWER, LOWER, tf32=True), n, LOWER)
    failures = Failures()
    for i in range(count):
        with failures.case(f"matrix {i}"):
            assert_each_close(c[i], a[i].double() @ b[i].double(), a[i], b[i])
    failures.report()


@pytest.mark.parametrize("lossy", [0, 1])
@pytest.mark.parametrize(("tile", "split"), [(0, 1), (0, 4), (1, 1), (2, 1), (2, 4)])
def test_range_in_one_of_a_pair(
    tile: int, split: int, lossy: int, rng: torch.Generator, force: Force
) -> None:
    """Of two products in one launch, whose lines are looked at together."""
    n = 300
    dense = [random((n, n), FLOAT, DEVICE, rng).tril() for _ in range(4)]
    dense[2 * lossy] = lossy_rows(dense[2 * lossy]).tril()
    kinds = (LOWER,) * 4
    force(ENGINE, tile, split, 1, 1)
    operands = [stored(x, LOWER) for x in dense]
    pair = torch.ops.packedtri.mm_pair(*operands, n, *kinds, True)
    for c, (a, b) in zip(pair, (dense[:2], dense[2:]), strict=True):
        assert_each_close(densify(c, n, LOWER), a.double() @ b.double(), a, b)


def grid(n: int) -> tuple[Tensor, Tensor]:
    """Row and column of each element."""
    lines = torch.arange(n, device=DEVICE)
    return lines[:, None], lines


def stored(x: Tensor, kind: int) -> Tensor:
    """As the kernels take it."""
    if kind == DENSE:
        return x.contiguous()
    i, j = torch.tril_indices(len(x), len(x), device=DEVICE)
    return x[j, i] if kind == UPPER else x[i, j]


@pytest.mark.parametrize(("method", "tile"), WAYS)
def test_small_row_with_an_infinite_element(
    method: int, tile: int, rng: torch.Generator, force: Force
) -> None:
    """What is not finite is no large element, beside which others need not be exact."""
    n, row = 300, 200
    a, b = (random((n, n), FLOAT, DEVICE, rng).tril() for _ in range(2))
    a[row] *= 2.0**-35
    exact, terms = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    a[row, 10] = float("inf")
    force(method, tile, 1, 1, 1)
    c = mm(stored(a, LOWER), stored(b, LOWER), n, LOWER, LOWER, DENSE, tf32=True)
    assert (c[row, :11].isinf()).all()
    error = (c - exact)[row, 11:].abs()
    assert (error <= 2.0**-9 * terms[row, 11:]).all()


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan"), 1e-40, 3.4028e38])
@pytest.mark.parametrize(("method", "tile"), WAYS)
def test_nonfinite(
    method: int, tile: int, value: float, rng: torch.Generator, force: Force
) -> None:
    """What is not finite, or becomes so when it is rounded, leaks through no structural zero."""
    n = 300
    for a_kind, b_kind in each((LOWER, UPPER), (LOWER, UPPER)):
        a, b = (random((numel(n),), FLOAT, DEVICE, rng) for _ in range(2))
        a[numel(150) + 149] = value
        b[numel(40) + 3] = value
        results = []
        for way in (method, DIRECT):
            force(way, tile, 1, 1, 1)
            results.append(mm(a, b, n, a_kind, b_kind, LOWER, tf32=True))
        c, expected = results
        assert torch.equal(c.isnan(), expected.isnan())
        assert torch.equal(c.isinf(), expected.isinf())
        ok = expected.isfinite()
        # Operands rounded to TF32 make errors of about 2^-12 sqrt(n) in standard deviation, and
        # among hundreds of thousands of elements some of five of these.
        torch.testing.assert_close(c[ok], expected[ok], rtol=5e-3, atol=8 * 2**-12 * n**0.5)


@pytest.mark.parametrize(("method", "tile"), WAYS)
def test_repeats(method: int, tile: int, rng: torch.Generator, force: Force) -> None:
    """Runs with sums in parts, which meet in any order, agree in every bit."""
    n, runs = 700, 100 if SMALL else 3000
    a, b = (random((numel(n),), FLOAT, DEVICE, rng) for _ in range(2))
    force(method, tile, 4, 1, 1)
    first = torch.ops.packedtri.mm(a, b, n, LOWER, LOWER, LOWER, True)
    different = torch.zeros((), dtype=torch.int64, device=DEVICE)
    for _ in range(runs):
        different += (torch.ops.packedtri.mm(a, b, n, LOWER, LOWER, LOWER, True) != first).sum()
    assert different.item() == 0


def test_setting_reaches_products_but_no_solves(rng: torch.Generator, force: Force) -> None:
    """Products and their gradients follow torch's setting; solves and factors keep float32."""
    n = 600
    L = LowerTriangular(random((numel(n),), FLOAT, DEVICE, rng))
    L.set_diagonal_(torch.full((n,), 60.0, device=DEVICE))
    x = random((n, n), FLOAT, DEVICE, rng)

    def run() -> dict[str, Tensor]:
        leaf = LowerTriangular(L.packed.clone().requires_grad_())
        (grad,) = torch.autograd.grad(leaf @ x, leaf, x)
        return {
            "product": (L @ L).packed,
            "gradient": grad.packed,
            "solve": torch.linalg.solve_triangular(L, x, upper=False),
            "factor": torch.linalg.cholesky(gram).packed,
        }

    gram = L @ L.mT
    force(ENGINE, -1, -1, -1, -1)
    exact = run()
    torch.set_float32_matmul_precision("high")
    rounded = run()
    for name in ("product", "gradient"):
        assert not torch.equal(exact[name], rounded[name]), name
        torch.testing.assert_close(exact[name], rounded[name], rtol=1e-2, atol=1.0)
    for name in ("solve", "factor"):
        assert torch.equal(exact[name], rounded[name]), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
def test_solves_never_round(dtype: torch.dtype, rng: torch.Generator) -> None:
    """Nor do products that may not: dense torch would, so nothing is left to it then."""
    torch.set_float32_matmul_precision("high")
    failures = Failures()

    def check(name: str, got: Tensor, expected: Tensor) -> None:
        with failures.case(name):
            assert (got - expected).abs().max() <= 1e-5 * expected.abs().max()

    wide = torch.complex128 if dtype.is_complex else torch.float64
    for n, m in ((64, 8), (300, 40), (700, 64)):
        triangle = random((numel(n),), dtype, "cuda", rng) / n**0.5
        T = LowerTriangular(triangle)
        T.set_diagonal_(torch.full((n,), 4.0, dtype=dtype, device="cuda"))
        dense, b = (
            T.to_dense(torch.complex128 if dtype.is_complex else torch.float64),
            random((n, m), dtype, "cuda", rng),
        )
        inverse = torch.linalg.inv(dense)
        check(f"solve {n}", torch.linalg.solve_triangular(T, b, upper=False), inverse @ b.to(wide))
        check(f"inverse {n}", torch.linalg.inv(T).to_dense(), inverse)
        check(
            f"inverse of a product {n}",
            torch.cholesky_inverse(T).to_dense(),
            inverse.mH @ inverse,
        )
    for n, batch, kinds in (
        (100, (8,), (DENSE, DENSE, LOWER)),
        (300, (), (DENSE, DENSE, LOWER)),
        (300, (), (SYMMETRIC, DENSE, DENSE)),
        (300, (), (SYMMETRIC, SYMMETRIC, LOWER)),
        (400, (), (LOWER, DENSE, DENSE)),
    ):
        a, b = (draw_operand(k, n, dtype, rng, batch=batch) for k in kinds[:2])
        c = densify(mm(a.stored, b.stored, n, *kinds, tf32=False), n, kinds[2])
        expected = a.dense.to(wide) @ b.dense.to(wide)
        check(f"{n} {kinds}", c, expected.tril() if kinds[2] == LOWER else expected)
    failures.report()
