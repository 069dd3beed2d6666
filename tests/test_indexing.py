"""Reading by any index, and assignments: what they do to the dense twin, or an error."""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad as fwad
from torch.fx.experimental.proxy_tensor import make_fx
from twins import MIRRORED, TYPES, Sizes, called, dense, each_type, project

from packedtri import PackedTensor, UpperTriangular, dense_guard

L, _, S, H = TYPES


def random_item(size: int, choose: random.Random) -> Any:
    """An integer, slice, index tensor, array, list or mask for a dimension of this size."""
    where = [choose.randrange(-size, size) for _ in range(2)]
    mask = torch.tensor([choose.random() < 0.5 for _ in range(size)])
    return choose.choice(
        [
            where[0], slice(None), slice(choose.randrange(size), None, 2), torch.tensor(where),
            slice(*where), slice(*sorted(where)), slice(None, where[0]),
            where, np.array(where), mask, torch.tensor(where[0]), slice(0, 0), mask.tolist(),
            torch.tensor([where, where]), torch.tensor(0).bool(), None, slice(None), slice(None),
            [], True, choose.random() < 0.5, torch.tensor(where).int(),
        ]
    )  # fmt: skip


def random_indices(cls: type[PackedTensor], seed: int) -> Iterator[tuple[PackedTensor, Any]]:
    """Matrices with an index that suits their dense twin."""
    choose = random.Random(seed)
    for _ in range(400):
        batch, n = choose.choice([(), (3,), (3, 2)]), choose.choice([1, 2, 9])
        t = cls.randn(*batch, n)
        sizes = t.shape[: choose.randint(0, len(batch) + 2)]
        index = tuple(random_item(size, choose) for size in sizes)
        if choose.random() < 0.3 and len(index) < t.dim():
            at = choose.randint(0, len(index))
            index = (*index[:at], ..., *index[at:])
        index = index[0] if len(index) == 1 and choose.random() < 0.5 else index
        with contextlib.suppress(IndexError, RuntimeError):
            found = t.to_dense()[index]
            # Torch does not look at the range of an index where there is nothing to be found.
            if found.numel() > 0 or in_range(t, index):
                yield t, index


def in_range(t: PackedTensor, index: Any) -> bool:
    try:
        t[index]
    except IndexError as error:
        return "out of range" not in str(error)
    return True


@each_type
def test_any_index_reads_what_it_reads_of_the_dense_matrices(cls):
    for t, index in random_indices(cls, torch.initial_seed()):
        assert torch.equal(dense(t[index]), t.to_dense()[index]), index


@each_type
def test_true_goes_with_other_indices_as_a_tensor_of_one_element(cls):
    t = cls.randn(3, 4)
    for index in (
        (True, 1, [0, 1]), (None, True, 0, ..., [1, 3]), (True, slice(None), [0, 1], [1, 2]),
        (True,), (False, 0), (1, True, 2, 3), ([],), (0, []), ([], 0, [1, 2]), (..., [], 1),
    ):  # fmt: skip
        try:
            expected = t.to_dense()[index]
        except IndexError:
            with pytest.raises(IndexError):
                t[index]
            continue
        assert torch.equal(dense(t[index]), expected), index
    assert t[[]].shape == (0, 4, 4) and type(t[[]]) is cls


@each_type
def test_any_index_writes_what_it_writes_to_the_dense_matrices(cls):
    written = 0
    for t, index in random_indices(cls, torch.initial_seed()):
        value = cls.randn(*t.shape[:-1]).to_dense()[index]
        expected, touched = t.to_dense(), torch.zeros(t.shape, dtype=torch.bool)
        expected[index], touched[index] = value, True
        if cls in MIRRORED:
            expected = torch.where(touched.mT & ~touched, expected.mT, expected)
        before = t.clone()
        try:
            t[index] = value
        except (NotImplementedError, ValueError):
            assert torch.equal(t, before), index
            continue
        written += 1
        assert torch.equal(t.to_dense(), expected), index
    assert written > 100


