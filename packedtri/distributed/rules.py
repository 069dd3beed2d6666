"""What the ops do with DTensors that cut one matrix in parts, where they do not put it together.

An op asks here first. A rule that does not know a case leaves it to ``packedtri.ops.sharding``, by
which torch puts together what it has no better way for.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

from packedtri import _dtensor, layout
from packedtri._bands import diagonal_index
from packedtri._library import tf32_is_set
from packedtri.distributed import factors, products, solves
from packedtri.distributed.strips import Cut, own_rows, stream
from packedtri.layout import DENSE, HERMITIAN, LOWER, TRANSPOSED, UPPER

_ops = torch.ops.packedtri


def _rule(op: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _dtensor.rules_of_parts[op] = function
        return function

    return register


def _cut(packed: Any, n: int) -> Cut | None:
    """How a packed tensor is cut, or None where each matrix is whole on some process.

    One dimension of the mesh may cut; along others all processes must have the same.
    """
    if not isinstance(packed, DTensor):
        return None
    cutting = [i for i, p in enumerate(packed.placements) if type(p) is Shard and p.dim == packed.ndim - 1]
    others = [p for i, p in enumerate(packed.placements) if i not in cutting]
    if len(cutting) != 1 or not all(p.is_replicate() for p in others):
        return None
    return Cut(n, packed.device_mesh, cutting[0])


def _local(x: DTensor, cut: Cut, placement: Placement) -> Tensor:
    """What this process has of a tensor, spread so along the dimension that the matrix is cut by."""
    placements: list[Placement] = [Replicate()] * cut.mesh.ndim
    placements[cut.dim] = placement
    return x.redistribute(placements=placements).to_local().resolve_conj()


def _spread(local: Tensor, cut: Cut, placement: Placement, shape: tuple[int, ...]) -> DTensor:
    """The DTensor that a part of it on each process stands for."""
    placements: list[Placement] = [Replicate()] * cut.mesh.ndim
    placements[cut.dim] = placement
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(
        local.contiguous(), cut.mesh, placements, run_check=False, shape=torch.Size(shape), stride=stride
    )


@contextmanager
def _without_tf32() -> Any:
    """A context in which torch's products of float32 keep their precision."""
    set_precision = torch._C._set_fp32_precision_setter
    set_precision("cuda", "matmul", "ieee")
    try:
        yield
    finally:
        set_precision("cuda", "matmul", "tf32")


def _precise(tf32: bool = False) -> AbstractContextManager[None]:
    return nullcontext() if tf32 or not tf32_is_set() else _without_tf32()


def _columns(x: DTensor, cut: Cut, batch: torch.Size) -> Placement:
    """How a dense operand is to be spread: as it is, where each process can work on its own part.

    It has columns of its own, or a share of the batch, which then the triangle has not.
    """
    placement = x.placements[cut.dim]
    if type(placement) is Shard and placement.dim != x.ndim - 2:
        if placement.dim == x.ndim - 1 or not batch:
            return placement
    return Replicate()


@_rule(_ops.mm.default)
def _mm(a: Any, b: Any, n: int, a_kind: int, b_kind: int, c_kind: int, tf32: bool = False) -> Any:
    if DENSE not in (a_kind, b_kind):
        return _triangles(a, b, n, a_kind, b_kind, c_kind, tf32)
    left = b_kind == DENSE
    packed, x = (a, b) if left else (b, a)
    cut = _cut(packed, n)
    if cut is None or not isinstance(x, DTensor) or x.device_mesh != cut.mesh:
        return NotImplemented
    kind = a_kind if left else TRANSPOSED.get(b_kind, b_kind)
    chunk = _local(packed, cut, Shard(packed.ndim - 1))
    if kind == HERMITIAN and not left:
        chunk = chunk.conj().resolve_conj()
    is_vector = x.ndim == 1
    x = x.unsqueeze(-1) if is_vector else x if left else x.mT
    batch = packed.shape[:-1]
    placement = _columns(x, cut, batch)
    shape = (*torch.broadcast_shapes(batch, x.shape[:-2]), n, x.shape[-1])
    columns = _local(x, cut, placement)
    strips = own_rows(cut, chunk) if placement.is_replicate() else stream(cut, chunk)
    with _precise(tf32):
        y = products.multiply_dense(strips, n, columns, kind, batch)
    if placement.is_replicate():
        found = _spread(y, cut, Partial(), shape)
    else:
        found = _spread(y, cut, Shard(placement.dim + len(shape) - x.ndim), shape)
    return found.squeeze(-1) if is_vector else found if left else found.mT


