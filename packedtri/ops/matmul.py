"""The rows of ``@``, ``torch.matmul``, ``mm``, ``bmm`` and ``mv``.

Lower times Lower stays Lower. Upper times Upper stays Upper and swaps its operands: with U = L^T,
U1 U2 = (L2 L1)^T. A matrix times its own transpose is Symmetric, one times its own conjugate
transpose Hermitian. All other products are dense.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any, TypeVar

import torch
from torch import Tensor

from packedtri import _nodes
from packedtri._autograd import NotBareError
from packedtri._bands import real_diagonal
from packedtri._recording import is_alone, is_recorded
from packedtri._sharing import check_source
from packedtri._typed import of_elements, recorder
from packedtri._values import describe
from packedtri.dispatch import row
from packedtri.layout import DENSE, HERMITIAN, LOWER
from packedtri.ops.aten import bump_version
from packedtri.ops.dense import shape_of, takes
from packedtri.ops.dims import can_broadcast
from packedtri.ops.mm import (
    autocast_dtype,
    bare_mm,
    bare_mm_out,
    cast_as_mv,
    how,
    quick_mm,
    tf32_allowed,
)
from packedtri.tensor import (
    Hermitian,
    LowerTriangular,
    PackedTensor,
    Symmetric,
    UpperTriangular,
    check_strided,
)

_to_packed = _nodes.to_packed
_from_packed = _nodes.from_packed
_is_grad_enabled = torch.is_grad_enabled

P = TypeVar("P", bound=PackedTensor)
# (name for messages, left operand, right operand, out) -> result: out, if it was written there
Product = Callable[[str, Any, Any, Any], Tensor]

# What is asked before a product takes as long as a small one. So products that nobody transforms or
# watches are tried at once. The op raises for whatever does not go together, and only then is it
# asked here what that is.
_REFUSED = (NotBareError, NotImplementedError)
_record = recorder(torch.ops.packedtri.mm.default)


def _tried(
    check: Callable[..., int],
    told: tuple[str, Tensor, Tensor],
    cls: type[PackedTensor] | None,
    n: int,
    a: Tensor,
    p: Tensor,
    b: Tensor,
    q: Tensor,
    kinds: tuple[int, int, int, bool],
    out: Any = None,
) -> Any:
    """The product by the bare op, which one node records where autograd does; else None.

    Args:
        check: raises where the operands do not go together.
        told: its arguments: the product as the user wrote it.
        cls: the type of the result, or None for a dense one.
        n: order.
        a: the left operand.
        p: its elements, which are itself where it is dense.
        b: the right operand.
        q: its elements.
        kinds: of the operands and of the result, and whether TF32 will do.
        out: where the user wants a dense result.

    Returns:
        It is ``out`` if that is where the kernel could write.
    """
    if not is_alone((p, q)):
        return None
    try:
        if is_recorded(a, b):
            return _record(cls, n, (a, b), (p, q), (n, *kinds))
        for x in (a, b):
            if "_family" in x.__dict__ and _is_grad_enabled():
                check_source(x)  # type: ignore[arg-type]
        if out is not None and cls is None and takes(out, _result_shape(a, b), p):
            bare_mm_out(p, q, how(*kinds), out)
            bump_version(out)
            return out
        return of_elements(cls, bare_mm(p, q, how(*kinds)), n)
    except _REFUSED:
        return None
    except RuntimeError as error:
        problem = error
    check(*told)
    raise problem


def _result_shape(a: Tensor, b: Tensor) -> tuple[int, ...]:
    left, right = shape_of(a), shape_of(b)
    x, y = left[:-2], right[:-2]
    batch = torch.broadcast_shapes(x, y) if x and y and x != y else x or y
    return (*batch, *left[-2:-1], *(right[-1:] if len(right) > 1 else ()))


def _lower_lower(
    name: str, a: LowerTriangular, b: LowerTriangular, out: Any = None
) -> LowerTriangular:
    return _typed(LowerTriangular, a, LOWER, b, LOWER, (name, a, b))


def _upper_upper(
    name: str, a: UpperTriangular, b: UpperTriangular, out: Any = None
) -> UpperTriangular:
    return _typed(UpperTriangular, b, LOWER, a, LOWER, (name, a, b))


def _typed(
    cls: type[P],
    a: PackedTensor,
    a_kind: int,
    b: PackedTensor,
    b_kind: int,
    told: tuple[str, PackedTensor, PackedTensor],
) -> P:
    """The type over the lower triangle of the product of two stored triangles, read as told.

    Args:
        cls: the type.
        a: the left triangle.
        a_kind: how it is read.
        b: the right one.
        b_kind: how that is read.
        told: the product as the user wrote it, for messages.
    """
    p, q, kinds = a._packed, b._packed, (a_kind, b_kind, LOWER, tf32_allowed(a._packed))
    found: P | None = _tried(_check_packed_pair, told, cls, a._n, a, p, b, q, kinds)
    if found is not None:
        return found
    n = _check_packed_pair(*told)
    packed = quick_mm(_to_packed(a), _to_packed(b), n, *kinds)
    return _from_packed(cls, real_diagonal(packed, cls.kind, n), n)


def _mixed(name: str, a: PackedTensor, b: PackedTensor, out: Any = None) -> Tensor:
    p, q, told = a._packed, b._packed, (name, a, b)
    if p is q and _nodes.is_transpose(a, b):
        cls = Hermitian if a.kind == HERMITIAN else Symmetric
        return _typed(cls, a, a.kind, b, b.kind, told)
    if _nodes.is_adjoint(a, b):
        return _typed(Hermitian, a, a.kind, b, b.kind, told)
    kinds = a.kind, b.kind, DENSE, tf32_allowed(p)
    found: Tensor | None = _tried(_check_packed_pair, told, None, a._n, a, p, b, q, kinds, out)
    if found is not None:
        return found
    n = _check_packed_pair(*told)
    return quick_mm(_to_packed(a), _to_packed(b), n, *kinds)


def _packed_dense(name: str, a: PackedTensor, x: Tensor, out: Any = None) -> Tensor:
    p, told, kinds = a._packed, (name, a, x), (a.kind, DENSE, DENSE, tf32_allowed(a._packed))
    found: Tensor | None = _tried(_check_packed_dense, told, None, a._n, a, p, x, x, kinds, out)
    if found is not None:
        return found
    n = _check_packed_dense(*told)
    return quick_mm(_to_packed(a), x, n, *kinds)


def _dense_packed(name: str, x: Tensor, b: PackedTensor, out: Any = None) -> Tensor:
    p, told, kinds = b._packed, (name, x, b), (DENSE, b.kind, DENSE, tf32_allowed(b._packed))
    found: Tensor | None = _tried(_check_dense_packed, told, None, b._n, x, x, b, p, kinds, out)
    if found is not None:
        return found
    n = _check_dense_packed(*told)
    return quick_mm(x, _to_packed(b), n, *kinds)


def _check_packed_dense(name: str, a: PackedTensor, x: Tensor) -> int:
    n, p, rank = a.n, a._packed, x.dim()
    if rank == 0 or x.shape[-1 if rank == 1 else -2] != n:
        raise _shape_error(name, "(..., n, n) @ (..., n, m)", a, x)
    check_elements(name, a, x, p, x)
    if rank > 2 and p.dim() > 1:
        _check_batches(name, a, x, p.shape[:-1], x.shape[:-2])
    return n


def _check_dense_packed(name: str, x: Tensor, b: PackedTensor) -> int:
    n, p, rank = b.n, b._packed, x.dim()
    if rank == 0 or x.shape[-1] != n:
        raise _shape_error(name, "(..., m, n) @ (..., n, n)", x, b)
    check_elements(name, x, b, x, p)
    if rank > 2 and p.dim() > 1:
        _check_batches(name, x, b, x.shape[:-2], p.shape[:-1])
    return n


def _check_packed_pair(name: str, a: PackedTensor, b: PackedTensor) -> int:
    n = a.n
    if n != b.n:
        raise _shape_error(name, "(..., n, n) @ (..., n, n)", a, b)
    p, q = a._packed, b._packed
    check_elements(name, a, b, p, q)
    if p.dim() > 1 and q.dim() > 1:
        _check_batches(name, a, b, p.shape[:-1], q.shape[:-1])
    return n


_INSTEAD_OF_SPARSE = ", or convert the packed operand, as torch.sparse.mm does"


def check_elements(name: str, a: Tensor, b: Tensor, p: Tensor, q: Tensor) -> None:
    """Raise where the elements ``p`` and ``q`` of two operands do not go together."""
    if p.layout is not q.layout:
        # Those of a type are strided.
        for x in (p, q):
            check_strided(name, x, _INSTEAD_OF_SPARSE if x.is_sparse or x.is_sparse_csr else "")
    if p.dtype is not q.dtype and autocast_dtype(p) is not autocast_dtype(q):
        raise ValueError(
            f"[{name}] expected both operands to have the same dtype; "
            f"got {describe(a)} of {_dtype(p)} and {describe(b)} of {_dtype(q)}"
        )
    if p.device != q.device:
        raise ValueError(
            f"[{name}] expected both operands on the same device; "
            f"got {describe(a)} on {p.device} and {describe(b)} on {q.device}"
        )


def _dtype(x: Tensor) -> str:
    cast = autocast_dtype(x)
    return str(x.dtype) if cast is x.dtype else f"{x.dtype} ({cast} under autocast)"


def _check_batches(name: str, a: Tensor, b: Tensor, p: torch.Size, q: torch.Size) -> None:
    if p != q and not can_broadcast(p, q):
        raise _shape_error(name, "batch dimensions that broadcast", a, b)


def _shape_error(name: str, expected: str, a: Tensor, b: Tensor) -> ValueError:
    return ValueError(f"[{name}] expected {expected}; got {describe(a)} @ {describe(b)}")


def check_no_dtype(name: str, out_dtype: torch.dtype | None, *operands: Tensor) -> None:
    """Raise where the result is to have a dtype of its own, which no kernel here writes."""
    if out_dtype is not None:
        given = ", ".join(map(describe, operands))
        raise NotImplementedError(
            f"[{name}] out_dtype={out_dtype} is not supported with packed types; got ({given}). "
            f"Convert the operands with .to({out_dtype}) first: it changes none of their elements "
            "where it is the wider dtype"
        )


def _check_ranks(name: str, a: Tensor, b: Tensor, rank_a: int, rank_b: int) -> None:
    if (_rank(a), _rank(b)) != (rank_a, rank_b):
        raise ValueError(
            f"[{name}] expected operands of {rank_a} and {rank_b} dimensions; "
            f"got {describe(a)} and {describe(b)}. torch.matmul takes any"
        )


def _rank(x: Tensor) -> int:
    return x._packed.dim() + 1 if isinstance(x, PackedTensor) else x.dim()


def _add_rows(compute: Product, a: type, b: type, result: type) -> None:
    """The rows of one pair of types, for every name that torch has for a product."""

    def matmul(input: Tensor, other: Tensor, out: Any = None) -> Tensor:
        return compute("matmul", input, other, out)

    def rmatmul(input: Tensor, other: Tensor) -> Tensor:
        return compute("matmul", other, input, None)

    def mm(input: Tensor, mat2: Tensor, out_dtype: Any = None, *, out: Any = None) -> Tensor:
        check_no_dtype("mm", out_dtype, input, mat2)
        _check_ranks("mm", input, mat2, 2, 2)
        return compute("mm", input, mat2, out)

    def bmm(input: Tensor, mat2: Tensor, out_dtype: Any = None, *, out: Any = None) -> Tensor:
        check_no_dtype("bmm", out_dtype, input, mat2)
        _check_ranks("bmm", input, mat2, 3, 3)
        if len(input) != len(mat2):
            raise _shape_error("bmm", "batches of the same length", input, mat2)
        return compute("bmm", input, mat2, out)

    def mv(input: Tensor, vec: Tensor, out: Any = None) -> Tensor:
        _check_ranks("mv", input, vec, 2, 1)
        with cast_as_mv(input._packed):
            return compute("mv", input, vec, out)

    def add(functions: Any, handler: Callable[..., Tensor], *types: type) -> None:
        row(functions, *types, result=result, writes=result is Tensor)(handler)

    products = (torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.linalg.matmul)
    add(products, matmul, a, b)
    row(Tensor.__rmatmul__, b, a, result=result)(rmatmul)
    add((torch.mm, Tensor.mm), mm, a, b)
    add((torch.bmm, Tensor.bmm), bmm, a, b)
    if b is Tensor:
        add((torch.mv, Tensor.mv), mv, a, b)


_types = (LowerTriangular, UpperTriangular, Symmetric, Hermitian)
_add_rows(_lower_lower, LowerTriangular, LowerTriangular, LowerTriangular)
_add_rows(_upper_upper, UpperTriangular, UpperTriangular, UpperTriangular)
_add_rows(_mixed, Symmetric, Symmetric, Tensor)
_add_rows(_mixed, Hermitian, Hermitian, Tensor)
for _left, _right in permutations(_types, 2):
    _add_rows(_mixed, _left, _right, Tensor)
for _type in _types:
    _add_rows(_packed_dense, _type, Tensor, Tensor)
    _add_rows(_dense_packed, Tensor, _type, Tensor)
