"""What the tests of solves and of Cholesky factors on a GPU have in common."""

from __future__ import annotations

import math

import pytest
import torch
from cases import DIRECT, ENGINE, SMALL
from torch import Tensor

from packedtri.testing import densify, random, wide_dtype

SOLVED = (torch.float32, torch.float64, torch.complex64, torch.complex128)
solved_dtypes = pytest.mark.parametrize(
    "dtype", SOLVED, ids=lambda t: str(t).removeprefix("torch.")
)
# Which kernels: what is chosen, perhaps dense torch, or ours with either way to multiply.
kernels = pytest.mark.parametrize(
    "method", [-1, DIRECT, ENGINE], ids=["chosen", "direct", "engine"]
)
# About the steps and the order of the triangles that are solved at once, and beyond.
SIZES = (
    (1, 5, 33, 70)
    if SMALL
    else (
        *(1, 2, 3, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65),
        *(80, 81, 127, 128, 129, 144, 145, 200, 321),
    )
)


def pack(dense: Tensor) -> Tensor:
    i, j = torch.tril_indices(*dense.shape[-2:], device=dense.device)
    return dense[..., i, j].contiguous()


def triangle(
    batch: tuple[int, ...], n: int, dtype: torch.dtype, rng: torch.Generator, unit: bool = False
) -> Tensor:
    """A packed triangle whose condition number does not grow with n; the diagonal of one that is
    read as a unit triangle is nan, to show a read."""
    dense = random((*batch, n, n), dtype, rng.device, rng) / (2 * math.sqrt(n))
    signs = torch.randint(0, 2, (*batch, n), device=rng.device, generator=rng) * 2 - 1
    diagonal = signs * (1 + torch.rand(*batch, n, device=rng.device, generator=rng))
    dense.diagonal(dim1=-2, dim2=-1).copy_(
        torch.full_like(diagonal, math.nan) if unit else diagonal
    )
    return pack(dense)


def matrix(packed: Tensor, n: int, kind: int, unit: bool) -> Tensor:
    """What the op reads, dense and wide."""
    dense = densify(packed, n, kind).to(wide_dtype(packed.dtype))
    if unit:
        dense.diagonal(dim1=-2, dim2=-1).fill_(1)
    return dense


def definite(
    batch: tuple[int, ...], n: int, dtype: torch.dtype, rng: torch.Generator, shift: float = 0.1
) -> Tensor:
    """Dense Hermitian positive definite matrices."""
    root = random((*batch, n, n), dtype, rng.device, rng)
    return root @ root.mH / n + shift * torch.eye(n, dtype=dtype, device=rng.device)