@each_type
def test_too_many_indices_raise(cls):
    whole = slice(None)
    for t, index in (
        (cls.eye(3), (whole, whole, whole)),
        (cls.eye(3), (0, whole, whole)),
        (cls.eye(3), (None, ..., whole, whole, whole)),
        (cls.eye(3), (torch.eye(3).bool(), whole)),
        (cls.eye(2, 3), (0, whole, whole, whole)),
        (cls.eye(2, 3), (torch.tensor([0]), whole, whole, whole)),
    ):
        before = t.clone()
        for x in (t, t.to_dense()):
            with pytest.raises(IndexError, match="too many indices"):
                x[index]
            with pytest.raises(IndexError, match="too many indices"):
                x[index] = 2 * cls.eye(3)
        assert torch.equal(t, before)


def writable(cls: type, n: int, i: Any, j: Any) -> Tensor:
    """Random values for elements (i, j) that the structure can hold."""
    return cls.randn(n, dtype=torch.float64).to_dense()[i, j]


@each_type
@pytest.mark.parametrize("recorded", [False, True])
def test_assignments(cls, recorded):
    n = 7
    for i, j in (
        (3, 3), (0, -1), (-1, 0), (slice(None), 2), (2, slice(None)), (slice(1, 4), slice(1, 4)),
        (torch.tensor([3, 1]), torch.tensor([1, 3])), (slice(None), slice(None)), ([0, 2], 2),
    ):  # fmt: skip
        leaf = cls.randn(2, n, dtype=torch.float64, requires_grad=recorded)
        t, value = leaf * 1, writable(cls, n, i, j).requires_grad_(recorded)
        expected = t.detach().to_dense()
        expected[..., i, j] = value.detach()
        if cls in MIRRORED:
            expected.mT[..., i, j] = value.detach()
        t[..., i, j] = value
        assert type(t) is cls
        torch.testing.assert_close(t.detach().to_dense(), expected)
        if recorded:
            t.to_dense().sum().backward()
            assert type(leaf.grad) is cls and value.grad.any() == value.any()
    t = cls.zeros(3, n)
    t[1] = cls.eye(n)
    t[0, 2, 2] = 5.0
    t[2] = torch.eye(n)
    assert t.to_dense().sum() == 2 * n + 5


@each_type
def test_a_mask_of_batches_and_rows_beside_columns(cls, device):
    t = cls.randn(2, 3, device=device)
    mask = torch.tensor([[True, False, True], [True, True, False]], device=device)
    for columns in (1, -1, slice(None, 2), torch.tensor(0), None, [0, 1, 2, 0]):
        assert torch.equal(t[mask, columns], t.to_dense()[mask, columns])


WHOLE = {
    "integer": 1, "negative": -1, "slice": slice(1, 3), "all": slice(None), "ellipsis": ...,
    "list": [0, 3], "no list": [], "mask": torch.tensor([True, False, True, False, True]),
    "mask of both": torch.tensor([[True, False, True]] * 2 + [[False, True, False]] * 3),
    "pair": (torch.tensor([0, 4]), torch.tensor([1, 1])), "second": (slice(None), [2, 0]),
    "whole": (..., 1, slice(None), slice(None)), "more": (None, [3, 1]),
    "true": True, "true in a tensor": (3, torch.tensor(True)),
}  # fmt: skip


