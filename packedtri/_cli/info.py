"""What is installed here, and what packedtri would use of it."""

from __future__ import annotations

import platform

import torch
from rich.markup import escape
from rich.table import Table

from packedtri import __version__, _library
from packedtri._cli import environment
from packedtri.layout import LOWER


def _cuda_library() -> str:
    if _library.cuda_library is not None:
        return _library.cuda_library.name
    if torch.version.cuda is None:
        return "not loaded: this torch is built without CUDA"
    return "missing: build with nvcc on the path (with PACKEDTRI_CUDA=ON a build without it fails)"


def _gpus() -> list[tuple[str, str]]:
    if not torch.cuda.is_available():
        return [("GPU", "none that torch can use")]
    rows = []
    for index in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(index)
        line = (
            f"{gpu.name}, sm_{gpu.major}{gpu.minor}, {gpu.multi_processor_count} SMs, "
            f"{gpu.total_memory / 2**30:.0f} GiB"
        )
        rows.append((f"GPU {index}", line))
    return rows


def _cuda_choices() -> list[tuple[str, str]]:
    """What L @ L runs with on the first GPU, over types and sizes."""
    device, kinds = torch.device("cuda", 0), (LOWER, LOWER, LOWER)
    return [
        (
            f"L @ L, {environment.dtype_name(dtype)}{' in TF32' * tf32}, n = {n}",
            environment.kernel(device, dtype, n, n, kinds=kinds, tf32=tf32),
        )
        for dtype, tf32 in (
            (torch.float32, False),
            (torch.float32, True),
            (torch.float64, False),
            (torch.bfloat16, False),
        )
        for n in (512, 1024, 2048, 4096, 8192)
    ]


def table() -> Table:
    """Versions, libraries, devices and kernels."""
    assert _library.cpu_library is not None  # importing packedtri fails without it
    rows = [
        ("packedtri", __version__),
        ("commit", environment.commit() or "not a source tree"),
        ("torch", torch.__version__),
        ("Python", platform.python_version()),
        ("CUDA of torch", torch.version.cuda or "none"),
        ("NVIDIA driver", environment.driver() or "none"),
        ("CPU library", _library.cpu_library.name),
        ("CUDA library", _cuda_library()),
        ("CPU", f"{environment.cpu_name()}, {torch.get_num_threads()} threads"),
        *_gpus(),
        ("CPU kernels", environment.kernel(torch.device("cpu"))),
    ]
    if torch.cuda.is_available() and _library.cuda_library is not None:
        rows += _cuda_choices()
    result = Table(show_header=False, title="packedtri")
    for name, value in rows:
        result.add_row(name, escape(value))
    return result
