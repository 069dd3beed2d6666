"""Loads the compiled libraries: the ops with their CPU kernels, and the CUDA kernels."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

_HERE = Path(__file__).parent


def _load(name: str) -> Path | None:
    path = _HERE / f"{name}.so"
    if not path.exists():
        return None
    torch.ops.load_library(str(path))
    return path


cpu_library = _load("_packedtri_cpu")
if cpu_library is None:
    raise ImportError(
        f"packedtri was not built: {_HERE} has no compiled library. In a source tree run "
        "`make build`; otherwise reinstall the package."
    )

#: Path of the CUDA library, or None where it was not built or torch has no CUDA.
cuda_library = _load("_packedtri_cuda") if torch.version.cuda is not None else None


def cpu_isa() -> str:
    """The instruction set that the CPU kernels chose for this machine."""
    function = ctypes.CDLL(str(cpu_library)).packedtri_cpu_isa
    function.restype = ctypes.c_char_p
    return function().decode()
