"""What the machine and the software are; recorded with every measurement."""

from __future__ import annotations

import platform
import subprocess
from datetime import datetime, timezone
from pathlib import Path

import torch

from packedtri import __version__, _library


def _output_of(*command: str, cwd: Path | None = None) -> str | None:
    """The first line that a command prints, or None where it is missing or fails."""
    try:
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return (done.stdout.splitlines() or [""])[0].strip() or None


def commit() -> str | None:
    """The commit of the source tree that this package runs from; None when it was installed."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    return _output_of(
        "git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*", cwd=root
    )


def driver() -> str | None:
    """The version of the NVIDIA driver."""
    return _output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")


#: How the operands and the result of a product are stored, as packedtri.layout names it.
Kinds = tuple[int, int, int]


def cpu_name() -> str:
    """The processor's name where Linux tells it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def device_name(device: torch.device) -> str:
    """The name of a device as a person knows it."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name()


def dtype_name(dtype: torch.dtype) -> str:
    """The name of a dtype without that of torch."""
    return str(dtype).removeprefix("torch.")


def default_device() -> torch.device:
    """The GPU where torch and packedtri both can use one, otherwise the CPU."""
    usable = torch.cuda.is_available() and _library.cuda_library is not None
    return torch.device("cuda" if usable else "cpu")


def kernel(
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    n: int = 4096,
    m: int = 4096,
    batch: int = 1,
    kinds: Kinds | None = None,
    tf32: bool = False,
) -> str:
    """The kernel that packedtri runs a product with on a device; ``kinds`` says which product.

    With ``tf32`` products of float32 may run in TF32.
    """
    if device.type != "cuda":
        known = _library.cpu_kernel(dtype, n, m, batch, kinds) if kinds else _library.cpu_isa()
        return f"cpu {known}"
    if kinds is None:
        return "cuda"
    return "cuda " + _library.cuda_kernel(dtype, n, m, batch, kinds, device, tf32)


def meta(device: torch.device, at_commit: str | None = None) -> dict[str, str | int | None]:
    """The header of a file of measurements."""
    return {
        "device": device_name(device),
        "driver": driver() if device.type == "cuda" else None,
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "packedtri": __version__,
        "commit": at_commit or commit(),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "threads": torch.get_num_threads(),
    }
