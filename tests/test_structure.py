"""Elements, diagonals, blocks and shapes: what keeps the type does, and values are those of dense.

Every function is compared with its dense twin in value, type and gradient, for ragged orders and
batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from derivatives import check_derivatives
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from twins import MIRRORED, TYPES, dense, each_type, project

from packedtri import LowerTriangular, PackedTensor
from packedtri.testing import DTYPES

L, U, S, H = TYPES
SIZES = (0, 1, 2, 3, 33)
BATCHES = ((), (0,), (1,), (3, 4))


def flat(result: Any) -> list[Tensor]:
    return list(result) if isinstance(result, (list, tuple)) else [result]


def compare(name: str, f: Callable[[Any], Any], t: PackedTensor, expected: type | None) -> None:
    """Value, type and gradient of f(t) against those of its dense twin."""
    t = t.detach().requires_grad_()
    twin = t.detach().to_dense().requires_grad_()
    ours, theirs = flat(f(t)), flat(f(twin))
    assert len(ours) == len(theirs), name
    total, reference = 0.0, 0.0
    for a, b in zip(ours, theirs, strict=True):
        if expected is not None:
            assert type(a) is expected, f"{name}: {type(a)}"
        torch.testing.assert_close(dense(a), b, msg=lambda m: f"{name}: {m}", equal_nan=True)
        weight = torch.arange(1.0, b.numel() + 1, dtype=torch.float64).sin().reshape(b.shape)
        total, reference = total + (dense(a) * weight).sum(), reference + (b * weight).sum()
    if not reference.requires_grad:
        return
    if not total.requires_grad:
        total = total + 0 * dense(t).sum()  # Structural zeros alone depend on nothing.
    (a,) = torch.autograd.grad(total, t)
    (b,) = torch.autograd.grad(reference, twin)
    assert type(a) is type(t)
    torch.testing.assert_close(dense(a), project(type(t), b), msg=lambda m: f"{name}: {m}")


INDEX = torch.tensor([2, 0, -1])
ELEMENTS: dict[str, Callable[[Tensor], Any]] = {
    "element": lambda t: t[..., 1, 2],
    "negative": lambda t: t[..., -1, -3],
    "row": lambda t: t[..., 1, :],
    "row alone": lambda t: t.mT[..., 2, :3],
    "column": lambda t: t[..., 2],
    "block": lambda t: t[..., 3:6, 1:4],
    "steps": lambda t: t[..., ::9, 1::8],
    "rows": lambda t: t[..., INDEX, :],
    "columns": lambda t: t[..., 5:2, INDEX],
    "index": lambda t: t[..., INDEX, INDEX.flip(0)],
    "list": lambda t: t[..., [0, 2], 1],
    "outer": lambda t: t[..., INDEX[:, None], INDEX],
    "tall": lambda t: t[..., INDEX[:, None], 1:3],
    "mask": lambda t: t[..., torch.eye(t.shape[-1]).bool() | (torch.ones(t.shape[-2:]) < 0)],
    "rows by mask": lambda t: t[..., torch.arange(t.shape[-1]) % 11 == 1, 2],
    "diagonal": lambda t: torch.diagonal(t, 0, -2, -1),
    "diagonal -2": lambda t: t.diagonal(-2, -2, -1),
    "diagonal 2": lambda t: torch.linalg.diagonal(t, offset=2),
    "diagonal swapped": lambda t: t.diagonal(1, -1, -2),
    "whole block": lambda t: t[..., 0:, 1:],
}
KEPT: dict[str, Callable[[Tensor], Any]] = {
    "diagonal_scatter": lambda t: torch.diagonal_scatter(
        t, torch.arange(t.shape[-1], dtype=t.dtype).expand(t.shape[:-1]), 0, -2, -1
    ),
    "unsqueeze": lambda t: t.unsqueeze(0),
    "unsqueeze -3": lambda t: torch.unsqueeze(t, -3),
    "expand": lambda t: t.expand(2, *t.shape),
    "broadcast_to": lambda t: torch.broadcast_to(t, (2, *t.shape)),
    "reshape": lambda t: t.reshape(1, *t.shape),
    "flip": lambda t: t[None].flip(0),
    "squeeze": lambda t: t[None, None].squeeze((0, 1)),
    "repeat": lambda t: t.repeat(2, *[1] * t.dim()),
    "permute": lambda t: t.permute(*range(t.dim())),
}
BATCHED: dict[str, Callable[[Tensor], Any]] = {
    "index": lambda t: t[torch.tensor([2, 0])],
    "mask": lambda t: t[torch.tensor([True, False, True])],
    "both": lambda t: t[torch.tensor([2, 0]), torch.tensor([1, 1])],
    "flatten": lambda t: t.flatten(0, 1),
    "reshape": lambda t: t.reshape(2, -1, *t.shape[-2:]),
    "view": lambda t: t.view(12, *t.shape[-2:]),
    "permute": lambda t: t.permute(1, 0, 2, 3),
    "transpose": lambda t: t.transpose(0, 1),
    "movedim": lambda t: t.movedim(0, 1),
    "index_select": lambda t: t.index_select(1, torch.tensor([3, 1])),
    "index_copy": lambda t: t.index_copy(1, torch.tensor([3, 1]), t[:, :2]),
    "index_copy_": lambda t: t.clone().index_copy_(-3, torch.tensor([3, 1]), t[:, :2]),
    "index_add": lambda t: torch.index_add(t, 0, torch.tensor([2, 2]), t[1:], alpha=3),
    "index_fill": lambda t: t.index_fill(1, torch.tensor([0, 2]), 0),
    "index_fill_": lambda t: t.clone().index_fill_(0, torch.tensor([1]), 0.0),
    "index_put_": lambda t: t.clone().index_put_((torch.tensor([2, 0]),), t[:2]),
    "index_put_, one of each": lambda t: t.clone().index_put_(
        (torch.tensor([2, 0]), torch.tensor([1, 3])), t[1, :2]
    ),
    "index_put_, added": lambda t: t.clone().index_put_(
        (torch.tensor([2, 2]),),
        t[:2].to_dense() if isinstance(t, PackedTensor) else t[:2],
        accumulate=True,
    ),
    "narrow": lambda t: t.narrow(0, 1, 2),
    "chunk": lambda t: t.chunk(2, 1),
    "split": lambda t: torch.split(t, [1, 2]),
    "unflatten": lambda t: t.unflatten(1, (2, 2)),
    "expand": lambda t: t[:, :1].expand(3, 5, -1, -1),
}


@each_type
@pytest.mark.parametrize("batch", BATCHES)
def test_elements_are_gathered(cls, batch):
    t = cls.randn(*batch, 33, dtype=torch.float64)
    for name, f in ELEMENTS.items():
        compare(name, f, t, Tensor)


@each_type
def test_functions_that_keep_the_type(cls):
    for n in SIZES:
        for batch in BATCHES:
            for name, f in KEPT.items():
                compare(f"{name} {n} {batch}", f, cls.randn(*batch, n, dtype=torch.float64), cls)
        for name, f in BATCHED.items():
            if n:
                compare(f"{name} {n}", f, cls.randn(3, 4, n, dtype=torch.float64), cls)


@each_type
def test_matrices_of_another_order_are_put_into_a_batch_as_dense_ones(cls):
    t, index = cls.randn(3, 4, dtype=torch.float64), torch.tensor([2, 0])
    other = cls.randn(2, 1, dtype=torch.float64)

    def outcome(f: Callable[[Tensor, Tensor], Tensor], *args: Tensor) -> Any:
        try:
            return dense(f(*args))
        except (IndexError, RuntimeError) as error:
            return str(error)

    for f in (
        lambda x, y: x.index_put((index,), y),
        lambda x, y: x.index_copy(0, index, y),
        lambda x, y: x.index_add(0, index, y),
    ):
        ours, theirs = outcome(f, t, other), outcome(f, t.to_dense(), other.to_dense())
        assert torch.equal(ours, theirs) if isinstance(theirs, Tensor) else ours == theirs


@each_type
def test_a_triangle_is_not_filled(cls):
    t, index = cls.randn(3, 4), torch.tensor([2, 0])
    if cls in MIRRORED:
        assert torch.equal(t.index_fill_(0, index, 1.5).to_dense()[2], torch.full((4, 4), 1.5))
        return
    with pytest.raises(NotImplementedError, match="index_fill_"):
        t.index_fill_(0, index, 1.5)
    assert type(t.index_fill(0, index, 1.5)) is Tensor


@each_type
def test_triangles_of_matrices(cls):
    for n in SIZES:
        for k in (-3, -1, 0, 1, 40):
            t = cls.randn(2, n, dtype=torch.float64)
            low = (L if k <= 0 else Tensor) if cls in MIRRORED else cls
            high = (U if k >= 0 else Tensor) if cls in MIRRORED else cls
            compare(f"tril {k}", lambda t, k=k: torch.tril(t, k), t, low)
            compare(f"triu {k}", lambda t, k=k: t.triu(k), t, high)


@each_type
def test_elements_in_all_dtypes(cls):
    for dtype in DTYPES:
        t = cls.randn(3, 5, dtype=dtype)
        for f in (
            lambda t: t[..., 1, 3],
            lambda t: t[..., 0],
            lambda t: torch.diagonal(t, -1, -2, -1),
            lambda t: dense(t.tril(-1)),
            lambda t: t[..., [0, 1], :1],
        ):
            assert torch.equal(f(t), f(t.to_dense()))


@each_type
def test_second_derivatives_and_forward_mode(cls):
    at = torch.tensor([0, 2])
    cases = (
        lambda t: t[..., at, 1],
        lambda t: t[:, 1:3, 0],
        lambda t: t.diagonal(0, -2, -1),
        lambda t: t.tril(-1).to_dense(),
        lambda t: torch.diagonal_scatter(t, t.diagonal(0, -2, -1) ** 2, 0, -2, -1).to_dense(),
        lambda t: t.flip(0).reshape(1, 2, 3, 3).to_dense(),
    )
    p = torch.randn(2, 6, dtype=torch.float64, requires_grad=True)
    for f in cases:
        loss = lambda p, f=f: f(cls(p)).pow(3).sum()  # noqa: E731
        check_derivatives(loss, p)


@each_type
def test_diagonals_are_written(cls):
    t = cls.randn(2, 3)
    t.set_diagonal_(torch.tensor([1.0, 2.0, 3.0]))
    assert t.diagonal(0, -2, -1).tolist() == [[1, 2, 3]] * 2
    assert t[0].fill_diagonal_(7).diagonal().tolist() == [7, 7, 7]
    assert t[0].diagonal().tolist() == [7, 7, 7]
    values = torch.randn(3, requires_grad=True)
    (t * 1).set_diagonal_(values).sum().backward()
    assert values.grad.tolist() == [2, 2, 2]
    assert t.unit_diagonal().diagonal(0, -2, -1).tolist() == [[1, 1, 1]] * 2
    with pytest.raises(ValueError, match=r"set_diagonal_.*\(2, 3\)"):
        t.set_diagonal_(torch.zeros(4))
    with pytest.raises(TypeError, match=r"got float\. For a number use fill_diagonal_"):
        t.set_diagonal_(2.0)
    before = t.clone()
    with pytest.raises(ValueError, match=r"\[set_diagonal_\] expected real values for .*float"):
        t.set_diagonal_(torch.tensor(1j))
    with pytest.raises(ValueError, match=r"\[fill_diagonal_\] expected real values for .*float"):
        t[0].fill_diagonal_(1j)
    # Torch takes cubes, of which it fills another diagonal.
    with pytest.raises(ValueError, match=r"fill_diagonal_.*one diagonal.*set_diagonal_ takes"):
        cls.randn(3, 3).fill_diagonal_(1)
    assert torch.equal(t, before)


@each_type
def test_changes_in_place(cls):
    for f in (torch.Tensor.sin_, torch.Tensor.tanh_, lambda t: t.pow_(2), torch.square_):
        leaf = cls.randn(3, dtype=torch.float64, requires_grad=True)
        twin = leaf.detach().to_dense().requires_grad_()
        ours, expected = leaf * 1, twin * 1
        assert f(ours) is ours
        f(expected)
        torch.testing.assert_close(ours.to_dense(), expected)
        ours.sum().backward()
        expected.sum().backward()
        torch.testing.assert_close(leaf.grad.to_dense(), project(cls, twin.grad))
    t = cls.randn(3)
    if cls in MIRRORED:
        assert torch.equal(t.clone().exp_().to_dense(), t.to_dense().exp())
        return
    with pytest.raises(NotImplementedError, match=rf"exp_.*{cls.__name__}.*torch.Tensor.exp"):
        t.exp_()
    assert torch.equal(t.clone().tril_(-1).to_dense(), t.to_dense().tril(-1))


def test_distributions_read_and_write_the_same_order():
    from torch.distributions.utils import tril_matrix_to_vec, vec_to_tril_matrix

    p = torch.randn(2, 10)
    assert torch.equal(vec_to_tril_matrix(p, 0), LowerTriangular(p).to_dense())
    assert torch.equal(tril_matrix_to_vec(LowerTriangular(p), 0), p)


COMPILED: dict[str, Callable[[Tensor], Any]] = {
    "sum": lambda t: t.sum(-1),
    "mean": lambda t: t.mean(0),
    "amax": lambda t: t.amax((-2, -1)),
    "norm": lambda t: torch.linalg.matrix_norm(t, 1),
    "diagonal": lambda t: t.diagonal(0, -2, -1),
    "element": lambda t: t[..., 1, 2],
    "block": lambda t: t[..., 1:2, :],
    "index": lambda t: t[..., INDEX, 0],
    "batches": lambda t: t[torch.tensor([1, 0])],
    "tril": lambda t: t.tril(-1),
    "reshape": lambda t: t.reshape(2, 2, 3, 3),
    "expand": lambda t: t.expand(5, 4, 3, 3),
    "split": lambda t: t.split(2),
    "diagonal_scatter": lambda t: torch.diagonal_scatter(t, torch.ones(4, 3), 0, -2, -1),
    "matrix_power": lambda t: torch.linalg.matrix_power(t, 3),
    "clamp": lambda t: t.clamp(-1, 1),
    "silu": lambda t: torch.nn.functional.silu(t),
    "row": lambda t: t * torch.arange(3.0),
    "to_rfp": lambda t: t.to_rfp("L"),
    "sin_": lambda t: (t * 1).sin_(),
    "dense": lambda t: torch.logcumsumexp(t, -1),
}


@pytest.mark.parametrize("cls", [L, S])
def test_compiled(cls):
    for name, f in COMPILED.items():
        t = cls.randn(4, 3, requires_grad=True)
        torch._dynamo.reset()
        ours, expected = flat(torch.compile(f, backend="aot_eager", fullgraph=True)(t)), flat(f(t))
        for a, b in zip(ours, expected, strict=True):
            assert type(a) is type(b), name
            torch.testing.assert_close(dense(a), dense(b))
        grads = [
            torch.autograd.grad(sum((dense(r) ** 2).sum() for r in results), t)[0].packed
            for results in (ours, expected)
        ]
        torch.testing.assert_close(*grads, msg=name)


class Largest(TorchDispatchMode):
    """Remembers the largest number of elements of a result of a torch operator."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for t in tree_leaves(result):
            if isinstance(t, Tensor) and not isinstance(t, PackedTensor) and t._base is None:
                self.count = max(self.count, t.untyped_storage().nbytes() // t.itemsize)
        return result


@each_type
def test_what_is_native_makes_no_dense_matrix(cls):
    n = 129
    row = torch.randn(n)
    with Largest() as largest:
        cls.randn(n).to_dense()
    assert largest.count == n * n
    for name, f in {
        "trace": lambda t: t.trace(),
        "sum": lambda t: t.sum(),
        "norm": lambda t: torch.linalg.norm(t),
        "max": lambda t: t.max(),
        "sum lines": lambda t: t.sum(-1) if cls not in MIRRORED else t.sum(),
        "norm 1": lambda t: torch.linalg.norm(t, 1) if cls not in MIRRORED else t.sum(),
        "element": lambda t: t[3, 4],
        "row": lambda t: t[7],
        "column": lambda t: t[:, 9],
        "block": lambda t: t[60:90, 20:60],
        "diagonal": lambda t: t.diagonal(2),
        "set_diagonal_": lambda t: t.clone().set_diagonal_(row),
        "tril": lambda t: t.tril(-1),
        "rows": lambda t: t * row if cls not in MIRRORED else t * 2,
        "columns": lambda t: row[:, None] * t if cls not in MIRRORED else t * 2,
        "sin_": lambda t: t.clone().sin_(),
        "assign": lambda t: t.clone().__setitem__((5, 5), 1.0),
        "power": lambda t: torch.linalg.matrix_power(t, 3),
    }.items():
        t = cls.randn(n)
        with Largest() as largest:
            f(t)
        assert largest.count <= n * (n + 1) // 2, f"{name}: {largest.count}"
