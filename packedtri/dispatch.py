"""One table that says what each torch function does with packed types.

A :class:`Row` belongs to a function and the types of its first arguments. The modules of
``packedtri.ops`` add the rows; ``__torch_function__`` looks them up here, and one rule gives a
function without a row its own (``packedtri.ops.overrides``). Another table, of aten ops, is in
``packedtri._aten_table``.

Example:
    >>> import torch, packedtri
    >>> row = find(torch.matmul, (packedtri.LowerTriangular, packedtri.LowerTriangular))
    >>> row.how, row.result.__name__
    ('native', 'LowerTriangular')
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from numbers import Number
from types import FunctionType
from typing import Any, Literal, NoReturn

import torch
from torch.utils._pytree import tree_leaves

from packedtri import _tracing, _values
from packedtri._aten_table import is_reached
from packedtri._recording import ops_are_watched
from packedtri._values import canonical_type, describe, function_name, is_packed

Function = Callable[..., Any]
#: native: computed on packed storage. passed: torch's own code handles the type, through the aten
#: table. dense: the arguments are converted, differentiably, and torch computes. refused: an error
#: of its own that says what to do instead.
How = Literal["native", "passed", "dense", "refused"]


@dataclass(frozen=True)
class Row:
    """What ``function`` does when its first arguments have the given types.

    Attributes:
        function: as ``__torch_function__`` receives it.
        types: of the first arguments: a packed type, ``torch.Tensor`` for any other tensor,
            ``Number``, or ``object`` for the rest. Empty where the row serves all types.
        handler: called with the arguments of the function.
        how: see ``How``.
        result: type of the result, None where it depends on the arguments.
        casts: whether the result is cast to the dtype of ``out``, where that can be. Otherwise
            ``out`` must have the dtype of the result. Torch decides it function by function.
        writes: whether the handler takes ``out``, and returns it where it could write there.
    """

    function: Function
    types: tuple[type, ...]
    handler: Function
    how: How
    result: type | None
    casts: bool = False
    writes: bool = False

    @property
    def name(self) -> str:
        """The function's public name, such as ``torch.matmul``."""
        return function_name(self.function)


_table: dict[Function, dict[tuple[type, ...], Row]] = {}
# The names that torch knows the arguments by whose types make the key, for each of a function's.
_key_names: dict[Function, tuple[frozenset[str], ...]] = {}
# The rows that the rule has given so far, and the rule.
_ruled: dict[tuple[Function, str], Row] = {}
_rules: list[Callable[[Function], Row]] = []
# The handlers that calls have had, by the function, whether there is ``out``, and the types of all
# arguments by position; by the function alone where one row serves all types, as it does of
# attributes, which are asked for many times.
_known: dict[Any, Function] = {}
_aliases: dict[Any, Function] = {}


def add_type(cls: type) -> None:
    """Make a packed type known; rows for its base class then serve it too."""
    _values.add_type(cls)
    _known.clear()


def row(
    functions: Function | Iterable[Function],
    *types: type,
    how: How = "native",
    result: type | None = None,
    casts: bool = False,
    writes: bool = False,
) -> Callable[[Function], Function]:
    """Decorator that adds one row per function and combination of types.

    Args:
        functions: one function or several that share the handler.
        types: of the first arguments. A base class stands for each packed type below it; no
            types at all make the row that serves whatever has no row of its own.
        how: see ``How``.
        result: type of the result, where it is known.
        casts: see ``Row``.
        writes: see ``Row``.

    Returns:
        The decorator; it returns the handler unchanged.
    """

    def add(handler: Function) -> Function:
        for function in [functions] if callable(functions) else functions:
            _add(Row(function, types, handler, how, result, casts, writes))
        return handler

    return add


def alias(operator: Any, function: Function) -> None:
    """Let ``operator`` of ``torch.ops.aten`` do on packed types what ``function`` does."""
    _aliases[operator] = function


