"""What tests need to compare packed types with their dense twins."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from operator import itemgetter
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from packedtri import (
    Hermitian,
    LowerTriangular,
    PackedTensor,
    Symmetric,
    UpperTriangular,
    layout,
)

TYPES = (LowerTriangular, UpperTriangular, Symmetric, Hermitian)
TRIANGULAR, MIRRORED = TYPES[:2], TYPES[2:]
each_type = pytest.mark.parametrize("cls", TYPES)
wide = pytest.mark.parametrize("wide", [torch.float64, torch.complex128])


class KeepsResults(TorchDispatchMode):
    """Sees every op, changes none and keeps what they return, as modes that log or debug do."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.kept.append(func(*args, **(kwargs or {})))
        return self.kept[-1]


class Sizes(TorchDispatchMode):
    """Notes how large the largest new tensor is that an op returns."""

    most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        new = [t for t in tree_leaves(out) if type(t) is Tensor and not any(t is a for a in args)]
        self.most = max([self.most, *(t.numel() for t in new)])
        return out


def dense(t: Any) -> Any:
    """The dense twin of a packed type; anything else as it is."""
    return t.to_dense() if isinstance(t, PackedTensor) else t


def project(cls: type, x: Tensor) -> Tensor:
    """The projection on the structure of ``cls`` that the gradient of a dense twin needs."""
    if cls in MIRRORED:
        return (x + (x.mH if cls is Hermitian else x.mT)) / 2
    return x.tril() if cls is LowerTriangular else x.triu()


def square_type(cls: type) -> type:
    """The type of the product of a real matrix and its own transpose."""
    return Hermitian if cls is Hermitian else Symmetric


def packed_vector(n: int, dtype=torch.float64, batch=(), device="cpu") -> Tensor:
    """Random stored elements of matrices of order n, a leaf."""
    return torch.randn(*batch, layout.numel(n), dtype=dtype, device=device, requires_grad=True)


def weighted_sum(x: Tensor) -> Tensor:
    """A real number with another derivative for each element."""
    weights = torch.arange(1.0, x.numel() + 1, dtype=torch.float64, device=x.device)
    return (x * weights.cos().reshape(x.shape)).sum().real


def peak_bytes(call: Callable[[], Any]) -> int:
    """The most memory that a call has at a time, its result included."""
    call()  # What is allocated once and kept does not count.
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        result = call()
    del result
    events = recorded.profiler.kineto_results.events()
    changes = [(e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"]
    return max(accumulate((size for _, size in sorted(changes, key=itemgetter(0))), initial=0))


def called(call: Callable[[], Any]) -> list[str]:
    """The names of the ops that a call ends in."""
    seen: list[str] = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Record():
        call()
    return seen
