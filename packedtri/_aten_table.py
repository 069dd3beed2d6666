"""The table of aten ops that may reach packed types below autograd, and how they run there."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from packedtri import _tracing
from packedtri._values import describe, is_packed

Handler = Callable[..., Any]

_aten: dict[Any, Handler] = {}
# Those of them that compute nothing.
_aten_views: set[Any] = set()


def aten_row(*ops: Any, computes: bool = True) -> Callable[[Handler], Handler]:
    """Decorator: let aten overloads reach packed types, through a handler(op, args, kwargs).

    Args:
        ops: the overloads.
        computes: whether the handler calls ops. Otherwise it gives the tensor inside to another
            type, and what ops need is not set up for it: see ``layers_for_ops``.
    """

    def add(handler: Handler) -> Handler:
        _aten.update(dict.fromkeys(ops, handler))
        if not computes:
            _aten_views.update(ops)
        return handler

    return add


def is_reached(op: Any) -> bool:
    """Whether an overload may reach packed types."""
    return op in _aten


def aten_ops() -> tuple[Any, ...]:
    """The aten overloads that packed types accept below autograd."""
    return tuple(_aten)


def call_aten(op: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Run an aten op on packed types; the whole of ``__torch_dispatch__``.

    Whatever is not in the table raises. To densify here would be silently wrong: in-place ops would
    write to a temporary, and gradients would lose the type.
    """
    handler = _aten.get(op)
    if handler is None:
        if isinstance(op, torch._ops.OpOverload):
            # In inference mode functions that torch composes of others reach the types whole.
            composed = op.decompose(*args, **kwargs)
            if composed is not NotImplemented:
                return composed
        raise NotImplementedError(
            f"[{op}] reached packed storage below the functions that packedtri defines, with "
            f"({_given(args, kwargs)}). Convert with .to_dense() first"
            + (_TRANSFORMS if _transformed() else "")
        )
    if _tracing.is_compiling():
        for value in tree_leaves((args, kwargs)):
            if is_packed(value):
                _tracing.check_read(value._packed)
    with nullcontext() if op in _aten_views else layers_for_ops():
        try:
            return handler(op, args, kwargs)
        except NotImplementedError as error:
            if not _transformed():
                raise
            text = str(error)
            if not text.startswith("["):  # An error of torch's, from the tensors inside.
                text = f"[{op}] cannot take ({_given(args, kwargs)}): {text}"
            raise NotImplementedError(text + _TRANSFORMS) from None


def _given(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    return ", ".join(describe(v) for v in (*args, *kwargs.values()))


def layers_for_ops() -> AbstractContextManager[Any]:
    """A context for ops on the tensors inside of types, below autograd."""
    included = _included()
    passed = _LAYERS_OF_BATCHES if included.has(_VMAP) else _LAYERS
    return torch._C._ForceDispatchKeyGuard(included, _excluded() - passed)


_TRANSFORMS = (
    ". Transforms such as torch.func.grad or torch.vmap hide the type: take those of "
    "packedtri.func, or apply torch's to the packed vector and build the type inside, as in "
    "torch.func.grad(lambda p: f(LowerTriangular(p))). Of a type that was built inside, torch.vmap "
    "returns .packed"
)


def _transformed() -> bool:
    """Whether a torch.func transform is under way.

    Torch has left its levels when it gets to the aten handlers; only the stack still shows them.
    """
    frame = inspect.currentframe()
    modules = ("torch._functorch.eager_transforms", "torch._functorch.vmap")
    while frame is not None:
        if frame.f_globals.get("__name__") in modules:
            return True
        frame = frame.f_back
    return False


def _keys(names: str) -> Any:
    # Torch's enumeration does not have all of them in Python.
    first, *others = map(torch._C._dispatch_key_parse, names.split())
    return reduce(torch._C.DispatchKeySet.add, others, torch._C.DispatchKeySet(first))


# Torch has passed the kernels of lazy conjugates and negatives when it gets to the aten handlers.
# The tensor inside a type may be lazy where the type is not, and without them its bare memory would
# be read. The same holds for the batches in which autograd computes many gradients at once. What
# they wrap carries the derivatives then, not the type, so that autograd must see the ops as well.
_LAYERS = _keys("Conjugate Negative")
_LAYERS_OF_BATCHES = _LAYERS | _keys(
    "Batched ADInplaceOrView AutogradFunctionality AutogradOther AutogradNestedTensor"
)
_VMAP = torch._C._dispatch_key_parse("VmapMode")
_included = torch._C._dispatch_tls_local_include_set
_excluded = torch._C._dispatch_tls_local_exclude_set