def decorate(function: Function, decorator: Callable[[Function], Function]) -> None:
    """Put what ``decorator`` makes of them in place of the handlers of all rows of ``function``."""
    _known.clear()
    by_types = _table.get(function, {})
    for types, found in by_types.items():
        by_types[types] = replace(found, handler=decorator(found.handler))


def _add(added: Row) -> None:
    _known.clear()
    function, types = added.function, added.types
    rows = _table.setdefault(function, {})
    if len(types) > len(_key_names.get(function, ())):
        _key_names[function] = _torch_names(function, len(types))
    for combination in _expand(types):
        rows[combination] = replace(added, types=combination)


def _torch_names(function: Function, count: int) -> tuple[frozenset[str], ...]:
    """The names of a torch function's first ``count`` arguments, in any of its overloads."""
    schemas = torch._C._jit_get_schemas_for_operator(f"aten::{getattr(function, '__name__', '')}")
    signatures = [[argument.name for argument in schema.arguments] for schema in schemas]
    if isinstance(function, FunctionType):
        signatures.append(list(inspect.signature(function, follow_wrapped=False).parameters))
    # What schemas call self, functions call input.
    alike = {"self": ("self", "input")}
    return tuple(
        frozenset(
            name for s in signatures for own in s[at : at + 1] for name in alike.get(own, (own,))
        )
        for at in range(count)
    )


def _expand(types: tuple[type, ...]) -> Iterator[tuple[type, ...]]:
    """Each way to put concrete packed types in the place of their base class."""
    if not types:
        yield ()
        return
    first, rest = types[0], types[1:]
    literal = first in (torch.Tensor, Number, object)
    below = (t for t in _values.packed_types() if issubclass(t, first))
    for choice in [first] if literal else below:
        for tail in _expand(rest):
            yield (choice, *tail)


def rows() -> list[Row]:
    """Every row of the table, in the order in which they were added."""
    return [r for by_types in _table.values() for r in by_types.values()]


def find(function: Function, types: tuple[type, ...]) -> Row | None:
    """The row that serves ``function`` on arguments of these types, None where there is none."""
    by_types = _table.get(function)
    if by_types is None:
        return None
    return by_types.get(types) or by_types.get(())


def rule(function: Callable[[Function], Row]) -> Callable[[Function], Row]:
    """Decorator: make ``function`` the rule that gives rows to functions that have none."""
    _rules[:] = [function]
    return function


def rest(function: Function) -> Row:
    """The row of ``function`` for types that its own rows do not name."""
    # Aliases of torch's own, as dsmm of mm, are equal to what they stand for, but for their names.
    key = function, getattr(function, "__name__", "")
    found = _table.get(function, {}).get(()) or _ruled.get(key)
    if found is not None:
        return found
    if isinstance(function, torch._ops.HigherOrderOperator):
        found = Row(function, (), partial(_refuse_operator, function), "refused", None)
    else:
        found = _rules[0](function)
    _ruled[key] = found
    return found


def _refuse_operator(function: Function, *args: Any, **kwargs: Any) -> NoReturn:
    """Operators that are given functions, such as torch.cond, take their tensors for dense ones."""
    given = list(filter(is_packed, tree_leaves((args, kwargs))))
    raise NotImplementedError(
        f"[{function_name(function)}] expected plain tensors; got "
        f"{', '.join(map(describe, given))}. Pass or capture .packed, and build the type inside"
    )


def classify(function: Function) -> How:
    """What packed types can expect of ``function`` at best.

    Returns:
        "native" where some types, or all, are computed on packed storage or passed to torch's own
        code; else "dense" where they are converted; else "refused".
    """
    hows = {r.how for r in (*_table.get(function, {}).values(), rest(function))}
    if hows & {"native", "passed"}:
        return "native"
    return "dense" if "dense" in hows else "refused"


