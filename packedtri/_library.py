"""Loads the compiled libraries: the ops with their CPU kernels, and the CUDA kernels."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

from packedtri.layout import DTYPES

_HERE = Path(__file__).parent
_precision = torch._C._get_fp32_precision_getter


def tf32_is_set() -> bool:
    """Whether torch rounds float32 to TF32 in products on CUDA.

    It is asked for where torch.mm itself asks. The functions and properties that set it
    (``allow_tf32``, ``fp32_precision``, ``set_float32_matmul_precision``) raise when read, once two
    of them have been used.
    """
    return _precision("cuda", "matmul") == "tf32"


# What Dynamo guards already: a compiled function is compiled again when the setting changes. That
# is torch.compiler.assume_constant_result, but without its import of all of Dynamo, which takes two
# seconds.
tf32_is_set._dynamo_marked_constant = True  # type: ignore[attr-defined]


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


if cuda_library is not None:
    # What torch rounds is told to Python alone. The object must live as long as the library.
    _rounds = ctypes.CFUNCTYPE(ctypes.c_bool)(tf32_is_set)
    ctypes.CDLL(str(cuda_library)).packedtri_cuda_ask_rounding(_rounds)


def cpu_isa() -> str:
    """The instruction set that the CPU kernels chose for this machine."""
    function = ctypes.CDLL(str(cpu_library)).packedtri_cpu_isa
    function.restype = ctypes.c_char_p
    return function().decode()


def cpu_kernel(dtype: torch.dtype, n: int, m: int, batch: int, kinds: tuple[int, int, int]) -> str:
    """What computes a product on the CPU, in words; arguments as of :func:`cuda_kernel`."""
    leaves_to_dense = ctypes.CDLL(str(cpu_library)).packedtri_cpu_leaves_to_dense
    sizes = (ctypes.c_int64(size) for size in (n, m, batch))
    if leaves_to_dense(DTYPES.index(dtype), *sizes, *kinds):
        return "unpacked, then dense torch"
    return cpu_isa()


def cuda_kernel(
    dtype: torch.dtype,
    n: int,
    m: int,
    batch: int,
    kinds: tuple[int, int, int],
    device: torch.device,
    tf32: bool = False,
) -> str:
    """The CUDA kernel of a product of order n (m columns where it is dense), in words.

    Args:
        kinds: How the left operand, the right one and the result are stored (see ``layout``).
        device: The GPU that the choice is made on.
        tf32: Whether products of float32 may run in TF32.
    """
    function = ctypes.CDLL(str(cuda_library)).packedtri_cuda_explain
    function.restype = ctypes.c_char_p
    sizes = (ctypes.c_int64(size) for size in (n, m, batch))
    with torch.cuda.device(device):
        return function(DTYPES.index(dtype), *sizes, *kinds, tf32).decode()


def _explain_missing_cuda(op: str) -> None:
    """A CUDA kernel for ``op`` that says why there is none."""
    reason = (
        "torch has no CUDA here"
        if torch.version.cuda is None
        else "the CUDA kernels of packedtri were not built"
    )

    def kernel(*args: object) -> torch.Tensor:
        raise RuntimeError(
            f"[packedtri::{op}] got a CUDA tensor, but {reason}. Reinstall packedtri where nvcc is "
            "on the path: its build then compiles them (PACKEDTRI_CUDA=ON insists on it). Or move "
            "the tensor with .cpu()"
        )

    _missing.impl(op, kernel, "CUDA")


if cuda_library is None:
    _missing = torch.library.Library("packedtri", "IMPL")
    _ops = (
        "mm pack unpack unpack_block diagonal embed_diagonal scale_band solve_triangular cholesky "
        "first_zero"
    )
    _others = (
        "_mm_out mm_pair pack_block write_block_ unpack_rows pack_rows multiply_rows "
        "_solve_triangular_out cholesky_update"
    )
    for _op in (
        *_others.split(),
        *(f"{prefix}{op}" for op in _ops.split() for prefix in ("", "_")),
    ):
        _explain_missing_cuda(_op)
