"""Functions that rearrange batch dimensions and leave the matrices whole: the type stays.

Each has the same effect on the stored elements, whose last dimension stands for the two of the
matrices. So the arguments are translated and torch computes on the packed tensor. Where the result
is a view of it, torch's own code makes it of the type, so that versions are shared and in-place
changes through it differentiate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from packedtri import _nodes, _tracing
from packedtri._recording import carries_autograd, is_batched
from packedtri._sharing import shares_memory
from packedtri._values import INTEGERS
from packedtri.dispatch import Function, rest, row
from packedtri.layout import numel

# It refuses Tensor.view, whose row below replaces that.
from packedtri.ops import indexing
from packedtri.ops import interop as interop
from packedtri.ops.callers import check_not_distributed
from packedtri.ops.dense import check_tensors, densify, functions
from packedtri.ops.dims import batch_dim, from_front
from packedtri.ops.views import view
from packedtri.tensor import PackedTensor

# (input, rank, other arguments) -> arguments for the packed tensor, None where matrices change.
Translation = Callable[..., "tuple[Any, ...] | None"]


def torch_names(handler: Function) -> Function:
    """``handler`` for callers who use the names of numpy, as torch lets them."""

    @wraps(handler)
    def call(*args: Any, **kwargs: Any) -> Any:
        return handler(*args, **{_NUMPY_NAMES.get(k, k): v for k, v in kwargs.items()})

    return call


_NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim"}


_PERMUTATIONS = {"permute", "movedim", "moveaxis"}
# Their results are never views.
_COPYING = {"repeat", "tile", "index_select", "flip", "roll", "repeat_interleave", "cumsum"}
# Those of these may be copies, which nobody can tell of a type while it is traced.
_MAYBE_COPYING = {"reshape", "flatten"}
# Torch takes parameters apart by them to spread them over processes.
_DISTRIBUTING = {"chunk", "flatten"}


@torch_names
def _apply(
    function: Function, translate: Translation, other: Function, input: Any, *args: Any, **kw: Any
) -> Any:
    """``function`` on the stored elements; ``other`` where the matrices do not stay whole."""
    is_packed = isinstance(input, PackedTensor)
    if is_packed and function.__name__ in _DISTRIBUTING:
        check_not_distributed(input)
    arguments = translate(input, input._packed.dim() + 1, *args, **kw) if is_packed else None
    if arguments is None:
        return other(input, *args, **kw)
    wrapped = carries_autograd(input._packed) or is_batched(input._packed)
    copying = _COPYING | _MAYBE_COPYING if _tracing.is_compiling() else _COPYING
    if function.__name__ not in copying and not wrapped:
        views = _views(function, input, arguments)
        if views is not None:
            return views
    packed = _nodes.to_packed(input)
    result = function(packed, *arguments)
    wrap = partial(_nodes.from_packed, type(input), n=input.n)
    return wrap(result) if isinstance(result, Tensor) else type(result)(map(wrap, result))


def _views(function: Function, t: PackedTensor, arguments: tuple[Any, ...]) -> Any:
    """The result where it is a view, or a list of such, and None where it is a copy.

    Torch is asked with the stored elements, since it would take the type for a dense tensor whose
    elements follow one another.
    """
    compiling = _tracing.is_compiling()
    base = torch.empty((*t.shape[:-2], numel(t.n)), device="meta") if compiling else t._packed
    result = function(base, *arguments)
    if not isinstance(result, Tensor):
        where, dim = arguments
        return _slices(function, t, where, dim, result)
    if result is base:
        return t
    if not compiling and not shares_memory(result, base):
        return None
    name = function.__name__
    if name in _PERMUTATIONS:
        dims = _permuted(function, base.dim(), *arguments)
        return view(Tensor.permute, t, (*dims, base.dim()))
    if name == "narrow":
        return view(Tensor.narrow, t, *arguments)
    shape = (*result.shape[:-1], t.n, t.n)
    return view(Tensor.expand if name in ("expand", "broadcast_to") else Tensor.view, t, shape)


def _permuted(function: Function, rank: int, *args: Any, **kwargs: Any) -> torch.Size:
    """The dimensions in the order into which a permutation brings them."""
    # Sizes that are the numbers of their dimensions tell.
    numbered = torch.empty(tuple(range(rank)), device="meta")
    return function(numbered, *args, **kwargs).shape


def _slices(
    function: Function, t: PackedTensor, where: Any, dim: int, parts: Sequence[Tensor]
) -> Sequence[Tensor]:
    """The parts of ``t`` that have as many matrices along a dimension as ``parts``.

    They follow one another, unless they begin ``where`` the indices of tensor_split say.
    """
    sizes = [part.shape[dim] for part in parts]
    one_after_another = list(accumulate(sizes[:-1], initial=0))
    starts = one_after_another
    if isinstance(where, Tensor) and not _tracing.is_compiling():
        where = where.tolist()
    if isinstance(where, Sequence) and len(where) == len(parts) - 1:
        starts = [0, *(slice(start, None).indices(t.shape[dim])[0] for start in where)]
    if starts == one_after_another and not _may_change(function, t):
        return view(torch.split, t, sizes, dim)
    return type(parts)(  # type: ignore[call-arg]
        view(Tensor.narrow, t, dim, start, size) for start, size in zip(starts, sizes, strict=True)
    )


def _may_change(function: Function, t: PackedTensor) -> bool:
    """Whether autograd may have to record changes of one part, which it takes for a slice then.

    Of several views that one call makes it refuses to, but makes them in a fraction of the time.
    """
    if _tracing.is_compiling():
        return True
    # Dense torch makes slices for this one alone.
    return torch.is_grad_enabled() if function.__name__ == "tensor_split" else _nodes.recorded(t)


def _sizes(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Sizes or dimensions given one by one or as one sequence."""
    return tuple(args[0]) if len(args) == 1 and isinstance(args[0], Sequence) else args


