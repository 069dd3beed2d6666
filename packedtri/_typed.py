"""Ops on packed types that backward mode alone records: one node instead of one for each operand.

In general a type is led to its packed tensor by a node, the op is a node on plain tensors, and
another one leads its result back to a type: see ``_nodes``. Each is a function in Python, on the
way there and on the way back, and for small matrices they take most of the time. Here one node has
the types for inputs and outputs. Its gradients are those of the op; what higher derivatives are
taken of goes the general way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import _SingleLevelFunction

from packedtri import _nodes, layout
from packedtri._autograd import Call, NotBareError, bare_forms, gradients, rules, sum_to
from packedtri._bands import clear_imaginary_diagonal_, scale_off_diagonal
from packedtri._recording import is_alone, is_recorded
from packedtri._sharing import check_source
from packedtri.dispatch import hide_members_from_dynamo

_hooks_of_saved_tensors = torch._C._autograd._top_saved_tensors_default_hooks

# (type of the result, or None for a plain one; order; operands; elements of these; other arguments)
Recorder = Callable[[Any, int, Sequence[Tensor], Sequence[Tensor], Sequence[Any]], "Tensor | None"]


def of_elements(cls: Any, elements: Tensor, n: int) -> Tensor:
    """The type over elements that an op has just made, or these where it is None."""
    if cls is None:
        return elements
    if cls.kind == layout.HERMITIAN and elements.is_complex():
        clear_imaginary_diagonal_(elements, n)
    typed: Tensor = cls._wrap(elements, n)
    return typed


@cache
def recorder(op: Any) -> Recorder:
    """``op`` on types, recorded by one node.

    Args:
        op: an OpOverload with derivatives and a bare form. Where its derivatives need its result,
            none is made a type of.

    Returns:
        A function of the type of the result, or None for a plain one, the order, the operands, the
        elements of these, which are themselves where they are plain, and the other arguments of the
        op. It is to be called where ``is_recorded`` holds and ``is_alone`` does. It returns
        None where hooks look at what is saved, which know plain tensors, and raises
        ``NotBareError`` where somebody else takes part.
    """

    def record(
        cls: Any,
        n: int,
        operands: Sequence[Tensor],
        elements: Sequence[Tensor],
        others: Sequence[Any],
    ) -> Tensor | None:
        if _hooks_of_saved_tensors(True) is not None:
            return None
        for t in operands:
            members = t.__dict__
            if "_source" in members or "_family" in members:
                check_source(t)  # type: ignore[arg-type]
        result: Tensor = _node(op).apply(cls, n, elements, others, *operands)
        return result

    return record


def attempt(
    op: Any,
    cls: Any,
    n: int,
    operands: Sequence[Tensor],
    elements: Sequence[Tensor],
    *others: Any,
) -> Any:
    """The result of an op on types, or None where it goes the general way.

    By one node where backward mode records it, else by the bare form; arguments as of a recorder.
    """
    if not is_alone(elements):
        return None
    try:
        if is_recorded(*operands):
            return recorder(op)(cls, n, operands, elements, others)
        for t in operands:
            if "_family" in t.__dict__ and torch.is_grad_enabled():
                check_source(t)  # type: ignore[arg-type]
        return of_elements(cls, bare_forms[op](*elements, *others), n)
    except NotBareError:
        return None


@cache
def _node(op: Any) -> Any:
    """The autograd function, made when the op, its bare form and its rules are all there."""
    compute = bare_forms[op]
    of_op = rules[op]
    saved_for, save_result = of_op.saved, of_op.save_result

    def forward(
        ctx: Any,
        cls: Any,
        n: int,
        elements: Sequence[Tensor],
        others: Sequence[Any],
        *operands: Tensor,
    ) -> Tensor:
        result: Tensor = compute(*elements, *others)
        wanted = saved_for(elements, ctx.needs_input_grad[4:])
        # A type stands beside its elements: higher derivatives are taken through it, and elements
        # know of changes that it does not.
        through: list[Tensor | None] = []
        types: list[type | None] = []
        for t, x, saved in zip(operands, elements, wanted, strict=True):
            through.append(None if saved is None or saved is t else t)
            types.append(None if x is t else type(t))
        ctx.save_for_backward(result if save_result else None, *wanted, *through)
        ctx.told = cls, n, others, types, [x.shape for x in elements]
        ctx.set_materialize_grads(False)
        return of_elements(cls, result, n)

    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        cls, n, others, types, shapes = ctx.told
        if grad is None:
            return (None,) * (4 + len(types))
        result, *tensors = ctx.saved_tensors
        elements, through = tensors[: len(types)], tensors[len(types) :]
        if torch.is_grad_enabled():
            elements = [
                x if t is None else _nodes.to_packed(t)
                for x, t in zip(elements, through, strict=True)
            ]
        if cls is not None:
            grad = _nodes.project(cls, grad, n)
        call = Call((*elements, *others), result, shapes, ctx.needs_input_grad[4:])
        grads: list[Tensor | None] = [None] * 4
        for of, g, shape in zip(types, gradients(of_op, grad, call), shapes, strict=True):
            grads.append(None if g is None else _of_operand(of, sum_to(g, shape), n))
        return tuple(grads)

    def key(ctx: Any) -> Any:
        # Compiled autograd may share one compiled graph between calls that differ in nothing but
        # the values of tensors. It compares numbers.
        cls, n, others, types, _ = ctx.told
        kinds = [-1 if x is None else x.kind for x in (cls, *types)]
        return (ctx._autograd_function_id, n, *others, *kinds)

    members: dict[str, Any] = {
        "forward": forward,
        "backward": backward,
        "_compiled_autograd_key": key,
    }
    # Users see it as a grad_fn: PackedMmBackward.
    node = type(
        "Packed" + "".join(map(str.capitalize, op._opname.split("_"))),
        (_SingleLevelFunction,),
        {name: staticmethod(f) for name, f in members.items()},
    )
    hide_members_from_dynamo(node)
    return node


def _of_operand(cls: Any, grad: Tensor, n: int) -> Tensor:
    """The gradient of an operand, which may be of a type, from that of its elements."""
    if cls is None:
        return grad
    if cls.kind in layout.MIRRORED:
        grad = scale_off_diagonal(grad, 0.5, n, cls.kind)
    typed: Tensor = _nodes.from_packed(cls, grad, n)
    return typed
