"""Modules that make matrices of unconstrained parameters, or of plain vectors."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils import parametrize

from packedtri._dtensor import whole
from packedtri._values import describe
from packedtri.ops import elements
from packedtri.tensor import LowerTriangular, PackedTensor, UpperTriangular

T = TypeVar("T", LowerTriangular, UpperTriangular)
M = TypeVar("M", bound=torch.nn.Module)


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
            LowerTriangular([[1.6931,      .],
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
            LowerTriangular([[1.,  .],
                             [2., 3.]])
        """
        _check("PositiveDiagonal", x)
        given = elements.diagonal(x)
        # In fewer bits the difference may be lost, or the shift be rounded to the element itself.
        diagonal = given.to(torch.promote_types(given.dtype, torch.float64)) - self.shift
        if not whole(diagonal > 0).all():
            raise ValueError(
                f"[PositiveDiagonal] expected a diagonal greater than {self.shift}; got "
                f"{whole(given).min().item()}"
            )
        # The inverse of softplus, in a form that loses no digits for large numbers.
        return elements.with_diagonal(x, diagonal + torch.log(-torch.expm1(-diagonal)))


def _check(name: str, x: Tensor) -> None:
    if not isinstance(x, (LowerTriangular, UpperTriangular)):
        given = type(x).__name__ if isinstance(x, PackedTensor) else "a dense tensor"
        raise TypeError(f"[{name}] expected a LowerTriangular or UpperTriangular; got {given}")


class FromPacked(torch.nn.Module):
    """Makes matrices of a packed type from the plain vector of their elements.

    It is a parametrization for ``torch.nn.utils.parametrize``; ``plain_parameters`` registers it.

    Args:
        cls: LowerTriangular, UpperTriangular, Symmetric or Hermitian.

    Raises:
        TypeError: when ``cls`` is none of these.

    Example:
        >>> from packedtri import LowerTriangular
        >>> FromPacked(LowerTriangular)(torch.tensor([1.0, 2.0, 3.0]))
        LowerTriangular([[1.,  .],
                         [2., 3.]])
    """

    def __init__(self, cls: type[PackedTensor]) -> None:
        super().__init__()
        if not (isinstance(cls, type) and issubclass(cls, PackedTensor)) or cls is PackedTensor:
            raise TypeError(f"[FromPacked] expected a packed type; got {cls!r}")
        self.cls = cls

    def forward(self, packed: Tensor) -> PackedTensor:
        """The matrices with these elements.

        Args:
            packed: shape (*batch, n(n+1)/2), as the type takes it.

        Returns:
            shape (*batch, n, n). It shares the memory of ``packed``.

        Raises:
            TypeError: when ``packed`` is no plain tensor, or has a dtype without kernels.
            ValueError: when its last dimension is no triangular number.

        Example:
            >>> from packedtri import Symmetric
            >>> FromPacked(Symmetric)(torch.ones(5, 6)).shape
            torch.Size([5, 3, 3])
        """
        return self.cls(packed)

    def right_inverse(self, x: Tensor) -> Tensor:
        """The stored elements of ``x``, in memory of their own.

        Args:
            x: shape (*batch, n, n), of the type.

        Returns:
            shape (*batch, n(n+1)/2).

        Raises:
            NotImplementedError: when ``x`` is of another type. Of a plain tensor that it is
                registered for torch takes this to mean that it holds the elements already.

        Example:
            >>> from packedtri import LowerTriangular
            >>> FromPacked(LowerTriangular).right_inverse(LowerTriangular.eye(2))
            tensor([1., 0., 1.])
        """
        if type(x) is not self.cls:
            name = self.cls.__name__
            raise NotImplementedError(
                f"[FromPacked] expected a {name}; got {describe(x)}. Convert with {name}.from_dense"
            )
        return x.packed.detach().clone()

    def extra_repr(self) -> str:
        """What the text of a module shows: the type."""
        return self.cls.__name__


def plain_parameters(module: M) -> M:
    """Let a module keep plain vectors in the place of its packed parameters and buffers.

    ``module.weight`` stays what it was, but is built from
    ``module.parametrizations.weight.original``, shape (*batch, n(n+1)/2), whenever it is read. So
    DistributedDataParallel, ``fully_shard``, LBFGS and all else that takes dense parameters
    alone can handle the module, and n(n+1)/2 elements are sent for each matrix.

    The vectors are new parameters, with gradients, hooks and names in state dicts of their own:
    make the optimizer afterwards, and save what is to be loaded again from such a module. The
    elements of a Symmetric or Hermitian beside the diagonal stand for two of the matrix, so that
    their gradient is twice that of each. ``torch.nn.utils.parametrize`` does the work, whose limits
    are met: the module as a whole cannot be pickled, and ``cached`` builds each matrix once.

    Args:
        module: it is changed in place, with all modules in it.

    Returns:
        The module itself.

    Raises:
        TypeError: when ``module`` is no module.
        NotImplementedError: when a parametrization makes a parameter of several packed tensors.

    Example:
        >>> from packedtri import LowerTriangular
        >>> layer = torch.nn.Module()
        >>> layer.weight = torch.nn.Parameter(LowerTriangular.eye(2))
        >>> _ = plain_parameters(layer)
        >>> [(name, tuple(p.shape)) for name, p in layer.named_parameters()]
        [('parametrizations.weight.original', (3,))]
        >>> type(layer.weight).__name__
        'LowerTriangular'
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"[plain_parameters] expected a torch.nn.Module; got {describe(module)}")
    found = [
        (owner, name, tensor)
        for owner in module.modules()
        for name, tensor in (*owner._parameters.items(), *owner._buffers.items())
        if isinstance(tensor, PackedTensor)
    ]
    for owner, name, tensor in found:
        if isinstance(owner, parametrize.ParametrizationList) and name != "original":
            raise NotImplementedError(
                f"[plain_parameters] {describe(tensor)} is one of several tensors that make one "
                "parameter. Let the right_inverse of its parametrization return plain tensors"
            )
    vectors: dict[Tensor, Tensor] = {}
    for owner, name, tensor in found:
        first = FromPacked(type(tensor))
        if tensor not in vectors:
            vector = first.right_inverse(tensor).requires_grad_(tensor.requires_grad)
            if isinstance(tensor, torch.nn.Parameter):
                vector = torch.nn.Parameter(vector, tensor.requires_grad)
            vectors[tensor] = vector
        # Modules that held one tensor hold one vector.
        _parametrize(owner, name, first, vectors[tensor])
    return module


def _parametrize(owner: torch.nn.Module, name: str, first: FromPacked, vector: Tensor) -> None:
    """Let ``first`` make what ``owner`` has under this name of ``vector``."""
    steps: Any = owner
    persistent = name not in owner._non_persistent_buffers_set
    held: Any = owner._parameters if name in owner._parameters else owner._buffers
    held[name] = vector
    if isinstance(owner, parametrize.ParametrizationList):
        owner.insert(0, first)
    else:
        parametrize.register_parametrization(owner, name, first, unsafe=True)
        steps = owner.parametrizations[name]  # type: ignore[index]
    if not persistent:
        steps._non_persistent_buffers_set.add("original")
