"""The operations that are benchmarked: their operands, what runs on them, and what they cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import torch

import packedtri
from packedtri import Hermitian, LowerTriangular, PackedTensor, Symmetric, UpperTriangular
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
    #: Whether dense torch starts from packed operands, and ends with a packed result.
    conversions: bool = False

    def packed(self, kind: type[Triangle]) -> Triangle:
        """A random matrix of a packed type, scaled so that products keep its size."""
        return kind(self.random(numel(self.n)))

    def one(self, kind: type[Triangle]) -> Triangle:
        """A single one, also where the problem is a batch."""
        return replace(self, batch=1).packed(kind)

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


#: How many columns m the dense operand of a case has: as many as asked for, or one for a vector, or
#: n where there is no such operand.
Columns = Literal["m", "1", "n"]


@dataclass(frozen=True)
class Case:
    """An operation: how to set it up, and what it costs."""

    setup: Callable[[Problem], Work]
    #: What dense torch runs.
    baseline: str
    #: Floating-point operations for each of the n·n·m elements that the packed and the dense form
    #: would multiply without structure; 0 for moves.
    flops: float
    dense_flops: float
    #: The product that it runs, or the first of them; None for others.
    kinds: environment.Kinds | None = None
    columns: Columns = "n"
    #: Whether dense torch has it in 16-bit types.
    sixteen_bits: bool = True
    #: Whether it is another case where there is no batch.
    only_batched: bool = False
    #: How many times fewer elements the packed form reads, where time goes to that instead.
    fewer_reads: float | None = None
    #: Whether it can be compared with dense torch that has to convert (Work.converting).
    converts: bool = True

    @property
    def limit(self) -> float | None:
        """The ratio to dense torch that the counts allow at large n; None for moves.

        It takes both sides to run at the same rate.
        """
        if self.fewer_reads is not None:
            return self.fewer_reads
        return self.dense_flops / self.flops if self.flops else None


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
        # Without the check of errors, which would wait for the GPU.
        lambda a: torch.linalg.inv_ex(a).inverse,
        (p.well_conditioned(LowerTriangular),),
        # The quickest that dense torch offers; its inv takes no notice of triangles.
        lambda a: _forward_substitution(a, identity.to(a.dtype)),
        capturable=True,
    )


def _gaussian(p: Problem) -> Work:
    """A Gaussian's log likelihood and its gradient with respect to the covariance."""

    def packed(a: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        leaf = a.detach().requires_grad_()
        assert isinstance(leaf, (Symmetric, Hermitian))
        inv_quad, logdet = packedtri.inv_quad_logdet(leaf, y)
        return torch.autograd.grad((inv_quad + logdet).sum(), leaf)[0]

    def dense(a: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        leaf = a.detach().requires_grad_()
        factor = torch.linalg.cholesky(leaf)
        half = _forward_substitution(factor, y.unsqueeze(-1) if y.dim() == 1 else y)
        logdet = 2 * factor.diagonal(dim1=-2, dim2=-1).real.log().sum()
        return torch.autograd.grad((half * half.conj()).real.sum() + logdet, leaf)[0]

    covariance = p.well_conditioned(Hermitian if p.dtype.is_complex else Symmetric)
    return work.function(packed, (covariance, p.vector()), dense)


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
        1 / 3,
        2,
        _LLL,
    ),
    "L@L backward": Case(_backward, "torch.autograd.grad(A @ B)", 2 / 3, 4, _LUL, converts=False),
    "U@U": Case(
        lambda p: work.product(p.packed(UpperTriangular), p.packed(UpperTriangular)),
        _MATMUL,
        1 / 3,
        2,
        _LLL,
    ),
    "L@U": Case(
        lambda p: work.product(p.packed(LowerTriangular), p.packed(UpperTriangular)),
        _MATMUL,
        2 / 3,
        2,
        (LOWER, UPPER, DENSE),
    ),
    "U@L": Case(
        lambda p: work.product(p.packed(UpperTriangular), p.packed(LowerTriangular)),
        _MATMUL,
        2 / 3,
        2,
        (UPPER, LOWER, DENSE),
    ),
    "L@S": Case(
        lambda p: work.product(p.packed(LowerTriangular), p.packed(Symmetric)),
        _MATMUL,
        1,
        2,
        (LOWER, SYMMETRIC, DENSE),
    ),
    "L@L.mT": Case(_gram, _MATMUL, 1 / 3, 2, _LUL),
    "S@S": Case(_square, _MATMUL, 1, 2, (SYMMETRIC, SYMMETRIC, LOWER)),
    "syrk": Case(_syrk, _MATMUL, 1, 2, (DENSE, DENSE, LOWER), columns="m"),
    "L@dense": Case(
        lambda p: work.product(p.packed(LowerTriangular), p.columns()),
        _MATMUL,
        1,
        2,
        _LDD,
        columns="m",
    ),
    "one L@dense": Case(
        lambda p: work.product(p.one(LowerTriangular), p.columns()),
        _MATMUL,
        1,
        2,
        columns="m",
        only_batched=True,
    ),
    "U@dense": Case(
        lambda p: work.product(p.packed(UpperTriangular), p.columns()),
        _MATMUL,
        1,
        2,
        (UPPER, DENSE, DENSE),
        columns="m",
    ),
    "dense@L": Case(
        lambda p: work.product(p.random(p.m, p.n), p.packed(LowerTriangular)),
        _MATMUL,
        1,
        2,
        (DENSE, LOWER, DENSE),
        columns="m",
    ),
    "S@dense": Case(
        lambda p: work.product(p.packed(Symmetric), p.columns()),
        _MATMUL,
        2,
        2,
        _SDD,
        columns="m",
    ),
    "L@x": Case(
        lambda p: work.product(p.packed(LowerTriangular), p.vector()),
        _MATMUL,
        1,
        2,
        _LDD,
        columns="1",
    ),
    "U@x": Case(
        lambda p: work.product(p.packed(UpperTriangular), p.vector()),
        _MATMUL,
        1,
        2,
        (UPPER, DENSE, DENSE),
        columns="1",
    ),
    "S@x": Case(
        lambda p: work.product(p.packed(Symmetric), p.vector()),
        _MATMUL,
        2,
        2,
        _SDD,
        columns="1",
        # Each element of the matrix is multiplied once or twice, and waited for longer than that.
        fewer_reads=2,
    ),
    "solve_triangular": Case(_solve, _SOLVE, 1, 1, columns="m", sixteen_bits=False),
    "solve_triangular vector": Case(_solve, _SOLVE, 1, 1, columns="1", sixteen_bits=False),
    "cholesky": Case(_cholesky, "torch.linalg.cholesky_ex(A)", 1 / 3, 1 / 3, sixteen_bits=False),
    "inverse": Case(
        _inverse,
        "torch.linalg.solve_triangular(A, identity)",
        1 / 3,
        1,
        sixteen_bits=False,
    ),
    "inv_quad_logdet gradient": Case(
        _gaussian,
        "torch.autograd.grad of torch.linalg.cholesky(A)",
        # A factor and an inverse; densely a factor, a product and two solves.
        1,
        13 / 3,
        sixteen_bits=False,
    ),
    "pack": Case(_pack, "A[..., rows, columns]", 0, 0, converts=False),
    "unpack": Case(_unpack, "zeros; A[..., rows, columns] = t", 0, 0, converts=False),
}