@each_type
@pytest.mark.parametrize("wide", [torch.float64, torch.complex128])
@pytest.mark.parametrize("index", WHOLE.values(), ids=WHOLE)
def test_assignments_to_whole_matrices(cls, wide, index, device):
    """By any index of the batch: values, dtypes, versions and derivatives of the dense twin."""
    before, values = (cls.randn(5, 3, 4, dtype=wide, device=device) for _ in range(2))
    weight = project(cls, torch.randn(before.shape, dtype=wide, device=device))
    for value in (values[index], dense(values[index]), values[0, 0], 0.0):
        t, x = before.clone(), before.to_dense()
        version = t._version
        t[index], x[index] = value, dense(value)
        assert type(t) is cls and torch.equal(t.to_dense(), x)
        assert t._version > version or index == []
        results = []
        for leaf in (before.detach().clone(), before.to_dense()):
            own = value if type(leaf) is cls else dense(value)
            own = own.detach().clone().requires_grad_() if isinstance(own, Tensor) else own
            changed = leaf.requires_grad_() * 1
            changed[index] = own
            (dense(changed) * weight).sum().abs().backward()
            results.append((dense(leaf.grad), own.grad if isinstance(own, Tensor) else None))
        (ours, own), (theirs, twin) = results
        torch.testing.assert_close(ours, project(cls, theirs))
        assert own is not None or not isinstance(value, Tensor) or index == []
        if own is not None:
            torch.testing.assert_close(project(cls, dense(own)), project(cls, twin))


@each_type
@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("batch", [(), (3,)], ids=str)
def test_true_assigns_to_all_matrices_and_false_to_none(cls, batch, recorded):
    before = cls.randn(*batch, 2, requires_grad=recorded) * 1
    wrong = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    for truth in (True, False):
        for index in (truth, torch.tensor(truth), (None, truth), (torch.tensor(truth), ...)):
            for value in (0, torch.zeros(2), cls.randn(2), cls.randn(*batch, 2)):
                t, x = before.clone(), before.detach().to_dense()
                t[index], x[index] = value, dense(value)
                assert type(t) is cls and torch.equal(t.detach().to_dense(), x), index
            t = before.clone()
            if truth:
                with pytest.raises(ValueError, match="assignment"):
                    t[index] = wrong
            else:
                t[index] = wrong
            assert torch.equal(t.detach(), before.detach())


@each_type
@pytest.mark.parametrize("recorded", [False, True])
def test_values_of_whole_matrices_may_have_more_dimensions_of_length_one(cls, recorded):
    t = cls.zeros(2, 3, requires_grad=recorded) * 1
    value = cls.randn(1, 1, 3)
    t[0] = value
    t[[1]] = value
    assert torch.equal(t.detach().to_dense(), value.to_dense()[0].expand(2, 3, 3))


@each_type
def test_dense_operands_may_have_names(cls):
    t, x = cls.eye(2), torch.eye(2)
    assert torch.equal(t.clone().add_(other=x).to_dense(), 2 * x)
    assert torch.equal(t.clone().lerp_(end=3 * x, weight=0.5).to_dense(), 2 * x)


@each_type
def test_assignments_to_whole_matrices_that_do_not_fit(cls):
    t = cls.zeros(3, 2)
    before = t.clone()
    wrong = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    for value, error in ((wrong, ValueError), (torch.ones(3), (RuntimeError, ValueError))):
        with pytest.raises(error):
            t[[0, 2]] = value
    with pytest.raises(NotImplementedError, match="index"):
        t[[0, 2], 0] = 1.0
    assert torch.equal(t, before)


@each_type
def test_masks_of_all_elements_of_a_batch_fill(cls):
    """With one number; other values, and other index tensors of elements, are not for batches."""
    t = cls.randn(3, 4)
    mask = t < 0
    with pytest.raises(NotImplementedError) as error:
        t[mask] = torch.zeros(int(mask.sum()))
    assert "index (Tensor (3, 4, 4)) is not supported" in str(error.value)
    assert "masked_fill_" in str(error.value) and "True" not in str(error.value)
    with pytest.raises(NotImplementedError, match=re.escape("index (Tensor (1,), 0)")):
        t[:1, [0.5], 0] = 0
    expected = t.to_dense().masked_fill(mask, 0)
    u, v = t.clone(), t.clone()
    t[mask] = 0
    u[mask] = torch.tensor(0.0)
    v.masked_fill_(mask, 0)
    assert all(type(x) is cls and torch.equal(x.to_dense(), expected) for x in (t, u, v))
    lone = torch.zeros(3, 4, 4, dtype=torch.bool)
    lone[(1, 1, 0) if cls is UpperTriangular else (1, 0, 1)] = True
    with pytest.raises(NotImplementedError, match=f"{cls.__name__} .* cannot hold the result"):
        t[lone] = 5
    assert torch.equal(t.to_dense(), expected)
    recorded = u.requires_grad_() * 1
    recorded[expected > 0.5] = 2
    (recorded * recorded).sum().backward()
    assert torch.equal(u.grad.to_dense(), torch.where(expected > 0.5, 0, 2 * expected))


