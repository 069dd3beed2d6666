"""torch.autograd's entry points: gradients that a user passes in get the type of their tensor.

Without this a dense gradient for a packed tensor would reach leaves as it is, unprojected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from packedtri import _nodes
from packedtri._recording import carries_autograd, is_traced
from packedtri._values import canonical_type, describe
from packedtri.dispatch import row
from packedtri.layout import HERMITIAN, MIRRORED
from packedtri.ops.attributes import passed
from packedtri.ops.dense import as_dense
from packedtri.tensor import PackedTensor


def _project(output: Tensor, grad: Tensor | None) -> Tensor | None:
    """The gradient of ``output`` as a tensor of its type: the Frobenius projection of ``grad``."""
    if not isinstance(output, PackedTensor):
        return as_dense(grad)
    if grad is None:
        if output.numel() != 1:
            return None
        grad = torch.ones_like(output.to_dense())
    if type(grad) is type(output):
        return grad
    dense = as_dense(grad)
    if dense.shape != output.shape:
        raise ValueError(f"[backward] got the gradient {describe(grad)} for {describe(output)}")
    return _projected(type(output), dense)


def _projected(cls: type[PackedTensor], dense: Tensor) -> PackedTensor:
    if cls.kind in MIRRORED:
        dense = (dense + (dense.mH if cls.kind == HERMITIAN else dense.mT)) / 2
    return cls.from_dense(dense)


def _as_tuple(tensors: Any) -> tuple[Any, ...]:
    """The arguments of torch.autograd's functions, of which one may stand alone."""
    return (tensors,) if isinstance(tensors, (Tensor, GradientEdge)) else tuple(tensors)


def _paired(outputs: Any, grads: Any) -> Iterator[tuple[Tensor, Tensor | None]]:
    outputs = _as_tuple(outputs)
    if grads is None or isinstance(grads, Tensor):
        grads = (grads,) * len(outputs)
    return zip(outputs, grads, strict=True)


def _project_all(outputs: Any, grads: Any) -> list[Tensor | None]:
    return [_project(*pair) for pair in _paired(outputs, grads)]


@row(torch.autograd.grad, how="passed")
def _grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> Sequence[Tensor | None]:
    outputs, inputs = _as_tuple(outputs), _as_tuple(inputs)
    if is_grads_batched:
        pairs = [_stored(*pair) for pair in _paired(outputs, grad_outputs)]
    else:
        projected = zip(outputs, _project_all(outputs, grad_outputs), strict=True)
        pairs = [pair for output, grad in projected for pair in _carriers(output, grad)]
    options = (retain_graph, create_graph, only_inputs, allow_unused, is_grads_batched)
    outputs, grads = [x for x, _ in pairs], [grad for _, grad in pairs]
    found = passed(torch.autograd.grad, outputs, inputs, grads, *options, materialize_grads)
    return tuple(map(_of_batch if is_grads_batched else _of_type, inputs, found))


def _of_type(input: Any, grad: Tensor | None) -> Tensor | None:
    """A gradient as a tensor of the type of ``input``.

    An autograd function of the user's may have given a type a dense one.
    """
    if grad is None or not isinstance(input, PackedTensor):
        return grad
    return _project(input, grad)


def _of_batch(input: Any, grad: Tensor | None) -> Tensor | None:
    """The same of a batch, whose derivatives are carried by what is inside the type."""
    if grad is None or not isinstance(input, PackedTensor):
        return grad
    if not isinstance(grad, PackedTensor):
        return _projected(type(input), grad)
    return _nodes.from_packed(type(grad), _nodes.to_packed(grad), grad.n)


