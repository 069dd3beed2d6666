"""Changes in place of copies that dense torch would give as views: a warning, or none."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from twins import TYPES, each_type

from packedtri import Hermitian, LowerTriangular, PackedTensor, Symmetric

S = TYPES[2]


def assign(t: Any, value: Any) -> None:
    t[:] = value


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """No warning is raised; where references end, an error would go unnoticed."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield
    assert not found, found[0].message


def halve_rows(t: PackedTensor) -> None:
    for row in t:
        row /= 2


LOST: dict[str, Callable[[Any], Any]] = {
    "Tensor.diagonal": lambda t: t.diagonal(0, -2, -1).add_(1),
    "torch.diagonal": lambda t: assign(torch.diagonal(t, 0, -2, -1), 2.0),
    "linalg.diagonal": lambda t: torch.nn.init.ones_(torch.linalg.diagonal(t)),
    "row": lambda t: t[..., 0, :].zero_(),
    "element": lambda t: t[..., 1, 0].mul_(2),
    "block": lambda t: t[..., :2, :2].fill_(1.0),
    "part of a row": lambda t: t[..., 0, :][..., 1:].zero_(),
    "view of a block": lambda t: t[..., :2, :2].flatten().neg_(),
    "select": lambda t: t.select(-1, 0).zero_(),
    "flatten": lambda t: t.flatten()[::4].add_(1),
    "reshape": lambda t: t.reshape(-1).zero_(),
    "unsqueeze": lambda t: t.unsqueeze(-1).zero_(),
    "permute": lambda t: t.permute(1, 2, 0).zero_(),
    "einsum": lambda t: torch.einsum("bij->ijb", t).zero_(),
    "narrow": lambda t: t.narrow(-1, 0, 1).zero_(),
    "through a batch": lambda t: t.expand(2, *t.shape)[0].diagonal(0, -2, -1).zero_(),
    "einsum of a diagonal": lambda t: torch.einsum("...ii->...i", t).add_(1),
    "through .data": lambda t: t.data.diagonal(0, -2, -1).add_(1),
    "through a detached one": lambda t: t.detach()[0].diagonal().add_(1),
    "through a detached transpose": lambda t: t.detach().mT[0, 1].add_(1),
    "einsum of .data": lambda t: torch.einsum("...ii->...i", t.data).zero_(),
    "through a transpose": lambda t: t.mT.diagonal(0, -2, -1).zero_(),
}


@each_type
@pytest.mark.parametrize("write", LOST.values(), ids=LOST)
@pytest.mark.parametrize("recorded", [False, True])
def test_a_lost_write_warns(cls, write, recorded, device):
    t = cls.eye(2, 3, device=device).requires_grad_(recorded) * 2
    before = t.detach().clone()
    with pytest.warns(UserWarning, match="a copy of elements .* set_diagonal_") as found:
        write(t)
    assert torch.equal(t, before)
    assert all(w.filename == __file__ for w in found)


def test_imaginary_parts_of_hermitian_matrices_are_copies():
    """They are antisymmetric. Those of other types are views, as real parts are."""
    h = Hermitian.randn(3, dtype=torch.complex64)
    before = h.clone()
    for write in (lambda: h.imag.mul_(2), lambda: torch.imag(h).zero_()):
        with pytest.warns(UserWarning, match=r"\[torch.imag\] a copy of elements of a Hermitian"):
            write()
    assert torch.equal(h, before)
    s = Symmetric.randn(3, dtype=torch.complex64)
    with silence():
        h.real.mul_(2)
        s.imag.zero_()
        _ = h.imag * 2
    assert torch.equal(h.real, 2 * before.real)
    assert not s.imag.packed.any()


def test_rows_of_an_iteration_warn():
    t = S.eye(3)
    with pytest.warns(UserWarning, match="unbind") as found:
        halve_rows(t)
    assert len(found) == 1


def add_to_diagonal(t: PackedTensor) -> None:
    values = t.diagonal()
    values += 1
    t.set_diagonal_(values)


def scatter(t: PackedTensor) -> Tensor:
    values = t.diagonal()
    values *= 2
    return t.diagonal_scatter(values)


def add_to_row(t: PackedTensor) -> None:
    t[1, :2] += 1


def scale_block(t: PackedTensor) -> None:
    t[1:3, 0:1] *= 2


def train(t: PackedTensor) -> None:
    weight = torch.nn.Parameter(t.diagonal())
    optimizer = torch.optim.SGD([weight], lr=0.1)
    weight.sum().backward()
    optimizer.step()


KEPT: dict[str, Callable[[Any], Any]] = {
    "set_diagonal_": add_to_diagonal,
    "diagonal_scatter": scatter,
    "assigned row": add_to_row,
    "assigned block": scale_block,
    "clone": lambda t: t.diagonal().clone().add_(1),
    "diagonal_copy": lambda t: torch.diagonal_copy(t).add_(1),
    "diag": lambda t: torch.diag(t).add_(1),
    "to_dense": lambda t: t.to_dense().add_(1),
    "einsum of a sum": lambda t: torch.einsum("ij->i", t).add_(1),
    "einsum of a temporary": lambda t: torch.einsum("ii->i", t * 2).add_(1),
    "data of a temporary": lambda t: (t * 2).data.diagonal().log_(),
    "exponential": lambda t: torch.exp(t.detach().requires_grad_()).diagonal().add_(1),
    "of a temporary": lambda t: (t * 2).diagonal().log_(),
    "read": lambda t: (t.diagonal().log().sum(), t[0] @ t[1], [row.sum() for row in t]),
    "parameter": train,
    "index tensors": lambda t: t[[0, 1], [1, 2]].add_(1),
    "rows by a list": lambda t: t[[0, 1]].add_(1),
    "a mask": lambda t: t[t > 0].add_(1),
}


@pytest.mark.parametrize("use", KEPT.values(), ids=KEPT)
def test_nothing_is_lost(use, device):
    t = S.eye(3, device=device)
    with silence():
        use(t)


def test_views_are_no_copies(device):
    t = LowerTriangular.eye(2, 3, device=device)
    with silence():
        t[0].mul_(3)
        t.select(0, 1).zero_()
        for part in t.unbind():
            part.add_(part)
    assert torch.equal(t[0].diagonal(), torch.full((3,), 6.0, device=device))


def test_writes_through_another_type_of_the_same_vector_warn():
    packed = torch.ones(6)
    t = Symmetric(packed)
    with pytest.warns(UserWarning, match="Tensor.diagonal"):
        Symmetric(t.packed).diagonal().add_(1)
    assert packed.sum() == 6


def test_a_late_change_warns_when_the_copy_goes():
    t = Symmetric.eye(3)
    values = t.diagonal()
    with silence():
        values.add_(1)
    with pytest.warns(UserWarning, match="Tensor.diagonal"):
        del values


def test_modes_without_versions(device):
    """Where torch counts no changes, and where it traces or transforms, nobody is warned."""
    t = S.eye(3, device=device)
    with silence():
        with torch.inference_mode():
            t.diagonal().add_(1)
        torch.vmap(lambda p: Symmetric(p).diagonal().add_(1))(torch.ones(2, 6, device=device))
        torch.func.grad(lambda p: Symmetric(p).diagonal().mul_(2).sum())(
            torch.ones(6, device=device)
        )
