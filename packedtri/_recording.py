"""Who records or transforms ops: backward and forward mode, torch.func, torch.export, tracers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad

from packedtri import _tracing


def forward_mode() -> bool:
    """Whether forward-mode differentiation is under way."""
    return forward_ad._current_level >= 0


def nested_forward_mode() -> AbstractContextManager[None]:
    """A context for the jvp of an autograd function, in which an outer forward mode sees its work.

    Torch runs it with forward mode off, for all levels at once. What it computes is a derivative
    that an outer level may differentiate again. Nothing in it may have a tangent of its own level:
    see ``primal``.
    """
    return forward_ad._set_fwd_grad_enabled(True)


def primal(x: torch.Tensor) -> torch.Tensor:
    """A tensor without its tangent of the innermost forward mode, with those of the outer ones."""
    return forward_ad.unpack_dual(x).primal


# What autograd itself wraps gradients in where it computes many at once.
is_batched = torch._C._functorch.is_legacy_batchedtensor
_is_functorch_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
_ABOVE_AUTOGRAD = torch._C.DispatchKey.PreDispatch


def is_transformed(x: torch.Tensor) -> bool:
    """Whether a transform wraps a tensor, also one that has ended, which autograd does not ask."""
    return _is_functorch_wrapped(x) or is_batched(x)


def carries_autograd(inner: torch.Tensor) -> bool:
    """Whether the tensor inside a type takes part in a torch.func transform, or export, itself."""
    # Dynamo cannot trace the question; it never meets such tensors.
    if _tracing.is_compiling():
        return is_exporting() and hasattr(inner, "_made_in_export")
    return _is_functorch_wrapped(inner)


def is_exporting() -> bool:
    """Whether torch.export records ops, which it does above autograd.

    The program is differentiated later by the ops that were recorded. Nodes of autograd are not
    among these, while the detached tensors that they work on would be.
    """
    exporting = torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling()
    return exporting and torch._C._dispatch_tls_is_dispatch_key_included(_ABOVE_AUTOGRAD)


def to_be_wrapped(packed: torch.Tensor) -> torch.Tensor:
    """The tensor inside a type that the exported program makes: it carries the derivatives itself.

    Types that the program is given, parameters among them, it reads as torch has it.
    """
    # The program may be given tensors that require gradients where those of now do not.
    inner = packed if torch.is_grad_enabled() else packed.detach()
    inner._made_in_export = True  # type: ignore[attr-defined]
    return inner


def values_visible(x: torch.Tensor) -> bool:
    """Whether a decision may depend on values: not while they are traced or transformed."""
    return has_values(x) and not (
        _tracing.is_compiling()
        or torch._C._functorch.maybe_current_level() is not None
        or is_traced()
    )


def has_values(x: torch.Tensor) -> bool:
    """Whether a tensor holds values at all, on whatever device; others have only a shape.

    torch.compile traces with such tensors too, but ends its graph where a value is asked for.
    """
    return _tracing.is_compiling() or not (x.is_meta or isinstance(x, FakeTensor))


def is_traced() -> bool:
    """Whether torch records ops in a graph, as torch.func.linearize has it do."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY) is not None


def ops_are_watched() -> bool:
    """Whether modes of torch's see each op below autograd."""
    return torch._C._len_torch_dispatch_stack() > 0


def _make_is_untransformed() -> Callable[[], bool]:
    # Names bound once: this question is asked before every product, however small.
    transform_level = torch._C._functorch.maybe_current_level
    is_compiling = _tracing.is_compiling

    def is_untransformed() -> bool:
        """Whether nobody but backward mode may record or transform operations."""
        return not (
            is_compiling() or forward_ad._current_level >= 0 or transform_level() is not None
        )

    return is_untransformed


is_untransformed = _make_is_untransformed()


def _make_is_recorded() -> Callable[..., bool]:
    is_grad_enabled, any_requires_grad = torch.is_grad_enabled, torch._C._any_requires_grad

    def is_recorded(*tensors: torch.Tensor) -> bool:
        """Whether backward mode records operations on some of these tensors, types among them."""
        return is_grad_enabled() and any_requires_grad(*tensors)

    return is_recorded


is_recorded = _make_is_recorded()


def is_plain(*tensors: torch.Tensor) -> bool:
    """Whether nothing records or transforms operations on these tensors."""
    return is_untransformed() and not is_recorded(*tensors)


def is_only_computed(grad: torch.Tensor) -> bool:
    """Whether what is made of a gradient is neither recorded nor transformed."""
    return (
        is_plain(grad)
        and not torch.is_grad_enabled()
        and type(grad) is torch.Tensor
        and not is_batched(grad)
    )


def _make_is_alone() -> Callable[[Sequence[torch.Tensor]], bool]:
    is_overridden = torch._C._is_torch_function_mode_enabled
    is_included = torch._C._dispatch_tls_is_dispatch_key_included
    have_overrides = torch._C._has_torch_function

    def is_alone(elements: Sequence[torch.Tensor]) -> bool:
        """Whether ``bare`` forms of ops may be tried on tensors, which are of no packed type.

        Backward mode may record them. Bare forms do not find who sees ops before the dispatcher
        does: modes and tensors that override functions, and what records above autograd.
        """
        return is_untransformed() and not (
            is_overridden() or is_included(_ABOVE_AUTOGRAD) or have_overrides(elements)
        )

    return is_alone


is_alone = _make_is_alone()
