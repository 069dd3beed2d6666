"""Quadratic and bilinear forms of packed matrices."""

from __future__ import annotations

from torch import Tensor

from packedtri._values import describe
from packedtri.layout import HERMITIAN
from packedtri.ops.matmul import check_elements
from packedtri.ops.solve import check_batches
from packedtri.tensor import PackedTensor


def quadratic_form(A: PackedTensor, x: Tensor) -> Tensor:
    """``x^T A x`` for each vector x, and ``x^H A x`` for a Hermitian A.

    With other types complex vectors are not conjugated.

    Args:
        A: shape (*batch, n, n), a packed type.
        x: shape (*batch, n), dense; its leading dimensions broadcast with the batch of ``A``.

    Returns:
        shape (*batch), a plain tensor, real for a Hermitian ``A``.

    Raises:
        TypeError: when ``A`` is not packed, or ``x`` no dense tensor.
        ValueError: when shapes, dtypes or devices do not match.

    Example:
        >>> import torch, packedtri
        >>> S = packedtri.Symmetric(torch.tensor([1.0, 2.0, 3.0]))
        >>> packedtri.quadratic_form(S, torch.tensor([1.0, -1.0]))
        tensor(0.)
    """
    value = _form("quadratic_form", x, A, x)
    return value.real if A.kind == HERMITIAN else value


def bilinear_form(x: Tensor, A: PackedTensor, y: Tensor) -> Tensor:
    """``x^T A y`` for each pair of vectors, and ``x^H A y`` for a Hermitian A.

    With other types complex vectors are not conjugated. The one temporary is ``A y``, of the size
    of ``y``.

    Args:
        x: shape (*batch, n), dense.
        A: shape (*batch, n, n), a packed type.
        y: shape (*batch, n), dense. All leading dimensions broadcast.

    Returns:
        shape (*batch), a plain tensor.

    Raises:
        TypeError: when ``A`` is not packed, or ``x`` or ``y`` no dense tensor.
        ValueError: when shapes, dtypes or devices do not match.

    Example:
        >>> import torch, packedtri
        >>> L = packedtri.LowerTriangular(torch.tensor([1.0, 2.0, 3.0]))
        >>> packedtri.bilinear_form(torch.eye(2), L, torch.tensor([1.0, 1.0]))
        tensor([1., 5.])

    Source:
        Julia's ``dot(x, A, y)``, which conjugates x with every type.
    """
    return _form("bilinear_form", x, A, y)


def _form(name: str, x: Tensor, A: PackedTensor, y: Tensor) -> Tensor:
    if not isinstance(A, PackedTensor):
        raise TypeError(f"[{name}] expected a packed type for A; got {describe(A)}")
    for v in (x, y):
        if not isinstance(v, Tensor) or isinstance(v, PackedTensor):
            raise TypeError(f"[{name}] expected dense vectors; got {describe(v)}")
        if v.dim() == 0 or v.shape[-1] != A.n:
            raise ValueError(f"[{name}] expected vectors (..., {A.n}); got {describe(v)}")
        check_elements(name, A, v, A._packed, v)
        check_batches(name, A, v, A._packed.shape[:-1], v.shape[:-1])
    check_batches(name, x, y, x.shape[:-1], y.shape[:-1])
    # A row times a column a vector: elementwise products would be one more temporary.
    x = x.conj() if A.kind == HERMITIAN else x
    return (x.unsqueeze(-2) @ _applied(A, y).unsqueeze(-1)).squeeze(-1).squeeze(-1)


def _applied(A: PackedTensor, y: Tensor) -> Tensor:
    """``A y`` for each vector; those that share one matrix are the rows of a single product."""
    if A.dim() > 2:
        return (A @ y.unsqueeze(-1)).squeeze(-1)
    return A @ y if y.dim() == 1 else y @ A.mT
