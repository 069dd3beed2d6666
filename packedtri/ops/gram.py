"""Products with one's own transpose, A A^T, and with another matrix, A B^T + B A^T.

They are symmetric, or Hermitian with the conjugate transpose, so one triangle of them is computed
and stored: half the work of a product.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from packedtri import _nodes, _tracing
from packedtri._dtensor import meet
from packedtri._recording import is_plain
from packedtri._values import describe
from packedtri.dispatch import row
from packedtri.layout import DENSE, LOWER
from packedtri.ops.dense import as_dense, densify, functions, is_complex_number
from packedtri.ops.dims import can_broadcast
from packedtri.ops.mm import (
    Operand,
    adjoint,
    cast_as_mv,
    quick_mm,
    tf32_allowed,
    transposed,
)
from packedtri.ops.summands import P, check_factors, check_real, is_given, is_zero, scaled_sum
from packedtri.tensor import Hermitian, PackedTensor, Symmetric, check_dtype

F = TypeVar("F", bound="complex | Tensor")
# The transpose of an operand, or its conjugate transpose.
Flip = Callable[[Tensor, int], Operand]


def syrk(
    A: Tensor,
    *,
    alpha: float | Tensor = 1,
    beta: float | Tensor | None = None,
    C: Symmetric | None = None,
    trans: bool = False,
    out: Tensor | None = None,
) -> Symmetric:
    """``alpha A A^T + beta C``, of which one triangle is computed and stored.

    Complex matrices are not conjugated, so the result is symmetric and not Hermitian: for that see
    :func:`herk`.

    Args:
        A: shape (*batch, n, k), a dense matrix or a packed type.
        alpha: factor of the product, a number or a tensor of no dimensions. With the number 0 the
            product is zero, also of elements that are not finite.
        beta: factor of ``C`` like it, 1 unless told. With the number 0, ``C`` is not read, so nan
            stays out.
        C: shape (*batch, n, n), added to the product.
        trans: multiply ``A^T A`` instead, for ``A`` of shape (*batch, k, n).
        out: shape (*batch, n, n), a matrix of the result's type or a dense tensor, which takes the
            result and is returned; it may be ``C`` itself.

    Returns:
        shape (*batch, n, n).

    Raises:
        TypeError: when ``C`` is not Symmetric, a factor has dimensions, or the dtype of
            ``A`` has no kernels.
        ValueError: when shapes or dtypes do not match, or ``beta`` comes without ``C``.
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
    (A,), alpha = _within_range(alpha, A)
    packed, n = _square(A, trans, transposed)
    return scaled_sum("syrk", Symmetric, packed, n, alpha, beta, C, out)


def herk(
    A: Tensor,
    *,
    alpha: float | Tensor = 1,
    beta: float | Tensor | None = None,
    C: Hermitian | None = None,
    trans: bool = False,
    out: Tensor | None = None,
) -> Hermitian:
    """``alpha A A^H + beta C``, of which one triangle is computed and stored.

    Args:
        A: shape (*batch, n, k), a dense matrix or a packed type.
        alpha: factor of the product, a real number or such a tensor of no dimensions.
        beta: factor of ``C`` like it, 1 unless told. With the number 0, ``C`` is not read, so nan
            stays out.
        C: shape (*batch, n, n), added to the product.
        trans: multiply ``A^H A`` instead, for ``A`` of shape (*batch, k, n).
        out: shape (*batch, n, n), a matrix of the result's type or a dense tensor, which takes the
            result and is returned; it may be ``C`` itself.

    Returns:
        shape (*batch, n, n).

    Raises:
        TypeError: when ``C`` is not Hermitian, a factor is complex or has dimensions, or
            the dtype of ``A`` has no kernels.
        ValueError: when shapes or dtypes do not match, or ``beta`` comes without ``C``.
        RuntimeError: when autograd would have to record the change of ``out``.

    Example:
        >>> import torch, packedtri
        >>> packedtri.herk(torch.tensor([[1.0, 2.0j], [0.0, 3.0]]))
        Hermitian([[5.+0.j, 0.+6.j],
                   [0.-6.j, 9.+0.j]])

    Source:
        BLAS ``xHERK`` and, for triangular A, LAPACK ``xLAUUM``.
    """
    _check_operand("herk", "A", A)
    check_real("herk", alpha=alpha, beta=beta)
    (A,), alpha = _within_range(alpha, A)
    packed, n = _square(A, trans, adjoint)
    return scaled_sum("herk", Hermitian, packed, n, alpha, beta, C, out)


