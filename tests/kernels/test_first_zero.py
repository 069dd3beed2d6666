"""The op first_zero, by which inverses and solves tell singular triangles."""

from __future__ import annotations

import math

import pytest
import torch
from cases import Failures, each, shifted

from packedtri.layout import numel
from packedtri.testing import poisoned

first_zero = torch.ops.packedtri.first_zero.default


@pytest.mark.sanitizer
def test_first_zero(dtype: torch.dtype, device: str) -> None:
    failures = Failures()
    for n, zeros, zero in each((1, 2, 70, 300), ((), (0,), (5, 3), (-1,), (-1, 0)), (0.0, -0.0)):
        packed = torch.zeros(3, numel(n), dtype=dtype, device=device)
        diagonal = torch.arange(n, device=device) * torch.arange(3, n + 3, device=device) // 2
        packed[:, diagonal] = 1e-4  # Subnormal in no type, and not far from it in half.
        packed[2, diagonal] = math.nan
        if dtype.is_complex:
            packed[0, diagonal] = 1j
        found = sorted(z % n for z in zeros if z < n)
        packed[1, diagonal[found]] = zero
        expected = [0, found[0] + 1 if found else 0, 0]
        for name, x in (("aligned", packed), ("shifted", shifted(packed))):
            with poisoned(), failures.case(f"{n=}, {zeros=}, {zero=}, {name}"):
                info = first_zero(x, n)
                assert info.dtype == torch.int32
                assert info.tolist() == expected
    failures.report()


def test_shapes(device: str) -> None:
    packed = torch.tensor([1.0, 0, 0], device=device)
    assert first_zero(packed, 2).item() == 2
    assert first_zero(packed.expand(2, 4, 3), 2).tolist() == [[2] * 4] * 2
    assert first_zero(torch.ones(3, 4, device=device).mT, 2).tolist() == [0] * 4
    assert first_zero(packed.new_ones(0, 3), 2).shape == (0,)
    assert first_zero(packed.new_ones(2, 0), 0).tolist() == [0, 0]
    with pytest.raises(RuntimeError, match="order 3 has n"):
        first_zero(packed, 3)


def test_transforms(device: str) -> None:
    packed = torch.tensor([[1.0, 5, 2], [1, 2, 0]], device=device)
    torch.library.opcheck(first_zero, (packed, 2))
    assert torch.vmap(lambda p: first_zero(p, 2))(packed).tolist() == [0, 2]
    assert torch.vmap(lambda p: first_zero(p, 2), in_dims=1)(packed.mT).tolist() == [0, 2]
