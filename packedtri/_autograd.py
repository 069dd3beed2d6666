"""Derivatives of ops on plain packed tensors: linear ones, and those that need their result.

torch.library.register_autograd would be the public way. It has no forward mode (torch.func.jvp
would return zero tangents, without a word) and raises under torch.func.grad. A Python kernel on the
'Autograd' key that applies a single-level autograd function works under eager mode, forward mode,
every torch.func transform, torch.compile and compiled autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch.autograd.function import _SingleLevelFunction

from packedtri._dtensor import by_parts, cuts_of_arguments, cutting, parts_rules
from packedtri._recording import (
    forward_mode,
    is_alone,
    is_only_computed,
    is_recorded,
    nested_forward_mode,
    primal,
)

# Gradient of one tensor argument: (gradient of the result, all arguments, shape of this one). The
# argument itself is None there: an op that is linear in it does not need it.
Adjoint = Callable[[torch.Tensor, Sequence[Any], torch.Size], torch.Tensor]


class Call(NamedTuple):
    """An earlier call of an op, as its derivatives see it.

    Attributes:
        args: all arguments; a tensor that was not saved is None.
        result: the first tensor that the call returned, None where it was not saved.
        shapes: of the tensor arguments.
        needs: which of these need a gradient; all of them in forward mode.
    """

    args: tuple[Any, ...]
    result: torch.Tensor | None
    shapes: list[torch.Size]
    needs: tuple[bool, ...]


# Gradients of the tensor arguments, where needed, from the gradient of the result.
Pullback = Callable[[torch.Tensor, Call], Sequence[torch.Tensor | None]]
# The same, or None where it is not the way.
Attempt = Callable[[torch.Tensor, Call], "Sequence[torch.Tensor | None] | None"]
# The tangent of the result from those of the tensor arguments; None stands for zero.
Pushforward = Callable[[Sequence[torch.Tensor | None], Call], torch.Tensor | None]

_is_autocast_enabled = torch._C._is_any_autocast_enabled
_is_excluded = torch._C._dispatch_tls_is_dispatch_key_excluded
# Registrations last as long as this object.
library = torch.library.Library("packedtri", "FRAGMENT")


# What else than autograd takes part in ops: what casts or watches them, and tensors that are more
# than their elements, or less.
_TAKE_PART = """
    AutocastCPU AutocastCUDA Python Batched FuncTorchBatched FuncTorchGradWrapper
    FuncTorchDynamicLayerFrontMode Meta Tracer