def _by_position(
    function: Function, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """The arguments of a call, those that make the key by position as far as they are given."""
    missing, kwargs = _key_names.get(function, ())[len(args) :], dict(kwargs)
    for names in missing:
        given = [name for name in names if name in kwargs]
        if not given:
            break
        args = (*args, kwargs.pop(given[0]))
    return args, kwargs


def _has_key(function: Function, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether the arguments by position make the key, and ``out`` comes alone if at all."""
    if len(args) < len(_key_names.get(function, ())):
        return False
    return len(kwargs) == 1 or "out" not in kwargs


def check_not_traced(*values: Any) -> None:
    """Raise where make_fx has one of these types for an argument, and so for a constant.

    It follows the tensors that it knows through ops, and does not know those inside of types.
    """
    mode = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.PROXY)
    if mode is None or _tracing.is_compiling():
        return
    from torch.fx.experimental.proxy_tensor import get_proxy_slot

    for value in tree_leaves(values):
        if is_packed(value) and get_proxy_slot(value, mode.tracer, None) is not None:
            name = type(value).__name__
            raise NotImplementedError(
                f"[make_fx] {describe(value)} would be a constant of the graph, which follows "
                "plain tensors alone. Trace a function of the stored elements, as in "
                f"make_fx(lambda p: f({name}(p)))(t.packed)"
            )


def call(function: Function, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Run ``function`` by the row that serves it; the whole of ``__torch_function__``."""
    place = None
    if ops_are_watched():
        check_not_traced(args, kwargs)
    elif not _tracing.is_compiling() and (not kwargs or _has_key(function, args, kwargs)):
        handler = None if kwargs else _known.get(function)
        if handler is None:
            place = (function, "out" in kwargs, *map(type, args))
            handler = _known.get(place)
        if handler is not None:
            return handler(*args, **kwargs)
    by_types, found = _table.get(function), None
    if by_types is None and function in _aliases:
        return call(_aliases[function], args, kwargs)
    if by_types is not None:
        if kwargs:
            args, kwargs = _by_position(function, args, kwargs)
        key = args[: len(_key_names.get(function, ()))]
        found = by_types.get(tuple(map(canonical_type, key)))
    if found is None and is_reached(function):
        # A mode that watches ops, as torch's counter of operations does, passes it on to the types.
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **kwargs)
    found = found or rest(function)
    handler = found.handler
    if kwargs and "out" in kwargs and found.how == "native":
        write = partial(_call_out, function, found)
        if not any(map(is_packed, args)):
            # Lists of other types may come next time. Without a packed one it is about ``out``.
            given = tree_leaves((args, {**kwargs, "out": None}))
            return (write if any(map(is_packed, given)) else handler)(*args, **kwargs)
        handler = write
    # What the rule gives goes by the name that was called, of which torch has several for some.
    if place is not None and by_types is not None:
        _known[place if kwargs or any(by_types) else function] = handler
    return handler(*args, **kwargs)


def _call_out(function: Function, found: Row, *args: Any, out: Any, **kwargs: Any) -> Any:
    """Compute a new result and write it to ``out``; it may be an operand too."""
    if found.writes:
        result = found.handler(*args, **kwargs, out=out)
        if result is out:
            return out
    else:
        result = call(function, args, kwargs)
    if out is None:
        return result
    from packedtri.ops.dense import write_out

    return write_out(function_name(function), result, out, found.casts)


def hide_from_dynamo(function: Function) -> None:
    """Let Dynamo start no graph in ``function`` or in what it calls; inlining them it still may.

    Between its graphs torch.compile looks at every Python frame. It would find our handlers, break
    off where they build a tensor subclass, and mix up in-place operations on an optimizer's state.
    The public torch.compiler.disable would forbid inlining too, and import the whole compiler.
    """
    dynamo = torch._C._dynamo.eval_frame
    skip = dynamo._FrameAction.SKIP
    dynamo.set_code_exec_strategy(function.__code__, dynamo._FrameExecStrategy(skip, skip))


def hide_members_from_dynamo(cls: type) -> None:
    """``hide_from_dynamo`` for the methods and properties that a class itself defines."""
    for member in vars(cls).values():
        function = member.fget if isinstance(member, property) else member
        function = getattr(function, "__func__", function)
        if isinstance(function, FunctionType):
            hide_from_dynamo(function)
