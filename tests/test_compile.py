"""Types in compiled functions, made in them, and trained by compiled optimizers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from twins import TYPES, dense, each_type, packed_vector, weighted_sum


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("cls", TYPES)
def test_compiled_functions_agree(cls, backend, device):
    def f(t: Tensor, x: Tensor) -> Tensor:
        return ((t @ t) @ x + t.mT @ x).square().sum()

    t = cls.randn(4, dtype=torch.float64, device=device, requires_grad=True)
    x = torch.randn(4, 2, dtype=torch.float64, device=device)
    (expected,) = torch.autograd.grad(f(t, x), t)
    torch._dynamo.reset()
    out = torch.compile(f, backend=backend, fullgraph=True)(t, x)
    torch.testing.assert_close(out, f(t, x))
    (grad,) = torch.autograd.grad(out, t)
    assert type(grad) is cls
    torch.testing.assert_close(grad.packed, expected.packed)

    def from_vector(p: Tensor, x: Tensor) -> Tensor:
        return f(cls(p), x)

    p = packed_vector(4, device=device)
    (expected,) = torch.autograd.grad(from_vector(p, x), p)
    out = torch.compile(from_vector, backend=backend, fullgraph=True)(p, x)
    torch.testing.assert_close(torch.autograd.grad(out, p)[0], expected)


@each_type
def test_compiled_constructions(cls, device):
    """Types may come into being inside a compiled function, in every way."""
    p, x = packed_vector(3, device=device), torch.randn(3, 3, dtype=torch.float64, device=device)
    for f in (
        lambda p, x: cls(p),
        lambda p, x: cls.from_dense(x),
        lambda p, x: cls.from_dense(x) @ cls(p).to_dense(),
        lambda p, x: torch.zeros_like(cls(p)) + cls(p.detach()),
        lambda p, x: cls(p).mT.clone() * 2 - cls(p).mT,
    ):
        torch._dynamo.reset()
        ours, expected = torch.compile(f, backend="aot_eager", fullgraph=True)(p, x), f(p, x)
        assert type(ours) is type(expected)
        torch.testing.assert_close(*(dense(y.detach()) for y in (ours, expected)))


@each_type
def test_exported_programs_read_packed_parameters(cls):
    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(cls.randn(3))

        def forward(self, x: Tensor) -> Tensor:
            return self.weight @ x + self.weight.to_dense()

    layer, x = Layer(), torch.randn(3, 1)
    program = torch.export.export(layer, (x,))
    trainable = program.run_decompositions()
    with torch.no_grad():
        for exported in (program, trainable):
            torch.testing.assert_close(exported.module()(x), layer(x))
    with pytest.raises(RuntimeError, match=rf"{cls.__name__}.*run_decompositions"):
        program.module()(x)
    module = trainable.module()
    module(x).sum().backward()
    layer(x).sum().backward()
    (parameter,) = module.parameters()
    torch.testing.assert_close(cls(parameter).to_dense(), layer.weight.to_dense())
    vector = layer.weight.detach().packed.requires_grad_()
    (cls(vector) @ x + cls(vector).to_dense()).sum().backward()
    torch.testing.assert_close(parameter.grad, vector.grad)


@pytest.mark.parametrize("foreach", [False, True])
@each_type
def test_compiled_optimizer_steps(cls, foreach, device):
    weights = [cls.eye(3, dtype=torch.float64, device=device).requires_grad_() for _ in range(2)]
    for w, compiled in zip(weights, (True, False), strict=True):
        torch._dynamo.reset()
        optimizer = torch.optim.Adam([w], lr=0.1, foreach=foreach)
        step = torch.compile(optimizer.step, backend="aot_eager") if compiled else optimizer.step
        for _ in range(3):
            optimizer.zero_grad()
            weighted_sum((w @ w.mT.to_dense()).square()).backward()
            step()
    # Compiled, Adam multiplies in another order.
    ours, expected = (w.detach().packed for w in weights)
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)
