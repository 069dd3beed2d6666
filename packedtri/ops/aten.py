"""The aten ops that may reach packed types below autograd, all on the stored elements.

Torch's own code calls them: views, the engine that accumulates gradients, optimizers, clipping,
gradient scaling. An op on several packed tensors needs them to be of the same type and order.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.autograd import graph

from packedtri._aten_table import aten_row, layers_for_ops
from packedtri._bands import clear_imaginary_diagonal_, real_diagonal
from packedtri._nodes import settled, transposed_elements
from packedtri._recording import (
    carries_autograd,
    forward_mode,
    is_batched,
    is_plain,
    values_visible,
)
from packedtri._sharing import check_writable, inherit
from packedtri._values import describe, function_name
from packedtri.dispatch import Function
from packedtri.layout import DTYPES, HERMITIAN
from packedtri.ops.callers import caller, check_not_distributed
from packedtri.ops.dense import is_complex_number
from packedtri.tensor import PackedTensor

aten = torch.ops.aten
Args = tuple[Any, ...]
Kwargs = Mapping[str, Any]


def _overloads(names: str) -> Iterator[Any]:
    for name in names.split():
        packet, _, overload = name.partition(".")
        if hasattr(aten, packet) and (overload or "default") in getattr(aten, packet).overloads():
            yield getattr(getattr(aten, packet), overload or "default")


def inner(value: Any) -> Any:
    """The stored elements to read, of a value or of those in a list."""
    if isinstance(value, PackedTensor):
        return real_diagonal(value._packed, value.kind, value._n)
    if isinstance(value, (list, tuple)):
        return type(value)(map(inner, value))
    return value


def check_alike(op: Any, first: PackedTensor, args: Args) -> None:
    """Stored elements correspond only between equal types and orders, and with single numbers."""
    if first.kind == HERMITIAN:
        _check_stays_hermitian(op, first, args)
    for other in args:
        alike = (
            other.kind == first.kind and other._packed.shape == first._packed.shape
            if isinstance(other, PackedTensor)
            else not isinstance(other, Tensor) or other.dim() == 0
        )
        if not alike:
            raise NotImplementedError(
                f"[{function_name(op)}] on packed storage needs operands of one type and shape, "
                f"or numbers; got {describe(first)} and {describe(other)}. "
                "Convert with from_dense or to_dense"
            )


def _check_stays_hermitian(op: Any, t: PackedTensor, args: Args) -> None:
    name = op.__name__.partition(".")[0].removeprefix("_foreach_").removesuffix("_")
    complex_root = name in ("sqrt", "rsqrt", "pow") and t._packed.is_complex()
    if complex_root or any(map(is_complex_number, args)):
        raise NotImplementedError(
            f"[{function_name(op)}] the result is not Hermitian and has no place in {describe(t)}. "
            "Convert with .to_dense()"
        )


def writable(t: PackedTensor) -> Tensor:
    """The stored elements to change in place, of a Hermitian with a real diagonal first."""
    packed = settled(t._packed)
    if t.kind == HERMITIAN and packed.is_complex():
        clear_imaginary_diagonal_(packed, t._n)
    return packed


def is_written_directly(t: PackedTensor) -> bool:
    """Whether the stored elements of ``t`` may be changed by ops on the tensor inside.

    That is where nobody records, transforms or watches the change.
    """
    packed = t._packed
    return (
        type(packed) is Tensor
        and is_plain(t)
        and values_visible(packed)
        and packed.is_contiguous()
        and not (packed.is_conj() or packed.is_neg() or clones_before_changes())
    )


def written_directly(t: PackedTensor) -> None:
    """To be called after such a change."""
    bump_version(t._packed)
    increment_version(t)


def bump_version(*packed: Tensor) -> None:
    """Tell autograd that stored elements changed.

    In-place ops bump the version of the type. The tensor inside is what backward formulas saved,
    and nothing else would bump its version: they would silently use the new values.
    """
    changed = [x for x in map(settled, packed) if not x.is_inference()]
    torch.autograd.graph.increment_version(changed)


_NO_MODE = nullcontext()


def clones_before_changes() -> bool:
    """Whether ``cloned_first`` does anything."""
    return graph._allow_mutation_on_saved_tensors_enabled


def cloned_first() -> AbstractContextManager[Any]:
    """Let ``torch.autograd.graph.allow_mutation_on_saved_tensors`` see changes made in it.

    That mode clones what an op is about to overwrite, if backward formulas saved it. It has seen
    the type by now, while they saved the tensor inside, and torch hides the mode from what it
    calls: only the stack still shows it.
    """
    if not clones_before_changes():
        return _NO_MODE
    frame = inspect.currentframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, graph._CloneArgBeforeMutateMode):
            return caller
        frame = frame.f_back
    return _NO_MODE


def increment_version(t: PackedTensor) -> None:
    """Tell autograd that ``t`` changed, by an in-place op on the tensor inside."""
    if not t._packed.is_inference():
        torch.autograd.graph.increment_version(t)


@aten_row(*_overloads("detach lift_fresh"), computes=False)
def _detach(op: Any, args: Args, kwargs: Kwargs) -> PackedTensor:
    t = args[0]
    return _as_made(t, t._wrap(t._packed, t._n))


@aten_row(*_overloads("detach_"))
def _detach_in_place(op: Any, args: Args, kwargs: Kwargs) -> PackedTensor:
    # Torch's own code detaches; where it is left out, in inference mode, nothing is recorded.
    return args[0]


def view_below(t: PackedTensor, cls: type[PackedTensor], packed: Tensor) -> PackedTensor:
    """A differentiable view of ``t``, which remembers what ``t`` was made from."""
    view = cls._wrap(packed, t._n)
    inherit(view, t)
    return _as_made(t, view) if packed is t._packed else view


def _as_made(t: PackedTensor, view: PackedTensor) -> PackedTensor:
    """``view``, which has the tensor inside ``t``, as the conjugate that ``t`` is."""
    if "_conjugate_of" in t.__dict__:
        view._conjugate_of = t._conjugate_of
    return view


@aten_row(*_overloads("alias"), computes=False)
def _alias(op: Any, args: Args, kwargs: Kwargs) -> PackedTensor:
    t = args[0]
    return view_below(t, type(t), t._packed)


@aten_row(
    *_overloads("""
    set_ set_.source_Storage set_.source_Storage_storage_offset set_.source_Tensor
    set_.source_Tensor_storage_offset
    """)
)
def _set(op: Any, args: Args, kwargs: Kwargs) -> NoReturn:
    """Torch lets no type override ``set_``."""
    t = next(x for x in (*args, *kwargs.values()) if isinstance(x, PackedTensor))
    raise NotImplementedError(
        f"[torch.Tensor.set_] is not defined for {describe(t)}: its storage is that of .packed. "
        "Assign to .data another matrix of the type, or use copy_"
    )


@aten_row(*_overloads("view _unsafe_view expand"))
def _same_shape(op: Any, args: Args, kwargs: Kwargs) -> PackedTensor:
    t, size = args[:2]
    shape = (*t._packed.shape[:-1], t._n, t._n)
    unwrapped = op is aten.expand.default and _is_unwrapped()
    if unwrapped and is_batched(t._packed) and tuple(size[1:]) == shape:
        return t._wrap(_without_batch(t._packed, size[0]), t._n)
    if len(size) == len(shape) and all(s in (-1, d) for s, d in zip(size, shape, strict=True)):
        return view_below(t, type(t), t._packed)
    # A transform of torch.func that is given a type for its result comes here too.
    wrapped = unwrapped or carries_autograd(t._packed)
    if wrapped or len(size) < 2 or any(s not in (-1, t._n) for s in size[-2:]):
        check_not_distributed(t)
        raise NotImplementedError(
            f"[{op}] packed storage has no strided view of shape {tuple(size)}; got {describe(t)}. "
            "Use .to_dense(), or .packed for the stored elements"
        )
    size = (*size[:-2], t._packed.shape[-1])
    with shared_version():
        if op is not aten.expand.default and (_in_backward() or forward_mode()):
            # Gradients and tangents need not lie in memory as what they belong to.
            return view_below(t, type(t), t._packed.reshape(size))
        return view_below(t, type(t), op(t._packed, size))


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


def _is_unwrapped() -> bool:
    """Whether vmap, and not the function under it, calls for a tensor with its mapped dimension."""
    modules = ("torch._vmap_internals", "torch._functorch.vmap")
    return any(caller(module, "_unwrap_batched") for module in modules)


def _without_batch(packed: Tensor, size: int) -> Tensor:
    """The batch of gradients that autograd computed at once, with its dimension in front.

    Autograd asks for it by ``expand``, because it does not see the batch inside the type.
    """
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    return torch._remove_batch_dim(packed, level, size, 0)


@aten_row(*_overloads("t transpose.int"), computes=False)
def _transpose(op: Any, args: Args, kwargs: Kwargs) -> PackedTensor:
    t, rank = args[0], args[0]._packed.dim() + 1
    dims = {d % rank for d in args[1:]}
    if not dims or dims == {rank - 2, rank - 1}:
        if t.kind != HERMITIAN:
            return view_below(t, t.transposed, t._packed)
        with layers_for_ops(), shared_version():
            return view_below(t, t.transposed, transposed_elements(t))
    if max(dims) >= rank - 2:
        raise NotImplementedError(f"[{op}] mixes batch dimensions and those of packed matrices")
    with layers_for_ops(), shared_version():
        packed = op(t._packed, *(sorted(dims) if len(dims) == 2 else (0, 0)))
    return view_below(t, type(t), packed)


@aten_row(*_overloads("_conj"))
def _conj(op: Any, args: Args, kwargs: Kwargs) -> PackedTensor:
    t = args[0]
    with shared_version():
        view = view_below(t, type(t), t._packed.conj())
    view._conjugate_of = t._packed
    return view


def shared_version() -> Any:
    """Views made in it share the version counter, which torch leaves out at this level."""
    return torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.ADInplaceOrView, False)


@aten_row(
    *_overloads("""
    clone _to_copy contiguous zeros_like empty_like neg abs sqrt sign sgn conj_physical
    _conj_physical mul.Tensor mul.Scalar div.Tensor div.Scalar lift_fresh_copy positive
    """)
)
def _pointwise(op: Any, args: Args, kwargs: Kwargs) -> Tensor:
    first = next(a for a in args if isinstance(a, PackedTensor))
    check_alike(op, first, (*args, *kwargs.values()))
    kwargs = {k: v for k, v in kwargs.items() if k != "memory_format"}
    if op is aten._to_copy.default and kwargs.get("dtype") not in (None, *DTYPES):
        # torch.tensor and its like come here, which cannot be overridden.
        return op(torch.ops.packedtri.unpack(first._packed, first._n, first.kind), **kwargs)
    return wrapped(op, first, op(*map(inner, args), **kwargs))


@aten_row(*_overloads("isnan"))
def _isnan(op: Any, args: Args, kwargs: Kwargs) -> Tensor:
    """Dense, since no type has elements that are true or false. Autograd looks for nan so."""
    t = args[0]
    return op(torch.ops.packedtri.unpack(t._packed, t._n, t.kind))


def wrapped(op: Any, t: PackedTensor, packed: Tensor) -> PackedTensor:
    """A result as ``t`` is, where it has a dtype that types know."""
    if packed.dtype not in DTYPES:
        raise NotImplementedError(
            f"[{function_name(op)}] no packed type has elements of {packed.dtype}; got "
            f"{describe(t)} of {t.dtype}. Convert with .to_dense()"
        )
    return t._wrap(packed, t._n)


@aten_row(*_overloads("add.Tensor sub.Tensor maximum minimum"))
def _sum(op: Any, args: Args, kwargs: Kwargs) -> Tensor:
    # A number would change the structural zeros.
    if not all(isinstance(a, PackedTensor) for a in args[:2]):
        given = " and ".join(map(describe, args[:2]))
        raise NotImplementedError(f"[{op}] keeps a packed type only between two; got {given}")
    return _pointwise(op, args, kwargs)


@aten_row(
    *_overloads("""
    abs_ add_.Tensor add_.Scalar addcdiv_ addcmul_ clamp_ clamp_.Tensor clamp_max_ clamp_min_ copy_
    div_.Tensor div_.Scalar fill_.Scalar fill_.Tensor lerp_.Scalar lerp_.Tensor mul_.Tensor
    mul_.Scalar neg_ normal_ sign_ sqrt_ sub_.Tensor sub_.Scalar uniform_ zero_ zero
    """)
)
def _in_place(op: Any, args: Args, kwargs: Kwargs) -> PackedTensor:
    t = args[0]
    if not isinstance(t, PackedTensor):
        raise NotImplementedError(f"[{op}] cannot write packed elements into {describe(t)}")
    with cloned_first():
        _change(op, t, args[1:], kwargs)
    bump_version(t._packed)
    return t


def _change(op: Any, t: PackedTensor, args: Args, kwargs: Kwargs) -> None:
    """Run an op in place on the stored elements of ``t``."""
    check_alike(op, t, (*args, *kwargs.values()))
    check_writable(t, *args)
    op(writable(t), *map(inner, args), **{k: inner(v) for k, v in kwargs.items()})


def change_unwatched(function: Function, t: PackedTensor, args: Args, kwargs: Kwargs) -> Any:
    """Run a function of torch's in place on the stored elements of ``t``, where nobody watches it.

    That is what torch would get to by way of its dispatcher, twice as slow.
    """
    _change(function, t, args, kwargs)
    increment_version(t)
    return t


@aten_row(*_overloads("mul.out maximum.out minimum.out"))
def _out(op: Any, args: Args, kwargs: Kwargs) -> PackedTensor:
    out = kwargs["out"]
    if not isinstance(out, PackedTensor):
        raise NotImplementedError(f"[{op}] cannot write packed elements into {describe(out)}")
    check_alike(op, out, args)
    with cloned_first():
        op(*map(inner, args), out=out._packed)
    bump_version(out._packed)
    return out


@aten_row(*_overloads("new_zeros new_empty new_full new_empty_strided"))
def _new(op: Any, args: Args, kwargs: Kwargs) -> Tensor:
    t, size = args[0], tuple(args[1])
    known = kwargs.get("dtype") in (None, *DTYPES) and op is not aten.new_full.default
    if size != (*t._packed.shape[:-1], t._n, t._n) or not known:
        return op(t._packed, *args[1:], **kwargs)
    if op is aten.new_empty_strided.default:
        op, args = aten.new_empty.default, args[:2]
    return t._wrap(op(t._packed, t._packed.shape, **kwargs), t._n)


@aten_row(*_overloads("_new_zeros_with_same_feature_meta"))
def _new_tangent(op: Any, args: Args, kwargs: Kwargs) -> PackedTensor:
    """The tangent of ``base``, where a view of it gets one first."""
    tangent, base = args
    packed = tangent._packed.new_zeros(base._packed.shape)
    return base._wrap(packed, base._n)


@aten_row(*_overloads("to.dtype_layout"))
def _to(op: Any, args: Args, kwargs: Kwargs) -> Tensor:
    # A sum with a zero that has no storage, which stands for a missing tangent, learns its shape
    # and dtype from dense operands without storage, and then copies the other summand.
    t = args[0]
    if kwargs.get("device") == torch.device("meta"):
        return torch.empty(t.shape, dtype=t.dtype, device="meta")
    with torch._C.DisableTorchFunctionSubclass():
        return op.decompose(*args, **kwargs)


@aten_row(*_overloads("is_same_size _has_same_storage_numel"))
def _same_size(op: Any, args: Args, kwargs: Kwargs) -> bool:
    return args[0].shape == args[1].shape


@aten_row(*_overloads("sym_stride.int"), computes=False)
def _sym_stride(op: Any, args: Args, kwargs: Kwargs) -> Any:
    """What a dense tensor of the shape would have, as of every type; graphs of views ask for it."""
    t, dim = args
    return math.prod(t.shape[dim % t.dim() + 1 :])


@aten_row(*_overloads("equal"))
def _equal(op: Any, args: Args, kwargs: Kwargs) -> bool:
    check_alike(op, args[0], args[1:])
    return op(*map(inner, args))


@aten_row(*_overloads("_unpack_dual"))
def _unpack_dual(op: Any, args: Args, kwargs: Kwargs) -> Any:
    return op(*args, **kwargs)
