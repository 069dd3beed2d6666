"""A guard against conversions to dense matrices that nobody asked for."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Literal

from torch import Tensor

from packedtri._values import describe, function_name

# What converts by its name.
_CONVERSIONS = frozenset((Tensor.__array__, Tensor.tolist))
_action: ContextVar[str | None] = ContextVar("packedtri_dense_guard", default=None)


def dense_guard(action: Literal["warn", "raise"]) -> AbstractContextManager[None]:
    """A context that tells where functions without a packed form convert packed types to dense.

    That is where memory and speed are lost without a word. Conversions that the code asks for pass,
    as by ``to_dense()`` or ``numpy.asarray``, and so do functions with packed forms whose results
    are dense, such as ``S @ X``. It holds for the thread that enters it, the innermost one of
    several, and not for what torch.compile compiles.

    Args:
        action: "warn" shows a ``UserWarning`` that points to the line, "raise" raises.

    Raises:
        ValueError: when ``action`` is neither.
        RuntimeError: inside of the context, where a packed type would be converted.

    Example:
        >>> import torch, packedtri
        >>> S = packedtri.Symmetric.eye(2)
        >>> with packedtri.dense_guard("raise"):
        ...     _ = S.add_diagonal(0.1) @ torch.ones(2, 3)
        ...     S + 0.1 * torch.eye(2)
        Traceback (most recent call last):
            ...
        RuntimeError: [torch.Tensor.add] converts Symmetric (2, 2) to dense, which dense_guard...
    """
    if action not in ("warn", "raise"):
        raise ValueError(f'[dense_guard] expected "warn" or "raise"; got {action!r}')
    return _guarding(action)


@contextmanager
def _guarding(action: str) -> Iterator[None]:
    token = _action.set(action)
    try:
        yield
    finally:
        _action.reset(token)


def tell(function: Callable[..., Any], t: Any) -> None:
    """Warn or raise, as a guard wants it, for ``function`` is about to convert ``t`` to dense."""
    action = _action.get()
    if action is None or function in _CONVERSIONS:
        return
    what = f"[{function_name(function)}] converts {describe(t)} to dense"
    if action == "raise":
        raise RuntimeError(
            f"{what}, which dense_guard forbids. Use a function with a packed form, or .to_dense()"
        )
    warnings.warn(what, UserWarning, stacklevel=_levels_to_user())


def _levels_to_user() -> int:
    """How many frames lie between ``tell`` and the code that called torch or this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in ("packedtri", "torch"):
            break
        level, frame = level + 1, frame.f_back
    return level
