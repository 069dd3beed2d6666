"""Functions of torch's own in Python that cannot be overridden, found on the stack.

What they do to a type they do by other functions. Those the type sees, and they mean something else
when anybody else calls them.
"""

from __future__ import annotations

import inspect
from types import FrameType

import torch

from packedtri import _tracing
from packedtri._values import describe
from packedtri.tensor import PackedTensor

# What spreads the tensors of modules over processes, and the functions of it that take them apart.
_DISTRIBUTORS = {
    "FSDP, fully_shard": ("torch.distributed.fsdp._fully_shard._fsdp_param", "_init_sharded_param"),
    "FSDP": ("torch.distributed.fsdp._flat_param", "flatten_tensors"),
    "DDP": ("torch.nn.parallel.distributed", "__init__", "_distributed_broadcast_coalesced"),
}


def caller(module: str, *names: str) -> FrameType | None:
    """The innermost frame under way of one of these functions.

    Args:
        module: where they are defined.
        names: of the functions, which must call no code of a user's.

    Returns:
        The frame, or None: also under torch.compile, which follows no frames.
    """
    frame = None if _tracing.is_compiling() else inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name in names and frame.f_globals.get("__name__") == module:
            return frame
        frame = frame.f_back
    return None


def check_not_distributed(t: PackedTensor) -> None:
    """Raise where torch takes ``t`` apart to spread it over processes, instead of going dense."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return
    if caller("torch.distributed.tensor._api", "distribute_tensor") is not None:
        raise NotImplementedError(
            f"[distribute_tensor] expected a plain tensor; got {describe(t)}. Distribute its "
            f"elements, as in {type(t).__name__}(distribute_tensor(t.packed, mesh, placements))"
        )
    for name, (module, *functions) in _DISTRIBUTORS.items():
        if caller(module, *functions) is not None:
            raise NotImplementedError(
                f"[{name}] expected dense parameters and buffers; got {describe(t)}, which stores "
                "only a triangle. Call packedtri.nn.plain_parameters(module) first: it lets the "
                "module keep plain vectors of stored elements"
            )
