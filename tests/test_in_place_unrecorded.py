"""Changes in place that nobody records, as optimizers make them several times a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode
from twins import each_type

from packedtri import LowerTriangular, PackedTensor, UpperTriangular

N = 5

# What optimizers call, of a tensor and two others.
CHANGES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "add_": lambda t, a, b: t.add_(a),
    "add_, alpha": lambda t, a, b: t.add_(a, alpha=-0.5),
    "sub_": lambda t, a, b: t.sub_(a),
    "mul_": lambda t, a, b: t.mul_(0.9),
    "div_": lambda t, a, b: t.div_(3),
    "lerp_": lambda t, a, b: t.lerp_(a, 0.1),
    "addcmul_": lambda t, a, b: t.addcmul_(a, b, value=0.3),
    "addcmul_, by name": lambda t, a, b: t.addcmul_(tensor1=a, tensor2=b),
    "copy_": lambda t, a, b: t.copy_(a),
    "neg_": lambda t, a, b: t.neg_(),
    "zero_": lambda t, a, b: t.zero_(),
}
each_change = pytest.mark.parametrize("name", CHANGES)


@each_type
@each_change
def test_values_and_versions(cls: type[PackedTensor], name: str, device: str) -> None:
    t, a, b = (cls.randn(2, N, dtype=torch.float64, device=device) for _ in range(3))
    twins = [x.to_dense() for x in (t, a, b)]
    versions = t._version, t._packed._version
    with torch.no_grad():
        assert CHANGES[name](t, a, b) is t
        expected = CHANGES[name](*twins)
    torch.testing.assert_close(t.to_dense(), expected)
    assert t._version > versions[0] and t._packed._version > versions[1]


@each_type
def test_batches_are_stretched(cls: type[PackedTensor], device: str) -> None:
    t, one = cls.randn(3, N, device=device), cls.randn(N, device=device)
    expected = t.to_dense() + one.to_dense()
    with torch.no_grad():
        t.add_(one)
    torch.testing.assert_close(t.to_dense(), expected)


@each_type
@pytest.mark.parametrize("recorded", [False, True])
def test_a_matrix_of_the_same_batch_is_an_operand(
    cls: type[PackedTensor], recorded: bool, device: str
) -> None:
    """It is read before it changes itself; of dense tensors torch refuses that."""
    start = cls.randn(3, N, dtype=torch.float64, device=device)
    for name, change in CHANGES.items():
        for at in (slice(0, 1), 1, slice(2, 3)):
            t, twin = start.clone(), start.to_dense()
            with torch.set_grad_enabled(recorded):
                change(t, t[at], t[at])
            change(twin, start.to_dense()[at], start.to_dense()[at])
            torch.testing.assert_close(t.to_dense(), twin, msg=f"{name}, {at}")
    t = start.clone()
    t -= t[0]
    assert not t[0].packed.any() and torch.equal(t.packed, start.packed - start.packed[0])


@each_type
def test_a_matrix_of_order_one_is_no_number(cls: type[PackedTensor], device: str) -> None:
    t, one = cls.randn(N, device=device), cls.randn(1, device=device)
    before = t._packed.clone()
    with torch.no_grad(), pytest.raises(NotImplementedError, match="of one type and shape"):
        t.add_(one)
    assert torch.equal(t._packed, before)


def test_another_type_is_no_operand(device: str) -> None:
    t, other = LowerTriangular.randn(N, device=device), UpperTriangular.randn(N, device=device)
    with torch.no_grad(), pytest.raises(NotImplementedError, match="cannot hold"):
        t.add_(other)


def test_an_operand_is_not_stale(device: str) -> None:
    packed = torch.randn(6, device=device)
    stale = LowerTriangular(packed)
    packed.mul_(torch.ones(6, device=device, requires_grad=True))
    t = LowerTriangular.randn(3, device=device)
    with torch.no_grad(), pytest.raises(RuntimeError, match="was changed in place"):
        t.add_(stale)


def test_inference_tensors_stay(device: str) -> None:
    with torch.inference_mode():
        t = LowerTriangular.randn(N, device=device)
        t.mul_(2)
    before = t._packed.clone()
    with torch.no_grad(), pytest.raises(RuntimeError, match="made in inference mode"):
        t.mul_(2)
    assert torch.equal(t._packed, before)


def test_modes_see_the_type(device: str) -> None:
    class Watch(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[type] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            if "mul_" in func.name():
                self.seen.append(type(args[0]))
            return func(*args, **(kwargs or {}))

    t = LowerTriangular.randn(N, device=device)
    with torch.no_grad(), Watch() as watch:
        t.mul_(2)
    assert watch.seen[0] is LowerTriangular


def test_tangents_change_too(device: str) -> None:
    t, tangent = (LowerTriangular.randn(N, device=device) for _ in range(2))
    expected = 3 * tangent.to_dense()
    with forward_ad.dual_level(), torch.no_grad():
        dual = forward_ad.make_dual(t, tangent)
        dual.mul_(3)
        torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent.to_dense(), expected)


def test_recorded_ones_are_recorded(device: str) -> None:
    leaf = LowerTriangular.randn(N, device=device).requires_grad_()
    t = leaf * 1
    t.mul_(3)
    (grad,) = torch.autograd.grad(t.sum(), leaf)
    torch.testing.assert_close(grad.to_dense(), 3 * torch.ones(N, N, device=device).tril())
