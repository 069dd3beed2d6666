"""What type checkers say of programs that the documentation recommends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import torch
from packedtri import LowerTriangular, Symmetric, congruence, inv_quad_logdet
from packedtri import principal_submatrix, sqrtm

F, x = torch.randn(5, 5), torch.randn(5)
K = Symmetric.eye(5)
L: LowerTriangular = LowerTriangular.eye(5)
P: Symmetric = congruence(F, K, C=0.1 * Symmetric.eye(5))
inv_quad_logdet(K + K, x)
inv_quad_logdet(L @ L.mT, x)
sqrtm(2 * K)
principal_submatrix(-K / 2, [0, 1])
sqrtm((K - K.expand(3, 5, 5))[0])
anything: torch.Tensor = K
"""


def test_results_of_operators_are_taken_where_types_are(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path), str(path)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
