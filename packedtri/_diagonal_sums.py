"""Sums of packed types and diagonal matrices that are given by their diagonals."""

from __future__ import annotations

from numbers import Number, Real
from typing import Any, TypeVar

import torch
from torch import Tensor

from packedtri import _nodes, layout
from packedtri._bands import add_diagonal
from packedtri._dtensor import beside
from packedtri._values import REALS, describe

T = TypeVar("T", bound="DiagonalSums")


class DiagonalSums:
    """The methods ``add_diagonal`` and ``add_diagonal_`` of every packed type."""

    def add_diagonal(self: T, values: complex | Tensor) -> T:
        """The matrices plus diagonal ones, as noise or a ridge is added, differentiably.

        Args:
            values: the diagonal to add, a number or a tensor of a shape that broadcasts with
                (*batch, n), also to more matrices. It is converted to the dtype of the matrices.

        Returns:
            shape (*batch, n, n), of the type of ``self``.

        Raises:
            TypeError: when ``values`` is no number and no dense tensor.
            ValueError: when the shapes do not broadcast or the devices differ, or a value is
                complex where the matrices are real, or imaginary where they are Hermitian.

        Example:
            >>> import torch
            >>> from packedtri import Symmetric
            >>> S = Symmetric(torch.tensor([1.0, 2.0, 3.0]))
            >>> S.add_diagonal(0.5)
            Symmetric([[1.5000, 2.0000],
                       [2.0000, 3.5000]])
            >>> S.add_diagonal(torch.tensor([10.0, 20.0])).packed
            tensor([11.,  2., 23.])
        """
        return _sum(self, _diagonal("add_diagonal", self, values))

    def add_diagonal_(self: T, values: complex | Tensor) -> T:
        """``add_diagonal`` in place, differentiably.

        Args:
            values: the diagonal to add, a number or a tensor of a shape that broadcasts to
                (*batch, n). It is converted to the dtype of the matrices.

        Returns:
            The matrices themselves.

        Raises:
            TypeError: when ``values`` is no number and no dense tensor.
            ValueError: as ``add_diagonal`` does, and when the result has more matrices.
            RuntimeError: when autograd would have to record the change of a leaf.

        Example:
            >>> import torch
            >>> from packedtri import Symmetric
            >>> Symmetric(torch.tensor([1.0, 2.0, 3.0])).add_diagonal_(1).packed
            tensor([2., 2., 4.])
        """
        from packedtri.ops import elements, lost_writes

        t: Any = self
        lost_writes.forget(values)
        diagonal = _diagonal("add_diagonal_", t, values)
        if diagonal.shape[:-1] != t._packed.shape[:-1]:
            raise ValueError(
                f"[add_diagonal_] expected values that broadcast to {tuple(t.shape[:-1])}; "
                f"got {describe(values)}"
            )
        if not elements.change_diagonal_(t, diagonal, Tensor.index_add_):
            t.copy_(_sum(t, diagonal))
        return t


def _sum(t: Any, diagonal: Tensor) -> Any:
    """``t`` plus the diagonal matrices of ``diagonal``, shape (*batch, n)."""
    packed, n = _nodes.to_elements(t), t.n
    packed = packed.expand(*diagonal.shape[:-1], packed.shape[-1])
    return _nodes.from_packed(type(t), add_diagonal(packed, diagonal, n), n)


def _diagonal(name: str, t: Any, values: Any) -> Tensor:
    """``values`` as (*batch, n) of the dtype of ``t``, which can hold the sum.

    The method's name is for messages.
    """
    from packedtri.ops import elements

    # The type itself would be asked by way of torch.
    own = t._packed
    number = isinstance(values, (Number, *REALS))
    if number:
        dtype = own.dtype if isinstance(values, (Real, *REALS)) else torch.complex128
        values = torch.as_tensor(values, dtype=dtype, device=own.device)
    if not isinstance(values, Tensor) or hasattr(values, "_packed"):
        raise TypeError(
            f"[{name}] expected a number or a dense tensor of values; got {describe(values)}"
        )
    _check_fits(name, t, values)
    elements.check_real(t, values)
    values = values.real if t.kind == layout.HERMITIAN and values.is_complex() else values
    values = beside(own, values) if number else values
    batch = own.shape[:-1]
    if values.dim() > 1:
        batch = torch.broadcast_shapes(values.shape[:-1], batch)
    return values.to(own.device, own.dtype).expand(*batch, t.n)


def _check_fits(name: str, t: Any, values: Tensor) -> None:
    from packedtri.ops import elements
    from packedtri.ops.dims import can_broadcast

    own = t._packed
    expected = (*own.shape[:-1], t.n)
    if values.shape[-1:] not in ((), (1,), (t.n,)) or not can_broadcast(values.shape, expected):
        raise ValueError(
            f"[{name}] expected values that broadcast with {tuple(expected)}; "
            f"got {describe(values)}"
        )
    if values.dim() and values.device != own.device:
        raise ValueError(f"[{name}] expected values on {own.device}; got {values.device}")
    elements.check_not_complex(name, t, values)