@each_type
def test_assignments_in_forward_mode(cls):
    a, b = torch.tensor([1, 0]), torch.tensor([0, 2])
    for index in (
        (0, 0, 0), (slice(None), 1, 1), (1,), (0, slice(None), slice(None)), (Ellipsis, a, a),
        (Ellipsis, b, b), (1, slice(0, 1), slice(0, 1)),
    ):  # fmt: skip
        values, tangents = (cls.randn(2, 3, dtype=torch.float64) for _ in range(2))
        given, tangent = (cls.randn(2, 3, dtype=torch.float64).to_dense()[index] for _ in range(2))
        with fwad.dual_level():
            for value in (0.0, given, fwad.make_dual(given, tangent)):
                t = fwad.make_dual(values.clone(), tangents.clone())
                x = fwad.make_dual(values.to_dense(), tangents.to_dense())
                t[index] = value
                x[index] = value
                ours, theirs = fwad.unpack_dual(t), fwad.unpack_dual(x)
                torch.testing.assert_close(ours.primal.to_dense(), theirs.primal)
                torch.testing.assert_close(ours.tangent.to_dense(), theirs.tangent)
            t = values.clone()
            t[index] = fwad.make_dual(given, tangent)
            x = values.to_dense()
            x[index] = fwad.make_dual(given, tangent)
            ours, theirs = (fwad.unpack_dual(v).tangent for v in (t, x))
            torch.testing.assert_close(ours.to_dense(), theirs)
        t[0][1, 1] = 7.0
        assert t[0, 1, 1] == 7


@each_type
def test_assignments_to_a_view_in_forward_mode(cls):
    values, tangents = (cls.randn(2, 3, dtype=torch.float64) for _ in range(2))
    with fwad.dual_level():
        t = fwad.make_dual(values.clone(), tangents.clone())
        x = fwad.make_dual(values.to_dense(), tangents.to_dense())
        for m in (t, x):
            m[0][1, 1] = 0.0
            m.mT[1][2, 2] = fwad.make_dual(torch.tensor(3.0), torch.tensor(4.0))
        ours, theirs = fwad.unpack_dual(t), fwad.unpack_dual(x)
        torch.testing.assert_close(ours.primal.to_dense(), theirs.primal)
        torch.testing.assert_close(ours.tangent.to_dense(), theirs.tangent)


@each_type
def test_assignments_that_do_not_fit(cls):
    t = cls.randn(4)
    i, j = (0, 3) if cls is L else (3, 0)
    if cls in MIRRORED:
        with pytest.raises(ValueError, match="another value.*to_dense"):
            t[:2, :2] = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        with pytest.raises(ValueError, match="element"):
            t[...] = torch.arange(16.0).reshape(4, 4)
        return
    with pytest.raises(ValueError, match=rf"{cls.__name__}.*\({i}, {j}\).*structural zero"):
        t[i, j] = 1.0
    t[i, j] = 0.0
    with pytest.raises(ValueError, match="structural zero"):
        t[:, j] = 1.0
    with pytest.raises(ValueError, match="element"):
        t[...] = torch.ones(4, 4)


@each_type
def test_assignments_are_noticed_by_autograd(cls):
    t = cls.randn(3, requires_grad=True)
    y = t * 1
    z = y * y
    version = y._version
    with torch.no_grad():
        y[1, 1] = 0.0
    assert y._version == version + 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.to_dense().sum().backward()


