"""Packing and unpacking, of matrices and of their blocks: shape rules, derivatives, ``from_dense``.

For each kind ``pack`` is the transpose of ``unpack`` as a linear map (for SYMMETRIC it adds the two
halves, for HERMITIAN one to the conjugate of the other), so each is the other's derivative. All
coefficients are real, so nothing else is conjugated; over the reals those of HERMITIAN are linear
too. So it is for ``pack_block`` and ``unpack_block``, with zeros outside of the block, and for
``pack_rows`` and ``unpack_rows``, which know no other rows of a lower triangle than the given ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any, TypeVar

import torch
from torch import Tensor

from packedtri import _bands, _nodes, _tracing, layout
from packedtri._autograd import library, quick, register_multilinear, register_vmap_over_batch
from packedtri._bands import real_diagonal
from packedtri._dtensor import meet, whole, whole_if_tiny
from packedtri._typed import attempt
from packedtri._values import describe
from packedtri.tensor import PackedTensor, check_dtype

P = TypeVar("P", bound=PackedTensor)

_pack = torch.ops.packedtri.pack.default
_quick_pack = quick(_pack)
_unpack = torch.ops.packedtri.unpack.default
_pack_block = torch.ops.packedtri.pack_block.default
_unpack_block = torch.ops.packedtri.unpack_block.default
_pack_rows = torch.ops.packedtri.pack_rows.default
_unpack_rows = torch.ops.packedtri.unpack_rows.default


@torch.library.register_fake("packedtri::pack", lib=library)
def _(dense: Tensor, kind: int) -> Tensor:
    return dense.new_empty((*dense.shape[:-2], layout.numel(dense.shape[-1])))


@torch.library.register_fake("packedtri::unpack", lib=library)
def _(packed: Tensor, n: int, kind: int) -> Tensor:
    return packed.new_empty((*packed.shape[:-1], n, n))


@torch.library.register_fake("packedtri::pack_block", lib=library)
def _(dense: Tensor, n: int, kind: int, top: int, left: int) -> Tensor:
    return dense.new_empty((*dense.shape[:-2], layout.numel(n)))


@torch.library.register_fake("packedtri::unpack_block", lib=library)
def _(packed: Tensor, n: int, kind: int, top: int, left: int, rows: int, cols: int) -> Tensor:
    return packed.new_empty((*packed.shape[:-1], rows, cols))


@torch.library.register_fake("packedtri::write_block_", lib=library)
def _(packed: Tensor, dense: Tensor, n: int, kind: int, top: int, left: int) -> None:
    return None


@torch.library.register_fake("packedtri::unpack_rows", lib=library)
def _(rows: Tensor, first: int, last: int) -> Tensor:
    return rows.new_empty((*rows.shape[:-1], last - first, last))


@torch.library.register_fake("packedtri::pack_rows", lib=library)
def _(dense: Tensor, first: int) -> Tensor:
    count = layout.numel(dense.shape[-1]) - layout.numel(first)
    return dense.new_empty((*dense.shape[:-2], count))


for _op in (_pack, _unpack, _pack_block, _unpack_block, _pack_rows, _unpack_rows):
    register_vmap_over_batch(_op)


def _pack_adjoint(grad: Tensor, args: Sequence[Any], shape: torch.Size) -> Tensor:
    return _unpack(grad, shape[-1], args[1])


def _unpack_adjoint(grad: Tensor, args: Sequence[Any], shape: torch.Size) -> Tensor:
    # Gradients of torch.nn.functional.embedding(…, sparse=True) and the like.
    return _pack(grad if grad.layout is torch.strided else grad.to_dense(), args[2])


def _pack_block_adjoint(grad: Tensor, args: Sequence[Any], shape: torch.Size) -> Tensor:
    return _unpack_block(grad, *args[1:], *shape[-2:])


def _unpack_block_adjoint(grad: Tensor, args: Sequence[Any], shape: torch.Size) -> Tensor:
    return _pack_block(grad, *args[1:5])


def _pack_rows_adjoint(grad: Tensor, args: Sequence[Any], shape: torch.Size) -> Tensor:
    return _unpack_rows(grad, args[1], shape[-1])


def _unpack_rows_adjoint(grad: Tensor, args: Sequence[Any], shape: torch.Size) -> Tensor:
    return _pack_rows(grad, args[1])


register_multilinear(_pack, _pack_adjoint)
register_multilinear(_unpack, _unpack_adjoint)
register_multilinear(_pack_block, _pack_block_adjoint)
register_multilinear(_unpack_block, _unpack_block_adjoint)
register_multilinear(_pack_rows, _pack_rows_adjoint)
register_multilinear(_unpack_rows, _unpack_rows_adjoint)


def from_dense(cls: type[P], x: Tensor, check: bool, caller: str = "") -> P:
    """See :meth:`PackedTensor.from_dense`; ``caller`` is who else checks what it is given."""
    name = caller or f"{cls.__name__}.from_dense"
    if not isinstance(x, Tensor) or isinstance(x, PackedTensor):
        advice = ". Convert it with .to_dense()" if isinstance(x, PackedTensor) else ""
        raise TypeError(
            f"[{name}] expected a dense tensor (*batch, n, n); got {describe(x)}{advice}"
        )
    check_dtype(name, x)
    meet(x)
    if x.dim() < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"[{name}] expected square matrices (*batch, n, n); got {tuple(x.shape)}")
    # Mirrored types read one half as well: packing with their own kind would add the two.
    n = x.shape[-1]
    kind = layout.UPPER if cls.kind == layout.UPPER else layout.LOWER
    if not check:
        found: P | None = attempt(_pack, cls, n, (x,), (x,), kind)
        if found is not None:
            return found
    half = _quick_pack(x, kind)
    if check and _is_mapped(x):
        raise NotImplementedError(
            f"[{name}] check=True looks at values, which torch.vmap shows nobody. Pass check=False"
        )
    if check and not fits(cls, x.detach(), half.detach()):
        way = f"Pack it with {cls.__name__}.from_dense" if caller else "Pass check=False"
        _check_other_half(cls, name, x.detach(), f"{way} to ignore that half")
    return _nodes.from_packed(cls, real_diagonal(half, cls.kind, n), n)


def fits(cls: type[PackedTensor], x: Tensor, half: Tensor, exactly: bool = False) -> bool:
    """Whether the other half of ``x`` is what the type makes of the one that it stores.

    False may also mean that infinities and nan are to be looked at one by one.

    Args:
        cls: the type.
        x: shape (*batch, n, n).
        half: what the type would store of it.
        exactly: refuse rounding.
    """
    if half.numel() == 0:
        return True
    n = x.shape[-1]
    if cls.kind not in layout.MIRRORED:
        return not bool(whole(_largest(_bands.without_diagonal(_other_half(cls, x), n)) != 0).any())
    difference = _largest(_other_half(cls, x).sub_(half))
    worst = float(whole(difference).max())
    if exactly or worst == 0 or not isfinite(worst):
        # Infinities have no difference.
        return worst == 0 or (not isfinite(worst) and torch.equal(half, _other_half(cls, x)))
    scale = torch.maximum(_largest(half), _largest(_other_half(cls, x)))
    return bool(whole(difference <= n * torch.finfo(x.dtype).eps * scale).all())


def _other_half(cls: type[PackedTensor], x: Tensor) -> Tensor:
    """The half that the type does not store, in the order of the other one: no dense temporary."""
    other = _quick_pack(x, layout.LOWER if cls.kind == layout.UPPER else layout.UPPER)
    return other.conj_physical_() if cls.kind == layout.HERMITIAN else other


def _largest(packed: Tensor) -> Tensor:
    """The largest absolute value of each triangle, or nan where there is one, shape (*batch)."""
    packed = whole_if_tiny(packed)
    if packed.is_complex():
        return packed.abs().amax(-1)
    # Several times as fast as torch.aminmax or torch.equal, and with no temporary.
    return torch.maximum(-packed.amin(-1), packed.amax(-1))


def _is_mapped(x: Tensor) -> bool:
    """Whether torch.vmap hides the values of a tensor, under whatever other transforms."""
    functorch = torch._C._functorch
    while not _tracing.is_compiling() and functorch.is_functorch_wrapped_tensor(x):
        if functorch.is_batchedtensor(x):
            return True
        x = functorch.get_unwrapped(x)
    return False


def _check_other_half(cls: type[PackedTensor], name: str, x: Tensor, advice: str) -> None:
    """Raise at the first element that the type would lose or change."""
    mirrored = cls.kind in layout.MIRRORED
    mirror = x.mH if cls.kind == layout.HERMITIAN else x.mT
    if mirrored:
        n, eps = x.shape[-1], torch.finfo(x.dtype).eps
        finite = x.abs().nan_to_num(0, posinf=0)
        scale = finite.amax((-2, -1), keepdim=True) if n else finite
        close = (x - mirror).abs() <= n * eps * scale
        wrong = ~(close | (x == mirror) | (x.isnan() & mirror.isnan()))
    else:
        wrong = (x.triu(1) if cls.kind == layout.LOWER else x.tril(-1)) != 0
    wrong = whole(wrong)
    if not wrong.any():
        return
    at = tuple(wrong.nonzero()[0].tolist())
    twin = (*at[:-2], at[-1], at[-2])
    expected = f"{mirror[at].item()} as at {twin}" if mirrored else "0"
    raise ValueError(
        f"[{name}] element {at} is {x[at].item()}, but a {cls.__name__} has {expected}. {advice}"
    )
