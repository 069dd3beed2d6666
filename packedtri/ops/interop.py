"""Memory and other libraries: a packed type has no n x n storage that it could hand out.

What can be served from the packed storage is; the rest raises, where torch would crash or answer
for a storage that does not exist. ``untyped_storage`` alone passes: torch's own tools ask for it to
tell tensors apart. It raises where somebody asks for what it holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial, partialmethod
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from packedtri import _nodes, _tracing
from packedtri._aten_table import aten_row
from packedtri._dtensor import is_spread
from packedtri._values import describe, function_name
from packedtri.dispatch import Function, row
from packedtri.ops.aten import clones_before_changes
from packedtri.ops.attributes import passed
from packedtri.ops.dense import as_dense, densify, functions
from packedtri.tensor import (
    Hermitian,
    LowerTriangular,
    PackedTensor,
    Symmetric,
    UpperTriangular,
)


def _refuse(function: Function, advice: str, *args: Any, **kwargs: Any) -> NoReturn:
    raise NotImplementedError(_message(function_name(function), advice, *args, *kwargs.values()))


def _message(name: str, advice: str, *args: Any) -> str:
    packed = next(t for t in tree_leaves(args) if isinstance(t, PackedTensor))
    return f"[{name}] is not defined for {describe(packed)}: it stores only a triangle. {advice}"


def _add_refusals(to_refuse: list[Function], advice: str) -> None:
    for function in to_refuse:
        row(function, how="refused")(partial(_refuse, function, advice))


_ADVICE = "Use .to_dense(), or .packed for the stored elements"
_add_refusals(
    [
        *functions("storage __dlpack__ view as_strided unfold ravel_", Tensor),
        torch.as_strided,
    ],
    _ADVICE,
)
# Optimizers write through it, and a dense copy would take their steps in vain.
_add_refusals(
    [torch.view_as_real],
    "Use torch.view_as_real of .packed or of .to_dense(); of torch's optimizers SGD takes complex "
    "matrices, and all take a plain vector from which the type is built in forward",
)
_add_refusals(
    functions("resize_ resize_as_ t_ transpose_ swapaxes_ swapdims_ squeeze_ unsqueeze_", Tensor),
    "The shape of a packed type is fixed; use the version that returns a new tensor",
)


class _NoMemory(torch.UntypedStorage):
    """The storage that torch makes for a packed type: an identity and a size, but no elements."""

    owner: str

    def __repr__(self) -> str:
        return f"[storage without memory of {self.owner}]"


def _refuse_contents(self: _NoMemory, name: str, *args: Any, **kwargs: Any) -> NoReturn:
    raise NotImplementedError(
        f"[torch.UntypedStorage.{name}] there is no memory behind the storage of {self.owner}, "
        "which stores only a triangle. Use .packed.untyped_storage(), which holds the stored "
        "elements, or .to_dense()"
    )


# By some of them torch would write to no address.
_CONTENTS = """
    __getitem__ __reduce__ __setitem__ _share_cuda_ _share_fd_cpu_ _share_filename_cpu_ _to
    _write_file byteswap clone copy_ data_ptr fill_ pin_memory resize_ share_memory_ to
"""
for _name in _CONTENTS.split():
    setattr(_NoMemory, _name, partialmethod(_refuse_contents, _name))


@row(Tensor.untyped_storage, how="passed")
def _untyped_storage(input: PackedTensor) -> torch.UntypedStorage:
    storage = passed(Tensor.untyped_storage, input)
    if not _tracing.is_compiling():
        # Torch gives the same object each time, as long as the type exists.
        storage.__class__ = _NoMemory
        storage.owner = describe(input)
    return storage


def _write_or_refuse(function: Function, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Into a dense tensor packed ones are written as dense."""
    if not isinstance(input, PackedTensor):
        return densify(function, input, *args, **kwargs)
    advice = "Write to .packed under torch.no_grad(), or convert with .to_dense() and from_dense"
    _refuse(function, advice, input, *args, **kwargs)


row(Tensor.scatter_, how="refused")(partial(_write_or_refuse, Tensor.scatter_))


