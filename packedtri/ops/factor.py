"""The rows of Cholesky factorizations, on packed storage.

LDL, LU, QR, eigenvalue and singular value decompositions pivot or turn their matrices, and have no
packed algorithm that pays. They have no rows, so they unpack, and what they return is dense.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from packedtri import _nodes
from packedtri._dtensor import whole
from packedtri.dispatch import row
from packedtri.layout import HERMITIAN
from packedtri.ops.dense import functions
from packedtri.ops.potrf import cholesky
from packedtri.tensor import (
    Hermitian,
    LowerTriangular,
    PackedTensor,
    Symmetric,
    UpperTriangular,
)


def _factor(a: PackedTensor, upper: bool) -> tuple[PackedTensor, Tensor]:
    packed, info = cholesky(_nodes.to_packed(a), a.n)
    if not upper:
        return _nodes.from_packed(LowerTriangular, packed, a.n), info
    # The upper factor of the upper triangle is the transpose of the lower one of the lower, whose
    # conjugate the upper triangle of a Hermitian matrix has.
    packed = packed.conj() if a.kind == HERMITIAN else packed
    return _nodes.from_packed(UpperTriangular, packed, a.n), info


def check_positive_definite(name: str, info: Tensor, prefix: str = "") -> None:
    """Raise torch's error, which names the leading minor that is not positive definite.

    Args:
        name: of the factorization, with which torch begins.
        info: what it returned.
        prefix: what is to be said before.
    """
    try:
        torch._linalg_check_errors(whole(info), name, is_matrix=info.dim() == 0)
    except torch.linalg.LinAlgError as error:
        raise torch.linalg.LinAlgError(f"{prefix}{error}") from None


@row(torch.linalg.cholesky, Hermitian)
@row(torch.linalg.cholesky, Symmetric)
def _linalg_cholesky(A: PackedTensor, *, upper: bool = False) -> PackedTensor:
    factor, info = _factor(A, upper)
    check_positive_definite("linalg.cholesky", info)
    return factor


@row(functions("cholesky"), Hermitian, casts=True)
@row(functions("cholesky"), Symmetric, casts=True)
def _cholesky(input: PackedTensor, upper: bool = False) -> PackedTensor:
    factor, info = _factor(input, upper)
    check_positive_definite("cholesky", info)
    return factor


@row(torch.linalg.cholesky_ex, Hermitian)
@row(torch.linalg.cholesky_ex, Symmetric)
def _cholesky_ex(A: PackedTensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    factor, info = _factor(A, upper)
    if check_errors:
        check_positive_definite("linalg.cholesky_ex", info)
    return torch.return_types.linalg_cholesky_ex((factor, info))
