"""Products with one's own transpose, A A^T, and with another matrix, A B^T + B A^T.

They are symmetric, so one triangle of them is computed and stored: half the work of a product.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from packedtri import _nodes
from packedtri.dispatch import describe
from packedtri.layout import DENSE, LOWER
from packedtri.ops.dims import can_broadcast
from packedtri.ops.mm import tf32_allowed
from packedtri.tensor import PackedTensor, Symmetric, check_dtype

_mm = torch.ops.packedtri.mm.default


def syrk(
    A: Tensor,
    *,
    alpha: float = 1,
    beta: float | None = None,
    C: Symmetric | None = None,
    trans: bool = False,
    out: Symmetric | None = None,
) -> Symmetric:
    """``alpha A A^T + beta C``, of which one triangle is computed and stored.

    Complex matrices are not conjugated, so the result is symmetric and not Hermitian.

    Args:
        A: shape (*batch, n, k), a dense matrix or a packed type.
        alpha: factor of the product.
        beta: factor of ``C``, 1 unless told. With 0, ``C`` is not read, so nan stays out.
        C: shape (*batch, n, n), added to the product.
        trans: multiply ``A^T A`` instead, for ``A`` of shape (*batch, k, n).
        out: shape (*batch, n, n), takes the result; it may be ``C`` itself.

    Returns:
        shape (*batch, n, n).

    Raises:
        TypeError: when ``C`` or ``out`` is not Symmetric, or the dtype of ``A`` has no kernels.
        ValueError: when shapes do not match, or ``beta`` comes without ``C``.
        RuntimeError: when autograd would have to record the change of ``out``.

    Example:
        >>> import torch, packedtri
        >>> S = packedtri.syrk(torch.tensor([[1.0, 2.0], [0.0, 3.0]]))
        >>> S
        Symmetric([[5., 6.],
                   [6., 9.]])
        >>> packedtri.syrk(torch.eye(2), C=S, beta=0.5).packed
        tensor([3.5000, 3.0000, 5.5000])

    Source:
        BLAS ``xSYRK`` and, for triangular A, LAPACK ``xLAUUM``.
    """
    _check_operand("syrk", "A", A)
    packed, n = _packed_square(A, trans) if isinstance(A, PackedTensor) else _half(A, A, trans)
    return _finish("syrk", packed, n, alpha, beta, C, out)


def syr2k(
    A: Tensor,
    B: Tensor,
    *,
    alpha: float = 1,
    beta: float | None = None,
    C: Symmetric | None = None,
    trans: bool = False,
    out: Symmetric | None = None,
) -> Symmetric:
    """``alpha (A B^T + B A^T) + beta C``, of which one triangle is computed and stored.

    Complex matrices are not conjugated, so the result is symmetric and not Hermitian.

    Args:
        A: shape (*batch, n, k), dense.
        B: shape (*batch, n, k), dense; batches broadcast.
        alpha: factor of the products.
        beta: factor of ``C``, 1 unless told. With 0, ``C`` is not read, so nan stays out.
        C: shape (*batch, n, n), added to the products.
        trans: multiply ``A^T B + B^T A`` instead, for operands of shape (*batch, k, n).
        out: shape (*batch, n, n), takes the result; it may be ``C`` itself.

    Returns:
        shape (*batch, n, n).

    Raises:
        TypeError: when an operand is packed, ``C`` or ``out`` is not Symmetric, or a dtype has no
            kernels.
        ValueError: when shapes do not match, or ``beta`` comes without ``C``.
        RuntimeError: when autograd would have to record the change of ``out``.

    Example:
        >>> import torch, packedtri
        >>> packedtri.syr2k(torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [4.0]]))
        Symmetric([[ 6., 10.],
                   [10., 16.]])

    Source:
        BLAS ``xSYR2K``.
    """
    for name, x in (("A", A), ("B", B)):
        _check_operand("syr2k", name, x)
        if isinstance(x, PackedTensor):
            raise TypeError(f"[syr2k] expected dense operands; got {describe(x)} for {name}")
    if A.shape[-2:] != B.shape[-2:]:
        raise ValueError(
            f"[syr2k] expected operands of one shape; got {describe(A)} and {describe(B)}"
        )
    if A.dtype != B.dtype or not can_broadcast(A.shape[:-2], B.shape[:-2]):
        raise ValueError(
            "[syr2k] expected operands of one dtype whose batches broadcast; "
            f"got {describe(A)} of {A.dtype} and {describe(B)} of {B.dtype}"
        )
    half, n = _half(A, B, trans)
    return _finish("syr2k", half + _half(B, A, trans)[0], n, alpha, beta, C, out)


def _half(A: Tensor, B: Tensor, trans: bool) -> tuple[Tensor, int]:
    """The lower triangle of A B^T, or of A^T B, packed, and its order."""
    left, right = (A.mT, B) if trans else (A, B.mT)
    n = left.shape[-2]
    return _mm(left, right, n, DENSE, DENSE, LOWER, tf32_allowed(left)), n


def _packed_square(A: PackedTensor, trans: bool) -> tuple[Tensor, int]:
    kinds = A.kind, A.transposed.kind
    left, right = reversed(kinds) if trans else kinds
    stored = _nodes.to_packed(A)
    return _mm(stored, stored, A.n, left, right, LOWER, tf32_allowed(stored)), A.n


def _check_operand(name: str, argument: str, x: Any) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"[{name}] expected a tensor for {argument}; got {describe(x)}")
    check_dtype(name, x)
    if x.dim() < 2:
        raise ValueError(f"[{name}] expected matrices for {argument}; got {describe(x)}")


def _finish(
    name: str,
    packed: Tensor,
    n: int,
    alpha: float,
    beta: float | None,
    C: Symmetric | None,
    out: Symmetric | None,
) -> Symmetric:
    """``alpha`` times the product plus ``beta C``, in ``out`` where there is one."""
    packed = packed if alpha == 1 else packed * alpha
    if C is None and beta is not None:
        raise ValueError(f"[{name}] beta is the factor of C, and no C was given")
    if C is not None:
        _check_symmetric(name, "C", C, n)
        if beta != 0:
            packed = torch.add(packed, _nodes.to_packed(C), alpha=1 if beta is None else beta)
    result = _nodes.from_packed(Symmetric, packed, n)
    return result if out is None else _write(name, result, out)


def _check_symmetric(name: str, argument: str, x: Any, n: int) -> None:
    if not isinstance(x, Symmetric):
        raise TypeError(f"[{name}] expected a Symmetric for {argument}; got {describe(x)}")
    if x.n != n:
        raise ValueError(f"[{name}] expected {argument} of order {n}; got {describe(x)}")


def _write(name: str, result: Symmetric, out: Symmetric) -> Symmetric:
    _check_symmetric(name, "out", out, result.n)
    if out.shape != result.shape or out.dtype != result.dtype:
        raise ValueError(
            f"[{name}] expected out of shape {tuple(result.shape)} and {result.dtype}; "
            f"got {describe(out)} of {out.dtype}"
        )
    if torch.is_grad_enabled() and (out.requires_grad or result.requires_grad):
        raise RuntimeError(
            f"[{name}] out= does not support automatic differentiation, but an argument requires "
            "grad. Leave out= away, or use torch.no_grad()"
        )
    out.copy_(result)
    return out