def _reshape(t: PackedTensor, rank: int, *shape: Any, **kwargs: Any) -> tuple[Any, ...] | None:
    sizes = _sizes(shape or tuple(kwargs.values()))
    if len(sizes) < 2 or tuple(sizes[-2:]) != (t.n, t.n):
        return None
    return ((*sizes[:-2], t._packed.shape[-1]),)


def _expand(t: PackedTensor, rank: int, *sizes: Any, **kwargs: Any) -> tuple[Any, ...] | None:
    sizes = _sizes(sizes or tuple(kwargs.values()))
    if len(sizes) < rank or any(s not in (-1, t.n) for s in sizes[-2:]):
        return None
    return ((*sizes[:-2], -1),)


def _permute(t: PackedTensor, rank: int, *dims: Any, **kwargs: Any) -> tuple[Any, ...] | None:
    dims = tuple(from_front(d, rank) for d in _sizes(dims or tuple(kwargs.values())))
    if dims[-2:] != (rank - 2, rank - 1):
        return None
    return (dims[:-1],)


def _transposed(function: Function, input: Any, *args: Any, **kwargs: Any) -> Any:
    """A permutation that moves the dimensions of the matrices: a transpose if it exchanges them."""
    if isinstance(input, PackedTensor):
        rank = input.dim()
        dims = _permuted(function, rank, *args, **kwargs)
        if dims[-2:] == (rank - 1, rank - 2):
            if dims[:-2] == tuple(range(rank - 2)):
                return input.mT
            return torch.permute(input.mT, (*dims[:-2], rank - 2, rank - 1))
    return densify(function, input, *args, **kwargs)


def _narrow_lines(input: Any, dim: Any, start: Any, length: Any) -> Tensor:
    """Rows or columns that follow one another, without what lies beside them."""
    given = (dim, start, length)
    if isinstance(input, PackedTensor) and all(isinstance(x, INTEGERS) for x in given):
        first = start + input.n if start < 0 else start
        if 0 <= first <= first + length <= input.n:
            place = from_front(dim, input.dim())
            return indexing.read_along(input, place, slice(first, first + length))
    return densify(Tensor.narrow, input, *given)


def _taking_apart(function: Function) -> Function:
    """What a function does where the matrices do not stay whole."""
    if function.__name__ == "narrow":
        return _narrow_lines
    if function.__name__ == "index_select":
        return indexing.selected_lines
    return partial(_transposed if function.__name__ in _PERMUTATIONS else densify, function)


def _repeat(t: PackedTensor, rank: int, *sizes: Any, **kwargs: Any) -> tuple[Any, ...] | None:
    sizes = _sizes(sizes or tuple(kwargs.values()))
    return (sizes[:-1],) if len(sizes) >= rank and tuple(sizes[-2:]) == (1, 1) else None


def _squeeze(t: PackedTensor, rank: int, *dim: Any, **kwargs: Any) -> tuple[Any, ...] | None:
    given = dim or tuple(kwargs.values())
    dims = tuple(from_front(d, rank) for d in (_sizes(given) if given else range(rank)))
    batch = tuple(d for d in dims if d < rank - 2)
    # Torch refuses to take a dimension twice.
    if len(set(dims)) < len(dims) or (t.n == 1 and batch != dims):
        return None
    return (batch,)