@pytest.mark.parametrize("cls", [S, H])
def test_blocks_assigned_on_both_sides_have_the_gradient_once(cls):
    mask = torch.tensor([[True, True, False], [True, True, False], [False, False, False]])
    for index in ((slice(0, 2), slice(0, 2)), ([[0], [1]], [0, 1]), mask, (0, 1)):
        value = torch.tensor(2.0, requires_grad=True)
        t, twin = cls.zeros(3), torch.zeros(3, 3)
        t[index] = value
        twin[index] = 2
        if index == (0, 1):
            twin[1, 0] = 2  # Both are one stored element.
        torch.testing.assert_close(t.to_dense().detach(), twin)
        t.to_dense().sum().backward()
        assert value.grad == (twin != 0).sum(), index


def test_matrices_of_another_order_are_no_values():
    t = L.randn(3)
    before = t.clone()
    with pytest.raises(ValueError, match=r"element \(0, 1\) is 5"):
        t[:] = L(torch.tensor([5.0]))
    assert torch.equal(t, before)
    t[:] = L(torch.tensor([0.0]))
    assert torch.equal(t, L.zeros(3))


@each_type
def test_values_may_have_more_dimensions_of_length_one(cls):
    t, twin = cls.randn(2, 3), torch.zeros(2, 3, 3)
    t[:] = torch.zeros(1, 1, 2, 3, 3)
    t[1, 2, 2] = torch.ones(1, 1)
    twin[1, 2, 2] = 1
    torch.testing.assert_close(t.to_dense(), twin)
    with pytest.raises(RuntimeError):
        t[0, 0] = torch.zeros(2, 3)


@each_type
def test_one_batch_may_be_named_by_any_integer(cls):
    """NumPy's integers, and index tensors without dimensions."""
    ours, value = cls.zeros(4, 3), cls.randn(3)
    for k, index in enumerate((np.int64(0), torch.tensor(1), np.arange(4)[2], torch.tensor(-1))):
        ours[index] = value * (k + 1)
    assert torch.equal(ours.packed, torch.stack([value.packed * k for k in range(1, 5)]))
    ours[np.int64(1), np.int64(2), torch.tensor(2)] = 9.0
    assert ours[1, 2, 2] == 9


@each_type
def test_where_there_is_nothing_to_write_any_value_fits(cls):
    ours = cls.randn(4, 3)
    before = ours.clone()
    ours[:-5:3] = 2.5
    ours[4:] = 2.5
    assert torch.equal(ours.packed, before.packed)
    with pytest.raises(RuntimeError, match="expand"):
        ours[4:] = torch.ones(2, 2)


@each_type
def test_changes_of_what_both_modes_record_are_refused(cls):
    t = cls.randn(2).requires_grad_()
    with fwad.dual_level():
        dual = fwad.make_dual(t, cls.randn(2)).clone()
        with pytest.raises(RuntimeError, match="inside a dual level"):
            dual.mul_(2)


@each_type
def test_values_that_share_elements_are_read_before_they_are_written(cls):
    """Also a run of ``.packed``, which lies in memory where it is written to."""
    elements = torch.arange(1.0, 22.0)
    for index in ((slice(3, 6), slice(0, 3)), (slice(0, 2), slice(3, 6)), (5, slice(0, 4))):
        where = (index[1], index[0]) if cls.kind == 1 else index
        for first, step in ((0, 1), (3, 1), (6, 1), (0, 2), (9, 1)):
            t = cls(elements.clone())
            if t[where].count_nonzero() == 0:
                continue  # Structural zeros.
            shape = t[where].shape
            values = t.packed[first::step][: shape.numel()].reshape(shape)
            expected = cls(elements.clone())
            expected[where] = values.clone()
            t[where] = values
            assert torch.equal(t.packed, expected.packed)


