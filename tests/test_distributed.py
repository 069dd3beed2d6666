"""Collectives on packed types, and modules that are spread over processes."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from processes import run
from torch import Tensor, nn
from twins import MIRRORED, each_type

from packedtri import Hermitian, LowerTriangular, UpperTriangular
from packedtri.nn import plain_parameters

distributed = pytest.importorskip("torch.distributed")


def test_two_processes(device, tmp_path):
    """Values and types of all collectives, and steps of optimizers, as the script says."""
    run("two_processes.py", 2, device, tmp_path)


def _fully_shard(module: nn.Module) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    return fully_shard(module)


def _fsdp(module: nn.Module) -> nn.Module:
    from torch.distributed.fsdp import FullyShardedDataParallel

    return FullyShardedDataParallel(module, device_id=torch.device("cpu"), use_orig_params=True)


class Layer(nn.Module):
    """Two matrices, of which only one is trained."""

    def __init__(self, cls: type[Tensor]) -> None:
        super().__init__()
        self.weights = nn.Parameter(cls.randn(2, 3))
        self.register_buffer("matrix", cls.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        return (self.weights @ (self.matrix @ x)).sum(0)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    ("name", "wrap"),
    [("FSDP", _fully_shard), ("FSDP", _fsdp), ("DDP", nn.parallel.DistributedDataParallel)],
)
@each_type
def test_modules_spread_over_processes(
    cls: type[Tensor], name: str, wrap: Callable[[nn.Module], nn.Module], process_group: None
):
    """Torch takes their tensors for dense ones; plain vectors of elements it trains."""
    layer, x = Layer(cls), torch.randn(3, 1)
    with pytest.raises(NotImplementedError, match=rf"\[{name}.*plain_parameters\(module"):
        wrap(copy.deepcopy(layer))
    expected = layer(x)
    expected.sum().backward()
    spread = wrap(plain_parameters(copy.deepcopy(layer)))
    got = spread(x)
    torch.testing.assert_close(got, expected)
    got.sum().backward()
    (vector,) = spread.parameters()
    grad = vector.grad.full_tensor() if hasattr(vector.grad, "full_tensor") else vector.grad
    # An element beside the diagonal stands for two of a mirrored matrix.
    twice = torch.tensor([1, 2, 1, 2, 2, 1]) if cls in MIRRORED else 1
    torch.testing.assert_close(grad.reshape(2, 6), layer.weights.grad.packed * twice)


@each_type
def test_buffers_spread_over_processes(cls, process_group):
    module = nn.Linear(3, 3)
    module.register_buffer("matrices", cls.eye(3))
    with pytest.raises(NotImplementedError, match=r"\[DDP.*plain_parameters\(module"):
        nn.parallel.DistributedDataParallel(module)


def test_tensors_that_cannot_meet_raise(process_group):
    L, batch = LowerTriangular.eye(3), LowerTriangular.eye(3).expand(2, 3, 3)
    H = Hermitian.eye(3, dtype=torch.complex64)
    others = (UpperTriangular.eye(3), LowerTriangular.eye(4), torch.eye(3))
    for other in others:
        with pytest.raises(
            ValueError, match=r"\[torch.distributed.all_gather\] expected.*one type"
        ):
            distributed.all_gather([other], L)
        with pytest.raises(ValueError, match=r"\[torch.distributed.scatter\] expected.*one type"):
            distributed.scatter(L, [other], src=0)
    for view in (batch, H.mT, H.conj()):
        with pytest.raises(ValueError, match=r"all_reduce\] cannot write to.*\.clone\(\)"):
            distributed.all_reduce(view)
    with pytest.raises(ValueError, match=r"all_to_all_single\].*one of a batch"):
        distributed.all_to_all_single(L, L.clone())
    torch.testing.assert_close(L, LowerTriangular.eye(3))
    # What is only read may be a view.
    received = [LowerTriangular.zeros(2, 3)]
    distributed.all_gather(received, batch)
    torch.testing.assert_close(received[0], batch.clone())


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_independent_tensors_at_once(process_group):
    tensors = [LowerTriangular.eye(3), UpperTriangular.eye(4), torch.ones(5)]
    expected = [t.clone() for t in tensors]
    distributed.all_reduce_coalesced(tensors)
    for got, value in zip(tensors, expected, strict=True):
        torch.testing.assert_close(got, value)


def test_functional_collectives_raise(process_group):
    from torch.distributed import _functional_collectives

    with pytest.raises(NotImplementedError, match=r"all_reduce\].*\.packed"):
        _functional_collectives.all_reduce(LowerTriangular.eye(3), "sum", distributed.group.WORLD)
