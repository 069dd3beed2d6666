"""The op ``mm``: its shape rule, derivatives, vmap and autocast.

The derivative of a product is another product. With C = P(op(A) op(B)), P keeping the stored part,
the gradient of op(A) is G op(B)^H and that of op(B) is op(A)^H G, each in the terms of what its
operand stores: a triangle of the product for Lower, one of its transpose for Upper, and for
Symmetric, whose elements stand in both halves, the sum of the two; for Hermitian the sum with the
conjugate of the other.

A dense operand of one dimension is a vector, as in torch.matmul: a row on the left, a column on the
right, and a dimension less in the result. The derivatives see it as a matrix.

The last argument says whether float32 may be rounded to TF32. It is False unless given, so that
solves and factors keep their precision; products of the user pass what torch is set to, and their
derivatives follow them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from packedtri import layout
from packedtri._autograd import (
    Adjoint,
    Call,
    NotBareError,
    bare,
    library,
    quick,
    register_multilinear,
)
from packedtri._bands import halve_diagonal
from packedtri._library import tf32_is_set
from packedtri._recording import ops_are_watched
from packedtri.layout import DENSE, HERMITIAN, LOWER, MIRRORED, TRANSPOSED, UPPER

_mm = torch.ops.packedtri.mm.default
_mm_pair = torch.ops.packedtri.mm_pair.default
_TRIANGLES = {LOWER, UPPER}
Operand = tuple[Tensor, int]
Operands = tuple[Tensor, Tensor, int, int]
# The op, or its bare form.
Product = Callable[..., Tensor]
# An adjoint, and what it is to multiply by.
AdjointBy = Callable[[Tensor, Sequence[Any], torch.Size, Product], Tensor]


# The dimension that a vector lacks as the left and as the right operand, and its result with it.
_MISSING = (-2, -1)


def _batch(x: Tensor, kind: int) -> torch.Size:
    return x.shape[:-2] if kind == DENSE else x.shape[:-1]


@torch.library.register_fake("packedtri::mm", lib=library)
def _(
    a: Tensor, b: Tensor, n: int, a_kind: int, b_kind: int, c_kind: int, tf32: bool = False
) -> Tensor:
    batch = torch.broadcast_shapes(_batch(a, a_kind), _batch(b, b_kind))
    if c_kind == DENSE:
        rows = a.shape[-2:-1] if a_kind == DENSE else (n,)
        columns = b.shape[1:][-1:] if b_kind == DENSE else (n,)
        return a.new_empty((*batch, *rows, *columns))
    # A packed operand says the length in the terms that a compiler already knows.
    count = next(
        (x.shape[-1] for x, kind in ((a, a_kind), (b, b_kind)) if kind != DENSE), layout.numel(n)
    )
    return a.new_empty((*batch, count))


#: What ``mm`` computes, told by one number, ``how``.
bare_mm = bare(torch.ops.packedtri._mm.default)
#: The same into a contiguous tensor, the last argument, which the result is dense for.
bare_mm_out = bare(torch.ops.packedtri._mm_out.default)


def how(a_kind: int, b_kind: int, c_kind: int, tf32: bool = False) -> int:
    """What ``bare_mm`` is told: how operands and result are stored, and whether TF32 will do."""
    return a_kind | b_kind << 3 | c_kind << 6 | tf32 << 9


def _bare_form(
    a: Tensor, b: Tensor, n: int, a_kind: int, b_kind: int, c_kind: int, tf32: bool = False
) -> Tensor:
    return bare_mm(a, b, how(a_kind, b_kind, c_kind, tf32))


#: The op, by the shortest way.
quick_mm = quick(_mm, 2, _bare_form)


def transposed(x: Tensor, kind: int) -> Operand:
    """The transpose as an operand: packed storage is only read the other way."""
    if kind == HERMITIAN:
        return x.conj(), kind
    return (x.mT if kind == DENSE else x), TRANSPOSED[kind]


def adjoint(x: Tensor, kind: int) -> Operand:
    """The conjugate transpose as an operand."""
    return (x, kind) if kind == HERMITIAN else transposed(x.conj(), kind)


def _stored_part(
    mm: Product, a: Tensor, b: Tensor, n: int, a_kind: int, b_kind: int, kind: int, *tf32: bool
) -> Tensor:
    """The adjoint of reading an operand: from the product of a and b to what ``kind`` stores."""
    if kind == DENSE:
        return mm(a, b, n, a_kind, b_kind, DENSE, *tf32)

    def lower(a: Tensor, b: Tensor, a_kind: int, b_kind: int) -> Tensor:
        return mm(a, b, n, a_kind, b_kind, LOWER, *tf32)

    if kind in _TRIANGLES:
        return lower(*_of_triangle(a, b, a_kind, b_kind, kind))
    flip = adjoint if kind == HERMITIAN else transposed
    if a_kind == b_kind == DENSE and 4 * a.shape[-1] <= n and a.shape[:-2] == b.shape[:-2]:
        # One product of twice as many terms writes its result once: a b + b' a' = [a b'] [b a'].
        bt, at, _, _ = _flipped(a, b, a_kind, b_kind, flip)
        both = lower(torch.cat((a, bt), -1), torch.cat((b, at), -2), DENSE, DENSE)
        return halve_diagonal(both, n, kind)
    mirrored = lower(*_flipped(a, b, a_kind, b_kind, flip))
    return halve_diagonal(lower(a, b, a_kind, b_kind) + mirrored, n, kind)


def _flipped(
    a: Tensor, b: Tensor, a_kind: int, b_kind: int, flip: Callable[[Tensor, int], Operand]
) -> Operands:
    """The operands of the transpose, or the adjoint, of a product."""
    (at, at_kind), (bt, bt_kind) = flip(a, a_kind), flip(b, b_kind)
    return bt, at, bt_kind, at_kind


def _of_triangle(a: Tensor, b: Tensor, a_kind: int, b_kind: int, kind: int) -> Operands:
    """The operands whose product's lower triangle is what a triangle of that kind stores."""
    if kind == LOWER:
        return a, b, a_kind, b_kind
    return _flipped(a, b, a_kind, b_kind, transposed)


