"""What each process does in test_cut_matrices: python cut_matrices.py RANK WORLD STORE DEVICE.

All draw the same numbers, and compare what they compute on parts of a matrix with what one process
computes on the whole. Nothing but what is named in WHOLE may put a matrix together.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import packedtri
from packedtri import (
    Hermitian,
    LowerTriangular,
    PackedTensor,
    Symmetric,
    UpperTriangular,
    _autograd,
)
from packedtri._dtensor import cut_of
from packedtri.distributed import solves, strips

TYPES = (LowerTriangular, UpperTriangular, Symmetric, Hermitian)
TRIANGLES = TYPES[:2]
COLUMNS = 5
# Functions of a triangle, of any matrix T, and of a positive definite one S, beside
# x of COLUMNS columns, y of as many rows, and a vector v.
Function = Callable[..., Any]
OF_TRIANGLES: dict[str, Function] = {
    "L L": lambda T, x, y, v: T @ T,
    "L Lᵀ": lambda T, x, y, v: T @ T.mT,
    "Lᵀ L": lambda T, x, y, v: T.mT @ T,
    "L Lᴴ": lambda T, x, y, v: T @ T.mH,
    "L⁻¹": lambda T, x, y, v: torch.linalg.inv(T),
    "L⁻¹ L": lambda T, x, y, v: torch.linalg.solve(T, 2 * T),
    "L L⁻¹": lambda T, x, y, v: torch.linalg.solve(T, 2 * T, left=False),
    "L³": lambda T, x, y, v: torch.linalg.matrix_power(T, 3),
    "ones": lambda T, x, y, v: T.unit_diagonal(),
}
SOLVES: dict[str, Function] = {
    "L⁻¹ x": lambda T, x, y, v: torch.linalg.solve(T, x),
    "y L⁻¹": lambda T, x, y, v: torch.linalg.solve(T, y, left=False),
    "ones⁻¹ x": lambda T, x, y, v: torch.linalg.solve_triangular(
        T, x, upper=T.kind == 1, unitriangular=True
    ),
}
PRODUCTS: dict[str, Function] = {
    "T x": lambda T, x, y, v: T @ x,
    "y T": lambda T, x, y, v: y @ T,
    "T x₂": lambda T, x, y, v: T @ x[:, :2],
    "T v": lambda T, x, y, v: T @ v,
    "v T": lambda T, x, y, v: v @ T,
}
OF_ALL: dict[str, Function] = {
    "ridge": lambda T, x, y, v: T.add_diagonal(0.5),
    "ridge in place": lambda T, x, y, v: T.clone().add_diagonal_(0.5),
    "sums": lambda T, x, y, v: (T + 2 * T, T * T),
}

# Of no order 0, whose minors and rows there are none of.
READ: dict[str, Function] = {
    "diagonal": lambda T, x, y, v: T.diagonal(0, -2, -1),
    "reduced": lambda T, x, y, v: (torch.linalg.matrix_norm(T), T.sum((-2, -1)), T.sum(-1)),
    "row": lambda T, x, y, v: T[..., -1, :],
    "column": lambda T, x, y, v: T[..., 0],
    "block": lambda T, x, y, v: T[..., :2, -2:],
    "lower block": lambda T, x, y, v: T[..., -2:, :2],
}
OF_POSITIVE: dict[str, Function] = {
    "cholesky": lambda S, x, y, v: torch.linalg.cholesky(S),
    "upper": lambda S, x, y, v: torch.linalg.cholesky(S, upper=True),
    "S⁻¹ x": lambda S, x, y, v: torch.linalg.solve(S, x),
    "S⁻¹": lambda S, x, y, v: torch.linalg.inv(S),
    "logdet": lambda S, x, y, v: torch.logdet(S),
    "likelihood": lambda S, x, y, v: packedtri.inv_quad_logdet(S, x),
    "S²": lambda S, x, y, v: S @ S,
    "S³": lambda S, x, y, v: torch.linalg.matrix_power(S, 3),
    "xᴴ S x": lambda S, x, y, v: packedtri.quadratic_form(S, v),
    "largest": lambda S, x, y, v: S.abs().amax((-2, -1)),
    "rcond": lambda S, x, y, v: packedtri.rcond(S),
}
# What is whole on every process in between.
WHOLE: dict[str, Function] = {
    "S L": lambda S, x, y, v: S @ torch.linalg.cholesky(S),
    "dense": lambda S, x, y, v: S.to_dense(),
    "update": lambda S, x, y, v: packedtri.cholesky_update(torch.linalg.cholesky(S), x),
}


class Watch(TorchDispatchMode):
    """Looks for tensors of as many elements as a matrix of order n has, packed or dense."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.counts = {n * (n + 1) // 2, n * n}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for x in pytree.tree_leaves(found):
            if type(x) is Tensor and not x.is_meta:
                assert not self.counts & set(x.shape), f"{func} has a whole matrix: {x.shape}"
                assert x.shape[-2:].numel() not in self.counts, f"{func}: {x.shape}"
        return found


