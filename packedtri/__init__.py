"""Triangular and symmetric matrices for PyTorch, stored and multiplied in n(n+1)/2 elements.

Example:
    >>> import torch
    >>> from packedtri import LowerTriangular
    >>> L = LowerTriangular.from_dense(torch.tensor([[1.0, 9.0], [2.0, 3.0]]))
    >>> (L @ L).packed
    tensor([1., 8., 9.])
"""

from __future__ import annotations

import torch

from packedtri import _library as _library
from packedtri import ops as ops
from packedtri.ops.determinant import inv_quad_logdet
from packedtri.ops.update import cholesky_update
from packedtri.tensor import LowerTriangular, PackedTensor, Symmetric, UpperTriangular

__version__ = "0.1.0"
__all__ = [
    "LowerTriangular",
    "PackedTensor",
    "Symmetric",
    "UpperTriangular",
    "__version__",
    "cholesky_update",
    "inv_quad_logdet",
]

# torch.load(weights_only=True) rebuilds only classes that it knows.
torch.serialization.add_safe_globals([LowerTriangular, UpperTriangular, Symmetric])