def _with_matrices(adjoint: AdjointBy, own: int) -> AdjointBy:
    """An adjoint in terms of matrices, made to serve where operands are vectors.

    Args:
        adjoint: for the operand at the place ``own``, in terms of matrices.
        own: 0 for the left operand, 1 for the right one.
    """
    other = 1 - own

    def grad_of(grad: Tensor, args: Sequence[Any], shape: torch.Size, mm: Product) -> Tensor:
        is_vector = args[3 + own] == DENSE and len(shape) == 1
        beside_vector = args[3 + other] == DENSE and args[other].dim() == 1
        if not (is_vector or beside_vector):
            return adjoint(grad, args, shape, mm)
        row, column = (beside_vector, is_vector) if own else (is_vector, beside_vector)
        grad = grad.unsqueeze(-1) if column else grad
        grad = grad.unsqueeze(-2) if row else grad
        if beside_vector:
            args = list(args)
            args[other] = args[other].unsqueeze(_MISSING[other])
        if not is_vector:
            return adjoint(grad, args, shape, mm)
        matrix = torch.Size((*shape, 1) if own else (1, *shape))
        return adjoint(grad, args, matrix, mm).squeeze(_MISSING[own])

    return grad_of


def _grad_a(grad: Tensor, args: Sequence[Any], shape: torch.Size, mm: Product) -> Tensor:
    _, b, n, a_kind, b_kind, c_kind, *tf32 = args  # Left out where it has its default.
    if b_kind == c_kind == DENSE and b.dim() > 2 and len(shape) == (2 if a_kind == DENSE else 1):
        # One matrix for the whole batch: the sum over the batch joins the sum over the columns.
        b, grad = (
            x.movedim(-2, 0).reshape(x.shape[-2], x.shape[:-2].numel() * x.shape[-1])
            for x in (b, grad)
        )
    bh, bh_kind = adjoint(b, b_kind)
    return _stored_part(mm, grad, bh, n, c_kind, bh_kind, a_kind, *tf32)


def _grad_b(grad: Tensor, args: Sequence[Any], shape: torch.Size, mm: Product) -> Tensor:
    a, _, n, a_kind, b_kind, c_kind, *tf32 = args
    if a_kind == c_kind == DENSE and a.dim() > 2 and len(shape) == (2 if b_kind == DENSE else 1):
        # One matrix for the whole batch, as in a linear layer: the sum over the batch joins the
        # sum over the rows, in one taller product.
        rows = prod(a.shape[:-1])
        a, grad = (x.reshape(rows, x.shape[-1]) for x in (a, grad))
    ah, ah_kind = adjoint(a, a_kind)
    return _stored_part(mm, ah, grad, n, ah_kind, c_kind, b_kind, *tf32)


