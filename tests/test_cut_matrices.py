"""One matrix on several processes: what Shard(-1) of the stored elements cuts."""

from __future__ import annotations

import pytest
import torch
from processes import run

pytest.importorskip("torch.distributed.tensor")
pytestmark = pytest.mark.skipif(
    torch.__version__ < "2.12", reason="torch has too few rules of its own"
)


def test_cut_matrices(device, tmp_path):
    """Values, types and places of all that is computed on parts, as the script says."""
    run("cut_matrices.py", 2 if device == "cuda" else 3, device, tmp_path)