def syr2k(
    A: Tensor,
    B: Tensor,
    *,
    alpha: float | Tensor = 1,
    beta: float | Tensor | None = None,
    C: Symmetric | None = None,
    trans: bool = False,
    out: Tensor | None = None,
) -> Symmetric:
    """``alpha (A B^T + B A^T) + beta C``, of which one triangle is computed and stored.

    Complex matrices are not conjugated, so the result is symmetric and not Hermitian: for that see
    :func:`her2k`.

    Args:
        A: shape (*batch, n, k), a dense matrix or a packed type.
        B: shape (*batch, n, k), likewise; batches broadcast.
        alpha: factor of the products, a number or a tensor of no dimensions. With the number 0
            they are zero, also of elements that are not finite.
        beta: factor of ``C`` like it, 1 unless told. With the number 0, ``C`` is not read, so nan
            stays out.
        C: shape (*batch, n, n), added to the products.
        trans: multiply ``A^T B + B^T A`` instead, for operands of shape (*batch, k, n).
        out: shape (*batch, n, n), a matrix of the result's type or a dense tensor, which takes the
            result and is returned; it may be ``C`` itself.

    Returns:
        shape (*batch, n, n).

    Raises:
        TypeError: when ``C`` is not Symmetric, a factor has dimensions, or a dtype has no
            kernels.
        ValueError: when shapes or dtypes do not match, or ``beta`` comes without ``C``.
        RuntimeError: when autograd would have to record the change of ``out``.

    Example:
        >>> import torch, packedtri
        >>> packedtri.syr2k(torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [4.0]]))
        Symmetric([[ 6., 10.],
                   [10., 16.]])

    Source:
        BLAS ``xSYR2K``.
    """
    _check_pair("syr2k", A, B)
    check_factors("syr2k", alpha, beta)
    if _folds(A, B, alpha, trans):
        A, alpha = A * alpha, 1
    (A, B), alpha = _within_range(alpha, A, B)
    packed, n = _both_halves(A, B, trans, transposed)
    return scaled_sum("syr2k", Symmetric, packed, n, alpha, beta, C, out)


def her2k(
    A: Tensor,
    B: Tensor,
    *,
    alpha: complex | Tensor = 1,
    beta: float | Tensor | None = None,
    C: Hermitian | None = None,
    trans: bool = False,
    out: Tensor | None = None,
) -> Hermitian:
    """``alpha A B^H + conj(alpha) B A^H + beta C``, of which one triangle is computed and stored.

    Args:
        A: shape (*batch, n, k), a dense matrix or a packed type.
        B: shape (*batch, n, k), likewise; batches broadcast.
        alpha: factor of the first product, a number or a tensor of no dimensions; its conjugate is
            that of the second one.
        beta: factor of ``C``, real, 1 unless told. With the number 0, ``C`` is not read, so nan
            stays out.
        C: shape (*batch, n, n), added to the products.
        trans: multiply ``alpha A^H B + conj(alpha) B^H A`` instead, for operands of shape
            (*batch, k, n).
        out: shape (*batch, n, n), a matrix of the result's type or a dense tensor, which takes the
            result and is returned; it may be ``C`` itself.

    Returns:
        shape (*batch, n, n).

    Raises:
        TypeError: when ``C`` is not Hermitian, ``beta`` is complex, a factor has dimensions, or a
            dtype has no kernels.
        ValueError: when shapes or dtypes do not match, ``beta`` comes without ``C``, or ``alpha``
            is complex and the operands are real.
        RuntimeError: when autograd would have to record the change of ``out``.

    Example:
        >>> import torch, packedtri
        >>> A, B = torch.tensor([[1.0], [2.0j]]), torch.tensor([[3.0 + 0.0j], [4.0]])
        >>> packedtri.her2k(A, B)
        Hermitian([[6.+0.j, 4.-6.j],
                   [4.+6.j, 0.+0.j]])

    Source:
        BLAS ``xHER2K``.
    """
    check_real("her2k", beta=beta)
    check_factors("her2k", alpha, beta)
    _check_pair("her2k", A, B)
    if is_complex_number(alpha) and not A.is_complex():
        raise ValueError(f"[her2k] expected a real alpha for operands of {A.dtype}")
    if is_complex_number(alpha) or _folds(A, B, alpha, trans):
        # It is conjugated in the product of which it is in the operand that is.
        if trans:
            B, alpha = as_dense(B) * alpha, 1
        else:
            A, alpha = as_dense(A) * alpha, 1
    (A, B), alpha = _within_range(alpha, A, B)
    packed, n = _both_halves(A, B, trans, adjoint)
    return scaled_sum("her2k", Hermitian, packed, n, alpha, beta, C, out)