@row(Tensor.numpy, how="refused")
def _numpy(input: PackedTensor, *, force: bool = False) -> Any:
    """A dense array, where it need not share the memory of the matrix."""
    if force:
        return input.detach().to_dense().numpy(force=True)
    _refuse(Tensor.numpy, "Use .numpy(force=True), .to_dense() or .packed", input)


@row(Tensor.data_ptr, how="refused")
def _data_ptr(input: PackedTensor) -> int:
    # torch.autograd.graph.allow_mutation_on_saved_tensors tells by it what it has saved.
    if clones_before_changes():
        return _nodes.settled(input._packed).data_ptr()
    _refuse(Tensor.data_ptr, _ADVICE, input)


@row(Tensor.__cuda_array_interface__.__get__, how="refused")
def _array_interface(input: PackedTensor) -> NoReturn:
    # Other libraries ask for it by hasattr, which takes no other error for an answer.
    raise AttributeError(_message("__cuda_array_interface__", _ADVICE, input))


def _on_packed(function: Function, input: PackedTensor, *args: Any, **kwargs: Any) -> Any:
    return function(_nodes.settled(input._packed), *args, **kwargs)


for _function in functions("is_shared is_pinned __dlpack_device__ record_stream", Tensor):
    row(_function)(partial(_on_packed, _function))
row(Tensor.nbytes.__get__)(partial(_on_packed, Tensor.nbytes.__get__))


@aten_row(torch.ops.aten._nested_tensor_from_tensor_list.default)
def _nested(op: Any, args: tuple[Any, ...], kwargs: Any) -> NoReturn:
    advice = "Use torch.stack where the matrices have one order, or .to_dense()"
    raise NotImplementedError(_message("torch.nested.nested_tensor", advice, args))


_access = torch.ops.export.access_subclass_inner_tensor.default


@row(_access, how="passed")
def _read_parameter(src_subclass_tensor: PackedTensor, attr: str) -> Tensor:
    """What an exported program reads the types among its parameters by."""
    t = src_subclass_tensor
    # Traced once more, the program records gradients of the elements.
    if type(t._packed) is Tensor and torch.is_grad_enabled() and _nodes.requires_grad(t):
        raise RuntimeError(
            f"[torch.export] the exported program would not record gradients of {describe(t)}. "
            "Call run_decompositions() on it first, or use torch.no_grad()"
        )
    return passed(_access, t, attr)


@row(Tensor.share_memory_)
def _share_memory_(input: PackedTensor) -> PackedTensor:
    if is_spread(input._packed):
        _refuse(Tensor.share_memory_, "Share the local part of .packed", input)
    _nodes.settled(input._packed).share_memory_()
    return input


@row(Tensor.data.__set__)
def _set_data(input: PackedTensor, value: Tensor) -> None:
    if type(value) is not type(input) or value._n != input._n:
        advice = (
            "Make a new tensor for another order"
            if type(value) is type(input)
            else f"Convert with {type(input).__name__}.from_dense"
        )
        raise TypeError(
            f"[data] expected a {type(input).__name__} of order {input._n}; got {describe(value)}. "
            f"{advice}"
        )
    # Torch's own setter makes an inference tensor of ``input`` where the value is one.
    passed(Tensor.data.__set__, input, value)
    input._packed = value._packed.detach()
    if "_member" in input.__dict__:
        input._member.packed = input._packed
    # It is a conjugate of another no longer.
    input.__dict__.pop("_conjugate_of", None)


def _collate(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Tensor:
    """A batch of samples for a data loader, whose workers have torch stack them in shared memory.

    Matrices of one type and order keep it; others are stacked as dense ones.
    """
    first = batch[0]
    alike = all(type(t) is type(first) and t.n == first.n for t in batch)
    convert = _nodes.to_packed if alike else as_dense
    stacked = collate_tensor_fn(list(map(convert, batch)), collate_fn_map=collate_fn_map)
    return _nodes.from_packed(type(first), stacked, first.n) if alike else stacked


# Torch documents the map, but not where it is. It belongs to what `import torch` imports.
with suppress(ImportError):
    from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map

    for _cls in (LowerTriangular, UpperTriangular, Symmetric, Hermitian):
        default_collate_fn_map[_cls] = _collate
