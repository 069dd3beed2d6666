"""Functions that torch's autocast runs in float32, which packed types run in it as well.

Products cast their operands to the lower dtype, see :mod:`packedtri.ops.mm`. What converts to dense
is left to torch.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from packedtri import dispatch
from packedtri.dispatch import Function
from packedtri.ops.dense import functions
from packedtri.ops.mm import without_autocast

#: By device: those of torch's lists that types have rows for, in any of their homes.
FLOAT32 = {
    "cpu": """
        cholesky cholesky_ex cholesky_inverse cholesky_solve inv inv_ex inverse nanquantile prod
        quantile solve trace triangular_solve
    """,
    "cuda": """
        acos arccos asin arcsin cosh cumprod cumsum erfinv exp expm1 log log10 log1p log2
        log_softmax logsumexp matrix_norm norm pow __pow__ __rpow__ prod reciprocal rsqrt sinh
        softmax softplus sum tan vector_norm
    """,
}
_HOMES = (torch, Tensor, torch.linalg, torch.special, torch.nn.functional)
_LOWER = (torch.float16, torch.bfloat16)


def in_float32(device: str) -> Any:
    """Decorator of handlers: under autocast on ``device`` take 16-bit arguments as float32.

    Results are float32 then, where the caller asks for no dtype of its own.
    """

    def wide(value: Any) -> Any:
        eligible = isinstance(value, Tensor) and value.device.type == device
        return value.float() if eligible and value.dtype in _LOWER else value

    def decorate(handler: Function) -> Function:
        @functools.wraps(handler)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not torch.is_autocast_enabled(device) or kwargs.get("dtype") is not None:
                return handler(*args, **kwargs)
            with without_autocast(device):
                return handler(*tree_map(wide, args), **tree_map(wide, kwargs))

        return call

    return decorate


def add_casts() -> None:
    """Make the handlers of these functions cast, once all of them have their rows."""
    for device, names in FLOAT32.items():
        for function in functions(names, *_HOMES):
            dispatch.decorate(function, in_float32(device))
