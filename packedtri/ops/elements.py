"""Elements of the matrices by their positions: where they are stored, reading and writing them.

Positions are index tensors i and j that broadcast. What is read costs memory in proportion to what
is asked for, not to n x n, and is differentiable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from packedtri import _bands, _nodes, layout
from packedtri._dtensor import beside, whole
from packedtri._recording import is_plain, values_visible
from packedtri._sharing import check_writable, shares_memory
from packedtri._values import describe
from packedtri.ops.aten import is_written_directly, writable, written_directly
from packedtri.tensor import PackedTensor

P = TypeVar("P", bound=PackedTensor)


def positions(i: Tensor, j: Tensor) -> Tensor:
    """Where element (i, j) of a symmetric matrix is stored, of the shape of i and j together."""
    return layout.offset(torch.maximum(i, j), torch.minimum(i, j))


def is_stored(kind: int, i: Tensor, j: Tensor) -> Tensor | None:
    """Which of the elements (i, j) are no structural zeros; None for all of them."""
    if kind in layout.MIRRORED:
        return None
    return i >= j if kind == layout.LOWER else i <= j


def read(t: PackedTensor, i: Tensor, j: Tensor) -> Tensor:
    """The elements (i, j) of each matrix.

    Args:
        t: shape (*batch, n, n).
        i, j: indices from 0 to n - 1, of shapes that broadcast to ``shape``.

    Returns:
        shape (*batch, *shape), dense.
    """
    packed, at = _nodes.to_elements(t), positions(i, j)
    values = packed.index_select(-1, beside(packed, at.reshape(-1))).reshape(
        (*packed.shape[:-1], *at.shape)
    )
    if t.kind == layout.HERMITIAN:
        return as_stored(values, i, j)
    stored = is_stored(t.kind, i, j)
    return values if stored is None else values.where(beside(values, stored), 0)


def as_stored(values: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Elements (i, j) of a Hermitian matrix as it stores them, or stored ones as it has them."""
    if not values.is_complex():
        return values
    return torch.where(beside(values, i < j), values.conj(), values)


def check_real(t: PackedTensor, values: Tensor) -> None:
    """Raise where the diagonal of a Hermitian would have to hold imaginary parts."""
    given = t.kind == layout.HERMITIAN and values.is_complex() and values_visible(values)
    if given and whole(values.detach()).imag.any():
        raise ValueError(
            f"[{type(t).__name__}] its diagonal is real and cannot hold imaginary parts. "
            "Convert with .to_dense() first"
        )


def check_not_complex(name: str, t: PackedTensor, values: Tensor) -> None:
    """Raise where real matrices would have to hold complex values."""
    if values.is_complex() and not t._packed.is_complex():
        raise ValueError(f"[{name}] expected real values for {describe(t)} of {t._packed.dtype}")


def stores_diagonal(kind: int, offset: int) -> bool:
    """Whether the diagonal j - i = offset belongs to the triangle that this kind reads."""
    return {layout.LOWER: offset <= 0, layout.UPPER: offset >= 0}.get(kind, True)


def diagonal(t: PackedTensor, offset: int = 0) -> Tensor:
    """The diagonal j - i = offset of each matrix, shape (*batch, n - |offset|), a copy."""
    if not stores_diagonal(t.kind, offset):
        count, packed = max(t.n - abs(offset), 0), t._packed
        if type(packed) is Tensor and is_plain(t, packed):
            return packed.new_zeros((*packed.shape[:-1], count))
        k = torch.arange(count, device=packed.device)
        return read(t, k + max(-offset, 0), k + max(offset, 0))
    packed = _nodes.to_packed(t)
    values = _bands.diagonal(packed, t.n, abs(offset))
    if t.kind != layout.HERMITIAN or not packed.is_complex() or offset < 0:
        return values
    return values.conj_physical() if offset else values.real.to(values.dtype)


def with_diagonal(t: P, values: Tensor, offset: int = 0) -> P:
    """A copy of ``t`` with another diagonal j - i = offset, which it must store.

    Args:
        values: of a shape that broadcasts to (*batch, n - |offset|).
    """
    check_real(t, values)
    packed = _nodes.to_packed(t)
    below = abs(offset)
    source = values.to(packed.dtype).expand(*packed.shape[:-1], t.n - below)
    changed = _bands.replace_diagonal(packed, source, t.n, below)
    return _nodes.from_packed(type(t), changed, t.n)


def set_diagonal_(t: P, values: Tensor) -> P:
    """Write the main diagonal in place; ``values`` broadcast to (*batch, n)."""
    check_real(t, values)
    source = values.to(t._packed.dtype).expand(*t._packed.shape[:-1], t.n)
    if not change_diagonal_(t, source, Tensor.index_copy_):
        t.copy_(with_diagonal(t, values))
    return t


def change_diagonal_(t: PackedTensor, values: Tensor, change: Callable[..., Tensor]) -> bool:
    """Change nothing but the main diagonal, where nobody has to know what was there before.

    Otherwise nothing is changed, and the answer is False.

    Args:
        values: shape (*batch, n), of the dtype of ``t``.
        change: ``Tensor.index_add_`` or ``Tensor.index_copy_``.
    """
    if not (is_written_directly(t) and is_plain(values)):
        return False
    if shares_memory(values, t._packed):
        values = values.clone()
    check_writable(t)
    packed = writable(t)
    change(packed, -1, _bands.diagonal_index(t.n, packed.device), values)
    written_directly(t)
    return True


def band(t: PackedTensor, cls: type[P], lowest: int, highest: int) -> P:
    """A copy as ``cls`` without the diagonals outside of lowest <= j - i <= highest."""
    packed, n, hermitian = _nodes.to_packed(t), t.n, t.kind == layout.HERMITIAN
    if hermitian and cls.kind == layout.UPPER:
        packed = packed.conj()
    if cls.kind != layout.UPPER:
        lowest, highest = -highest, -lowest
    kept = _bands.scale_band(packed, n, max(lowest, 0), min(highest, n), 1, 0, hermitian)
    return _nodes.from_packed(cls, kept, n)