def _stored(output: Tensor, grad: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The stored elements of ``output`` and their gradients, with a dimension more for a batch.

    Autograd can split such a batch of plain tensors, but not one of a type.
    """
    if not isinstance(output, PackedTensor) or grad is None:
        return output, as_dense(grad)
    if grad.shape[1:] != output.shape:
        raise ValueError(
            f"[torch.autograd.grad] expected a batch of gradients for {describe(output)}; "
            f"got {describe(grad)}"
        )
    return _nodes.to_packed(output), _nodes.project(type(output), grad, output.n)


def _carriers(output: Tensor, grad: Tensor | None) -> list[tuple[Tensor, Tensor | None]]:
    """The tensors that autograd knows ``output`` by, with their gradients.

    Under torch.func the tensor inside a type carries the derivatives. One that nested transforms
    have returned has a layer of each, with graphs that do not meet: at most one leads to an input.
    """
    if not isinstance(output, PackedTensor) or not carries_autograd(output._packed):
        return [(output, grad)]
    packed = None if grad is None else _nodes.project(type(output), grad, output.n)
    return [(x, packed) for x in _nodes.layers(output._packed) if x.requires_grad]


_requires_grad_getter: Any = vars(torch._C.TensorBase)["requires_grad"].__get__


@row(_requires_grad_getter, how="passed")
def _requires_grad(self: PackedTensor) -> bool:
    if carries_autograd(self._packed):
        return any(x.requires_grad for x in _nodes.layers(self._packed))
    return passed(_requires_grad_getter, self)


@row(torch.autograd.backward, how="passed")
def _backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> None:
    passed(torch.autograd.backward, tensors, _project_all(tensors, grad_tensors), *args, **kwargs)


@row(Tensor.backward, how="passed")
def _tensor_backward(
    self: Tensor, gradient: Tensor | None = None, *args: Any, **kwargs: Any
) -> None:
    passed(Tensor.backward, self, _project(self, gradient), *args, **kwargs)


_grad_getter: Any = vars(torch._C.TensorBase)["grad"].__get__
_grad_setter: Any = vars(torch._C.TensorBase)["grad"].__set__


@row(_grad_getter, how="passed")
def _get_grad(self: Tensor) -> Tensor | None:
    grad = passed(_grad_getter, self)
    if grad is None or type(grad) is type(self):
        return grad
    projected = _of_type(self, grad)
    # Who changes it in place means the gradient that is kept.
    passed(_grad_setter, self, projected)
    return projected


@row(_grad_setter, how="passed")
def _set_grad(self: Tensor, value: Tensor | None) -> None:
    if value is not None and canonical_type(value) is not canonical_type(self):
        raise TypeError(
            f"[grad] the gradient of {describe(self)} must be of its type; got {describe(value)}. "
            "Convert with from_dense, which keeps one triangle, or with to_dense"
        )
    passed(_grad_setter, self, value)


@row(Tensor.register_hook, how="passed")
def _register_hook(self: Tensor, hook: Callable[[Tensor], Tensor | None]) -> Any:
    @wraps(hook)
    def projecting(grad: Tensor) -> Tensor | None:
        result = hook(grad)
        return None if result is None else _project(grad, result)

    return passed(Tensor.register_hook, self, projecting)


@row(torch._VF._make_dual, how="passed")
def _make_dual(tensor: Tensor, tangent: Tensor, level: int) -> Tensor:
    if type(tangent) is not type(tensor):
        raise TypeError(
            f"[make_dual] the tangent of {describe(tensor)} must be of its type; "
            f"got {describe(tangent)}"
        )
    return passed(torch._VF._make_dual, tensor, tangent, level=level)


@row(torch._VF._unpack_dual, how="passed")
def _unpack_dual(tensor: Tensor, level: int) -> tuple[Tensor, Tensor | None]:
    if is_traced():
        # What is traced would take the tangent for a constant.
        raise NotImplementedError(
            "[torch.func.linearize] a function that is traced for its tangents cannot return "
            f"{describe(tensor)}. Return .packed or .to_dense()"
        )
    if not (isinstance(tensor, PackedTensor) and carries_autograd(tensor._packed)):
        return passed(torch._VF._unpack_dual, tensor, level=level)
    halves = torch._VF._unpack_dual(_nodes.settled(tensor._packed), level=level)
    primal, tangent = (None if x is None else tensor._wrap(x, tensor.n) for x in halves)
    return primal, tangent
