"""Dimensions and sizes as torch counts and broadcasts them."""

from __future__ import annotations

from collections.abc import Sequence


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
