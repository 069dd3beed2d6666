"""Cholesky factorization of a matrix that is cut in parts.

By rows, looking left: as soon as a strip of the factor is done, all processes are sent it, and take
from their own strips below what it contributes there. The process that has the next strip begins
with that, finishes it and sends it off, before it turns to the others.
"""

from __future__ import annotations

from itertools import zip_longest

import torch
import torch.distributed as dist
from torch import Tensor

from packedtri.distributed.products import multiply
from packedtri.distributed.solves import solve_square
from packedtri.distributed.strips import Cut, Message, Strip, collect, deal
from packedtri.layout import DENSE, LOWER, UPPER

_cholesky = torch.ops.packedtri.cholesky.default
_mm = torch.ops.packedtri.mm.default
_pack, _unpack = torch.ops.packedtri.pack.default, torch.ops.packedtri.unpack.default

# What stands for no failure, larger than any order.
_NONE = torch.iinfo(torch.int32).max


def factor(cut: Cut, chunk: Tensor) -> tuple[Tensor, Tensor]:
    """The chunk of the factor of a symmetric or Hermitian matrix, and LAPACK's info, on all."""
    own = deal(cut, chunk)
    batch = chunk.shape[:-1]
    failed = chunk.new_full(batch, _NONE, dtype=torch.int32)
    owners = cut.owners()

    def send(strip: Strip) -> Message:
        if owners[strip] == cut.rank:
            rows = own[strip]
            _finish(strip, rows, failed)
        else:
            rows = chunk.new_empty((*batch, strip.last - strip.first, strip.last))
        return Message(cut, rows, owners[strip])

    strips = list(owners)
    coming = [send(strip) for strip in strips[:1]]
    for strip, following in zip_longest(strips, strips[1:]):
        rows = coming.pop().wait()
        if following is not None:
            if owners[following] == cut.rank:
                _eliminate(strip, rows, own[following])
            coming.append(send(following))
        for below, block in own.items():
            if below.first > strip.first and below != following:
                _eliminate(strip, rows, block)
    dist.all_reduce(failed, dist.ReduceOp.MIN, group=cut.group)
    return collect(cut, own, batch, chunk), failed.masked_fill_(failed == _NONE, 0)


def _eliminate(strip: Strip, rows: Tensor, below: Tensor) -> None:
    """Make of a strip further down what the factor has there, below the square of a done one."""
    block = below[..., strip.first : strip.last]
    if strip.first:
        block -= multiply(below[..., : strip.first], rows[..., : strip.first].mH)
    block.copy_(solve_square(rows[..., strip.first :].conj(), block, UPPER, False, False))


def _finish(strip: Strip, rows: Tensor, failed: Tensor) -> None:
    """Factor the square at the end of a strip of which the rest is done."""
    height = strip.last - strip.first
    left, square = rows[..., : strip.first], rows[..., strip.first :]
    packed = _pack(square, LOWER)
    if strip.first:
        packed -= _mm(left, left.mH, height, DENSE, DENSE, LOWER)
    packed, info = _cholesky(packed, height)
    square.copy_(_unpack(packed, height, LOWER))
    torch.minimum(failed, torch.where(info > 0, info + strip.first, _NONE), out=failed)
