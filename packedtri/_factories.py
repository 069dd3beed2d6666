"""Constructors of packed types from a size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, SupportsIndex, TypeVar

import torch
from torch import Tensor

from packedtri import layout
from packedtri._bands import clear_imaginary_diagonal_, diagonal_index

F = TypeVar("F", bound="Factories")


class Factories:
    """The class methods ``zeros``, ``eye`` and ``randn`` of every packed type.

    Sizes are (*batch, n), as several integers or one sequence: n alone makes one matrix. The
    keyword arguments are those of the torch function of the same name.
    """

    _wrap: Callable[..., Any]

    @classmethod
    def zeros(cls: type[F], *size: Any, requires_grad: bool = False, **options: Any) -> F:
        """Zero matrices.

        Args:
            size: (*batch, n).
            requires_grad: whether autograd records operations on the result.
            options: ``dtype``, ``device``, ``pin_memory``, as for torch.zeros.

        Returns:
            shape (*batch, n, n).

        Raises:
            TypeError: when the size is not of integers, or the dtype not floating or complex.
            ValueError: when the size is empty or negative.

        Example:
            >>> from packedtri import LowerTriangular
            >>> LowerTriangular.zeros(3, 2).shape
            torch.Size([3, 2, 2])
        """
        return _build(cls, torch.zeros, size, requires_grad, options)

    @classmethod
    def randn(cls: type[F], *size: Any, requires_grad: bool = False, **options: Any) -> F:
        """Matrices whose stored elements are independent and standard normal.

        On the diagonal of complex Hermitian ones the imaginary parts are dropped.

        Args:
            size: (*batch, n).
            requires_grad: whether autograd records operations on the result.
            options: ``generator``, ``dtype``, ``device``, ``pin_memory``, as for torch.randn.

        Returns:
            shape (*batch, n, n).

        Raises:
            TypeError: when the size is not of integers, or the dtype not floating or complex.
            ValueError: when the size is empty or negative.

        Example:
            >>> from packedtri import Symmetric
            >>> Symmetric.randn(4, dtype=torch.float64).packed.shape
            torch.Size([10])
        """
        return _build(cls, torch.randn, size, requires_grad, options)

    @classmethod
    def eye(cls: type[F], *size: Any, requires_grad: bool = False, **options: Any) -> F:
        """Identity matrices.

        Args:
            size: (*batch, n).
            requires_grad: whether autograd records operations on the result.
            options: ``dtype``, ``device``, ``pin_memory``, as for torch.eye.

        Returns:
            shape (*batch, n, n).

        Raises:
            TypeError: when the size is not of integers, or the dtype not floating or complex.
            ValueError: when the size is empty or negative.

        Example:
            >>> from packedtri import UpperTriangular
            >>> UpperTriangular.eye(2)
            UpperTriangular([[1., 0.],
                             [ ., 1.]])
        """

        def identity(shape: tuple[int, ...], **options: Any) -> Tensor:
            packed = torch.zeros(shape, **options)
            n = layout.order(shape[-1])
            return packed.index_fill_(-1, diagonal_index(n, packed.device), 1)

        return _build(cls, identity, size, requires_grad, options)


def _build(
    cls: Any, make: Callable[..., Tensor], size: Any, requires_grad: bool, options: dict[str, Any]
) -> Any:
    if len(size) == 1 and isinstance(size[0], (tuple, list, torch.Size)):
        size = tuple(size[0])
    if not all(isinstance(s, SupportsIndex) for s in size):
        raise TypeError(f"[{cls.__name__}] expected a size (*batch, n) of integers; got {size}")
    dtype = options.get("dtype")
    if dtype is not None and dtype not in layout.DTYPES:
        raise TypeError(f"[{cls.__name__}] expected a floating or complex dtype; got {dtype}")
    if not size or any(s < 0 for s in size):
        raise ValueError(
            f"[{cls.__name__}] expected a size (*batch, n) of numbers >= 0; got {size}"
        )
    *batch, n = size
    packed = make((*batch, layout.numel(n)), **options)
    if getattr(cls, "kind", None) == layout.HERMITIAN and packed.is_complex():
        clear_imaginary_diagonal_(packed, n)
    t = cls(packed)
    return t.requires_grad_() if requires_grad else t
