"""pack and unpack: exact against torch indexing, for every kind, type, size and stride."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from cases import SIZES, SMALL, Failures, assert_same, each, pack, unpack
from torch import Tensor

from packedtri.layout import HERMITIAN, LOWER, MIRRORED, SYMMETRIC, UPPER, numel
from packedtri.testing import densify, random, random_integers, wide_dtype

kinds = pytest.mark.parametrize(
    "kind", [LOWER, UPPER, SYMMETRIC, HERMITIAN], ids=["L", "U", "S", "H"]
)
BATCHES = ((), (3,), (2, 3), (0,), (1,), (2, 0))
SOME = (1, 2, 5, 33) if SMALL else (1, 2, 5, 33, 64, 131)


def expected_pack(dense: Tensor, kind: int) -> Tensor:
    """What pack must give, by indexing: Symmetric adds the halves and counts the diagonal once.

    Hermitian adds one half to the conjugate of the other, and takes the real diagonal.
    """
    n = dense.shape[-1]
    i, j = torch.tril_indices(n, n, device=dense.device)
    if kind == LOWER:
        return dense[..., i, j]
    if kind == UPPER:
        return dense[..., j, i]
    lower, upper = dense[..., i, j], dense[..., j, i]
    if kind == HERMITIAN:
        return torch.where(i == j, lower.real, lower + upper.conj())
    return torch.where(i == j, lower, lower + upper)


@kinds
def test_pack(kind: int, device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    failures = Failures()
    for n, batch in each((*SIZES, *(() if SMALL else (1031,))), BATCHES):
        if n == 1031 and batch:
            continue
        dense = random((*batch, n, n), dtype, device, rng)
        with failures.case(f"n={n}, batch {batch}"):
            assert_same(pack(dense, kind), expected_pack(dense, kind))
    failures.report()


@kinds
def test_unpack(kind: int, device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    failures = Failures()
    for n, batch in each((*SIZES, *(() if SMALL else (1000,))), BATCHES):
        if n == 1000 and batch:
            continue
        packed = random((*batch, numel(n)), dtype, device, rng)
        with failures.case(f"n={n}, batch {batch}"):
            dense = unpack(packed, n, kind)
            assert_same(dense, densify(packed, n, kind))
            assert dense.is_contiguous(), "the result is not contiguous"
    failures.report()


def every_other(x: Tensor) -> Tensor:
    """The same values as every second element of every second row of a larger tensor."""
    wide = x.new_full((*x.shape[:-2], 2 * x.shape[-2] + 1, 2 * x.shape[-1] + 1), float("nan"))
    view = wide[..., 1::2, 1::2]
    return view.copy_(x)


def sliced(x: Tensor) -> Tensor:
    """The same values inside a larger tensor of NaN, at an odd offset."""
    wide = x.new_full((*x.shape[:-2], x.shape[-2] + 4, x.shape[-1] + 5), float("nan"))
    view = wide[..., 1:-3, 3:-2]
    return view.copy_(x)


DENSE_LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda x: x.mT.contiguous().mT,
    "sliced": sliced,
    "sliced and transposed": lambda x: sliced(x.mT).mT,
    "every other": every_other,
    "batch last": lambda x: x.movedim(0, -1).contiguous().movedim(-1, 0),
    "batches swapped": lambda x: x.expand(2, *x.shape).transpose(0, 1).contiguous().transpose(0, 1),
    "expanded batch": lambda x: x[:1].expand_as(x),
    "expanded rows": lambda x: x[..., :1, :].expand_as(x),
    "expanded columns": lambda x: x[..., :1].expand_as(x),
    "expanded scalar": lambda x: x[..., :1, :1].expand_as(x),
}


@kinds
@pytest.mark.parametrize("layout", DENSE_LAYOUTS)
def test_pack_layouts(
    layout: str, kind: int, device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    failures = Failures()
    for n, batch in each(SOME, (1, 3)):
        dense = DENSE_LAYOUTS[layout](random((batch, n, n), dtype, device, rng))
        before = dense.clone()
        with failures.case(f"n={n}, batch {batch}"):
            assert_same(pack(dense, kind), expected_pack(before.contiguous(), kind))
            assert_same(dense, before)
    failures.report()


@kinds
def test_unpack_layouts(kind: int, device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    failures = Failures()
    for n, before in each(SOME, range(8)):
        packed = random((3, numel(n)), dtype, device, rng)
        buffer = packed.new_full((before + packed.numel() + 9,), float("nan"))
        views = {
            "offset": buffer[before : before + packed.numel()].view_as(packed).copy_(packed),
            "batch last": packed.mT.contiguous().mT,
            "expanded": packed[:1].expand_as(packed),
            "every other": packed.repeat_interleave(2, -1)[:, ::2],
            "strided batch": torch.cat([packed, packed], -1)[:, : numel(n)],
        }
        for name, view in views.items():
            with failures.case(f"n={n}, offset {before}, {name}"):
                assert_same(unpack(view, n, kind), densify(view.contiguous(), n, kind))
    failures.report()


@kinds
def test_round_trip(kind: int, device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    """pack inverts unpack, but for mirrored kinds, where it sums both halves and doubles them."""
    for n in SIZES:
        packed = random((2, numel(n)), dtype, device, rng)
        again = pack(unpack(packed, n, kind), kind)
        if kind in MIRRORED:
            i, j = torch.tril_indices(n, n, device=device)
            diagonal = packed.real if kind == HERMITIAN else packed
            packed = torch.where(i == j, diagonal, packed * 2)
        assert_same(again, packed)


@kinds
def test_adjoint(kind: int, device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    """<pack x, y> = <x, unpack y>, so each is the other's derivative; exact on integers.

    Hermitian is linear over the reals alone, so the product is the one of real and imaginary parts.
    """
    wide = wide_dtype(dtype)
    for n in SIZES[1:]:
        x = random_integers((n, n), dtype, device, rng)
        y = random_integers((numel(n),), dtype, device, rng)
        left = (pack(x, kind).to(wide).conj() * y.to(wide)).sum()
        right = (x.to(wide).conj() * unpack(y, n, kind).to(wide)).sum()
        left, right = (s.real if kind == HERMITIAN else s for s in (left, right))
        assert left == right, f"n={n}: {left.item()} and {right.item()}"


@kinds
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_empty_half_is_not_read(
    kind: int, value: float, device: str, dtype: torch.dtype, rng: torch.Generator
) -> None:
    """What the unused half holds does not matter, and unpack writes zeros there, not 0 * x."""
    for n in (2, 33, 70):
        packed = random((numel(n),), dtype, device, rng)
        dense = densify(packed, n, kind)
        if kind in MIRRORED:
            continue
        unused = torch.ones_like(dense, dtype=torch.bool)
        unused = unused.triu(1) if kind == LOWER else unused.tril(-1)
        assert_same(pack(torch.where(unused, value, dense), kind), packed)
        spoiled = unpack(torch.full_like(packed, value), n, kind)
        assert (spoiled[unused] == 0).all()
        assert not spoiled[~unused].isfinite().any()


@kinds
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=["c64", "c128"])
def test_lazy_views(kind: int, device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    x = random((2, 33, 33), dtype, device, rng)
    y = random((2, numel(33)), dtype, device, rng)
    for view in (torch.conj, torch._neg_view, lambda t: torch._neg_view(t.conj())):
        plain = view(x).resolve_conj().resolve_neg().clone()
        assert_same(pack(view(x), kind), expected_pack(plain, kind))
        plain = view(y).resolve_conj().resolve_neg().clone()
        assert_same(unpack(view(y), 33, kind), densify(plain, 33, kind))


@pytest.mark.parametrize("threads", [1, 3])
@kinds
def test_threads(threads: int, kind: int, rng: torch.Generator) -> None:
    torch.set_num_threads(threads)
    packed = random((3, numel(300)), torch.float32, "cpu", rng)
    dense = densify(packed, 300, kind)
    assert_same(unpack(packed, 300, kind), dense)
    assert_same(pack(dense, kind), expected_pack(dense, kind))
