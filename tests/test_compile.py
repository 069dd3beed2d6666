"""Types in compiled functions, made in them, and trained by compiled optimizers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from twins import MIRRORED, TYPES, dense, each_type, packed_vector, weighted_sum

import packedtri


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


def _through_views(e: Tensor, x: Tensor, cls: Any) -> Tensor:
    t = cls(e)
    return (t @ t.mT).mT @ x + t.mH.clone() @ x + torch.stack([t, 2 * t]).unbind(0)[1].packed.sum()


def _past_constants(e: Tensor, x: Tensor, cls: Any) -> Tensor:
    t = cls(e)
    with torch.no_grad():
        constant, elements = cls(e), t.packed
    return t @ x + (constant.mT @ x) * elements.sum() + (t @ t.detach().mT) @ x


def _through_changes(e: Tensor, x: Tensor, cls: Any) -> Tensor:
    t = cls(e).clone().mul_(2)
    t[1, 1] = x[0, 0]
    return t @ x


# Functions of the elements of a type and of a matrix.
EXPORTED: dict[str, Any] = {
    "product": lambda e, x, cls: x @ cls(e),
    "dense": lambda e, x, cls: cls(2 * e).to_dense() * x,
    "from dense": lambda e, x, cls: cls.from_dense(x) @ cls(e).to_dense(),
    "syrk": lambda e, x, cls: packedtri.syrk(x).to_dense() * e.sum(),
    "elements": lambda e, x, cls: (cls(e) + cls(e)).packed.sum() * x,
    "solve": lambda e, x, cls: torch.linalg.solve(cls(e), x),
    "views": _through_views,
    "constants": _past_constants,
    "changes": _through_changes,
}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", EXPORTED)
@each_type
def test_exported_programs_train_elements(cls, name, strict):
    """The gradients of types that forward makes of plain parameters, as in the module itself."""

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 3, dtype=torch.float64)
            self.elements = torch.nn.Parameter(packed_vector(3).detach())

        def forward(self, x: Tensor) -> Tensor:
            return EXPORTED[name](self.elements, self.linear(x), cls)

    layer, x = Layer(), torch.randn(3, 3, dtype=torch.float64)
    exported = torch.export.export(layer, (x,), strict=strict).module()
    expected, ours = layer(x), exported(x)
    torch.testing.assert_close(ours, expected)
    theirs = torch.autograd.grad(weighted_sum(expected), list(layer.parameters()))
    parameters = [exported.get_parameter(name) for name, _ in layer.named_parameters()]
    found = torch.autograd.grad(weighted_sum(ours), parameters)
    torch.testing.assert_close(found, theirs)


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


def _scale_and_clamp(t: Any) -> None:
    with torch.no_grad():
        t.mul_(2)
        t.packed.clamp_(max=1)


def _write_elements(t: Any) -> Tensor:
    with torch.no_grad():
        t.packed.mul_(2)
    return t @ t.new_ones(3)


def _set_element(t: Any) -> Tensor:
    t[0, 0] = 5.0
    return t.packed * 1


def _element_before_change(t: Any) -> Tensor:
    p = t.packed
    t.mul_(2)
    return p * 1


def _change_between_reads(t: Any) -> tuple[Tensor, ...]:
    p = t.packed * 1
    t.packed[0] = 3.0
    t.add_(t)
    return p, t.packed * 1, t.to_dense()


def _break_between(t: Any) -> Tensor:
    p = t.packed
    torch._dynamo.graph_break()
    t.mul_(2)
    return p * 1


CHANGES = [
    _scale_and_clamp,
    _write_elements,
    _set_element,
    _element_before_change,
    _change_between_reads,
    _break_between,
    lambda t: t.mul_(2).packed.sum(),
    lambda t: (t.neg_(), t.packed * 1)[1],
    lambda t: (t.set_diagonal_(t.new_ones(3)), t.packed * 1)[1],
    lambda t: (t.mT.mul_(2), t.packed * 1)[1],
    lambda t: (t.add_(t), t.mT.packed * 1)[1],
    lambda t: (t.detach().mul_(2), t.packed * 1)[1],
    lambda t: (t.mul_(2), t.mT.to_dense(), t.packed)[1:],
]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("change", CHANGES)
@each_type
def test_compiled_changes_reach_the_stored_elements(cls, change, backend):
    ours = cls.randn(3, dtype=torch.float64)
    expected = ours.clone()
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(change, backend=backend)(ours), change(expected))
    assert torch.equal(ours.packed, expected.packed)


@each_type
def test_inputs_of_one_graph_that_share_elements(cls):
    def change_type(t: Any, other: Any) -> Tensor:
        t.mul_(2)
        return other * 1

    def change_elements(t: Any, p: Tensor) -> Tensor:
        p.mul_(2)
        return t @ t.new_ones(3)

    t = cls.randn(3, dtype=torch.float64)
    for f, share in (
        (change_type, lambda t: t.mT),
        (change_type, lambda t: t.packed),
        (change_elements, lambda t: t.packed),
    ):
        ours, expected = t.clone(), t.clone()
        torch._dynamo.reset()
        out = torch.compile(f, backend="aot_eager")(ours, share(ours))
        torch.testing.assert_close(out, f(expected, share(expected)))
        assert torch.equal(ours.packed, expected.packed)
        torch._dynamo.reset()
        with pytest.raises(Exception, match=r"share elements"):
            torch.compile(f, backend="aot_eager", fullgraph=True)(ours, share(ours))


@each_type
def test_whole_graphs_with_changes(cls):
    """The elements that a graph itself takes follow the changes; others it may only read."""

    def change(t: Any) -> Tensor:
        t.mul_(2)
        t[...].packed.clamp_(max=1)
        return t[...].packed * 1

    ours = cls.randn(3, dtype=torch.float64)
    expected = ours.clone()
    torch._dynamo.reset()
    out = torch.compile(change, backend="aot_eager", fullgraph=True)(ours)
    torch.testing.assert_close(out, change(expected))
    assert torch.equal(ours.packed, expected.packed)
    for f in (lambda t: t.packed.sum() + t.to_dense().sum(), lambda t: t.packed):
        torch._dynamo.reset()
        out = torch.compile(f, backend="aot_eager", fullgraph=True)(ours)
        torch.testing.assert_close(out, f(ours))
    for f in CHANGES[:4]:
        torch._dynamo.reset()
        with pytest.raises(torch._dynamo.exc.Unsupported, match=r"L\[...\]\.packed"):
            torch.compile(f, backend="aot_eager", fullgraph=True)(ours)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@each_type
def test_compiled_training_steps(cls, backend, device):
    x = torch.randn(3, 2, dtype=torch.float64, device=device)

    def step(w: Any) -> Tensor:
        loss = (w @ x).square().sum() + weighted_sum(w.packed)
        loss.backward()
        with torch.no_grad():
            w.sub_(0.1 * w.grad)
            w.packed.clamp_(max=0.5)
        w.grad = None
        return loss.detach()

    start = cls.randn(3, dtype=torch.float64, device=device)
    ours, expected = (torch.nn.Parameter(start.clone()) for _ in range(2))
    torch._dynamo.reset()
    compiled = torch.compile(step, backend=backend)
    for _ in range(2):
        torch.testing.assert_close(compiled(ours), step(expected))
        torch.testing.assert_close(ours.detach().packed, expected.detach().packed)


@each_type
def test_elements_of_what_a_graph_makes(cls, device):
    for f in (
        # Torch before 2.13 compiles to_dense() of a plain tensor wrongly.
        lambda p: dense(cls(p) @ cls(p)) + cls(p).packed.sum(),
        lambda p: cls(p).clone().packed,
        lambda p: cls(cls(p).packed * 2).to_dense(),
        lambda p: cls(p).clone().mul_(2).packed,
        lambda p: packedtri.syrk(cls(p).to_dense()).packed,
    ):
        p = packed_vector(3, device=device)
        expected = f(p)
        (expected_grad,) = torch.autograd.grad(weighted_sum(expected), p)
        torch._dynamo.reset()
        out = torch.compile(f, backend="aot_eager", fullgraph=True)(p)
        torch.testing.assert_close(out, expected)
        (grad,) = torch.autograd.grad(weighted_sum(out), p)
        torch.testing.assert_close(grad, expected_grad)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@each_type
def test_compiled_functions_protect_the_elements_that_they_expose(cls, backend):
    """Autograd refuses recorded changes that it would miss, as it does in eager mode."""

    def change_elements(t: Any) -> Tensor:
        t = t * 1
        t.packed.mul_(2)
        return t.to_dense().sum()

    def change_type(t: Any) -> Tensor:
        t = t * 1
        p = t.packed
        t.mul_(2)
        return p.sum()

    t = cls.eye(3, requires_grad=True)
    for f in (change_elements, change_type):
        torch._dynamo.reset()
        with pytest.raises(RuntimeError, match="is a view"):
            torch.compile(f, backend=backend, fullgraph=True)(t).real.backward()
    torch._dynamo.reset()
    with pytest.raises(RuntimeError, match="shares the elements"):
        torch.compile(lambda p: cls(p).mul_(2).packed, backend=backend)(packed_vector(3))


CHANGING = {
    "product": lambda S, c: S * c,
    "quotient": lambda S, c: c / S,
    "sum": lambda S, c: S + c,
    "power": lambda S, c: S**c,
    "clamp": lambda S, c: S.clamp(-c, c),
    "lerp": lambda S, c: torch.lerp(S, -S, c),
    "matrix power": lambda S, c: torch.linalg.matrix_power(S, int(c)),
    "order": lambda S, c: S / S.shape[-1],
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", CHANGING)
def test_numbers_that_change_from_call_to_call(name: str, dynamic: bool | None) -> None:
    """The compiler makes them symbols, which are numbers to the types as well."""
    f = CHANGING[name]
    torch._dynamo.reset()
    compiled = torch.compile(f, backend="aot_eager", dynamic=dynamic)
    for n, number in ((3, 1.5), (3, 2.5), (4, 3.5), (5, 2.0)):
        S = packedtri.Symmetric.randn(n).abs()
        ours, expected = compiled(S, number), f(S, number)
        assert type(ours) is type(expected) is packedtri.Symmetric
        torch.testing.assert_close(ours.packed, expected.packed)


# Functions of a batch of three matrices.
OF_ORDERS_THAT_CHANGE: dict[str, Any] = {
    "where": lambda t: torch.where(t > 0, t, 0.0),
    "where of batches": lambda t: torch.where(torch.ones(3, 1, 1) > 0, t, 2 * t),
    "masked_fill": lambda t: t.masked_fill(torch.ones(3, 1, 1) > 0, 0.0),
    "reshape": lambda t: t.reshape(3, 1, *t.shape[-2:]) * 2,
    "expand": lambda t: t.unsqueeze(0).expand(2, *t.shape) * 2,
    "permute": lambda t: t.unsqueeze(0).permute(1, 0, 2, 3).mT * 2,
    "chunk": lambda t: t.chunk(3)[1] * 2,
    "lerp": lambda t: torch.lerp(t, 2 * t, 0.5),
    "gram": lambda t: t @ t.mT,
}


@pytest.mark.parametrize("name", OF_ORDERS_THAT_CHANGE)
@each_type
def test_orders_that_change_from_call_to_call(cls, name):
    f = OF_ORDERS_THAT_CHANGE[name]
    torch._dynamo.reset()
    compiled = torch.compile(f, backend="aot_eager", dynamic=True)
    for n in (3, 4, 6):
        t = cls.randn(3, n)
        ours, expected = compiled(t), f(t)
        assert type(ours) is type(expected)
        torch.testing.assert_close(*map(dense, (ours, expected)))


@each_type
def test_views_of_what_autograd_records_with_another_order(cls):
    torch._dynamo.reset()
    g = torch.compile(lambda t: t.expand(2, *t.shape), backend="aot_eager", fullgraph=True)
    for n in (4, 3):
        t = cls.randn(n, dtype=torch.float64, requires_grad=True)
        ours = g(t * 1)
        assert type(ours) is cls and torch.equal(dense(ours), dense(t).expand(2, n, n))
        (grad,) = torch.autograd.grad((dense(ours) ** 2).sum(), t)
        (expected,) = torch.autograd.grad(2 * (dense(t) ** 2).sum(), t)
        torch.testing.assert_close(dense(grad), dense(expected))


@each_type
def test_assignments_that_fit_look_at_no_values(cls):
    """Parts of the stored triangle alone; the whole function is one graph."""
    rows, columns = slice(2, 4), slice(0, 2)
    part = (columns, rows) if cls is packedtri.UpperTriangular else (rows, columns)
    value = torch.arange(4.0).reshape(2, 2).requires_grad_()

    def assign(t: Tensor, value: Tensor) -> Tensor:
        t = t * 1
        t[..., part[0], part[1]] = value
        t[..., 3, 3] = 5.0
        return t

    t = cls.randn(2, 4)
    compiled = torch.compile(assign, fullgraph=True, backend="aot_eager")(t, value)
    torch.testing.assert_close(compiled, assign(t, value))
    expected = t.to_dense()
    expected[..., part[0], part[1]] = value.detach()
    if cls in MIRRORED:
        expected[..., part[1], part[0]] = value.detach().mT
    expected[..., 3, 3] = 5.0
    torch.testing.assert_close(compiled.to_dense(), expected)
    compiled.to_dense().sum().backward()
    assert torch.equal(value.grad, torch.full((2, 2), 4.0 if cls in MIRRORED else 2.0))


UPDATES: dict[str, Any] = {
    "addr": lambda S, G: torch.addr(S, G[:, 0], G[:, 0]),
    "addr of one": lambda S, G: (lambda x: torch.addr(S, x, x, alpha=0.5))(G[:, 1]),
    "addr_": lambda S, G: (lambda x: S.clone().addr_(x, x))(G[:, 0]),
    "addmm_": lambda S, G: S.clone().mul_(0.9).addmm_(G, G.mT, alpha=0.1),
    "baddbmm_": lambda S, G: S.expand(1, 4, 4).clone().baddbmm_(G[None], G[None].mT),
}


@pytest.mark.parametrize("name", UPDATES)
def test_updates_of_low_rank(name: str) -> None:
    """What is typed, and fits without a look at values, is so in whole graphs too."""
    update = UPDATES[name]
    S, G = packedtri.Symmetric.randn(4), torch.randn(4, 2)
    torch._dynamo.reset()
    ours = torch.compile(update, backend="aot_eager", fullgraph=True)(S, G)
    expected = update(S, G)
    assert type(ours) is type(expected)
    torch.testing.assert_close(*map(dense, (ours, expected)))
