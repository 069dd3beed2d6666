"""Text of a packed type: the triangle as a triangle, without unpacking the matrix."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._tensor_str import PRINT_OPTS, _Formatter

from packedtri import _nodes, layout
from packedtri._bands import real_diagonal
from packedtri._dtensor import is_spread
from packedtri._recording import carries_autograd
from packedtri.tensor import PackedTensor

_ELLIPSIS = "..."
# Texts that do not tell the shape.
_WITHOUT_VALUES = (_ELLIPSIS, "[]")


def text(t: PackedTensor) -> str:
    """What ``repr`` prints, in the manner of torch; structural zeros are dots.

    Example:
        >>> from packedtri import LowerTriangular
        >>> print(LowerTriangular.eye(2))
        LowerTriangular([[1.,  .],
                         [0., 1.]])
    """
    with torch._C.DisableTorchFunctionSubclass():
        name = type(t).__name__
        body = _body(t, len(name) + 1)
        lines = f"{name}({body}{_suffix(t, body not in _WITHOUT_VALUES)})"
        return f"Parameter containing:\n{lines}" if getattr(t, "_is_param", False) else lines


def _body(t: PackedTensor, indent: int) -> str:
    packed = _nodes.settled(t._packed)
    if packed.is_meta or carries_autograd(packed) or type(packed) is not Tensor:
        return _ELLIPSIS
    if t.numel() == 0:
        return "[]"
    packed = real_diagonal(packed.detach().resolve_conj(), t.kind, t._n)
    elide = t.numel() > PRINT_OPTS.threshold
    return _batch(packed, t, elide, indent)


def _batch(packed: Tensor, t: PackedTensor, elide: bool, indent: int) -> str:
    """Nested lists over the batch dimensions, torch's blank lines between them."""
    shown = [_shown(size, elide) for size in (*packed.shape[:-1], t._n)]
    formatter = _formatter(packed, shown)
    return _nested(packed, t, shown, formatter, indent)


def _shown(size: int, elide: bool) -> list[int | None]:
    """The indices that are printed, None for those left out."""
    edge = PRINT_OPTS.edgeitems
    if not elide or size <= 2 * edge:
        return list(range(size))
    return [*range(edge), None, *range(size - edge, size)]


class _ComplexFormatter:
    """Real and imaginary parts, each in its own format."""

    def __init__(self, elements: Tensor) -> None:
        self.parts = _Formatter(elements.real), _Formatter(elements.imag)

    def format(self, value: complex) -> str:
        real, imag = self.parts[0].format(value.real), self.parts[1].format(value.imag).lstrip()
        return f"{real}{'' if imag.startswith('-') else '+'}{imag}j"

    def width(self) -> int:
        return self.parts[0].width() + self.parts[1].width() + 1


def _formatter(packed: Tensor, shown: list[list[int | None]]) -> _Formatter | _ComplexFormatter:
    """One number format for all elements that are printed."""
    for dim, indices in enumerate(shown[:-1]):
        keep = torch.tensor([i for i in indices if i is not None], device=packed.device)
        packed = packed.index_select(dim, keep)
    rows = [i for i in shown[-1] if i is not None]
    stored = [layout.offset(i, j) for i in rows for j in rows if j <= i]
    elements = packed[..., torch.tensor(stored, device=packed.device)]
    return (_ComplexFormatter if packed.is_complex() else _Formatter)(elements.cpu())


def _nested(
    packed: Tensor, t: PackedTensor, shown: list[list[int | None]], formatter: Any, indent: int
) -> str:
    if packed.dim() == 1:
        rows = [_row(packed, t, i, shown[0], formatter, indent + 1) for i in shown[0]]
        return "[" + (",\n" + " " * (indent + 1)).join(rows) + "]"
    parts = [
        _ELLIPSIS if i is None else _nested(packed[i], t, shown[1:], formatter, indent + 1)
        for i in shown[0]
    ]
    separator = "," + "\n" * packed.dim() + " " * (indent + 1)
    return "[" + separator.join(parts) + "]"


def _row(
    packed: Tensor,
    t: PackedTensor,
    i: int | None,
    columns: list[int | None],
    formatter: Any,
    indent: int,
) -> str:
    """A row that begins at column ``indent``, on as many lines as torch would need."""
    if i is None:
        return _ELLIPSIS
    width = formatter.width()
    cells = [
        _ELLIPSIS if j is None else _cell(packed, t, i, j, formatter).rjust(width) for j in columns
    ]
    each = max(1, (PRINT_OPTS.linewidth - indent) // (width + len(", ")))
    lines = [", ".join(cells[first : first + each]) for first in range(0, len(cells), each)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _cell(packed: Tensor, t: PackedTensor, i: int, j: int, formatter: _Formatter) -> str:
    zero = j > i if t.kind == layout.LOWER else j < i
    if zero and t.kind not in layout.MIRRORED:
        return "."
    value = packed[layout.offset(max(i, j), min(i, j))].item()
    conjugated = t.kind == layout.HERMITIAN and j > i
    return formatter.format(value.conjugate() if conjugated else value)


def _suffix(t: PackedTensor, shape_shows: bool) -> str:
    parts = []
    if not shape_shows:
        parts.append(f"size={tuple(t.shape)}")
    if is_spread(t._packed):
        parts.append(f"placements={t._packed.placements}")
    if t.device.type != torch._C._get_default_device():
        parts.append(f"device='{t.device}'")
    default = torch.get_default_dtype()
    if t.dtype not in (default, default.to_complex()):
        parts.append(f"dtype={t.dtype}")
    if t.grad_fn is not None:
        name = type(t.grad_fn).__name__
        parts.append(f"grad_fn=<{'FromPackedBackward' if name == '_FromPackedBackward' else name}>")
    elif t.requires_grad:
        parts.append("requires_grad=True")
    return "".join(f", {part}" for part in parts)
