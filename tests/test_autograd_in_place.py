"""Autograd and changes in place: recorded, refused, or unseen by design."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import Tensor
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


@each_type
def test_a_leaf_refuses_in_place_changes(cls):
    t = cls.randn(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        t.mul_(2)
    with torch.no_grad():
        t.mul_(2)


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
