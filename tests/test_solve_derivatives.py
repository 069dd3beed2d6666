"""Solves, inverses and determinants of packed types: derivatives, transforms, compilation."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from derivatives import check_derivatives
from systems import MIRRORED, WIDE, make
from torch import Tensor
from torch.autograd import gradcheck

import packedtri
from packedtri import LowerTriangular, Symmetric, UpperTriangular, layout
from packedtri.layout import DENSE, LOWER, UPPER
from packedtri.testing import random

OPS = torch.ops.packedtri

FORMS = list(itertools.product((LOWER, UPPER), (LOWER, DENSE), (True, False), (False, True)))


def op_arguments(n: int, b_kind: int, left: bool, dtype: torch.dtype, batches=((), ())):
    packed = torch.randn(*batches[0], layout.numel(n), dtype=dtype)
    i = torch.arange(n)
    packed[..., i * (i + 3) // 2] += 3
    shape = (layout.numel(n),) if b_kind == LOWER else (n, 2) if left else (2, n)
    return packed.requires_grad_(), torch.randn(*batches[1], *shape, dtype=dtype).requires_grad_()


@pytest.mark.parametrize("wide", WIDE)
@pytest.mark.parametrize(("kind", "b_kind", "left", "unit"), FORMS)
def test_derivatives_of_the_op(kind, b_kind, left, unit, wide):
    def f(p: Tensor, b: Tensor) -> Tensor:
        return OPS.solve_triangular(p, b, 3, kind, b_kind, left, unit)

    arguments = op_arguments(3, b_kind, left, wide)
    check_derivatives(f, arguments)


@pytest.mark.parametrize("batches", [((2,), ()), ((), (2,)), ((2, 1), (3,))])
@pytest.mark.parametrize(("kind", "b_kind", "left", "unit"), FORMS[::2])
def test_derivatives_broadcast_over_batches(kind, b_kind, left, unit, batches):
    def f(p: Tensor, b: Tensor) -> Tensor:
        return OPS.solve_triangular(p, b, 2, kind, b_kind, left, unit)

    arguments = op_arguments(2, b_kind, left, torch.float64, batches)
    assert gradcheck(f, arguments, check_forward_ad=True)


@pytest.mark.parametrize(("kind", "b_kind", "left", "unit"), FORMS)
def test_opcheck(kind, b_kind, left, unit, device):
    p, b = op_arguments(4, b_kind, left, torch.float32, ((2,), ()))
    p, b = (x.detach().to(device).requires_grad_() for x in (p, b))
    torch.library.opcheck(OPS.solve_triangular.default, (p, b, 4, kind, b_kind, left, unit))


@pytest.mark.parametrize("in_dims", [(0, 0), (1, None), (None, 0), (0, 1), (-1, 0)])
@pytest.mark.parametrize("b_kind", [LOWER, DENSE])
def test_vmap(in_dims, b_kind):
    p, b = (x.detach() for x in op_arguments(3, b_kind, True, torch.float64, ((2,), ())))
    stacked = [
        x if d is None else torch.stack([x * (1 + i / 9) for i in range(4)]).movedim(0, d)
        for x, d in zip((p, b), in_dims, strict=True)
    ]

    def f(p: Tensor, b: Tensor) -> Tensor:
        return OPS.solve_triangular(p, b, 3, LOWER, b_kind, True, False)

    rows = (
        [x if d is None else x.select(d, i) for x, d in zip(stacked, in_dims, strict=True)]
        for i in range(4)
    )
    expected = torch.stack([f(*row) for row in rows])
    torch.testing.assert_close(torch.vmap(f, in_dims)(*stacked), expected)


SCALARS: dict[str, tuple[type, Callable[[Any, Tensor], Tensor]]] = {
    "solve_triangular": (
        LowerTriangular,
        lambda a, b: torch.linalg.solve_triangular(a, b, upper=False),
    ),
    "solve upper": (UpperTriangular, lambda a, b: torch.linalg.solve(a, b)),
    "solve symmetric": (Symmetric, lambda a, b: torch.linalg.solve(a, b)),
    "inv lower": (LowerTriangular, lambda a, b: torch.linalg.inv(a).to_dense()),
    "inv upper": (UpperTriangular, lambda a, b: torch.linalg.inv(a).to_dense()),
    "inv symmetric": (Symmetric, lambda a, b: torch.linalg.inv(a).to_dense()),
    "cholesky_solve": (LowerTriangular, lambda a, b: torch.cholesky_solve(b, a)),
    "cholesky_solve upper": (
        UpperTriangular,
        lambda a, b: torch.cholesky_solve(b, a, upper=True),
    ),
    "typed": (LowerTriangular, lambda a, b: torch.linalg.solve(a, a @ a).to_dense()),
    "logdet": (Symmetric, lambda a, b: torch.logdet(a)),
    "det": (UpperTriangular, lambda a, b: torch.det(a)),
    "slogdet": (LowerTriangular, lambda a, b: torch.slogdet(a)[1]),
    "det symmetric": (Symmetric, lambda a, b: torch.det(a)),
    "inv_quad_logdet": (Symmetric, lambda a, b: sum(packedtri.inv_quad_logdet(a, b))),
}


def dense_twin(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    """The same function of dense matrices, where its text does not serve these."""
    twins = {
        "solve_triangular": lambda a, b: torch.linalg.solve(a, b),
        "inv lower": lambda a, b: torch.linalg.inv(a),
        "inv upper": lambda a, b: torch.linalg.inv(a),
        "inv symmetric": lambda a, b: torch.linalg.inv(a),
        "typed": lambda a, b: torch.linalg.solve(a, a @ a),
        "inv_quad_logdet": lambda a, b: (
            (b * torch.linalg.solve(a, b)).sum((-2, -1)) + torch.logdet(a)
        ),
    }
    return twins.get(name, SCALARS[name][1])


@pytest.mark.parametrize("name", SCALARS)
def test_gradients_are_those_of_the_dense_twin(name, device, rng):
    """The gradient has the type of its tensor and is the projection of the dense one."""
    cls, f = SCALARS[name]
    a = make(cls, 6, torch.float64, (2,), device, rng).detach().requires_grad_()
    b = random((2, 6, 3), torch.float64, device, rng).requires_grad_()
    d, e = (x.detach().clone().requires_grad_() for x in (a.to_dense(), b))
    ours, theirs = f(a, b), dense_twin(name)(d, e)
    torch.testing.assert_close(ours, theirs)
    weight = torch.randn_like(theirs)
    (ours * weight).sum().backward()
    (theirs * weight).sum().backward()
    assert type(a.grad) is cls
    g = d.grad
    projected = (g + g.mT) / 2 if cls in MIRRORED else g.triu() if cls.kind else g.tril()
    torch.testing.assert_close(a.grad.to_dense(), projected)
    torch.testing.assert_close(b.grad, e.grad)


@pytest.mark.parametrize("name", SCALARS)
def test_second_derivatives_and_forward_mode(name):
    cls, f = SCALARS[name]
    p = make(cls, 3, torch.float64).packed.detach().requires_grad_()
    b = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)

    def of_packed(p: Tensor, b: Tensor) -> Tensor:
        return f(cls(p), b)

    check_derivatives(of_packed, (p, b))


def test_torch_func(rng):
    p = make(LowerTriangular, 4, torch.float64).packed
    b = random((4, 2), torch.float64, generator=rng)

    def loss(p: Tensor) -> Tensor:
        a = LowerTriangular(p)
        return torch.linalg.solve_triangular(a, b, upper=False).square().sum() + torch.logdet(a @ a)

    d = torch.func.grad(loss)(p)
    leaf = p.clone().requires_grad_()
    torch.testing.assert_close(d, torch.autograd.grad(loss(leaf), leaf)[0])
    batch = torch.stack([p, 2 * p])
    torch.testing.assert_close(
        torch.vmap(torch.func.grad(loss))(batch), torch.stack([d, torch.func.grad(loss)(2 * p)])
    )
    symmetric = lambda p: torch.linalg.inv(Symmetric(p)).packed  # noqa: E731
    p = make(Symmetric, 4, torch.float64).packed
    torch.testing.assert_close(torch.vmap(symmetric)(p[None])[0], symmetric(p))


@pytest.mark.parametrize("left", [True, False], ids=["left", "right"])
@pytest.mark.parametrize("cls", MIRRORED)
def test_forward_over_reverse_mode_of_complex_systems(cls, left):
    p = torch.view_as_real(make(cls, 3, torch.complex128).packed)
    tangent = torch.randn_like(p)
    b = torch.randn(3, 2, dtype=torch.complex128)

    def loss(p: Tensor) -> Tensor:
        x = torch.linalg.solve(cls(torch.view_as_complex(p)), b if left else b.mT, left=left)
        return x.abs().square().sum()

    slope = torch.func.grad(loss)
    found = torch.func.jvp(slope, (p,), (tangent,))[1]
    # In real numbers second derivatives are symmetric.
    torch.testing.assert_close(found, torch.func.grad(lambda p: (slope(p) * tangent).sum())(p))


def test_autocast_leaves_solves_alone():
    """As torch does, and with their derivatives, which are products too."""
    s = make(Symmetric, 5, torch.float32).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inverse = torch.linalg.inv(s)
        inv_quad, logdet = packedtri.inv_quad_logdet(s, torch.ones(5))
        assert {inverse.dtype, inv_quad.dtype, logdet.dtype} == {torch.float32}
        (found,) = torch.autograd.grad(inverse.to_dense().sum() + inv_quad + logdet, s)
    inv_quad, logdet = packedtri.inv_quad_logdet(s, torch.ones(5))
    out = torch.linalg.inv(s).to_dense().sum() + inv_quad + logdet
    (expected,) = torch.autograd.grad(out, s)
    torch.testing.assert_close(found.packed, expected.packed)


def test_compiled():
    def f(a: LowerTriangular, s: Symmetric, b: Tensor) -> Tensor:
        x = torch.linalg.solve_triangular(a, b, upper=False) + torch.linalg.solve(s, b)
        return x + torch.linalg.inv(a) @ b + torch.logdet(s)

    a, s = make(LowerTriangular, 5, torch.float64), make(Symmetric, 5, torch.float64)
    b = torch.randn(5, 2, dtype=torch.float64)
    compiled = torch.compile(f, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(a, s, b), f(a, s, b))
