"""Functions of batch dimensions alone, which keep the type: select, iteration, stack and cat.

They give views as torch has them, made by torch's own code through the aten ops below, so that
versions are shared and in-place changes through a view differentiate. Whatever touches a dimension
of the matrices is dense.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from packedtri import _nodes, layout
from packedtri._aten_table import aten_row
from packedtri._recording import carries_autograd
from packedtri._values import describe
from packedtri.dispatch import Function, row
from packedtri.ops import indexing
from packedtri.ops.aten import shared_version, view_below
from packedtri.ops.attributes import passed
from packedtri.ops.dense import densify, functions
from packedtri.ops.dims import batch_dim, from_front
from packedtri.ops.shapes import torch_names
from packedtri.ops.views import view
from packedtri.tensor import PackedTensor

aten = torch.ops.aten


def _view(function: Function, input: PackedTensor, *args: Any, **kwargs: Any) -> Any:
    """Apply a function that makes views along batch dimensions."""
    if not carries_autograd(input._packed):
        return view(function, input, *args, **kwargs)
    result = function(input._packed, *args, **kwargs)
    if isinstance(result, Tensor):
        return input._wrap(result, input.n)
    return tuple(input._wrap(r, input.n) for r in result)


def _batch_dim(dim: int, input: PackedTensor) -> int | None:
    return batch_dim(dim, input._packed.dim() + 1)


@row(functions("select"))
@torch_names
def _select(input: Tensor, dim: int, index: int) -> Tensor:
    if isinstance(input, PackedTensor) and (at := _batch_dim(dim, input)) is not None:
        return _view(torch.select, input, at, index)
    if not isinstance(input, PackedTensor):
        return densify(torch.select, input, dim, index)
    return indexing.read_along(input, from_front(dim, input.dim()), index)


@row(functions("unbind"))
@torch_names
def _unbind(input: PackedTensor, dim: int = 0) -> tuple[Tensor, ...]:
    if (at := _batch_dim(dim, input)) is not None:
        return _view(torch.unbind, input, at)
    return densify(torch.unbind, input, dim)


@row(Tensor.__iter__)
def _iter(input: PackedTensor) -> Iterator[Tensor]:
    return iter(input.unbind())


row(Tensor.__len__, how="passed")(partial(passed, Tensor.__len__))


@row(functions("unsqueeze"))
@torch_names
def _unsqueeze(input: PackedTensor, dim: int) -> Tensor:
    # A new dimension may also come after the last batch dimension.
    if (at := batch_dim(dim, input._packed.dim() + 2)) is not None:
        return _view(torch.unsqueeze, input, at)
    return densify(torch.unsqueeze, input, dim)


@row(Tensor.view_as)
def _view_as(self: Tensor, other: Tensor) -> Tensor:
    if isinstance(self, PackedTensor) and self.shape == other.shape:
        # In a tensor's view as itself torch looks for the tensor's own node of the graph.
        return _view(aten.alias.default, self)
    return self.view(other.shape)


# A compiled function calls it on results that are views; the shape it asks for is their own.
row(aten._unsafe_view, how="passed")(partial(passed, aten._unsafe_view))


@torch_names
def _join(function: Function, tensors: Sequence[Any], dim: int = 0, **kwargs: Any) -> Tensor:
    """Stack or concatenate; matrices of one type and order along a batch dimension keep it."""
    first = tensors[0]
    if isinstance(first, PackedTensor):
        # A new dimension may also come after the last batch dimension.
        at = batch_dim(dim, first._packed.dim() + 1 + (function is torch.stack))
        alike = all(type(t) is type(first) and t.n == first.n for t in tensors)
        if alike and at is not None:
            _check_joined(function, tensors, at)
            packed = function([_nodes.to_packed(t) for t in tensors], at)
            return _nodes.from_packed(type(first), packed, first.n)
    return densify(function, tensors, dim, **kwargs)


def _check_joined(function: Function, tensors: Sequence[Any], dim: int) -> None:
    """Raise where the batches do not fit; torch would tell the shapes of packed vectors."""

    def rest(t: Any) -> Any:
        shape = t._packed.shape
        return shape if function is torch.stack else shape[:dim] + shape[dim + 1 :]

    first = rest(tensors[0])
    for t in tensors[1:]:
        if rest(t) != first:
            raise RuntimeError(
                f"[{function.__name__}] {describe(tensors[0])} and {describe(t)} do not fit "
                f"together along dimension {dim}"
            )


for _function in (torch.stack, torch.cat, torch.concat, torch.concatenate):
    row(_function, casts=True)(partial(_join, _function))


def _pile(function: Function, dim: int, tensors: Sequence[Any], **kwargs: Any) -> Tensor:
    """What of matrices, and of batches of them, is torch.cat along one dimension."""
    first = tensors[0]
    if isinstance(first, PackedTensor) and batch_dim(dim, first._packed.dim() + 1) is not None:
        return _join(torch.cat, tensors, dim, **kwargs)
    return densify(function, tensors, **kwargs)


for _dim, _names in enumerate(("vstack row_stack", "hstack column_stack")):
    for _function in functions(_names, torch):
        row(_function, casts=True)(partial(_pile, _function, _dim))


@torch_names
def _change_matrices(
    function: Function, input: Tensor, dim: int, index: Tensor, source: Any, **kwargs: Any
) -> Tensor:
    """Replace some matrices of a batch by others, or add these to them."""
    if isinstance(input, PackedTensor) and type(source) is type(input) and source.n == input.n:
        at = _batch_dim(dim, input)
        if at is not None and _sizes_beside(at, input) == _sizes_beside(at, source):
            source = _nodes.to_packed(source)
            packed = function(_nodes.to_packed(input), at, index, source, **kwargs)
            return _nodes.from_packed(type(input), packed, input.n)
    # Of what does not fit torch then tells the shapes of dense tensors.
    return densify(function, input, dim, index, source, **kwargs)


def _sizes_beside(dim: int, t: Tensor) -> torch.Size:
    """All sizes but one, and how many there are."""
    return t.shape[:dim] + t.shape[dim + 1 :]


for _function in functions("index_copy index_add"):
    row(_function)(partial(_change_matrices, _function))


@torch_names
def _index_fill(
    function: Function, input: Tensor, dim: int, index: Tensor, value: Any, **kwargs: Any
) -> Tensor:
    if isinstance(input, PackedTensor) and _fills(input, value):
        at = _batch_dim(dim, input)
        if at is not None:
            packed = function(_nodes.to_packed(input), at, index, value, **kwargs)
            return _nodes.from_packed(type(input), packed, input.n)
    return densify(function, input, dim, index, value, **kwargs)


def _fills(t: PackedTensor, value: Any) -> bool:
    """Whether a matrix full of one value has the structure of ``t``."""
    if t.kind == layout.SYMMETRIC:
        return True
    if not isinstance(value, int | float | complex):
        return False
    return value.imag == 0 if t.kind == layout.HERMITIAN else value == 0


for _function in functions("index_fill"):
    row(_function)(partial(_index_fill, _function))


@aten_row(
    aten.select.int, aten.slice.Tensor, aten.unbind.int, aten.unsqueeze.default, aten.squeeze.dim
)
def _view_below(op: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    t, dim = args[0], args[1] if len(args) > 1 else 0
    rank = t._packed.dim() + 1 + (op is aten.unsqueeze.default)
    return _viewed(op, t, _batch_dims_only(op, t, [dim], rank)[0], *args[2:], **kwargs)


@aten_row(aten.split_with_sizes.default)
def _split_below(op: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    t, sizes, dim = (*args, 0)[:3]
    return _viewed(op, t, sizes, *_batch_dims_only(op, t, [dim], t._packed.dim() + 1))


@aten_row(aten.permute.default)
def _permute_below(op: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    t, dims = args
    rank = t._packed.dim() + 1
    if [d % rank for d in dims[-2:]] != [rank - 2, rank - 1]:
        raise NotImplementedError(f"[{op}] permutes batch dimensions; got {dims} of {describe(t)}")
    return _viewed(op, t, [*_batch_dims_only(op, t, dims[:-2], rank), rank - 2])


@aten_row(aten.squeeze.dims, aten.sum.dim_IntList)
def _reduce_below(op: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    # Autograd sums what has been expanded.
    t, dims = args[:2]
    at = _batch_dims_only(op, t, dims, t._packed.dim() + 1)
    if op is aten.squeeze.dims:
        return _viewed(op, t, at)
    return t._wrap(op(t._packed, at, *args[2:], **kwargs), t._n)


def _batch_dims_only(op: Any, t: PackedTensor, dims: Sequence[int], rank: int) -> list[int]:
    found = [batch_dim(d, rank) for d in dims]
    if None in found or (not found and op is aten.sum.dim_IntList):
        raise NotImplementedError(
            f"[{op}] applies to batch dimensions; got {tuple(dims)} of {describe(t)}. Convert with "
            ".to_dense() first"
        )
    return found  # type: ignore[return-value]


def _viewed(op: Any, t: PackedTensor, *args: Any, **kwargs: Any) -> Any:
    """A view of the stored elements, or several."""
    with shared_version():
        result = op(t._packed, *args, **kwargs)
    wrap = partial(view_below, t, type(t))
    return wrap(result) if isinstance(result, Tensor) else list(map(wrap, result))


@aten_row(aten.select_backward.default, aten.slice_backward.default)
def _view_backward(op: Any, args: tuple[Any, ...], kwargs: Any) -> PackedTensor:
    grad, sizes, dim, *rest = args
    dim = dim + len(sizes) if dim < 0 else dim
    packed_sizes = (*sizes[:-2], layout.numel(sizes[-1]))
    return grad._wrap(op(grad._packed, packed_sizes, dim, *rest, **kwargs), grad._n)


@aten_row(aten.stack.default)
def _unbind_backward(op: Any, args: tuple[Any, ...], kwargs: Any) -> PackedTensor:
    tensors, dim = args[0], args[1] if len(args) > 1 else 0
    like = next(t for t in tensors if isinstance(t, PackedTensor))
    zero = torch.zeros_like(like._packed)
    for t in tensors:
        # Autograd stands for the gradient of an unused matrix by a zero that it expands.
        if type(t) is not type(like) and (isinstance(t, PackedTensor) or any(t.stride())):
            raise NotImplementedError(f"[{op}] got {describe(like)} and {describe(t)}")
    inner = [t._packed if isinstance(t, PackedTensor) else zero for t in tensors]
    return like._wrap(op(inner, dim), like._n)