"""


class NotBareError(RuntimeError):
    """Somebody else takes part in an op that was called bare."""


def bare(op: Any) -> Callable[..., torch.Tensor]:
    """``op``, which has no derivatives, to be tried where ``is_alone`` holds.

    Returns:
        The op. It raises ``NotBareError`` where anybody else than autograd would take part in it.
        To ask for each of them before would cost a third of a small product, and the dispatcher
        finds them anyway.
    """

    def refuse(*args: Any) -> torch.Tensor:
        raise NotBareError(f"[{op}] has no rules for who takes part here; {op._opname[1:]} has")

    library.impl(op._opname, torch.library.fallthrough_kernel, "Autograd")
    for key in _TAKE_PART.split():
        library.impl(op._opname, refuse, key)
    builtin: Callable[..., torch.Tensor] = op._op
    return builtin


class Rules(NamedTuple):
    """How an op is differentiated backward.

    Attributes:
        pullback: its gradients.
        saved: from all arguments, and which tensors among them need a gradient, those tensors that
            the pullback needs, or None in their places.
        save_result: whether it needs the result.
        alone: a quicker way to the gradients, where nothing records or transforms what it does.
    """

    pullback: Pullback
    saved: Callable[[Sequence[Any], Sequence[bool]], list[Any]]
    save_result: bool
    alone: Attempt | None = None


#: Of the ops that have derivatives.
rules: dict[Any, Rules] = {}
#: The bare forms of ops that have one.
bare_forms: dict[Any, Callable[..., Any]] = {}
# The autograd functions that ops have on the 'Autograd' key.
_derivatives: dict[Any, Any] = {}


def _is_below_autograd() -> bool:
    return _is_excluded(torch._C.DispatchKey.AutogradFunctionality)


def quick(op: Any, count: int = 1, form: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """``op``, whose first ``count`` arguments are tensors, by the shortest way that there is.

    Where nothing records it that is its bare form. Where backward mode alone does it is the
    function that records, which the dispatcher would come back to Python for.

    Args:
        op: an OpOverload, for which this is called once.
        count: how many tensors it takes.
        form: its bare form, for arguments that fit. By default the op whose name has an underscore
            in front.
    """
    bare_form = form or bare(getattr(torch.ops.packedtri, f"_{op._opname}").default)
    bare_forms[op] = bare_form

    def call(*args: Any) -> Any:
        tensors = args[:count]
        if not is_alone(tensors):
            return in_general(*args)
        try:
            if not is_recorded(*tensors):
                return bare_form(*args)
            if op in _derivatives:
                return _derivatives[op].apply(None, *args)
        except NotBareError:
            pass
        return in_general(*args)

    def in_general(*args: Any) -> Any:
        # Ops without derivatives have no kernel that looks for parts. Inference mode, and who works
        # below autograd, passes by those that do. Casts would come first there, for which it goes
        # their way.
        if (
            parts_rules
            and not torch.compiler.is_compiling()
            and (op not in rules or torch.is_inference_mode_enabled() or _is_below_autograd())
        ):
            found = NotImplemented if _is_autocast_enabled() else _by_parts(op, args)
            if found is not NotImplemented:
                return found
        return op(*args)

    return call


def register_multilinear(op: Any, *adjoints: Adjoint, alone: Attempt | None = None) -> None:
    """Give ``op`` its derivatives of every order, in reverse and in forward mode.

    Args:
        op: an OpOverload whose first ``len(adjoints)`` arguments are tensors. It is linear in each.
        adjoints: for each tensor argument the adjoint of that linear map. Written with ops that
            have derivatives themselves, they give the second and higher ones too. They may return
            more batch dimensions than the argument has; those are summed.
        alone: a quicker way to the gradients, where nothing records or transforms what it does.
    """
    count = len(adjoints)

    def pullback(grad: torch.Tensor, call: Call) -> Sequence[torch.Tensor | None]:
        wanted = zip(adjoints, call.shapes, call.needs, strict=True)
        return [f(grad, call.args, shape) if needed else None for f, shape, needed in wanted]

    def pushforward(tangents: Sequence[torch.Tensor | None], call: Call) -> torch.Tensor | None:
        # The product rule.
        total, args = None, call.args
        for i, tangent in enumerate(tangents):
            if tangent is not None:
                term = op(*args[:i], tangent, *args[i + 1 :])
                total = term if total is None else total + term
        return total

    def saved(args: Sequence[Any], needs: Sequence[bool]) -> list[Any]:
        # An argument is saved for the gradients of the others.
        wanted = sum(needs)
        return [args[i] if wanted > needs[i] else None for i in range(count)]

    _register_kernel(op, Rules(pullback, saved, False, alone), pushforward, count)


def register_implicit(
    op: Any, uses: Sequence[bool], pullback: Pullback, pushforward: Pushforward
) -> None:
    """Give ``op`` derivatives that are expressed by its result, as those of an inverse are.

    Args:
        op: an OpOverload whose first ``len(uses)`` arguments are tensors. Of several results the
            first is differentiable.
        uses: for each of these, whether the derivatives need it beside the result.
        pullback: the gradients of the tensor arguments. Written with ops that have derivatives
            themselves, they give the second and higher ones too. They may have more batch
            dimensions than the argument; those are summed.
        pushforward: the tangent of the result.
    """

    count = len(uses)

    def saved(args: Sequence[Any], needs: Sequence[bool]) -> list[Any]:
        return [arg if used else None for arg, used in zip(args, uses, strict=False)]

    found = Rules(_without_autocast(pullback), saved, True)
    _register_kernel(op, found, _without_autocast(pushforward), count)


_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.AutocastCUDA
)


def outside_autocast() -> AbstractContextManager[None]:
    """A context with autocast off: products in it would lose the precision that solves need."""
    return torch._C._ExcludeDispatchKeyGuard(_AUTOCAST)


def _by_parts(op: Any, args: tuple[Any, ...]) -> Any:
    # Where an op casts, its arguments have been cast already.
    with outside_autocast():
        return by_parts(op, args)


def _without_autocast(f: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        with outside_autocast():
            return f(*args)

    return call


def register_vmap_over_batch(op: Any) -> None:
    """Give ``op`` its rule for torch.vmap: a mapped dimension is one more of the batch.

    Its first argument alone is a tensor, whose first dimensions are the batch.
    """

    def batched(
        info: Any, in_dims: Sequence[Any], x: torch.Tensor, *rest: Any
    ) -> tuple[torch.Tensor, int]:
        return op(x.movedim(in_dims[0], 0), *rest), 0

    torch.library.register_vmap(op, batched, lib=library)


def _make_function(op: Any, of_op: Rules, pushforward: Pushforward, count: int) -> Any:
    saved, save_result = of_op.saved, of_op.save_result

    def forward(ctx: Any, keyset: Any, *args: Any) -> Any:
        result = _run(op, keyset, args)
        first = result[0] if isinstance(result, tuple) else result
        ctx.save_for_backward(
            first if save_result else None, *saved(args, ctx.needs_input_grad[1 : 1 + count])
        )
        if forward_mode():
            ctx.save_for_forward(first if save_result else None, *args[:count])
        ctx.others_returned = ()
        if isinstance(result, tuple):
            ctx.mark_non_differentiable(*result[1:])
            ctx.others_returned = (None,) * (len(result) - 1)
        ctx.shapes = [args[i].shape for i in range(count)]
        ctx.cuts = cuts_of_arguments(op, args) if parts_rules else {}
        ctx.others = args[count:]
        ctx.set_materialize_grads(False)
        return result

    def call(ctx: Any, saved: Sequence[Any], needs: tuple[bool, ...]) -> Call:
        result, *tensors = saved
        return Call((*tensors, *ctx.others), result, ctx.shapes, needs)

    def backward(ctx: Any, grad: torch.Tensor | None, *_: Any) -> tuple[torch.Tensor | None, ...]:
        grads: list[torch.Tensor | None] = [None] * (1 + count + len(ctx.others))
        if grad is not None:
            earlier = call(ctx, ctx.saved_tensors, ctx.needs_input_grad[1 : 1 + count])
            with cutting(next(iter(ctx.cuts.values()), None)):
                found = gradients(of_op, grad, earlier)
            for i, (g, shape) in enumerate(zip(found, ctx.shapes, strict=True)):
                g = None if g is None else sum_to(g, shape)
                grads[1 + i] = ctx.cuts[i].align(g) if g is not None and i in ctx.cuts else g
        return tuple(grads)

    def jvp(ctx: Any, _: None, *tangents: torch.Tensor | None) -> Any:
        with nested_forward_mode():
            primals = [None if x is None else primal(x) for x in ctx.saved_tensors]
            tangent = pushforward(tangents[:count], call(ctx, primals, (True,) * count))
        return (tangent, *ctx.others_returned) if ctx.others_returned else tangent

    members: dict[str, Any] = {f.__name__: staticmethod(f) for f in (forward, backward, jvp)}
    # Compiled autograd may share one compiled graph between calls that differ in nothing but the
    # values of tensors.
    members["_compiled_autograd_key"] = staticmethod(
        lambda ctx: (ctx._autograd_function_id, *ctx.others)
    )
    return type(f"{op._opname}_derivatives", (_SingleLevelFunction,), members)


def gradients(of_op: Rules, grad: torch.Tensor, call: Call) -> Sequence[torch.Tensor | None]:
    """The gradients of an op by its rules, for its backward function."""
    if not is_only_computed(grad):
        return of_op.pullback(grad, call)
    found = None if of_op.alone is None else of_op.alone(grad, call)
    if found is not None:
        return found
    # Python kernels, which would be idle, cost as much as small ops do.
    with torch._C._AutoDispatchBelowAutograd():
        return of_op.pullback(grad, call)


def _run(op: Any, keyset: Any, args: tuple[Any, ...]) -> Any:
    """Run ``op`` where the dispatcher came from, or its bare form where it is passed by."""
    if keyset is None:
        return bare_forms[op](*args)
    if torch._C._functorch.maybe_current_level() is None:
        return _below_autograd(op, keyset, args)
    # Autograd functions run without grad mode, and outer transforms would inherit that.
    with torch.enable_grad(), nested_forward_mode():
        return _below_autograd(op, keyset, args)


def sum_to(grad: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Sum over the batch dimensions that broadcasting added or stretched."""
    return grad if grad.shape == shape else grad.sum_to_size(shape)


