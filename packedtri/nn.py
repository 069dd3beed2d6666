"""Modules that make matrices of unconstrained parameters."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from packedtri.ops import elements
from packedtri.tensor import LowerTriangular, PackedTensor, UpperTriangular

T = TypeVar("T", LowerTriangular, UpperTriangular)


class PositiveDiagonal(torch.nn.Module):
    """Makes the diagonal of triangular matrices positive: softplus(x) + shift of its elements.

    It is a parametrization for ``torch.nn.utils.parametrize``. Triangles with a positive diagonal
    and positive definite matrices L L^T correspond one to one, so that a Cholesky factor can be
    trained without constraints. ``FillScaleTriL`` of TensorFlow Probability is the same map.

    Args:
        shift: added to the diagonal, a lower bound for it that keeps it off zero.

    Example:
        >>> from packedtri import LowerTriangular
        >>> layer = torch.nn.Module()
        >>> layer.scale = torch.nn.Parameter(LowerTriangular.eye(2))
        >>> torch.nn.utils.parametrize.register_parametrization(
        ...     layer, "scale", PositiveDiagonal(), unsafe=True
        ... )
        ParametrizedModule(...)
        >>> layer.scale
        LowerTriangular([[1.,  .],
                         [0., 1.]], grad_fn=<FromPackedBackward>)
        >>> with torch.no_grad():
        ...     _ = layer.parametrizations.scale.original.set_diagonal_(torch.tensor([-9.0, 0.0]))
        >>> bool((layer.scale.diagonal() > 0).all())
        True
    """

    def __init__(self, shift: float = 1e-5) -> None:
        super().__init__()
        self.shift = shift

    def forward(self, x: T) -> T:
        """Put softplus(x) + shift in the place of the diagonal of x, shape (*batch, n, n)."""
        _check("PositiveDiagonal", x)
        return elements.with_diagonal(x, F.softplus(elements.diagonal(x)) + self.shift)

    def right_inverse(self, x: T) -> T:
        """The unconstrained matrices that ``forward`` maps to x, shape (*batch, n, n).

        Raises:
            ValueError: when an element on the diagonal is not greater than the shift.
        """
        _check("PositiveDiagonal", x)
        diagonal = elements.diagonal(x) - self.shift
        if not (diagonal > 0).all():
            raise ValueError(
                f"[PositiveDiagonal] expected a diagonal greater than {self.shift}; got "
                f"{(diagonal + self.shift).min().item()}"
            )
        # The inverse of softplus, in a form that loses no digits for large numbers.
        return elements.with_diagonal(x, diagonal + torch.log(-torch.expm1(-diagonal)))


def _check(name: str, x: Tensor) -> None:
    if not isinstance(x, (LowerTriangular, UpperTriangular)):
        given = type(x).__name__ if isinstance(x, PackedTensor) else "a dense tensor"
        raise TypeError(f"[{name}] expected a LowerTriangular or UpperTriangular; got {given}")
