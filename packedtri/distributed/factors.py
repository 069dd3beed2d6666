"""Cholesky factorization of a matrix that is cut in parts.

By rows, looking left: as soon as a strip of the factor is done, all processes are sent it, and take
from their own strips below what it contributes there. The process that has the next strip begins
with that, finishes it and sends it off, before it turns to the others.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from packedtri.distributed.strips import Cut, Message, Strip, collect, deal

# What stands for no failure, larger than any order.
_NONE = torch.iinfo(torch.int32).max


def factor(cut: Cut, chunk: Tensor) -> tuple[Tensor, Tensor]:
    """The chunk of the factor of a symmetric or Hermitian matrix, and LAPACK's info, on all."""
    own = deal(cut, chunk)
    failed = chunk.new_full(chunk.shape[:-1], _NONE, dtype=torch.int32)

    def send(strip: Strip) -> Message:
        if strip.owner == cut.rank:
            rows = own[strip]
            _finish(strip, rows, failed)
        else:
            rows = chunk.new_empty((*chunk.shape[:-1], strip.last - strip.first, strip.last))
        return Message(cut, rows, strip.owner)

    strips = cut.strips
    coming = send(strips[0]) if strips else None
    for i, strip in enumerate(strips):
        assert coming is not None
        rows = coming.wait()
        following = strips[i + 1] if i + 1 < len(strips) else None
        if following is not None:
            if following.owner == cut.rank:
                _eliminate(strip, rows, own[following])
            coming = send(following)
        for below, block in own.items():
            if below.first > strip.first and below != following:
                _eliminate(strip, rows, block)
    dist.all_reduce(failed, dist.ReduceOp.MIN, group=cut.group)
    return collect(cut, own, chunk.shape[:-1], chunk), failed.masked_fill_(failed == _NONE, 0)


def _eliminate(strip: Strip, rows: Tensor, below: Tensor) -> None:
    """Make of a strip further down what the factor has there, below the square of a done one."""
    block = below[..., strip.first : strip.last]
    block -= below[..., : strip.first] @ rows[..., : strip.first].mH
    square = rows[..., strip.first :].mH
    block.copy_(torch.linalg.solve_triangular(square, block, upper=True, left=False))


def _finish(strip: Strip, rows: Tensor, failed: Tensor) -> None:
    """Factor the square at the end of a strip of which the rest is done."""
    left, square = rows[..., : strip.first], rows[..., strip.first :]
    found, info = torch.linalg.cholesky_ex(square - left @ left.mH)
    square.copy_(found)
    here = torch.where(info > 0, info + strip.first, _NONE)
    torch.minimum(failed, here.to(failed.dtype), out=failed)
