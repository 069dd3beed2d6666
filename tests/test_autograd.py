"""Autograd through the types: conventions, both directions of construction, orders and modes."""

from __future__ import annotations

import copy
import io
import itertools

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad as fwad
from torch.autograd import gradcheck, gradgradcheck

from packedtri import LowerTriangular, PackedTensor, Symmetric, UpperTriangular, layout
from packedtri.testing import densify

TYPES = (LowerTriangular, UpperTriangular, Symmetric)
TRIANGULAR = TYPES[:2]
each_type = pytest.mark.parametrize("cls", TYPES)
WIDE = (torch.float64, torch.complex128)
wide = pytest.mark.parametrize("wide", WIDE)


def project(cls: type, x: Tensor) -> Tensor:
    if cls is Symmetric:
        return (x + x.mT) / 2
    return x.tril() if cls is LowerTriangular else x.triu()


def packed_vector(n: int, dtype=torch.float64, batch=(), device="cpu") -> Tensor:
    return torch.randn(*batch, layout.numel(n), dtype=dtype, device=device, requires_grad=True)


def weighted_sum(x: Tensor) -> Tensor:
    weights = torch.arange(1.0, x.numel() + 1, dtype=torch.float64, device=x.device)
    return (x * weights.cos().reshape(x.shape)).sum().real


@wide
@each_type
def test_gradient_is_a_type_and_the_frobenius_projection(cls, wide, device):
    t = cls.randn(2, 4, dtype=wide, device=device, requires_grad=True)
    x = t.detach().to_dense().requires_grad_()
    for value in (t.to_dense(), x):
        (weighted_sum(value) + weighted_sum(value.mT @ value)).backward()
    assert type(t.grad) is cls
    torch.testing.assert_close(t.grad.to_dense(), project(cls, x.grad))
    t.to_dense().real.sum().backward()
    assert type(t.grad) is cls


@wide
@each_type
def test_gradient_of_a_packed_vector(cls, wide, device):
    """In packed coordinates each stored element moves all the elements that it stands for."""
    p = packed_vector(4, wide, (2,), device)
    q = p.detach().clone().requires_grad_()
    t = cls(p)
    assert not t.is_leaf and t.requires_grad
    weighted_sum(t.to_dense()).backward()
    weighted_sum(densify(q, 4, cls.kind)).backward()
    assert type(p.grad) is Tensor
    torch.testing.assert_close(p.grad, q.grad)


@each_type
def test_packed_is_differentiable(cls, device):
    t = cls.randn(4, dtype=torch.float64, device=device, requires_grad=True)
    weights = torch.randn(10, dtype=torch.float64, device=device)
    (t.packed * weights).sum().backward()
    expected = weights.clone()
    if cls is Symmetric:
        diagonal = torch.tensor([0, 2, 5, 9], device=device)
        expected = weights / 2
        expected[diagonal] = weights[diagonal]
    torch.testing.assert_close(t.grad.packed, expected)


@each_type
def test_wrapping_and_unwrapping_is_the_identity_for_gradients(cls, device):
    p = packed_vector(4, device=device)
    weights = torch.randn(10, dtype=torch.float64, device=device)
    (cls(p).packed * weights).sum().backward()
    torch.testing.assert_close(p.grad, weights)


