"""Inference mode: views of tensors made outside of it, changes in place, and what torch refuses."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from twins import dense, each_type

from packedtri import LowerTriangular, PackedTensor, UpperTriangular

VIEWS: dict[str, Callable[[Any], Any]] = {
    "mT": lambda t: t.mT,
    "mH": lambda t: t.mH,
    "conj": lambda t: t.conj(),
    "view of a view": lambda t: t.conj().mT[1],
    "T": lambda t: t[0].T,
    "select": lambda t: t.select(0, 1),
    "index": lambda t: t[0],
    "slice": lambda t: t[0:1],
    "iteration": lambda t: next(iter(t)),
    "unbind": lambda t: t.unbind()[1],
    "unsqueeze": lambda t: t.unsqueeze(0),
    "transpose": lambda t: t[None].transpose(0, 1),
    "view": lambda t: t.view(1, *t.shape),
    "expand": lambda t: t.expand(4, *t.shape),
    "detach": lambda t: t.detach(),
    "data": lambda t: t.data,
    "packed": lambda t: type(t)(t.packed) if isinstance(t, PackedTensor) else t,
}
PRODUCTS: dict[str, Callable[[Any], Any]] = {
    "linear": lambda t: torch.nn.functional.linear(
        torch.ones(1, 3, dtype=t.dtype, device=t.device), t[0]
    ),
    "einsum": lambda t: torch.einsum("ji,jk->ik", t[0], t[1]),
    "inner": lambda t: torch.inner(t[0], t[1]),
    "L @ L.mH": lambda t: t @ t.mH,
}


def double_elements(t: Any) -> None:
    for b, i, j in itertools.product(range(2), range(3), range(3)):
        if i >= j:
            t[b, i, j] = 2 * t[b, i, j]


# They double all elements.
DOUBLED: dict[str, Callable[[Any], Any]] = {
    "mul_": lambda t: t.mul_(2),
    "multiply_": lambda t: t.multiply_(2),
    "foreach": lambda t: torch._foreach_mul_([t], 2.0),
    "foreach of a view": lambda t: torch._foreach_mul_([t.mH], 2.0),
    "through mT": lambda t: t.mT.add_(t.mT),
    "through conj": lambda t: t.conj().mul_(2),
    "through views": lambda t: [m.mul_(2) for m in t],
    "through detach": lambda t: t.detach().mul_(2),
    "batches": lambda t: [t.__setitem__(i, 2 * t[i]) for i in range(2)],
    "elements": lambda t: double_elements(t.mT if isinstance(t, UpperTriangular) else t),
    "data": lambda t: setattr(t, "data", (2 * t).detach()),
    "detach_": lambda t: t.detach_().mul_(2),
}


@each_type
@pytest.mark.parametrize("complex", [False, True], ids=["real", "complex"])
@pytest.mark.parametrize("made_in_mode", [False, True])
def test_views_and_changes_in_inference_mode(cls, complex, made_in_mode, device):
    """Views are inference tensors where their bases are, and changes reach the elements."""
    dtype = torch.complex128 if complex else torch.float64

    def make() -> Any:
        with torch.inference_mode(made_in_mode):
            return torch.nn.Parameter(cls.randn(2, 3, dtype=dtype, device=device))

    for in_mode in (True, False):
        for name, f in VIEWS.items():
            t = make()
            with torch.inference_mode() if in_mode else torch.no_grad():
                ours = f(t)
                torch.testing.assert_close(dense(ours), f(t.to_dense()), msg=name)
            assert ours.is_inference() is ours._packed.is_inference() is made_in_mode, name
    for name, f in PRODUCTS.items():
        t = make()
        with torch.inference_mode():
            torch.testing.assert_close(dense(f(t)), f(t.to_dense()), msg=name)
    for name, change in DOUBLED.items():
        t = make()
        with torch.inference_mode():
            expected = 2 * t.to_dense()
            change(t)
            torch.testing.assert_close(t.to_dense(), expected, msg=name)
            torch.testing.assert_close(t.mH.to_dense(), expected.mH, msg=name)


def test_inference_mode_guards_as_torch_does():
    a = LowerTriangular.randn(3, requires_grad=True)
    for change in (
        lambda: a.mul_(2),
        lambda: a.mT.mul_(2),
        lambda: a.__setitem__((0, 0), 2.0),
        lambda: a.detach().zero_(),
    ):
        out = (a @ a).to_dense().sum()
        with torch.inference_mode():
            change()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.backward()
    with torch.inference_mode():
        view, made = a.mT, LowerTriangular.randn(3)
    with pytest.raises(RuntimeError, match="view was created in inference mode"):
        view.mul_(2)
    for t in (made, made.mT, LowerTriangular(made.packed)):
        with pytest.raises(RuntimeError, match="[Ii]nference"):
            t.mul_(2)
        with pytest.raises(RuntimeError, match="[Ii]nference"):
            t.requires_grad_()


def test_modules_in_inference_mode(device):
    module = torch.nn.ParameterList([LowerTriangular.eye(2, device=device)])
    with torch.inference_mode():
        state = module.state_dict()
        module.to(torch.float64)
        module.load_state_dict(state)
    assert type(state["0"]) is LowerTriangular
    torch.testing.assert_close(module[0].mT.to_dense(), torch.eye(2, device=device).double())


@each_type
def test_no_way_to_change_inference_tensors_elsewhere(cls):
    with torch.inference_mode():
        t = cls.eye(3)
    before = t.packed.clone()
    for change in (
        lambda: t.__setitem__((1, 1), 5.0),
        lambda: t.__setitem__((slice(1, 3), slice(1, 3)), torch.eye(2)),
        lambda: torch._foreach_add_([t], 1.0),
    ):
        with pytest.raises(RuntimeError, match="inference"):
            change()
        assert torch.equal(t.packed, before)
