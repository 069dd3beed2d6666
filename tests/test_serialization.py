"""Saving, copying and sharing packed types, and modules that hold them."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from torch import nn
from twins import MIRRORED, called, each_type

from packedtri import LowerTriangular, Symmetric, UpperTriangular, layout


def reload(value: object, weights_only: bool = True, **options):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=weights_only, **options)


@pytest.mark.parametrize("weights_only", [True, False])
@each_type
def test_save_and_load(cls, weights_only, dtype, device):
    t = cls.randn(2, 5, dtype=dtype, device=device)
    again = reload(t, weights_only)
    assert type(again) is cls and again.n == 5 and again.device == t.device
    assert torch.equal(again, t)
    assert torch.equal((again @ again).to_dense(), (t @ t).to_dense())
    for place in ("cpu", lambda storage, location: storage, {f"{device}:0": "cpu"}):
        assert reload(t, weights_only, map_location=place).packed.device.type == "cpu"
    assert torch.equal(pickle.loads(pickle.dumps(t)), t)


@each_type
def test_saved_size_is_that_of_the_triangle(cls):
    t = cls.randn(300)
    buffer = io.BytesIO()
    torch.save(t, buffer)
    assert buffer.tell() < 1.05 * layout.numel(300) * 4


def test_saving_keeps_shared_storage():
    t = LowerTriangular.randn(4)
    first, second = reload([t, t.mT])
    assert type(second) is UpperTriangular
    first.zero_()
    assert second.packed.count_nonzero() == 0


@each_type
def test_copies(cls, device):
    t = cls.randn(4, device=device, requires_grad=True)
    for c in (copy.copy(t), copy.deepcopy(t)):
        assert type(c) is cls and c.requires_grad and torch.equal(c, t)
    assert copy.deepcopy(t).packed.data_ptr() != t.packed.data_ptr()
    a, b = copy.deepcopy([t, t])
    assert a is b
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.deepcopy(t * 2)


@each_type
def test_deep_copies_copy_the_elements_once(cls):
    """And what is shared in the original once, as elements are by a transpose."""
    t = cls.randn(4)
    t.note = ["of the user", t]
    assert not any("clone" in name for name in called(lambda: copy.deepcopy(t)))
    other, transpose = copy.deepcopy([t, t.mT])
    assert type(transpose) is cls.transposed and other.note[1] is other
    other.zero_()
    assert not transpose.packed.any() and t.packed.all()
    assert other.note[0] == "of the user" and other.note is not t.note


@each_type
def test_copies_of_parameters_have_no_gradient(cls):
    """As those of dense ones; a plain leaf keeps its own."""
    module = nn.Module()
    module.weight = nn.Parameter(cls.randn(3))
    module.weight.sum().backward()
    module.weight.note = "of the optimizer"
    for c in (copy.deepcopy(module).weight, copy.deepcopy(module.weight)):
        assert type(c) is cls and isinstance(c, nn.Parameter) and c.requires_grad
        assert torch.equal(c, module.weight) and c.grad is None and not hasattr(c, "note")
    a, b = copy.deepcopy([module.weight, module.weight])
    assert a is b
    leaf = cls.randn(3, requires_grad=True)
    leaf.sum().backward()
    assert torch.equal(copy.deepcopy(leaf).grad, leaf.grad)


@each_type
def test_tensors_like_another_are_leaves(cls, device):
    t = cls.randn(2, 3, device=device, requires_grad=True) * 2
    makers = [torch.zeros_like, torch.empty_like, lambda t, **kw: torch.full_like(t, 0, **kw)]
    if cls in MIRRORED:
        makers += [torch.ones_like, lambda t, **kw: torch.full_like(t, 2, **kw)]
    for f in makers:
        for options in ({}, {"dtype": torch.float64}):
            x = f(t, requires_grad=True, **options)
            assert type(x) is cls and x.is_leaf and x.requires_grad
            (x.to_dense() * 3).sum().backward()
            assert torch.equal(x.grad, cls.from_dense(torch.full_like(t, 3.0).to_dense().to(x)))
            assert not f(t, **options).requires_grad
        with pytest.raises(RuntimeError, match="floating"):
            f(t, dtype=torch.int64, requires_grad=True)


class Model(nn.Module):
    def __init__(self, cls: type) -> None:
        super().__init__()
        self.weight = nn.Parameter(cls.randn(4))
        self.register_buffer("scale", cls.eye(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight @ self.scale


@each_type
def test_parameters_and_state_dicts(cls, device):
    model, other = Model(cls).to(device), Model(cls).to(device)
    assert type(model.weight) is cls and isinstance(model.weight, nn.Parameter)
    assert [name for name, _ in model.named_parameters()] == ["weight"]
    state = reload(model.state_dict())
    other.load_state_dict(state)
    assert torch.equal(other.weight, model.weight) and other.weight.requires_grad
    other.load_state_dict(state, assign=True)
    assert type(other.weight) is cls
    double = copy.deepcopy(model).double()
    assert type(double.weight) is cls and double.weight.dtype == torch.float64
    assert double.scale.dtype == torch.float64
    x = torch.randn(3, 4, device=device)
    torch.testing.assert_close(other(x), model(x))


@each_type
@pytest.mark.parametrize("assign", [False, True])
def test_state_dicts_are_swapped_into_modules(cls, assign):
    model, other = Model(cls), Model(cls)
    for m in (model, other):
        m.register_buffer("made", cls(torch.rand(6)))
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model.load_state_dict(other.state_dict(), assign=assign)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)
    assert torch.equal(model.made, other.made) and torch.equal(model.weight, other.weight)


@each_type
def test_meta_device_and_materialization(cls, device):
    with torch.device("meta"):
        model = Model(cls)
    assert model.weight.device.type == "meta" and type(model.weight @ model.weight.mT).__name__
    model.to_empty(device=device)
    model.load_state_dict(Model(cls).to(device).state_dict())
    assert type(model.weight) is cls and model.weight.device.type == device


@each_type
def test_sharing_between_processes(cls):
    t = cls.randn(4)
    assert not t.is_shared()
    assert t.share_memory_() is t
    assert t.is_shared() and t.packed.is_shared() and torch.isfinite(t.packed).all()


@each_type
def test_numpy_reads_a_dense_copy(cls):
    t = cls.randn(3)
    np.testing.assert_array_equal(np.asarray(t), t.to_dense().numpy())
    np.testing.assert_array_equal(t.packed.numpy(), np.from_dlpack(t.packed))


def test_default_collate_and_data_loaders():
    data = [LowerTriangular.randn(3) for _ in range(4)]
    (batch,) = torch.utils.data.DataLoader(data, batch_size=4)
    assert torch.equal(batch, torch.stack([t.to_dense() for t in data]))


@pytest.mark.parametrize("workers", [0, 2])
@each_type
def test_data_loaders_keep_the_type(cls, workers):
    data = [(cls.randn(2, 3), {"label": i}) for i in range(5)]
    loader = torch.utils.data.DataLoader(data, batch_size=3, num_workers=workers)
    batches = list(loader)
    for (batch, _), start in zip(batches, (0, 3), strict=True):
        assert type(batch) is cls
        expected = torch.stack([t for t, _ in data[start : start + 3]])
        assert torch.equal(batch.packed, expected.packed)
    mixed = [LowerTriangular.randn(3), Symmetric.randn(3), torch.randn(3, 3)]
    (batch,) = torch.utils.data.DataLoader(mixed, batch_size=3, num_workers=workers)
    assert type(batch) is torch.Tensor
    assert torch.equal(batch, torch.stack(mixed))
