"""Inputs of a graph that share elements, which torch.compile does not see.

Dynamo makes an input of a type, of its ``.packed`` and of its transpose each, and what compiles the
graph follows changes in place of every input alone: a change through one of them would not reach
the others, or would be lost. While Dynamo traces, it asks here. Where two inputs share elements,
one of which the graph changes, the graph ends there, and Python goes on until the next one.

Tensors that the graph itself makes, the ``.packed`` of an intermediate among them, are followed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

# The mark of an input whose elements ``.packed`` has given to the traced program.
_EXPOSED = "packedtri_exposed"
# Functions of Python's operator module that write to their first argument.
_ASSIGNMENTS = """
    setitem iadd iand ifloordiv ilshift imatmul imod imul ior ipow irshift isub itruediv ixor
"""


def _is_compiling() -> bool:
    return torch.compiler.is_compiling() or _translator() is not None


#: Whether torch.compile works on a graph. Torch before 2.13 says so only in frames that Dynamo
#: traces. What serves the types runs beside these, when Dynamo or the backend calls it.
is_compiling = (
    torch.compiler.is_compiling
    if hasattr(torch.compiler, "_compile_session_context")
    else _is_compiling
)


def check_read(inner: Tensor) -> None:
    """End the graph before it reads elements that it has changed, where two inputs have them."""
    translator = _translator() if type(inner) is FakeTensor else None
    if translator is None or len(_sharing(translator, inner)) < 2:
        return
    if _is_changed(translator, inner):
        _end_graph()


def check_write(inner: Tensor) -> None:
    """End the graph before it changes elements that two inputs have, or may come to have."""
    translator = _translator() if type(inner) is FakeTensor else None
    if translator is None:
        return
    owners = _sharing(translator, inner)
    if len(owners) > 1 or any(_EXPOSED in n.meta or _has_rivals(translator, n) for n in owners):
        _end_graph()


def expose(inner: Tensor) -> None:
    """``check_read`` for ``.packed``; that of an input becomes an input of its own.

    Its value is that of before the graph, so that the graph must not have changed it.
    """
    check_read(inner)
    translator = _translator()
    if translator is None:
        return
    for node in _inputs(translator):
        if _elements(_real(node)) is inner:
            if _is_changed(translator, _elements(_fake(node))):
                _end_graph()
            node.meta[_EXPOSED] = True


def _translator() -> Any:
    """What traces the current frame for Dynamo; None where nothing does."""
    module = sys.modules.get("torch._dynamo.symbolic_convert")
    return None if module is None else getattr(module.tls, "current_tx", None)


def _graph(translator: Any) -> torch.fx.Graph:
    return translator.output.root_tracer.graph


def _inputs(translator: Any) -> list[torch.fx.Node]:
    """The inputs so far. The tensor inside a type is one too, which nothing reads: it is left out.

    Dynamo adds an input when the program uses it first.
    """
    nodes = _graph(translator).find_nodes(op="placeholder")
    inside = {id(elements) for n in nodes if (elements := _elements(_fake(n))) is not _fake(n)}
    return [n for n in nodes if id(_fake(n)) not in inside]


def _fake(node: torch.fx.Node) -> Any:
    """What a node of the graph computes, as Dynamo traces it."""
    return node.meta.get("example_value")


def _real(node: torch.fx.Node) -> Any:
    """The value that an input has now."""
    return getattr(node.meta.get("grapharg"), "example", None)


def _elements(value: Any) -> Any:
    """The tensor that has the memory of a tensor; anything else as it is."""
    return getattr(value, "_packed", value)


def _share(a: Any, b: Any) -> bool:
    a, b = _elements(a), _elements(b)
    # Sparse tensors have no memory that they could share with a type.
    if not all(isinstance(x, Tensor) and x.layout is torch.strided for x in (a, b)):
        return False
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata


def _sharing(translator: Any, inner: Tensor) -> list[torch.fx.Node]:
    """The inputs so far with the elements of ``inner``."""
    return [n for n in _inputs(translator) if _share(_fake(n), inner)]


def _has_rivals(translator: Any, node: torch.fx.Node) -> bool:
    """Whether another variable of the frame, not used yet, has the elements of an input."""
    real, known = _real(node), {id(_real(n)) for n in _inputs(translator)}
    values = tree_leaves(translator.output.local_scope)
    return any(_share(value, real) and id(value) not in known for value in values)


def _is_changed(translator: Any, inner: Tensor) -> bool:
    """Whether the graph so far changes the elements of ``inner``."""
    return any(
        isinstance(changed, torch.fx.Node) and _share(_fake(changed), inner)
        for node in _graph(translator).nodes
        for changed in _changed_by(node)
    )


def _changed_by(node: torch.fx.Node) -> Iterator[Any]:
    """What a node of the graph may write to, by the naming rules of torch."""
    target: Any = node.target
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    name = name.partition(".")[0]
    if name.endswith("_") or name in _ASSIGNMENTS.split() or node.kwargs.get("inplace"):
        yield from tree_leaves(node.args[:1])
    yield from tree_leaves(node.kwargs.get("out"))


def _end_graph() -> NoReturn:
    from torch._dynamo.exc import unimplemented

    unimplemented(
        gb_type="Change of packed elements that inputs of the graph share",
        context="",
        explanation="[torch.compile] a packed type and another input of the graph, such as its "
        ".packed or its transpose, share elements, and the graph changes them in place: one of the "
        "two would keep the old values.",
        hints=[
            "With fullgraph=True make the other one in the compiled function: L[...].packed and "
            "L.mT are followed, where L.packed is not if L is an argument."
        ],
    )
