"""What each of two processes does in test_distributed: python two_processes.py RANK STORE DEVICE.

Both draw the same numbers, so that each knows what the other one sends.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import packedtri
from packedtri import Hermitian, LowerTriangular, PackedTensor, Symmetric, UpperTriangular

WORLD = 2


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
    same(sent[rank] if rank == 0 else t, sent[0] if rank == 0 else total)
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
        same(received[0], sent[0] if rank == 1 else blank(2))
    t = blank(1)
    dist.reduce_scatter_tensor(t, own)
    same(t[0], total[rank])
    t = blank(2)
    dist.all_to_all_single(t, own)
    same(t, torch.stack([sent[0][rank], sent[1][rank]]))


def collectives(rank: int, device: str) -> None:
    for cls in (LowerTriangular, UpperTriangular, Symmetric, Hermitian):
        for dtype in (torch.float32, torch.float64, torch.complex64):
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
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
