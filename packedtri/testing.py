"""Helpers to test products of packed triangles: references, a tolerance rule, probes and poison.

Nothing here calls the kernels of this package. References come from dense torch operations in
float64 or better, so a test that uses them compares two independent computations. The five kinds of
an operand are those of the ops: 0 lower, 1 upper (the packed triangle read as its transpose),
2 symmetric, 3 dense, 4 Hermitian.

Example:
    >>> import packedtri
    >>> from packedtri.testing import assert_product_close
    >>> a, b = packedtri.LowerTriangular.randn(50), packedtri.LowerTriangular.randn(50)
    >>> assert_product_close((a @ b).to_dense(), a.to_dense(), b.to_dense(), part="lower")
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from packedtri.layout import DENSE, HERMITIAN, LOWER, MIRRORED, SYMMETRIC, UPPER, numel
from packedtri.layout import DTYPES as DTYPES  # Public here too.

# What an error may add to twice the error of torch, in units of the dtype's epsilon. One rounding
# of the result costs at most half an epsilon, and torch may by luck have none; a complex product
# rounds about three times an element.
_FLOOR = 1.0
_COMPLEX_FLOOR = 2.0
# As many elements are few.
_FEW = 64

# Elements of a row block that the probes make dense at a time.
_CHUNK = 1 << 22


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of references: complex128 for complex dtypes, float64 for the others."""
    return torch.complex128 if dtype.is_complex else torch.float64


def epsilon(dtype: torch.dtype) -> float:
    """The distance from 1 to the next number of the dtype."""
    return torch.finfo(dtype).eps


# ---------------------------------------------------------------------------------------- operands


def random(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    generator: torch.Generator | None = None,
) -> Tensor:
    """Normally distributed elements.

    Args:
        shape: of the tensor.
        dtype: its element type, of 16 bits too, for which torch draws in float32.
        device: where it is made.
        generator: of random numbers, on the device; torch's own if None.

    Example:
        >>> import torch
        >>> from packedtri.testing import random
        >>> random((3, 5), torch.bfloat16).dtype
        torch.bfloat16
    """
    # 16-bit normals are rounded from float32, so that every device fills its mantissas alike.
    drawn = torch.float32 if dtype.itemsize == 2 else dtype
    return torch.randn(shape, dtype=drawn, device=device, generator=generator).to(dtype)


def random_integers(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    generator: torch.Generator | None = None,
) -> Tensor:
    """Elements from {-2, -1, 1, 2}, in both parts where complex.

    Sums of their products are exact in every accumulator, so results can be compared for equality
    whatever the order of summation.

    Example:
        >>> import torch
        >>> from packedtri.testing import random_integers
        >>> a, b = (random_integers((64, 64), torch.float32) for _ in range(2))
        >>> torch.equal((a @ b).double(), a.double() @ b.double())
        True
    """

    def draw() -> Tensor:
        magnitude = torch.randint(1, 3, shape, device=device, generator=generator)
        sign = torch.randint(0, 2, shape, device=device, generator=generator) * 2 - 1
        return (magnitude * sign).to(wide_dtype(dtype).to_real())

    return (torch.complex(draw(), draw()) if dtype.is_complex else draw()).to(dtype)


def densify(packed: Tensor, n: int, kind: int) -> Tensor:
    """The dense matrix that a packed triangle stands for, by plain torch indexing.

    Args:
        packed: shape (*batch, n(n+1)/2).
        n: the order of the triangle.
        kind: LOWER, UPPER, SYMMETRIC or HERMITIAN; DENSE returns the argument.

    Returns:
        shape (*batch, n, n).

    Example:
        >>> import torch
        >>> from packedtri.testing import densify
        >>> densify(torch.tensor([1.0, 2.0, 3.0]), 2, 0)
        tensor([[1., 0.],
                [2., 3.]])
    """
    if kind == DENSE:
        return packed
    i, j = torch.tril_indices(n, n, device=packed.device)
    dense = packed.new_zeros((*packed.shape[:-1], n, n))
    if kind == LOWER or kind in MIRRORED:
        dense[..., i, j] = packed
    if kind in (UPPER, SYMMETRIC):
        dense[..., j, i] = packed
    if kind == HERMITIAN:
        dense[..., j, i] = torch.where(i == j, packed.real.to(packed.dtype), packed.conj())
    return dense


