"""One operation ready to run in both forms: packed, and what torch does on dense matrices."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from packedtri import LowerTriangular, PackedTensor
from packedtri.ops.dense import as_dense
from packedtri.testing import wide_dtype

Output = Any

# Up to this order the error is taken over the whole result, beyond it over as many random rows.
_ERROR_ROWS = 2048
# Rows of the right factor that are held in float64 at a time.
_ERROR_BLOCK = 4096
# Dense results of so many bytes are written to ready memory on a CPU, where the pages of new memory
# take longer to come than products of small matrices.
_READY_BYTES = 1 << 20


@dataclass(frozen=True)
class Work:
    """An operation on one set of operands.

    Both callables compute the same result; ``error`` takes the output of either and returns its
    relative distance (Frobenius norm) from the result in float64.
    """

    packed: Callable[[], Output]
    dense: Callable[[], Output]
    error: Callable[[Output], float]
    #: Bytes that the packed form reads and writes: operands and result.
    packed_bytes: int
    dense_bytes: int
    #: Whether a CUDA graph can capture both. What waits for the GPU to look for errors cannot be.
    capturable: bool = True
    #: What a user without the packed operation would write: operands converted to dense matrices,
    #: what dense torch runs, and the result converted to its packed type.
    converting: Callable[[], Output] | None = None


def nbytes(*tensors: torch.Tensor) -> int:
    """Bytes that the tensors keep in memory: of a packed one its triangle, of shared ones once."""
    kept = [t.packed if isinstance(t, PackedTensor) else t for t in tensors]
    return sum({t.data_ptr(): t.nbytes for t in kept}.values())


def exact_rows(a: torch.Tensor, b: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Rows of ``a @ b`` in float64 (complex128), for dense a (..., n, k) and b (..., k, m)."""
    wide = wide_dtype(a.dtype)
    left = a[..., rows, :].to(wide)
    total = torch.zeros((), dtype=wide, device=a.device)
    for k in range(0, b.shape[-2], _ERROR_BLOCK):
        block = slice(k, k + _ERROR_BLOCK)
        total = total + left[..., block] @ b[..., block, :].to(wide)
    return total


def product_error(
    a: torch.Tensor, b: torch.Tensor, lower: bool = False
) -> Callable[[torch.Tensor], float]:
    """The error of an output of ``a @ b``, or of its lower triangle, for dense ``a`` and ``b``."""
    n = a.shape[-2]
    rows = torch.randperm(n, device=a.device)[:_ERROR_ROWS]

    def error(output: torch.Tensor) -> float:
        exact = exact_rows(a, b, rows)
        got = as_dense(output)[..., rows, :].to(exact.dtype)
        if lower:
            outside = torch.arange(b.shape[-1], device=a.device) > rows[:, None]
            exact, got = exact.masked_fill(outside, 0), got.masked_fill(outside, 0)
        return relative(got, exact)

    return error


def relative(got: torch.Tensor, exact: torch.Tensor) -> float:
    """‖got − exact‖ / ‖exact‖."""
    size = torch.linalg.vector_norm(exact).item()
    distance = torch.linalg.vector_norm(got - exact).item()
    return distance / size if size else distance


def _dense_partner(a: torch.Tensor, b: torch.Tensor, dense_a: torch.Tensor) -> torch.Tensor:
    """The dense form of b; where b shares the storage of a, so it does densely."""
    if not isinstance(a, PackedTensor) or not isinstance(b, PackedTensor):
        return as_dense(b)
    if a.packed.data_ptr() != b.packed.data_ptr():
        return as_dense(b)
    return dense_a if type(a) is type(b) else dense_a.mT


