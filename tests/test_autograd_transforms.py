"""Transforms and modes around the types: torch.func, nested forward modes, batches of gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad as fwad
from torch.autograd import gradcheck
from twins import (
    TRIANGULAR,
    dense,
    each_type,
    packed_vector,
    project,
    weighted_sum,
    wide,
)

from packedtri import (
    LowerTriangular,
    PackedTensor,
    Symmetric,
    cholesky_update,
    inv_quad_logdet,
    logm,
    sqrtm,
    syrk,
)
from packedtri.testing import densify


@pytest.mark.parametrize(
    "function",
    [
        lambda t: t @ t @ t,
        lambda t: t * t * t,
        lambda t: torch.sin(t) @ t,
        lambda t: (t @ t).mT @ t,
        lambda t: t.to_dense() * t.to_dense() * t.to_dense(),
        lambda t: torch.stack([t, t * t, t])[1] @ t,
    ],
)
@each_type
def test_reverse_mode_over_forward_mode_of_types_used_often(
    cls: type[PackedTensor], function: Any
) -> None:
    """Autograd adds gradients that have tangents to others that have none."""
    p, v = torch.rand(2, 6, dtype=torch.float64)
    leaf = p.clone().requires_grad_()
    f = lambda p: dense(function(cls(p)))  # noqa: E731
    with fwad.dual_level():
        dual = f(fwad.make_dual(leaf, v))
        (over_forward,) = torch.autograd.grad(
            weighted_sum(fwad.unpack_dual(dual).tangent), leaf, retain_graph=True
        )
        (grad,) = torch.autograd.grad(weighted_sum(dual), leaf, create_graph=True)
        over_reverse = fwad.unpack_dual(grad).tangent
    expected = torch.func.hessian(lambda p: weighted_sum(f(p)))(p) @ v
    torch.testing.assert_close(over_forward, expected)
    torch.testing.assert_close(over_reverse, expected)


@each_type
def test_torch_func_over_packed_vectors(cls, device):
    p = packed_vector(3, device=device).detach()
    x = torch.randn(3, 3, dtype=torch.float64, device=device)

    def ours(p: Tensor) -> Tensor:
        t = cls(p)
        y = (t @ t) * 2 + t.mT @ x
        return weighted_sum((t.clone().detach() + t).to_dense()) + weighted_sum(y.square())

    def dense(p: Tensor) -> Tensor:
        t = densify(p, 3, cls.kind)
        return weighted_sum(t.detach() + t) + weighted_sum(((t @ t) * 2 + t.mT @ x).square())

    close = torch.testing.assert_close
    for transform in (torch.func.grad, torch.func.hessian, torch.func.jacfwd, torch.func.jacrev):
        close(transform(ours)(p), transform(dense)(p))
    many = torch.stack([p, 2 * p])
    close(torch.vmap(ours)(many), torch.vmap(dense)(many))
    close(torch.vmap(torch.func.grad(ours))(many), torch.vmap(torch.func.grad(dense))(many))
    close(torch.func.jvp(ours, (p,), (p + 1,))[1], torch.func.jvp(dense, (p,), (p + 1,))[1])


MASK = torch.tensor([[True, False, False], [True, True, False], [False, True, True]])
# Functions that use a type more than once, so that autograd adds its gradients.
TWICE = {
    "matmul": lambda t: t @ t,
    "mul": lambda t: t * t,
    "sub": lambda t: t - 2 * t.clone(),
    "kron": lambda t: torch.kron(t, t),
    "stack": lambda t: torch.stack([t, t, t * 2]),
    "iter": lambda t: sum(torch.stack([t, t * t])),
    "where": lambda t: torch.where(MASK, t, t * t),
    "diagonal_scatter": lambda t: t.diagonal_scatter(t.diagonal() ** 2),
    "mT": lambda t: (t.mT @ t).mT + (t @ t.mT),
    "inv": lambda t: torch.linalg.inv(t) @ t.mT,
    "to_dense": lambda t: t.to_dense() * t.to_dense() * t.to_dense(),
    "inplace": lambda t: t.clone().mul_(t) @ t,
}


@pytest.mark.parametrize("function", TWICE)
@each_type
def test_batches_of_gradients_of_types_used_twice(cls: type[PackedTensor], function: str) -> None:
    def f(p: Tensor) -> Tensor:
        return dense(TWICE[function](cls(p * p)))

    p = torch.tensor([3.0, 0.3, 2.0, -0.4, 0.5, 4.0], dtype=torch.float64, requires_grad=True)
    assert gradcheck(f, (p,), check_batched_grad=True)
    close, functional = torch.testing.assert_close, torch.autograd.functional
    once = functional.jacobian(f, p)
    close(functional.jacobian(f, p, vectorize=True), once)
    scalar = lambda p: weighted_sum(f(p))  # noqa: E731
    close(functional.hessian(scalar, p, vectorize=True), functional.hessian(scalar, p))
    value = f(p)
    basis = torch.eye(value.numel(), dtype=p.dtype).reshape(-1, *value.shape)
    (rows,) = torch.autograd.grad(value, p, basis, is_grads_batched=True, create_graph=True)
    close(rows.reshape(once.shape), once)
    twin = functional.jacobian(f, p, create_graph=True)
    expected = torch.autograd.grad(twin.square().sum(), p)
    close(torch.autograd.grad(rows.square().sum(), p), expected)


@each_type
def test_batches_of_gradients_of_and_for_types(cls: type[PackedTensor]) -> None:
    t = cls.randn(3, dtype=torch.float64).requires_grad_()
    close, grad = torch.testing.assert_close, torch.autograd.grad
    f = lambda t: (t @ t + t).to_dense() + t  # noqa: E731
    typed = lambda t: t * t + 2 * t  # noqa: E731
    gradients = torch.randn(2, 3, 3, dtype=torch.float64)
    for function, given in ((f, gradients), (typed, gradients), (typed, cls.from_dense(gradients))):
        options = {"create_graph": True}
        (found,) = grad(function(t), t, given, is_grads_batched=True, **options)
        each = [grad(function(t), t, one, **options)[0] for one in given]
        assert type(found) is cls and found.requires_grad
        close(dense(found), torch.stack(list(map(dense, each))))
        second = [dense(grad(x, t, gradients)[0]) for x in (found, torch.stack(each))]
        close(*second)
    jacobian = torch.autograd.functional.jacobian
    close(dense(jacobian(f, t.detach(), vectorize=True)), dense(jacobian(f, t.detach())))
    with pytest.raises(ValueError, match=f"batch of gradients for {cls.__name__}"):
        grad(typed(t), t, gradients[0], is_grads_batched=True)


def symmetric(packed: Tensor) -> Tensor:
    return densify(packed, 3, Symmetric.kind)


def lower(packed: Tensor) -> Tensor:
    return densify(packed, 3, LowerTriangular.kind)


COLUMNS = torch.arange(1.0, 7.0, dtype=torch.float64).reshape(3, 2)
# Each operation on a packed vector, and its dense twin. The twins avoid torch.linalg.solve and the
# determinants, whose nested forward mode is wrong in torch itself.
NESTED = {
    "matmul": (
        lambda p: LowerTriangular(p) @ LowerTriangular(p) @ LowerTriangular(p),
        lambda p: lower(p) @ lower(p) @ lower(p),
    ),
    "L @ L.mT": (
        lambda p: (t := LowerTriangular(p)) @ t.mT,
        lambda p: lower(p) @ lower(p).mT,
    ),
    "S @ dense": (lambda p: Symmetric(p * p) @ COLUMNS, lambda p: symmetric(p * p) @ COLUMNS),
    "syrk": (
        lambda p: syrk(p.outer(p)[:3]),
        lambda p: p.outer(p)[:3] @ p.outer(p)[:3].mT,
    ),
    "cholesky": (
        lambda p: torch.linalg.cholesky(Symmetric(p)),
        lambda p: torch.linalg.cholesky(symmetric(p)),
    ),
    "solve_triangular": (
        lambda p: torch.linalg.solve_triangular(LowerTriangular(p), COLUMNS * p[1], upper=False),
        lambda p: torch.linalg.solve_triangular(lower(p), COLUMNS * p[1], upper=False),
    ),
    "inv": (lambda p: torch.linalg.inv(LowerTriangular(p)), lambda p: torch.linalg.inv(lower(p))),
    "solve": (
        lambda p: torch.linalg.solve(Symmetric(p - 2), COLUMNS),
        lambda p: torch.linalg.inv(symmetric(p - 2)) @ COLUMNS,
    ),
    "solve left": (
        lambda p: torch.linalg.solve(Symmetric(p), COLUMNS.mT, left=False),
        lambda p: COLUMNS.mT @ torch.linalg.inv(symmetric(p)),
    ),
    "solve vector": (
        lambda p: torch.linalg.solve(Symmetric(p), p[:3]),
        lambda p: torch.linalg.inv(symmetric(p)) @ p[:3],
    ),
    "det": (
        # Its factorization exchanges rows.
        lambda p: torch.det(Symmetric(p - 2)),
        lambda p: torch.linalg.cross(*symmetric(p - 2)[:2]) @ symmetric(p - 2)[2],
    ),
    "logdet": (
        lambda p: torch.logdet(Symmetric(p)) + torch.linalg.slogdet(Symmetric(p))[1],
        lambda p: 4 * torch.linalg.cholesky(symmetric(p)).diagonal().log().sum(),
    ),
    "matrix_power": (
        lambda p: torch.linalg.matrix_power(LowerTriangular(p), -2),
        lambda p: torch.linalg.inv(lower(p) @ lower(p)),
    ),
    "cholesky_update": (
        lambda p: cholesky_update(LowerTriangular(p), p[:3, None]),
        lambda p: torch.linalg.cholesky(lower(p) @ lower(p).mT + p[:3].outer(p[:3])),
    ),
    "inv_quad_logdet": (
        lambda p: sum(inv_quad_logdet(Symmetric(p), COLUMNS)),
        lambda p: (
            (COLUMNS * (torch.linalg.inv(symmetric(p)) @ COLUMNS)).sum()
            + 2 * torch.linalg.cholesky(symmetric(p)).diagonal().log().sum()
        ),
    ),
    "cholesky_solve": (
        lambda p: torch.cholesky_solve(COLUMNS, LowerTriangular(p)),
        lambda p: torch.linalg.inv(lower(p) @ lower(p).mT) @ COLUMNS,
    ),
    "cholesky_inverse": (
        lambda p: torch.cholesky_inverse(LowerTriangular(p)),
        lambda p: torch.linalg.inv(lower(p) @ lower(p).mT),
    ),
    "sqrtm": (
        lambda p: sqrtm((t := LowerTriangular(p)) @ t) * p[1],
        lambda p: lower(p) * p[1],
    ),
    "logm": (
        lambda p: torch.matrix_exp(logm(LowerTriangular(p)) * 2),
        lambda p: lower(p) @ lower(p),
    ),
}


@pytest.mark.parametrize("modes", ["ff", "rf", "fr", "fff", "rff", "frf", "ffr"])
@pytest.mark.parametrize("operation", NESTED)
def test_forward_mode_is_nested_with_other_modes(operation: str, modes: str) -> None:
    """The modes are applied from left to right, the last one outermost."""

    def derivative(f: Any, k: int) -> Any:
        direction = torch.linspace(-1, 1 + k, 6, dtype=torch.float64)
        if modes[k] == "f":
            return lambda p: torch.func.jvp(f, (p,), (direction,))[1]
        return torch.func.grad(lambda p: weighted_sum(f(p)))

    p = torch.tensor([2.0, 0.3, 3.0, -0.4, 0.5, 4.0], dtype=torch.float64)
    twins = []
    for f in NESTED[operation]:
        result = lambda p, f=f: dense(f(p))  # noqa: E731
        for k in range(len(modes)):
            result = derivative(result, k)
        twins.append(result(p))
    torch.testing.assert_close(*twins)


@pytest.mark.parametrize("operation", NESTED)
def test_reverse_mode_over_dual_numbers(operation: str) -> None:
    p = torch.tensor([2.0, 0.3, 3.0, -0.4, 0.5, 4.0], dtype=torch.float64, requires_grad=True)
    found = []
    for f in NESTED[operation]:
        with fwad.dual_level():
            result = dense(f(fwad.make_dual(p, torch.ones_like(p))))
            tangent = weighted_sum(fwad.unpack_dual(result).tangent)
            found.append(torch.autograd.grad(tangent, p)[0])
    torch.testing.assert_close(*found)


@each_type
def test_forward_mode_is_nested_where_a_type_is_returned(cls: type[PackedTensor]) -> None:
    p, v = torch.rand(2, 6, dtype=torch.float64)

    def second(f: Any) -> Any:
        first = lambda p: torch.func.jvp(f, (p,), (v,))[1] @ f(p)  # noqa: E731
        return torch.func.jvp(first, (p,), (v,))[1]

    found = second(lambda p: cls(p) * p[0])
    twin = second(lambda p: densify(p, 3, cls.kind) * p[0])
    torch.testing.assert_close(dense(found), twin)


@wide
@each_type
def test_torch_func_of_functions_that_return_a_type(cls, wide, device):
    p, tangent = (packed_vector(3, wide, (), device).detach() for _ in range(2))
    cotangent = torch.randn(3, 3, dtype=wide, device=device)
    close, func = torch.testing.assert_close, torch.func

    def ours(p: Tensor) -> PackedTensor:
        return cls(p * p) * 2 + cls(p.sin())

    def twin(p: Tensor) -> Tensor:
        return densify(p * p, 3, cls.kind) * 2 + densify(p.sin(), 3, cls.kind)

    value, pull = func.vjp(ours, p)
    assert type(value) is cls and type(value.packed) is Tensor
    close(value.to_dense(), twin(p))
    assert "..." not in str(value) and "Wrapper" not in str(value.packed)
    for given in (cotangent, cls.from_dense(cotangent)):
        dense_given = given.to_dense() if isinstance(given, PackedTensor) else given
        close(pull(given)[0], func.vjp(twin, p)[1](dense_given)[0])
    value, result = func.jvp(ours, (p,), (tangent,))
    assert type(value) is type(result) is cls
    close(value.packed, ours(p).packed)
    close(result.to_dense(), func.jvp(twin, (p,), (tangent,))[1])
    assert not str(result.packed).startswith("Grad")
    # Values stay values, and can be changed.
    for kept in (value, func.vjp(ours, p)[0], func.vjp(lambda p: (p, cls(p)), p, has_aux=True)[2]):
        before = kept.to_dense()
        close(kept.mul_(3).to_dense(), 3 * before)
        close(kept @ cotangent, 3 * before @ cotangent)
    second = func.vjp(lambda p: func.jvp(ours, (p,), (tangent,))[1], p)[1](cotangent)[0]
    close(second, func.vjp(lambda p: func.jvp(twin, (p,), (tangent,))[1], p)[1](cotangent)[0])
    for nested in (
        lambda f: func.vjp(lambda p: func.vjp(f, p)[0], p)[1](cotangent)[0],
        lambda f: func.vjp(lambda p: func.vjp(f, p)[1](cotangent)[0], p)[1](tangent)[0],
        lambda f: func.vmap(func.vjp(f, p)[1])(torch.stack([cotangent, 2 * cotangent]))[0],
    ):
        close(nested(ours), nested(twin))
    if not wide.is_complex:
        for transform in (func.jacrev, func.hessian):
            close(transform(ours)(p), transform(twin)(p))
        both = torch.stack([p, tangent])
        close(func.vmap(func.jacrev(ours))(both), func.vmap(func.jacrev(twin))(both))
        close(torch.autograd.functional.jacobian(ours, p), func.jacrev(twin)(p))


@each_type
def test_torch_func_where_a_type_cannot_be_returned(cls, device):
    p = packed_vector(3, device=device).detach()
    for transform in (torch.func.jacfwd, torch.vmap):
        with pytest.raises(NotImplementedError, match=f"{cls.__name__}.*packed"):
            transform(lambda p: cls(p) * 2)(torch.stack([p, p]))
    with pytest.raises(NotImplementedError, match=f"linearize.*{cls.__name__}.*packed"):
        torch.func.linearize(lambda p: cls(p) * 2, p)
    result = torch.func.linearize(lambda p: (cls(p) * 2).packed, p)[1](p)
    torch.testing.assert_close(result, 2 * p)


@pytest.mark.parametrize(
    "function",
    [
        torch.linalg.inv,
        lambda t: torch.linalg.solve(t, COLUMNS),
        lambda t: torch.det(t @ t),
        torch.linalg.slogdet,
    ],
)
@each_type
def test_values_are_not_looked_at_while_they_are_traced(
    cls: type[PackedTensor], function: Any
) -> None:
    def f(p: Tensor) -> Tensor:
        result = function(cls(p))
        return dense(result[1] if isinstance(result, tuple) else result)

    p = torch.tensor([3.0, 0.3, 2.0, -0.4, 0.5, 4.0], dtype=torch.float64)
    v = torch.rand(6, dtype=torch.float64)
    value, derivative = torch.func.linearize(f, p)
    torch.testing.assert_close(value, f(p))
    torch.testing.assert_close(derivative(v), torch.func.jvp(f, (p,), (v,))[1])
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert f(mode.from_tensor(p)).shape == value.shape


@pytest.mark.parametrize("cls", TRIANGULAR)
def test_vmap_over_vectors_with_a_type_closed_over(cls, device):
    t = cls.randn(4, dtype=torch.float64, device=device, requires_grad=True)
    x = torch.randn(5, 4, dtype=torch.float64, device=device)
    dense = t.detach().to_dense()
    y = torch.vmap(lambda v: t @ v)(x)
    torch.testing.assert_close(y, x @ dense.mT)
    y.sum().backward()
    torch.testing.assert_close(t.grad.to_dense(), project(cls, x.sum(0).expand(4, 4)))
    p = t.detach().packed.requires_grad_()
    inner = torch.vmap(torch.func.grad(lambda v: (cls(p) @ v).square().sum()))(x)
    torch.testing.assert_close(inner, 2 * x @ dense.mT @ dense)
    (grad,) = torch.autograd.grad(inner.sum(), p)
    q = p.detach().requires_grad_()
    twin = densify(q, 4, cls.kind)
    torch.testing.assert_close(grad, torch.autograd.grad((2 * x @ twin.mT @ twin).sum(), q)[0])


AFTERWARDS = {
    "to_dense": lambda t, x: t.to_dense(),
    "clone": lambda t, x: t.clone().to_dense(),
    "times dense": lambda t, x: t @ x,
    "dense times": lambda t, x: x.mT @ t,
    "product": lambda t, x: dense(t @ t),
    "gram": lambda t, x: dense(t @ t.mT),
    "sum": lambda t, x: t + x[:, :3],
    "block": lambda t, x: t[:2, :2],
    "row": lambda t, x: t[1],
    "diagonal": lambda t, x: t.diagonal(),
    "solve": lambda t, x: torch.linalg.solve(t.add_diagonal(9.0), x),
}


@pytest.mark.parametrize("name", AFTERWARDS)
@each_type
def test_results_of_transforms_are_recorded_outside(cls, name, device):
    """What torch.func.jvp and vjp return carries wrappers of transforms that have ended."""
    p = torch.arange(1.0, 7.0, dtype=torch.float64, device=device, requires_grad=True)
    x = torch.rand(3, 4, dtype=torch.float64, device=device)

    def make(p: Tensor) -> Tensor:
        return cls(p) * 2

    found = []
    for t in (make(p), torch.func.jvp(make, (p,), (p.detach(),))[0], torch.func.vjp(make, p)[0]):
        loss = AFTERWARDS[name](t, x).square().sum()
        found += torch.autograd.grad(loss, p)
    torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(found[2], found[0])


@each_type
def test_duals_of_one_matrix_of_a_batch_expand(cls, device):
    """Primal and tangent lie at different places in memory, and the primal over itself."""
    t, direction = cls.randn(2, 3, device=device), cls.randn(2, 3, device=device)
    with fwad.dual_level():
        for dual in (
            fwad.make_dual(t[0], direction[1]).expand(2, 3, 3),
            fwad.make_dual(t[0].expand(2, 3, 3), direction[1].expand(2, 3, 3)),
            fwad.make_dual(t[0].expand(2, 3, 3), direction[[1, 1]]),
        ):
            value, tangent = fwad.unpack_dual(dual * 2)
            for found, of in ((value, t[0]), (tangent, direction[1])):
                torch.testing.assert_close(dense(found), 2 * dense(of).expand(2, 3, 3))