@contextmanager
def no_whole_matrix() -> Iterator[None]:
    """A context in which ops on cut matrices must all have a way to compute on parts."""
    ask = _autograd.by_parts

    def by_parts(op: Any, args: Any) -> Any:
        found = ask(op, args)
        cut = [x for x in args if isinstance(x, DTensor) and cut_of(x) is not None]
        assert found is not NotImplemented or not cut, f"{op} has no rule for parts: {args}"
        return found

    _autograd.by_parts = by_parts
    try:
        yield
    finally:
        _autograd.by_parts = ask


def full(x: Any) -> Tensor:
    if isinstance(x, PackedTensor):
        packed = x.detach().packed
        return type(x)(full(packed)).to_dense()
    return x.full_tensor() if isinstance(x, DTensor) else x


def same(case: str, got: Any, expected: Any, tolerance: dict[str, float]) -> None:
    got, expected = ((x,) if isinstance(x, Tensor) else x for x in (got, expected))
    for a, b in zip(got, expected, strict=True):
        packed = isinstance(b, PackedTensor)
        assert type(a) is (type(b) if packed else DTensor), f"{case}: {type(a)}"
        assert not packed or case.split()[0] in WHOLE_NAMES or cut_of(a._packed), case
        torch.testing.assert_close(full(a), full(b), msg=lambda m: f"{case}: {m}", **tolerance)


WHOLE_NAMES = {name.split()[0] for name in ("S", "dense", "update")}


