"""Triangular, symmetric and Hermitian matrices for PyTorch in n(n+1)/2 elements.

Example:
    >>> import torch
    >>> from packedtri import LowerTriangular
    >>> L = LowerTriangular.from_dense(torch.tensor([[1.0, 9.0], [2.0, 3.0]]))
    >>> (L @ L).packed
    tensor([1., 8., 9.])
"""

from __future__ import annotations

import torch

from packedtri import _flops as _flops
from packedtri import _library as _library
from packedtri import func as func
from packedtri import nn as nn
from packedtri import ops as ops
from packedtri._dense_guard import dense_guard
from packedtri.ops.bordering import cholesky_delete, cholesky_insert
from packedtri.ops.condition import rcond
from packedtri.ops.congruence import congruence
from packedtri.ops.determinant import inv_quad_logdet
from packedtri.ops.forms import bilinear_form, quadratic_form
from packedtri.ops.fractional_powers import fractional_matrix_power
from packedtri.ops.generalized_eigen import (
    GeneralizedEigh,
    generalized_eigh,
    generalized_eigvalsh,
)
from packedtri.ops.gram import her2k, herk, syr2k, syrk
from packedtri.ops.matrix_functions import logm, sqrtm
from packedtri.ops.refinement import ErrorBounds, error_bounds, refine
from packedtri.ops.square_roots import tria
from packedtri.ops.submatrices import principal_submatrix
from packedtri.ops.update import cholesky_update
from packedtri.tensor import (
    Hermitian,
    LowerTriangular,
    PackedTensor,
    Symmetric,
    UpperTriangular,
    rebuild,
)

__version__ = "0.1.0"
__all__ = [
    "ErrorBounds",
    "GeneralizedEigh",
    "Hermitian",
    "LowerTriangular",
    "PackedTensor",
    "Symmetric",
    "UpperTriangular",
    "__version__",
    "bilinear_form",
    "cholesky_delete",
    "cholesky_insert",
    "cholesky_update",
    "congruence",
    "dense_guard",
    "error_bounds",
    "fractional_matrix_power",
    "generalized_eigh",
    "generalized_eigvalsh",
    "her2k",
    "herk",
    "inv_quad_logdet",
    "logm",
    "principal_submatrix",
    "quadratic_form",
    "rcond",
    "refine",
    "sqrtm",
    "syr2k",
    "syrk",
    "tria",
]

# torch.load(weights_only=True) rebuilds only classes that it knows, by functions that it knows.
torch.serialization.add_safe_globals(
    [LowerTriangular, UpperTriangular, Symmetric, Hermitian, rebuild]
)