def mirrored_product(
    name: str,
    cls: type[P],
    A: Tensor,
    B: Tensor,
    trans: bool,
    alpha: float | Tensor,
    beta: float | Tensor | None,
    C: PackedTensor | None,
    out: Tensor | None,
) -> P:
    """``alpha A B' + beta C``, or with ``A' B``, where the caller knows that A B' has the type."""
    if cls is Hermitian:
        check_real(name, alpha=alpha, beta=beta)
    flip = adjoint if cls is Hermitian else transposed
    (A, B), alpha = _within_range(alpha, A, B)
    packed, n = _half(_operand(A), _operand(B), B.shape, trans, flip)
    return scaled_sum(name, cls, packed, n, alpha, beta, C, out)


def _check_pair(name: str, A: Tensor, B: Tensor) -> None:
    for argument, x in (("A", A), ("B", B)):
        _check_operand(name, argument, x)
    if A.shape[-2:] != B.shape[-2:]:
        raise ValueError(
            f"[{name}] expected operands of one shape; got {describe(A)} and {describe(B)}"
        )
    if A.dtype != B.dtype or not can_broadcast(A.shape[:-2], B.shape[:-2]):
        raise ValueError(
            f"[{name}] expected operands of one dtype whose batches broadcast; "
            f"got {describe(A)} of {A.dtype} and {describe(B)} of {B.dtype}"
        )


def _folds(A: Tensor, B: Tensor, alpha: complex | Tensor, trans: bool) -> bool:
    """Whether an operand is to be multiplied by ``alpha``, since it is smaller than the result.

    Not with 16 bits, which would be rounded once more. Nor where the factor decides the dtype.
    """
    if not is_given(alpha) or A.dtype.itemsize == 2 or not (_is_dense(A) and _is_dense(B)):
        return False
    if is_zero(alpha):
        return False
    if is_complex_number(alpha) and not A.is_complex():
        return False
    n, k = _sizes(A, trans)
    return 2 * k <= n


def _within_range(alpha: F, *operands: Tensor) -> tuple[tuple[Tensor, ...], F | float]:
    """Operands of a product and what is left of its factor, so that float16 holds the product.

    The factor is multiplied by what has been rounded, and a covariance is a small number times a
    sum that float16 may not hold. Each operand has its part of that as a power of two, which rounds
    nothing.
    """
    if not isinstance(alpha, int | float) or not 0 < abs(alpha) < 0.5:
        return operands, alpha
    if any(x.dtype != torch.float16 for x in operands):
        return operands, alpha
    exponent = math.floor(math.log2(abs(alpha)) / 2) + 1
    return tuple(x * 2.0**exponent for x in operands), alpha / 4.0**exponent


def _is_dense(x: Tensor) -> bool:
    return not isinstance(x, PackedTensor)


def _sizes(A: Tensor, trans: bool) -> tuple[int, int]:
    """The order of a product A A', or A' A, and how many terms its sums have."""
    n, k = A.shape[-2:]
    return (k, n) if trans else (n, k)


