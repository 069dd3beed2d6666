"""Batch dimensions: indexing, iteration and joining keep the type, its views and its gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from derivatives import check_derivatives
from torch import Tensor
from twins import called, dense, each_type, project

# One for each matrix of a tensor (4, 2, 3, 3).
CHOSEN = torch.tensor([[True, False], [False, False], [True, True], [False, True]])[..., None, None]
WEIGHTS = torch.linspace(-1, 2, 8).reshape(4, 2, 1, 1)
# Functions of a tensor (4, 2, 3, 3) whose results keep the type.
KEPT: dict[str, Callable[[Tensor], Any]] = {
    "t[1]": lambda t: t[1],
    "t[-1]": lambda t: t[-1],
    "t[1, 0]": lambda t: t[1, 0],
    "t[1, ...]": lambda t: t[1, ...],
    "t[1:3]": lambda t: t[1:3],
    "t[::2, 1]": lambda t: t[::2, 1],
    "t[1, :, :]": lambda t: t[1, :, :],
    "tensor_split": lambda t: t.tensor_split((1, 3)),
    "tensor_split back": lambda t: t.tensor_split((3, 1, 9, -2)),
    "split": lambda t: t.split(3),
    "split by sizes": lambda t: torch.split(t, [1, 0, 3], -4),
    "chunk": lambda t: t.chunk(2, 1),
    "t[None, :, None]": lambda t: t[None, :, None],
    "select": lambda t: torch.select(t, -3, 1),
    "iter": lambda t: list(t),
    "unbind": lambda t: t.unbind(),
    "unbind -3": lambda t: torch.unbind(t, -3),
    "one of unbind": lambda t: t.unbind()[2],
    "nested": lambda t: [x for row in t for x in row],
    "view_as": lambda t: t.view_as(t * 2),
    "view_as 1": lambda t: t.view_as(t.detach().reshape(-1, *t.shape[-2:])),
    "stack": lambda t: torch.stack([t, t * 2]),
    "stack -3": lambda t: torch.stack([t, t * 2], dim=-3),
    "stack 1": lambda t: torch.stack([t[0], t[1]], 1),
    "cat": lambda t: torch.cat([t, t[1:]]),
    "concat 1": lambda t: torch.concat((t, t), dim=1),
    "vstack": lambda t: torch.vstack([t, t * 2]),
    "hstack": lambda t: torch.hstack((t, t * 2)),
    "roll": lambda t: t.roll(1, 0),
    "roll both": lambda t: torch.roll(t, (1, -1), (0, -3)),
    "cumsum": lambda t: t.cumsum(-4),
    "repeat_interleave": lambda t: t.repeat_interleave(2, 1),
    "where": lambda t: torch.where(CHOSEN, t, t.flip(0)),
    "where zero": lambda t: t.where(CHOSEN, 0.0),
    "zero where": lambda t: torch.where(CHOSEN, 0.0, t),
    "masked_fill": lambda t: t.masked_fill(CHOSEN, 0.0),
    "lerp": lambda t: torch.lerp(t, t.flip(0), WEIGHTS.to(t.dtype)),
}
# Functions that touch the matrices.
DENSE: dict[str, Callable[[Tensor], Any]] = {
    "t[1, 0, 2]": lambda t: t[1, 0, 2],
    "t[..., 0]": lambda t: t[..., 0],
    "t[0, 0][0]": lambda t: t[0, 0][0],
    "select": lambda t: torch.select(t, -1, 1),
    "unbind": lambda t: torch.unbind(t, 2),
    "rows": lambda t: list(t[0, 0]),
    "stack -1": lambda t: torch.stack([t, t], -1),
    "cat -1": lambda t: torch.cat([t, t], -1),
    "hstack of one batch dimension": lambda t: torch.hstack([t[0], t[1]]),
    "roll": lambda t: t.roll(1, -1),
    "roll of all": lambda t: t.roll(1),
    "roll of none": lambda t: torch.roll(t, 1, ()),
    "repeat_interleave": lambda t: t.repeat_interleave(2),
    "cumsum": lambda t: t.cumsum(-1),
    "where": lambda t: torch.where(CHOSEN.expand(4, 2, 1, 3), t, 0.0),
    "masked_fill": lambda t: t.masked_fill(torch.tensor([True, False, True]), 0.0),
    "cat with dense": lambda t: torch.cat([t, torch.ones(1, 2, 3, 3, dtype=t.dtype)]),
}


def flat(result: Any) -> list[Tensor]:
    return list(result) if isinstance(result, (list, tuple)) else [result]


def total(results: list[Tensor]) -> Tensor:
    """A function of all elements with a different weight for each."""
    elements = torch.cat([dense(r).reshape(-1) for r in results])
    return (elements * torch.arange(1.0, len(elements) + 1).sin()).sum()


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "dense"])
@each_type
def test_values_types_and_gradients(cls, kept):
    for name, f in (KEPT if kept else DENSE).items():
        t = cls.randn(4, 2, 3, requires_grad=True)
        twin = t.detach().to_dense().requires_grad_()
        ours, expected = flat(f(t)), flat(f(twin))
        for a, b in zip(ours, expected, strict=True):
            assert type(a) is (cls if kept else Tensor), name
            assert torch.equal(dense(a), b), name
        total(ours).backward()
        total(expected).backward()
        assert type(t.grad) is cls
        torch.testing.assert_close(t.grad.to_dense(), project(cls, twin.grad), msg=name)
        with torch.no_grad():
            assert all(type(a) is type(b) for a, b in zip(flat(f(t)), ours, strict=True)), name


@each_type
def test_second_derivatives_and_forward_mode(cls):
    for f in KEPT.values():
        p = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
        loss = lambda p, f=f: sum(r.to_dense().pow(3).sum() for r in flat(f(cls(p))))  # noqa: E731
        check_derivatives(loss, p)
        torch.testing.assert_close(torch.func.grad(loss)(p), torch.autograd.grad(loss(p), p)[0])


@each_type
def test_compiled(cls):
    for name, f in KEPT.items():
        t = cls.randn(4, 2, 3, requires_grad=True)
        torch._dynamo.reset()
        ours = flat(torch.compile(f, backend="aot_eager", fullgraph=True)(t))
        for a, b in zip(ours, flat(f(t)), strict=True):
            assert type(a) is cls and torch.equal(dense(a), dense(b)), name
        (grad,) = torch.autograd.grad(total(ours), t)
        (expected,) = torch.autograd.grad(total(flat(f(t))), t)
        torch.testing.assert_close(grad.packed, expected.packed, msg=name)


@each_type
def test_indexing_gives_views(cls):
    t = cls.zeros(4, 3)
    t[1].add_(cls.eye(3))
    t[2:].mul_(0).add_(2 * cls.eye(2, 3))
    assert t.packed[:, 0].tolist() == [0, 1, 2, 2]
    leaf = cls.randn(4, 3, requires_grad=True)
    ours, twin = leaf * 1, leaf.detach().to_dense().requires_grad_()
    theirs = twin * 1
    ours[1].mul_(3)
    theirs[1].mul_(3)
    ours[2:][0].zero_()
    theirs[2:][0].zero_()
    ours.view_as(theirs).mul_(2)
    theirs.view_as(theirs).mul_(2)
    assert torch.equal(ours.to_dense(), theirs)
    total([ours]).backward()
    total([theirs]).backward()
    torch.testing.assert_close(leaf.grad.to_dense(), project(cls, twin.grad))


@each_type
def test_indices_of_a_matrix_without_batch(cls):
    t = cls.randn(3)
    for index, expected in ((None, cls), (..., cls), ((), cls), (0, Tensor), (slice(None), cls)):
        assert type(t[index]) is expected
        assert torch.equal(dense(t[index]), t.to_dense()[index])


@each_type
def test_changes_through_a_view_are_noticed(cls):
    t = cls.randn(2, 3, requires_grad=True)
    y = t * 1
    z = y * y
    with torch.no_grad():
        y[0].zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        dense(z).sum().backward()


@each_type
def test_dimensions_by_the_names_of_numpy(cls):
    t = cls.randn(4, 3)
    for f in (
        lambda t: t.unsqueeze(axis=0),
        lambda t: t.select(axis=0, index=1),
        lambda t: t.unbind(axis=0)[1],
        lambda t: torch.stack([t, t], axis=1),
        lambda t: torch.cat([t, t], axis=0),
        lambda t: t[:1].squeeze(axis=0),
        lambda t: torch.chunk(t, 2, axis=0)[1],
    ):
        assert type(f(t)) is cls and torch.equal(dense(f(t)), f(t.to_dense()))
    assert torch.equal(t.unbind(axis=1)[2], t.to_dense()[:, 2])


@each_type
def test_squeeze_takes_dimensions_as_torch_does(cls):
    t = cls.randn(1, 2, 1, 3)
    for dim in ((), (0,), (-3, 0), (1, -1), 2, (4, 3, 2, 1, 0)):
        ours = t.squeeze(dim)
        assert type(ours) is cls and torch.equal(dense(ours), t.to_dense().squeeze(dim))
    assert t.squeeze().shape == (2, 3, 3)
    for cause, error in ((7, IndexError), ((0, -6), IndexError), ((0, 0), RuntimeError),
                         ((3, -2), RuntimeError), ((-1, 4), RuntimeError)):  # fmt: skip
        for x in (t, t.to_dense()):
            with pytest.raises(error):
                x.squeeze(cause)


@each_type
def test_lengths_and_indices_out_of_range(cls):
    t = cls.randn(4, 3)
    assert len(t) == 4 and len(t[0]) == 3
    with pytest.raises(IndexError):
        t[4]
    with pytest.raises(IndexError):
        torch.stack([t, t], 7)
    with pytest.raises(IndexError):
        torch.unbind(t, 3)
    with pytest.raises(RuntimeError):
        torch.stack([t, t[:2]])


@each_type
def test_matrices_that_do_not_fit_together_say_their_own_shapes(cls):
    a, b = cls.zeros(2, 3), cls.zeros(4, 3)
    with pytest.raises(RuntimeError, match=r"stack.*\(2, 3, 3\) and .*\(4, 3, 3\) do not fit"):
        torch.stack([a, b])
    with pytest.raises(RuntimeError, match=r"cat.*\(2, 3, 3\) and .*\(1, 2, 3, 3\) do not fit"):
        torch.cat([a, a.unsqueeze(0)])
    assert torch.cat([a, b]).shape == (6, 3, 3)


@each_type
def test_splits_begin_where_indices_in_any_order_say(cls):
    t = cls.randn(5, 3)
    for where in ((3, 1), (9,), (-2, 1, 4), (0, 0), torch.tensor([3, 1])):
        for ours, expected in zip(
            t.tensor_split(where), t.to_dense().tensor_split(where), strict=True
        ):
            assert type(ours) is cls and torch.equal(ours.to_dense(), expected)
            assert ours.numel() == 0 or ours._is_view()


PARTS: dict[str, Callable[[Tensor], Any]] = {
    "split": lambda t: t.split(1),
    "split by sizes": lambda t: torch.split(t, [1, 0, 4], dim=-3),
    "chunk": lambda t: t.chunk(3),
    "tensor_split": lambda t: t.tensor_split(2),
    "tensor_split at": lambda t: torch.tensor_split(t, (1, 3)),
}


@each_type
def test_parts_that_nobody_records_are_made_at_once(cls):
    t = cls.randn(5, 3)
    for name, f in PARTS.items():
        for context in (torch.no_grad(), torch.inference_mode(), torch.enable_grad()):
            with context:
                ours, expected = f(t), f(t.to_dense())
                ops = called(lambda f=f: f(t))
                slices = sum("slice" in op for op in ops)
                grad_mode, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
            assert type(ours) is type(expected)
            for a, b in zip(ours, expected, strict=True):
                assert type(a) is cls and torch.equal(a.to_dense(), b)
                assert a._is_view() or a.is_inference()
            # Where the parts begin is asked of torch, which makes slices for this one.
            alone = len(ours) if name.startswith("tensor") and not inference else 0
            # Dense torch lets autograd record changes of single ones among them.
            assert slices == (2 * alone if grad_mode else alone), name
    first = t.split(2)[0]
    first.zero_()
    assert t[:2].packed.count_nonzero() == 0 < t[2:].packed.count_nonzero()


@each_type
def test_changes_of_parts_are_recorded_where_dense_torch_can(cls):
    factor = torch.tensor(3.0, requires_grad=True)
    for f in PARTS.values():
        t = cls.randn(5, 3)
        twin = t.to_dense()
        try:
            f(twin)[0].mul_(factor)
        except RuntimeError:
            with pytest.raises(RuntimeError, match="multiple views"):
                f(t)[0].mul_(factor)
            continue
        f(t)[0].mul_(factor)
        torch.testing.assert_close(t.to_dense(), twin)
        grads = [torch.autograd.grad(dense(x).sum(), factor)[0] for x in (t, twin)]
        torch.testing.assert_close(*grads)


@each_type
def test_wrong_parts_raise_as_those_of_dense_tensors(cls):
    t = cls.randn(5, 3)
    for f in (
        lambda t: t.split([1, 2]),
        lambda t: t.split([7, -2]),
        lambda t: t.split(-1),
        lambda t: t.split(0),
        lambda t: t.split(1, 3),
        lambda t: t.split("1"),
        lambda t: t.chunk(0),
        lambda t: t.chunk(2.5),
        lambda t: t.chunk(2, -4),
        lambda t: t.chunk(),
        lambda t: t.tensor_split(0),
        lambda t: t.tensor_split((1, "2")),
        lambda t: t.tensor_split(2, 5),
        lambda t: torch.split(t, 1, dim=None),
    ):
        with pytest.raises(Exception) as theirs:  # noqa: PT011
            f(t.to_dense())
        with pytest.raises(theirs.type):
            f(t)