class Compared:
    """Functions of cut matrices against those of whole ones."""

    def __init__(self, mesh: DeviceMesh, dim: int, dtype: torch.dtype, device: str) -> None:
        self.mesh, self.dim, self.dtype, self.device = mesh, dim, dtype, device
        # Of float32 and 16 bits sums come in another order.
        loose = {"rtol": 16 * torch.finfo(dtype).eps, "atol": 64 * torch.finfo(dtype).eps}
        self.tolerance = {} if dtype.itemsize == 8 or dtype.is_complex else loose

    def spread(self, x: Tensor, placement: Any) -> DTensor:
        placements = [Replicate()] * self.mesh.ndim
        placements[self.dim] = placement
        return distribute_tensor(x, self.mesh, placements)

    def cut(self, t: PackedTensor) -> Any:
        """The same matrices, with the elements of each cut in parts."""
        packed = t.detach().packed
        return type(t)(self.spread(packed, Shard(packed.ndim - 1)))

    def randn(self, *shape: int) -> Tensor:
        return torch.randn(shape, dtype=self.dtype, device=self.device)

    def triangle(self, cls: type[PackedTensor], n: int, *batch: int) -> Any:
        x = self.randn(*batch, n * (n + 1) // 2) / max(n, 1) ** 0.5
        return cls(x).add_diagonal(2.0)

    def positive(self, n: int, *batch: int) -> Any:
        square = self.randn(*batch, n, n + 3) / (n + 3) ** 0.5
        made = packedtri.herk(square) if self.dtype.is_complex else packedtri.syrk(square)
        return made.add_diagonal(1.0)

    def dense(self, n: int) -> tuple[Tensor, Tensor, Tensor]:
        return self.randn(n, COLUMNS), self.randn(COLUMNS, n), self.randn(n)

    def call(self, functions: dict[str, Function], t: Any, n: int, *, places: int = 1) -> None:
        """Compare functions, with dense operands that all have, or that are spread in more ways."""
        own = self.dense(n)
        x, y, v = own
        ways = (Replicate(), Replicate()), (Shard(1), Shard(0)), (Shard(0), Shard(1))
        for of_x, of_y in ways[:places]:
            others = self.spread(x, of_x), self.spread(y, of_y), self.spread(v, Replicate())
            for name, function in functions.items():
                case = f"{name} of {type(t).__name__} {tuple(t.shape)} {self.dtype} {of_x}"
                same(case, function(self.cut(t), *others), function(t, *own), self.tolerance)


def values(
    compared: Compared, n: int, *batch: int, types: Sequence[type[PackedTensor]] = TYPES
) -> None:
    """All functions of matrices of one order and batch."""
    # Torch has no rule for the real part of a single complex number.
    left_out = {"xᴴ S x", "reduced"} if compared.dtype.is_complex else set()
    for cls in types:
        t = compared.triangle(cls, n, *batch)
        compared.call(PRODUCTS, t, n, places=3 if n > 2 else 1)
        compared.call(OF_ALL, t, n)
        if n > 1:
            compared.call({k: f for k, f in READ.items() if k not in left_out}, t, n)
        if cls in TRIANGLES:
            compared.call(SOLVES, t, n, places=3 if n > 2 else 1)
            compared.call(OF_TRIANGLES, t, n)
    if n and 0 not in batch:
        functions = {k: f for k, f in OF_POSITIVE.items() if k not in left_out}
        compared.call(functions, compared.positive(n, *batch), n)


def columns_of_batches(mesh: DeviceMesh, device: str) -> None:
    """One cut triangle beside a batch of matrices, and a batch of them beside one matrix."""
    compared = Compared(mesh, 0, torch.float64, device)
    single, several = (compared.triangle(LowerTriangular, 7, *batch) for batch in ((), (3,)))
    x = compared.randn(3, 7, 4)
    for placement in (Replicate(), Shard(0), Shard(1), Shard(2)):
        for t in (single, several):
            for function in (lambda t, x: t @ x, torch.linalg.solve):
                got = function(compared.cut(t), compared.spread(x, placement))
                same(f"batch {placement}", got, function(t, x), {})
    got = compared.cut(single) @ compared.spread(x, Shard(0))
    assert got.placements[0] == Shard(0), got.placements
    # Elements of one operand are cut where they are to be added to cut ones.
    other = compared.triangle(LowerTriangular, 7, 3)
    replicated = LowerTriangular(compared.spread(other.packed, Replicate()))
    same("one cut", compared.cut(single) @ replicated, single @ other, {})
    same("one cut", torch.linalg.solve(replicated, compared.cut(single)),
         torch.linalg.solve(other, single), {})  # fmt: skip


def places(mesh: DeviceMesh, device: str) -> None:
    """Where results are, which a user relies on."""
    compared = Compared(mesh, 0, torch.float64, device)
    L = compared.cut(compared.triangle(LowerTriangular, 9))
    x = compared.randn(9, COLUMNS)
    whole, columns = compared.spread(x, Replicate()), compared.spread(x, Shard(1))
    assert (L @ whole).placements == (Partial(),)
    assert (L @ columns).placements == (Shard(1),)
    assert torch.linalg.solve(L, columns).placements == (Shard(1),)
    assert torch.linalg.solve(L, whole).placements == (Replicate(),)
    few = solves.FEW
    solves.FEW = COLUMNS
    assert torch.linalg.solve(L, whole).placements == (Shard(1),)
    solves.FEW = few
    with torch.inference_mode():
        S = Symmetric(compared.spread(compared.randn(45), Shard(0)))
        assert (S @ compared.spread(x, Replicate())).placements == (Partial(),)
    # Also of matrices that were made outside of it.
    S, v = compared.cut(compared.triangle(Symmetric, 9)), compared.spread(x[:, 0], Replicate())
    with torch.inference_mode():
        assert (S @ v).placements == (Partial(),)
        assert cut_of((S @ S)._packed)


def gradients(mesh: DeviceMesh, dtype: torch.dtype, device: str) -> None:
    """Gradients of cut matrices are cut, and second derivatives are right."""
    compared = Compared(mesh, 0, dtype, device)
    n = 10
    functions: list[tuple[str, Any, Function]] = [
        *((f"{cls.__name__} x", cls, lambda T, x: T @ x) for cls in TYPES),
        *((f"{cls.__name__} v", cls, lambda T, x: T @ x[:, 0]) for cls in TYPES),
        *((f"{cls.__name__}⁻¹ x", cls, torch.linalg.solve) for cls in TRIANGLES),
        ("L L", LowerTriangular, lambda L, x: (L @ L) @ x),
        ("L Lᵀ", LowerTriangular, lambda L, x: (L @ L.mT) @ x),
        ("Lᵀ L", LowerTriangular, lambda L, x: (L.mT @ L) @ x),
        *((f"{cls.__name__}²", cls, lambda S, x: (S @ S) @ x) for cls in TYPES[2:]),
        ("L⁻¹", LowerTriangular, lambda L, x: torch.linalg.inv(L) @ x),
        ("L⁻¹ L", LowerTriangular, lambda L, x: torch.linalg.solve(L, L.square()) @ x),
        ("ridge", LowerTriangular, lambda L, x: L.add_diagonal(x[:, 0]) @ x),
        ("ones", UpperTriangular, lambda U, x: U.unit_diagonal() @ x),
        ("diagonal", LowerTriangular, lambda L, x: L.diagonal() * x[:, 0]),
        *((f"row of {c.__name__}", c, lambda T, x: T[2] * x[:, 0]) for c in TYPES),
        *((f"block of {c.__name__}", c, lambda T, x: T[1:6, 3:6] @ x[:3]) for c in TYPES),
        ("sum", LowerTriangular, lambda L, x: L.sum() * x.sum()),
        ("norm", LowerTriangular, lambda L, x: torch.linalg.matrix_norm(L) * x.sum()),
        ("S⁻¹ x", None, torch.linalg.solve),
        ("logdet", None, lambda S, x: torch.logdet(S)),
        ("likelihood", None, lambda S, x: sum(packedtri.inv_quad_logdet(S, x))),
    ]
    if dtype.is_complex:
        # Torch has no rule for the real part of a single complex number.
        functions = [f for f in functions if f[0] not in ("logdet", "sum", "norm")]
    for name, cls, function in functions:
        t = compared.positive(n) if cls is None else compared.triangle(cls, n)
        x, weights = compared.randn(n, 4), compared.randn(n, 4)
        for placement in (Replicate(),) if dtype.is_complex else (Replicate(), Shard(1)):
            found = []
            for own, others in (
                (compared.cut(t), [compared.spread(y, placement) for y in (x, weights)]),
                (t.detach(), (x, weights)),
            ):
                own, rhs = own.requires_grad_(), others[0].detach().requires_grad_()
                result = function(own, rhs)
                weight = others[1][: result.shape[0] if result.dim() else 1]
                weight = weight[:, 0] if result.dim() == 1 else weight
                loss = result * (weight if result.dim() else 1)
                (loss.real if loss.is_complex() else loss).sum().backward()
                found.append((own.grad, rhs.grad))
            case = f"gradient of {name}, {dtype}, {placement}"
            (got, got_x), (expected, expected_x) = found
            assert type(got) is type(expected) is type(t), case
            assert cut_of(got._packed), f"{case}: {got._packed.placements}"
            torch.testing.assert_close(full(got), full(expected), msg=lambda m, c=case: f"{c}: {m}")
            if expected_x is not None:
                torch.testing.assert_close(full(got_x), expected_x)


def derivatives_by_whole_matrices(compared: Compared) -> None:
    """Gradients of what is put together are cut too; so are second derivatives right."""
    S = compared.positive(10)
    for function in (lambda S: S.to_dense(), torch.linalg.inv, torch.linalg.cholesky):
        gradients_of = []
        for own in (compared.cut(S), S.detach()):
            own = own.requires_grad_()
            result = function(own)
            (result * result).sum().backward()
            gradients_of.append(own.grad)
        assert cut_of(gradients_of[0]._packed)
        torch.testing.assert_close(*map(full, gradients_of))
    found = []
    for own in (compared.cut(S), S.detach()):
        own = own.requires_grad_()
        (first,) = torch.autograd.grad(torch.logdet(own), own, create_graph=True)
        (first @ first).to_dense().sum().backward()
        found.append(full(own.grad))
    torch.testing.assert_close(*found)


def elements_are_assigned(compared: Compared) -> None:
    """In place, on whatever process they lie."""
    for cls in TYPES:
        t = compared.triangle(cls, 9)
        cut = compared.cut(t.clone())
        at = (2, 6) if cls is UpperTriangular else (6, 2)
        for own in (cut, t):
            own[at] = 5.0
            own[8, 8] = 7.0
            own.fill_diagonal_(3.0) if cls is LowerTriangular else own.add_diagonal_(1.0)
        same("assigned", cut, t, {})
        assert cut.packed.to_local().shape[-1] < t.packed.shape[-1]


def nothing_is_cast(compared: Compared) -> None:
    """Solves keep their precision under autocast; products have that of torch."""
    S, x = compared.positive(12).float(), compared.randn(12, 2).float()
    with torch.autocast(compared.device, torch.bfloat16):
        for function in (
            torch.linalg.solve,
            lambda S, x: torch.logdet(S),
            lambda S, x: sum(packedtri.inv_quad_logdet(S, x)),
        ):
            got = function(compared.cut(S), compared.spread(x, Replicate()))
            same("autocast", got, function(S, x), {"rtol": 1e-4, "atol": 1e-4})
        for guard in (torch.no_grad(), torch.inference_mode()):
            with guard:
                product = compared.cut(S) @ compared.spread(x, Replicate())
            assert product.dtype == torch.bfloat16


def parts_of_unusual_layout(compared: Compared, rank: int, world: int) -> None:
    """Local tensors that are no plain rows of memory."""
    t = compared.triangle(LowerTriangular, 9)
    begin, end = strips.Cut(9, compared.mesh, 0).chunk(rank)
    own = t.packed[begin:end]
    strided = torch.stack([own, own], -1).reshape(-1)[::2]
    negative = torch.view_as_complex(torch.stack([own, -own], -1)).conj().imag
    for local in (strided, negative):
        packed = DTensor.from_local(
            local, compared.mesh, [Shard(0)], run_check=False, shape=t.packed.shape, stride=(1,)
        )
        cut = LowerTriangular(packed)
        x = compared.randn(9, 2)
        for placement in (Replicate(), Shard(1)):
            same("layout", cut @ compared.spread(x, placement), t @ x, {})
        same("layout", cut @ cut, t @ t, {})
    assert world > 1


def no_process_has_all(mesh: DeviceMesh, device: str) -> None:
    """What is made on the way to solutions, factors, likelihoods and their gradients is smaller."""
    compared = Compared(mesh, 0, torch.float64, device)
    n = 37
    S, x = compared.cut(compared.positive(n)), compared.spread(compared.randn(n, 2), Replicate())
    L = compared.cut(compared.triangle(LowerTriangular, n))
    whole = S.detach().requires_grad_()
    with Watch(n):
        torch.linalg.solve(L, x)
        torch.linalg.inv(L)
        torch.linalg.solve(S, x)
        L[3], L[2:5, 1:3], L @ L, L @ L.mT, S @ x, torch.logdet(S), L.add_diagonal(1.0)
        sum(packedtri.inv_quad_logdet(whole, x)).backward()
        lower = L.detach().requires_grad_()
        ((lower @ x).sum() + lower[3].sum() + lower.sum()).backward()
    assert cut_of(whole.grad._packed)
    assert cut_of(lower.grad._packed)


def failures(mesh: DeviceMesh, device: str) -> None:
    """What is wrong with a matrix all processes say alike, and what it is."""
    compared = Compared(mesh, 0, torch.float64, device)
    n = 12
    for minor in (1, 5, 12):
        S = Symmetric.eye(n, dtype=torch.float64, device=device)
        S[minor - 1, minor - 1] = -1
        assert full(torch.linalg.cholesky_ex(compared.cut(S)).info).item() == minor
        with pytest.raises(torch.linalg.LinAlgError, match=f"minor of order {minor} "):
            torch.linalg.cholesky(compared.cut(S))
        x = compared.spread(compared.randn(n, 2), Replicate())
        indefinite = torch.linalg.solve(compared.cut(S), x)
        torch.testing.assert_close(full(indefinite), torch.linalg.solve(S, full(x)))
        L = LowerTriangular.eye(n, dtype=torch.float64, device=device)
        L[minor - 1, minor - 1] = 0
        with pytest.raises(torch.linalg.LinAlgError, match="singular"):
            torch.linalg.solve(compared.cut(L), x)
        with pytest.raises(torch.linalg.LinAlgError, match=f"element {minor} is zero"):
            torch.linalg.inv(compared.cut(L))
    L = compared.cut(LowerTriangular.eye(n, dtype=torch.float64, device=device))
    for wrong in (compared.randn(n + 1, 2), compared.randn(n, 2).float()):
        with pytest.raises((RuntimeError, ValueError), match="expected|cannot multiply|same dtype"):
            L @ compared.spread(wrong, Replicate())
        with pytest.raises((RuntimeError, ValueError), match="expected"):
            torch.linalg.solve(L, compared.spread(wrong, Replicate()))
    # Zeros that no process has do not meet nan and inf.
    nan = LowerTriangular.eye(n, dtype=torch.float64, device=device)
    nan[0, 0] = float("nan")
    same("nan", compared.cut(nan).unit_diagonal(), nan.unit_diagonal(), {})


def main(rank: int, world: int, store: str, device: str) -> None:
    if device == "cuda":
        torch.cuda.set_device(rank)
    backend = "gloo" if device == "cpu" else "nccl"
    dist.init_process_group(
        backend, store=dist.FileStore(store, world), rank=rank, world_size=world
    )
    torch.manual_seed(0)
    # Small matrices must fall into as many strips as large ones do.
    strips.LEAST_ROWS, strips.ALONE, strips.LEAST_SENT = 2, 20, 20
    mesh = init_device_mesh(device, (world,))
    compared = Compared(mesh, 0, torch.float64, device)
    with no_whole_matrix():
        for n in (0, 1, 2, 3, 13):
            values(compared, n)
        for batch in (0, 2):
            values(compared, 5, batch)
        values(Compared(mesh, 0, torch.complex128, device), 9)
        values(Compared(mesh, 0, torch.float32, device), 9, types=(LowerTriangular, Symmetric))
        for shape, dim in (((1, world), 1), ((world, 1), 0)):
            of_shape = Compared(init_device_mesh(device, shape), dim, torch.float64, device)
            values(of_shape, 7, types=(UpperTriangular,))
        columns_of_batches(mesh, device)
        places(mesh, device)
        for dtype in (torch.float64, torch.complex128):
            gradients(mesh, dtype, device)
        solves.FEW = 2
        values(compared, 11)
    no_process_has_all(mesh, device)
    derivatives_by_whole_matrices(compared)
    elements_are_assigned(compared)
    nothing_is_cast(compared)
    parts_of_unusual_layout(compared, rank, world)
    failures(mesh, device)
    compared.call(WHOLE, compared.positive(9), 9)
    for dtype in (torch.float16, torch.bfloat16):
        narrow = Compared(mesh, 0, dtype, device)
        for cls in TYPES:
            narrow.call(PRODUCTS, narrow.triangle(cls, 11), 11, places=3)
        narrow.call({k: OF_POSITIVE[k] for k in ("cholesky", "S⁻¹ x")}, narrow.positive(11), 11)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