def _both_grads(grad: Tensor, args: Sequence[Any]) -> tuple[Tensor, Tensor] | None:
    """Both gradients of a product of triangles, whose kernels on a GPU read ``grad`` together."""
    a, b, n, a_kind, b_kind, c_kind, *tf32 = args
    if c_kind != LOWER or {a_kind, b_kind} - _TRIANGLES:
        return None
    if not grad.dtype == a.dtype == b.dtype or torch.is_autocast_enabled("cuda"):
        return None
    (ah, ah_kind), (bh, bh_kind) = adjoint(a, a_kind), adjoint(b, b_kind)
    x, y, x_kind, y_kind = _of_triangle(grad, bh, c_kind, bh_kind, a_kind)
    z, w, z_kind, w_kind = _of_triangle(ah, grad, ah_kind, c_kind, b_kind)
    return _mm_pair(x, y, z, w, n, x_kind, y_kind, z_kind, w_kind, *tf32)


_ADJOINTS = (_with_matrices(_grad_a, 0), _with_matrices(_grad_b, 1))


def _by_op(adjoint: AdjointBy) -> Adjoint:
    return lambda grad, args, shape: adjoint(grad, args, shape, _mm)


class _Step(NamedTuple):
    """One gradient of a product of single matrices, as the bare op computes it.

    Attributes:
        grad_first: whether the gradient of the result is the left operand; the other is an operand
            of the product.
        of_grad: what makes that operand of it, where anything has to.
        of_other: the same of the operand.
        how: what the op is told.
    """

    grad_first: bool
    of_grad: Callable[[Tensor], Tensor] | None
    of_other: Callable[[Tensor], Tensor] | None
    how: int


def _as_row(x: Tensor) -> Tensor:
    return x.unsqueeze(-2)


def _as_column(x: Tensor) -> Tensor:
    return x.unsqueeze(-1)


@cache
def _step(
    own: int, a_kind: int, b_kind: int, c_kind: int, tf32: bool, has_vector: bool
) -> _Step | None:
    """How the gradient of operand ``own`` is computed where elements are real.

    Args:
        own: 0 for the left operand, 1 for the right one.
        a_kind: how the left operand is stored.
        b_kind: how the right one is.
        c_kind: how the result is.
        tf32: whether TF32 will do.
        has_vector: whether a dense operand is a vector.

    Returns:
        None where it takes more than one product.
    """
    kinds = (a_kind, b_kind)
    kind, other = kinds[own], kinds[1 - own]
    if kind in MIRRORED or HERMITIAN in (other, c_kind):
        return None
    if has_vector and a_kind == b_kind == DENSE:
        return None
    # An upper triangle stores the lower one of its transpose.
    flipped = kind == UPPER
    of_grad = of_other = None
    if not has_vector:
        of_grad = _transpose if flipped and c_kind == DENSE else None
        of_other = _transpose if not flipped and other == DENSE else None
    elif other == DENSE:
        of_grad = _as_row if own ^ flipped else _as_column
        of_other = _as_column if own ^ flipped else _as_row
    told = (TRANSPOSED[c_kind] if flipped else c_kind, other if flipped else TRANSPOSED[other])
    grad_first = (own == 0) != flipped
    stored = DENSE if kind == DENSE else LOWER
    return _Step(
        grad_first, of_grad, of_other, how(*(told if grad_first else told[::-1]), stored, tf32)
    )


def _transpose(x: Tensor) -> Tensor:
    return x.mT


def _single_grads(grad: Tensor, call: Call) -> Sequence[Tensor | None] | None:
    """The gradients of a product of single real matrices, or None of others.

    What the adjoints decide is decided once for all products alike.
    """
    _, _, _, a_kind, b_kind, c_kind, *tf32 = call.args
    a_dim, b_dim = map(len, call.shapes)
    has_vector = (a_kind == DENSE and a_dim == 1) or (b_kind == DENSE and b_dim == 1)
    if a_dim > (2 if a_kind == DENSE else 1) or b_dim > (2 if b_kind == DENSE else 1):
        return None
    if grad.is_complex():
        return None
    found: list[Tensor | None] = []
    for own, needed in enumerate(call.needs):
        if not needed:
            found.append(None)
            continue
        step = _step(own, a_kind, b_kind, c_kind, *(tf32 or (False,)), has_vector)
        if step is None:
            return None
        grad_first, of_grad, of_other, told = step
        x = grad if of_grad is None else of_grad(grad)
        y = call.args[1 - own]
        y = y if of_other is None else of_other(y)
        found.append(bare_mm(x, y, told) if grad_first else bare_mm(y, x, told))
    return found


def _grads_alone(grad: Tensor, call: Call) -> Sequence[Tensor | None] | None:
    """The gradients by products without derivatives, or None where anybody takes part in them."""
    if ops_are_watched():
        return None  # A mode would see what comes before the first product twice.
    both = _both_grads(grad, call.args) if grad.is_cuda and all(call.needs) else None
    if both is not None:
        return both
    wanted = zip(_ADJOINTS, call.shapes, call.needs, strict=True)
    try:
        return _single_grads(grad, call) or [
            f(grad, call.args, shape, _bare_form) if need else None for f, shape, need in wanted
        ]
    except (NotBareError, NotImplementedError):
        return None