def _triangles(
    a: Any, b: Any, n: int, a_kind: int, b_kind: int, c_kind: int, tf32: bool
) -> Any:
    cut = _cut(a, n) or _cut(b, n)
    both = isinstance(a, DTensor) and isinstance(b, DTensor) and a.device_mesh == b.device_mesh
    if cut is None or not both or {a_kind, b_kind, c_kind} - {LOWER, UPPER} or c_kind != LOWER:
        return NotImplemented
    first = _local(a, cut, Shard(a.ndim - 1))
    second = first if a is b else _local(b, cut, Shard(b.ndim - 1))
    with _precise(tf32):
        chunk = products.multiply_triangles(cut, first, second, a_kind, b_kind)
    if chunk is None:
        return NotImplemented
    return _packed(chunk, cut)


def _packed(chunk: Tensor, cut: Cut) -> DTensor:
    shape = (*chunk.shape[:-1], layout.numel(cut.n))
    return _spread(chunk, cut, Shard(len(shape) - 1), shape)


@_rule(_ops.solve_triangular.default)
def _solve(packed: Any, b: Any, n: int, kind: int, b_kind: int, left: bool, unit: bool) -> Any:
    cut = _cut(packed, n) or (_cut(b, n) if b_kind == LOWER else None)
    both = isinstance(packed, DTensor) and isinstance(b, DTensor)
    if cut is None or not both or b.device_mesh != packed.device_mesh:
        return NotImplemented
    if b_kind == LOWER and kind != LOWER:
        return NotImplemented
    chunk = _local(packed, cut, Shard(packed.ndim - 1))
    if b_kind == LOWER:
        with _precise():
            return _packed(
                solves.solve_triangles(cut, chunk, _local(b, cut, Shard(b.ndim - 1)), left, unit), cut
            )
    # From the right it is the transpose of a system with the transposed triangle.
    x = b if left else b.mT
    batch = packed.shape[:-1]
    placement = _columns(x, cut, batch)
    if placement.is_replicate() and x.shape[-1] >= cut.world:
        placement = Shard(x.ndim - 1)
    shape = (*torch.broadcast_shapes(batch, x.shape[:-2]), *x.shape[-2:])
    with _precise():
        y = solves.solve_dense(
            cut, chunk, _local(x, cut, placement), kind if left else TRANSPOSED[kind], unit
        )
    if not placement.is_replicate():
        placement = Shard(placement.dim + len(shape) - x.ndim)
    found = _spread(y, cut, placement, shape)
    return found if left else found.mT


@_rule(_ops.cholesky.default)
def _cholesky(packed: Any, n: int) -> Any:
    cut = _cut(packed, n)
    if cut is None:
        return NotImplemented
    with _precise():
        chunk, info = factors.factor(cut, _local(packed, cut, Shard(packed.ndim - 1)))
    return _packed(chunk, cut), _spread(info, cut, Replicate(), tuple(info.shape))


def _own_diagonal(cut: Cut, chunk: Tensor, below: int) -> tuple[Tensor, Tensor]:
    """Which elements of a diagonal this process has, and where in its chunk."""
    begin, end = cut.chunks[cut.rank]
    index = diagonal_index(cut.n, chunk.device, below)
    rows = torch.arange(*torch.searchsorted(index, index.new_tensor([begin, end])).tolist(), device=chunk.device)
    return rows, index[rows] - begin


@_rule(_ops.diagonal.default)
def _diagonal(packed: Any, n: int, below: int) -> Any:
    cut = _cut(packed, n)
    if cut is None:
        return NotImplemented
    chunk = _local(packed, cut, Shard(packed.ndim - 1))
    rows, index = _own_diagonal(cut, chunk, below)
    elements = chunk.new_zeros((*chunk.shape[:-1], n - below))
    elements[..., rows] = chunk[..., index]
    return _spread(elements, cut, Partial(), tuple(elements.shape))


@_rule(_ops.first_zero.default)
def _first_zero(packed: Any, n: int) -> Any:
    diagonal = _diagonal(packed, n, 0)
    if diagonal is NotImplemented:
        return NotImplemented
    zero = diagonal.full_tensor() == 0
    cut = _cut(packed, n)
    assert cut is not None
    found = torch.where(zero.any(-1), zero.int().argmax(-1) + 1, 0).int() if n else zero.sum(-1).int()
    return _spread(found, cut, Replicate(), tuple(found.shape))


@_rule(_ops.scale_band.default)
def _scale_band(
    packed: Any, n: int, nearest: int, farthest: int, inside: float, outside: float, hermitian: bool
) -> Any:
    cut = _cut(packed, n)
    if cut is None or nearest != farthest:
        return NotImplemented
    chunk = _local(packed, cut, Shard(packed.ndim - 1))
    _, index = _own_diagonal(cut, chunk, nearest)
    scaled = chunk.clone() if outside == 1 else chunk * outside if outside else torch.zeros_like(chunk)
    if inside != outside:
        scaled[..., index] = chunk[..., index] * inside if inside else 0
    if hermitian and chunk.is_complex():
        _, index = _own_diagonal(cut, chunk, 0)
        scaled.imag[..., index] = 0
    return _packed(scaled, cut)
