"""What two processes do in test_distributed: python two_processes.py RANK WORLD STORE DEVICE.

Both draw the same numbers, so that each knows what the other one sends.
"""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Placement,
    Replicate,
    Shard,
    distribute_tensor,
)
from torch.nn.parallel import DistributedDataParallel

import packedtri
from packedtri import Hermitian, LowerTriangular, PackedTensor, Symmetric, UpperTriangular

WORLD = 2
# Where a version of torch does not ask types, it takes complex elements apart before.
ASKS_TYPES = "has_torch_function" in inspect.unwrap(dist.broadcast).__code__.co_names
COMPLEX = (torch.complex64,) if ASKS_TYPES else ()


def same(got: Tensor, expected: Tensor) -> None:
    """Equal elements, and of packed tensors one type."""
    assert type(got) is type(expected), (type(got), type(expected))
    torch.testing.assert_close(got.detach().to_dense(), expected.detach().to_dense())


def each_collective(cls: type[PackedTensor], dtype: torch.dtype, rank: int, device: str) -> None:
    """Every collective of torch's, on batches of two matrices."""
    sent = [cls.randn(WORLD, 3, dtype=dtype).to(device) for _ in range(WORLD)]
    own, total = sent[rank], sent[0] + sent[1]

    def blank(*batch: int) -> PackedTensor:
        # Poisoned, since results must not depend on what was there.
        return cls.zeros(*batch, 3, dtype=dtype, device=device).fill_(1e6)

    t = own.clone()
    version = t._version
    assert dist.all_reduce(t) is None
    assert t._version > version
    same(t, total)
    t = own.clone()
    dist.broadcast(t, 1, async_op=True).wait()
    same(t, sent[1])
    t = own.clone()
    dist.reduce(t, 1)
    if rank == 1:
        same(t, total)
    t = blank(2)
    if rank == 0:
        dist.send(own, 1)
        dist.irecv(t, 1).wait()
    else:
        dist.recv(t, 0)
        dist.isend(own, 0).wait()
    same(t, sent[1 - rank])
    received = [blank(2), blank(2)]
    dist.all_gather(received, own)
    for got, expected in zip(received, sent, strict=True):
        same(got, expected)
    t = blank(4)
    dist.all_gather_into_tensor(t, own)
    same(t, torch.cat(sent))
    t = blank(2)
    dist.scatter(t, sent if rank == 0 else None, src=0)
    same(t, sent[rank])
    if not dtype.is_complex:  # Torch itself gathers no complex elements.
        received = [blank(2), blank(2)]
        dist.gather(own, received if rank == 1 else None, dst=1)
        for got, expected in zip(received, sent, strict=True):
            same(got, expected if rank == 1 else blank(2))
    t = blank(1)
    dist.reduce_scatter_tensor(t, own)
    same(t[0], total[rank])
    t = blank(2)
    dist.all_to_all_single(t, own)
    same(t, torch.stack([sent[0][rank], sent[1][rank]]))


def collectives(rank: int, device: str) -> None:
    for cls in (LowerTriangular, UpperTriangular, Symmetric, Hermitian):
        for dtype in (torch.float32, torch.float64, *COMPLEX):
            each_collective(cls, dtype, rank, device)
    # Diagonals of Hermitian matrices are real, whatever is stored.
    stored = torch.tensor([1 + 1j, 1j, 2.0], device=device)
    H = Hermitian(stored)
    dist.all_reduce(H)
    same(H, Hermitian(torch.tensor([2.0, 2j, 4.0], device=device)))
    # Parameters may be sent, and gradients.
    w = nn.Parameter(LowerTriangular.eye(3, device=device) * (rank + 1))
    dist.broadcast(w, 1)
    (w @ torch.ones(3, device=device)).sum().backward()
    dist.all_reduce(w.grad, op=dist.ReduceOp.AVG if device == "cuda" else dist.ReduceOp.SUM)
    assert type(w.grad) is LowerTriangular
    # What a backward formula has saved must not change.
    L = LowerTriangular.eye(3, device=device).requires_grad_()
    saved = LowerTriangular.eye(3, device=device)
    product = (L @ saved).sum()
    dist.all_reduce(saved)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


