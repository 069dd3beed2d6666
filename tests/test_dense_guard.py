"""dense_guard tells of conversions to dense that nobody asked for, and of no others."""

from __future__ import annotations

import threading
import warnings

import numpy
import pytest
import torch
from twins import each_type

from packedtri import LowerTriangular, Symmetric, dense_guard, syrk


@each_type
def test_packed_forms_pass(cls, device):
    t, x = cls.randn(4, device=device), torch.randn(4, 2, device=device)
    positive = syrk(torch.randn(4, 9, device=device)).add_diagonal(1.0)
    with dense_guard("raise"):
        _ = t @ x, x.mT @ t, t + t, 2 * t, t.mT, t.abs(), t.sum(), t[0], t[1, :2], t.clone()
        _ = t.to_dense(), numpy.asarray(t.cpu()), t.tolist(), repr(t), torch.diagonal(t), t * t
        _ = torch.linalg.cholesky(positive), torch.linalg.solve(positive, x), positive.logdet()
        (t.requires_grad_() @ x).sum().backward()
    assert type(t.grad) is cls


@each_type
def test_conversions_raise_and_leave_the_matrix_alone(cls, device):
    t, eye = cls.randn(4, device=device), torch.eye(4, device=device)
    before = t.packed.clone()
    conversions = (
        lambda: t + eye,
        lambda: eye - t,
        lambda: torch.linalg.svd(t),
        lambda: torch.cat((t, eye)),
        lambda: t > 0,
        lambda: t.softmax(-1),
        lambda: torch.addmm(t, eye, eye),
    )
    for convert in conversions:
        convert()
        with dense_guard("raise"), pytest.raises(RuntimeError, match=r"\] converts .*dense_guard"):
            convert()
        convert()
    assert torch.equal(t.packed, before)


def test_warnings_point_to_the_line():
    S = Symmetric.eye(3)
    with dense_guard("warn"), pytest.warns(UserWarning, match=r"\[torch.*add\] converts") as seen:
        result = S + torch.eye(3)
    assert seen[0].filename == __file__ and len(seen) == 1
    assert torch.equal(result, 2 * torch.eye(3))


def test_the_innermost_guard_holds_and_ends():
    L, eye = LowerTriangular.eye(3), torch.eye(3)
    with dense_guard("raise"):
        with dense_guard("warn"), pytest.warns(UserWarning, match="converts"):
            _ = L + eye
        with pytest.raises(RuntimeError):
            _ = L + eye
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _ = L + eye


def test_other_threads_are_not_concerned():
    L, results = LowerTriangular.eye(3), []
    with dense_guard("raise"):
        thread = threading.Thread(target=lambda: results.append(L + torch.eye(3)))
        thread.start()
        thread.join()
    assert len(results) == 1


def test_compiled_code_is_not_looked_at():
    add = torch.compile(lambda S: S + torch.eye(3), backend="aot_eager", fullgraph=True)
    with dense_guard("raise"):
        assert torch.equal(add(Symmetric.eye(3)), 2 * torch.eye(3))


def test_errors():
    with pytest.raises(ValueError, match="'error'"):
        dense_guard("error")
