"""The rows of ``L + L.mT`` and ``L + L.mH``: a triangle plus its own transpose.

As with products, both operands must be one tensor to autograd as well: see ``_nodes.is_transpose``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor

from packedtri import _nodes
from packedtri._bands import scale_band
from packedtri.dispatch import Function, row
from packedtri.layout import HERMITIAN, LOWER
from packedtri.ops.dense import densify, functions
from packedtri.tensor import Hermitian, LowerTriangular, PackedTensor, Symmetric, UpperTriangular


def _sum_type(a: PackedTensor, b: PackedTensor) -> type[Symmetric | Hermitian] | None:
    """The type of the sum of two triangles of different kinds, None where it has none."""
    if _nodes.is_transpose(a, b):
        return Symmetric
    return Hermitian if _nodes.is_adjoint(a, b) else None


def _add(function: Function, input: Any, other: Any, **kwargs: Any) -> Tensor:
    cls = None if kwargs else _sum_type(input, other)
    if cls is None:
        return densify(function, input, other, **kwargs)
    # Off the diagonal each element of the sum is one of the lower operand.
    lower = input if input.kind == LOWER else other
    packed, n = _nodes.to_packed(lower), lower.n
    doubled = scale_band(packed, n, 0, 0, 2, 1, cls.kind == HERMITIAN)
    return _nodes.from_packed(cls, doubled, n)


for _function in functions("add __add__ __radd__"):
    for _types in ((LowerTriangular, UpperTriangular), (UpperTriangular, LowerTriangular)):
        row(_function, *_types, casts=True)(partial(_add, _function))
