"""The covariance matrices that the demo runs on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits

from packedtri import LowerTriangular, Symmetric
from packedtri.ops.dense import as_dense

# Largest relative difference between the halves of a matrix that still counts as symmetric: float32
# files of computed covariances have about this much rounding.
_SYMMETRY = 1e-5


class BadCovariance(ValueError):
    """The user's matrix cannot serve; the message says why."""


def digits() -> torch.Tensor:
    """The RBF kernel matrix (1797, 1797) of scikit-learn's digits, in float64.

    The length scale is the median distance between two images.
    """
    images = torch.from_numpy(load_digits().data)
    distance = torch.cdist(images, images)
    return torch.exp(-0.5 * (distance / distance.median()) ** 2)


def _read_numpy(path: Path) -> object:
    return torch.from_numpy(np.load(path, allow_pickle=False))


def _read_torch(path: Path) -> object:
    return torch.load(path, map_location="cpu", weights_only=True)


_READERS: dict[str, Callable[[Path], object]] = {
    ".npy": _read_numpy,
    ".pt": _read_torch,
    ".pth": _read_torch,
}


def load(path: Path) -> torch.Tensor:
    """The matrix of a file of NumPy or torch, in float64, checked for shape and symmetry."""
    if not path.is_file():
        raise BadCovariance(f"{path}: there is no such file")
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise BadCovariance(f"{path}: expected one of {', '.join(_READERS)} by its ending")
    try:
        loaded = reader(path)
    except Exception as error:  # the readers share no narrower base class of errors
        raise BadCovariance(f"{path}: cannot be read: {error}") from error
    if not isinstance(loaded, torch.Tensor):
        raise BadCovariance(f"{path}: expected one tensor; got {type(loaded).__name__}")
    # Files may hold our own types, and parameters.
    return checked(as_dense(loaded.detach()), str(path))


def checked(matrix: torch.Tensor, name: str) -> torch.Tensor:
    """The matrix in float64, if it is real, square, finite and symmetric."""
    shape = tuple(matrix.shape)
    if matrix.dim() != 2 or shape[0] != shape[1] or shape[0] == 0:
        raise BadCovariance(f"{name}: expected a square matrix (n, n); got shape {shape}")
    if matrix.is_complex():
        raise BadCovariance(f"{name}: expected real numbers; got {matrix.dtype}")
    matrix = matrix.to(torch.float64)
    if not matrix.isfinite().all():
        raise BadCovariance(f"{name}: has elements that are inf or nan")
    difference = (matrix - matrix.mT).abs()
    if difference.max() > _SYMMETRY * matrix.abs().max():
        i, j = divmod(int(difference.argmax()), shape[1])
        raise BadCovariance(
            f"{name}: is not symmetric: element ({i}, {j}) is {matrix[i, j]:.6g}, "
            f"element ({j}, {i}) is {matrix[j, i]:.6g}"
        )
    return (matrix + matrix.mT) / 2


def factor(covariance: torch.Tensor, name: str) -> LowerTriangular:
    """The Cholesky factor of a covariance."""
    lower, info = torch.linalg.cholesky_ex(Symmetric.from_dense(covariance))
    if info.item():
        raise BadCovariance(
            f"{name}: is not positive definite: its leading {info.item()} × {info.item()} block "
            "has no Cholesky factor; add a jitter to the diagonal with --jitter"
        )
    return lower
