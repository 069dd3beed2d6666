"""Reciprocal condition numbers of symmetric and Hermitian matrices."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from twins import MIRRORED, called, dense

from packedtri import Hermitian, LowerTriangular, Symmetric, herk, rcond, syrk
from packedtri.testing import wide_dtype

mirrored = pytest.mark.parametrize("cls", MIRRORED)


def random_matrix(cls: type, n: int, dtype: torch.dtype, device: str, definite: bool) -> Tensor:
    """Four well-conditioned ones, of which the true value is known."""
    x = torch.randn(4, n, n, dtype=dtype, device=device) / max(n, 1) ** 0.5
    square = (herk if cls is Hermitian else syrk)(x).add_diagonal(0.3)
    return square if definite else square.add_diagonal(-1)


@mirrored
@pytest.mark.parametrize("definite", [True, False])
def test_estimates(cls, definite, dtype, device):
    """Never below the true value and close to it, as LAPACK's estimate; float32 for 16 bits."""
    for n in (1, 2, 3, 5, 17, 33):
        A = random_matrix(cls, n, torch.float64, device, definite).to(dtype)
        if dtype.is_complex:
            A = random_matrix(cls, n, dtype, device, definite)
        exact = 1 / torch.linalg.cond(dense(A).to(wide_dtype(dtype)), 1)
        ours = rcond(A)
        real = torch.float32 if dtype.itemsize == 2 else dtype.to_real()
        assert ours.dtype == real and ours.shape == (4,)
        # The true value is not known better than to eps / value.
        known = exact > 1e4 * torch.finfo(real).eps
        assert (ours >= exact * (1 - 1e-2))[known].all() and (ours <= 10 * exact)[known].all()


@mirrored
def test_positive_definite_matrices_stay_packed(cls, device):
    A = random_matrix(cls, 9, torch.float64, device, True)
    assert not any("unpack.default" in op for op in called(lambda: rcond(A)))


@mirrored
def test_ends_of_the_range(cls, device):
    singular = cls(torch.ones(3, device=device))
    assert rcond(singular) == 0 and rcond(cls.zeros(2, 3, device=device)).tolist() == [0, 0]
    assert rcond(cls.zeros(0, device=device)) == torch.inf
    for scale in (1e-39, 1e-30, 3e38):
        for factor in (scale, -scale):
            found = rcond(cls.eye(2, device=device) * factor)
            torch.testing.assert_close(found, torch.ones((), device=device))
    for small in (1e-30, -1e-30):
        found = rcond(cls(torch.tensor([1.0, 0.0, small], device=device)))
        torch.testing.assert_close(found.cpu(), torch.tensor(abs(small)), rtol=1e-4, atol=0)
    # A batch of a definite and a singular matrix, and one of an indefinite one.
    mixed = torch.stack([cls.eye(2, device=device), singular, cls.eye(2, device=device) * -2])
    expected = torch.tensor([1.0, 0.0, 1.0], device=device)
    torch.testing.assert_close(rcond(mixed), expected)
    for position in range(3):
        packed = torch.ones(3, device=device)
        packed[position] = torch.nan
        assert rcond(cls(packed)).isnan()


def test_a_triangle_of_the_same_elements_has_another(device):
    packed = torch.tensor([1.0, 0.5, 1.0], device=device)
    assert rcond(Symmetric(packed)) != rcond(LowerTriangular(packed))


def test_gradients_and_graphs(device):
    A = random_matrix(Symmetric, 5, torch.float64, device, True).requires_grad_()
    assert not rcond(A).requires_grad
    # Nobody looks at values there, and a dense matrix is factored.
    many = torch.vmap(lambda p: rcond(Symmetric(p)))(A.packed.detach())
    torch.testing.assert_close(many, rcond(A))
    # Beside a loss, whose gradients are taken of each of a batch.
    both = torch.func.grad(lambda p: p.sum() + rcond(LowerTriangular(p)))
    assert torch.equal(torch.vmap(both)(A.packed.detach()), torch.ones_like(A.packed))
    compiled = torch.compile(rcond, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(A.detach()), rcond(A))