def structure(n: int, kind: int, device: torch.device | str = "cpu") -> Tensor:
    """Where a matrix of this kind may be nonzero.

    Args:
        n: order of the matrix.
        kind: one of the constants of ``packedtri.layout``.
        device: where the result is made.

    Returns:
        shape (n, n), boolean.

    Example:
        >>> from packedtri.layout import UPPER
        >>> from packedtri.testing import structure
        >>> structure(2, UPPER)
        tensor([[ True,  True],
                [False,  True]])
    """
    ones = torch.ones(n, n, dtype=torch.bool, device=device)
    if kind == LOWER:
        return ones.tril()
    return ones.triu() if kind == UPPER else ones


# --------------------------------------------------------------------------------------- reference


def _slices(x: Tensor, dim: int, bits: int, count: int) -> list[Tensor]:
    """Real float64 x as a sum of slices of few bits each, aligned along `dim`.

    Within one line along `dim` all elements of a slice are multiples of one power of two, so sums
    of products of two slices are exact in float64.
    """
    rest, out = x, []
    for _ in range(count):
        largest = rest.abs().amax(dim=dim, keepdim=True)
        # Adding and subtracting `shift` rounds every element to a multiple of shift * 2^-52.
        exponent = torch.where(largest > 0, torch.frexp(largest).exponent, 0)
        shift = torch.ldexp(torch.full_like(largest, 0.75), exponent + (54 - bits))
        top = (rest + shift) - shift
        out.append(top)
        rest = rest - top
    return out


def _exact_matmul(a: Tensor, b: Tensor) -> Tensor:
    """The product of real float64 matrices, correct to about the last bit of every element.

    This is the scheme of Ozaki, Ogita, Oishi and Rump (2012): operands are cut into slices whose
    products incur no rounding, and only the sum of those products is rounded.
    """
    k = a.shape[-1]
    bits = (53 - max(1, k).bit_length()) // 2
    count = math.ceil(53 / bits) + 1
    left, right = _slices(a, -1, bits, count), _slices(b, -2, bits, count)
    total = torch.zeros((), dtype=a.dtype, device=a.device)
    # Small terms come first; those of a later order than `count` are below the last bit.
    for order in reversed(range(count)):
        for p in range(order + 1):
            total = total + left[p] @ right[order - p]
    return total


def reference_product(a: Tensor, b: Tensor) -> Tensor:
    """The product of two dense tensors, in float64 or complex128.

    Operands of 64-bit parts are multiplied with more precision than float64 has, so that the error
    of a float64 product can be told from the error of the reference.

    Args:
        a: shape (*batch, m, k).
        b: shape (*batch, k, n); batches broadcast.
    """
    dtype = wide_dtype(a.dtype)
    exact = torch.float64 in (a.dtype, a.dtype.to_real()) and a.shape[-1] > 0
    a, b = a.to(dtype), b.to(dtype)
    if not exact:
        return a @ b
    if not dtype.is_complex:
        return _exact_matmul(a, b)
    a, b = a.resolve_conj(), b.resolve_conj()
    # One exact product a part: [Re, -Im] times [Re; Im] is the real part.
    real = _exact_matmul(torch.cat([a.real, -a.imag], -1), torch.cat([b.real, b.imag], -2))
    imag = _exact_matmul(torch.cat([a.real, a.imag], -1), torch.cat([b.imag, b.real], -2))
    return torch.complex(real, imag)


# --------------------------------------------------------------------------------------- tolerance