def _both_halves(A: Tensor, B: Tensor, trans: bool, flip: Flip) -> tuple[Tensor, int]:
    """The packed lower triangle of A B' + B A', or of A' B + B' A, and its order."""
    n, k = _sizes(A, trans)
    if 4 * k <= n and A.shape == B.shape and _is_dense(A) and _is_dense(B):
        # One product of twice as many terms writes the result once: [A B] [B A]'.
        dim = -2 if trans else -1
        first, second = torch.cat((A, B), dim), torch.cat((B, A), dim)
        return _half((first, DENSE), (second, DENSE), A.shape, trans, flip)
    a, b = _operand(A), _operand(B)
    first, n = _half(a, b, A.shape, trans, flip)
    return first + _half(b, a, A.shape, trans, flip)[0], n


def _square(A: Tensor, trans: bool, flip: Flip) -> tuple[Tensor, int]:
    """The packed lower triangle of A A', or of A' A, and its order."""
    operand = _operand(A)
    return _half(operand, operand, A.shape, trans, flip)


def _operand(x: Tensor) -> Operand:
    return (_nodes.to_packed(x), x.kind) if isinstance(x, PackedTensor) else (x, DENSE)


def _are_recorded(a: Tensor, b: Tensor) -> bool:
    if _tracing.is_compiling():
        # The tensors that stand for others there are not plain.
        return torch.is_grad_enabled() and (a.requires_grad or b.requires_grad)
    return not is_plain(a, b)


def product_for(t: PackedTensor, a: Tensor, b: Tensor, alpha: float) -> Tensor | None:
    """alpha A B as a matrix of the type of ``t``, where B is A^T, or A^H, in memory; else None.

    Nothing may record A and B, which have derivatives of their own.
    """
    hermitian = type(t) is Hermitian
    if not (hermitian or type(t) is Symmetric):
        return None
    if isinstance(a, PackedTensor) or isinstance(b, PackedTensor) or _are_recorded(a, b):
        return None
    dtype = t._packed.dtype
    if a.dtype != dtype or b.dtype != dtype:
        return None
    if a.dim() < 2 or a.layout != torch.strided or b.layout != torch.strided:
        return None
    twin = a.mH if hermitian else a.mT
    same = (
        twin.untyped_storage()._cdata == b.untyped_storage()._cdata
        and twin.storage_offset() == b.storage_offset()
        and (twin.shape, twin.stride()) == (b.shape, b.stride())
        and (twin.is_conj(), twin.is_neg()) == (b.is_conj(), b.is_neg())
    )
    return (herk if hermitian else syrk)(a, alpha=alpha) if same else None


def _half(a: Operand, b: Operand, shape: torch.Size, trans: bool, flip: Flip) -> tuple[Tensor, int]:
    (x, x_kind), (y, y_kind) = (flip(*a), b) if trans else (a, flip(*b))
    n = shape[-1 if trans else -2]
    return quick_mm(x, y, n, x_kind, y_kind, LOWER, tf32_allowed(x)), n


def _check_operand(name: str, argument: str, x: Any) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"[{name}] expected a tensor for {argument}; got {describe(x)}")
    check_dtype(name, x)
    meet(x)
    if x.dim() < 2:
        raise ValueError(f"[{name}] expected matrices for {argument}; got {describe(x)}")


@row(functions("addr"), casts=True)
def _addr(input: Any, vec1: Tensor, vec2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """``beta input + alpha vec1 vec2^T``, of the type of ``input`` where the vectors are one."""
    if isinstance(input, (Symmetric, Hermitian)) and vec1 is vec2:
        real = isinstance(input, Symmetric) or not (input.is_complex() or vec1.is_complex())
        fits = not isinstance(vec1, PackedTensor) and vec1.dim() == 1 and vec1.dtype == input.dtype
        numbers = not any(map(is_complex_number, (beta, alpha)))
        if real and numbers and fits and input.shape == (len(vec1),) * 2:
            compute: Any = syrk if isinstance(input, Symmetric) else herk
            with cast_as_mv(vec1):
                return compute(vec1.unsqueeze(-1), alpha=alpha, beta=beta, C=input)
    return densify(torch.addr, input, vec1, vec2, beta=beta, alpha=alpha)
