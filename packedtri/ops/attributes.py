"""Attributes and in-place functions that torch's own code serves, through the aten table."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from numbers import Number, Real
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from packedtri import _nodes, _tracing, layout
from packedtri._dtensor import beside
from packedtri._recording import (
    carries_autograd,
    is_plain,
    is_transformed,
    is_untransformed,
    ops_are_watched,
)
from packedtri._sharing import check_source, may_overlap
from packedtri._values import REALS, describe
from packedtri.dispatch import Function, row
from packedtri.ops.aten import change_unwatched, check_alike, increment_version
from packedtri.ops.callers import caller
from packedtri.ops.dense import densify, functions
from packedtri.ops.dims import can_expand
from packedtri.ops.overrides import check_room, in_place, new_value
from packedtri.tensor import (
    LowerTriangular,
    PackedTensor,
    Symmetric,
    UpperTriangular,
    check_strided,
    rebuild,
)


def passed(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Let torch run ``function`` on the type itself."""
    with torch._C.DisableTorchFunctionSubclass():
        return function(*args, **kwargs)


_GETTERS = """
    _backward_hooks _base _cdata _grad _grad_fn _version device dtype grad grad_dtype grad_fn is_cpu
    is_cuda is_ipu is_leaf is_maia is_meta is_mkldnn is_mps is_mtia is_nested is_quantized
    is_sparse is_sparse_csr is_vulkan is_xla is_xpu itemsize layout name names ndim output_nr
    retains_grad shape volatile _post_accumulate_grad_hooks
"""
_METHODS = """
    __dir__ __format__ __hash__ __setstate__ _is_view dim
    element_size get_device has_names is_complex is_conj is_contiguous is_floating_point
    is_inference is_neg is_same_size is_signed ndimension nelement numel
    register_post_accumulate_grad_hook requires_grad_ retain_grad size stride storage_offset
    _reduce_ex_internal _is_zerotensor is_distributed
    module_load _clear_non_serializable_cached_data
"""
_FUNCTIONS = """
    is_complex is_conj is_floating_point is_inference is_neg is_same_size is_signed is_storage numel
    get_device is_distributed is_tensor result_type can_cast
    _has_compatible_shallow_copy_type
"""
# They act on the stored elements and keep the type, which is what optimizers need of them.
_IN_PLACE = """
    abs_ add_ addcdiv_ addcmul_ clamp_ clamp_max_ clamp_min_ clip_ div_ divide_ fill_ lerp_
    mul_ multiply_ neg_ negative_ sign_ sqrt_ sub_ subtract_ true_divide_ zero_
    __iadd__ __imul__ __isub__ __itruediv__ __idiv__
"""
# The types of which any stored elements will do.
_LINEAR = {LowerTriangular, UpperTriangular, Symmetric}
_LISTS = ("_foreach_", "_fused_", "_amp_foreach_")
# Operands of which at least one must have zeros where the result is to have them.
_OPERANDS: dict[Function, tuple[str, ...]] = {
    Tensor.lerp_: ("end",),
    Tensor.addcmul_: ("tensor1", "tensor2"),
    Tensor.addcdiv_: ("tensor1",),
}


def _pass(to_pass: list[Function]) -> None:
    for function in to_pass:
        row(function, how="passed")(partial(passed, function))


def _attribute(name: str, accessor: str) -> list[Function]:
    descriptor = getattr(Tensor, name, None)
    return [getattr(descriptor, accessor)] if hasattr(descriptor, accessor) else []


def _has_dimensions(value: Any) -> bool:
    return isinstance(value, PackedTensor) or (isinstance(value, Tensor) and value.dim() > 0)


