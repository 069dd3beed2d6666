"""The size formula of a packed triangle, and the numbers that name how one is read.

A packed triangle of order n keeps its rows one after another: element (i, j), i >= j, lies at
i(i+1)/2 + j. That is the order of :func:`torch.tril_indices`.
"""

from __future__ import annotations

from math import isqrt
from typing import Final, TypeVar

import torch

# The formulas hold for index tensors, element by element.
Index = TypeVar("Index", int, torch.Tensor)

# How an operand is read. The C++ side (csrc/problem.h) uses the same numbers.
#: A packed triangle, as it is.
LOWER: Final = 0
#: A packed triangle, transposed.
UPPER: Final = 1
#: A packed triangle, whose strict half stands for the other one as well.
SYMMETRIC: Final = 2
#: No packed triangle.
DENSE: Final = 3
#: As SYMMETRIC, with the other half conjugated and a real diagonal.
HERMITIAN: Final = 4
#: The kinds of which the stored half of a matrix gives the other one.
MIRRORED: Final = (SYMMETRIC, HERMITIAN)

#: The kinds of the transposes. That of a HERMITIAN matrix is its conjugate.
TRANSPOSED: Final = {LOWER: UPPER, UPPER: LOWER, SYMMETRIC: SYMMETRIC, DENSE: DENSE}

#: The element types that have kernels, in the order of csrc/problem.h.
DTYPES: Final = (
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
)
#: The dtypes of the parts of complex numbers. Dynamo does not know ``dtype.to_real()``.
REAL: Final = {torch.complex64: torch.float32, torch.complex128: torch.float64}


def numel(n: Index) -> Index:
    """Number of stored elements of a triangle of order n.

    Args:
        n: order of the matrix, n >= 0, or a tensor of orders.

    Returns:
        n(n+1)/2. This is also the position of the first element of row n.

    Example:
        >>> numel(4)
        10
    """
    return n * (n + 1) // 2


def offset(i: Index, j: Index) -> Index:
    """Position of element (i, j), i >= j, in packed order; of tensors, element by element.

    Example:
        >>> [offset(i, j) for i in range(3) for j in range(i + 1)]
        [0, 1, 2, 3, 4, 5]
    """
    return numel(i) + j


def order(count: int) -> int:
    """Order n of the triangle that has ``count`` elements.

    Args:
        count: length of the last dimension of a packed tensor.

    Returns:
        n such that ``numel(n) == count``.

    Raises:
        ValueError: when ``count`` is no triangular number. The message names the two nearest.

    Example:
        >>> order(10)
        4
    """
    n = (isqrt(8 * count + 1) - 1) // 2
    if numel(n) == count:
        return n
    raise ValueError(
        f"a packed triangle of order n has n(n+1)/2 elements; {count} is no such number. "
        f"The nearest are {numel(n)} (n = {n}) and {numel(n + 1)} (n = {n + 1})"
    )
