"""Reductions over all elements that the stored ones suffice for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from packedtri import _nodes, layout
from packedtri.dispatch import aten_row, row
from packedtri.ops.aten import Args, Kwargs
from packedtri.ops.dense import densify
from packedtri.tensor import PackedTensor


def norm(packed: Tensor, t: PackedTensor, ord: float = 2.0, **kwargs: Any) -> Tensor:
    """Norm of all elements, of ord > 0: Symmetric counts those off its diagonal twice.

    Args:
        packed: the stored elements of ``t``, shape (*batch, n(n+1)/2).
        t: the type.
        ord: order of the norm. Others than positive ones would count structural zeros.
        kwargs: ``dtype`` and ``out``, as for torch.linalg.vector_norm.
    """
    if not ord > 0:
        raise NotImplementedError(f"[vector_norm] ord={ord} counts zeros; convert with .to_dense()")
    if t.kind != layout.SYMMETRIC or ord == float("inf"):
        return torch.linalg.vector_norm(packed, ord, **kwargs)
    weight = packed.new_full(packed.shape[-1:], 2 ** (1 / ord), dtype=packed.real.dtype)
    weight[_nodes.diagonal_index(t.n, packed.device)] = 1
    return torch.linalg.vector_norm(packed * weight, ord, **kwargs)


@aten_row(torch.ops.aten.linalg_vector_norm.default)
def _vector_norm_below(op: Any, args: Args, kwargs: Kwargs) -> Tensor:
    t = args[0]
    if any(v is not None and v is not False for v in args[2:]):
        raise NotImplementedError(f"[{op}] along dimensions; convert with .to_dense()")
    return norm(t._packed, t, *args[1:2], **kwargs)


@row(torch.linalg.vector_norm, PackedTensor)
def _vector_norm(
    x: PackedTensor, ord: float = 2, dim: Any = None, keepdim: bool = False, **kwargs: Any
) -> Tensor:
    if dim is not None or keepdim or not ord > 0:
        return densify(torch.linalg.vector_norm, x, ord, dim, keepdim, **kwargs)
    return norm(_nodes.to_packed(x), x, ord, **kwargs)
