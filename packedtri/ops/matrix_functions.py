"""Functions of whole matrices: powers, exponential, square root, logarithm and Kronecker product.

Powers are products on packed storage. The others work on a dense temporary of the size of the
result and give a packed type all the same.

The square root and the logarithm of a triangle are triangles. Their derivatives need no formulas of
their own: for any matrix function, f([[A, E], [0, A]]) = [[f(A), D], [0, f(A)]] with D the
derivative of f at A in the direction E (N. J. Higham, Functions of Matrices, SIAM 2008, theorem
3.6). With A triangular the block matrix is triangular too, so the function differentiates itself,
to any order, at eight times its cost.

Those of a Symmetric or Hermitian matrix are functions of its eigenvalues, whose vectors have no
derivative where two of them are equal. So the eigenvalues give the value alone, and steps of
Newton's method from it, which change nothing, the derivatives: see _from_eigenvalues.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from packedtri import _nodes, _tracing, layout
from packedtri._autograd import Call, library, register_implicit, register_vmap_over_batch
from packedtri._bands import real_diagonal
from packedtri._recording import is_batched, values_visible
from packedtri._values import INTEGERS, describe
from packedtri.dispatch import Function, row
from packedtri.ops.dense import densify, functions
from packedtri.ops.mm import tf32_allowed
from packedtri.ops.trsm import widened
from packedtri.tensor import (
    Hermitian,
    LowerTriangular,
    PackedTensor,
    Symmetric,
    UpperTriangular,
)

_mm = torch.ops.packedtri.mm.default
# Of derivatives of functions by eigenvalues.
_ORDERS = 2

P = TypeVar("P", bound=PackedTensor)


def _typed(cls: type[P], result: Any) -> P:
    return result if isinstance(result, cls) else cls.from_dense(result)


def matrix_power(input: PackedTensor, n: int) -> Tensor:
    """The power n of each matrix, by squaring; negative powers are those of the inverse."""
    if not isinstance(n, INTEGERS):
        return densify(torch.linalg.matrix_power, input, n)
    cls: Any = type(input)
    n = int(n)
    if n == -1:
        return _typed(cls, torch.linalg.inv(input))
    if n < 0 and input.dtype.itemsize == 2:
        # Products would multiply the rounding of the inverse.
        wide: Any = input.float()
        return matrix_power(wide, n).to(input.dtype)
    if n < 0:
        input, n = _typed(cls, torch.linalg.inv(input)), -n
    product = _commuted if input.kind in layout.MIRRORED else operator.matmul
    square: Any = input
    result: Any = None
    while n:
        if n % 2:
            result = square if result is None else product(result, square)
        n //= 2
        square = product(square, square) if n else square
    if result is None:
        # A constant, but one that autograd takes for a function of the matrix, as torch does.
        every = torch.ones((), dtype=torch.bool, device=input.device)
        zero = _nodes.to_packed(input).masked_fill(every, 0)
        return _nodes.from_packed(cls, zero, input.n).unit_diagonal()
    return result.clone() if result is input else result


def _commuted(a: P, b: P) -> P:
    """The product of two matrices of a mirrored type that commute, as powers of one matrix do.

    It has their type, so one triangle of it is computed: half the work of a product.
    """
    tf32 = tf32_allowed(a._packed)
    packed = _mm(_nodes.to_packed(a), _nodes.to_packed(b), a.n, a.kind, b.kind, layout.LOWER, tf32)
    return _nodes.from_packed(type(a), real_diagonal(packed, a.kind, a.n), a.n)


def matrix_exp(input: PackedTensor) -> PackedTensor:
    """The exponential of each matrix, computed on a dense temporary."""
    x = input.to_dense()
    # Torch's approximation overflows in 16 bits.
    return type(input).from_dense(torch.linalg.matrix_exp(widened(x)).to(x.dtype))


def kron(input: Any, other: Any) -> Tensor:
    """The Kronecker product; two matrices of one type give that type, by way of a dense one."""
    if type(input) is not type(other):
        return densify(torch.kron, input, other)
    return type(input).from_dense(torch.kron(input.to_dense(), other.to_dense()))


for _function in (*functions("matrix_power"), torch.linalg.matrix_power):
    row(_function, PackedTensor)(matrix_power)
for _function in (*functions("matrix_exp"), torch.linalg.matrix_exp):
    row(_function, PackedTensor)(matrix_exp)
row(functions("kron"), casts=True)(kron)


def sqrtm(A: PackedTensor) -> PackedTensor:
    """The principal square root of matrices, on a dense temporary in float64 or complex128.

    Of a triangle the elements are found one diagonal after another; see A. Bjorck and S.
    Hammarling, "A Schur method for the square root of a matrix", Linear Algebra Appl. 52/53 (1983).
    Where two eigenvalues, which are on the diagonal, are both zero, it may have no root, and the
    result has inf or nan; it has a zero between them where that fits, as in a diagonal matrix. The
    root is differentiable where no eigenvalue is zero. That of a Symmetric or Hermitian matrix is
    made of its eigenvalues, with first and second derivatives; where two of them are zero the
    derivatives are infinite, and taken for zero. A real matrix with a negative eigenvalue has no
    real root, and a complex Hermitian one no Hermitian root: the result has nan, as that of
    torch.sqrt. Convert a real triangle to a complex dtype first.

    Args:
        A: shape (*batch, n, n), of any packed type but a complex Symmetric.

    Returns:
        shape (*batch, n, n), of the same type, so that sqrtm(A) @ sqrtm(A) is A.

    Raises:
        TypeError: when ``A`` is not packed, or a complex Symmetric.

    Example:
        >>> import packedtri
        >>> packedtri.sqrtm(packedtri.LowerTriangular(torch.tensor([4.0, 5.0, 9.0])))
        LowerTriangular([[2.,  .],
                         [1., 3.]])
    """
    if isinstance(A, (Symmetric, Hermitian)):
        return _from_eigenvalues("sqrtm", A, _SQUARE)
    return _of_triangle("sqrtm", torch.ops.packedtri.sqrt_upper.default, A)


def logm(A: PackedTensor) -> PackedTensor:
    """The principal logarithm of matrices, on a dense temporary in float64 or complex128.

    That of a triangle is found by inverse scaling and squaring: square roots are taken until the
    matrix is near the identity, where a Pade approximant of order 7, as a sum over Gauss-Legendre
    nodes, gives its logarithm; see chapter 11 of N. J. Higham, Functions of Matrices, SIAM 2008.
    That of a Symmetric or Hermitian matrix is made of its eigenvalues, with first and second
    derivatives. It exists where no eigenvalue is zero, and is not finite where one is. A real or
    Hermitian matrix with a negative one gives nan, as torch.log does: convert a real triangle to a
    complex dtype first.

    Args:
        A: shape (*batch, n, n), of any packed type but a complex Symmetric.

    Returns:
        shape (*batch, n, n), of the same type, so that torch.matrix_exp(logm(A)) is A.

    Raises:
        TypeError: when ``A`` is not packed, or a complex Symmetric.

    Example:
        >>> import packedtri
        >>> packedtri.logm(packedtri.UpperTriangular.eye(2))
        UpperTriangular([[0., 0.],
                         [., 0.]])
    """
    if isinstance(A, (Symmetric, Hermitian)):
        return _from_eigenvalues("logm", A, _EXPONENTIAL)
    return _of_triangle("logm", torch.ops.packedtri.log_upper.default, A)


def _of_triangle(name: str, compute: Function, A: Any) -> Any:
    if not isinstance(A, (LowerTriangular, UpperTriangular)):
        raise TypeError(
            f"[{name}] expected a packed type; got {describe(A)}. Make one with from_dense"
        )
    wide = torch.complex128 if A.is_complex() else torch.float64
    lower = A.kind == layout.LOWER
    x = A.to_dense().to(wide)
    y = compute(x.mT if lower else x)
    return type(A).from_dense((y.mT if lower else y).to(A.dtype))


def _derivative(x: Tensor, direction: Tensor, compute: Function, scale: Tensor) -> Tensor:
    """The derivative of ``compute`` at x, by way of a direction of size ``scale``."""
    n = x.shape[-1]
    if x.numel() == 0:
        return direction
    size = _largest(direction) / scale
    size = torch.where((size > 0) & size.isfinite(), size, 1)
    upper, lower = torch.cat([x, direction / size], -1), torch.cat([torch.zeros_like(x), x], -1)
    return compute(torch.cat([upper, lower], -2))[..., :n, n:] * size


def _largest(x: Tensor) -> Tensor:
    """The largest absolute value of each matrix, shape (*batch, 1, 1); 1 where there is none."""
    if x.numel() == 0:
        return x.new_ones((*x.shape[:-2], 1, 1)).real
    # What autograd batches has no rule for detach; the size of a direction cancels out anyway.
    x = x if is_batched(x) else x.detach()
    return x.abs().amax((-2, -1), keepdim=True)


def _sqrt_upper(x: Tensor) -> Tensor:
    """The square root of dense upper triangular matrices, shape (*batch, n, n)."""
    n = x.shape[-1]
    if x.numel() == 0:
        return x.clone(memory_format=torch.contiguous_format)
    root = torch.zeros_like(x, memory_format=torch.contiguous_format).reshape(-1, n, n)
    source = x.reshape(-1, n, n)
    diagonal = source.diagonal(0, -2, -1).sqrt()
    root.diagonal(0, -2, -1).copy_(diagonal)
    size, batch = n * n, len(root)
    for d in range(1, n):
        # Row i holds the elements right of its diagonal one, then those above the sought one.
        steps = (batch, n - d, d - 1)
        right = root.as_strided(steps, (size, n + 1, 1), 1)
        above = root.as_strided(steps, (size, n + 1, n), n + d)
        known = (right * above).sum(-1)
        pairs = diagonal[:, : n - d] + diagonal[:, d:]
        rest = source.diagonal(d, -2, -1) - known
        # Between two zero eigenvalues nothing is to be divided where the root exists.
        nothing = (rest == 0) & (pairs == 0)
        root.diagonal(d, -2, -1).copy_((rest / pairs).masked_fill_(nothing, 0))
    return root.reshape(x.shape)


@dataclass(frozen=True)
class _InverseFunction:
    """A function of matrices that another one is the inverse of.

    Attributes:
        solve: eigenvalues -> those of the other function.
        apply: of matrices, differentiable.
        slopes: eigenvalues x of ``apply`` and y before it, in pairs -> (x - x') / (y - y'), and the
            derivative where these are equal.
        growth: c -> how the derivatives of the function grow when the matrix is c times as large,
            times c.
    """

    solve: Callable[[Tensor], Tensor]
    apply: Callable[[Tensor], Tensor]
    slopes: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    growth: Callable[[Tensor], Tensor]


def _exponential_slopes(x: Tensor, x2: Tensor, y: Tensor, y2: Tensor) -> Tensor:
    half = (y - y2) / 2
    near = half.abs() < 1e-3
    # sinh(half) / half as a series, whose next term is below rounding there.
    series = ((y + y2) / 2).exp() * (1 + half**2 / 6 + half**4 / 120)
    return torch.where(near, series, (x - x2) / torch.where(near, 1, 2 * half))


_SQUARE = _InverseFunction(torch.sqrt, lambda y: y @ y, lambda x, x2, y, y2: y + y2, torch.sqrt)
_EXPONENTIAL = _InverseFunction(
    torch.log, lambda y: torch.ops.packedtri.exp_dense(y), _exponential_slopes, torch.ones_like
)


def _from_eigenvalues(name: str, A: P, inverse: _InverseFunction) -> P:
    """The matrix Y with inverse.apply(Y) = A, in the basis of the eigenvectors.

    There the derivative of apply at Y divides by the slopes, element by element (N. J. Higham,
    Functions of Matrices, theorem 3.11). Each step of Newton's method with that fixed derivative
    makes one more order of the derivatives of Y right. The value is right before: of a step only
    the derivatives are taken, since where eigenvalues are small it would magnify rounding.
    """
    if A.kind == layout.SYMMETRIC and A.is_complex():
        raise TypeError(
            f"[{name}] a complex Symmetric need not have eigenvectors; got {describe(A)}. Use "
            "Hermitian, or convert with .to_dense()"
        )
    wide: Any = torch.complex128 if A.is_complex() else torch.float64
    x = A.to_dense().to(wide)
    if x.numel() == 0:
        return type(A).from_dense(x.to(A.dtype))
    values, vectors = torch.linalg.eigh(x.detach())
    # Rounding of A and of what it was made of, or of the eigenvalues, may have made zeros negative.
    rounding = max(min(8 * A.n**0.5 * torch.finfo(A.dtype).eps, 0.0625), _noise(values))
    least = -rounding * values.abs().amax(-1, keepdim=True)
    values = torch.where((values < 0) & (values >= least), 0, values)
    roots = inverse.solve(values)
    if not _nodes.recorded(A) and values_visible(A._packed):
        y = vectors * roots.unsqueeze(-2) @ vectors.mH
    else:
        target = vectors.mH @ x @ vectors
        y = torch.diag_embed(roots).to(wide) + _derivatives(name, target, values, inverse)
        y = vectors @ y @ vectors.mH
    return type(A).from_dense(y.to(A.dtype))


def _noise(values: Tensor) -> float:
    """What rounding leaves of eigenvalues that are zero, where the largest is about one."""
    return values.shape[-1] * torch.finfo(values.dtype).eps


class _Differentiable(torch.autograd.Function):
    """Zeros, with derivatives that are zero up to an order; the next one raises.

    Added to what has the right derivatives up to that order alone, so that nobody takes others.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, name: str, order: int) -> Tensor:
        return torch.zeros_like(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, str, int], output: Tensor) -> None:
        x, ctx.name, ctx.order = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def _derivative(ctx: Any) -> Tensor:
        if ctx.order == 0:
            raise NotImplementedError(
                f"[{ctx.name}] of a Symmetric or Hermitian has first and second derivatives, and "
                "a third was asked for. Those of triangles have all"
            )
        (x,) = ctx.saved_tensors
        return _Differentiable.apply(x, ctx.name, ctx.order - 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _Differentiable._derivative(ctx), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        return _Differentiable._derivative(ctx)


def _derivatives(name: str, target: Tensor, values: Tensor, inverse: _InverseFunction) -> Tensor:
    """Zeros with the first and second derivatives of the function at a diagonal matrix.

    Args:
        name: of the function.
        target: the matrix, which carries the derivatives.
        values: its diagonal.
        inverse: the inverse of the function.
    """
    # At a size near one, for which torch computes exponentials.
    size = values.abs().amax(-1, keepdim=True)
    ordinary = (size > 0) & size.isfinite()
    exponent = torch.frexp(torch.where(ordinary, size, 1)).exponent.to(values.dtype) - 1
    size = torch.pow(2, exponent)
    target, values = target / size.unsqueeze(-1), values / size
    roots = inverse.solve(values)
    (a, a2), (b, b2) = ((v.unsqueeze(-1), v.unsqueeze(-2)) for v in (values, roots))
    slopes = inverse.slopes(a, a2, b, b2)
    # Two eigenvalues that are zero but for rounding have no derivative that means anything.
    small = values.abs() <= _noise(values)
    slopes = torch.where(small.unsqueeze(-1) & small.unsqueeze(-2), torch.inf, slopes)
    y = torch.diag_embed(roots).to(target.dtype)
    for _ in range(_ORDERS):
        step = (target - inverse.apply(y)) / slopes
        y = y + (step - step.detach())
    change = torch.where(y.detach().isfinite(), y - y.detach(), 0)
    change = change * inverse.growth(size).unsqueeze(-1)
    # Torch compiles no function that has a forward mode of its own, and no second derivatives.
    if _tracing.is_compiling():
        return change
    return change + _Differentiable.apply(target, name, _ORDERS)


# Nodes and weights of the Gauss-Legendre rule on [0, 1] that is the Pade approximant of log(1 + x),
# and the norm up to which it is exact to double precision.
_ORDER, _NEAR_IDENTITY, _MOST_ROOTS = 7, 0.26, 100


def _any_far(x: Tensor) -> bool:
    # A matrix that is nan never comes near, and must not keep others from it.
    return bool((torch.linalg.matrix_norm(x, 1) > _NEAR_IDENTITY).any())


def _log_upper(x: Tensor) -> Tensor:
    """The logarithm of dense upper triangular matrices, shape (*batch, n, n)."""
    n = x.shape[-1]
    one = torch.eye(n, dtype=x.dtype, device=x.device)
    if x.numel() == 0:
        return x.clone(memory_format=torch.contiguous_format)
    diagonal, roots = x.diagonal(0, -2, -1).log(), 0
    while roots < _MOST_ROOTS and _any_far(x - one):
        x, roots = _sqrt_upper(x), roots + 1
    nodes, weights = _gauss_legendre()
    near = x - one
    total = torch.zeros_like(x)
    for node, weight in zip(nodes, weights, strict=True):
        total += weight * torch.linalg.solve_triangular(one + node * near, near, upper=True)
    total = total * 2.0**roots
    # Differences to the identity have lost digits that the diagonal still has.
    total.diagonal(0, -2, -1).copy_(diagonal)
    return total.triu().contiguous()


def _gauss_legendre() -> tuple[list[float], list[float]]:
    """The rule on [0, 1], by the eigenvalues of its Jacobi matrix (Golub and Welsch, 1969)."""
    k = torch.arange(1, _ORDER, dtype=torch.float64, device="cpu")
    off = k / (4 * k**2 - 1).sqrt()
    nodes, vectors = torch.linalg.eigh(torch.diag(off, 1) + torch.diag(off, -1))
    return ((nodes + 1) / 2).tolist(), (vectors[0] ** 2).tolist()


def _define(name: str, compute: Callable[[Tensor], Tensor], scale: Function) -> None:
    """Make a function of dense matrices an op, which is also its own derivative.

    A graph holds the op as a whole: what it does depends on the values.

    Args:
        name: of the op. Those that end in "upper" are for upper triangular matrices.
        compute: the function.
        scale: matrices x -> the size of directions, shape (*batch, 1, 1), that neither drown x nor
            drown in it.
    """
    upper = name.endswith("upper")
    library.define(f"{name}(Tensor x) -> Tensor")
    for key in ("CPU", "CUDA"):
        library.impl(name, compute, key)
    op = getattr(torch.ops.packedtri, name).default

    @torch.library.register_fake(f"packedtri::{name}", lib=library)
    def _(x: Tensor) -> Tensor:
        return x.new_empty(x.shape)

    register_vmap_over_batch(op)

    def derivative(x: Tensor, direction: Tensor) -> Tensor:
        return _derivative(x, direction, op, scale(x))

    def pullback(grad: Tensor, call: Call) -> list[Tensor]:
        # The adjoint of the derivative at a matrix is the derivative at its adjoint.
        adjoint = call.args[0].mH
        if not upper:
            return [derivative(adjoint, grad)]
        # It is lower triangular; reversing the order of rows and columns makes it upper triangular.
        return [derivative(adjoint.flip(-2, -1), grad.flip(-2, -1)).flip(-2, -1).triu()]

    def pushforward(tangents: Sequence[Tensor | None], call: Call) -> Tensor | None:
        return None if tangents[0] is None else derivative(call.args[0], tangents[0])

    register_implicit(op, (True,), pullback, pushforward)


_define("sqrt_upper", _sqrt_upper, _largest)
_define("log_upper", _log_upper, _largest)
# Torch's own derivatives lose digits where gradients are large.
_define(
    "exp_dense", lambda x: torch.matrix_exp(x).contiguous(), lambda x: torch.ones_like(_largest(x))
)
