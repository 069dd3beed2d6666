"""What products of a matrix with its transpose are scaled by, and added to: alpha, beta and C."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor

from packedtri import _nodes
from packedtri._bands import real_diagonal
from packedtri._values import describe
from packedtri.ops.dense import is_complex_number, write_out
from packedtri.ops.dims import can_broadcast
from packedtri.ops.mm import autocast_dtype
from packedtri.tensor import Hermitian, PackedTensor, Symmetric

P = TypeVar("P", Symmetric, Hermitian)


def scaled_sum(
    name: str,
    cls: type[P],
    packed: Tensor,
    n: int,
    alpha: complex | Tensor,
    beta: float | Tensor | None,
    C: PackedTensor | None,
    out: Tensor | None,
) -> P:
    """``alpha`` times the product plus ``beta C``, in ``out`` where there is one."""
    check_factors(name, alpha, beta)
    if C is None and beta is not None:
        raise ValueError(f"[{name}] beta is the factor of C, and no C was given")
    dtype = packed.dtype
    packed = _scaled(packed, alpha)
    if C is not None:
        _check_matrix(name, cls, C, n, packed.shape[:-1])
        packed = _add(packed, _elements(name, C, dtype), 1 if beta is None else beta)
    result = _nodes.from_packed(cls, real_diagonal(packed, cls.kind, n), n)
    return result if out is None else write_out(name, result, out)


def _scaled(packed: Tensor, alpha: complex | Tensor) -> Tensor:
    """``alpha packed``, where a number 0 says that nothing of the product enters, nan neither."""
    if is_zero(alpha):
        return torch.where(packed.new_zeros((), dtype=torch.bool), packed, 0)
    return packed * alpha if is_given(alpha) else packed


def is_zero(factor: complex | Tensor) -> bool:
    """Whether a factor is the number 0; a tensor is not looked at."""
    return not isinstance(factor, Tensor) and factor == 0


def is_given(factor: Any) -> bool:
    """Whether a factor has to be multiplied by; a tensor also where it is one, for its gradient."""
    return isinstance(factor, Tensor) or factor != 1


def _add(packed: Tensor, other: Tensor, beta: Any) -> Tensor:
    """``packed + beta other``, where a number 0 says that ``other`` is not to be read."""
    if isinstance(beta, Tensor):
        return packed + other * beta
    if beta != 0:
        return torch.add(packed, other, alpha=beta)
    # Its batch counts all the same.
    shape = torch.broadcast_shapes(packed.shape, other.shape)
    return packed if packed.shape == shape else packed.expand(shape).contiguous()


def _elements(name: str, C: PackedTensor, dtype: torch.dtype) -> Tensor:
    """The stored elements of ``C`` as autocast has them, which must be of the product's dtype."""
    elements = _nodes.to_packed(C)
    elements = elements.to(autocast_dtype(elements))
    if elements.dtype != dtype:
        raise ValueError(
            f"[{name}] expected C of {dtype}; got {describe(C)} of {elements.dtype}. "
            f"Convert it with .to({dtype})"
        )
    return elements


def check_real(name: str, **factors: Any) -> None:
    """Raise where a factor, by its name, is a complex number or tensor."""
    for factor, value in factors.items():
        if is_complex_number(value):
            raise TypeError(
                f"[{name}] a complex {factor} leaves no Hermitian matrix; got {factor}={value}"
            )


def check_factors(name: str, *factors: Any) -> None:
    """Raise where a factor has dimensions."""
    for factor in factors:
        if isinstance(factor, Tensor) and factor.dim() > 0:
            raise TypeError(
                f"[{name}] expected a number or a tensor of no dimensions for a factor; "
                f"got {describe(factor)}"
            )


def _check_matrix(name: str, cls: type[P], C: Any, n: int, batch: torch.Size) -> None:
    if not isinstance(C, cls):
        raise TypeError(f"[{name}] expected a {cls.__name__} for C; got {describe(C)}")
    if C.n != n:
        raise ValueError(f"[{name}] expected C of order {n}; got {describe(C)}")
    if not can_broadcast(C._packed.shape[:-1], batch):
        raise ValueError(
            f"[{name}] expected C with a batch that broadcasts to {tuple(batch)} of the product; "
            f"got {describe(C)}"
        )