def _like(result: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
    """``dense`` converted to the type of ``result``."""
    return type(result).from_dense(dense) if isinstance(result, PackedTensor) else dense


def product(
    a: torch.Tensor, b: torch.Tensor, packed: Callable[..., torch.Tensor] = operator.matmul
) -> Work:
    """``a @ b``, as ``packed`` computes it.

    Dense torch writes into a ready result; packed products do where that counts.
    """
    dense_a = as_dense(a)
    dense_b = _dense_partner(a, b, dense_a)
    column = dense_b.unsqueeze(-1) if dense_b.dim() == 1 else dense_b
    out = dense_a @ dense_b
    exact = product_error(dense_a, column)
    result = packed(a, b)
    is_large = out.device.type == "cpu" and out.nbytes >= _READY_BYTES
    ready = is_large and not isinstance(result, PackedTensor) and packed is operator.matmul

    def multiply() -> torch.Tensor:
        return torch.matmul(a, b, out=result) if ready else packed(a, b)

    def converting() -> torch.Tensor:
        left = as_dense(a)
        right = _dense_partner(a, b, left)
        return torch.matmul(left, right, out=out) if ready else _like(result, left @ right)

    return Work(
        packed=multiply,
        dense=lambda: torch.matmul(dense_a, dense_b, out=out),
        error=lambda output: exact(output.unsqueeze(-1) if output.dim() == 1 else output),
        packed_bytes=nbytes(a, b, result),
        dense_bytes=nbytes(dense_a, dense_b, out),
        converting=converting,
    )


def backward(a: LowerTriangular, b: LowerTriangular, cotangent: LowerTriangular) -> Work:
    """Both gradients of ``a @ b``; the forward pass is not part of the work.

    On the packed side the leaves are the vectors of stored elements, as a module would keep them.
    """
    packed = [t.packed.detach().requires_grad_() for t in (a, b)]
    packed_result = (LowerTriangular(packed[0]) @ LowerTriangular(packed[1])).packed
    dense_a = as_dense(a)
    dense = [t.detach().requires_grad_() for t in (dense_a, _dense_partner(a, b, dense_a))]
    dense_result, dense_cotangent = dense[0] @ dense[1], cotangent.to_dense()

    def gradients(
        result: torch.Tensor, leaves: Sequence[torch.Tensor], seed: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(result, leaves, seed, retain_graph=True)

    # Dense gradients fill the zero half too, which is no part of the gradient of a triangle.
    with torch.no_grad():
        errors = (
            product_error(dense_cotangent, dense[1].mT.conj(), lower=True),
            product_error(dense[0].mT.conj(), dense_cotangent, lower=True),
        )

    def error(output: tuple[torch.Tensor, ...]) -> float:
        matrices = [LowerTriangular(g) if g.shape == packed[0].shape else g for g in output]
        return max(check(g) for check, g in zip(errors, matrices, strict=True))

    return Work(
        packed=lambda: gradients(packed_result, packed, cotangent.packed),
        dense=lambda: gradients(dense_result, dense, dense_cotangent),
        error=error,
        # Each gradient is as large as its operand.
        packed_bytes=nbytes(*packed, cotangent) + sum(t.nbytes for t in packed),
        dense_bytes=nbytes(*dense, dense_cotangent) + sum(t.nbytes for t in dense),
    )


def function(
    packed: Callable[..., torch.Tensor],
    operands: Sequence[torch.Tensor],
    dense: Callable[..., torch.Tensor] | None = None,
    capturable: bool = False,
) -> Work:
    """A function of linear algebra on some operands; ``dense`` is its dense form, if another."""
    on_dense = dense or packed
    dense_operands = [as_dense(t) for t in operands]

    @cache
    def exact() -> torch.Tensor:
        return on_dense(*(t.to(wide_dtype(t.dtype)) for t in dense_operands))

    result = packed(*operands)
    return Work(
        packed=lambda: packed(*operands),
        dense=lambda: on_dense(*dense_operands),
        error=lambda output: relative(as_dense(output).to(exact().dtype), exact()),
        packed_bytes=nbytes(*operands, result),
        dense_bytes=nbytes(*dense_operands) + as_dense(result).nbytes,
        capturable=capturable,
        converting=lambda: _like(result, on_dense(*(as_dense(t) for t in operands))),
    )
