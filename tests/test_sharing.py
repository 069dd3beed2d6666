"""Changes in place of elements that several tensors have: right gradients for all, or an error."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from twins import each_type, project

from packedtri import LowerTriangular, PackedTensor, Symmetric

# Of a batch of two or one; each gives as many dimensions as make the next possible.
VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "view": lambda t: t.view(1, *t.shape),
    "reshape": lambda t: t.reshape(1, *t.shape),
    "expand": lambda t: t.expand(t.shape),
    "expand_as": lambda t: t.expand_as(t),
    "broadcast_to": lambda t: t.broadcast_to(t.shape),
    "permute": lambda t: t.permute(*range(t.dim())),
    "movedim": lambda t: t.movedim(0, 0),
    "transpose": lambda t: t.transpose(0, -3),
    "transpose of two": lambda t: t[None].transpose(-t.dim() - 1, 1),
    "flatten": lambda t: t.flatten(0, t.dim() - 3),
    "unflatten": lambda t: t.unflatten(0, (1, -1)),
    "squeeze": lambda t: t[None].squeeze(0),
    "squeeze of several": lambda t: t[None, None].squeeze((0, 1)),
    "narrow": lambda t: t.narrow(0, 0, t.shape[0]),
    "unsqueeze": lambda t: t[None],
    "select": lambda t: t[None][0],
    "index tensor": lambda t: t[None][torch.tensor(0)],
    "slice": lambda t: t[0:1],
    "alias": lambda t: t.view_as(t),
    "mT": lambda t: t.mT,
    "permute of the matrices": lambda t: t.permute(*range(t.dim() - 2), -1, -2),
    "movedim of the matrices": lambda t: t.movedim(-1, -2),
    "einsum": lambda t: torch.einsum("abcij->abcji", t[None]).squeeze(0) if t.dim() == 4 else t,
    "reshape_as": lambda t: t.reshape_as(t.detach()[None]),
    "broadcast_tensors": lambda t: torch.broadcast_tensors(t, t.new_zeros(1))[0],
    "real": lambda t: t.real,
    "positive": lambda t: +t,
    "atleast_2d": torch.atleast_2d,
}
# Their results have elements of their arguments as well, but are no views to autograd.
TIES: dict[str, Callable[[PackedTensor], PackedTensor]] = {
    "again": lambda t: type(t)(t.packed),
    "again as Symmetric": lambda t: Symmetric(t.packed),
    "part again": lambda t: type(t)(t.packed[:1]),
    "view again": lambda t: type(t)(t[None].packed),
}


def run(t: Tensor, chain: list[Callable], written: int, read: int) -> tuple[Tensor, Tensor]:
    """Change one end of a chain of views in place, read one; value and derivative."""
    p = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    ends = [t * p if t.requires_grad else t]
    for view in chain:
        ends.append(view(ends[-1]))
    ends = [ends[0], ends[-1]]
    ends[written].mul_(p)
    out = ends[read] * p
    out = out.to_dense() if isinstance(out, PackedTensor) else out
    weights = torch.arange(1.0, 1 + out.numel(), dtype=torch.float64).reshape(out.shape)
    (out * (weights + weights.mT)).sum().backward()
    return out.detach(), p.grad


def each_chain(steps: dict[str, Callable], recorded: bool):
    for names in itertools.product(steps, repeat=2):
        for written, read in itertools.product((0, 1), repeat=2):
            t = LowerTriangular(torch.arange(1.0, 13.0, dtype=torch.float64).reshape(2, 6))
            case = f"{' then '.join(names)}, {'recorded' if recorded else 'constant'}"
            t = t.requires_grad_(recorded)
            yield f"{case}, written at {written}, read at {read}", t, names, written, read


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "constant"])
def test_chains_of_views_are_those_of_a_dense_twin(recorded: bool) -> None:
    wrong = []
    for case, t, names, written, read in each_chain(VIEWS, recorded):
        chain = [VIEWS[name] for name in names]
        twin = t.detach().to_dense().requires_grad_(recorded)
        found, expected = run(t, chain, written, read), run(twin, chain, written, read)
        if not all(map(torch.equal, found, expected)):
            wrong.append(case)
    assert not wrong, wrong


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "constant"])
def test_what_is_no_view_raises(recorded: bool) -> None:
    """Somewhere on the way to a gradient that would miss the change."""
    steps = {**TIES, **{name: VIEWS[name] for name in ("slice", "unsqueeze", "reshape", "mT")}}
    silent = []
    for case, t, names, written, read in each_chain(steps, recorded):
        if not set(names) & set(TIES) or written == read:
            continue
        try:
            run(t, [steps[name] for name in names], written, read)
        except RuntimeError:
            continue
        silent.append(case)
    assert not silent, silent


def test_those_with_other_elements_are_left_alone() -> None:
    """Rows of one storage, types whose neighbours are gone, and vectors that nobody has."""
    p = torch.tensor(2.0, requires_grad=True)
    rows = torch.ones(2, 6)
    first, second = LowerTriangular(rows[0]), LowerTriangular(rows[1])
    with pytest.raises(RuntimeError, match="shares its elements with Tensor"):
        first.mul_(p)
    del rows
    first.mul_(p)
    second.mul_(p)
    t = LowerTriangular.eye(3)
    again = LowerTriangular(t.packed)
    with pytest.raises(RuntimeError, match="shares its elements with LowerTriangular"):
        t.mul_(p)
    del again
    t.mul_(p)
    vector = torch.ones(6, requires_grad=True)
    of_nobody = LowerTriangular(vector * 1)
    of_nobody[0].detach()
    of_nobody.mul_(3).sum().backward()
    torch.testing.assert_close(vector.grad, torch.full((6,), 3.0))
    # What the exponential has saved is told from what it was.
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        LowerTriangular(vector.exp()).mul_(2).sum().backward()


@each_type
def test_changes_of_lists_reach_views(cls: type) -> None:
    for change in (
        lambda t: torch._foreach_mul_([t], 3.0),
        lambda t: torch._foreach_add_([t], [t * 2], alpha=2),
        lambda t: torch._foreach_lerp_([t], [t * 2], 0.5),
        lambda t: torch._foreach_addcmul_([t], [t * 1], [t * 1], value=2.0),
        lambda t: torch._foreach_neg_([t]),
        lambda t: torch._foreach_maximum_([t], [(t * 0).detach()]),
        lambda t: torch._foreach_mul_(self=[t], scalars=[2.0]),
        lambda t: torch._foreach_lerp_([t], [t * 2], weights=[t * 0]),
        lambda t: torch._foreach_addcmul_([t], [t * 1], [t * 1], [2.0]),
        lambda t: torch._foreach_zero_([t]),
    ):
        leaf = cls.randn(2, 3, dtype=torch.float64, requires_grad=True)
        twin = leaf.detach().to_dense().requires_grad_()
        for x in (leaf, twin):
            t = x * 1
            view = t[:1].mT
            change(t)
            (view.to_dense() if x is leaf else view).square().sum().backward()
        torch.testing.assert_close(leaf.grad.to_dense(), project(cls, twin.grad))


@each_type
def test_parts_of_a_batch_can_be_changed(cls: type) -> None:
    """Dense torch refuses that for what one call returns several of."""
    for parts in (
        lambda t: t.split(1),
        lambda t: t.split([1, 2]),
        lambda t: t.chunk(3),
        lambda t: t.tensor_split(2),
        lambda t: t.tensor_split([1]),
    ):
        leaf = cls.randn(3, 3, dtype=torch.float64, requires_grad=True)
        t = leaf * 1
        last = parts(t)[-1]
        last.mul_(3)
        t.sum().backward()
        expected = torch.ones(3, 3, 3, dtype=torch.float64)
        expected[-len(last) :] = 3
        torch.testing.assert_close(leaf.grad.to_dense(), project(cls, expected))


@each_type
def test_views_of_batches_are_views(cls: type) -> None:
    t = cls.randn(2, 3)
    for name, view in VIEWS.items():
        assert view(t)._is_view() or view(t) is t, name
    turned = t[None].expand(4, 2, 3, 3).permute(1, 0, 2, 3)
    assert torch.equal(turned.to_dense(), t.to_dense()[:, None].expand(2, 4, 3, 3))
    # Where there is no view, a copy.
    assert torch.equal(turned.reshape(8, 3, 3).to_dense(), turned.to_dense().reshape(8, 3, 3))
    with pytest.raises(RuntimeError, match="view"):
        turned.view(8, 3, 3)
    with pytest.raises(RuntimeError, match="single memory location"):
        turned.mul_(2)


@pytest.mark.parametrize("name", VIEWS)
def test_batches_of_gradients_pass_views(name: str) -> None:
    """Autograd computes them at once, on types whose elements have one more dimension."""
    x = torch.arange(1.0, 13.0, dtype=torch.float64).reshape(2, 6)

    def f(x: Tensor) -> Tensor:
        return VIEWS[name](LowerTriangular(x)).to_dense()

    for function, of in (
        (torch.autograd.functional.jacobian, f),
        (torch.autograd.functional.hessian, lambda x: (f(x) ** 3).sum()),
    ):
        one_by_one, at_once = (function(of, x, vectorize=v) for v in (False, True))
        torch.testing.assert_close(at_once, one_by_one)
    forward = torch.autograd.functional.jacobian(f, x, vectorize=True, strategy="forward-mode")
    torch.testing.assert_close(forward, torch.autograd.functional.jacobian(f, x))


@pytest.mark.parametrize("changed", [0, 1])
def test_copies_stay_copies_in_compiled_functions(changed: int) -> None:
    """Where elements do not follow one another flatten copies, which traced types do not show."""

    def f(p: Tensor) -> Tensor:
        t = LowerTriangular(p) * 1
        both = (t, t.permute(1, 0, 2, 3).flatten(0, 1))
        both[changed].mul_(3.0)
        return both[1 - changed].to_dense().sum()

    grads = []
    for run in (f, torch.compile(f, backend="aot_eager", fullgraph=True)):
        p = torch.ones(2, 3, 6, requires_grad=True)
        run(p).backward()
        grads.append(p.grad)
    assert torch.equal(*grads) and torch.equal(grads[0], torch.ones(2, 3, 6))


def test_tensors_that_share_elements_can_be_swapped() -> None:
    """Torch swaps none that have weak references."""
    a, b = (LowerTriangular(x * torch.ones(3)) for x in (1.0, 2.0))
    kept = a.packed, b.packed
    torch.utils.swap_tensors(a, b)
    assert torch.equal(a.packed, kept[1]) and torch.equal(b.packed, kept[0])
    again = Symmetric(b.packed)
    del kept
    scale = torch.tensor(2.0, requires_grad=True)
    for t, other in ((b, r"Symmetric \(2, 2\)"), (again, r"LowerTriangular \(2, 2\)")):
        with pytest.raises(RuntimeError, match=f"shares its elements with {other}"):
            t.mul_(scale)
    del b
    again.mul_(scale)
    # What is given other data no longer shares those of before.
    c = LowerTriangular(torch.ones(3))
    d = LowerTriangular(c.packed)
    c.data = c.data
    with pytest.raises(RuntimeError, match="shares its elements"):
        d.mul_(scale)
    c.data = LowerTriangular.eye(2)
    d.mul_(scale)


def test_other_threads_may_share_while_one_looks():
    t = LowerTriangular.randn(4)
    t.packed  # noqa: B018
    stop = threading.Event()

    def read() -> None:
        kept = []
        while not stop.is_set():
            kept.append(t.packed)
            del kept[:-300]

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    readers = [threading.Thread(target=read) for _ in range(2)]
    try:
        for reader in readers:
            reader.start()
        for _ in range(1500):
            t @ torch.ones(4)
    finally:
        stop.set()
        for reader in readers:
            reader.join()
        sys.setswitchinterval(before)