def _flatten(t: PackedTensor, rank: int, start_dim: int = 0, end_dim: int = -1, **kw: Any) -> Any:
    dims = batch_dim(start_dim, rank), batch_dim(end_dim, rank)
    return None if kw or None in dims else dims


def _first(t: PackedTensor, rank: int, dim: Any = None, *args: Any, **kw: Any) -> Any:
    """One dimension first, and arguments that do not concern the matrices."""
    at = batch_dim(dim, rank) if isinstance(dim, int) else None
    args += tuple(kw.pop(name) for name in ("index", "start", "length", "sizes") if name in kw)
    packed = any(isinstance(a, PackedTensor) for a in args)
    return None if kw or packed or at is None else (at, *args)


def _second(t: PackedTensor, rank: int, count: Any = None, dim: int = 0, **kw: Any) -> Any:
    """A count or sizes, which have many names, then one dimension."""
    at, counts = batch_dim(dim, rank), ([] if count is None else [count]) + list(kw.values())
    return None if at is None or len(counts) != 1 else (*counts, at)


def _several(t: PackedTensor, rank: int, *dims: Any, **kw: Any) -> tuple[Any, ...] | None:
    at = tuple(batch_dim(d, rank) for d in _sizes(dims or tuple(kw.values())))
    return None if None in at else (at,)


def _roll(t: PackedTensor, rank: int, shifts: Any = None, dims: Any = None) -> Any:
    """Shifts and the dimensions that they are of, or sequences of them."""
    if dims is None or shifts is None:
        return None
    at = tuple(batch_dim(d, rank) for d in ((dims,) if isinstance(dims, int) else dims))
    # Without dimensions torch rolls the elements of all matrices as one row.
    return None if not at or None in at else (shifts, at)


def _repeat_interleave(
    t: PackedTensor, rank: int, repeats: Any = None, dim: Any = None, *, output_size: Any = None
) -> Any:
    """Without a dimension torch flattens."""
    at = batch_dim(dim, rank) if isinstance(dim, int) else None
    return None if at is None or repeats is None or output_size is not None else (repeats, at)


def _pair(t: PackedTensor, rank: int, source: Any = None, destination: Any = None) -> Any:
    """Two dimensions, or two sequences of them."""
    both = [(x,) if isinstance(x, int) else x for x in (source, destination)]
    if None in both:
        return None
    dims = [tuple(batch_dim(d, rank) for d in x) for x in both]
    return None if None in dims[0] + dims[1] else tuple(dims)


_TRANSLATIONS: dict[str, Translation] = {
    "reshape": _reshape,
    "expand broadcast_to": _expand,
    "permute": _permute,
    "repeat tile": _repeat,
    "squeeze": _squeeze,
    "flatten": _flatten,
    "index_select narrow unflatten cumsum": _first,
    "roll": _roll,
    "repeat_interleave": _repeat_interleave,
    "chunk split tensor_split": _second,
    "flip": _several,
    "movedim moveaxis": _pair,
}
for _names, _translate in _TRANSLATIONS.items():
    for _function in functions(_names):
        _sums = _function.__name__ == "cumsum"
        _handler = partial(_apply, _function, _translate, _taking_apart(_function))
        row(_function, casts=_sums)(_handler)


@row(Tensor.__reversed__)
def _reversed(input: PackedTensor) -> Tensor:
    return torch.flip(input, (0,))


@row(Tensor.expand_as)
def _expand_as(self: Tensor, other: Tensor) -> Tensor:
    return self.expand(other.shape)


@row(Tensor.reshape_as)
def _reshape_as(self: Tensor, other: Tensor) -> Tensor:
    return self.reshape(other.shape)


@row(torch.broadcast_tensors)
def _broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], Sequence) else tensors
    check_tensors("broadcast_tensors", "tensors", given)
    shape = torch.broadcast_shapes(*(t.shape for t in given))
    return tuple(t.expand(shape) for t in given)


def _at_least(function: Function, rank: int, *tensors: Any) -> Any:
    given = tensors[0] if len(tensors) == 1 else tensors
    if not isinstance(given, PackedTensor):
        return tuple(map(function, given))
    return given if given.dim() >= rank else densify(function, given)


for _rank, _function in enumerate((torch.atleast_1d, torch.atleast_2d, torch.atleast_3d), 1):
    row(_function)(partial(_at_least, _function, _rank))

# A dense result would be no view.
row(Tensor.view)(partial(_apply, Tensor.view, _reshape, rest(Tensor.view).handler))
