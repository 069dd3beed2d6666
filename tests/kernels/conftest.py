"""Makes the helper modules here importable under every import mode of pytest; shared fixtures."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from packedtri import _library

sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from cases import Force


@pytest.fixture
def force() -> Iterator[Force]:
    """Sets what the CUDA library chooses for a product (cases.Force); -1 leaves a part free."""
    function = ctypes.CDLL(str(_library.cuda_library)).packedtri_cuda_force
    yield function
    function(-1, -1, -1, -1, -1)


@pytest.fixture
def limit_copies(device: str) -> Iterator[Callable[[int], None]]:
    """Sets how many bytes of copies dense torch may be left with on the test's device."""
    library = _library.cuda_library if device == "cuda" else _library.cpu_library
    function = ctypes.CDLL(str(library)).packedtri_limit_copies
    function.argtypes, function.restype = [ctypes.c_int64], ctypes.c_int64
    before = function(0)
    function(before)
    yield function
    function(before)