@dataclass(frozen=True)
class ProductError:
    """How far a product is from its reference, in units of its dtype's epsilon.

    Attributes:
        frobenius: ‖C - AB‖ / ‖AB‖ in the Frobenius norm, the largest of a batch.
        componentwise: the largest |C - AB| / (|A||B|) of an element.
    """

    frobenius: float
    componentwise: float

    def within(self, other: ProductError, factor: float, floor: ProductError) -> bool:
        """Whether both figures are at most factor * other + floor; false for NaN."""
        return (
            self.frobenius <= factor * other.frobenius + floor.frobenius
            and self.componentwise <= factor * other.componentwise + floor.componentwise
        )


def measure_error(c: Tensor, reference: Tensor, magnitude: Tensor) -> ProductError:
    """The error of c against a reference, all of shape (*batch, m, n).

    Args:
        magnitude: |A||B|, the size of the terms that each element sums.
    """
    unit, tiny = epsilon(c.dtype), torch.finfo(c.dtype).tiny
    difference = (c.to(reference.dtype) - reference).abs()
    norm = torch.linalg.matrix_norm(reference).clamp_min(tiny)
    frobenius = torch.linalg.matrix_norm(difference) / norm / unit
    # Below the smallest normal number the spacing stays that of the smallest normal numbers.
    componentwise = difference / (magnitude.clamp_min(tiny) * unit)
    # amax hands a NaN on, which then fails every comparison.
    return ProductError(frobenius.amax().item(), componentwise.amax().item())


def _floor(dtype: torch.dtype, k: int, reference: Tensor, magnitude: Tensor) -> ProductError:
    """What errors of sums of k terms may be where torch has none.

    The norm of few elements is the luck of one, and where terms cancel, one rounding of a partial
    sum is so much larger beside what is left. The worst of all elements is luck as well: k terms
    added one after another, the largest first, have roundings with a standard deviation of
    sqrt(k / 12) epsilon, which is not rare among many elements of float32. A complex term is two
    in each of two parts.
    """
    floor = _COMPLEX_FLOOR if dtype.is_complex else _FLOOR
    single = dtype in (torch.float32, torch.complex64)
    roundings = 4 * k if dtype.is_complex else k
    componentwise = max(floor, math.sqrt(roundings / 12)) if single else floor
    if reference.shape[-2] * reference.shape[-1] > _FEW:
        return ProductError(floor, componentwise)
    norm, terms = (torch.linalg.matrix_norm(x) for x in (reference, magnitude))
    left = (terms / norm.clamp_min(torch.finfo(dtype).tiny)).amax().item()
    return ProductError(floor * max(left, 1.0), componentwise)


def take_part(x: Tensor, part: str) -> Tensor:
    """x with all but its "lower" or "upper" triangle set to zero, or x itself for "full".

    Example:
        >>> import torch
        >>> from packedtri.testing import take_part
        >>> take_part(torch.ones(2, 2), "lower")
        tensor([[1., 0.],
                [1., 1.]])
    """
    return {"full": lambda t: t, "lower": torch.tril, "upper": torch.triu}[part](x)


