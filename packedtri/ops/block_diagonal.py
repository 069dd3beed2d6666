"""The row of ``torch.block_diag``: of matrices of one type it has that type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from packedtri import _nodes, layout
from packedtri._dtensor import beside
from packedtri.dispatch import row
from packedtri.ops.dense import densify
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
    orders = [t.n for t in blocks]
    starts = list(accumulate(orders, initial=0))
    first, n = blocks[0], starts[-1]
    at = torch.cat([_offsets(s, k, first.device) for s, k in zip(starts, orders, strict=False)])
    elements = torch.cat([_nodes.to_elements(t) for t in blocks])
    zeros = elements.new_zeros(layout.numel(n))
    return _nodes.from_packed(type(first), zeros.index_copy(-1, beside(zeros, at), elements), n)


def _offsets(start: int, n: int, device: torch.device) -> Tensor:
    """Where the elements of a block of order n are stored whose first row has this number."""
    count = layout.numel(n)
    rows = torch.arange(n, device=device)
    # The rows before each are as many elements longer than they are in the block.
    further = torch.repeat_interleave(rows * start, rows + 1, output_size=count)
    return further + torch.arange(count, device=device) + layout.offset(start, start)
