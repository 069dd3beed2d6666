"""Modules that keep plain vectors in the place of packed parameters and buffers."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from twins import each_type

from packedtri import Hermitian, LowerTriangular, PackedTensor, Symmetric, UpperTriangular
from packedtri.nn import FromPacked, PositiveDiagonal, plain_parameters


class Net(nn.Module):
    """Parameters, one of them held twice, one with a parametrization; buffers of both kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(LowerTriangular.randn(2, 3))
        self.fixed = nn.Parameter(Symmetric.randn(3), requires_grad=False)
        self.linear = nn.Linear(3, 3)
        self.inner = nn.Sequential(nn.Module())
        self.inner[0].first = self.first
        self.scale = nn.Parameter(LowerTriangular.randn(3).fill_diagonal_(1))
        parametrize.register_parametrization(self, "scale", PositiveDiagonal(), unsafe=True)
        self.register_buffer("kept", Hermitian.randn(3))
        self.register_buffer("lost", UpperTriangular.randn(3), persistent=False)
        self.register_buffer("none", None)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first @ self.linear(x)).sum(0) + self.inner[0].first.sum()
        return self.scale @ (self.fixed @ x) + self.kept @ (self.lost @ x)


def test_nothing_is_packed_and_nothing_changes():
    net, x = Net(), torch.randn(3, 3)
    expected = net(x)
    expected.square().sum().backward()
    lower, scale = net.first.grad, net.parametrizations.scale.original.grad
    buffers = set(net.state_dict())
    assert plain_parameters(net) is net
    assert not any(isinstance(t, PackedTensor) for t in [*net.parameters(), *net.buffers()])
    torch.testing.assert_close(net(x), expected)
    net.zero_grad()
    net(x).square().sum().backward()
    parts = net.parametrizations
    torch.testing.assert_close(parts.first.original.grad, lower.packed)
    torch.testing.assert_close(parts.scale.original.grad, scale.packed)
    assert parts.first.original is net.inner[0].parametrizations.first.original
    assert not parts.fixed.original.requires_grad
    assert type(net.kept) is Hermitian
    names = {n.replace("parametrizations.", "").removesuffix(".original") for n in buffers}
    now = {n.replace("parametrizations.", "").removesuffix(".original") for n in net.state_dict()}
    assert now == names
    # A second time there is nothing to do.
    before = list(net.state_dict())
    assert list(plain_parameters(net).state_dict()) == before


def test_state_is_saved_loaded_and_assigned():
    net = plain_parameters(Net())
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    other = plain_parameters(Net())
    other.load_state_dict(torch.load(file))
    for twin in (other, copy.deepcopy(net)):
        torch.testing.assert_close(twin.first, net.first)
        torch.testing.assert_close(twin.scale, net.scale)
    net.first = LowerTriangular.eye(3).expand(2, 3, 3)
    net.scale = 2 * LowerTriangular.eye(3)
    torch.testing.assert_close(net.first.detach(), torch.stack([LowerTriangular.eye(3)] * 2))
    torch.testing.assert_close(net.scale.detach(), 2 * LowerTriangular.eye(3))
    for wrong in (UpperTriangular.zeros(2, 3), torch.zeros(2, 3, 3)):
        with pytest.raises(NotImplementedError, match=r"\[FromPacked\] expected a LowerTriangular"):
            net.first = wrong
    torch.testing.assert_close(net.first.detach(), torch.stack([LowerTriangular.eye(3)] * 2))


@each_type
@pytest.mark.parametrize("optimizer", ["LBFGS", "Rprop", "Adam"])
def test_optimizers_that_take_dense_parameters_alone(cls, optimizer, device):
    net = nn.Module()
    net.weight = nn.Parameter(cls.eye(3, device=device))
    x, target = torch.randn(3, 5, device=device), torch.randn(3, 5, device=device)
    plain_parameters(net)
    step = getattr(torch.optim, optimizer)(net.parameters())

    def loss() -> Tensor:
        step.zero_grad()
        value = (net.weight @ x - target).square().sum()
        value.backward()
        return value

    before = loss().item()
    for _ in range(3):
        step.step(loss)
    assert loss().item() < before
    vector = nn.utils.parameters_to_vector(net.parameters())
    nn.utils.vector_to_parameters(vector, net.parameters())


def test_a_matrix_that_others_watch_and_one_built_once():
    net = nn.Module()
    net.weight = nn.Parameter(Symmetric(torch.ones(6)))
    elements = net.weight.packed  # The family of the matrix holds weak references to it.
    plain_parameters(net)
    with torch.no_grad():
        net.parametrizations.weight.original.zero_()
    assert elements.sum() == 6
    with parametrize.cached():
        assert net.weight is net.weight


def test_a_vector_that_is_there_already():
    layer = nn.Module()
    layer.elements = nn.Parameter(torch.arange(6.0))
    parametrize.register_parametrization(layer, "elements", FromPacked(Symmetric), unsafe=True)
    torch.testing.assert_close(layer.elements.packed, torch.arange(6.0))


class Halves(nn.Module):
    """A parametrization by two tensors."""

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return a + b

    def right_inverse(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x / 2, x / 2


def test_what_cannot_be_done_raises():
    for wrong in (LowerTriangular.eye(3), [nn.Linear(2, 2)]):
        with pytest.raises(TypeError, match=r"\[plain_parameters\] expected a torch.nn.Module"):
            plain_parameters(wrong)
    for wrong in (torch.Tensor, PackedTensor, LowerTriangular.eye(2), "LowerTriangular"):
        with pytest.raises(TypeError, match=r"\[FromPacked\] expected a packed type"):
            FromPacked(wrong)
    layer = nn.Module()
    layer.weight = nn.Parameter(LowerTriangular.eye(2))
    parametrize.register_parametrization(layer, "weight", Halves(), unsafe=True)
    with pytest.raises(NotImplementedError, match="one of several tensors"):
        plain_parameters(layer)
    torch.testing.assert_close(layer.weight.detach(), LowerTriangular.eye(2))
    # Nothing else has been changed by then.
    outer = nn.Module()
    outer.first, outer.layer = nn.Parameter(Symmetric.eye(2)), layer
    with pytest.raises(NotImplementedError, match="one of several tensors"):
        plain_parameters(outer)
    assert type(outer._parameters["first"]) is Symmetric


@each_type
def test_compiled(cls):
    net = nn.Module()
    net.weight = nn.Parameter(cls.randn(4))
    plain_parameters(net)
    x = torch.randn(4)
    product = torch.compile(lambda x: net.weight @ x, backend="aot_eager", fullgraph=True)
    product(x).sum().backward()
    grad = net.parametrizations.weight.original.grad.clone()
    net.zero_grad()
    (net.weight @ x).sum().backward()
    torch.testing.assert_close(net.parametrizations.weight.original.grad, grad)