class Net(nn.Module):
    """A layer of each type, one of them in two places, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.lower = nn.Parameter(LowerTriangular.randn(4, dtype=torch.float64))
        self.full = nn.Linear(4, 4, dtype=torch.float64)
        self.middle = nn.Parameter(Symmetric.randn(4, dtype=torch.float64))
        self.register_buffer("upper", UpperTriangular.randn(4, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.full(x) @ self.lower) @ self.middle @ self.upper


def steps(net: nn.Module, batches: list[Tensor]) -> list[Tensor]:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    losses = []
    for x in batches:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def training(wrap: Callable[[nn.Module], nn.Module], rank: int, device: str) -> None:
    """Steps on halves of each batch are those that one process takes on the whole."""
    alone = packedtri.nn.plain_parameters(Net()).to(device)
    spread = wrap(copy.deepcopy(alone))
    batches = [torch.randn(8, 4, dtype=torch.float64).to(device) for _ in range(4)]
    expected = steps(alone, batches)
    losses = steps(spread, [x[rank::WORLD] for x in batches])
    for loss, whole in zip(losses, expected, strict=True):
        dist.all_reduce(loss)
        torch.testing.assert_close(loss / WORLD, whole)


def functions() -> dict[str, Callable[..., Any]]:
    """What is computed of a triangle, a Symmetric, and dense matrices."""
    return {
        "L": lambda L, S, x, c: L,
        "L x": lambda L, S, x, c: L @ x,
        "S x": lambda L, S, x, c: S @ x,
        "xᵀ L": lambda L, S, x, c: x.mT @ L,
        "L c": lambda L, S, x, c: L @ c,
        "c L": lambda L, S, x, c: c.mT @ L,
        "L L": lambda L, S, x, c: L @ L,
        "L Lᵀ": lambda L, S, x, c: L @ L.mT,
        "L Lᴴ": lambda L, S, x, c: L @ L.mH,
        "S S": lambda L, S, x, c: S @ S,
        "S += S": lambda L, S, x, c: S.clone().add_(S),
        "L S": lambda L, S, x, c: L @ S,
        "x xᵀ": lambda L, S, x, c: packedtri.syrk(x),
        "xᵀ x": lambda L, S, x, c: packedtri.syrk(x.mT),
        "L⁻¹ x": lambda L, S, x, c: torch.linalg.solve(L, x),
        "xᵀ L⁻¹": lambda L, S, x, c: torch.linalg.solve(L, x.mT, left=False),
        "S⁻¹ x": lambda L, S, x, c: torch.linalg.solve(S, x),
        "L⁻¹ L": lambda L, S, x, c: torch.linalg.solve(L, L),
        "inverses": lambda L, S, x, c: (torch.linalg.inv(L), torch.linalg.inv(S)),
        "cholesky": lambda L, S, x, c: torch.linalg.cholesky(S),
        "update": lambda L, S, x, c: packedtri.cholesky_update(torch.linalg.cholesky(S), x),
        "logdet": lambda L, S, x, c: (torch.logdet(S), torch.linalg.slogdet(L)[1]),
        "likelihood": lambda L, S, x, c: packedtri.inv_quad_logdet(S, x),
        "rcond": lambda L, S, x, c: (packedtri.rcond(S), packedtri.rcond(L)),
        "refine": lambda L, S, x, c: packedtri.refine(S, x, torch.zeros_like(x)),
        "sums": lambda L, S, x, c: (L.sum(), S.mean(0), torch.linalg.norm(L), L.amax((1, 2))),
        "elements": lambda L, S, x, c: (torch.sin(L), torch.exp(S), L + 2 * L, L * L),
        "powers": lambda L, S, x, c: packedtri.fractional_matrix_power(S, -0.25),
        "ridge": lambda L, S, x, c: S.add_diagonal(0.5),
        "indices": lambda L, S, x, c: (L[1], S[:, 1], L[..., 1, 0], L.diagonal(0, -2, -1)),
    }


def full(x: Any) -> Tensor:
    x = x.to_dense() if isinstance(x, PackedTensor) else x
    return x.full_tensor() if isinstance(x, DTensor) else x


def dtensors(rank: int, device: str) -> None:
    """Types of DTensors give what types of plain tensors give."""
    mesh = init_device_mesh(device, (WORLD,))
    for dtype in (torch.float64, torch.complex128):
        compare(mesh, dtype, device)
    L = LowerTriangular(distribute_tensor(torch.ones(4, 6, device=device), mesh, [Shard(0)]))
    x = distribute_tensor(torch.ones(4, 3, 1, device=device), mesh, [Shard(0)])
    assert (L @ x).placements == (Shard(0),)
    assert "Shard(dim=0)" in repr(L)
    decisions(mesh, device)
    training_of_dtensors(mesh, device)


# Torch has no rule for real numbers in the place of single complex ones.
REAL_ONLY = ("sums", "xᵀ L⁻¹")


def compare(mesh: DeviceMesh, dtype: torch.dtype, device: str) -> None:
    """What functions give for DTensors, each spread in several ways, and for plain tensors."""
    packed = torch.randn(5, 6, dtype=dtype, device=device)
    square = torch.randn(5, 3, 7, dtype=dtype, device=device)
    x = torch.randn(5, 3, 2, dtype=dtype, device=device)
    c = torch.randn(3, 4, dtype=dtype, device=device)
    L = LowerTriangular(packed).set_diagonal_(torch.full((5, 3), 2.0).to(x))
    own = L, packedtri.herk(square) if dtype.is_complex else packedtri.syrk(square)
    placements = [
        (Shard(0), Shard(0), Shard(1)),
        (Replicate(), Shard(2), Shard(1)),
        (Replicate(), Shard(1), Shard(0)),
        (Shard(1), Replicate(), Replicate()),
        (Partial(), Replicate(), Replicate()),
    ]
    for placed, of_x, of_c in placements:
        L, S = (type(t)(spread(t.packed, mesh, placed)) for t in own)
        others = spread(x, mesh, of_x), spread(c, mesh, of_c)
        for name, function in functions().items():
            if dtype.is_complex and name in REAL_ONLY:
                continue
            got, expected = function(L, S, *others), function(*own, x, c)
            if isinstance(got, Tensor):
                got, expected = (got,), (expected,)
            for a, b in zip(got, expected, strict=True):
                case = f"{name} of {placed}, {of_x}, {of_c}"
                assert isinstance(a, PackedTensor) == isinstance(b, PackedTensor), case
                torch.testing.assert_close(full(a), full(b), msg=lambda m, c=case: f"{c}: {m}")


def spread(x: Tensor, mesh: DeviceMesh, placement: Placement) -> Tensor:
    if placement == Partial():
        share = DTensor.from_local(x / WORLD, mesh, [placement])
        assert share.placements == (Partial(),)
        return share
    return distribute_tensor(x, mesh, [placement])


def decisions(mesh: DeviceMesh, device: str) -> None:
    """What one process finds in its matrices all of them act on."""
    matrices = torch.eye(3, device=device).expand(4, 3, 3).clone()
    matrices[3] *= -1
    x = distribute_tensor(torch.ones(4, 3, 1, device=device), mesh, [Shard(0)])
    packed = distribute_tensor(Symmetric.from_dense(matrices).packed, mesh, [Shard(0)])
    S = Symmetric(packed)
    same(torch.linalg.solve(S, x).full_tensor(), matrices @ torch.ones(3, 1, device=device))
    info = torch.linalg.cholesky_ex(S).info.full_tensor()
    assert info.tolist() == [0, 0, 0, 1]
    with pytest.raises(torch.linalg.LinAlgError, match="Batch element 3"):
        torch.linalg.cholesky(S)
    elements = LowerTriangular.eye(3, device=device).expand(4, 3, 3).packed.clone()
    elements[3] = 0
    singular = LowerTriangular(distribute_tensor(elements, mesh, [Shard(0)]))
    with pytest.raises(torch.linalg.LinAlgError, match="Batch element 3.*singular"):
        torch.linalg.solve(singular, x)
    LowerTriangular.from_dense(distribute_tensor(matrices, mesh, [Shard(0)]), check=True)
    # A process that has no matrix decides as the other one.
    single = Symmetric.from_dense(torch.ones(1, 3, 3, device=device)).to_dense()
    single[0, 0, 1] += 1e-7
    spread_single = distribute_tensor(single, mesh, [Shard(0)])
    for cls in (Symmetric, Hermitian):
        same(cls.from_dense(spread_single, check=True).packed.full_tensor(), single.new_ones(1, 6))
    bad = LowerTriangular(elements - 1)
    with pytest.raises(ValueError, match=r"PositiveDiagonal\] expected.*got -1"):
        packedtri.nn.PositiveDiagonal().right_inverse(
            LowerTriangular(distribute_tensor(bad.packed, mesh, [Shard(0)]))
        )
    matrices[3, 0, 2] = 5
    with pytest.raises(ValueError, match=r"element \(3, 0, 2\) is 5"):
        LowerTriangular.from_dense(distribute_tensor(matrices, mesh, [Shard(0)]), check=True)


def training_of_dtensors(mesh: DeviceMesh, device: str) -> None:
    """Optimizers take the steps that they take for plain types."""
    start = torch.randn(4, 6, dtype=torch.float64, device=device)
    x = torch.randn(4, 3, 8, dtype=torch.float64, device=device)
    for placed, of_x in ((Shard(0), Shard(0)), (Replicate(), Shard(2))):
        for optimizer, options in ((torch.optim.SGD, {}), (torch.optim.Adam, {"foreach": True})):
            found = []
            for elements, batch in (
                (distribute_tensor(start, mesh, [placed]), distribute_tensor(x, mesh, [of_x])),
                (start.clone(), x),
            ):
                w = nn.Parameter(LowerTriangular(elements))
                steps = optimizer([w], lr=0.05, **options)
                for _ in range(3):
                    steps.zero_grad()
                    loss = (w @ batch).square().mean() + (w @ w.mT).square().mean()
                    loss.backward()
                    steps.step()
                assert type(w.grad) is LowerTriangular
                found.append((full(w.detach()), full(w.grad)))
            torch.testing.assert_close(*found)


def main(rank: int, store: str, device: str) -> None:
    backend = "gloo" if device == "cpu" else "nccl"
    if device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group(
        backend, store=dist.FileStore(store, WORLD), rank=rank, world_size=WORLD
    )
    torch.manual_seed(0)
    collectives(rank, device)
    training(DistributedDataParallel, rank, device)
    training(fully_shard, rank, device)
    if torch.__version__ >= "2.12":  # Before, torch lacked many of their rules.
        dtensors(rank, device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[3], sys.argv[4])
