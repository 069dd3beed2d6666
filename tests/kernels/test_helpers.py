"""The helpers of packedtri.testing themselves: that they measure what they say, and can fail."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from packedtri import testing
from packedtri.layout import DENSE, HERMITIAN, LOWER, SYMMETRIC, UPPER, numel
from packedtri.testing import (
    assert_product_close,
    assert_product_probe,
    densify,
    epsilon,
    measure_error,
    packed_rows,
    packed_times,
    poisoned,
    random,
    random_integers,
    reference_product,
)


@pytest.mark.parametrize("k", [1, 7, 300])
def test_reference_beats_float64(k: int, rng: torch.Generator) -> None:
    """Against long double: the reference of float64 operands errs in the last bit only."""
    scale = torch.logspace(-30, 30, 20, dtype=torch.float64)
    a = random((20, k), torch.float64, generator=rng) * scale[:, None]
    b = random((k, 20), torch.float64, generator=rng) * scale
    reference = reference_product(a, b)
    exact = a.numpy().astype(np.longdouble) @ b.numpy().astype(np.longdouble)
    difference = torch.from_numpy((exact - reference.numpy()).astype(np.float64)).abs()
    assert (difference <= 0.6 * epsilon(torch.float64) * (a.abs() @ b.abs())).all()
    if k == 300:
        error = measure_error(a @ b, reference, a.abs() @ b.abs())
        assert error.componentwise > 0.2, "a product in float64 is told from the reference"


@pytest.mark.parametrize("k", [1, 50])
def test_complex_reference(k: int, rng: torch.Generator) -> None:
    a = random((9, k), torch.complex128, generator=rng).conj()
    b = random((k, 11), torch.complex128, generator=rng)
    torch.testing.assert_close(reference_product(a, b), a @ b, rtol=1e-13, atol=1e-13)


def test_random_integers(dtype: torch.dtype, rng: torch.Generator) -> None:
    x = random_integers((1000,), dtype, generator=rng)
    assert x.dtype == dtype
    parts = torch.view_as_real(x) if dtype.is_complex else x
    assert sorted(set(parts.flatten().tolist())) == [-2, -1, 1, 2]


def nudge(c: Tensor) -> Tensor:
    """One element off by a few roundings of the largest."""
    c = c.clone()
    c[..., -1, 0] += c.abs().amax() * epsilon(c.dtype) * 40
    return c


MISTAKES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "one element off": lambda c, a, b: nudge(c),
    "one NaN": lambda c, a, b: c.index_put(
        (torch.tensor(3), torch.tensor(1)), c.new_tensor(torch.nan)
    ),
    "operands swapped": lambda c, a, b: (b @ a).tril(),
    "transposed": lambda c, a, b: c.mT.contiguous(),
    "last term of the sum missing": lambda c, a, b: (a[:, :-1] @ b[:-1]).tril(),
    "the other half not empty": lambda c, a, b: c + c.tril(-1).mT,
    "sum up to min(i, j)": lambda c, a, b: a * b.diagonal(),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_seen(mistake: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    a = random((40, 40), dtype, generator=rng).tril()
    b = random((40, 40), dtype, generator=rng).tril()
    c = (a @ b).tril()
    assert_product_close(c, a, b, part="lower")
    with pytest.raises(AssertionError, match="as a test"):
        assert_product_close(MISTAKES[mistake](c, a, b), a, b, part="lower", case="as a test")


def test_loss_of_precision_is_seen(rng: torch.Generator) -> None:
    """A float32 product that was computed in TF32 or bfloat16 does not pass."""
    a, b = (random((200, 200), torch.float32, generator=rng) for _ in range(2))
    for mantissa in (10, 7):
        # Rounding the operands as the tensor cores do.
        short = [(x.view(torch.int32) >> (23 - mantissa) << (23 - mantissa)).view(torch.float32)
                 for x in (a, b)]  # fmt: skip
        with pytest.raises(AssertionError):
            assert_product_close(short[0] @ short[1], a, b)


@pytest.mark.parametrize("kind", [LOWER, UPPER, SYMMETRIC, HERMITIAN])
def test_packed_times(
    kind: int, dtype: torch.dtype, rng: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same by blocks of any height."""
    for n, chunk in ((0, 1), (1, 1), (5, 1), (70, 1), (70, 500), (70, 1 << 22)):
        monkeypatch.setattr(testing, "_CHUNK", chunk)
        packed = random((numel(n),), dtype, generator=rng)
        x = random((n, 3), dtype, generator=rng)
        dense = densify(packed, n, kind).to(testing.wide_dtype(dtype))
        got = packed_times(packed, n, kind, x)
        torch.testing.assert_close(got, dense @ x.to(dense.dtype), rtol=1e-12, atol=1e-12)
        rows = list(range(0, n, 3))
        assert torch.equal(packed_rows(packed, n, kind, rows), dense[rows])


def test_probe(dtype: torch.dtype, rng: torch.Generator) -> None:
    n = 150
    a, b = (random((numel(n),), dtype, generator=rng) for _ in range(2))
    dense = densify(a, n, LOWER) @ densify(b, n, LOWER)
    i, j = torch.tril_indices(n, n)
    c = dense[i, j]
    assert_product_probe(c, a, b, n, (LOWER, LOWER, LOWER), rng)
    assert_product_probe(dense, a, b, n, (LOWER, LOWER, DENSE), rng)
    wrong = c.clone()
    wrong[numel(n) // 2] += 40 * wrong.abs().amax() * epsilon(dtype) * n
    with pytest.raises(AssertionError, match="relative error"):
        assert_product_probe(wrong, a, b, n, (LOWER, LOWER, LOWER), rng)
    with pytest.raises(AssertionError, match="relative error"):
        assert_product_probe(c, b, a, n, (LOWER, LOWER, LOWER), rng)


def test_poison(device: str, dtype: torch.dtype) -> None:
    with poisoned():
        assert torch.empty(100, dtype=dtype, device=device).isnan().all()
        assert torch.ones(3, dtype=dtype, device=device).new_empty(4, 5).isnan().all()


@pytest.mark.parametrize("mode", ["default", "warn"])
def test_poison_restores(mode: str) -> None:
    torch.set_deterministic_debug_mode(mode)
    try:
        with pytest.raises(KeyError), poisoned():
            raise KeyError
        assert torch.get_deterministic_debug_mode() == {"default": 0, "warn": 1}[mode]
    finally:
        torch.set_deterministic_debug_mode("default")
