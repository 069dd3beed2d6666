"""torch.block_diag of packed types against that of their dense twins."""

from __future__ import annotations

import pytest
import torch
from derivatives import check_derivatives
from torch import Tensor
from twins import (
    called,
    dense,
    each_type,
    packed_vector,
    peak_bytes,
    project,
    weighted_sum,
)

from packedtri import LowerTriangular, Symmetric

wide = pytest.mark.parametrize("wide", [torch.float64, torch.complex128])


@each_type
def test_blocks_of_one_type(cls, dtype, device):
    for orders in ((3,), (1, 2), (0, 5, 0, 17, 1), (2, 2, 2), (70, 300)):
        blocks = [cls.randn(n, dtype=dtype, device=device) for n in orders]
        if dtype.is_complex:
            # Imaginary parts that are stored on the diagonal of a Hermitian do not count.
            blocks = [cls(t.packed.clone() + 1j) for t in blocks]
        ours = torch.block_diag(*blocks)
        assert type(ours) is cls and ours.dtype == dtype
        assert torch.equal(dense(ours), torch.block_diag(*map(dense, blocks)))


@each_type
def test_other_blocks(cls, device):
    t = cls.randn(3, device=device)
    for other in (torch.randn(2, 4), torch.randn(3), LowerTriangular.eye(2), Symmetric.eye(2)):
        ours = torch.block_diag(t, other.to(device))
        assert type(ours) is (cls if type(other) is cls else Tensor)
        assert torch.equal(dense(ours), torch.block_diag(dense(t), dense(other).to(device)))
    mixed = torch.block_diag(t, cls.randn(2, dtype=torch.complex128, device=device))
    assert type(mixed) is cls and mixed.dtype == torch.complex128
    with pytest.raises(RuntimeError, match="2 or fewer dimensions"):
        torch.block_diag(cls.randn(2, 3, device=device))


@wide
@each_type
def test_derivatives(cls, wide, device):
    p, q = (packed_vector(n, wide, (), device) for n in (2, 3))

    def f(p: Tensor, q: Tensor) -> Tensor:
        return torch.block_diag(cls(p), cls(q) * cls(q), cls(p)).packed

    check_derivatives(f, (p, q))
    leaves = [cls.randn(n, dtype=wide, device=device).requires_grad_() for n in (2, 3)]
    twins = [dense(t).detach().requires_grad_() for t in leaves]
    ours = torch.autograd.grad(weighted_sum(torch.block_diag(*leaves).to_dense()), leaves)
    theirs = torch.autograd.grad(weighted_sum(torch.block_diag(*twins)), twins)
    for g, h in zip(ours, theirs, strict=True):
        torch.testing.assert_close(dense(g), project(cls, h))


def test_transforms_and_graphs(device):
    p, q = torch.randn(4, 3, device=device), torch.randn(4, 6, device=device)

    def f(p: Tensor, q: Tensor) -> Tensor:
        return torch.block_diag(Symmetric(p), Symmetric(q)).packed

    ours = torch.vmap(f)(p, q)
    assert torch.equal(ours, torch.stack([f(*pair) for pair in zip(p, q, strict=True)]))
    compiled = torch.compile(torch.block_diag, fullgraph=True, backend="aot_eager")
    result = compiled(Symmetric(p[0]), Symmetric(q[0]))
    assert type(result) is Symmetric and torch.equal(result.packed, ours[0])


def test_no_dense_matrix_is_made(device):
    t = LowerTriangular.randn(5, device=device)
    assert not any("pack.default" in op for op in called(lambda: torch.block_diag(t, t)))


def test_scratch_memory_is_the_size_of_the_result(device):
    t = LowerTriangular.randn(1200, device=device)
    stored = torch.block_diag(t, t).packed.nbytes
    assert peak_bytes(lambda: torch.block_diag(t, t)) < 2 * stored
