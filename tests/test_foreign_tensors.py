"""Types among tensors of torch's own making: zeros without storage, wrappers, shapes alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from twins import TRIANGULAR, each_type, project, weighted_sum

from packedtri import Hermitian, PackedTensor, inv_quad_logdet, layout, rcond


@each_type
def test_zeros_without_storage_are_given_some(cls, device):
    """Torch makes one of them for the gradient of ``sgn``, say, which is zero everywhere."""
    t = cls(torch._efficientzerotensor((2, layout.numel(3)), device=device))
    one = cls.eye(2, 3, device=device)
    assert not t.packed._is_zerotensor() and torch.equal(t, cls.zeros(2, 3, device=device))
    assert torch.equal(one.add_(t), cls.eye(2, 3, device=device))
    assert torch.equal(t.add_(one), one)


@each_type
@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_of_sgn(cls, create_graph, device):
    x = cls.randn(3, device=device, requires_grad=True)
    (x.grad,) = torch.autograd.grad(torch.sgn(x).to_dense().sum(), x, create_graph=create_graph)
    assert type(x.grad) is cls and not x.grad.packed.any()
    before = x.detach().clone()
    torch.nn.utils.clip_grad_norm_([x], 1.0)
    for optimizer in (torch.optim.SGD([x], 0.1), torch.optim.Adam([x], 0.1)):
        optimizer.step()
        assert torch.equal(x, before)
    total = torch.sgn(x).to_dense().sum() + x.to_dense().sum()
    (grad,) = torch.autograd.grad(total, x, create_graph=create_graph)
    assert torch.equal(grad, cls.from_dense(torch.ones(3, 3, device=device)))
    dual = torch.func.jvp(lambda p: torch.sgn(cls(p)).packed, (x.packed,), (x.packed,))[1]
    assert not dual.any()


# Functions of a matrix of order 2 and of a matrix of two rows.
CAPTURED: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "mT": lambda t, x: t.mT @ x,
    "mH": lambda t, x: t.mH @ x,
    "T": lambda t, x: t.T @ x,
    "H": lambda t, x: t.H @ x,
    "t": lambda t, x: t.t() @ x,
    "adjoint": lambda t, x: t.adjoint() @ x,
    "transpose": lambda t, x: t.transpose(-1, -2) @ x,
    "conj": lambda t, x: t.conj() @ x,
    "detach": lambda t, x: (t.detach() + t) @ x,
    "data": lambda t, x: (t.data + t) @ x,
    "L L^T": lambda t, x: (t @ t.mT) @ x,
    "L L^H": lambda t, x: (t @ t.mH) @ x,
    "unsqueeze": lambda t, x: (t.unsqueeze(0) @ x)[0],
    "select": lambda t, x: t.unsqueeze(0).select(0, 0).mT @ x,
    "unbind": lambda t, x: sum(m.mT @ x for m in torch.stack([t, 2 * t])),
    "views": lambda t, x: t.mT.conj().mT @ x,
}


@each_type
@pytest.mark.parametrize("wide", [torch.float64, torch.complex128])
def test_views_of_a_type_that_a_transform_takes_for_constant(cls, wide, device):
    t = cls.randn(2, dtype=wide, device=device, requires_grad=True)
    twin = t.detach().to_dense().requires_grad_()
    x, tangent = torch.randn(2, 2, 3, dtype=wide, device=device)
    func = torch.func
    transforms: dict[str, Callable[..., Tensor]] = {
        "grad": lambda f: func.grad(lambda x: weighted_sum(f(x)))(x),
        "vjp": lambda f: func.vjp(f, x)[1](torch.ones_like(x))[0],
        "jvp": lambda f: func.jvp(f, (x,), (tangent,))[1],
        "vmap": lambda f: torch.vmap(f)(torch.stack([x, tangent])),
        "grad of grad": lambda f: func.grad(
            lambda x: weighted_sum(func.grad(lambda x: weighted_sum(f(x).abs().pow(2)))(x))
        )(x),
        "vmap of grad": lambda f: torch.vmap(func.grad(lambda x: weighted_sum(f(x))))(
            torch.stack([x, tangent])
        ),
    }
    for (name, f), (kind, transform) in itertools.product(CAPTURED.items(), transforms.items()):
        case = f"{name}, {kind}: "
        ours, expected = (transform(lambda x, m=m, f=f: f(m, x)) for m in (t, twin))
        torch.testing.assert_close(ours, expected, msg=lambda m, case=case: case + m)
        (grad,), (theirs,) = (
            torch.autograd.grad(weighted_sum(result), m)
            for result, m in ((ours, t), (expected, twin))
        )
        assert type(grad) is cls
        torch.testing.assert_close(
            grad.to_dense(), project(cls, theirs), msg=lambda m, case=case: case + m
        )


def _assigned(t: Any, index: Any) -> Any:
    t[index] = 1.0
    return t


def _without_values(cls: type, x: Tensor) -> list[tuple[str, Any]]:
    """What functions that look at values make of the type over ``x``."""

    def make() -> Any:
        return cls(x.clone())

    i = torch.ones(2, dtype=torch.int64, device=x.device)
    b = x.new_ones(3)
    functions = {
        "inv": lambda: torch.linalg.inv(make()),
        "inv_ex": lambda: torch.linalg.inv_ex(make())[0],
        "solve": lambda: torch.linalg.solve(make(), b),
        "slogdet": lambda: torch.linalg.slogdet(make())[1],
        "set_diagonal_": lambda: make().set_diagonal_(b),
        "assign": lambda: _assigned(make(), (0, 0)),
        "assign indices": lambda: _assigned(make(), (i, i)),
        "read indices": lambda: make()[i, i],
        "sum": lambda: make().sum(-1),
        "norm": lambda: torch.linalg.matrix_norm(make(), 1),
    }
    if cls is Hermitian:
        functions["inv_quad_logdet"] = lambda: inv_quad_logdet(make(), b[:, None])[1]
    functions["rcond"] = lambda: rcond(make())
    return [(name, function()) for name, function in functions.items()]


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@each_type
def test_tensors_without_values(cls, dtype):
    """Functions that look at values leave that out where only shapes are followed."""
    x = cls.eye(3, dtype=dtype).packed
    expected = _without_values(cls, x)
    on_meta = _without_values(cls, x.to("meta"))
    with FakeTensorMode() as mode:
        faked = _without_values(cls, mode.from_tensor(x))
    for results in (on_meta, faked):
        for (name, ours), (_, real) in zip(results, expected, strict=True):
            facts = [(x.shape, x.dtype, isinstance(x, PackedTensor)) for x in (ours, real)]
            assert facts[0] == facts[1], name


@each_type
def test_sparse_factors(cls):
    """Torch multiplies a dense copy with them."""
    t = cls.randn(3)
    for sparse in (torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr()):
        result = t * sparse
        assert result.layout is sparse.layout
        torch.testing.assert_close(result.to_dense(), t.to_dense() * torch.eye(3))


@each_type
def test_sparse_gradients(cls):
    """Gradients of dense copies may be sparse; those of the types are as if they were not."""
    rows = torch.tensor([0, 2])
    for f in (
        lambda x: torch.nn.functional.embedding(rows, x, sparse=True),
        lambda x: torch.gather(x, 0, rows[None], sparse_grad=True),
        lambda x: torch.eye(3).to_sparse() * x,
    ):
        t = cls.randn(3).requires_grad_()
        twin = t.detach().to_dense().requires_grad_()
        for x in (t, twin):
            f(x).sum().backward()
        assert type(t.grad) is cls
        torch.testing.assert_close(t.grad.to_dense(), project(cls, twin.grad.to_dense()))


class _Tagged(Tensor):
    """A type of a user's, which results of torch functions have too."""


@each_type
def test_elements_are_plain(cls):
    v = torch.ones(3)
    assert cls(torch.nn.Parameter(v)).requires_grad
    for foreign in (v.as_subclass(_Tagged), torch.nn.Parameter(v.as_subclass(_Tagged))):
        with pytest.raises(TypeError, match=rf"\[{cls.__name__}\].*_Tagged \(3,\).*as_subclass"):
            cls(foreign)
    number, matrix = (x.as_subclass(_Tagged) for x in (torch.tensor(2.0), torch.ones(2, 2)))
    t = cls(v.clone())
    for recorded in (False, True):
        t.requires_grad_(recorded)
        results = [
            t * number,
            number * t,
            t / number,
            cls.from_dense(matrix),
            t.lerp(2 * t, number),
        ]
        results += [t * matrix] if cls in TRIANGULAR else []
        for result in results:
            assert type(result) is cls and type(result._packed) is type(result.packed) is Tensor
            assert "..." not in repr(result)
        torch.testing.assert_close(results[0], 2 * t)
    (2 * t * number).sum().backward()
    assert type(t.grad) is cls and type(t.grad.packed) is Tensor