@wide
@each_type
def test_gradient_of_from_dense(cls, wide, device):
    x = torch.randn(3, 3, dtype=wide, device=device, requires_grad=True)
    f = lambda x: cls.from_dense(x).to_dense()  # noqa: E731
    assert gradcheck(f, (x,), check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(f, (x,))


PAIRS = list(itertools.product((*TYPES, Tensor), repeat=2))[:-1]


@wide
@pytest.mark.parametrize("types", PAIRS, ids=["-".join(t.__name__ for t in p) for p in PAIRS])
def test_products(types, wide, device):
    """Both orders of derivatives and forward mode, over packed vectors."""
    n = 3
    inputs = [
        torch.randn(n, n, dtype=wide, device=device, requires_grad=True)
        if cls is Tensor
        else packed_vector(n, wide, (), device)
        for cls in types
    ]

    def f(a: Tensor, b: Tensor) -> Tensor:
        a, b = (x if cls is Tensor else cls(x) for x, cls in zip((a, b), types, strict=True))
        c = a @ b
        return c.packed if isinstance(c, PackedTensor) else c

    assert gradcheck(f, inputs, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(f, inputs)


@each_type
def test_gradients_of_leaf_types_through_products(cls, device):
    a, b = (
        cls.randn(2, 4, dtype=torch.float64, device=device, requires_grad=True) for _ in range(2)
    )
    x = torch.randn(4, 3, dtype=torch.float64, device=device, requires_grad=True)
    twins = [t.detach().to_dense().requires_grad_() for t in (a, b)]
    y = x.detach().requires_grad_()

    def f(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
        c = a @ b @ a.mT
        c = c.to_dense() if isinstance(c, PackedTensor) else c
        return weighted_sum(c @ x) + weighted_sum((a @ x).square())

    f(a, b, x).backward()
    f(*twins, y).backward()
    for t, d in zip((a, b), twins, strict=True):
        assert type(t.grad) is cls
        torch.testing.assert_close(t.grad.to_dense(), project(cls, d.grad))
    torch.testing.assert_close(x.grad, y.grad)


@each_type
def test_second_derivatives_over_leaf_types(cls, device):
    t = cls.randn(3, dtype=torch.float64, device=device, requires_grad=True)
    x = t.detach().to_dense().requires_grad_()

    def second(t: Tensor) -> Tensor:
        y = t @ t
        y = y.to_dense() if isinstance(y, PackedTensor) else y
        (g,) = torch.autograd.grad(weighted_sum(y.square()), t, create_graph=True)
        g = g.to_dense() if isinstance(g, PackedTensor) else project(cls, g)
        return torch.autograd.grad(weighted_sum(g), t)[0]

    ours, theirs = second(t), second(x)
    assert type(ours) is cls
    torch.testing.assert_close(ours.to_dense(), project(cls, theirs))


@each_type
def test_forward_mode_over_types(cls, device):
    t, tangent = (cls.randn(3, dtype=torch.float64, device=device) for _ in range(2))
    x = torch.randn(3, 3, dtype=torch.float64, device=device)
    f = lambda t: t @ t.mT @ x  # noqa: E731
    with fwad.dual_level():
        out = fwad.unpack_dual(f(fwad.make_dual(t, tangent))).tangent
        typed = fwad.unpack_dual(fwad.make_dual(t, tangent) * 2)
        assert type(typed.tangent) is cls
        torch.testing.assert_close(typed.tangent.to_dense(), 2 * tangent.to_dense())
    expected = torch.func.jvp(f, (t.to_dense(),), (tangent.to_dense(),))[1]
    torch.testing.assert_close(out, expected)
    with fwad.dual_level(), pytest.raises(TypeError, match="tangent"):
        fwad.make_dual(t, x)


@each_type
def test_torch_func_over_packed_vectors(cls, device):
    p = packed_vector(3, device=device).detach()
    x = torch.randn(3, 3, dtype=torch.float64, device=device)

    def ours(p: Tensor) -> Tensor:
        t = cls(p)
        y = (t @ t) * 2 + t.mT @ x
        return weighted_sum((t.clone().detach() + t).to_dense()) + weighted_sum(y.square())

    def dense(p: Tensor) -> Tensor:
        t = densify(p, 3, cls.kind)
        return weighted_sum(t.detach() + t) + weighted_sum(((t @ t) * 2 + t.mT @ x).square())

    close = torch.testing.assert_close
    for transform in (torch.func.grad, torch.func.hessian, torch.func.jacfwd, torch.func.jacrev):
        close(transform(ours)(p), transform(dense)(p))
    many = torch.stack([p, 2 * p])
    close(torch.vmap(ours)(many), torch.vmap(dense)(many))
    close(torch.vmap(torch.func.grad(ours))(many), torch.vmap(torch.func.grad(dense))(many))
    close(torch.func.jvp(ours, (p,), (p + 1,))[1], torch.func.jvp(dense, (p,), (p + 1,))[1])


@pytest.mark.parametrize("cls", TRIANGULAR)
def test_vmap_over_vectors_with_a_type_closed_over(cls, device):
    t = cls.randn(4, dtype=torch.float64, device=device, requires_grad=True)
    x = torch.randn(5, 4, dtype=torch.float64, device=device)
    dense = t.detach().to_dense()
    y = torch.vmap(lambda v: t @ v)(x)
    torch.testing.assert_close(y, x @ dense.mT)
    y.sum().backward()
    torch.testing.assert_close(t.grad.to_dense(), project(cls, x.sum(0).expand(4, 4)))
    p = t.detach().packed.requires_grad_()
    inner = torch.vmap(torch.func.grad(lambda v: (cls(p) @ v).square().sum()))(x)
    torch.testing.assert_close(inner, 2 * x @ dense.mT @ dense)
    (grad,) = torch.autograd.grad(inner.sum(), p)
    q = p.detach().requires_grad_()
    twin = densify(q, 4, cls.kind)
    torch.testing.assert_close(grad, torch.autograd.grad((2 * x @ twin.mT @ twin).sum(), q)[0])


@each_type
def test_in_place_changes_are_differentiated(cls, device):
    t = cls.randn(2, 3, dtype=torch.float64, device=device, requires_grad=True)
    x = t.detach().to_dense().requires_grad_()

    def f(t: Tensor) -> Tensor:
        m = t.clone()
        u = m.mT
        u.mul_(3)
        m.add_(t).neg_()
        m.mul_(m[:1].clone()).add_(m[0] / 2)
        return weighted_sum(m.to_dense() if isinstance(m, PackedTensor) else m)

    f(t).backward()
    f(x).backward()
    torch.testing.assert_close(t.grad.to_dense(), project(cls, x.grad))


@each_type
def test_a_leaf_refuses_in_place_changes(cls):
    t = cls.randn(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        t.mul_(2)
    with torch.no_grad():
        t.mul_(2)


def test_conj_in_place_is_differentiated(device):
    t = LowerTriangular.randn(3, dtype=torch.complex128, device=device, requires_grad=True)
    x = t.detach().to_dense().requires_grad_()
    for value in (t, x):
        m = value.clone()
        m.conj().mul_(2j)
        dense = m.to_dense() if isinstance(m, PackedTensor) else m
        weighted_sum(dense).backward()
    torch.testing.assert_close(t.grad.to_dense(), x.grad.tril())


@each_type
def test_gradients_that_a_user_passes_are_projected(cls, device):
    t = cls.randn(3, dtype=torch.float64, device=device, requires_grad=True)
    g = torch.randn(3, 3, dtype=torch.float64, device=device)
    for output in (t.clone(), t.mT.mT, t):
        (grad,) = torch.autograd.grad(output, t, g)
        assert type(grad) is cls
        torch.testing.assert_close(grad.to_dense(), project(cls, g))
    t.mT.backward(g)
    torch.testing.assert_close(t.grad.to_dense(), project(cls, g.mT))
    one = cls.randn(1, requires_grad=True)
    one.backward()
    assert type(one.grad) is cls and one.grad.item() == 1
    with pytest.raises(ValueError, match="gradient"):
        torch.autograd.grad(t.clone(), t, torch.ones(2, 2, dtype=torch.float64, device=device))


@each_type
def test_flags_of_the_packed_vector_and_of_the_type_are_apart(cls, device):
    p = packed_vector(3, device=device).detach()
    t = cls(p)
    p.requires_grad_()
    assert not t.requires_grad and not t.packed.requires_grad
    t.packed.requires_grad_()
    t.detach().packed.requires_grad_()
    assert not t.requires_grad and not t.packed.requires_grad and not (t @ t).requires_grad


@each_type
def test_no_grad_detach_and_hooks(cls, device):
    p = packed_vector(3, device=device)
    with torch.no_grad():
        t = cls(p)
    assert not t.requires_grad and not t.packed.requires_grad
    assert not cls(p).detach().packed.requires_grad
    seen = []
    t = cls.randn(3, dtype=torch.float64, device=device, requires_grad=True)
    t.register_hook(lambda g: seen.append(type(g)))
    t.register_post_accumulate_grad_hook(lambda t: seen.append(type(t.grad)))
    u = t * 2
    u.retain_grad()
    weighted_sum(u.to_dense()).backward()
    assert seen == [cls, cls] and type(u.grad) is cls
    with torch.autograd.detect_anomaly(check_nan=True):
        weighted_sum((t @ t).to_dense()).backward()


def test_checkpointing_and_saved_tensor_hooks(device):
    a = LowerTriangular.randn(4, dtype=torch.float64, device=device, requires_grad=True)
    f = lambda a: (a @ a @ a).to_dense().square().sum()  # noqa: E731
    (expected,) = torch.autograd.grad(f(a), a)
    out = torch.utils.checkpoint.checkpoint(f, a, use_reentrant=False)
    torch.testing.assert_close(torch.autograd.grad(out, a)[0].packed, expected.packed)
    with torch.autograd.graph.save_on_cpu():
        out = f(a)
    torch.testing.assert_close(torch.autograd.grad(out, a)[0].packed, expected.packed)


@each_type
def test_gradients_that_users_set_have_the_type(cls, device):
    t = cls.randn(3, dtype=torch.float64, device=device, requires_grad=True)
    g = torch.randn(3, 3, dtype=torch.float64, device=device)
    for wrong in (g, UpperTriangular.eye(3) if cls is LowerTriangular else LowerTriangular.eye(3)):
        with pytest.raises(TypeError, match=r"\[grad\].*from_dense"):
            t.grad = wrong
    t.grad = cls.from_dense(g)
    t.grad = None
    handle = t.register_hook(lambda grad: g)
    (t * 2).to_dense().sum().backward()
    assert type(t.grad) is cls
    torch.testing.assert_close(t.grad.to_dense(), project(cls, g))
    handle.remove()


LAZY_USES = {
    "mH": lambda w: w @ w.mH,
    "conj": lambda w: w.conj() @ w,
    "conj of the stored elements": lambda w: type(w)(w.packed.conj()) @ w * 2,
    "conj in place": lambda w: conj_in_place(w) @ w.mH,
    "neg of the conj": lambda w: w.conj() * w - (-w.conj()),
}


def conj_in_place(w: Tensor) -> Tensor:
    m = w.clone()
    m.conj().mul_(2j).add_(w)
    return m


@pytest.mark.parametrize("use", LAZY_USES)
@each_type
def test_lazy_conjugates_accumulate_and_train(cls, use, device):
    """A conjugate is lazy, and the sums that the engine and the optimizers form must read it."""
    f = LAZY_USES[use]
    for options in ({"foreach": False}, {"foreach": True}):
        t = cls.randn(3, dtype=torch.complex128, device=device, requires_grad=True)
        x = t.detach().to_dense().requires_grad_()
        x.register_hook(lambda g: project(cls, g))
        twin = f if use != "conj of the stored elements" else LAZY_USES["conj"]
        factor = 2 if use == "conj of the stored elements" else 1
        optimizers = [torch.optim.SGD([w], lr=0.1, momentum=0.9, **options) for w in (t, x)]
        for _ in range(2):
            for _ in range(2):
                for y in (f(t), twin(x) * factor):
                    weighted_sum((dense_of(y) * (1 + 2j)).mT).backward()
            torch.testing.assert_close(t.grad.to_dense(), x.grad)
            for optimizer in optimizers:
                optimizer.step()
            torch.testing.assert_close(t.detach().to_dense(), x.detach())


@each_type
def test_derivatives_through_lazy_stored_elements(cls, device):
    b = packed_vector(3, torch.complex128, device=device)
    c = torch.randn(6, dtype=torch.complex128, device=device)

    def f(b: Tensor) -> Tensor:
        t = cls(b)
        return (t.packed.conj() * c + t.packed * c * c + cls(b.conj()).packed).abs()

    assert gradcheck(f, (b,)) and gradgradcheck(f, (b,))


def test_in_place_on_lazy_views(device):
    x = torch.randn(6, dtype=torch.complex128, device=device)
    for lazy, op in itertools.product(
        (torch.conj, torch._neg_view),
        (
            lambda t, u: t.mul_(2j),
            lambda t, u: t.add_(u),
            lambda t, u: u.sub_(t),
            lambda t, u: torch._foreach_mul_([t], 2j),
            lambda t, u: torch._foreach_addcmul_([t], [t], [u]),
            lambda t, u: torch._foreach_add_([u], [t]),
        ),
    ):
        source = x.clone()
        t, u = LowerTriangular(lazy(source)), LowerTriangular(source * 3)
        # Torch's own list operations refuse to write lazy tensors.
        p, q = lazy(source).clone(), source * 3
        op(t, u)
        op(p, q)
        for ours, expected in ((t.packed, p), (u.packed, q), (lazy(source), p)):
            torch.testing.assert_close(ours.clone(), expected)


@each_type
def test_accumulated_gradients_share_no_elements(cls, device):
    a, b = (cls.randn(3, dtype=torch.float64, device=device, requires_grad=True) for _ in range(2))
    given = torch.ones(6, dtype=torch.float64, device=device)
    once = None
    for _ in range(3):
        (a + b).packed.backward(given)
        once = a.grad.packed.clone() if once is None else once
    assert (given == 1).all()
    torch.testing.assert_close(a.grad.packed, 3 * once)
    torch.testing.assert_close(b.grad.packed, 3 * once)
    a.grad = None
    for _ in range(2):
        a.packed.sum().backward()
    torch.testing.assert_close(a.grad.packed, 2 * once)


REFUSED = "custom Function|changed in place|shares the elements"


@each_type
def test_in_place_through_shared_storage_raises_or_is_right(cls, device):
    """A change through one of the type and its packed tensor must not be lost to the other."""

    def changes(w: Tensor, p: Tensor):
        q, m, z = p * 1, w * 2, cls(p * 1 + 0j)
        shared, transposed = cls(q), cls(q).mT
        yield "packed of a result", lambda: m.packed.mul_(3), m
        yield "part of packed", lambda: m.packed[0].mul_(3), m
        yield "packed of a leaf", lambda: w.packed.mul_(3), w
        yield "type of a tensor", lambda: shared.mul_(3), q
        yield "transpose of a type of a tensor", lambda: transposed.mul_(3), q
        yield "type of a leaf", lambda: cls(p).mul_(3), p
        yield "real part", lambda: z.real.mul_(3), z
        yield "the same again", lambda: (+m).mul_(3), m
        yield "tensor of a type", lambda: q.mul_(3), shared
        yield "tensor of a transposed type", lambda: q.mul_(3), transposed
        yield "tensor added to another type", lambda: q.mul_(3), lambda: (w * 1).add_(shared)
        taken = m.packed
        yield "type of a packed tensor", lambda: m.mul_(3), taken

    size = len(list(changes(*new_pair(cls, device))))
    for i in range(size):
        w, p = new_pair(cls, device)
        name, change, user = list(changes(w, p))[i]

        def change_and_use() -> None:
            change()  # noqa: B023
            used = user if isinstance(user, Tensor) else user()  # noqa: B023
            dense_of(used).sum().real.backward()
            pytest.fail(name)  # noqa: B023

        with pytest.raises(RuntimeError, match=REFUSED):
            change_and_use()


def new_pair(cls: type, device: str) -> tuple[Tensor, Tensor]:
    return (
        cls.randn(3, dtype=torch.float64, device=device, requires_grad=True),
        packed_vector(3, device=device),
    )


@each_type
def test_shared_storage_may_change_unrecorded(cls, device):
    w, p = new_pair(cls, device)
    q = p * 1
    t = cls(q)
    with torch.no_grad():
        for x in (w.packed, cls(p), t, t.mT, t.packed, q):
            x.mul_(3)
    torch.testing.assert_close(t.detach().packed, p.detach() * 27)
    (w.packed + cls(p).packed + t.packed).sum().backward()
    assert (p.grad == 2).all()
    y = w @ w
    with torch.no_grad():
        w.packed.mul_(3)
    if cls is not Symmetric:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.to_dense().sum().backward()
    (w * 2).mul_(3).add_(w).packed.sum().backward()
    copies = [torch.load(save(t)), copy.deepcopy(t.detach())]
    assert all(torch.equal(c.detach().packed, t.detach().packed) for c in copies)


def save(t: Tensor) -> io.BytesIO:
    buffer = io.BytesIO()
    torch.save(t, buffer)
    buffer.seek(0)
    return buffer


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
        torch.testing.assert_close(*(dense_of(y.detach()) for y in (ours, expected)))


def dense_of(t: Tensor) -> Tensor:
    return t.to_dense() if isinstance(t, PackedTensor) else t


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
