"""Principal submatrices: the same rows and columns, which keep the type."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from packedtri import _nodes
from packedtri._recording import values_visible
from packedtri._values import INTEGERS, describe
from packedtri.layout import MIRRORED, UPPER
from packedtri.ops import elements
from packedtri.tensor import PackedTensor

P = TypeVar("P", bound=PackedTensor)

_NAME = "principal_submatrix"


class _Array(Protocol):
    """An array of another library, as those of NumPy."""

    def __array__(self) -> Any: ...

    def tolist(self) -> Any: ...


def principal_submatrix(A: P, index: slice | Sequence[int] | Tensor | _Array) -> P:
    """The rows and the same columns of matrices, as the marginal of a Gaussian takes them.

    ``A[..., a:b, a:b]`` has the same elements in a dense tensor. The elements are copied, and
    differentiable.

    Args:
        A: shape (*batch, n, n), a packed type.
        index: the k rows to take: a slice, or a sequence, tensor or NumPy array of integers from -n
            to n - 1, or of bools, a mask of shape (n,). Integers may come in any order and more
            than once, but of a triangle, which would be none, in increasing order only.

    Returns:
        shape (*batch, k, k), of the type of ``A``.

    Raises:
        TypeError: when ``A`` is not packed, or ``index`` neither a slice nor of integers or bools.
        ValueError: when ``index`` has another number of dimensions than one, is a mask of another
            length, or does not increase and ``A`` is triangular.
        IndexError: when an integer is out of range.
        NotImplementedError: when ``A`` is triangular and integers are in a tensor that
            torch.compile or torch.vmap traces, so that nobody can look at their order.

    Example:
        >>> import torch, packedtri
        >>> S = packedtri.Symmetric(torch.arange(6.0))
        >>> packedtri.principal_submatrix(S, [2, 0])
        Symmetric([[5., 3.],
                   [3., 0.]])
        >>> packedtri.principal_submatrix(S, slice(1, None))
        Symmetric([[2., 4.],
                   [4., 5.]])
    """
    if not isinstance(A, PackedTensor):
        raise TypeError(f"[{_NAME}] expected a packed type for A; got {describe(A)}")
    if isinstance(index, slice) and index.step in (None, 1):
        # Blocks are read row by row, which is faster than element by element.
        block: Any = A[..., index, index]
        whole = isinstance(block, PackedTensor)
        return block.clone() if whole else type(A).from_dense(block)
    at = _positions(A, index)
    k = at.shape[0]
    i, j = torch.tril_indices(k, k, device=at.device)
    rows, columns = (at[j], at[i]) if A.kind == UPPER else (at[i], at[j])
    return _nodes.from_packed(type(A), elements.read(A, rows, columns), k)


def _positions(A: PackedTensor, index: Any) -> Tensor:
    """The rows that are taken, from 0 to n - 1, shape (k,)."""
    if isinstance(index, slice):
        return torch.arange(A.n, device=A.device)[index]
    if not isinstance(index, Tensor) and hasattr(index, "__array__"):
        index = index.tolist()
    if isinstance(index, Sequence) and not isinstance(index, str):
        if all(isinstance(i, INTEGERS) and not isinstance(i, bool) for i in index):
            return torch.tensor(_known_from_front(A, index), dtype=torch.long, device=A.device)
        index = torch.tensor(index, device="cpu")
    if not isinstance(index, Tensor) or index.is_floating_point() or index.is_complex():
        got = describe(index) + (f" of {index.dtype}" if isinstance(index, Tensor) else "")
        raise TypeError(f"[{_NAME}] expected a slice, integers or a mask for index; got {got}")
    mask = index.dtype == torch.bool
    if index.dim() != 1 or (mask and len(index) != A.n):
        expected = f"a mask ({A.n},)" if mask else "an index of one dimension"
        raise ValueError(f"[{_NAME}] expected {expected} for {describe(A)}; got {describe(index)}")
    index = index.to(A.device)
    return index.nonzero().squeeze(-1) if mask else _counted_from_front(A, index)


def _known_from_front(A: PackedTensor, index: Sequence[int]) -> list[int]:
    """The same of integers that are no tensor, which are known also where tensors are traced."""
    at = [i + A.n if i < 0 else i for i in index]
    if not all(0 <= i < A.n for i in at):
        raise _range_error(A, list(index))
    if A.kind not in MIRRORED and any(i >= j for i, j in pairwise(at)):
        raise _order_error(A, list(index))
    return at


def _range_error(A: PackedTensor, index: list[int]) -> IndexError:
    return IndexError(f"[{_NAME}] expected integers from {-A.n} to {A.n - 1}; got {index}")


def _order_error(A: PackedTensor, index: list[int]) -> ValueError:
    return ValueError(
        f"[{_NAME}] rows and columns of {describe(A)} make a triangle in increasing order only; "
        f"got {index}"
    )


def _counted_from_front(A: PackedTensor, index: Tensor) -> Tensor:
    """Integers without negative ones, after checking their range and, for triangles, order."""
    n, index = A.n, index.long()
    at = torch.where(index < 0, index + n, index)
    if not values_visible(index):
        if A.kind not in MIRRORED:
            raise NotImplementedError(
                f"[{_NAME}] the integers of an index cannot be looked at here, and {describe(A)} "
                "takes increasing ones only. Give a slice"
            )
        # Whatever is below the range would be read as another element: above it torch raises.
        return torch.where(at < 0, n, at)
    if ((at < 0) | (at >= n)).any():
        raise _range_error(A, index.tolist())
    if A.kind not in MIRRORED and (at.diff() <= 0).any():
        raise _order_error(A, index.tolist())
    return at
