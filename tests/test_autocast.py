"""Functions that autocast runs in float32, on types as on their dense twins."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from twins import TRIANGULAR, dense, each_type

from packedtri import LowerTriangular, Symmetric, dispatch
from packedtri.layout import UPPER
from packedtri.ops.autocast import FLOAT32
from packedtri.ops.dense import functions

LOWER_DTYPE = """
    addbmm addmm addmv addr baddbmm bmm chain_matmul einsum linalg_multi_dot linear matmul mm mv
    tensordot
"""
WIDEST_DTYPE = "addcdiv addcmul atan2 cat index_copy index_put stack"
HOMES = (torch, torch.linalg, Tensor)


def definite(cls: type, dtype: torch.dtype, device: str) -> Any:
    t = cls.from_dense(torch.rand(3, 3, device=device) / 4)
    return t.set_diagonal_(torch.full((3,), 0.75, device=device)).to(dtype)


def calls(name: str, upper: bool) -> list[Callable[[Any, Tensor], Any]]:
    """Ways to call a function, with a matrix and a right-hand side."""
    special = {
        "cholesky_ex": [lambda t, b: torch.linalg.cholesky_ex(t)[0]],
        "cholesky_inverse": [lambda t, b: torch.cholesky_inverse(t, upper=upper)],
        "cholesky_solve": [lambda t, b: torch.cholesky_solve(b, t, upper=upper)],
        "inv_ex": [lambda t, b: torch.linalg.inv_ex(t)[0]],
        "solve": [lambda t, b: torch.linalg.solve(t, b)],
        "triangular_solve": [lambda t, b: torch.triangular_solve(b, t, upper=upper)[0]],
        "pow": [lambda t, b: t**2, lambda t, b: torch.pow(t, 2)],
        "__pow__": [lambda t, b: t**2],
        "__rpow__": [lambda t, b: 2**t],
        "cumprod": [lambda t, b: torch.cumprod(t[None], 0)],
        "cumsum": [lambda t, b: torch.cumsum(t[None], 0)],
        "logsumexp": [lambda t, b: torch.logsumexp(t[None], 0)],
        "log_softmax": [lambda t, b: torch.log_softmax(torch.stack([t, -t]), 0)],
        "softmax": [lambda t, b: torch.nn.functional.softmax(torch.stack([t, -t]), 0)],
        "quantile": [lambda t, b: torch.quantile(torch.stack([t, -t]), 0.3, 0)],
        "nanquantile": [lambda t, b: torch.nanquantile(torch.stack([t, -t]), 0.3, 0)],
        "prod": [lambda t, b: torch.prod(t[None], 0), lambda t, b: torch.prod(t)],
        "softplus": [lambda t, b: torch.nn.functional.softplus(t)],
        "vector_norm": [lambda t, b: torch.linalg.vector_norm(t)],
        "matrix_norm": [lambda t, b: torch.linalg.matrix_norm(t)],
    }

    def plain(function: Any) -> Callable[[Any, Tensor], Any]:
        return lambda t, b: function(t)

    found = [plain(function) for function in functions(name, *HOMES)]
    return special.get(name) or found


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
@each_type
def test_functions_that_run_in_float32(cls, low, device):
    factor_only = ("cholesky_inverse", "cholesky_solve", "triangular_solve")
    for name in FLOAT32[device].split():
        if (name in factor_only) != (cls in TRIANGULAR) and name in (
            *factor_only, "cholesky", "cholesky_ex",
        ):  # fmt: skip
            continue
        for t_dtype, b_dtype in ((low, low), (torch.float32, low), (low, torch.float32)):
            t = definite(cls, t_dtype, device)
            b = torch.rand(3, 2, device=device).to(b_dtype)
            for call in calls(name, cls.kind == UPPER):
                with torch.autocast(device, dtype=low), warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)
                    ours, expected = call(t, b), call(t.to_dense(), b)
                assert ours.dtype == expected.dtype == torch.float32, name
                torch.testing.assert_close(dense(ours), expected, rtol=1e-4, atol=1e-4)
                assert call(t.float(), b.float()).dtype == torch.float32


@each_type
def test_gradients_through_float32(cls, device):
    t = definite(cls, torch.bfloat16, device).requires_grad_()
    function, result = (torch.linalg.inv, cls) if device == "cpu" else (torch.exp, Tensor)
    with torch.autocast(device, dtype=torch.bfloat16):
        out = function(t)
    assert isinstance(out, result)
    (grad,) = torch.autograd.grad(dense(out).square().sum(), t)
    assert type(grad) is cls and grad.dtype == torch.bfloat16


def test_a_residual_that_comes_out_of_a_product():
    K = Symmetric.eye(3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        r = K @ torch.ones(3, 1)
        assert r.dtype == torch.bfloat16
        assert torch.equal(torch.linalg.solve(K, r), torch.ones(3, 1))
        assert torch.equal(torch.cholesky_solve(r, LowerTriangular.eye(3)), torch.ones(3, 1))
        assert torch.linalg.inv(K.double()).dtype == torch.float64


def test_matrices_of_a_lower_dtype_are_copied_into_a_batch():
    t, index = LowerTriangular.randn(3, 4), torch.tensor([2, 0])
    source = LowerTriangular.randn(2, 4).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = t.index_copy(0, index, source)
        expected = t.to_dense().index_copy(0, index, source.to_dense())
    assert type(out) is LowerTriangular
    assert out.dtype == expected.dtype
    assert torch.equal(out.to_dense(), expected)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_table_is_complete(device):
    """All functions with rows that torch's autocast knows are in it, or cast in other ways."""
    table = FLOAT32[device].split()
    known = {*table, *(f"linalg_{name}" for name in table)}
    known |= {*LOWER_DTYPE.split(), *WIDEST_DTYPE.split()}
    key = f"Autocast{device.upper()}"
    names = {getattr(r.function, "__name__", "") for r in dispatch.rows() if r.how == "native"}
    cast = {name for name in names if any(_has_kernel(op, key) for op in _overloads(name))}
    assert cast and cast <= known


def _overloads(name: str) -> list[Any]:
    packet = getattr(torch.ops.aten, name, None)
    known = isinstance(packet, torch._ops.OpOverloadPacket)
    return [getattr(packet, overload) for overload in packet.overloads()] if known else []


def _has_kernel(op: Any, key: str) -> bool:
    return torch._C._dispatch_has_kernel(op.name()) and (
        torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key)
    )


@pytest.mark.parametrize("cls", TRIANGULAR)
def test_products_in_place_cast_nothing(cls, device):
    a, b = cls.randn(3, device=device), cls.randn(3, device=device)
    right, left = a @ b, b @ a
    with torch.autocast(torch.device(device).type, dtype=torch.bfloat16):
        assert torch.equal(a.clone().rmul_(b).packed, right.packed)
        assert torch.equal(a.clone().lmul_(b).packed, left.packed)


@each_type
def test_powers(cls):
    """An inverse is of float32; products of it are not."""
    for dtype, n in itertools.product((torch.float32, torch.bfloat16), (-3, -2, -1, 0, 1, 2)):
        t = definite(cls, dtype, "cpu")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            ours, expected = (torch.linalg.matrix_power(x, n) for x in (t, t.to_dense()))
        assert type(ours) is cls and ours.dtype == expected.dtype, (dtype, n)