def assert_product_close(
    c: Tensor, a: Tensor, b: Tensor, *, part: str = "full", factor: float = 2.0, case: str = ""
) -> None:
    """Asserts that c is as good a product of a and b as the dense product of torch.

    The rule: the error of c is at most `factor` times the error of `torch.matmul(a, b)` in the
    same dtype on the same device, plus a few roundings; both in the Frobenius norm and element by
    element in units of epsilon (|A||B|). The few are a constant number of epsilons and, in
    single precision, sqrt(k / 12) of them where that is more, twice that for complex elements.

    Args:
        c: the product to judge, dense, shape (*batch, m, n).
        a: shape (*batch, m, k), dense, with explicit zeros.
        b: shape (*batch, k, n), likewise.
        part: "lower" or "upper" if c keeps only that triangle of the product; c must be zero in the
            other.
        case: what to call this product in the message.

    Raises:
        AssertionError: naming the case and both errors.

    Example:
        >>> import packedtri, torch
        >>> from packedtri.testing import assert_product_close
        >>> L, x = packedtri.LowerTriangular.randn(40), torch.randn(40, 3)
        >>> assert_product_close(L @ x, L.to_dense(), x)
        >>> assert_product_close(L @ x + 1, L.to_dense(), x, case="off by one")
        Traceback (most recent call last):
        AssertionError: off by one, torch.float32: error ...
    """
    reference = take_part(reference_product(a, b), part)
    label = f"{case or 'product'}, {c.dtype}"
    assert c.dtype == a.dtype, f"{label}: operands are {a.dtype}"
    assert c.shape == reference.shape, f"{label}: shape {c.shape}, expected {reference.shape}"
    assert c.device == a.device, f"{label}: result on {c.device}, operands on {a.device}"
    if c.numel() == 0:
        return
    real = torch.float64
    magnitude = take_part(a.abs().to(real) @ b.abs().to(real), part)
    ours = measure_error(c, reference, magnitude)
    torch_product = take_part(torch.matmul(a, b), part)
    theirs = measure_error(torch_product, reference, magnitude)
    floor = _floor(c.dtype, a.shape[-1], reference, magnitude)
    if not ours.within(theirs, factor, floor):
        worst = (c.to(reference.dtype) - reference).abs().nan_to_num(math.inf).argmax()
        where = tuple(int(x) for x in torch.unravel_index(worst, c.shape))
        raise AssertionError(
            f"{label}: error {ours} against {theirs} of torch, in units of epsilon; the largest "
            f"difference is at {where}: {c[where].item()} for {reference[where].item()}"
        )


# ---------------------------------------------------------------------------------- probes, O(n^2)


def _row_blocks(packed: Tensor, n: int) -> Iterator[tuple[int, int, Tensor]]:
    """(first, last, block) with block the dense rows [first, last) of the lower triangle.

    A block has `last` columns and the wide dtype; only one exists at a time.
    """
    first = 0
    while first < n:
        # The largest block with (last - first) * last elements of at most _CHUNK.
        last = (first + math.isqrt(first * first + 4 * _CHUNK)) // 2
        last = min(n, max(first + 1, last))
        rows = torch.arange(first, last, device=packed.device)
        kept = torch.arange(last, device=packed.device) <= rows[:, None]
        stored = packed[numel(first) : numel(last)].to(wide_dtype(packed.dtype))
        block = torch.zeros(kept.shape, dtype=stored.dtype, device=packed.device)
        yield first, last, block.masked_scatter_(kept, stored)
        first = last


def packed_times(packed: Tensor, n: int, kind: int, x: Tensor) -> Tensor:
    """The product of one packed matrix and a thin dense one, in float64 or complex128.

    No n x n matrix is formed, so n may be as large as the packed triangle itself permits.

    Args:
        packed: shape (n(n+1)/2,); for DENSE a matrix (n, k).
        x: shape (n, columns).

    Example:
        >>> import torch
        >>> from packedtri.testing import packed_times
        >>> packed_times(torch.tensor([1.0, 2.0, 3.0]), 2, 2, torch.eye(2))
        tensor([[1., 2.],
                [2., 3.]], dtype=torch.float64)
    """
    x = x.to(wide_dtype(packed.dtype))
    if kind == DENSE:
        return packed.to(x.dtype) @ x
    y = torch.zeros_like(x)
    for first, last, block in _row_blocks(packed, n):
        if kind == HERMITIAN:
            block[:, first:last].diagonal().copy_(block[:, first:last].diagonal().real.clone())
        if kind == LOWER or kind in MIRRORED:
            y[first:last] += block @ x[:last]
        if kind in MIRRORED:
            block[:, first:last].diagonal().zero_()
        if kind != LOWER:
            y[:last] += (block.mH if kind == HERMITIAN else block.mT) @ x[first:last]
    return y


