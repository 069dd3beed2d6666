"""Every function that torch lets a tensor type override: computed, converted to dense or refused.

Arguments come from torch's own samples of its operators. A result, also that of a change in place,
must be what the dense twin gives; an error must name the function, the type and the way out.
"""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils._pytree import tree_leaves, tree_map
from twins import MIRRORED, TYPES, called, dense, each_type, project

from packedtri import Hermitian, LowerTriangular, PackedTensor, _values, dispatch
from packedtri.ops import convert

DTYPES = (torch.float64, torch.complex128)
OVERRIDES = torch.overrides.get_testing_overrides()
SAMPLES = 2
# Their results are random, uninitialised, or determined up to signs only.
NOT_COMPARED = {
    "bernoulli", "empty_like", "new_empty", "new_empty_strided", "rand_like", "randn_like",
    "randint_like", "multinomial", "normal", "uniform", "cauchy", "exponential", "geometric",
    "log_normal", "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
    "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout",
    "nn.functional.rrelu",
    "nn.functional.scaled_dot_product_attention", "linalg.eig", "linalg.eigh", "linalg.svd", "svd",
    "linalg.qr", "qr", "geqrf", "pca_lowrank", "svd_lowrank", "empty_permuted", "empty_strided",
    "nn.functional.multi_head_attention_forward", "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d", "linalg.householder_product", "ormqr", "lobpcg",
    # Ties, which structural zeros are, may be ordered in any way.
    "argsort", "sort", "topk", "msort", "kthvalue", "mode", "median", "nanmedian",
}  # fmt: skip
# They are about the memory of a dense tensor, fill it at random, or write to several arguments.
REFUSED = {
    "view", "view_as", "view_as_real", "as_strided", "unfold", "as_strided_scatter",
    "as_strided_copy", "resize_", "resize_as_", "cauchy", "exponential", "geometric", "log_normal",
    "_native_batch_norm_legit", "_batch_norm_with_update",
}  # fmt: skip
# In place, a number or tensor changes the stored elements only: documented, and not compared.
STORED_ONLY = {"add", "sub", "clamp", "clamp_max", "clamp_min", "fill", "addcdiv", "div", "lerp"}


