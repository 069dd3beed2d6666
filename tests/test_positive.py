"""Derivatives of solves, inverses and determinants of positive definite matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from derivatives import gradgradcheck
from torch import Tensor
from torch.autograd import forward_ad as fwad
from torch.autograd import gradcheck
from torch.utils._python_dispatch import TorchDispatchMode

import packedtri
from packedtri import Hermitian, PackedTensor, Symmetric
from packedtri.layout import numel

KINDS = [(Symmetric, torch.float64), (Hermitian, torch.float64), (Hermitian, torch.complex128)]
kinds = pytest.mark.parametrize(("cls", "wide"), KINDS, ids=["S", "real H", "H"])
BATCHES = [((), ()), ((2,), (2,)), ((2,), ()), ((), (2,)), ((2, 1), (3,))]


def inv_quad(a: PackedTensor, b: Tensor) -> Tensor:
    return packedtri.inv_quad_logdet(a, b)[0]


FUNCTIONS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "solve": torch.linalg.solve,
    "solve from the right": lambda a, b: torch.linalg.solve(a, b.mH, left=False),
    "inv": lambda a, b: torch.linalg.inv(a).to_dense() @ b,
    "logdet": lambda a, b: torch.logdet(a).real,
    "slogdet": lambda a, b: torch.linalg.slogdet(a)[1],
    "det": lambda a, b: torch.det(a),
    "inv_quad": inv_quad,
    "both": lambda a, b: sum(packedtri.inv_quad_logdet(a, b)),
}


def well_conditioned(cls: type, packed: Tensor, n: int) -> Any:
    """A positive definite matrix as a function of any vector."""
    return cls(packed) + cls.eye(n, dtype=packed.dtype, device=packed.device) * 8


def arguments(wide: torch.dtype, batches: Any = ((), ()), n: int = 3, device: str = "cpu") -> Any:
    packed = torch.randn(*batches[0], numel(n), dtype=wide, device=device)
    b = torch.randn(*batches[1], n, 4, dtype=wide, device=device)
    return packed.requires_grad_(), b.requires_grad_()


@kinds
@pytest.mark.parametrize("batches", BATCHES, ids=str)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_derivatives(function, batches, cls, wide):
    def f(packed: Tensor, b: Tensor) -> Tensor:
        return function(well_conditioned(cls, packed, 3), b)

    inputs = arguments(wide, batches)
    assert gradcheck(f, inputs, check_forward_ad=True, check_batched_grad=True)
    if batches == ((), ()):
        assert gradgradcheck(f, inputs, check_batched_grad=True, check_fwd_over_rev=True)


@kinds
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_third_derivatives(function, cls, wide):
    def second(packed: Tensor, b: Tensor) -> Tensor:
        value = function(well_conditioned(cls, packed, 2), b)
        (first,) = torch.autograd.grad(value.real.sum(), packed, create_graph=True)
        weights = torch.arange(1.0, 1 + first.numel(), dtype=torch.float64).view_as(first)
        return torch.autograd.grad((first * weights).real.sum(), packed, create_graph=True)[0]

    packed, b = arguments(wide, n=2)
    assert gradcheck(second, (packed, b.detach()))


class Counts(TorchDispatchMode):
    """How often an op runs."""

    def __init__(self, op: Any) -> None:
        super().__init__()
        self.op, self.count = op, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is self.op
        return func(*args, **(kwargs or {}))


@kinds
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_one_factorization_serves_all_derivatives(function, cls, wide, device):
    """And nobody differentiates it, which takes a dense temporary."""
    packed, b = arguments(wide, n=5, device=device)
    a = well_conditioned(cls, packed, 5)
    cholesky, unpack = torch.ops.packedtri.cholesky.default, torch.ops.packedtri.unpack.default
    with Counts(cholesky) as factored, Counts(unpack) as unpacked:
        value = function(a, b).real.sum()
        before = unpacked.count
        (grad,) = torch.autograd.grad(value, packed, create_graph=True)
        grad.real.sum().backward()
    assert factored.count == 1
    assert unpacked.count == before or function is FUNCTIONS["inv"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.complex64])
def test_gradients_in_other_dtypes(dtype, device):
    """Near those of the dense twin in float64, and of the dtype of the operands."""
    cls, wide = (Hermitian, torch.complex128) if dtype.is_complex else (Symmetric, torch.float64)
    packed, b = arguments(wide, n=6, device=device)
    for name in ("solve", "logdet", "inv_quad"):
        a = well_conditioned(cls, packed.detach(), 6).to(dtype).requires_grad_()
        rhs = b.detach().to(dtype).requires_grad_()
        twin = a.detach().to_dense().to(wide).requires_grad_()
        exact = rhs.detach().to(wide).requires_grad_()
        FUNCTIONS[name](a, rhs).real.sum().backward()
        if name == "inv_quad":
            (exact.mH @ torch.linalg.solve(twin, exact)).diagonal().real.sum().backward()
        else:
            FUNCTIONS[name](twin, exact).real.sum().backward()
        assert type(a.grad) is cls and a.grad.dtype == dtype
        expected = (twin.grad + twin.grad.mH) / 2
        tolerance = 20 * torch.finfo(dtype).eps
        torch.testing.assert_close(
            a.grad.to_dense().to(wide), expected, rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_forward_mode_over_recorded_gradients(function):
    """Inside a dual level the graph of a gradient is made of ops, which have forward mode."""
    packed, b = arguments(torch.float64)
    value = function(well_conditioned(Symmetric, packed, 3), b).square().sum()
    with fwad.dual_level():
        seed = fwad.make_dual(torch.ones((), dtype=torch.float64), torch.tensor(2.0).double())
        grad = torch.autograd.grad(value, packed, seed, create_graph=True)[0]
        primal, tangent = fwad.unpack_dual(grad)
        torch.testing.assert_close(tangent, 2 * primal)
        (second,) = torch.autograd.grad(primal.sum(), packed)
    assert second.isfinite().all() and second.any()


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_saved_matrices_may_change_where_torch_allows(function, device):
    packed, b = arguments(torch.float64, device=device)
    value = function(well_conditioned(Symmetric, packed, 3), b).sum()
    (expected,) = torch.autograd.grad(value, packed)
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        a = well_conditioned(Symmetric, packed, 3)
        value = function(a, b).sum()
        with torch.no_grad():
            a.mul_(3)
        (grad,) = torch.autograd.grad(value, packed)
    torch.testing.assert_close(grad, expected)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_compiled_autograd(function):
    packed, b = arguments(torch.float64)
    expected = torch.autograd.grad(
        function(well_conditioned(Symmetric, packed, 3), b).sum(), packed
    )[0]
    with torch._dynamo.config.patch(compiled_autograd=True):
        run = torch.compile(lambda value: value.backward(), backend="eager")
        run(function(well_conditioned(Symmetric, packed, 3), b).sum())
    torch.testing.assert_close(packed.grad, expected)


def test_infinite_variances_have_gradients(device):
    """Of what is not observed; the factor's own derivative would be nan."""
    a = Symmetric.from_dense(torch.tensor([[4.0, 0.0], [0.0, torch.inf]], device=device))
    x = torch.linalg.solve(a.requires_grad_(), torch.ones(2, device=device))
    x.sum().backward()
    assert x.tolist() == [0.25, 0.0]
    assert a.grad.to_dense().tolist() == [[-0.0625, 0.0], [0.0, 0.0]]


