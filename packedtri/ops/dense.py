"""Conversion of packed arguments to dense, differentiably, so that torch computes.

Gradients come back to the packed type through the conversion. What such a function returns is a
dense tensor of its own, also where torch would give a view. Nothing may write to what was
converted: the change would be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import EllipsisType, NoneType
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from packedtri import _dense_guard, _tracing
from packedtri._recording import is_recorded
from packedtri._values import REALS, canonical_type, describe, function_name, is_packed
from packedtri.dispatch import Function
from packedtri.tensor import PackedTensor


def densify(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Call ``function`` with every packed argument, also inside lists, converted to dense.

    Raises:
        NotImplementedError: when the function is to write, or wrote, into a packed argument.
    """
    if "out" in kwargs and any(map(is_packed, tree_leaves(kwargs["out"]))):
        raise NotImplementedError(
            f"[{function_name(function)}] cannot write a dense result into packed storage, out=; "
            "take the result and pack it with from_dense"
        )
    # By the id: an operand that is given twice is unpacked once.
    converted: dict[int, tuple[PackedTensor, Tensor, int]] = {}
    watched = not _tracing.is_compiling()

    def unpacked(t: PackedTensor) -> Tensor:
        if not watched:
            return t.to_dense()
        if id(t) not in converted:
            _dense_guard.tell(function, t)
            x = _versioned(t)
            converted[id(t)] = t, x, x._version
        return converted[id(t)][1]

    result = function(
        *[_converted(x, unpacked) for x in args],
        **{name: _converted(x, unpacked) for name, x in kwargs.items()},
    )
    for value, x, version in converted.values():
        if x._version != version:
            raise NotImplementedError(
                f"[{function_name(function)}] changed its argument {describe(value)} in place, "
                "which works on a dense copy only. Convert with .to_dense() first, or use the "
                "version that returns a new tensor"
            )
    return result


# Most arguments hold nothing, which tree_map takes long to see.
_LEAVES = (Tensor, *REALS, str, torch.dtype, torch.Size, NoneType, slice, EllipsisType)


def _converted(value: Any, unpacked: Callable[[PackedTensor], Tensor]) -> Any:
    """An argument with what ``unpacked`` makes of the packed types in it."""
    if isinstance(value, PackedTensor):
        return unpacked(value)
    if isinstance(value, _LEAVES):
        return value
    if type(value) in (tuple, list):
        return type(value)([_converted(x, unpacked) for x in value])
    return tree_map_only(PackedTensor, unpacked, value)


def _versioned(t: PackedTensor) -> Tensor:
    """``t`` as a dense tensor that counts its changes, which those of inference mode do not."""
    if not torch.is_inference_mode_enabled():
        return t.to_dense()
    with torch.inference_mode(False), torch.no_grad():
        return t.to_dense()


def as_dense(x: Any) -> Any:
    """A packed type as the dense matrix that it stands for; anything else as it is."""
    return x.to_dense() if isinstance(x, PackedTensor) else x


def stored_of(x: Any) -> Any:
    """The stored elements of a packed type, which tell of it sooner; anything else as it is."""
    return x._packed if isinstance(x, PackedTensor) else x


def shape_of(x: Tensor) -> tuple[int, ...]:
    """Its shape, without asking a packed type, which takes longer than to look at its elements."""
    return (*x._packed.shape[:-1], x._n, x._n) if isinstance(x, PackedTensor) else x.shape


def check_tensors(name: str, argument: str, values: Iterable[Any]) -> None:
    """Raise where one of several values, which are given for an argument, is no tensor."""
    for value in values:
        if not isinstance(value, Tensor):
            raise TypeError(f"[{name}] expected tensors for {argument}; got {describe(value)}")


def is_complex_number(value: Any) -> bool:
    """Whether a value is a complex number, also as a tensor of no dimensions."""
    if isinstance(value, Tensor):
        return value.dim() == 0 and value.is_complex()
    return isinstance(value, complex)


def takes(out: Any, shape: tuple[int, ...], like: Tensor) -> bool:
    """Whether a kernel can write a dense result of that shape there, of elements as in ``like``."""
    if type(out) is not Tensor or out.layout is not torch.strided or is_recorded(out):
        return False
    if out.dtype is not like.dtype or out.device != like.device or out.is_conj() or out.is_neg():
        return False
    if out.is_inference() and not torch.is_inference_mode_enabled():
        return False
    return out.is_contiguous() and out.shape == shape


def write_out(name: str, result: Any, out: Any, casts: bool = False) -> Any:
    """Put a result, or each of several, into what the caller gave for it.

    Args:
        name: of the function.
        result: what it computed.
        out: what the caller gave.
        casts: whether ``out`` may have any dtype that the result can be cast to.

    Raises:
        TypeError: when ``out`` cannot hold a result of that type.
        ValueError: when it has another shape, and elements, or is a type of another dtype.
        RuntimeError: when it is dense and of another dtype, or autograd would have to record it.
    """
    if isinstance(result, tuple):
        if not isinstance(out, (tuple, list)) or len(out) != len(result):
            raise TypeError(f"[{name}] expected {len(result)} tensors for out; got {describe(out)}")
        pairs = zip(result, out, strict=True)
        return type(result)([write_out(name, *pair, casts) for pair in pairs])
    packed = isinstance(out, PackedTensor)
    if not isinstance(out, Tensor) or (packed and type(out) is not type(result)):
        expected = canonical_type(result).__name__
        expected = "dense Tensor" if expected == "Tensor" else expected
        raise TypeError(f"[{name}] expected a {expected} for out; got {describe(out)}")
    fits = out.dtype == result.dtype or (casts and torch.can_cast(result.dtype, out.dtype))
    if not packed and not fits:
        wanted = "a dtype that {} can be cast to" if casts else "dtype {}"
        raise RuntimeError(
            f"[{name}] expected out of {wanted.format(result.dtype)}; got {out.dtype}"
        )
    if not packed and out.numel() == 0:
        out.resize_(result.shape)
    wrong = out.device != result.device or not fits
    if out.shape != result.shape or wrong:
        raise ValueError(
            f"[{name}] expected out of shape {tuple(result.shape)} and {result.dtype} on "
            f"{result.device}; got {describe(out)} of {out.dtype} on {out.device}"
        )
    if torch.is_grad_enabled() and (out.requires_grad or result.requires_grad):
        raise RuntimeError(
            f"[{name}] out= does not support automatic differentiation, but an argument requires "
            "grad. Leave out= away, or use torch.no_grad()"
        )
    return out.copy_(result if packed else as_dense(result))


def functions(names: str, *homes: Any) -> list[Function]:
    """The functions of these names in torch, torch.Tensor or other homes, wherever they exist.

    Of some that it has removed torch keeps the name, to say so.
    """
    found = []
    for home in homes or (torch, Tensor):
        # A module has some of Python's special methods too, its own.
        own = [n for n in names.split() if home is Tensor or not n.startswith("__")]
        found += [f for name in own if callable(f := getattr(home, name, None)) and not _removed(f)]
    return found


def _removed(function: Function) -> bool:
    code = getattr(function, "__code__", None)
    places = (code.co_filename, *code.co_names) if code else ()
    return any("_linalg_utils" in place for place in places)