def _below_autograd(op: Any, keyset: Any, args: tuple[Any, ...]) -> torch.Tensor:
    with torch._C._AutoDispatchBelowAutograd():
        found = _by_parts(op, args) if parts_rules else NotImplemented
        if found is not NotImplemented:
            return found
        return op.redispatch(keyset & torch._C._after_autograd_keyset, *args)


def _register_kernel(op: Any, of_op: Rules, pushforward: Pushforward, count: int) -> None:
    """Give ``op`` its 'Autograd' key; only here are torch's private names for it."""
    rules[op] = of_op
    node = _derivatives[op] = _make_function(op, of_op, pushforward, count)
    allow_single_level = torch._C._functorch.set_single_level_autograd_function_allowed
    single_level_allowed = torch._C._functorch.get_single_level_autograd_function_allowed

    def kernel(keyset: Any, *args: Any) -> torch.Tensor:
        if not is_recorded(*args[:count]) and not forward_mode():
            return _below_autograd(op, keyset, args)
        if torch._C._functorch.maybe_current_level() is None:
            return node.apply(keyset, *args)
        # functorch forbids such functions, because users would meet them at a wrong level. On this
        # key the dispatcher has already brought us to the right one.
        before = single_level_allowed()
        allow_single_level(True)
        try:
            return node.apply(keyset, *args)
        finally:
            allow_single_level(before)

    library.impl(op._opname, kernel, "Autograd", with_keyset=True)