def test_matrices_that_change_before_the_derivative_raise(device):
    a = Symmetric.eye(3, device=device).mul_(2).requires_grad_() * 1
    y = torch.logdet(a)
    a.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


@pytest.mark.parametrize("cls", [Symmetric, Hermitian])
def test_an_infinite_determinant_is_the_same_where_it_is_recorded(cls, device):
    t = cls.from_dense(torch.tensor([[4.0, 0], [0, torch.inf]], device=device))
    for function in (torch.det, torch.logdet):
        assert function(t).isinf()
        assert function(t.clone().requires_grad_()).isinf()


@pytest.mark.parametrize("cls", [Symmetric, Hermitian])
def test_hooks_that_make_dense_copies_of_what_is_saved(cls, device):
    """As torch.autograd.graph.save_on_cpu(pin_memory=True) does."""

    def pack(t):
        return torch.empty(t.size(), dtype=t.dtype).copy_(t)

    t = cls.from_dense(torch.tensor([[4.0, 1.0], [1.0, 3.0]], device=device))
    b = torch.tensor([1.0, 2.0], device=device)
    for function in (
        lambda t: torch.linalg.solve(t, b).sum(),
        lambda t: torch.linalg.inv(t).sum(),
        torch.det,
        torch.logdet,
        lambda t: sum(packedtri.inv_quad_logdet(t, b)),
    ):
        ours, expected = (t.clone().requires_grad_() for _ in range(2))
        (expected_grad,) = torch.autograd.grad(function(expected), expected)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x.to(device)):
            value = function(ours)
        (grad,) = torch.autograd.grad(value, ours)
        torch.testing.assert_close(grad.packed, expected_grad.packed)


