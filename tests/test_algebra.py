"""Properties that hold for all matrices: the index formula, round trips and the laws of algebra."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor
from twins import TRIANGULAR, TYPES, dense

from packedtri import Hermitian, PackedTensor, Symmetric, layout
from packedtri.testing import DTYPES, random_integers

settings.register_profile("packedtri", deadline=None, max_examples=60)
settings.load_profile("packedtri")


@st.composite
def operands(draw: Callable, count: int, types=TRIANGULAR, same: bool = True) -> list[PackedTensor]:
    """Matrices of small integers, so that the laws hold exactly in every dtype and order."""
    n, dtype = draw(st.integers(0, 12)), draw(st.sampled_from(DTYPES[2:]))
    batch = draw(st.sampled_from([(), (1,), (3,), (2, 1)]))
    g = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    cls = draw(st.sampled_from(types))
    chosen = [cls if same else draw(st.sampled_from(types)) for _ in range(count)]
    return [c(random_integers((*batch, layout.numel(n)), dtype, generator=g)) for c in chosen]


def equal(a: Tensor, b: Tensor) -> bool:
    return type(a) is type(b) and torch.equal(dense(a), dense(b))


@given(st.integers(0, 10**9))
def test_order_inverts_numel(n):
    assert layout.order(layout.numel(n)) == n
    assert layout.numel(n + 1) - layout.numel(n) == n + 1
    if n > 1:
        with pytest.raises(ValueError, match=str(layout.numel(n))):
            layout.order(layout.numel(n) + 1)


@given(st.integers(0, 10**6), st.data())
def test_offsets_count_the_elements_before(i, data):
    j = data.draw(st.integers(0, i))
    assert layout.offset(i, j) == sum((i * (i + 1) // 2, j))
    assert layout.numel(i) <= layout.offset(i, j) < layout.numel(i + 1)


@given(st.integers(0, 40))
def test_offsets_follow_tril_indices(n):
    positions = [layout.offset(i, j) for i, j in torch.tril_indices(n, n).T.tolist()]
    assert positions == list(range(layout.numel(n)))


@given(operands(1, TYPES))
def test_round_trips(ts):
    (t,) = ts
    assert equal(type(t).from_dense(t.to_dense(), check=True), t)
    assert equal(type(t)(t.packed), t)
    assert equal(t.mT.mT, t) and equal(t.mH.mH, t)
    assert torch.equal(t.mT.to_dense(), t.to_dense().mT)


@given(operands(3))
def test_products_are_associative(ts):
    a, b, c = ts
    assert equal((a @ b) @ c, a @ (b @ c))


@given(operands(2, TYPES, same=False))
def test_transpose_of_a_product(ts):
    a, b = ts
    assert torch.equal(dense((a @ b).mT), dense(b.mT @ a.mT))
    assert torch.equal(dense((a @ b).mH), dense(b.mH @ a.mH))


@given(operands(1))
def test_identity(ts):
    (t,) = ts
    one = type(t).eye(t.n, dtype=t.dtype)
    assert equal(t @ one, t) and equal(one @ t, t)


@given(operands(3), st.integers(-3, 3))
def test_products_are_linear(ts, k):
    a, b, c = ts
    assert equal((a + b) @ c, a @ c + b @ c)
    assert equal(a @ (b - c), a @ b - a @ c)
    assert equal((k * a) @ b, k * (a @ b)) and equal((a * k) @ b, a @ (k * b))


@given(operands(2, TYPES))
def test_sums_and_multiples(ts):
    a, b = ts
    assert equal(a + b, b + a) and equal(a - b, -(b - a))
    assert torch.equal((a + b).to_dense(), a.to_dense() + b.to_dense())
    assert equal(a + a, 2 * a) and equal((a + a) / 2, a)


@given(operands(2, TYPES, same=False))
def test_any_two_types_multiply_as_their_dense_twins(ts):
    a, b = ts
    assert torch.equal(dense(a @ b), dense(a) @ dense(b))


@given(operands(2))
def test_products_act_on_vectors_one_after_the_other(ts):
    a, b = ts
    x = random_integers((a.n, 2), a.dtype)
    assert torch.equal((a @ b) @ x, a @ (b @ x))
    assert torch.equal(x.mT @ (a @ b), (x.mT @ a) @ b)


@given(operands(1, TYPES), st.integers(-3, 3))
def test_numbers_may_come_first_and_be_tensors(ts, k):
    (t,) = ts
    real = isinstance(t, Hermitian) and t.is_complex()
    number = torch.tensor(k, dtype=t.dtype.to_real() if real else t.dtype)
    kept = isinstance(t, (Symmetric, Hermitian))
    for multiple in (torch.mul(k, t), torch.multiply(k, t), number * t, t * number):
        assert equal(multiple, k * t)
    for left, right in ((k, t), (number, t), (t, k), (t, number)):
        for f in (torch.add, torch.sub):
            ours = f(left, right, alpha=2)
            # Plus the number zero a triangle stays one, but a tensor's value decides no type.
            zero = k == 0 and left is not number and right is not number
            assert type(ours) is (type(t) if kept or zero else Tensor)
            assert torch.equal(dense(ours), f(*(dense(x) for x in (left, right)), alpha=2))
    if kept:
        assert equal(number + t, t + k) and equal(number - t, k - t) and equal(t - number, t - k)
        assert equal(torch.rsub(t, number), k - t)
