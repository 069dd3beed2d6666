"""Products that are nobody's business: the op that is tried first, and who keeps it from that."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._vmap_internals import _vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from packedtri import LowerTriangular, Symmetric
from packedtri._autograd import NotBareError
from packedtri.layout import DENSE, HERMITIAN, LOWER, SYMMETRIC, UPPER, numel
from packedtri.ops import matmul
from packedtri.ops.mm import bare_mm, bare_mm_out, how, quick_mm

KINDS = (LOWER, UPPER, SYMMETRIC, HERMITIAN, DENSE)
mm = torch.ops.packedtri.mm.default


def elements(kind, n, device, dtype=torch.float32, batch=()):
    shape = (n, n) if kind == DENSE else (numel(n),)
    return torch.randn((*batch, *shape), device=device, dtype=dtype)


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
def test_it_computes_what_mm_computes(dtype, batch, device):
    n = 5
    for a_kind, b_kind, c_kind in itertools.product(KINDS, KINDS, (LOWER, DENSE)):
        a, b = elements(a_kind, n, device, dtype, batch), elements(b_kind, n, device, dtype)
        before = a.clone(), b.clone()
        bare = bare_mm(a, b, how(a_kind, b_kind, c_kind))
        assert torch.equal(bare, mm(a, b, n, a_kind, b_kind, c_kind))
        # opcheck would say this, but by modes, which the op refuses.
        assert torch.equal(a, before[0]) and torch.equal(b, before[1])
        assert bare.is_contiguous() and bare.data_ptr() not in (a.data_ptr(), b.data_ptr())


def test_it_raises_where_operands_do_not_go_together(device):
    p, x = elements(LOWER, 4, device), elements(DENSE, 4, device)
    product = how(LOWER, DENSE, DENSE)
    for wrong in (x[:3], x.double(), x.to("meta"), x.to_sparse(), x.new_zeros(())):
        with pytest.raises(RuntimeError):
            bare_mm(p, wrong, product)
    with pytest.raises(NotBareError):
        bare_mm(p.to("meta"), x.to("meta"), product)
    with pytest.raises(RuntimeError, match="n\\(n\\+1\\)/2"):
        bare_mm(p[:-1], x, product)
    with pytest.raises(RuntimeError, match="one dimension"):
        bare_mm(x[0, 0], x, how(DENSE, DENSE, DENSE))
    for code in (-1, 5, 7 << 3, 1 << 10):
        with pytest.raises(RuntimeError):
            bare_mm(p, x, code)


def test_a_place_for_the_result_must_fit(device):
    p, x = elements(LOWER, 4, device), elements(DENSE, 4, device)
    product = how(LOWER, DENSE, DENSE)
    out = torch.full_like(x, torch.nan)
    bare_mm_out(p, x, product, out)
    assert torch.equal(out, bare_mm(p, x, product))
    wide = torch.empty(4, 8, device=device)
    for wrong in (x[:3], x.double(), wide[:, ::2], x.mT, x.to("meta"), x[None], torch.empty(0)):
        with pytest.raises(RuntimeError):
            bare_mm_out(p, x, product, wrong)
    batch, vector = torch.randn(2, 3, 4, device=device), torch.randn(4, device=device)
    out = torch.empty(2, 3, device=device)
    bare_mm_out(batch, vector, how(DENSE, DENSE, DENSE), out)
    assert torch.equal(out, bare_mm(batch, vector, how(DENSE, DENSE, DENSE)))
    with pytest.raises(RuntimeError, match="dense result"):
        bare_mm_out(p, p, how(LOWER, LOWER, LOWER), torch.empty_like(p))


class Counting(TorchDispatchMode):
    """Counts the ops that it sees."""

    def __init__(self):
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func.name())
        return func(*args, **(kwargs or {}))


def test_others_take_part_by_the_op_with_derivatives(device):
    """Who casts, transforms or watches ops meets ``mm``, whose rules everybody has."""
    t, s, x = LowerTriangular.randn(4), Symmetric.randn(4), torch.randn(4, 4)
    t, s, x = (y.to(device) for y in (t, s, x))
    p, product = t.packed, how(LOWER, DENSE, DENSE)
    expected = t.to_dense() @ x

    with Counting() as mode:
        torch.testing.assert_close(t @ x, expected)
        torch.testing.assert_close(torch.matmul(t, s), t.to_dense() @ s.to_dense())
        with pytest.raises(NotBareError):
            bare_mm(p, x, product)
    assert mode.seen.count("packedtri::mm") == 2 and "packedtri::_mm" not in mode.seen

    with torch.autocast(device, dtype=torch.bfloat16):
        assert (t @ x).dtype == (x @ t).dtype == (t @ t).dtype == (t @ s).dtype == torch.bfloat16
        with pytest.raises(NotBareError):
            bare_mm(p, x, product)

    def mapped(row):
        with pytest.raises(NotBareError):
            bare_mm(p, row, product)
        return t @ row

    torch.testing.assert_close(torch.vmap(mapped, in_dims=1, out_dims=1)(x), expected)

    def differentiated(y):
        with pytest.raises(NotBareError):
            bare_mm(p, y, product)
        return (t @ y).sum()

    gradient = torch.func.grad(differentiated)(x)
    torch.testing.assert_close(gradient, t.to_dense().mT @ torch.ones_like(x))

    kept = []
    torch.func.grad(lambda y: (kept.append(y), y.sum())[1])(x)
    with pytest.raises(NotBareError):
        bare_mm(p, kept[0], product)
    torch.testing.assert_close(t @ kept[0], expected)

    # As autograd does for several gradients at once.
    torch.testing.assert_close(_vmap(mapped, in_dims=1, out_dims=1)(x), expected)
    torch.vmap(lambda y: (kept.append(y), y.sum())[1])(x)
    with pytest.raises(NotBareError):
        bare_mm(p, kept[1], product)

    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = mode.from_tensor(x)
        with pytest.raises(NotBareError):
            bare_mm(p, fake, product)
        assert (t @ fake).shape == (4, 4)
    with pytest.raises(NotBareError):
        bare_mm(p, fake, product)


def test_what_is_recorded_has_derivatives():
    """Programs that torch records of a product, or of conversions, are differentiated later."""
    p, x = torch.randn(numel(3)), torch.randn(3, 3)
    for f in (
        lambda x: LowerTriangular(p) @ x,
        lambda x: LowerTriangular.from_dense(x).to_dense(),
        lambda x: torch.matmul(Symmetric.from_dense(x), x),
    ):
        recorded = torch.jit.trace(f, (x,), check_trace=False), make_fx(f, pre_dispatch=True)(x)
        for program in recorded:
            y = x.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(program(y).square().sum(), y)
            (expected,) = torch.autograd.grad(f(y).square().sum(), y)
            torch.testing.assert_close(gradient, expected)


def test_overrides_of_users_see_the_op_with_derivatives(device):
    seen = []

    class Overriding(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(getattr(func, "__name__", str(func)))
            return super().__torch_function__(func, types, args, kwargs or {})

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    t, x = LowerTriangular.randn(3).to(device), torch.randn(3, 3, device=device)
    torch.matmul(t, x.as_subclass(Overriding))
    LowerTriangular.from_dense(x.as_subclass(Overriding))
    with Mode():
        quick_mm(t.packed, x, 3, LOWER, DENSE, DENSE)
    assert any("mm" in name for name in seen) and any("pack" in name for name in seen)
    assert not [name for name in seen if name.startswith(("_mm", "_pack", "packedtri._"))]


def test_a_failure_is_told_once(monkeypatch):
    """What is not about operands that do not go together is raised, not tried again."""
    t, x, calls = LowerTriangular.randn(3), torch.randn(3, 3), []

    def fail(*args):
        calls.append(args)
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(matmul, "bare_mm", fail)
    for product in (lambda: t @ x, lambda: x @ t, lambda: t @ t, lambda: t @ t.mT):
        calls.clear()
        with pytest.raises(torch.OutOfMemoryError, match="no memory"):
            product()
        assert len(calls) == 1
