"""Dimensions and sizes as torch counts and broadcasts them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any

from torch import Tensor


def from_front(dim: int, rank: int) -> int:
    """The dimension counted from the front.

    Raises:
        IndexError: when a tensor of ``rank`` dimensions has no such dimension.
    """
    if not -rank <= dim < rank:
        raise IndexError(f"dimension {dim} is out of range for a tensor of {rank} dimensions")
    return dim % rank


def batch_dim(dim: int, rank: int) -> int | None:
    """The dimension counted from the front; None where it is no batch dimension or none at all."""
    at = dim + rank if dim < 0 else dim
    return at if 0 <= at < rank - 2 else None


def can_broadcast(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether tensors of these sizes broadcast."""
    return all(x == y or x == 1 or y == 1 for x, y in zip(reversed(a), reversed(b), strict=False))


def can_expand(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether a tensor of sizes ``a`` expands to sizes ``b``."""
    pairs = zip(reversed(a), reversed(b), strict=False)
    return len(a) <= len(b) and all(x == y or x == 1 for x, y in pairs)


class Dims:
    """The dimensions that a reduction takes: batch dimensions, rows, columns.

    Attributes:
        rank: of the tensor.
        batch: the batch dimensions, counted from the front.
        matrix: -2 and -1, or one of them, or neither.
    """

    def __init__(self, rank: int, dim: Any) -> None:
        self.rank = rank
        given = (dim,) if isinstance(dim, int) else dim
        front = sorted(from_front(d, rank) for d in given or range(rank))
        for d, following in pairwise(front):
            if d == following:
                raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
        self.batch = tuple(d for d in front if d < rank - 2)
        self.matrix = tuple(d - rank for d in front if d >= rank - 2)

    def count(self, shape: Sequence[int]) -> int:
        """How many elements of a tensor of this shape make one of the result."""
        return prod(shape[d] for d in (*self.batch, *self.matrix))

    def restore(self, x: Tensor) -> Tensor:
        """Put dimensions of length one in the place of those that were reduced."""
        for d in sorted((*self.batch, *(d + self.rank for d in self.matrix))):
            x = x.unsqueeze(d)
        return x
