"""The op ``mm``: its shape rule, derivatives, vmap and autocast.

The derivative of a product is another product. With C = P(op(A) op(B)), P keeping the stored part,
the gradient of op(A) is G op(B)^H and that of op(B) is op(A)^H G, each cut to what its operand
stores. A packed Upper operand is the transpose of what is stored, so its gradient is transposed
too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from packedtri import layout
from packedtri._autograd import library, register_multilinear
from packedtri.layout import DENSE, LOWER, UPPER

_mm = torch.ops.packedtri.mm.default
_FLIPPED = {LOWER: UPPER, UPPER: LOWER, DENSE: DENSE}


def _batch(x: Tensor, kind: int) -> torch.Size:
    return x.shape[:-2] if kind == DENSE else x.shape[:-1]


@torch.library.register_fake("packedtri::mm", lib=library)
def _(a: Tensor, b: Tensor, n: int, a_kind: int, b_kind: int, c_kind: int) -> Tensor:
    batch = torch.broadcast_shapes(_batch(a, a_kind), _batch(b, b_kind))
    if c_kind == DENSE:
        rows = a.shape[-2] if a_kind == DENSE else n
        columns = b.shape[-1] if b_kind == DENSE else n
        return a.new_empty((*batch, rows, columns))
    # A packed operand says the length in the terms that a compiler already knows.
    count = next(
        (x.shape[-1] for x, kind in ((a, a_kind), (b, b_kind)) if kind != DENSE), layout.numel(n)
    )
    return a.new_empty((*batch, count))


def _transposed(x: Tensor, kind: int) -> tuple[Tensor, int]:
    """The transpose as an operand: packed storage is only read the other way."""
    return (x.mT if kind == DENSE else x), _FLIPPED[kind]


def _grad_a(grad: Tensor, args: Sequence[Any], shape: torch.Size) -> Tensor:
    _, b, n, a_kind, b_kind, c_kind = args
    if a_kind == UPPER:
        g, g_kind = _transposed(grad, c_kind)
        return _mm(b.conj(), g, n, b_kind, g_kind, LOWER)
    bh, bh_kind = _transposed(b.conj(), b_kind)
    return _mm(grad, bh, n, c_kind, bh_kind, a_kind)


def _grad_b(grad: Tensor, args: Sequence[Any], shape: torch.Size) -> Tensor:
    a, _, n, a_kind, b_kind, c_kind = args
    if a_kind == c_kind == DENSE and a.dim() > 2 and len(shape) == (2 if b_kind == DENSE else 1):
        # One matrix for the whole batch, as in a linear layer: the sum over the batch joins the
        # sum over the rows, in one taller product.
        a, grad = (x.reshape(-1, x.shape[-1]) for x in (a, grad))
    if b_kind == UPPER:
        g, g_kind = _transposed(grad, c_kind)
        return _mm(g, a.conj(), n, g_kind, a_kind, LOWER)
    ah, ah_kind = _transposed(a.conj(), a_kind)
    return _mm(ah, grad, n, ah_kind, c_kind, b_kind)


register_multilinear(_mm, _grad_a, _grad_b)


@torch.library.register_vmap("packedtri::mm", lib=library)
def _(
    info: Any, in_dims: Sequence[int | None], a: Tensor, b: Tensor, n: int, *kinds: int
) -> tuple[Tensor, int]:
    a, b = batch_first((a, b), in_dims, kinds)
    return _mm(a, b, n, *kinds), 0


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


_AUTOCAST_DEVICES = ("cpu", "cuda")


def autocast_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which ``x`` enters a product: as for torch.mm, autocast leaves float64 alone."""
    device = x.device.type
    if device not in _AUTOCAST_DEVICES or not torch.is_autocast_enabled(device):
        return x.dtype
    eligible = x.is_floating_point() and x.dtype != torch.float64
    return torch.get_autocast_dtype(device) if eligible else x.dtype


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
