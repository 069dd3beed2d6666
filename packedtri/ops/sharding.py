"""How the ops on packed storage act on DTensors, tensors that are spread over processes.

Each process computes with what it has where the op allows that: of matrices in a batch; of some
columns or rows of a dense operand beside a triangle that every process has; of some terms of the
sums of a product, whose results torch adds up afterwards. Everything else every process has whole.

Importing this module tells torch; ``packedtri._dtensor`` does so when it first meets a DTensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

from packedtri.layout import DENSE

_ops = torch.ops.packedtri
# The placements of the results, and of the arguments: of numbers they are None.
Rule = tuple[list[Any], list[Any]]


def _rule(results: Sequence[Any], tensors: Sequence[Any], others: int) -> Rule:
    return list(results), [*tensors, *[None] * others]


def _by_batch(
    tensors: Sequence[Any], inner: Sequence[int], results: Sequence[int], others: int
) -> list[Rule]:
    """Rules for everything whole, and for each dimension of the batch.

    Args:
        tensors: the tensor arguments, which broadcast.
        inner: how many dimensions of each of them belong to a matrix.
        results: the same of the results.
        others: how many arguments are no tensors.
    """
    whole = [Replicate()] * len(tensors)
    rules = [_rule([Replicate()] * len(results), whole, others)]
    batches = [tuple(t.shape[: t.ndim - k]) for t, k in zip(tensors, inner, strict=True)]
    shape = torch.broadcast_shapes(*batches)
    for dim, size in enumerate(shape):
        missing = [len(shape) - len(batch) for batch in batches]
        placed = [
            Shard(dim - m) if dim >= m and batch[dim - m] == size else Replicate()
            for batch, m in zip(batches, missing, strict=True)
        ]
        rules.append(_rule([Shard(dim)] * len(results), placed, others))
    return rules


@register_sharding(_ops.mm.default)
def _mm(a: Any, b: Any, n: int, a_kind: int, b_kind: int, c_kind: int, *tf32: bool) -> list[Rule]:
    others = 4 + len(tf32)
    inner = [min(2, x.ndim) if k == DENSE else 1 for x, k in ((a, a_kind), (b, b_kind))]
    rows = a_kind == DENSE and inner[0] == 2
    columns = b_kind == DENSE and inner[1] == 2
    dims = (a_kind != DENSE or rows) + (b_kind != DENSE or columns) if c_kind == DENSE else 1
    rules = _by_batch((a, b), inner, [dims], others)
    batch = max(a.ndim - inner[0], b.ndim - inner[1])
    if c_kind == DENSE and rows:
        rules.append(_rule([Shard(batch)], [Shard(a.ndim - 2), Replicate()], others))
    if c_kind == DENSE and columns:
        rules.append(_rule([Shard(batch + dims - 1)], [Replicate(), Shard(b.ndim - 1)], others))
    if a_kind == b_kind == DENSE:
        terms = [Shard(a.ndim - 1), Shard(b.ndim - inner[1])]
        rules.append(_rule([Partial()], terms, others))
    for place in ([Partial(), Replicate()], [Replicate(), Partial()]):
        rules.append(_rule([Partial()], place, others))
    return rules


@register_sharding(_ops.solve_triangular.default)
def _solve(
    packed: Any, b: Any, n: int, kind: int, b_kind: int, left: bool, unit: bool
) -> list[Rule]:
    own = 2 if b_kind == DENSE else 1
    rules = _by_batch((packed, b), (1, own), (own,), 5)
    batch = max(packed.ndim - 1, b.ndim - own)
    if b_kind == DENSE:
        # Each column, from the right each row, is a system of its own.
        at = 1 if left else 0
        rules.append(_rule([Shard(batch + at)], [Replicate(), Shard(b.ndim - 2 + at)], 5))
    rules.append(_rule([Partial()], [Replicate(), Partial()], 5))
    return rules


def _linear(x: Any, inner: int, result: int, others: int) -> list[Rule]:
    """Rules of linear ops on one tensor."""
    return [*_by_batch((x,), (inner,), (result,), others), _rule([Partial()], [Partial()], others)]


@register_sharding(_ops.pack.default)
def _pack(dense: Any, *others: Any) -> list[Rule]:
    return _linear(dense, 2, 1, len(others))


@register_sharding([_ops.pack_block.default, _ops.pack_rows.default])
def _pack_block(dense: Any, *others: Any) -> list[Rule]:
    return _linear(dense, 2, 1, len(others))


@register_sharding([_ops.unpack.default, _ops.unpack_block.default, _ops.unpack_rows.default])
def _unpack(packed: Any, *others: Any) -> list[Rule]:
    return _linear(packed, 1, 2, len(others))


@register_sharding(
    [
        _ops.diagonal.default,
        _ops.embed_diagonal.default,
        _ops.scale_band.default,
        _ops.reorder.default,
    ]
)
def _same_size(x: Any, *others: Any) -> list[Rule]:
    return _linear(x, 1, 1, len(others))


@register_sharding(_ops.first_zero.default)
def _first_zero(packed: Any, n: int) -> list[Rule]:
    return _by_batch((packed,), (1,), (0,), 1)


@register_sharding(_ops.cholesky.default)
def _cholesky(packed: Any, n: int) -> list[Rule]:
    return _by_batch((packed,), (1,), (1, 0), 1)


@register_sharding(_ops.cholesky_update.default)
def _cholesky_update(packed: Any, x: Any, n: int, downdate: bool) -> list[Rule]:
    return _by_batch((packed, x), (1, 2), (1, 0), 2)


@register_sharding([_ops.exp_dense.default, _ops.log_upper.default, _ops.sqrt_upper.default])
def _of_matrices(x: Any) -> list[Rule]:
    return _by_batch((x,), (2,), (2,), 0)