def packed_rows(packed: Tensor, n: int, kind: int, rows: list[int]) -> Tensor:
    """Some rows of a packed matrix, dense: shape (len(rows), n), wide dtype.

    Example:
        >>> import torch
        >>> from packedtri.testing import packed_rows
        >>> packed_rows(torch.tensor([1.0, 2.0, 3.0]), 2, 0, [1])
        tensor([[2., 3.]], dtype=torch.float64)
    """
    selected = torch.zeros(n, len(rows), dtype=wide_dtype(packed.dtype), device=packed.device)
    selected[rows, range(len(rows))] = 1
    if kind == HERMITIAN:
        return packed_times(packed, n, kind, selected).mH
    transposed = {LOWER: UPPER, UPPER: LOWER, SYMMETRIC: SYMMETRIC}[kind]
    return packed_times(packed, n, transposed, selected).mT


def assert_product_probe(
    c: Tensor,
    a: Tensor,
    b: Tensor,
    n: int,
    kinds: tuple[int, int, int],
    generator: torch.Generator | None = None,
    *,
    tolerance: float | None = None,
    case: str = "",
) -> None:
    """Asserts that C t = A (B t) for random vectors t of signs: O(n^2) work, nothing densified.

    The expected squared length of (C - AB) t is the squared Frobenius norm of C - AB, so this
    measures the relative Frobenius error. It applies to results that keep the whole product, such
    as lower = lower times lower; for one that keeps a triangle of it, compare `packed_rows`.

    Args:
        c, a, b: packed triangles, shape (n(n+1)/2,), or dense matrices.
        kinds: how to read a, b and c.
        tolerance: in units of epsilon. By default 1 for 16-bit types, whose sums are float32 and
            whose results round once; for others what sums of n random terms stay below, with
            the rounding of the probe itself.
        case: what to call this product in the message.

    Raises:
        AssertionError: naming the case, its error and the tolerance.

    Example:
        >>> import packedtri
        >>> from packedtri.testing import assert_product_probe
        >>> a, b = packedtri.LowerTriangular.randn(100), packedtri.LowerTriangular.randn(100)
        >>> assert_product_probe((a @ b).packed, a.packed, b.packed, 100, (0, 0, 0))
    """
    signs = (
        torch.randint(
            0, 2, (b.shape[-1] if kinds[1] == DENSE else n, 4), device=c.device, generator=generator
        )
        * 2
        - 1
    )
    t = signs.to(wide_dtype(c.dtype))
    expected = packed_times(a, n, kinds[0], packed_times(b, n, kinds[1], t))
    got = packed_times(c, n, kinds[2], t)
    error = ((got - expected).norm() / expected.norm()).item() / epsilon(c.dtype)
    if tolerance is None:
        tolerance = 1.0 if c.dtype.itemsize == 2 else 3 + math.sqrt(n) / 4
    label = f"{case or 'probe'}, {c.dtype}"
    assert error <= tolerance, f"{label}: relative error {error} epsilon, allowed {tolerance}"


# ------------------------------------------------------------------------------------------ poison


@contextlib.contextmanager
def poisoned() -> Iterator[None]:
    """Fills every tensor that torch allocates uninitialised with NaN while the context is open.

    A kernel that leaves an element of its result unwritten then shows it. The switch belongs to
    torch's deterministic mode; operations that have no deterministic form warn while it is on, so
    keep other work outside.

    Example:
        >>> import torch
        >>> from packedtri.testing import poisoned
        >>> with poisoned():
        ...     torch.empty(2)
        tensor([nan, nan])
    """
    from torch.utils import deterministic

    before = torch.get_deterministic_debug_mode(), deterministic.fill_uninitialized_memory
    torch.set_deterministic_debug_mode("warn")
    deterministic.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before[0])
        deterministic.fill_uninitialized_memory = before[1]
