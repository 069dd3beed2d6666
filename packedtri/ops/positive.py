"""Solves, inverses and determinants of positive definite matrices by their Cholesky factor.

Their derivatives need no derivative of the factor, which costs more than they do. With X = A^-1 B,
the gradient of B is A^-1 G and that of A is -A^-1 G X^H; that of log det A is A^-1, whose own
gradient is -A^-1 G A^-1. Each is made of the functions here, so that it has derivatives in turn.

Source:
    Giles, An extended collection of matrix derivative results for forward and reverse mode
    algorithmic differentiation, 2008.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from packedtri import _nodes, dispatch
from packedtri._autograd import outside_autocast
from packedtri._bands import diagonal, real_diagonal, scale_off_diagonal
from packedtri._dtensor import cut_of, cutting, whole
from packedtri._recording import forward_mode, is_batched, values_visible
from packedtri._sharing import check_source
from packedtri.layout import DENSE, LOWER, SYMMETRIC, UPPER
from packedtri.ops.mm import quick_mm
from packedtri.ops.potrf import cholesky
from packedtri.ops.trsm import invert_triangle, solve, solve_into, widened
from packedtri.tensor import PackedTensor


@dataclass(frozen=True)
class Positive:
    """A positive definite matrix A = L L^H, of 16-bit elements in float32.

    Attributes:
        matrix: A, shape (*batch, n, n).
        factor: L, shape (*batch, n(n+1)/2).
        implicit: whether derivatives are taken of A itself, and not through L.
    """

    matrix: PackedTensor
    factor: Tensor
    implicit: bool

    def _apply(self, node: Any, *args: Tensor) -> Any:
        if self.implicit:
            return node.apply(self.matrix, self.factor, *args)
        return node.compute(self.matrix.n, self.factor, *args)

    def solve(self, b: Tensor) -> Tensor:
        """A^-1 B for a dense ``b``, shape (*batch, n, m), in the dtype of ``b``."""
        return self._apply(_Solve, widened(b)).to(b.dtype)

    def inverse(self) -> Tensor:
        """The packed lower triangle of A^-1."""
        return self._apply(_Inverse)

    def logdet(self) -> Tensor:
        """log det A, shape (*batch), real."""
        return self._apply(_LogDet)

    def det(self) -> Tensor:
        """det A, shape (*batch), real."""
        squares = diagonal(self.factor, self.matrix.n).real.prod(-1).square()
        if not self.implicit:
            return squares
        # The exponential is one and has the derivatives, but where the determinant is infinite.
        logdet = self.logdet()
        logdet = logdet.masked_fill(logdet.detach().isinf(), 0)
        return squares * (logdet - logdet.detach()).exp()

    def inv_quad_logdet(self, b: Tensor) -> tuple[Tensor, Tensor]:
        """tr(B^H A^-1 B), of the batches of both, and log det A, both real."""
        return self._apply(_InvQuadLogDet, widened(b))


def factored(a: PackedTensor) -> tuple[Positive, Tensor]:
    """A Symmetric or Hermitian matrix with its factor, and ``info`` of torch.linalg.cholesky_ex.

    Where ``info`` is not 0 the matrix is not positive definite and the factor undefined.
    """
    a = a.float() if a._packed.dtype.itemsize == 2 else a  # type: ignore[assignment]
    recorded = torch.is_grad_enabled() and _nodes.requires_grad(a)
    # Tracing and transforms follow the ops, and forward mode would not be nested.
    implicit = recorded and values_visible(a._packed) and not forward_mode()
    if implicit:
        check_source(a)
    factor, info = cholesky(a._packed if implicit else _nodes.to_packed(a), a.n)
    return Positive(a, factor, implicit), info


def positive(a: PackedTensor) -> Positive | None:
    """The same; None where some matrix is not positive definite, or nobody can look at values."""
    symmetric = a.kind == SYMMETRIC and a._packed.is_complex()
    if symmetric or not values_visible(a._packed):
        return None
    matrix, info = factored(a)
    return None if whole(info).any() else matrix


def solve_by_factor(factor: Tensor, b: Tensor, n: int) -> Tensor:
    """(L L^H)^-1 B for the packed factor L and a dense ``b``, shape (*batch, n, m).

    It has the dtype of ``b``. The factor of 16-bit elements may be float32.
    """
    factor = widened(factor)
    half, factor = solve(factor, widened(b), n, LOWER), factor.conj()
    in_place = solve_into(half, factor, half, n, UPPER)
    return (half if in_place else solve(factor, half, n, UPPER)).to(b.dtype)


def invert_by_factor(factor: Tensor, n: int) -> Tensor:
    """The packed lower triangle of (L L^H)^-1 = L^-H L^-1, of which no other part is computed.

    It is a product, whose parts need not wait for each other as those of a solve do.
    """
    inverse = invert_triangle(factor, n)
    with outside_autocast():
        return quick_mm(inverse.conj(), inverse, n, UPPER, LOWER, LOWER)


class _Node(torch.autograd.Function):
    """A function of A, and of more tensors: ``compute(n, factor, *others)``.

    The node takes the type, whose gradient is a matrix, and not the packed vector, in whose
    gradient each element stands for two.
    """

    @staticmethod
    def _compiled_autograd_key(ctx: Any) -> Any:
        # Of integers alone, or torch cannot compare them.
        return (ctx._autograd_function_id, ctx.n, ctx.cls.kind)

    @classmethod
    def again(cls, ctx: Any, a: Any, factor: Tensor, *others: Tensor) -> Tensor:
        """The function inside of a derivative, which may be recorded."""
        if not torch.is_grad_enabled():
            return cls.compute(ctx.n, factor, *others)
        # Hooks of saved tensors may have made a dense one of A.
        a = a if isinstance(a, ctx.cls) else ctx.cls.from_dense(a)
        if not forward_mode() and not any(map(is_batched, others)):
            return cls.apply(a, factor, *others)
        # The ops have forward mode, and take batches of gradients, also through the factor.
        return cls.compute(ctx.n, cholesky(_nodes.to_packed(a), ctx.n)[0], *others)


def _note(ctx: Any, a: PackedTensor) -> None:
    """What derivatives need to know of A beside its elements."""
    ctx.cls, ctx.n, ctx.shape = type(a), a.n, a._packed.shape
    ctx.cut = cut_of(a._packed)


def _gradient(ctx: Any, packed: Tensor) -> PackedTensor:
    """The gradient of A from its lower triangle, summed over batches that A lacks."""
    packed = real_diagonal(packed.sum_to_size(ctx.shape), ctx.cls.kind, ctx.n)
    packed = packed if ctx.cut is None else ctx.cut.align(packed)
    return _nodes.from_packed(ctx.cls, packed, ctx.n)


def _outer(ctx: Any, a: Tensor, b: Tensor) -> PackedTensor:
    """The gradient -A B^H, of which a Symmetric or Hermitian takes half with its adjoint."""
    with outside_autocast(), cutting(ctx.cut):
        lower = quick_mm(a, b.mH, ctx.n, DENSE, DENSE, LOWER)
        mirrored = quick_mm(b, a.mH, ctx.n, DENSE, DENSE, LOWER)
    return _gradient(ctx, (lower + mirrored) * -0.5)


class _Solve(_Node):
    @staticmethod
    def compute(n: int, factor: Tensor, b: Tensor) -> Tensor:
        return solve_by_factor(factor, b, n)

    @staticmethod
    def forward(ctx: Any, a: PackedTensor, factor: Tensor, b: Tensor) -> Tensor:
        _note(ctx, a)
        ctx.rhs_shape = b.shape
        x = _Solve.compute(a.n, factor, b)
        ctx.save_for_backward(a, factor, x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a, factor, x = ctx.saved_tensors
        grad_b = _Solve.again(ctx, a, factor, grad)
        grad_a = _outer(ctx, grad_b, x) if ctx.needs_input_grad[0] else None
        return grad_a, None, grad_b.sum_to_size(ctx.rhs_shape)


class _Inverse(_Node):
    @staticmethod
    def compute(n: int, factor: Tensor) -> Tensor:
        return invert_by_factor(factor, n)

    @staticmethod
    def forward(ctx: Any, a: PackedTensor, factor: Tensor) -> Tensor:
        _note(ctx, a)
        x = _Inverse.compute(a.n, factor)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x,), n, kind = ctx.saved_tensors, ctx.n, ctx.cls.kind
        # An element that is not on the diagonal stands for two in the matrix.
        half = scale_off_diagonal(grad, 0.5, n, kind)
        with outside_autocast():
            product = quick_mm(half, x, n, kind, kind, DENSE)
            lower = quick_mm(x, product, n, kind, DENSE, LOWER)
        return _gradient(ctx, -lower), None


class _LogDet(_Node):
    @staticmethod
    def compute(n: int, factor: Tensor) -> Tensor:
        return 2 * diagonal(factor, n).real.log().sum(-1)

    @staticmethod
    def forward(ctx: Any, a: PackedTensor, factor: Tensor) -> Tensor:
        _note(ctx, a)
        ctx.save_for_backward(a, factor)
        return _LogDet.compute(a.n, factor)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        inverse = _Inverse.again(ctx, *ctx.saved_tensors)
        return _gradient(ctx, inverse * grad.unsqueeze(-1)), None


class _InvQuadLogDet(_Node):
    """Both terms of a Gaussian's log likelihood, so that their gradients are one matrix."""

    @staticmethod
    def compute(n: int, factor: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return _sum_of_squares(solve(factor, b, n, LOWER)), _LogDet.compute(n, factor)

    @staticmethod
    def forward(ctx: Any, a: PackedTensor, factor: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        _note(ctx, a)
        ctx.set_materialize_grads(False)
        half = solve(factor, b, a.n, LOWER)
        ctx.save_for_backward(a, factor, b, half)
        return _sum_of_squares(half), _LogDet.compute(a.n, factor)

    @staticmethod
    def backward(ctx: Any, grad_quad: Tensor | None, grad_logdet: Tensor | None) -> Any:
        a, factor, b, half = ctx.saved_tensors
        lower, grad_b = None, None
        if grad_logdet is not None and ctx.needs_input_grad[0]:
            lower = _Inverse.again(ctx, a, factor) * grad_logdet.unsqueeze(-1)
        if grad_quad is not None:
            if torch.is_grad_enabled():
                x = _Solve.again(ctx, a, factor, b)
            else:
                x = solve(factor.conj(), half, ctx.n, UPPER)
            scaled = x * grad_quad[..., None, None]
            if ctx.needs_input_grad[2]:
                grad_b = (2 * scaled).sum_to_size(b.shape)
            if ctx.needs_input_grad[0]:
                with outside_autocast(), cutting(ctx.cut):
                    outer = quick_mm(scaled, x.mH, ctx.n, DENSE, DENSE, LOWER).sum_to_size(
                        ctx.shape
                    )
                lower = -outer if lower is None else lower - outer
        return None if lower is None else _gradient(ctx, lower), None, grad_b


def _sum_of_squares(x: Tensor) -> Tensor:
    """Of the absolute values of each matrix, shape (*batch)."""
    return ((x * x.conj()).real if x.is_complex() else x.square()).sum((-2, -1))


for _node in (_Solve, _Inverse, _LogDet, _InvQuadLogDet):
    dispatch.hide_members_from_dynamo(_node)
