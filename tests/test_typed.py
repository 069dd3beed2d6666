"""Ops on types that one node records: it must do what the nodes of the general way do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from twins import TRIANGULAR, TYPES, called, each_type, weighted_sum, wide

from packedtri import Hermitian, LowerTriangular, PackedTensor, Symmetric, UpperTriangular

# Its name begins so.
ONE_NODE = "Packed"


def leaves(value: Tensor) -> list[Tensor]:
    """What the node that made a tensor leads to, where that are leaves."""
    return [node.variable for node, _ in value.grad_fn.next_functions if node is not None]


def solve(t: PackedTensor, x: Tensor) -> Tensor:
    return torch.linalg.solve_triangular(t, x, upper=isinstance(t, UpperTriangular))


def functions() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """What one node records, and the kinds of its operands: a type, a matrix or a vector."""
    found: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}
    for a in TYPES:
        found[f"{a.__name__} @ matrix"] = torch.matmul, (a, 2)
        found[f"matrix @ {a.__name__}"] = torch.matmul, (2, a)
        found[f"{a.__name__} @ vector"] = torch.matmul, (a, 1)
        found[f"vector @ {a.__name__}"] = torch.matmul, (1, a)
        found[f"{a.__name__} @ .mT"] = lambda t: t @ t.mT, (a,)
        found[f"{a.__name__} twice"] = lambda t: t @ t, (a,)
        found[f"{a.__name__}.to_dense"] = lambda t: t.to_dense(), (a,)
        found[f"{a.__name__}.from_dense"] = a.from_dense, (2,)
        for b in TYPES:
            found[f"{a.__name__} @ {b.__name__}"] = torch.matmul, (a, b)
    for a in TRIANGULAR:
        found[f"solve {a.__name__}"] = solve, (a, 2)
    return found


FUNCTIONS = functions()
each_function = pytest.mark.parametrize("name", FUNCTIONS)


def operand(kind: Any, batch: tuple[int, ...], dtype: torch.dtype, device: Any) -> Tensor:
    n = 4
    if isinstance(kind, type):
        t = kind.randn(*batch, n, dtype=dtype, device=device)
        return (t + 4 * kind.eye(n, dtype=dtype, device=device)).detach().requires_grad_()
    shape = (*batch, n, n) if kind == 2 else (n,)
    return torch.randn(shape, dtype=dtype, device=device, requires_grad=True)


def operands(name: str, dtype: torch.dtype, device: Any) -> list[Tensor]:
    # Two operands have batches that both stretch.
    batches = [(2, 1), (3,)]
    return [operand(k, b, dtype, device) for k, b in zip(FUNCTIONS[name][1], batches, strict=False)]


def elements(x: Tensor) -> Tensor:
    return x.packed if isinstance(x, PackedTensor) else x


def generally(call: Callable[[], Any]) -> Any:
    """The result by the general way, which hooks ask for."""
    with saved_tensors_hooks(lambda x: x, lambda x: x):
        return call()


@each_function
@wide
def test_it_is_one_node_with_the_derivatives_of_many(name, wide, device):
    f, given = FUNCTIONS[name][0], operands(name, wide, device)
    value, expected = f(*given), generally(lambda: f(*given))
    assert type(value) is type(expected)
    torch.testing.assert_close(elements(value), elements(expected))
    assert type(value.grad_fn).__name__.startswith(ONE_NODE)
    assert not type(expected.grad_fn).__name__.startswith(ONE_NODE)
    if "mT" not in name:
        assert {*map(id, leaves(value))} == {*map(id, given)}

    first, wanted = (
        torch.autograd.grad(weighted_sum(elements(v)), given, create_graph=True)
        for v in (value, expected)
    )
    for x, g, w in zip(given, first, wanted, strict=True):
        assert type(g) is type(w) and g.shape == x.shape
        torch.testing.assert_close(elements(g), elements(w))
    if "dense" not in name:
        second, wanted = (
            torch.autograd.grad(sum(weighted_sum(elements(g)) for g in grads), given)
            for grads in (first, wanted)
        )
        for g, w in zip(second, wanted, strict=True):
            torch.testing.assert_close(elements(g), elements(w))


@each_function
def test_gradients_without_a_graph_are_the_same_and_nobody_elses(name, device):
    f, given = FUNCTIONS[name][0], operands(name, torch.float64, device)
    wanted = torch.autograd.grad(weighted_sum(elements(generally(lambda: f(*given)))), given)
    for times in (1, 2):
        weighted_sum(elements(f(*given))).backward()
        for x, w in zip(given, wanted, strict=True):
            assert type(x.grad) is type(x)
            torch.testing.assert_close(elements(x.grad), times * elements(w))
    storages = [elements(x).untyped_storage().data_ptr() for x in given]
    storages += [elements(x.grad).untyped_storage().data_ptr() for x in given]
    assert len(set(storages)) == len(storages)


@pytest.mark.parametrize("name", [name for name, (_, kinds) in FUNCTIONS.items() if len(kinds) > 1])
def test_only_some_operands_require_gradients(name, device):
    f, given = FUNCTIONS[name][0], operands(name, torch.float64, device)
    for i in range(2):
        chosen = [x if i == j else x.detach() for j, x in enumerate(given)]
        value = f(*chosen)
        assert type(value.grad_fn).__name__.startswith(ONE_NODE)
        both = torch.autograd.grad(weighted_sum(elements(f(*given))), given)
        (grad,) = torch.autograd.grad(weighted_sum(elements(value)), chosen[i], create_graph=True)
        torch.testing.assert_close(elements(grad), elements(both[i]))


@each_function
def test_many_gradients_at_once(name, device):
    f, given = FUNCTIONS[name][0], operands(name, torch.float64, device)
    value = elements(f(*given))
    gradients = torch.randn(3, *value.shape, dtype=value.dtype, device=device)
    options = {"is_grads_batched": True, "retain_graph": True}
    wanted = torch.autograd.grad(
        elements(generally(lambda: f(*given))), given, gradients, **options
    )
    found = torch.autograd.grad(value, given, gradients, **options)
    for g, w in zip(found, wanted, strict=True):
        torch.testing.assert_close(elements(g), elements(w))


@each_type
def test_changes_of_what_is_saved_are_found(cls, device):
    """Whether the type was changed, or its elements by somebody who has them too."""
    x = torch.randn(4, 4, device=device, requires_grad=True)

    def by_type(t: PackedTensor) -> None:
        t.mul_(2)

    def by_elements(t: PackedTensor) -> None:
        t.packed.mul_(2)

    for change in (by_type, by_elements):
        t = cls.randn(4, device=device, requires_grad=True)
        value = t @ x
        with torch.no_grad():
            change(t)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            value.sum().backward()
    t = cls.randn(4, device=device, requires_grad=True)
    made = t * 2
    value = made @ x
    made.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.sum().backward()


def test_a_change_of_the_packed_tensor_behind_it_is_found(device):
    p = torch.randn(10, device=device, requires_grad=True) * 1
    t = LowerTriangular(p)
    p.mul_(2)
    for use in (lambda: t @ t, lambda: t.to_dense(), lambda: solve(t, t.new_ones(4, 1))):
        with pytest.raises(RuntimeError, match="changed in place later"):
            use()


def test_hooks_of_saved_tensors_see_plain_ones(device):
    seen: list[Tensor] = []
    t = LowerTriangular.randn(4, device=device, requires_grad=True)
    with saved_tensors_hooks(lambda x: seen.append(x) or x, lambda x: x):
        value = t @ t
    assert seen and all(type(x) is Tensor for x in seen)
    value.to_dense().sum().backward()


def test_what_is_saved_is_let_go(device):
    t = LowerTriangular.randn(4, device=device, requires_grad=True)
    value = (t @ t).to_dense().sum()
    value.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        value.backward()


def test_only_what_gradients_need_is_saved(device):
    t = Symmetric.randn(4, device=device, requires_grad=True)
    x = torch.randn(4, 2, device=device)
    value = t @ x
    saved = [s for s in value.grad_fn.saved_tensors if s is not None]
    assert len(saved) == 1 and saved[0] is x


def test_a_missing_gradient_stays_missing(device):
    t = LowerTriangular.randn(4, device=device, requires_grad=True)
    value = t @ t

    class Nothing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.packed.sum()

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> None:
            return None

    Nothing.apply(value).backward()
    assert t.grad is None


def test_hermitian_results_have_real_diagonals(device):
    t = LowerTriangular.randn(4, dtype=torch.complex128, device=device, requires_grad=True)
    value = t @ t.mH
    assert type(value) is Hermitian and type(value.grad_fn).__name__.startswith(ONE_NODE)
    assert not value.packed.imag[[0, 2, 5, 9]].any()


def test_errors_are_those_of_products_that_nobody_records(device):
    t = LowerTriangular.randn(4, device=device, requires_grad=True)
    for wrong, error in (
        (torch.randn(3, 3, device=device), ValueError),
        (torch.randn(4, 4, device=device, dtype=torch.float64), ValueError),
        (LowerTriangular.randn(5, device=device), ValueError),
    ):
        with pytest.raises(error) as recorded:
            t @ wrong
        with pytest.raises(error) as unrecorded:
            t.detach() @ wrong
        assert str(recorded.value) == str(unrecorded.value)


def test_compiled_autograd_tells_types_apart(device):
    lower, upper = (
        c.randn(3, dtype=torch.float64, device=device).requires_grad_() for c in TRIANGULAR
    )
    x = torch.randn(3, 3, dtype=torch.float64, device=device, requires_grad=True)

    def grads() -> list[Tensor]:
        found = []
        for t in (lower, upper):
            found += torch.autograd.grad(weighted_sum(t @ x), (t, x))
            found += torch.autograd.grad(weighted_sum(t @ x.detach()), t)
            found += torch.autograd.grad(weighted_sum(t.detach() @ x), x)
            found += torch.autograd.grad(weighted_sum(t.to_dense()), t)
            found += torch.autograd.grad(weighted_sum((t @ t).packed), t)
        return [elements(g) for g in found]

    expected = grads()
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        compiled = grads()
    torch.testing.assert_close(compiled, expected)


def test_modes_see_the_ops_of_a_gradient_once(device):
    """Nothing is tried where a mode watches, and done again by the ops that it knows."""
    t = LowerTriangular.randn(4, device=device, requires_grad=True)
    x = torch.randn(4, 4, device=device, requires_grad=True)
    value = (t @ x).sum()
    seen = called(lambda: torch.autograd.grad(value, (t, x)))
    # Torch has had two names for it.
    assert sum("transpose" in name or "mT" in name for name in seen) == 1
    assert sum("packedtri.mm" in name for name in seen) == 2