def _in_place(function: Function, self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """In place on a packed type torch runs it; a dense one takes packed arguments as dense."""
    if _changes_at_once(function, self, args, kwargs):
        return self
    others = [a for a in (*args, *kwargs.values()) if _has_dimensions(a)]
    for other in others:
        if isinstance(other, PackedTensor):
            check_source(other)
    if not isinstance(self, PackedTensor):
        return densify(function, self, *args, **kwargs)
    # Stored elements correspond between equal types only; numbers reach the other half too.
    if any(type(other) is not type(self) for other in others) or _fills(
        function, self, args, kwargs
    ):
        compute = new_value(function)
        if compute is not None:
            return in_place(function, compute, self, *args, **kwargs)
    if others:
        args = tuple([_expanded(function, a, self) for a in args])
        kwargs = {name: _expanded(function, a, self) for name, a in kwargs.items()}
    tensors = [a for a in (self, *args, *kwargs.values()) if isinstance(a, Tensor)]
    types = [t for t in tensors if isinstance(t, PackedTensor)]
    transformed = any(carries_autograd(t._packed) for t in types)
    if not transformed and is_plain(*tensors) and not ops_are_watched():
        return change_unwatched(function, self, args, kwargs)
    # The aten op that torch calls would raise by its own name.
    check_alike(function, self, (*args, *kwargs.values()))
    copied = function is Tensor.copy_ and len(types) == 2
    if transformed or (_nodes.recorded(*tensors) and not copied):
        return _written_back(function, self, args, kwargs, transformed)
    return passed(function, self, *args, **kwargs)


def _changes_at_once(
    function: Function, t: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Change ``t`` in place if that is no more than the same change of its stored elements.

    So it is where optimizers do it, several times for each parameter and step.
    """
    cls = type(t)
    if cls not in _LINEAR or torch.is_grad_enabled() or ops_are_watched() or not is_untransformed():
        return False
    packed: Tensor = t._packed
    if not _is_ordinary(packed) or packed.is_inference():
        return False
    elements = []
    for x in args:
        if isinstance(x, Tensor):
            if type(x) is not cls or not _is_ordinary(x._packed):
                return False
            check_source(x)
            x = x._packed
            if x.shape != packed.shape:
                return False
        elements.append(x)
    if any(isinstance(x, Tensor) for x in kwargs.values()):
        return False
    function(packed, *elements, **kwargs)
    increment_version(t)  # type: ignore[arg-type]
    return True


def _is_ordinary(packed: Tensor) -> bool:
    """Whether the tensor inside a type is a plain one that no transform has wrapped."""
    return type(packed) is Tensor and not is_transformed(packed)


def _fills(
    function: Function, self: PackedTensor, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool:
    """Whether operands that are single numbers change structural zeros of a triangle."""
    names = _OPERANDS.get(function)
    if names is None or self.kind in layout.MIRRORED:
        return False
    operands = [*args[: len(names)]] + [kwargs[n] for n in names if n in kwargs]
    return all(isinstance(x, Tensor) and not _has_dimensions(x) for x in operands)


def _copy(function: Function, self: Tensor, other: Any, non_blocking: bool = False) -> Tensor:
    """A dense source must fit the structure, as in an assignment: a checkpoint of a dense twin."""
    if _fills_zeros(self, other):
        # In a tensor without dimensions it reaches the other half too.
        dtype = self.dtype if isinstance(other, (Real, *REALS)) else torch.complex128
        number = torch.as_tensor(other, dtype=dtype, device=self.device)
        other = beside(self._packed, number)
    dense = isinstance(other, Tensor) and not isinstance(other, PackedTensor)
    if not isinstance(self, PackedTensor) or not dense:
        return _in_place(function, self, other, non_blocking)
    check_strided("copy_", other)
    if not can_expand(other.shape, self.shape):
        raise ValueError(
            f"[copy_] expected a tensor that broadcasts to {tuple(self.shape)}; "
            f"got {describe(other)}"
        )
    self[...] = other
    return self


def _fills_zeros(t: Tensor, value: Any) -> bool:
    """Whether a value is a number that a triangle cannot have everywhere."""
    triangular = isinstance(t, PackedTensor) and t.kind not in layout.MIRRORED
    return triangular and isinstance(value, (Number, *REALS)) and value != 0


def _each(function: Function, *args: Any, **kwargs: Any) -> Any:
    """A function of lists, whose ops get the types' elements without what these were made from."""
    if torch.is_grad_enabled() and not _tracing.is_compiling():
        for t in tree_leaves((args, kwargs)):
            if isinstance(t, PackedTensor):
                check_source(t)
    return passed(function, *args, **kwargs)


def _each_in_place(function: Function, self: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
    """A change in place of a list, which torch would not tell views of the types.

    Where it is recorded, the new stored elements are computed and copied to the types, of one after
    another, since a list may name the same elements twice.
    """
    lists = [a for a in (self, *args, *kwargs.values()) if _is_list(a)]
    tensors = [t for values in lists for t in values if isinstance(t, Tensor)]
    packed = any(isinstance(t, PackedTensor) for t in self)
    # Torch says what is wrong with lists of other lengths.
    if not packed or not _nodes.recorded(*tensors) or any(len(a) != len(self) for a in lists):
        return _each(function, self, *args, **kwargs)
    if function in (torch._foreach_copy_, torch._foreach_zero_):
        # Torch has no function, or no derivative, that returns new elements.
        method = getattr(Tensor, function.__name__.removeprefix("_foreach_"))
        for t, *others in zip(*lists, strict=True):
            method(t, *others)
        return self
    compute = getattr(torch, function.__name__[:-1])
    for i, t in enumerate(self):
        if isinstance(t, PackedTensor):
            check_alike(function, t, tuple(a[i] for a in lists))
    for i, t in enumerate(self):
        of_one = [a[i : i + 1] if _is_list(a) else a for a in args]
        named = {key: a[i : i + 1] if _is_list(a) else a for key, a in kwargs.items()}
        # What derivatives save must not be what is overwritten, now or by the next one.
        own, of_one, named = tree_map(_copied, ([t], of_one, named))
        (new,) = compute(own, *of_one, **named)
        t.copy_(_nodes.from_packed(type(t), new, t.n) if isinstance(t, PackedTensor) else new)
    return self


def _is_list(operand: Any) -> bool:
    return isinstance(operand, (list, tuple))


def _elements(value: Any) -> Any:
    return _nodes.to_elements(value) if isinstance(value, PackedTensor) else value


def _copied(value: Any) -> Any:
    return _elements(value).clone() if isinstance(value, Tensor) else value


@row(Tensor.__reduce_ex__, how="passed")
def _reduce_ex(self: PackedTensor, proto: Any) -> tuple[Any, ...]:
    """How a type is stored: as its packed tensor. Torch's way loads to devices by name only."""
    torch.utils.hooks.warn_if_has_hooks(self)
    state = torch._utils._get_obj_state(self)
    packed = state.pop("_packed")
    arguments = (type(self), packed, state.pop("_n"), self.requires_grad)
    return torch._tensor._rebuild_from_type_v2, (rebuild, type(self), arguments, state)


@row(Tensor.__deepcopy__, how="passed")
def _deepcopy(self: PackedTensor, memo: dict[int, Any]) -> Tensor:
    """As torch has it, of a parameter without its gradient and what else belongs to it.

    Torch itself would clone the elements for a type over the clone, whose attributes, these
    elements among them, it then exchanges for deep copies.
    """
    if id(self) in memo:
        return memo[id(self)]
    if not self.is_leaf:
        return passed(Tensor.__deepcopy__, self, memo)  # Torch says that there is none.
    if isinstance(self, torch.nn.Parameter):
        memo[id(self)] = torch.nn.Parameter(self.detach().clone(), self.requires_grad)
        return memo[id(self)]
    state = self.__getstate__()
    with torch.no_grad():
        packed = deepcopy(state.pop("_packed"), memo)
        copied = memo[id(self)] = rebuild(type(self), packed, state.pop("_n"), self.requires_grad)
        copied.grad = deepcopy(self.grad, memo)
        copied.__dict__.update(deepcopy(state, memo))
    return copied


def _random(function: Function, self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Random elements in place, unless they are the first step of what has no others for types."""
    frame = caller("torch.nn.init", "_no_grad_trunc_normal_")
    if frame is not None and "where" in frame.f_code.co_names and isinstance(self, PackedTensor):
        raise NotImplementedError(
            f"[torch.nn.init.trunc_normal_] chooses elements of dense matrices; got "
            f"{describe(self)}. Call it with .packed, the stored elements"
        )
    return _in_place(function, self, *args, **kwargs)


def _written_back(
    function: Function, self: PackedTensor, args: Any, kwargs: Any, transformed: bool
) -> Tensor:
    """Change a copy of the stored elements, a plain tensor with derivatives of all kinds.

    Torch's own derivatives of the functions would call others on the type.
    """
    named = {name: _elements(value) for name, value in kwargs.items()}
    changed = function(_elements(self).clone(), *map(_elements, args), **named)
    if not transformed:
        return self.copy_(_nodes.from_packed(type(self), changed, self.n))
    _nodes.settled(self._packed).copy_(changed)
    return self


def _expanded(function: Function, value: Any, t: PackedTensor) -> Any:
    """An operand of the type and order of ``t`` with the batch dimensions of ``t``."""
    if type(value) is not type(t) or value._packed.shape == t._packed.shape or value.n != t.n:
        return value
    if not can_expand(value._packed.shape, t._packed.shape):
        check_room(function, t, value)
        return value
    # An op in place might read what it has changed already. What is compiled has no memory yet.
    if not _tracing.is_compiling() and may_overlap(value._packed, t._packed):
        value = value.clone()
    return value.expand(t.shape)


for _name in _GETTERS.split():
    _pass(_attribute(_name, "__get__"))
for _name in ("grad", "requires_grad", "names", "_backward_hooks", "_post_accumulate_grad_hooks"):
    _pass(_attribute(_name, "__set__") + _attribute(_name, "__delete__"))
_pass(functions(_METHODS, Tensor))
_pass(functions(_FUNCTIONS, torch))
for _name in dir(torch):
    _function = getattr(torch, _name)
    if _name.startswith("_foreach_") and _name.endswith("_"):
        row(_function, how="passed")(partial(_each_in_place, _function))
    elif _name.startswith(_LISTS) and callable(_function):
        row(_function, how="passed")(partial(_each, _function))
for _function in functions(_IN_PLACE, Tensor):
    row(_function, how="passed")(partial(_in_place, _function))
row(Tensor.copy_, how="passed")(partial(_copy, Tensor.copy_))
for _function in functions("normal_ uniform_", Tensor):
    row(_function, how="passed")(partial(_random, _function))
_pass(functions("normal_ uniform_ constant_ kaiming_uniform_", torch.nn.init))
