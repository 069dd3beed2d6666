"""principal_submatrix against the index of a dense twin."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from derivatives import check_derivatives
from torch import Tensor
from twins import (
    MIRRORED,
    TRIANGULAR,
    called,
    dense,
    each_type,
    packed_vector,
    project,
    weighted_sum,
)

from packedtri import Hermitian, LowerTriangular, Symmetric, principal_submatrix

wide = pytest.mark.parametrize("wide", [torch.float64, torch.complex128])
SLICES = (
    slice(None),
    slice(1, 4),
    slice(-2, None),
    slice(0, None, 2),
    slice(3, 1),
    slice(None, 99),
)


@each_type
def test_slices_lists_and_masks(cls, dtype, device):
    for n in (0, 1, 2, 5, 17):
        for batch in ((), (0,), (2, 1)):
            A = cls.randn(*batch, n, dtype=dtype, device=device)
            if dtype.is_complex:
                # Imaginary parts that are stored on the diagonal of a Hermitian do not count.
                A = cls(A.packed.clone() + 1j)
            x, every = dense(A), torch.arange(n, device=device)
            mask = torch.rand(n, device=device) < 0.5
            for index in (
                *SLICES,
                mask,
                mask.tolist(),
                every[mask],
                every[mask].int(),
                every.tolist(),
                every[mask].numpy(force=True),
                mask.numpy(force=True),
            ):
                ours = principal_submatrix(A, index)
                assert type(ours) is cls and ours.dtype == dtype
                at = every[index] if isinstance(index, slice) else torch.as_tensor(index)
                at = at.nonzero().squeeze(-1) if at.dtype == torch.bool else at.long()
                assert torch.equal(dense(ours), x[..., at, :][..., at])


@pytest.mark.parametrize("cls", MIRRORED)
def test_any_order_of_a_mirrored_matrix(cls, dtype, device):
    A = cls.randn(3, 5, dtype=dtype, device=device)
    for index in ([4, 0, 2], [-1, 1, -5], [3, 3, 0, 3], torch.tensor([1, 0], dtype=torch.int32)):
        at = torch.as_tensor(index).long()
        ours = principal_submatrix(A, index)
        assert type(ours) is cls
        assert torch.equal(dense(ours), dense(A)[:, at][:, :, at])


@wide
@each_type
def test_derivatives(cls, wide, device):
    p = packed_vector(4, wide, (2,), device)
    index = [3, 0, 3] if cls in MIRRORED else [0, 3]

    def f(p: Tensor) -> Tensor:
        return principal_submatrix(cls(p) * cls(p), index).packed

    check_derivatives(f, (p,))


@each_type
def test_derivatives_of_a_block(cls, device):
    p = packed_vector(4, torch.complex128, (2,), device)

    def f(p: Tensor) -> Tensor:
        return principal_submatrix(cls(p) * cls(p), slice(1, 3)).packed

    check_derivatives(f, (p,))


@each_type
def test_gradients_are_those_of_the_dense_twin(cls, device):
    A = cls.randn(2, 5, dtype=torch.complex128, device=device).requires_grad_()
    x = dense(A).detach().requires_grad_()
    for index in ([0, 2, 3], *([[4, 1, 4]] if cls in MIRRORED else [])):
        ours = weighted_sum(principal_submatrix(A, index).to_dense())
        theirs = weighted_sum(x[:, index][:, :, index])
        (ours,), (theirs,) = torch.autograd.grad(ours, A), torch.autograd.grad(theirs, x)
        torch.testing.assert_close(dense(ours), project(cls, theirs))


def test_transforms_and_graphs(device):
    p = torch.randn(3, 10, device=device)
    many = torch.tensor([[3, 0], [1, 1], [-1, 2]], device=device)
    ours = torch.vmap(lambda p, i: principal_submatrix(Symmetric(p), i).packed)(p, many)
    each = [principal_submatrix(Symmetric(q), i).packed for q, i in zip(p, many, strict=True)]
    assert torch.equal(ours, torch.stack(each))
    ours = torch.vmap(lambda p: principal_submatrix(Symmetric(p), slice(1, 3)).packed)(p)
    assert torch.equal(ours, p[:, [2, 4, 5]])
    compiled = torch.compile(principal_submatrix, fullgraph=True, backend="aot_eager")
    A = Hermitian(torch.randn(10, dtype=torch.complex64, device=device)).requires_grad_()
    for index in (slice(1, 3), many[0]):
        result, expected = compiled(A, index), principal_submatrix(A, index)
        assert type(result) is Hermitian and torch.equal(dense(result), dense(expected))
        ours, theirs = (
            torch.autograd.grad(weighted_sum(x.to_dense()), A)[0] for x in (result, expected)
        )
        assert torch.equal(dense(ours), dense(theirs))
    L = LowerTriangular(p)
    assert torch.equal(dense(compiled(L, slice(0, 2))), dense(L)[:, :2, :2])
    with pytest.raises(NotImplementedError, match="Give a slice"):
        torch.vmap(lambda i: principal_submatrix(L, i).packed)(many)
    # Outside of the range, where nobody looks: no element must be taken for another.
    with pytest.raises((IndexError, RuntimeError), match="out of range|out of bounds"):
        torch.vmap(lambda i: principal_submatrix(Symmetric(p[0].cpu()), i).packed)(
            many.cpu() * 0 - 7
        )


def test_no_dense_matrix_is_made(device):
    A = Symmetric.randn(9, device=device)
    assert not any("pack.default" in op for op in called(lambda: principal_submatrix(A, [1, 2])))


def test_errors(device):
    S = Symmetric.eye(3, device=device)
    for error, message, call in (
        (TypeError, "for A; got Tensor", lambda: principal_submatrix(S.to_dense(), [0])),
        (TypeError, "for index; got .*int", lambda: principal_submatrix(S, 1)),
        (TypeError, "float32", lambda: principal_submatrix(S, [0.5])),
        (TypeError, "float32", lambda: principal_submatrix(S, np.array([0.5]))),
        (TypeError, "for index; got .*int", lambda: principal_submatrix(S, np.array(1))),
        (ValueError, "one dimension", lambda: principal_submatrix(S, np.zeros((2, 1), int))),
        (ValueError, "one dimension", lambda: principal_submatrix(S, [[0], [1]])),
        (ValueError, r"mask \(3,\)", lambda: principal_submatrix(S, [True, False])),
        (IndexError, "from -3 to 2", lambda: principal_submatrix(S, [3])),
        (IndexError, "from -3 to 2", lambda: principal_submatrix(S, [-4])),
    ):
        with pytest.raises(error, match=rf"\[principal_submatrix\].*{message}"):
            call()
    for cls in TRIANGULAR:
        for index in ([1, 0], [1, 1], [0, -3]):
            with pytest.raises(ValueError, match="increasing order"):
                principal_submatrix(cls.eye(3, device=device), index)


@pytest.mark.parametrize("cls", TRIANGULAR)
def test_integers_that_are_no_tensor_are_known_to_transforms(cls):
    p = torch.arange(1.0, 7.0)

    def part(p: Tensor) -> Tensor:
        return principal_submatrix(cls(p), [0, -1]).packed

    expected = torch.tensor([1.0, 0, 0, 1, 0, 1])
    assert torch.equal(torch.func.grad(lambda p: part(p).sum())(p), expected)
    assert torch.equal(torch.vmap(part)(torch.stack((p, 2 * p)))[1], 2 * part(p))
    compiled = torch.compile(part, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(p), part(p))
    with pytest.raises(ValueError, match="increasing"):
        torch.func.grad(lambda p: principal_submatrix(cls(p), [2, 0]).packed.sum())(p)
    with pytest.raises(IndexError, match="from -3 to 2"):
        principal_submatrix(cls(p), [3])


def test_the_device_is_that_of_the_matrix():
    S = Symmetric(torch.arange(6.0))
    with torch.device("meta"):
        assert principal_submatrix(S, [2, 0]).packed.tolist() == [5, 3, 0]
