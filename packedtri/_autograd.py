"""Derivatives of ops that are linear in each of their tensor arguments.

torch.library.register_autograd would be the public way. It has no forward mode (torch.func.jvp
would return zero tangents, without a word) and raises under torch.func.grad. A Python kernel on the
'Autograd' key that applies a single-level autograd function works under eager mode, forward mode,
every torch.func transform, torch.compile and compiled autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

# Gradient of one tensor argument: (gradient of the result, all arguments, shape of this one). The
# argument itself is None there: an op that is linear in it does not need it.
Adjoint = Callable[[torch.Tensor, Sequence[Any], torch.Size], torch.Tensor]

# Registrations last as long as this object.
library = torch.library.Library("packedtri", "FRAGMENT")


def forward_mode() -> bool:
    """Whether forward-mode differentiation is under way."""
    return forward_ad._current_level >= 0


def _make_is_plain() -> Callable[..., bool]:
    # Names bound once: this question is asked before every product, however small.
    any_requires_grad = torch._C._any_requires_grad
    transform_level = torch._C._functorch.maybe_current_level
    is_grad_enabled, is_compiling = torch.is_grad_enabled, torch.compiler.is_compiling

    def is_plain(*tensors: torch.Tensor) -> bool:
        """Whether nothing records or transforms operations on these tensors."""
        return not (
            is_compiling()
            or forward_ad._current_level >= 0
            or transform_level() is not None
            or (is_grad_enabled() and any_requires_grad(*tensors))
        )

    return is_plain


is_plain = _make_is_plain()


def past_autograd(op: Any) -> Callable[..., torch.Tensor]:
    """``op`` without its Python kernel, to call where ``is_plain`` holds.

    Entering Python from the dispatcher costs more than a small product.
    """
    below_autograd, builtin = torch._C._AutoDispatchBelowAutograd, op._op

    def call(*args: Any) -> torch.Tensor:
        with below_autograd():
            return builtin(*args)

    return call


def register_multilinear(op: Any, *adjoints: Adjoint) -> None:
    """Give ``op`` its derivatives of every order, in reverse and in forward mode.

    Args:
        op: an OpOverload whose first ``len(adjoints)`` arguments are tensors. It is linear in each.
        adjoints: for each tensor argument the adjoint of that linear map. Written with ops that
            have derivatives themselves, they give the second and higher ones too. They may return
            more batch dimensions than the argument has; those are summed.
    """
    node = _make_function(op, adjoints)
    _register_kernel(op, node, len(adjoints))


def _make_function(op: Any, adjoints: Sequence[Adjoint]) -> Any:
    count = len(adjoints)

    def forward(ctx: Any, keyset: Any, *args: Any) -> torch.Tensor:
        needs = ctx.needs_input_grad[1 : 1 + count]
        # An argument is saved for the gradients of the others.
        ctx.save_for_backward(
            *(args[i] if any(needs[:i] + needs[i + 1 :]) else None for i in range(count))
        )
        if forward_mode():
            ctx.save_for_forward(*args[:count])
        ctx.shapes = [args[i].shape for i in range(count)]
        ctx.others = args[count:]
        ctx.set_materialize_grads(False)
        if torch._C._functorch.maybe_current_level() is None:
            return _below_autograd(op, keyset, args)
        # Autograd functions run without grad mode, and outer transforms would inherit that.
        with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
            return _below_autograd(op, keyset, args)

    def backward(ctx: Any, grad: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        grads: list[torch.Tensor | None] = [None] * (1 + count + len(ctx.others))
        if grad is not None:
            args = (*ctx.saved_tensors, *ctx.others)
            for i, adjoint in enumerate(adjoints):
                if ctx.needs_input_grad[1 + i]:
                    shape = ctx.shapes[i]
                    grads[1 + i] = _sum_to(adjoint(grad, args, shape), shape)
        return tuple(grads)

    def jvp(ctx: Any, _: None, *tangents: torch.Tensor | None) -> torch.Tensor | None:
        # The product rule.
        total = None
        args = (*ctx.saved_tensors, *ctx.others)
        for i in range(count):
            if (tangent := tangents[i]) is not None:
                term = op(*args[:i], tangent, *args[i + 1 :])
                total = term if total is None else total + term
        return total

    members = {f.__name__: staticmethod(f) for f in (forward, backward, jvp)}
    # Compiled autograd may share one compiled graph between calls that differ in nothing but the
    # values of tensors.
    members["_compiled_autograd_key"] = staticmethod(
        lambda ctx: (ctx._autograd_function_id, *ctx.others)
    )
    return type(f"{op._opname}_derivatives", (_SingleLevelFunction,), members)


def _sum_to(grad: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Sum over the batch dimensions that broadcasting added or stretched."""
    return grad if grad.shape == shape else grad.sum_to_size(shape)


def _below_autograd(op: Any, keyset: Any, args: tuple[Any, ...]) -> torch.Tensor:
    with torch._C._AutoDispatchBelowAutograd():
        return op.redispatch(keyset & torch._C._after_autograd_keyset, *args)


def _register_kernel(op: Any, node: Any, count: int) -> None:
    """Put ``node`` on the 'Autograd' key of ``op``; only here are torch's private names for it."""
    allow_single_level = torch._C._functorch.set_single_level_autograd_function_allowed
    single_level_allowed = torch._C._functorch.get_single_level_autograd_function_allowed
    any_requires_grad = torch._C._any_requires_grad

    def kernel(keyset: Any, *args: Any) -> torch.Tensor:
        backward_mode = torch.is_grad_enabled() and any_requires_grad(*args[:count])
        if not backward_mode and not forward_mode():
            return _below_autograd(op, keyset, args)
        # functorch forbids such functions, because users would meet them at a wrong level. On this
        # key the dispatcher has already brought us to the right one.
        before = single_level_allowed()
        allow_single_level(True)
        try:
            return node.apply(keyset, *args)
        finally:
            allow_single_level(before)

    library.impl(op._opname, kernel, "Autograd", with_keyset=True)
