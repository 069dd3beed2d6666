"""Functions that rearrange batch dimensions and leave the matrices whole: the type stays.

Each has the same effect on the stored elements, whose last dimension stands for the two of the
matrices. So the arguments are translated and torch computes on the packed tensor. Results that are
views of it stay views; autograd refuses to record a change in place through one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor

from packedtri import _nodes
from packedtri.dispatch import Function, rest, row
from packedtri.ops import interop as interop
from packedtri.ops.dense import densify, functions
from packedtri.ops.dims import batch_dim, from_front
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


@torch_names
def _apply(
    function: Function, translate: Translation, other: Function, input: Any, *args: Any, **kw: Any
) -> Any:
    """``function`` on the stored elements; ``other`` where the matrices do not stay whole."""
    is_packed = isinstance(input, PackedTensor)
    arguments = translate(input, input._packed.dim() + 1, *args, **kw) if is_packed else None
    if arguments is None:
        return other(input, *args, **kw)
    packed = _nodes.to_packed(input)
    result = function(packed, *arguments)
    shared = result is packed
    wrap = partial(_nodes.from_packed, type(input), n=input.n, shared=shared, of=input)
    return wrap(result) if isinstance(result, Tensor) else type(result)(map(wrap, result))


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
    "index_select narrow unflatten": _first,
    "chunk split tensor_split": _second,
    "flip": _several,
    "movedim moveaxis": _pair,
}
for _names, _translate in _TRANSLATIONS.items():
    for _function in functions(_names):
        row(_function)(partial(_apply, _function, _translate, partial(densify, _function)))


@row(Tensor.__reversed__)
def _reversed(input: PackedTensor) -> Tensor:
    return torch.flip(input, (0,))


# A dense result would be no view.
row(Tensor.view)(partial(_apply, Tensor.view, _reshape, rest(Tensor.view).handler))
