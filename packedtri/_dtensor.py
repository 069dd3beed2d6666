"""DTensors inside of types: tensors of which each process has a part.

Torch computes with them as with one tensor, by the rules of ``packedtri.ops.sharding``. Nobody but
the functions here asks what they are.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from packedtri import _tracing

_HOME = "torch.distributed.tensor"
#: What computes an op of single matrices that are cut in parts, or returns NotImplemented.
rules_of_parts: dict[Any, Callable[..., Any]] = {}
_ORDINARY = (Tensor, torch.nn.Parameter)


def is_spread(x: Any) -> bool:
    """Whether a tensor is a DTensor."""
    if type(x) in _ORDINARY:
        return False
    # Who has one has imported their module, which takes longer than ours.
    return isinstance(x, getattr(sys.modules.get(_HOME), "DTensor", ()))


def meet(x: Any) -> None:
    """Tell torch how our ops act on DTensors, if ``x`` is one. To be called for all that come."""
    if is_spread(x):
        importlib.import_module("packedtri.ops.sharding")
        importlib.import_module("packedtri.distributed.rules")


def by_parts(op: Any, args: tuple[Any, ...]) -> Any:
    """The result of an op on matrices that are cut in parts, or NotImplemented of other ones."""
    rule = rules_of_parts.get(op)
    if rule is None or _tracing.is_compiling() or not any(map(is_spread, args)):
        return NotImplemented
    with torch.no_grad():
        return rule(*args)


def whole(x: Tensor) -> Tensor:
    """All elements, on every process: what decisions depend on that all of them must make alike."""
    return x.full_tensor() if is_spread(x) else x  # type: ignore[attr-defined]


def beside(x: Tensor, helper: Tensor) -> Tensor:
    """A tensor that every process has, such as one of indices, for one op together with ``x``."""
    if not is_spread(x):
        return helper
    home: Any = sys.modules[_HOME]
    mesh = x.device_mesh  # type: ignore[attr-defined]
    placements = [home.Replicate()] * mesh.ndim
    return home.DTensor.from_local(helper, mesh, placements, run_check=False)
