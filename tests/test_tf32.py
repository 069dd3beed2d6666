"""The setting that lets float32 products be rounded to TF32: where it is read, who follows it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import packedtri
from packedtri import LowerTriangular, Symmetric
from packedtri._library import tf32_is_set
from packedtri.layout import LOWER, SYMMETRIC, UPPER
from packedtri.ops import gram, matmul
from packedtri.ops.mm import tf32_allowed

matmul_backend = torch.backends.cuda.matmul


def set_generic(precision: str) -> None:
    """The setting for all backends, which that of products overrides unless it is "none".

    ``torch.backends.fp32_precision`` itself is frozen once torch's test helpers are loaded.
    """
    matmul_backend.fp32_precision = "none"
    torch._C._set_fp32_precision_setter("generic", "all", precision)


WAYS: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
    "function": (
        lambda: torch.set_float32_matmul_precision("high"),
        lambda: torch.set_float32_matmul_precision("highest"),
    ),
    "medium": (
        lambda: torch.set_float32_matmul_precision("medium"),
        lambda: torch.set_float32_matmul_precision("highest"),
    ),
    "flag": (
        lambda: setattr(matmul_backend, "allow_tf32", True),
        lambda: setattr(matmul_backend, "allow_tf32", False),
    ),
    "products": (
        lambda: setattr(matmul_backend, "fp32_precision", "tf32"),
        lambda: setattr(matmul_backend, "fp32_precision", "ieee"),
    ),
    "all": (lambda: set_generic("tf32"), lambda: set_generic("none")),
}


@pytest.fixture(autouse=True)
def restore() -> Iterator[None]:
    yield
    set_generic("none")
    torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_set_it_is_read(way: str) -> None:
    allow, forbid = WAYS[way]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            allow()
            assert tf32_is_set()
            forbid()
            assert not tf32_is_set()


def test_other_devices_and_types_do_not_ask() -> None:
    torch.set_float32_matmul_precision("high")
    assert not tf32_allowed(torch.ones(3))
    with torch._subclasses.FakeTensorMode():
        assert tf32_allowed(torch.ones(3, device="cuda"))
        assert tf32_allowed(torch.ones(3, device="cuda", dtype=torch.complex64))
        assert not tf32_allowed(torch.ones(3, device="cuda", dtype=torch.float64))


def test_a_change_compiles_again() -> None:
    @torch.compile(backend="eager", fullgraph=True)
    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if tf32_is_set() else x - 1

    x = torch.zeros(())
    assert f(x) == -1
    torch.set_float32_matmul_precision("high")
    assert f(x) == 1
    matmul_backend.fp32_precision = "ieee"
    assert f(x) == -1


class Recorder(TorchDispatchMode):
    """Whether each product that runs is allowed TF32."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed: list[bool] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func is torch.ops.packedtri.mm.default:
            self.allowed.append(len(args) > 6 and args[6])
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


@pytest.fixture
def on_any_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets products on the CPU ask for the setting too; their kernels take no notice."""
    for module in (matmul, gram):
        monkeypatch.setattr(module, "tf32_allowed", lambda x: tf32_is_set())


@pytest.mark.parametrize("allowed", [False, True])
def test_products_and_their_derivatives_follow(allowed: bool, on_any_device: None) -> None:
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    x = torch.randn(5, 5, requires_grad=True)
    p, q = (torch.randn(15, requires_grad=True) for _ in range(2))
    L, M, S = LowerTriangular(p), LowerTriangular(q), Symmetric(p)
    products = {
        "L@L": lambda: L @ M,
        "U@U": lambda: L.mT @ M.mT,
        "L@U": lambda: L @ M.mT,
        "gram": lambda: L @ L.mT,
        "L@dense": lambda: L @ x,
        "dense@S": lambda: x @ S,
        "S@S": lambda: S @ S,
        "syrk": lambda: packedtri.syrk(x),
        "syrk packed": lambda: packedtri.syrk(L),
        "syr2k": lambda: packedtri.syr2k(x, x),
    }
    for name, product in products.items():
        with Recorder() as forward:
            y = product()
        y = y.packed if isinstance(y, packedtri.PackedTensor) else y
        with Recorder() as backward:
            torch.autograd.grad(y.sum(), (x, p, q), allow_unused=True)
        assert forward.allowed and set(forward.allowed) == {allowed}, name
        assert backward.allowed and set(backward.allowed) == {allowed}, name


def test_solves_and_factors_do_not(on_any_device: None) -> None:
    torch.set_float32_matmul_precision("high")
    x = torch.randn(5, 5, requires_grad=True)
    p = Symmetric.from_dense(10 * torch.eye(5)).packed.requires_grad_()
    L, S = LowerTriangular(p), Symmetric(p)
    results = {
        "solve": lambda: torch.linalg.solve_triangular(L, x, upper=False),
        "factor": lambda: torch.linalg.cholesky(S).packed,
        "inverse": lambda: torch.linalg.inv(L).packed,
    }
    for name, result in results.items():
        with Recorder() as seen:
            torch.autograd.grad(result().sum(), p)
        assert seen.allowed and not any(seen.allowed), name


@pytest.mark.parametrize("kinds", [(LOWER, LOWER, LOWER), (UPPER, SYMMETRIC, LOWER)])
def test_opcheck_with_the_last_argument(kinds: tuple[int, int, int]) -> None:
    a, b = (torch.randn(2, 10, requires_grad=True) for _ in range(2))
    torch.library.opcheck(torch.ops.packedtri.mm.default, (a, b, 4, *kinds, True))


def test_the_cpu_takes_no_notice() -> None:
    a, b = (torch.randn(15) for _ in range(2))
    mm = torch.ops.packedtri.mm
    assert torch.equal(mm(a, b, 5, LOWER, LOWER, LOWER, True), mm(a, b, 5, LOWER, LOWER, LOWER))


def test_vmap_passes_it_on() -> None:
    a, b = torch.randn(3, 15), torch.randn(15)
    with Recorder() as seen:
        torch.vmap(lambda a: torch.ops.packedtri.mm(a, b, 5, LOWER, LOWER, LOWER, True))(a)
    assert seen.allowed == [True]