def square(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dim() >= 2 and x.shape[-1] == x.shape[-2] > 0


def twin(x: Any) -> Any:
    if isinstance(x, PackedTensor):
        return x.detach().to_dense()
    return x.detach().clone() if isinstance(x, Tensor) else x


def samples(op: Any, dtypes: tuple[torch.dtype, ...] = DTYPES) -> Iterator[Any]:
    """Sample inputs with a square first argument, or whose first of a list is square.

    Where there is none, they are made square.
    """
    dtype = next((d for d in dtypes if d in op.dtypes), None)
    if dtype is None:
        return
    others = []
    try:
        # Its method sample_inputs walks the call stack each time, for many seconds in all.
        for sample in itertools.islice(op.sample_inputs_func(op, "cpu", dtype, False), 20):
            first = sample.input
            if square(first) or (isinstance(first, (list, tuple)) and first and square(first[0])):
                others = None
                yield sample
            elif others is not None and isinstance(first, Tensor) and first.numel() > 0:
                others.append(sample)
        yield from map(squared, others or ())
    except Exception as error:
        # Some generators need a GPU or packages that are not there.
        warnings.warn(f"{op.name}: {error}", stacklevel=1)


def squared(sample: Any) -> Any:
    """A sample whose tensors of the shape of the first have 5 x 5 of its elements instead."""
    shape = sample.input.shape

    def cut(x: Any) -> Any:
        if not isinstance(x, Tensor) or x.shape != shape or x.layout != torch.strided:
            return x
        elements = x.detach().flatten()
        return elements[torch.arange(25) % elements.numel()].reshape(5, 5)

    args, kwargs = tree_map(cut, (tuple(sample.args), dict(sample.kwargs)))
    return SampleInput(cut(sample.input), args=args, kwargs=kwargs)


def packed(x: Any, cls: type[PackedTensor]) -> Any:
    dense = square(x) and x.layout == torch.strided
    return cls.from_dense(x.detach()) if dense and x.dtype in DTYPES else x


def attempt(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """What the function returns and what it leaves in its first argument, or its error."""
    torch.default_generator.manual_seed(0)
    try:
        return function(*args, **kwargs), args[0]
    except (RuntimeError, TypeError, ValueError, IndexError, AssertionError) as error:
        return error, None


def agree(ours: Any, expected: Any) -> None:
    a, b = (tree_leaves(tree_map(twin, r)) for r in (ours, expected))
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        if isinstance(y, Tensor) and not y.is_sparse:
            torch.testing.assert_close(x, y, equal_nan=True, check_dtype=True)


@pytest.mark.parametrize("op", op_db, ids=lambda op: op.formatted_name)
@pytest.mark.filterwarnings("ignore")
def test_operators_agree_with_dense_or_say_why_not(op, request):
    variants = {op.op, op.method_variant, op.inplace_variant, op.operator_variant} - {None}
    for i, sample in enumerate(itertools.islice(samples(op), SAMPLES)):
        cls = TYPES[(i + random.Random(op.name).randrange(len(TYPES))) % len(TYPES)]
        for function in variants:
            check(op, function, sample, cls)


COMPLEX = [op for op in op_db if torch.complex128 in op.dtypes]


@pytest.mark.parametrize("op", COMPLEX, ids=lambda op: op.formatted_name)
@pytest.mark.filterwarnings("ignore")
def test_operators_agree_on_complex_hermitian_matrices(op):
    variants = {op.op, op.method_variant, op.inplace_variant, op.operator_variant} - {None}
    for sample in itertools.islice(samples(op, (torch.complex128,)), SAMPLES):
        for function in variants:
            check(op, function, sample, Hermitian)


def check(op: Any, function: Callable[..., Any], sample: Any, cls: type[PackedTensor]) -> None:
    first = tree_map(lambda x: packed(x, cls), sample.input)
    dense = tree_map(twin, first)
    expected, left = attempt(function, dense, *sample.args, **sample.kwargs)
    ours, kept = attempt(function, first, *sample.args, **sample.kwargs)
    in_place = function is op.inplace_variant
    if isinstance(ours, NotImplementedError):
        text = str(ours)
        operator = isinstance(op.op, torch._ops.OpOverload)
        assert in_place or operator or op.name in REFUSED, text
        assert cls.__name__ in text, text
        assert any(way in text for way in ("to_dense", "new tensor", "from_dense", ".packed")), text
        return
    if isinstance(expected, Exception):
        assert isinstance(ours, Exception) or in_place, f"{function} gave {ours!r}, not {expected}"
        return
    if isinstance(ours, ValueError) and "contradicts" in str(ours):
        return  # Dense torch reads the zeros of the other triangle then.
    if isinstance(ours, Exception):
        raise ours
    if op.name in NOT_COMPARED or (in_place and op.name in STORED_ONLY):
        return
    agree(ours, expected)
    if in_place:
        agree(kept, left)


@pytest.mark.parametrize("cls", TYPES)
def test_changes_of_a_dense_copy_are_not_lost_in_silence(cls):
    """No name or argument says that these change what they get; only their effect shows it."""
    index = torch.tensor([0, 1])
    for change in (
        lambda t: torch.nn.functional.dropout(t, 0.5, True, True),
        lambda t: torch.nn.functional.embedding(index, t, max_norm=1e-3),
        lambda t: torch.nn.functional.rrelu(t, inplace=True),
    ):
        for context in (torch.no_grad(), torch.inference_mode()):
            with context, pytest.raises(NotImplementedError, match=rf"changed.*{cls.__name__}"):
                change(cls.randn(3))
    with pytest.raises(NotImplementedError, match="out="):
        torch.renorm(cls.randn(3), 2, 0, 1.0, out=cls.zeros(3))
    with pytest.raises(NotImplementedError, match="out="):
        torch.frexp(cls.randn(3), out=(cls.zeros(3), torch.zeros(3, 3, dtype=torch.int32)))


@each_type
def test_an_operand_that_is_given_twice_is_unpacked_once(cls):
    t, other = cls.randn(2, 4, requires_grad=True), cls.randn(2, 4)
    for call, count in (
        (lambda: torch.cat([t, t]), 0),
        (lambda: torch.cat([t, t], -1), 1),
        (lambda: torch.cat([t, other, t], -1), 2),
        (lambda: torch.linalg.vecdot(t, t), 1),
        (lambda: torch.kron(t, other), 2),
    ):
        assert sum("unpack" in name for name in called(call)) == count
    (ours,) = torch.autograd.grad(torch.linalg.vecdot(t, t).sum(), t)
    torch.testing.assert_close(ours, cls.from_dense(2 * dense(t.detach())))


def test_every_function_is_in_one_of_three_classes():
    """A new function of torch, or a row that goes, must not leave one without an answer."""
    t = LowerTriangular.randn(3)
    for function in OVERRIDES:
        how = dispatch.classify(function)
        assert how in ("native", "dense", "refused"), function
        if how != "refused":
            continue
        # Some want other arguments than these two.
        with pytest.raises((NotImplementedError, TypeError)) as info:
            LowerTriangular.__torch_function__(function, (LowerTriangular,), (t, t))
        # What is refused for its result may also fail in torch before it has one.
        if isinstance(info.value, NotImplementedError) and "_cpu" not in str(info.value):
            for part in (_values.function_name(function), "LowerTriangular", "(3, 3)"):
                assert part in str(info.value)


@each_type
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.complex64])
def test_what_a_quick_look_at_the_other_half_accepts(cls, dtype):
    """The halves are compared as a whole first, element by element where that leaves doubts."""
    size, eps = 5, torch.finfo(dtype).eps
    numbers = (0, 1, size * eps / 2, 3 * size * eps, float("inf"), -float("inf"), float("nan"))
    for base in (torch.full((size, size), float(cls in MIRRORED)), torch.zeros(size, size)):
        for own, other in itertools.product(numbers, numbers):
            x = base.to(dtype).repeat(2, 1, 1)
            x[1, 3, 1] += own
            x[1, 1, 3] += other
            stored = cls.from_dense(x).packed
            try:
                convert._check_other_half(cls, "", x, "")
            except ValueError:
                assert not convert.fits(cls, x, stored)
                with pytest.raises(ValueError, match="element"):
                    cls.from_dense(x, check=True)
            else:
                found = cls.from_dense(x, check=True)
                assert torch.equal(found.packed.isfinite(), stored.isfinite())
                assert not stored.isfinite().all() or convert.fits(cls, x, stored)