BLOCKS = [(0, 90, 0, 90), (5, 70, 3, 41), (40, 90, 10, 64), (64, 80, 1, 9)]
# The same on the other side of the diagonal.
BLOCKS += [(left, right, top, bottom) for top, bottom, left, right in BLOCKS]


@each_type
@pytest.mark.parametrize("batch", [(), (3,)])
def test_blocks_of_large_matrices(cls, batch, device):
    """Blocks at every place beside the diagonal, of matrices that have many tiles."""
    n = 90
    t, source = (cls.randn(*batch, n, device=device) for _ in range(2))
    for top, bottom, left, right in BLOCKS:
        rows, columns = slice(top, bottom), slice(left, right)
        values = source.to_dense()[..., rows, columns]
        changed, twin = t.clone(), t.to_dense()
        version = changed._version
        changed[..., rows, columns] = values
        assert changed._version > version
        twin[..., rows, columns] = values
        if cls in MIRRORED:
            twin[..., columns, rows] = source.to_dense()[..., columns, rows]
        assert torch.equal(changed.to_dense(), twin)
        # Its last element in the first row.
        i, j = top, right - 1
        mirrored = cls in MIRRORED and top <= j < bottom and left <= i < right and i != j
        zero = cls not in MIRRORED and (i < j if cls is L else i > j)
        wrong = values.clone()
        wrong[..., 0, -1] += 1
        if mirrored or zero:
            before = changed.packed.clone()
            with pytest.raises(ValueError, match="cannot hold the value"):
                changed[..., rows, columns] = wrong
            assert torch.equal(changed.packed, before)
        else:
            changed[..., rows, columns] = wrong
            assert torch.equal(changed[..., rows, columns], wrong)


@each_type
@pytest.mark.parametrize("batch", [(), (2,)])
def test_narrow_reads_what_it_takes(cls, batch, device):
    """Rows and columns, as dense torch has them, without the matrix being unpacked."""
    t = cls.randn(*batch, 9, dtype=torch.float64, device=device).requires_grad_()
    twin = t.detach().to_dense().requires_grad_()
    for dim in (-2, -1, len(batch), len(batch) + 1):
        for start, length in ((0, 4), (3, 6), (9, 0), (-9, 9), (-2, 1), (0, 0)):
            with dense_guard("raise"):
                part = t.narrow(dim, start, length)
            expected = twin.narrow(dim, start, length)
            assert type(part) is Tensor and torch.equal(part, expected)
            weight = torch.randn_like(expected)
            (found,) = torch.autograd.grad(part, t, weight)
            (wanted,) = torch.autograd.grad(expected, twin, weight)
            assert torch.allclose(found.to_dense(), project(cls, wanted))
    dim = len(batch)
    assert torch.equal(t.narrow(dim, torch.tensor(2), 3), twin.narrow(dim, torch.tensor(2), 3))
    for start, length in ((4, 6), (-10, 1), (10, 0), (0, -1)):
        with pytest.raises((IndexError, RuntimeError)) as wanted:
            twin.narrow(dim, start, length)
        with pytest.raises(wanted.type) as found:
            t.narrow(dim, start, length)
        assert str(found.value) == str(wanted.value)


@each_type
@pytest.mark.parametrize("batch", [(), (2,)])
def test_selected_rows_and_columns_are_those_of_the_dense_matrices(cls, batch, device):
    """Few are gathered, and many read from a dense copy."""
    n = 40
    t = cls.randn(*batch, n, dtype=torch.float64, device=device).requires_grad_()
    twin = t.detach().to_dense().requires_grad_()
    for count, few in ((0, True), (1, True), (2, False), (2 * n, False)):
        index = torch.randint(n, (count,), device=device)
        for dim in (-2, -1, len(batch), len(batch) + 1):
            place = (*(slice(None),) * (dim % t.dim()), index)
            for read in (lambda x, p=place: x[p], lambda x, d=dim, i=index: x.index_select(d, i)):
                part, expected = read(t), read(twin)
                assert type(part) is Tensor and torch.equal(part, expected)
                weight = torch.randn_like(expected)
                (found,) = torch.autograd.grad(part, t, weight)
                (wanted,) = torch.autograd.grad(expected, twin, weight)
                assert torch.allclose(found.to_dense(), project(cls, wanted))
            if device == "cpu" and count:
                for read in (partial(t.__getitem__, place), partial(t.index_select, dim, index)):
                    assert any("unpack" in name for name in called(read)) is not few


