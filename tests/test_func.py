"""``packedtri.func`` against torch.func on dense twins, and gradients against autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from twins import MIRRORED, each_type

from packedtri import Hermitian, LowerTriangular, Symmetric, UpperTriangular, func

N = 3
# Functions of a matrix T with a dense result, for T of any type and for its dense twin.
FUNCTIONS: dict[str, Callable[[Any], Tensor]] = {
    "T x": lambda T: T @ torch.arange(1.0, N + 1, dtype=torch.float64),
    "T T x": lambda T: (T @ T) @ torch.ones(N, 2, dtype=torch.float64),
    "T⁻¹ x": lambda T: torch.linalg.solve(T, torch.eye(N, 2, dtype=torch.float64)),
    "logdet": lambda T: torch.linalg.slogdet(T)[1],
    "sum of squares": lambda T: (T * T).sum(),
    "element": lambda T: T[..., -1, 0],
}
each_function = pytest.mark.parametrize("name", FUNCTIONS)


def matrix(cls: type, *batch: int, dtype: torch.dtype = torch.float64) -> Any:
    return cls.randn(*batch, N, dtype=dtype).add_diagonal(2.0 * N)


def projected(cls: type, dense: Tensor) -> Tensor:
    """What a derivative by a dense matrix is for one that is bound to a structure."""
    if cls in MIRRORED:
        return (dense + dense.mT) / 2
    return dense.tril() if cls is LowerTriangular else dense.triu()


@each_type
@each_function
def test_vmap(cls, name):
    f, T = FUNCTIONS[name], matrix(cls, 4)
    expected = torch.stack([f(t) for t in T])
    torch.testing.assert_close(func.vmap(f)(T), expected)
    torch.testing.assert_close(func.vmap(f, chunk_size=2)(T), expected)


@each_type
def test_vmap_of_types(cls):
    """Types are returned as types, in any nesting, from any dimension to any other."""
    T = matrix(cls, 2, 5)
    for f in (torch.linalg.inv, lambda T: 2 * T, lambda T: T @ T.mT, lambda T: T.mT):
        got = func.vmap(f, in_dims=-3, out_dims=1)(T)
        assert type(got) is type(f(T))
        torch.testing.assert_close(got, f(T))
    both = func.vmap(lambda pair, x, scale=1.0: {"T": pair["T"] * scale, "x": pair["T"] @ x},
                     in_dims=({"T": 0}, None))  # fmt: skip
    x = torch.ones(N, dtype=torch.float64)
    got = both({"T": T}, x, scale=torch.tensor(2.0))
    expected = 2 * T
    assert type(got["T"]) is cls
    torch.testing.assert_close(got["T"], expected)
    torch.testing.assert_close(got["x"], T @ x)
    nested = func.vmap(func.vmap(lambda T: T @ x))(T)
    torch.testing.assert_close(nested, T @ x)
    beside = func.vmap(lambda T, y: T @ y, in_dims=(None, 1))(T[0, 0], torch.eye(N).double())
    torch.testing.assert_close(beside, T[0, 0].to_dense().mT)


@each_type
@each_function
def test_derivatives(cls, name):
    """Of all transforms those of the dense twin, in the structure that the type has."""
    f, T = FUNCTIONS[name], matrix(cls)
    dense = T.to_dense()
    jacobian = projected(cls, torch.func.jacrev(f)(dense))
    for transform in (func.jacrev, func.jacfwd):
        got = transform(f)(T)
        assert type(got) is cls
        torch.testing.assert_close(got.to_dense(), jacobian)
    direction = matrix(cls)
    value, tangent = func.jvp(f, (T,), (direction,))
    expected = torch.func.jvp(f, (dense,), (direction.to_dense(),))
    torch.testing.assert_close((value, tangent), expected)
    value, pull = func.vjp(f, T)
    cotangent = torch.randn_like(value)
    (got,) = pull(cotangent)
    assert type(got) is cls
    expected = torch.func.vjp(f, dense)[1](cotangent)[0]
    torch.testing.assert_close(got.to_dense(), projected(cls, expected))


@each_type
def test_options_of_jacobians(cls):
    T = matrix(cls)
    seen: list[int] = []

    def product(T: Any) -> Tensor:
        y = T @ torch.arange(1.0, N + 1, dtype=torch.float64)
        if y.requires_grad:
            y.register_hook(lambda grad: seen.append(len(seen)))
        return y

    whole = func.jacrev(product)(T)
    assert len(seen) == 1
    torch.testing.assert_close(func.jacrev(product, chunk_size=1)(T), whole)
    assert len(seen) == 1 + N
    with pytest.raises(ValueError, match="chunk_size"):
        func.jacrev(product, chunk_size=0)(T)

    def noisy(T: Any) -> Tensor:
        return T @ torch.rand(N, dtype=torch.float64)

    assert type(func.jacfwd(noisy, randomness="different")(T)) is cls
    with pytest.raises(RuntimeError, match="randomness"):
        func.jacfwd(noisy)(T)


@each_type
def test_gradients_are_those_of_autograd(cls):
    T, x = matrix(cls), torch.randn(N, dtype=torch.float64)

    def f(T: Any, x: Tensor) -> Tensor:
        return torch.logdet(T @ T.mT + 0) + (torch.linalg.solve(T, x) * x).sum()

    own, rhs = T.clone().requires_grad_(), x.clone().requires_grad_()
    f(own, rhs).backward()
    of_T, of_x = func.grad(f, (0, 1))(T, x)
    assert type(of_T) is cls
    torch.testing.assert_close(of_T, own.grad)
    torch.testing.assert_close(of_x, rhs.grad)
    (gradient, beside), (value, again) = (
        func.grad(lambda T: (f(T, x), T), has_aux=True)(T),
        func.grad_and_value(lambda T: (f(T, x), T), has_aux=True)(T)[1],
    )
    torch.testing.assert_close(gradient, own.grad)
    torch.testing.assert_close(value, f(T, x))
    assert type(beside) is type(again) is cls
    torch.testing.assert_close(beside, T)
    # Gradients of each matrix of a batch.
    several = matrix(cls, 4)
    each = func.vmap(func.grad(lambda T: f(T, x)))(several)
    torch.testing.assert_close(
        each, torch.stack([func.grad(lambda T: f(T, x))(t) for t in several])
    )


@pytest.mark.parametrize("cls", [Symmetric, Hermitian, LowerTriangular])
def test_complex_gradients_are_those_of_autograd(cls):
    T = matrix(cls, dtype=torch.complex128)
    T = T.set_diagonal_(T.diagonal().real.to(T.dtype)) if cls is Hermitian else T
    x = torch.randn(N, dtype=torch.complex128)

    def f(T: Any) -> Tensor:
        return (T @ x).abs().square().sum() + (T * T).sum().abs()

    own = T.clone().requires_grad_()
    f(own).backward()
    torch.testing.assert_close(func.grad(f)(T), own.grad)


@each_type
def test_second_derivatives(cls):
    T = matrix(cls)

    def f(T: Any) -> Tensor:
        return (T @ T @ T).sum() + torch.linalg.slogdet(T)[1]

    got = func.hessian(f)(T)
    assert type(got) is cls
    assert got.shape == (N,) * 4
    dense = torch.func.hessian(lambda x: f(cls.from_dense(x).to_dense()))(T.to_dense())
    if cls in MIRRORED:
        # A derivative by the lower triangle, of which an element stands for two.
        half = torch.ones(N, N).tril(-1).double() / 2 + torch.eye(N).double()
        dense = dense * half[:, :, None, None] * half
        dense = dense + dense.transpose(0, 1) * (1 - torch.eye(N).double())[:, :, None, None]
        dense = dense + dense.mT * (1 - torch.eye(N).double())
    torch.testing.assert_close(got.to_dense(), dense)
    second = func.grad(lambda T: func.grad(f)(T).to_dense().square().sum())(T)
    own = T.clone().requires_grad_()
    (first,) = torch.autograd.grad(f(own), own, create_graph=True)
    first.to_dense().square().sum().backward()
    torch.testing.assert_close(second, own.grad)


@each_type
def test_typed_results(cls):
    """Cotangents of types may be types or dense; tangents are of types."""
    T, direction = matrix(cls), matrix(cls)

    def f(T: Any) -> Any:
        return {"typed": torch.linalg.inv(T), "dense": T @ torch.ones(N, dtype=torch.float64)}

    def dense_f(x: Tensor) -> Any:
        return {"typed": torch.linalg.inv(x), "dense": x @ torch.ones(N, dtype=torch.float64)}

    value, pull, beside = func.vjp(lambda T: (f(T), 2 * T), T, has_aux=True)
    assert type(value["typed"]) is type(beside) is cls
    cotangent = {"typed": matrix(cls), "dense": torch.randn(N, dtype=torch.float64)}
    as_dense = {k: c if type(c) is Tensor else c.to_dense() for k, c in cotangent.items()}
    expected = torch.func.vjp(dense_f, T.to_dense())[1](as_dense)[0]
    for given in (cotangent, as_dense):
        torch.testing.assert_close(pull(given)[0].to_dense(), projected(cls, expected))
    value, tangent = func.jvp(f, (T,), (direction,))
    expected = torch.func.jvp(dense_f, (T.to_dense(),), (direction.to_dense(),))[1]
    assert type(tangent["typed"]) is cls
    torch.testing.assert_close(tangent["typed"].to_dense(), expected["typed"])
    torch.testing.assert_close(tangent["dense"], expected["dense"])
    jacobian = func.jacrev(torch.linalg.inv)(T)
    assert type(jacobian) is cls
    expected = projected(cls, torch.func.jacrev(torch.linalg.inv)(T.to_dense()))
    torch.testing.assert_close(jacobian.to_dense(), expected)


def test_other_arguments_are_as_torchs():
    L, x = matrix(LowerTriangular), torch.ones(N, dtype=torch.float64)
    got = func.jacrev(lambda L, x: L @ x, argnums=(0, 1))(L, x)
    torch.testing.assert_close(got[1], L.to_dense())
    assert func.grad(lambda x: x.square().sum())(x).tolist() == [2.0] * N
    U = matrix(UpperTriangular)
    gradients = func.grad(lambda both: (both["L"] @ both["U"]).sum())({"L": L, "U": U})
    assert {k: type(g) for k, g in gradients.items()} == {
        "L": LowerTriangular,
        "U": UpperTriangular,
    }
    noise = func.vmap(lambda L: L * torch.rand(()), randomness="different")(
        matrix(LowerTriangular, 3)
    )
    assert type(noise) is LowerTriangular


def test_wrong_dimensions():
    L = matrix(LowerTriangular, 4)
    for dim in (1, 2, -1, -2, 3, -4):
        with pytest.raises(ValueError, match=r"\[packedtri.func.vmap\] in_dims.*batch dimension"):
            func.vmap(lambda L: L @ L, in_dims=dim)(L)
    for dim in (1, -1, -3):
        with pytest.raises(ValueError, match=r"\[packedtri.func.vmap\] out_dims.*batch dimension"):
            func.vmap(lambda L: L @ L, out_dims=dim)(L)
    with pytest.raises(ValueError, match=r"in_dims.*structure"):
        func.vmap(lambda L: L @ L, in_dims=(0, 0))(L)
    with pytest.raises(ValueError, match="in_dims 0 is no batch dimension"):
        func.vmap(lambda L: L @ L)(L[0])
    with pytest.raises(RuntimeError, match="grad"):
        func.grad(lambda L: L @ L)(L[0])


def test_torchs_own_transforms_name_these():
    with pytest.raises(NotImplementedError, match=r"packedtri\.func"):
        torch.vmap(lambda L: L @ torch.ones(N, dtype=torch.float64))(matrix(LowerTriangular, 4))
