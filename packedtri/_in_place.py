"""In-place products of packed types."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor

from packedtri import layout
from packedtri._values import describe

T = TypeVar("T", bound="InPlaceProducts")


class InPlaceProducts:
    """The methods ``lmul_`` and ``rmul_`` of the triangular types."""

    def rmul_(self: T, other: T) -> T:
        """Multiply from the right in place: ``self`` becomes ``self @ other``.

        The product is computed beside ``self`` and then copied to it, so it takes the memory of
        one more triangle for a while.

        Args:
            other: shape (*batch, n, n), of the type of ``self``. Its batch broadcasts to that of
                ``self``.

        Returns:
            ``self``.

        Raises:
            TypeError: when ``self`` is not triangular, or ``other`` of another type.
            ValueError: when the product has another shape or dtype than ``self``.
            RuntimeError: when autograd would have to record the change of a leaf.

        Example:
            >>> import torch
            >>> from packedtri import LowerTriangular
            >>> L = LowerTriangular(torch.tensor([1.0, 2.0, 3.0]))
            >>> L.rmul_(LowerTriangular(torch.tensor([1.0, 1.0, 1.0])))
            LowerTriangular([[1.,  .],
                             [5., 3.]])

        Source:
            Julia's ``rmul!``.
        """
        return _multiply("rmul_", self, other, left=False)

    def lmul_(self: T, other: T) -> T:
        """Multiply from the left in place: ``self`` becomes ``other @ self``.

        Arguments, result and errors are those of :meth:`rmul_`.

        Example:
            >>> import torch
            >>> from packedtri import LowerTriangular
            >>> L = LowerTriangular(torch.tensor([1.0, 2.0, 3.0]))
            >>> L.lmul_(LowerTriangular(torch.tensor([1.0, 1.0, 1.0])))
            LowerTriangular([[1.,  .],
                             [3., 3.]])

        Source:
            Julia's ``lmul!``.
        """
        return _multiply("lmul_", self, other, left=True)


def _multiply(name: str, t: Any, other: Any, left: bool) -> Any:
    if t.kind in layout.MIRRORED or type(other) is not type(t):
        raise TypeError(
            f"[{name}] only products of one triangular type keep it; got {describe(t)} and "
            f"{describe(other)}. Use @, which returns a new tensor"
        )
    from packedtri.ops.mm import without_autocast

    # Backward would miss the old elements if they were not kept.
    recorded = torch.is_grad_enabled() and (t.requires_grad or other.requires_grad)
    old = t.clone() if recorded else t
    factor = old if other is t else other
    # As torch has it of functions in place, autocast changes no operand.
    with without_autocast(t.device.type):
        product: Tensor = factor @ old if left else old @ factor
    if product.shape != t.shape or product.dtype != t.dtype:
        raise ValueError(
            f"[{name}] cannot put the product {describe(product)} of {product.dtype} in place of "
            f"{describe(t)} of {t.dtype}"
        )
    return t.copy_(product)
