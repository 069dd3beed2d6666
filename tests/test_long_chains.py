"""Long chains of views, which loops make: each step costs as much as the first."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from twins import each_type

from packedtri import Hermitian, LowerTriangular, PackedTensor

STEPS = 48
# Each gives the shape and the type back that it is given, at the latest when it is called again.
CHAINS: dict[str, Callable[[Tensor], Tensor]] = {
    "mT": lambda t: t.mT,
    "mH": lambda t: t.mH,
    "new dimension": lambda t: t[None][0],
    "unbind": lambda t: t[None].unbind()[0],
    "unflatten": lambda t: t.view(2, 25, 3, 3).reshape(50, 3, 3),
    "permute": lambda t: t.unflatten(0, (5, 10)).movedim(0, 1).movedim(1, 0).flatten(0, 1),
    "part": lambda t: t[1:],
    "part of the transpose": lambda t: t.mT[1:],
    "view as itself": lambda t: t.view(t.shape),
    "expand": lambda t: t.expand(2, *t.shape)[1],
    "in place": lambda t: t.reshape(t.shape).mul_(0.99),
}


def _chain(t: PackedTensor, step: Callable[[Tensor], Tensor]) -> tuple[PackedTensor, int]:
    """The end of a chain, and how many of the views before it live."""
    seen = []
    for _ in range(STEPS):
        t = step(t)
        seen.append(weakref.ref(t))
    return t, len({id(x) for reference in seen if (x := reference()) is not None})


@each_type
@pytest.mark.parametrize("complex", [False, True])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize("name", CHAINS)
def test_chains_are_short(name: str, mode: Callable, complex: bool, cls: type) -> None:
    t = cls.randn(50, 3, dtype=torch.complex128 if complex else torch.float64)
    start, version = t.to_dense(), t._version
    with mode():
        end, alive = _chain(t, CHAINS[name])
        assert alive < 12
        x = torch.as_tensor(start)
        twin = x
        for _ in range(STEPS):
            twin = CHAINS[name](twin)
        torch.testing.assert_close(end.to_dense(), twin)
        # It is still a view of the elements, and counts their changes.
        end.mul_(2)
        twin.mul_(2)
        torch.testing.assert_close(end.to_dense(), twin)
        torch.testing.assert_close(t.to_dense(), x)
    if mode is not torch.inference_mode and end is not t:
        assert end._is_view() and end._base is t
        assert end._version == t._version > version


@each_type
@pytest.mark.parametrize("name", CHAINS)
def test_later_changes_are_recorded(name: str, cls: type) -> None:
    t = cls.randn(50, 3, dtype=torch.float64)
    x = t.to_dense()
    end, _ = _chain(t, CHAINS[name])
    for _ in range(STEPS):
        x = CHAINS[name](x)
    factor = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    end.mul_(factor)
    (grad,) = torch.autograd.grad(t.sum(), factor)
    torch.testing.assert_close(grad, x.sum())


def test_products_still_tell_transposes() -> None:
    for name in ("mT", "mH", "new dimension", "part"):
        L = _chain(LowerTriangular.randn(50, 3, dtype=torch.complex128), CHAINS[name])[0]
        assert issubclass(type(L @ L.mH), Hermitian), name
        assert type(L @ L.mT).__name__ == "Symmetric", name
        assert type(L.mT @ L).__name__ == "Symmetric", name


def test_recorded_chains_pass_every_step() -> None:
    t = LowerTriangular.randn(3).requires_grad_()
    middle, _ = _chain(t, CHAINS["mT"])
    end, _ = _chain(middle, CHAINS["new dimension"])
    grads = torch.autograd.grad(end.sum(), (middle, t))
    for grad in grads:
        torch.testing.assert_close(grad.to_dense(), torch.ones(3, 3).tril())
