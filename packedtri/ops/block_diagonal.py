"""The row of ``torch.block_diag``: of matrices of one type it has that type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from packedtri import _nodes
from packedtri.dispatch import row
from packedtri.ops.dense import densify
from packedtri.ops.row_strips import dense_strips, pack_strips
from packedtri.tensor import PackedTensor


def _blocks(tensors: Iterable[Any]) -> Sequence[PackedTensor]:
    """The matrices, where all are single ones of one packed type; else none."""
    given = list(tensors)
    alike = all(isinstance(t, PackedTensor) and type(t) is type(given[0]) for t in given)
    return given if alike and all(t._packed.dim() == 1 for t in given) else ()


@row(torch.block_diag)
def _block_diag(*tensors: Any) -> Tensor:
    blocks = _blocks(tensors)
    if not blocks:
        return densify(torch.block_diag, *tensors)
    if len(blocks) == 1:
        return blocks[0].clone()
    rows: list[Tensor] = []
    n = 0
    for t in blocks:
        rows += _rows_behind(n, _nodes.to_elements(t), t.n)
        n += t.n
    return _nodes.from_packed(type(blocks[0]), torch.cat(rows), n)


def _rows_behind(before: int, packed: Tensor, n: int) -> list[Tensor]:
    """The stored elements of the rows of a block that has so many rows and columns before it."""
    if before == 0:
        return [packed]
    strips = (pad(strip, (before, 0)) for strip in dense_strips(packed, 0, n))
    return pack_strips(strips, before)
