"""Matrices to solve with, and how the tests of solves compare."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from packedtri import Hermitian, LowerTriangular, PackedTensor, Symmetric, UpperTriangular
from packedtri.testing import densify, epsilon, random, wide_dtype

TRIANGULAR = (LowerTriangular, UpperTriangular)
MIRRORED = (Symmetric, Hermitian)
TYPES = (*TRIANGULAR, *MIRRORED)
WIDE = (torch.float64, torch.complex128)


def make(cls, n, dtype, batch=(), device="cpu", rng=None) -> Any:
    """A well-conditioned matrix; a real Symmetric and a Hermitian are positive definite."""
    x = random((*batch, n, n), dtype, device, rng) / (max(1, 2 * n) * 4)
    x = x.clamp(-0.4, 0.4) if not dtype.is_complex else x
    x = x + (x.mH if cls is Hermitian else x.mT) if cls in MIRRORED else x
    return cls.from_dense(x + 2 * torch.eye(n, dtype=dtype, device=device))


def dense(t: Tensor) -> Tensor:
    return densify(t._packed, t.n, t.kind) if isinstance(t, PackedTensor) else t


def wide(t: Tensor) -> Tensor:
    return dense(t).to(wide_dtype(t.dtype))


def assert_near(ours: Tensor, expected: Tensor, dtype: torch.dtype, case: str = "") -> None:
    """Equal up to rounding, for matrices of condition of order one."""
    assert ours.dtype == dtype and ours.shape == expected.shape, case
    if ours.numel():
        error = (wide(ours) - expected).norm() / expected.norm().clamp_min(1e-30)
        assert error <= 20 * epsilon(dtype), f"{case}: {error / epsilon(dtype)} epsilon"
