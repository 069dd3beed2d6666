"""Collectives of ``torch.distributed``, which send and receive the stored elements."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from packedtri._aten_table import aten_row
from packedtri._dtensor import is_spread
from packedtri._sharing import check_writable
from packedtri._values import describe, function_name
from packedtri.dispatch import Function, row
from packedtri.ops.aten import bump_version, increment_version, inner, writable
from packedtri.tensor import PackedTensor

# What each of them writes; it reads its other tensors. The last ones have two names in torch.
_WRITTEN = {
    "isend": "",
    "send": "",
    "irecv": "tensor",
    "recv": "tensor",
    "broadcast": "tensor",
    "all_reduce": "tensor",
    "all_reduce_coalesced": "tensors",
    "reduce": "tensor",
    "all_gather": "tensor_list",
    "all_gather_coalesced": "output_tensor_lists",
    "gather": "gather_list",
    "scatter": "tensor",
    "reduce_scatter": "output",
    "all_to_all": "output_tensor_list",
    "all_to_all_single": "output",
    "all_gather_into_tensor": "output_tensor",
    "all_gather_single": "output_tensor",
    "reduce_scatter_tensor": "output",
    "reduce_scatter_single": "output",
}


# What versions of torch call that ask types in few functions. All but send write their first
# argument.
_BELOW = {
    "broadcast_": "broadcast",
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce_coalesced",
    "reduce_": "reduce",
    "allgather_": "all_gather",
    "allgather_coalesced_": "all_gather_coalesced",
    "_allgather_base_": "all_gather_into_tensor",
    "gather_": "gather",
    "scatter_": "scatter",
    "reduce_scatter_": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter_tensor",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all_single",
    "send": "send",
    "recv_": "recv",
    "recv_any_source_": "recv",
}


def _collective(function: Function, written: str, *args: Any, **kwargs: Any) -> Any:
    bound = inspect.signature(function).bind(*args, **kwargs)

    def run() -> Any:
        return function(*bound.args, **bound.kwargs)

    return _on_elements(function_name(function), run, bound.arguments, written)


def _collective_below(op: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    name, given = _BELOW[op._opname], dict(enumerate(args))

    def run() -> Any:
        return op(*given.values(), **kwargs)

    return _on_elements(f"torch.distributed.{name}", run, given, None if name == "send" else 0)


def _on_elements(name: str, run: Callable[[], Any], given: dict[Any, Any], written: Any) -> Any:
    """Run a function whose arguments are ``given`` on the elements of those that are packed.

    Args:
        run: calls it with what ``given`` has then.
        written: the argument that it writes.
    """
    tensors = [v for v in given.values() if any(isinstance(t, Tensor) for t in tree_leaves(v))]
    if name.endswith("_coalesced"):
        # Independent tensors at once.
        for together in zip(*tensors, strict=False):
            _check_alike(name, tree_leaves(together))
    else:
        _check_alike(name, tree_leaves(tensors))
    if name.endswith("all_to_all_single"):
        _check_batches(name, tree_leaves(tensors))
    for t in tree_leaves(tensors):
        if isinstance(t, PackedTensor) and is_spread(t._packed):
            raise ValueError(
                f"[{name}] {describe(t)} has parts on several processes. Redistribute its .packed, "
                "or pass the part of this one, .packed.to_local()"
            )
    changed = [t for t in tree_leaves(given.get(written)) if isinstance(t, PackedTensor)]
    for t in changed:
        _check_writable(name, t)
    for k, v in given.items():
        given[k] = tree_map(_writable if k == written else _readable, v)
    try:
        return run()
    finally:
        bump_version(*[t._packed for t in changed])
        for t in changed:
            increment_version(t)


def _writable(x: Any) -> Any:
    return writable(x) if isinstance(x, PackedTensor) else x


def _readable(x: Any) -> Any:
    return inner(x).contiguous() if isinstance(x, PackedTensor) else x


def _check_alike(name: str, tensors: Iterable[Any]) -> None:
    """Raise where the elements of one tensor mean something else in another."""
    tensors = [t for t in tensors if isinstance(t, Tensor)]
    first = next((t for t in tensors if isinstance(t, PackedTensor)), None)
    for t in tensors:
        if first is not None and (type(t) is not type(first) or t.n != first.n):
            raise ValueError(
                f"[{name}] expected tensors of one type and order; got {describe(first)} and "
                f"{describe(t)}. The stored elements are sent as they are: pass tensors of one "
                "type, or the .packed of each"
            )


def _check_batches(name: str, tensors: Iterable[Any]) -> None:
    for t in tensors:
        if t.dim() == 2:
            raise ValueError(
                f"[{name}] is cut along the first dimension, which must be one of a batch; got "
                f"{describe(t)}"
            )


def _check_writable(name: str, t: PackedTensor) -> None:
    check_writable(t)
    # Backends of torch would write where the storage does not reach.
    if t._packed.is_conj() or t._packed.is_neg() or not t._packed.is_contiguous():
        raise ValueError(
            f"[{name}] cannot write to {describe(t)}, whose elements are a lazy conjugate or not "
            "contiguous. Pass a .clone()"
        )


if torch.distributed.is_available():
    for _name, _written in _WRITTEN.items():
        _function = getattr(torch.distributed, _name, None)
        if _function is not None:
            row(_function)(partial(_collective, _function, _written))
    aten_row(*[getattr(torch.ops.c10d, name).default for name in _BELOW])(_collective_below)
