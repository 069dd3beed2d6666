"""Autograd and changes in place: recorded, refused, or unseen by design."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad as fwad
from twins import MIRRORED, dense, each_type, packed_vector, project, weighted_sum


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
        return weighted_sum(dense(m))

    f(t).backward()
    f(x).backward()
    torch.testing.assert_close(t.grad.to_dense(), project(cls, x.grad))


# Of the stored elements, which a plain vector has as well. x is of the same kind as t, s a number.
CHANGES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "mul_": lambda t, x, s: t.mul_(2.0),
    "div_": lambda t, x, s: t.div_(2).mul_(x),
    "sub_": lambda t, x, s: t.sub_(1).sub_(x, alpha=3),
    "lerp_": lambda t, x, s: t.lerp_(x, 0.25),
    "clamp_": lambda t, x, s: t.clamp_(-0.5, 0.5),
    "addcmul_": lambda t, x, s: t.addcmul_(x, x, value=2),
    "sqrt_": lambda t, x, s: t.abs_().sqrt_(),
    "fill_": lambda t, x, s: t.fill_(2).add_(x),
    "copy_": lambda t, x, s: t.mul_(s).copy_(x),
    "mul_ by a scalar": lambda t, x, s: t.mul_(s).div_(s + 2),
    "add_ a scalar": lambda t, x, s: t.add_(s, alpha=2),
    "fill_ with a scalar": lambda t, x, s: t.fill_(s).mul_(x),
    "lerp_ by a scalar": lambda t, x, s: t.lerp_(x, s),
    "operands by keyword": lambda t, x, s: (
        t.mul_(other=x).add_(other=x, alpha=2).sub_(other=x).div_(other=x).lerp_(end=x, weight=s)
    ),
    "factors by keyword": lambda t, x, s: t.addcmul_(tensor1=x, tensor2=x).addcdiv_(
        tensor1=x, tensor2=x * x
    ),
    "bounds by keyword": lambda t, x, s: t.clamp_(min=x, max=x * 2).clamp_max_(max=x * 1.5),
    "bounds of functions by keyword": lambda t, x, s: torch.clip_(
        torch.clamp_(t, min=x), max=x * 2
    ).clamp_min_(min=x * 1.5),
}
each_change = pytest.mark.parametrize("name", CHANGES)


def numbers(device: str) -> list[Tensor]:
    """Stored elements to change and to give, and a scalar."""
    return [torch.randn(s, dtype=torch.float64, device=device) for s in ((2, 6), (2, 6), ())]


@each_type
@each_change
def test_changes_of_stored_elements_in_forward_mode(cls, name, device):
    values, tangents = numbers(device), numbers(device)
    with fwad.dual_level():
        t, x, s = map(fwad.make_dual, values, tangents)
        CHANGES[name](t := t.clone(), x, s)
        expected = fwad.unpack_dual(t)
        t, x = (fwad.make_dual(cls(values[i].clone()), cls(tangents[i])) for i in range(2))
        assert CHANGES[name](t, x, s) is t
        found = fwad.unpack_dual(t)
        torch.testing.assert_close(found.primal.packed, expected.primal)
        torch.testing.assert_close(found.tangent.packed, expected.tangent)


@each_type
def test_changes_of_views_in_forward_mode(cls, device):
    values, tangents = (cls.randn(2, 3, dtype=torch.float64, device=device) for _ in range(2))
    with fwad.dual_level():
        t = fwad.make_dual(values.clone(), tangents.clone())
        x = fwad.make_dual(values.to_dense(), tangents.to_dense())
        for m in (t, x):
            m.mT.mul_(3)
            m[0].div_(2)
        ours, theirs = fwad.unpack_dual(t), fwad.unpack_dual(x)
        torch.testing.assert_close(ours.primal.to_dense(), theirs.primal)
        torch.testing.assert_close(ours.tangent.to_dense(), theirs.tangent)


@each_type
@each_change
def test_scalars_that_require_grad_change_stored_elements(cls, name, device):
    ours = [v.requires_grad_() for v in numbers(device)]
    twins = [v.detach().clone().requires_grad_() for v in ours]

    def change(t: Tensor, x: Tensor, s: Tensor) -> Tensor:
        changed = (CHANGES[name](start * 1, x, s) for start in (t, t.detach()))
        return sum(weighted_sum(y.packed if isinstance(y, cls) else y) for y in changed)

    change(cls(ours[0]), cls(ours[1]), ours[2]).backward()
    change(*twins).backward()
    for v, twin in zip(ours, twins, strict=True):
        assert (v.grad is None) == (twin.grad is None)
        torch.testing.assert_close(v.grad, twin.grad)


@pytest.mark.parametrize("cls", MIRRORED)
def test_a_number_that_is_copied_is_differentiated(cls, device):
    """Of a symmetric matrix every element may have it."""
    start, x, number = (v.requires_grad_() for v in numbers(device))
    t = (cls(start) * 1).copy_(number).sub_(cls(x))
    weighted_sum(t.to_dense()).backward()
    twin = number.detach().requires_grad_()
    weighted_sum(twin.expand(t.shape) - cls(x.detach()).to_dense()).backward()
    torch.testing.assert_close(number.grad, twin.grad)
    assert not start.grad.any()


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@each_type
@each_change
def test_changes_of_stored_elements_in_torch_func(cls, name, device):
    values, tangents = numbers(device), numbers(device)
    func, close = torch.func, torch.testing.assert_close

    def change(kind: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
        def f(t: Tensor, x: Tensor, s: Tensor) -> Tensor:
            t = CHANGES[name](kind(t * 1), kind(x), s)
            return t if type(t) is Tensor else t.packed

        return f

    ours, twin = change(cls), change(lambda v: v)
    for f in (
        lambda f: func.grad(lambda *v: weighted_sum(f(*v)), argnums=(0, 1, 2))(*values),
        lambda f: func.jvp(f, tuple(values), tuple(tangents)),
        lambda f: func.vmap(f, in_dims=(0, 0, None))(*values),
        lambda f: func.vmap(func.grad(lambda *v: weighted_sum(f(*v))), (0, 0, None))(*values),
    ):
        close(f(ours), f(twin))


@each_type
def test_changes_of_views_and_elements_in_torch_func(cls, device):
    p = packed_vector(3, batch=(2,), device=device).detach()

    def f(p: Tensor, cls: type = cls) -> Tensor:
        t = cls(p) * 1
        t.mT.mul_(3)
        t[0].add_(t[1])
        t[0, 0, 0] = p[0, 1]
        t[1] = cls(p[0])
        t.set_diagonal_(p[:, :3].sin())
        return weighted_sum(t.to_dense().square())

    def assign(p: Tensor) -> Tensor:
        t = cls(p) * 1
        t[1, 1] = p[0]
        t[0, 0] = 3.0
        return t.to_dense()

    torch.testing.assert_close(torch.vmap(assign)(p), torch.stack([assign(v) for v in p]))
    q = p.clone().requires_grad_()
    f(q).backward()
    torch.testing.assert_close(torch.func.grad(f)(p), q.grad)
    torch.testing.assert_close(torch.func.jvp(f, (p,), (p,))[1], (q.grad * p).sum())


@each_type
def test_a_leaf_refuses_in_place_changes(cls):
    t = cls.randn(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        t.mul_(2)
    with torch.no_grad():
        t.mul_(2)


class Saves(torch.autograd.Function):
    """The matrix itself is saved, not the elements."""

    @staticmethod
    def forward(ctx, t: Tensor, x: Tensor) -> Tensor:
        ctx.save_for_backward(t)
        return x.clone()

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[None, Tensor]:
        return None, grad * ctx.saved_tensors[0].to_dense()


@each_type
@each_change
def test_unrecorded_changes_are_counted(cls, name, device):
    t = cls.randn(2, 3, device=device)
    x, s = t.clone(), torch.tensor(0.5, device=device)
    y = Saves.apply(t, torch.randn(2, 3, 3, device=device, requires_grad=True))
    z = t @ torch.randn(3, 3, device=device, requires_grad=True)
    view, elements, before = t.mT, t.packed, t._version
    CHANGES[name](t, x, s)
    assert t._version == view._version > before
    assert elements._version > before
    for result in (y, z):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()


@each_type
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=["real", "complex"])
def test_saved_elements_are_cloned_before_changes_that_torch_allows(cls, dtype, device):
    """What allow_mutation_on_saved_tensors clones are the elements, by all ways to change them."""
    for change in (
        lambda t: t.mul_(2),
        lambda t: t.zero_(),
        lambda t: t.mT.copy_(2 * t.mT),
        lambda t: t.conj().mul_(3),
        lambda t: t.detach().mul_(2).mul_(2),
        lambda t: t[:1].fill_(3),
        lambda t: t.__setitem__((0, 0, 0), 9.0),
        lambda t: t.__setitem__(0, t[1].clone()),
        lambda t: torch._foreach_mul_([t, torch.ones(2)], 2.0),
        lambda t: torch._foreach_add_([t.mH], [t.mH]),
        lambda t: torch.mul(t, t, out=t) if dtype == torch.float64 else t.neg_(),
        lambda t: t.packed.mul_(2),
    ):
        t = cls.randn(2, 3, dtype=dtype, device=device, requires_grad=True)
        (expected,) = torch.autograd.grad(weighted_sum(dense(t @ t)), t)
        with torch.autograd.graph.allow_mutation_on_saved_tensors():
            m = t * 1
            out = weighted_sum(dense(m @ m))
            with torch.no_grad():
                change(m)
            (grad,) = torch.autograd.grad(out, t)
        torch.testing.assert_close(grad.to_dense(), expected.to_dense())


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
            dense(used).sum().real.backward()
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
    if cls not in MIRRORED:
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


@each_type
def test_the_packed_vector_of_a_constant(cls):
    """Nothing requires a gradient yet, so autograd sees no view whose gradient it could lose."""
    for change in (
        lambda base, value: base.add_(value),
        lambda base, value: base[0].add_(value[0]),
    ):
        base, value = cls.zeros(2, 3), cls.randn(2, 3).requires_grad_()
        packed = base.packed
        with pytest.raises(RuntimeError, match="shares its elements"):
            change(base, value)
        assert not base.requires_grad and torch.equal(packed, torch.zeros(2, 6))
        with torch.no_grad():
            base.add_(value)
        del packed
        base.add_(value)
        torch.testing.assert_close(base.packed, 2 * value.packed)
        assert base.requires_grad
    base = cls.zeros(2, 3)
    base.packed.add_(value.packed)
    base.sum()
    packed = base.packed
    packed.add_(value.packed)
    with pytest.raises(RuntimeError, match="was changed in place"):
        base.sum()
    with pytest.raises(RuntimeError, match="was changed in place"):
        base[0].sum()


@each_type
def test_a_type_and_the_vector_that_it_was_made_from(cls):
    vector, value = torch.zeros(6), cls.randn(3).requires_grad_()
    t = cls(vector)
    with pytest.raises(RuntimeError, match="shares its elements with Tensor"):
        t.add_(value)
    vector.add_(value.packed)
    for read in (lambda: t @ torch.ones(3), lambda: t + t, lambda: t.to_dense()):
        with pytest.raises(RuntimeError, match="was changed in place"):
            read()
    # Nobody else has this one.
    t = cls(torch.zeros(6))
    t.add_(value)
    assert t.requires_grad


class KeepsTheMatrix(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t, x):
        ctx.save_for_backward(t)
        return t.to_dense() @ x

    @staticmethod
    def backward(ctx, grad):
        return None, ctx.saved_tensors[0].mT.to_dense() @ grad


@each_type
def test_changes_of_lists_are_seen_by_who_saved_a_matrix(cls, device):
    for change in (
        lambda t: torch._foreach_mul_([t], 2.0),
        lambda t: torch._foreach_add_([t], [t.clone()]),
        lambda t: t.mul_(2),
    ):
        t, x = cls.randn(3, device=device), torch.ones(3, device=device, requires_grad=True)
        y = KeepsTheMatrix.apply(t, x).sum()
        change(t)
        with pytest.raises(RuntimeError, match="modified by an inplace"):
            y.backward()


@each_type
def test_lists_may_name_the_same_elements_twice(cls, device):
    """One change follows the other, where autograd records too. Dense torch misses one then."""
    for change, expected in (
        (lambda t: torch._foreach_mul_([t, t], 2.0), lambda t: t * 4),
        (lambda t: torch._foreach_mul_([t, t[None][0]], 2.0), lambda t: t * 4),
        (lambda t: torch._foreach_add_([t, t], [t, t], alpha=2), lambda t: t * 9),
        (
            lambda t: torch._foreach_addcmul_([t, t], [t, t * 3], [t * 2, t * 1], [1.0, 2.0]),
            lambda t: t + 2 * t * t + 2 * 3 * t * t,
        ),
    ):
        leaf = cls.randn(3, device=device, requires_grad=True)
        twin = leaf.detach().to_dense().requires_grad_()
        ours, theirs = leaf * 1, expected(twin)
        change(ours)
        torch.testing.assert_close(ours.to_dense(), theirs)
        for t in (ours, theirs):
            (t * t).sum().backward()
        torch.testing.assert_close(leaf.grad.to_dense(), project(cls, twin.grad))
    t = cls.eye(3, device=device, requires_grad=True) * 1
    with pytest.raises(RuntimeError, match="same number of tensors"):
        torch._foreach_mul_([t, t], [t.clone()])
    assert torch.equal(t.detach().to_dense(), torch.eye(3, device=device))


@each_type
def test_what_would_miss_a_change_of_the_source_raises(cls, device):
    for source, by in ((False, True), (True, True)):
        v = torch.randn(3, device=device, requires_grad=source) * 1
        t = cls(v)
        v.mul_(torch.full((3,), 2.0, device=device, requires_grad=by))
        for read in (
            lambda t: t.packed,
            lambda t: t.to_dense(),
            lambda t: torch._foreach_add([t], [t]),
            lambda t: torch._foreach_norm([t]),
            lambda t: torch._foreach_mul_([t], 2.0),
        ):
            with pytest.raises(RuntimeError, match="was changed in place later"):
                read(t)
            with torch.no_grad():
                read(cls(v.detach().clone()))