@each_type
def test_dense_operands_in_place_are_packed_where_they_fit(cls):
    t, d = cls.randn(2, 9, dtype=torch.float64), cls.randn(9, dtype=torch.float64).to_dense()
    for f in (
        lambda s, x: s.add_(x, alpha=2),
        lambda s, x: s.sub_(x),
        lambda s, x: s.lerp_(x, 0.25),
        lambda s, x: s.lerp_(x.expand(2, 9, 9), weight=0.5),
    ):
        ours, twin = t.clone(), t.to_dense()
        ops = called(lambda f=f, ours=ours: f(ours, d))
        f(twin, d)
        torch.testing.assert_close(ours.to_dense(), twin)
        assert not any("unpack" in op for op in ops)
        leaves = [s.clone().requires_grad_() for s in (t, d)]
        twins = [dense(s).detach().clone().requires_grad_() for s in leaves]
        results = [dense(f(a * 1, b)) for a, b in (leaves, twins)]
        torch.testing.assert_close(*results)
        grads, expected = (
            torch.autograd.grad((r * r.detach().sin()).sum(), pair)
            for r, pair in zip(results, (leaves, twins), strict=True)
        )
        torch.testing.assert_close(dense(grads[0]), project(cls, expected[0]))
        torch.testing.assert_close(project(cls, grads[1]), project(cls, expected[1]))
    wrong = d.clone()
    wrong[1:3, 1:3] = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    with pytest.raises(NotImplementedError, match="cannot hold the result: element"):
        t.add_(wrong)
