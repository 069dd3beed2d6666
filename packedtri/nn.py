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
        shift: added to the diagonal, a lower bound for it that keeps it off zero. A negative one
            allows elements down to it.

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
        """Put softplus(x) + shift in the place of the diagonal.

        Args:
            x: shape (*batch, n, n), triangular.

        Returns:
            shape (*batch, n, n), of the type of ``x``. The rest of ``x`` is copied.

        Raises:
            TypeError: when ``x`` is not triangular.

        Example:
            >>> from packedtri import LowerTriangular
            >>> PositiveDiagonal(shift=1.0)(LowerTriangular(torch.tensor([0.0, 5.0, -100.0])))
            LowerTriangular([[1.6931,     .],
                             [5.0000, 1.0000]])
        """
        _check("PositiveDiagonal", x)
        return elements.with_diagonal(x, F.softplus(elements.diagonal(x)) + self.shift)

    def right_inverse(self, x: T) -> T:
        """The unconstrained matrices that ``forward`` maps to ``x``.

        Args:
            x: shape (*batch, n, n), triangular with a diagonal greater than the shift.

        Returns:
            shape (*batch, n, n), of the type of ``x``.

        Raises:
            TypeError: when ``x`` is not triangular.
            ValueError: when an element on the diagonal is not greater than the shift.

        Example:
            >>> from packedtri import LowerTriangular
            >>> f = PositiveDiagonal()
            >>> f(f.right_inverse(LowerTriangular(torch.tensor([1.0, 2.0, 3.0]))))
            LowerTriangular([[1., .],
                             [2., 3.]])
        """
        _check("PositiveDiagonal", x)
        given = elements.diagonal(x)
        # In fewer bits the difference may be lost, or the shift be rounded to the element itself.
        diagonal = given.to(torch.promote_types(given.dtype, torch.float64)) - self.shift
        if not (diagonal > 0).all():
            raise ValueError(
                f"[PositiveDiagonal] expected a diagonal greater than {self.shift}; got "
                f"{given.min().item()}"
            )
        # The inverse of softplus, in a form that loses no digits for large numbers.
        return elements.with_diagonal(x, diagonal + torch.log(-torch.expm1(-diagonal)))


def _check(name: str, x: Tensor) -> None:
    if not isinstance(x, (LowerTriangular, UpperTriangular)):
        given = type(x).__name__ if isinstance(x, PackedTensor) else "a dense tensor"
        raise TypeError(f"[{name}] expected a LowerTriangular or UpperTriangular; got {given}")