def test_both_terms_have_one_graph(device):
    t = Symmetric.eye(2, device=device).requires_grad_()
    terms = packedtri.inv_quad_logdet(t, torch.ones(2, device=device))
    terms[0].backward(retain_graph=True)
    terms[1].backward()
    assert t.grad.to_dense().tolist() == [[0.0, -1.0], [-1.0, 0.0]]
    with pytest.raises(RuntimeError, match="second time"):
        terms[1].backward()


@kinds
def test_second_derivatives_of_batched_gradients(cls, wide, device):
    """As a Jacobian with vectorize=True takes them."""
    n = 3
    packed = torch.randn(numel(n), dtype=wide, device=device)
    x = torch.randn(n, 1, dtype=wide, device=device)
    found = []
    for batched in (False, True):
        q = packed.clone().requires_grad_()
        y = torch.linalg.solve(cls(q).add_diagonal(9.0), x).flatten()
        if batched:
            eye = torch.eye(n, dtype=wide, device=device)
            options = {"create_graph": True, "is_grads_batched": True}
            (rows,) = torch.autograd.grad(y, q, eye, **options)
        else:
            one = torch.ones((), dtype=wide, device=device)
            rows = torch.stack([torch.autograd.grad(v, q, one, create_graph=True)[0] for v in y])
        weights = torch.arange(rows.numel(), device=device).cos().reshape(rows.shape)
        found += torch.autograd.grad((rows * weights).abs().square().sum(), q)
    torch.testing.assert_close(found[1], found[0])


@kinds
@pytest.mark.parametrize("diagonal", [-1.0, 0.0, 0.5])
def test_matrices_that_are_not_positive_definite(diagonal, cls, wide, device):
    """Torch's LU factorization serves all of a batch where one is not, however far behind."""
    n = 150
    a = cls(torch.randn(2, numel(n), dtype=wide, device=device))
    a.set_diagonal_(torch.full((n,), 30.0, dtype=wide, device=device))
    a[1, 140, 140] = diagonal
    b = torch.randn(2, n, 3, dtype=wide, device=device)
    assert (torch.linalg.eigvalsh(a.to_dense())[:, 0] < 0).any()
    x, (sign, logdet) = torch.linalg.solve(a, b), torch.linalg.slogdet(a)
    inverse = torch.linalg.inv(a)
    dense = a.to_dense()
    torch.testing.assert_close(dense @ x, b)
    eye = torch.eye(n, dtype=wide, device=device).expand_as(dense)
    torch.testing.assert_close(dense @ inverse.to_dense(), eye)
    expected = torch.linalg.slogdet(dense)
    torch.testing.assert_close((sign, logdet), tuple(expected))