register_multilinear(_mm, *map(_by_op, _ADJOINTS), alone=_grads_alone)


@torch.library.register_fake("packedtri::mm_pair", lib=library)
def _(a: Tensor, b: Tensor, c: Tensor, d: Tensor, n: int, *rest: int) -> tuple[Tensor, Tensor]:
    a_kind, b_kind, c_kind, d_kind, *tf32 = rest
    return (
        _mm(a, b, n, a_kind, b_kind, LOWER, *tf32),
        _mm(c, d, n, c_kind, d_kind, LOWER, *tf32),
    )


@torch.library.register_vmap("packedtri::mm", lib=library)
def _(
    info: Any, in_dims: Sequence[int | None], a: Tensor, b: Tensor, n: int, *rest: int
) -> tuple[Tensor, int]:
    kinds = rest[:2]
    (a, a_dim, row), (b, b_dim, column) = (
        _mapped_matrix(x, dim, kind, missing)
        for x, dim, kind, missing in zip((a, b), in_dims, kinds, _MISSING, strict=False)
    )
    c = _mm(*batch_first((a, b), (a_dim, b_dim), kinds), n, *rest)
    c = c.squeeze(-2) if row else c
    return (c.squeeze(-1) if column else c), 0


def _mapped_matrix(
    x: Tensor, dim: int | None, kind: int, missing: int
) -> tuple[Tensor, int | None, bool]:
    """An operand under vmap, its mapped dimension, and whether it was a vector.

    Beside the mapped dimension a vector would look like a matrix, so it becomes one.
    """
    if kind != DENSE or x.dim() != (1 if dim is None else 2):
        return x, dim, False
    if dim is None:
        return x.unsqueeze(missing), None, True
    return x.movedim(dim, 0).unsqueeze(missing), 0, True


def batch_first(
    operands: Sequence[Tensor], in_dims: Sequence[int | None], kinds: Sequence[int]
) -> list[Tensor]:
    """Bring the dimensions that vmap maps before all other batch dimensions of any operand."""
    ranks = [
        len(_batch(x, kind)) - (dim is not None)
        for x, dim, kind in zip(operands, in_dims, kinds, strict=False)
    ]
    return [
        x if dim is None else _moved_first(x, dim, max(ranks) - rank)
        for x, dim, rank in zip(operands, in_dims, ranks, strict=False)
    ]


def _moved_first(x: Tensor, dim: int, missing: int) -> Tensor:
    x = x.movedim(dim, 0)
    return x.reshape(x.shape[0], *(1,) * missing, *x.shape[1:])


def tf32_allowed(x: Tensor) -> bool:
    """Whether torch would round ``x`` to TF32 in a product."""
    return x.is_cuda and x.dtype in (torch.float32, torch.complex64) and tf32_is_set()


_AUTOCAST_DEVICES = ("cpu", "cuda")


def autocast_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which ``x`` enters a product: as for torch.mm, autocast leaves float64 alone."""
    device = x.device.type
    if device not in _AUTOCAST_DEVICES or not torch.is_autocast_enabled(device):
        return x.dtype
    eligible = x.is_floating_point() and x.dtype != torch.float64
    return torch.get_autocast_dtype(device) if eligible else x.dtype


def cast_as_mv(x: Tensor) -> AbstractContextManager[Any]:
    """A context in which autocast leaves products alone that it leaves alone in torch.mv."""
    return without_autocast("cpu") if x.device.type == "cpu" else nullcontext()


def without_autocast(device: str) -> AbstractContextManager[Any]:
    """A context without autocast on devices of a type."""
    if device not in _AUTOCAST_DEVICES or not torch.is_autocast_enabled(device):
        return nullcontext()
    return torch.autocast(device, enabled=False)


def _register_autocast(device_type: str) -> None:
    """Cast as torch.mm does under autocast: floating operands but float64 to its dtype."""
    key = f"Autocast{device_type.upper()}"
    excluded = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def cast_mm(a: Tensor, b: Tensor, *rest: int) -> Tensor:
        # Autocast reads as disabled below its key, so the dtypes are asked for first.
        a, b = (x.to(autocast_dtype(x)) for x in (a, b))
        with torch._C._ExcludeDispatchKeyGuard(excluded):
            return _mm(a, b, *rest)

    library.impl("mm", cast_mm, key)


for _device_type in _AUTOCAST_DEVICES:
    _register_autocast(_device_type)
