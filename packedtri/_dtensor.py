"""DTensors inside of types: tensors of which each process has a part.

Torch computes with them as with one tensor, by the rules of ``packedtri.ops.sharding``. Nobody but
the functions here asks what they are.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from packedtri import _tracing

_HOME = "torch.distributed.tensor"
_ORDINARY = (Tensor, torch.nn.Parameter)


class PartsRule(NamedTuple):
    """How an op acts on single matrices that are cut in parts.

    Attributes:
        compute: takes the arguments of the op, and returns what it does or NotImplemented.
        packed: from all arguments, the positions of those that are packed.
    """

    compute: Callable[..., Any]
    packed: Callable[[Sequence[Any]], Sequence[int]]


#: Of the ops that have one. ``packedtri.distributed`` fills it.
parts_rules: dict[Any, PartsRule] = {}


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
    rule = parts_rules.get(op)
    if rule is None or _tracing.is_compiling() or not any(map(is_spread, args)):
        return NotImplemented
    with torch.no_grad():
        return rule.compute(*args)


class CutAlong(NamedTuple):
    """Along which dimension of a mesh the elements of each matrix are spread."""

    mesh: Any
    dim: int

    def align(self, x: Tensor) -> Tensor:
        """A packed tensor of DTensors, cut so."""
        if not is_spread(x):
            return x
        placements = _on_all(self.mesh)
        placements[self.dim] = sys.modules[_HOME].Shard(x.ndim - 1)
        return x.redistribute(placements=placements)  # type: ignore[attr-defined]


def _on_all(mesh: Any) -> list[Any]:
    """The placements of a tensor that every process of a mesh has."""
    return [sys.modules[_HOME].Replicate()] * int(mesh.ndim)


def cut_of(packed: Any) -> CutAlong | None:
    """How a packed tensor is cut, or None where some process has a matrix whole.

    One dimension of the mesh may cut. Along the others all processes must have the same.
    """
    if not is_spread(packed):
        return None
    shard = sys.modules[_HOME].Shard
    last = packed.ndim - 1
    cutting = [i for i, p in enumerate(packed.placements) if type(p) is shard and p.dim == last]
    others = [p for i, p in enumerate(packed.placements) if i not in cutting]
    if len(cutting) != 1 or not all(p.is_replicate() for p in others):
        return None
    mesh = packed.device_mesh
    # Processes that are not in the mesh have no part.
    return None if mesh.get_coordinate() is None else CutAlong(mesh, cutting[0])


def whole_if_tiny(packed: Tensor) -> Tensor:
    """The same elements, put together where there are so few that some process has none.

    Torch raises there where the largest element is asked for.
    """
    cut = cut_of(packed)
    if cut is None or packed.shape[-1] >= cut.mesh.size(cut.dim) ** 2:
        return packed
    return packed.redistribute(placements=_on_all(cut.mesh))  # type: ignore[attr-defined]


def cuts_of_arguments(op: Any, args: Sequence[Any]) -> dict[int, CutAlong]:
    """The packed arguments of an op that are cut, by their positions."""
    rule = parts_rules.get(op)
    if rule is None or _tracing.is_compiling():
        return {}
    return {i: cut for i in rule.packed(args) if (cut := cut_of(args[i])) is not None}


class _Wanted(threading.local):
    cut: CutAlong | None = None


_wanted = _Wanted()


def wanted_cut() -> CutAlong | None:
    """How packed results of dense arguments are to be cut: see ``cutting``."""
    return _wanted.cut


def cutting(cut: CutAlong | None) -> AbstractContextManager[None]:
    """A context in which ops that make packed matrices of dense DTensors cut them so, if at all.

    Without it each process would have them whole, where it has the arguments whole.
    """
    return _NOTHING if cut is None else _cutting(cut)


_NOTHING = nullcontext()


@contextmanager
def _cutting(cut: CutAlong) -> Iterator[None]:
    before, _wanted.cut = _wanted.cut, cut
    try:
        yield
    finally:
        _wanted.cut = before


def whole(x: Tensor) -> Tensor:
    """All elements, on every process: what decisions depend on that all of them must make alike."""
    return x.full_tensor() if is_spread(x) else x  # type: ignore[attr-defined]


def beside(x: Tensor, helper: Tensor) -> Tensor:
    """A tensor that every process has, such as one of indices, for one op together with ``x``."""
    if not is_spread(x):
        return helper
    home: Any = sys.modules[_HOME]
    mesh = x.device_mesh  # type: ignore[attr-defined]
    return home.DTensor.from_local(helper, mesh, _on_all(mesh), run_check=False)