@each_type
@pytest.mark.parametrize("batch", [(), (2,)])
def test_indices_that_index_select_refuses_raise_as_dense_ones_do(cls, batch):
    t = cls.randn(*batch, 40)
    for index, dim in (([40], -1), ([-1], -2), ([0.0], -1), ([[0]], -2), ([0], len(batch) + 2)):
        errors = []
        for x in (t.to_dense(), t):
            with pytest.raises((IndexError, RuntimeError)) as error:
                x.index_select(dim, torch.tensor(index))
            errors.append((error.type, str(error.value)))
        assert errors[0] == errors[1]


def test_rows_of_few_matrices_do_not_take_dense_copies_of_all():
    t, index = L.randn(50, 10), torch.arange(10)
    with Sizes() as sizes:
        rows = t[3, index]
    assert torch.equal(rows, t[3].to_dense()) and sizes.most == 100


@each_type
def test_where_the_place_tells_that_values_fit_nobody_looks_at_them(cls):
    """A look would wait for a GPU, and end the capture of a graph."""
    t = cls.zeros(4, 9)
    below = (slice(5, 9), slice(0, 3)) if cls is not TYPES[1] else (slice(0, 3), slice(5, 9))
    i = 4 if cls is not TYPES[1] else 2
    for index, shape in (
        (below, (3, 4) if cls is TYPES[1] else (4, 3)),
        ((i, 2), ()),
        ((3, 3), ()),
    ):
        ops = called(partial(t.__setitem__, (..., *index), torch.ones(shape)))
        looks = {"aten.equal.default", "aten._local_scalar_dense.default"}
        assert not looks & set(ops)
    traced = make_fx(lambda p, v: _assigned(cls(p.clone()), below, v))
    graph = traced(torch.zeros(45), torch.ones(()))
    expected = _assigned(cls(torch.zeros(45)), below, torch.tensor(7.0))
    assert torch.equal(graph(torch.zeros(45), torch.tensor(7.0)), expected)


def _assigned(t: PackedTensor, index: Any, value: Tensor) -> Tensor:
    t[index] = value
    return t.to_dense()


@each_type
def test_indices_of_32_bits_reach_all_of_a_large_matrix(cls, tmp_path):
    """Places in packed order exceed them. The file takes room on disk for what is written alone."""
    n = 70_001
    path, count = tmp_path / "packed", n * (n + 1) // 2
    with path.open("wb") as file:
        file.truncate(2 * count)
    t = cls(torch.from_file(str(path), shared=True, size=count, dtype=torch.float16))
    i, j = (70_000, 5) if cls is not UpperTriangular else (5, 70_000)
    rows, columns = (torch.tensor([k], dtype=torch.int32) for k in (i, j))
    t[rows, columns] = 2.0
    assert t[i, j] == t[rows, columns] == t[rows.long(), columns.long()] == 2
    assert t.packed[count - n + 5] == 2


@each_type
def test_indices_of_other_dtypes_raise_as_dense_ones_do(cls):
    t = cls.eye(3)
    for dtype in (torch.int8, torch.int16):
        index = torch.tensor([0, 1], dtype=dtype)
        for key in ((index, index), (slice(None), index), (0, index)):
            with pytest.raises(IndexError, match="tensors used as indices must be"):
                t.to_dense()[key]
            with pytest.raises(IndexError, match="tensors used as indices must be"):
                t[key]
            with pytest.raises(IndexError, match="tensors used as indices must be"):
                t[key] = 0.0
