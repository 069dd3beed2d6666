"""The operations that are benchmarked: their operands, what runs on them, and what they cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch

import packedtri
from packedtri import LowerTriangular, PackedTensor, Symmetric, UpperTriangular
from packedtri._cli import environment, work
from packedtri._cli.work import Work
from packedtri.layout import DENSE, LOWER, SYMMETRIC, UPPER, numel

Triangle = TypeVar("Triangle", bound=PackedTensor)

# Added to the diagonal of what is solved with or factored. Beside random elements of variance 1/n,
# whose matrices have norms near 2, it leaves condition numbers below 2.
_SHIFT = 8.0


@dataclass(frozen=True)
class Problem:
    """What to measure: an operation, its sizes, and where."""

    op: str
    n: int
    m: int
    batch: int
    dtype: torch.dtype
    device: torch.device

    def packed(self, kind: type[Triangle]) -> Triangle:
        """A random matrix of a packed type, scaled so that products keep its size."""
        return kind(self.random(numel(self.n)))

    def well_conditioned(self, kind: type[Triangle]) -> Triangle:
        """The same, far from singular; as Symmetric it is positive definite."""
        matrix = self.packed(kind)
        return matrix.set_diagonal_(matrix.diagonal(dim1=-2, dim2=-1) + _SHIFT)

    def random(self, *shape: int) -> torch.Tensor:
        """Normal numbers of variance 1/n, with the batch dimension in front where there is one."""
        batch = (self.batch,) if self.batch > 1 else ()
        x = torch.randn(*batch, *shape, dtype=self.dtype, device=self.device)
        return x / max(self.n, 1) ** 0.5

    def columns(self) -> torch.Tensor:
        """A random dense right operand."""
        return self.random(self.n, self.m)

    def vector(self) -> torch.Tensor:
        """A random vector; batches of them are matrices of one column, as torch has it."""
        return self.random(self.n) if self.batch == 1 else self.random(self.n, 1)


@dataclass(frozen=True)
class Case:
    """An operation: how to set it up, and what it costs."""

    setup: Callable[[Problem], Work]
    #: What dense torch runs.
    baseline: str
    #: Floating-point operations that the packed and the dense form need; 0 for moves.
    flops: Callable[[Problem], float]
    dense_flops: Callable[[Problem], float]
    #: The product that it runs, or the first of them; None for others.
    kinds: environment.Kinds | None = None
    #: Whether the dense operand has one column, whatever m is.
    vector: bool = False
    #: Whether dense torch has it in 16-bit types.
    sixteen_bits: bool = True


def _backward(p: Problem) -> Work:
    a, b, cotangent = (p.packed(LowerTriangular) for _ in range(3))
    return work.backward(a, b, cotangent)


def _gram(p: Problem) -> Work:
    a = p.packed(LowerTriangular)
    return work.product(a, a.mT)


def _square(p: Problem) -> Work:
    a = p.packed(Symmetric)
    return work.product(a, a)


def _syrk(p: Problem) -> Work:
    a = p.columns()
    return work.product(a, a.mT, lambda a, _: packedtri.syrk(a))


def _forward_substitution(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.linalg.solve_triangular(a, b, upper=False)


def _solve(p: Problem) -> Work:
    operands = p.well_conditioned(LowerTriangular), p.columns()
    return work.function(_forward_substitution, operands, capturable=True)


def _cholesky(p: Problem) -> Work:
    # Without the check of errors, which would wait for the GPU.
    def factor(a: torch.Tensor) -> torch.Tensor:
        return torch.linalg.cholesky_ex(a).L

    return work.function(factor, (p.well_conditioned(Symmetric),), capturable=True)


def _inverse(p: Problem) -> Work:
    identity = torch.eye(p.n, dtype=p.dtype, device=p.device)
    return work.function(
        torch.linalg.inv,
        (p.well_conditioned(LowerTriangular),),
        # The quickest that dense torch offers; its inv takes no notice of triangles.
        lambda a: _forward_substitution(a, identity.to(a.dtype)),
    )


def _pack(p: Problem) -> Work:
    dense = p.packed(LowerTriangular).to_dense()
    rows, columns = torch.tril_indices(p.n, p.n, device=p.device)
    packed_bytes = LowerTriangular.from_dense(dense).packed.nbytes
    return Work(
        packed=lambda: LowerTriangular.from_dense(dense).packed,
        dense=lambda: dense[..., rows, columns],
        error=lambda output: work.relative(LowerTriangular(output).to_dense(), dense),
        packed_bytes=2 * packed_bytes,
        dense_bytes=2 * packed_bytes,
    )


def _unpack(p: Problem) -> Work:
    packed = p.packed(LowerTriangular)
    rows, columns = torch.tril_indices(p.n, p.n, device=p.device)
    dense = packed.to_dense()

    def scatter() -> torch.Tensor:
        out = torch.zeros_like(dense)
        out[..., rows, columns] = packed.packed
        return out

    moved = work.nbytes(packed, dense)
    return Work(
        packed=packed.to_dense,
        dense=scatter,
        error=lambda output: work.relative(output, dense),
        packed_bytes=moved,
        dense_bytes=moved,
    )


def _cube(factor: float) -> Callable[[Problem], float]:
    return lambda p: factor * p.batch * p.n**3


def _by_dense(factor: float) -> Callable[[Problem], float]:
    return lambda p: factor * p.batch * p.n**2 * p.m


_MATMUL = "torch.matmul(A, B, out=C)"
_LLL = (LOWER, LOWER, LOWER)
_LUL = (LOWER, UPPER, LOWER)
_LDD = (LOWER, DENSE, DENSE)
_SDD = (SYMMETRIC, DENSE, DENSE)
_SOLVE = "torch.linalg.solve_triangular(A, B)"

CASES: dict[str, Case] = {
    "L@L": Case(
        lambda p: work.product(p.packed(LowerTriangular), p.packed(LowerTriangular)),
        _MATMUL,
        _cube(1 / 3),
        _cube(2),
        _LLL,
    ),
    "L@L backward": Case(_backward, "torch.autograd.grad(A @ B)", _cube(2 / 3), _cube(4), _LUL),
    "U@U": Case(
        lambda p: work.product(p.packed(UpperTriangular), p.packed(UpperTriangular)),
        _MATMUL,
        _cube(1 / 3),
        _cube(2),
        _LLL,
    ),
    "L@U": Case(
        lambda p: work.product(p.packed(LowerTriangular), p.packed(UpperTriangular)),
        _MATMUL,
        _cube(2 / 3),
        _cube(2),
        (LOWER, UPPER, DENSE),
    ),
    "L@L.mT": Case(_gram, _MATMUL, _cube(1 / 3), _cube(2), _LUL),
    "S@S": Case(_square, _MATMUL, _cube(1), _cube(2), (SYMMETRIC, SYMMETRIC, LOWER)),
    "syrk": Case(_syrk, _MATMUL, _by_dense(1), _by_dense(2), (DENSE, DENSE, LOWER)),
    "L@dense": Case(
        lambda p: work.product(p.packed(LowerTriangular), p.columns()),
        _MATMUL,
        _by_dense(1),
        _by_dense(2),
        _LDD,
    ),
    "dense@L": Case(
        lambda p: work.product(p.random(p.m, p.n), p.packed(LowerTriangular)),
        _MATMUL,
        _by_dense(1),
        _by_dense(2),
        (DENSE, LOWER, DENSE),
    ),
    "S@dense": Case(
        lambda p: work.product(p.packed(Symmetric), p.columns()),
        _MATMUL,
        _by_dense(2),
        _by_dense(2),
        _SDD,
    ),
    "L@x": Case(
        lambda p: work.product(p.packed(LowerTriangular), p.vector()),
        _MATMUL,
        _by_dense(1),
        _by_dense(2),
        _LDD,
        vector=True,
    ),
    "S@x": Case(
        lambda p: work.product(p.packed(Symmetric), p.vector()),
        _MATMUL,
        _by_dense(2),
        _by_dense(2),
        _SDD,
        vector=True,
    ),
    "solve_triangular": Case(_solve, _SOLVE, _by_dense(1), _by_dense(1), sixteen_bits=False),
    "solve_triangular vector": Case(
        _solve, _SOLVE, _by_dense(1), _by_dense(1), vector=True, sixteen_bits=False
    ),
    "cholesky": Case(
        _cholesky, "torch.linalg.cholesky_ex(A)", _cube(1 / 3), _cube(1 / 3), sixteen_bits=False
    ),
    "inverse": Case(
        _inverse,
        "torch.linalg.solve_triangular(A, identity)",
        _cube(1 / 3),
        _cube(1),
        sixteen_bits=False,
    ),
    "pack": Case(_pack, "A[..., rows, columns]", _cube(0), _cube(0)),
    "unpack": Case(_unpack, "zeros; A[..., rows, columns] = t", _cube(0), _cube(0)),
}
