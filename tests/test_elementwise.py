"""Elementwise algebra: broadcasting, changes in place, remainders, clamps and complex parts."""

from __future__ import annotations

import operator
from decimal import Decimal
from fractions import Fraction

import pytest
import torch
from derivatives import check_derivatives
from torch import Tensor
from torch.nn import functional as F
from twins import MIRRORED, TRIANGULAR, dense, each_type, project, weighted_sum, wide

from packedtri import Hermitian, LowerTriangular, Symmetric
from packedtri.nn import PositiveDiagonal

each_triangular = pytest.mark.parametrize("cls", TRIANGULAR)


@each_type
@pytest.mark.parametrize("n", [1, 2, 33])
def test_rows_columns_and_batches_broadcast(cls, n):
    shapes = ((n,), (n, 1), (1, n), (3, 1, 1), (3, 1, n), (2, 1, n, 1), (n, n), (3, n, n))
    for shape in shapes:
        for batch in ((), (3,), (2, 1)):
            t = cls.randn(*batch, n, dtype=torch.float64, requires_grad=True)
            x = (torch.rand(shape, dtype=torch.float64) + 1).requires_grad_()
            twin = t.detach().to_dense().requires_grad_()
            for f in (torch.mul, torch.div, lambda a, b: b * a):
                ours, expected = f(t, x), f(twin, x)
                kept = cls in TRIANGULAR or set(shape[-2:]) == {1}
                assert type(ours) is (cls if kept else Tensor)
                torch.testing.assert_close(dense(ours), expected)
                weight = torch.randn_like(expected)
                a, b = torch.autograd.grad((dense(ours) * weight).sum(), (t, x))
                c, d = torch.autograd.grad((expected * weight).sum(), (twin, x))
                torch.testing.assert_close(a.to_dense(), project(cls, c))
                torch.testing.assert_close(b, d)


@pytest.mark.parametrize("cls", MIRRORED)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (3, 1, 1), (2, 1, 1, 1)], ids=str)
def test_numbers_of_each_matrix_keep_mirrored_types(cls, shape):
    """Tensors of them, beside functions that take numbers and those that take tensors alone."""
    functions = [
        torch.pow, torch.remainder, torch.fmod, torch.div, torch.atan2, torch.hypot, torch.maximum,
        torch.copysign, torch.xlogy, torch.logaddexp, torch.float_power, operator.pow,
        operator.truediv, operator.mod,
    ]  # fmt: skip
    t = cls(torch.rand(3, 6, dtype=torch.float64) + 0.5).requires_grad_()
    x = (torch.rand(shape, dtype=torch.float64) + 0.5).requires_grad_()
    twin = t.detach().to_dense().requires_grad_()
    for f in (
        *functions,
        *(lambda a, b, f=f: f(b, a) for f in functions),
        lambda a, b: a.clamp(min=b),
        lambda a, b: torch.clamp(a, b - 0.2, b),
    ):
        ours, expected = f(t, x), f(twin, x)
        assert type(ours) is cls
        torch.testing.assert_close(dense(ours), expected)
        for a, b in zip(
            torch.autograd.grad(weighted_sum(dense(ours)), (t, x)),
            torch.autograd.grad(weighted_sum(expected), (twin, x)),
            strict=True,
        ):
            torch.testing.assert_close(dense(a), project(cls, b) if b.shape == twin.shape else b)
    if len(shape) < 4:
        for name in ("pow_", "floor_divide_", "remainder_", "fmod_", "copysign_", "clamp_"):
            changed, number = t.detach().clone(), x.detach()
            getattr(changed, name)(number)
            expected = getattr(twin.detach().clone(), name)(number)
            torch.testing.assert_close(changed.to_dense(), expected)
    complex_t = cls.randn(3, 3, dtype=torch.complex128)
    power = complex_t ** x.detach()
    assert type(power) is (Tensor if cls is Hermitian else cls)
    torch.testing.assert_close(dense(power), complex_t.to_dense() ** x.detach())


@each_triangular
def test_powers_in_place_by_tensors_of_one_number(cls):
    """Their value decides whether zeros stay, so the result is dense until it is looked at."""
    for number in (torch.tensor(2.0), torch.tensor([2.0])):
        t = cls.randn(3)
        expected = t.to_dense() ** 2
        assert t.pow_(number) is t and torch.equal(t.to_dense(), expected)
        with pytest.raises(NotImplementedError, match=f"{cls.__name__} has 0"):
            t.pow_(number * 0)
        assert torch.equal(t.to_dense(), expected)


@each_type
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("n", [0, 1, 2, 17])
def test_dense_operands_that_nobody_records(cls, dtype, n):
    """The result takes the place of the unpacked copy: it is that of torch to the last bit."""
    functions = [
        torch.add, torch.sub, lambda a, b: a + b, lambda a, b: a - b, torch.rsub,
        lambda a, b: torch.sub(a, b, alpha=2),
    ]  # fmt: skip
    if cls in MIRRORED:
        functions += [torch.mul, torch.div, lambda a, b: a * b, lambda a, b: a / b]
        if not dtype.is_complex:
            functions.append(lambda a, b: torch.div(a, b, rounding_mode="floor"))
    for batch, shape in (
        ((), (n, n)), ((), (n,)), ((), (n, 1)), ((), (3, n, n)), ((0,), (n, n)),
        ((2, 1), (n, n)), ((2, 1), (2, 1, 1, n)), ((2, 1), (3, n, n)),
    ):  # fmt: skip
        t = cls.randn(*batch, n, dtype=dtype)
        packed, twin = t.packed.clone(), t.to_dense()
        for other in (dtype, torch.float64, torch.int64):
            x = (torch.rand(shape, dtype=torch.float64) * 9 + 1).to(other)
            before = x.clone()
            for f in functions:
                for ours, expected in ((f(t, x), f(twin, x)), (f(x, t), f(x, twin))):
                    torch.testing.assert_close(dense(ours), expected, rtol=0, atol=0)
            assert torch.equal(x, before) and torch.equal(t.packed, packed)


@each_type
def test_a_dense_operand_makes_no_second_copy(cls, monkeypatch):
    t, x = cls.randn(5), torch.rand(5, 5)
    monkeypatch.setattr("packedtri.ops.pointwise.densify", None)
    for f in (torch.add, torch.sub, *([torch.mul] if cls in MIRRORED else [])):
        assert type(f(t, x)) is type(f(x, t)) is Tensor
    if cls in MIRRORED:
        assert type(t / x) is type(t / x[0]) is Tensor


@each_type
def test_a_factor_of_each_matrix_keeps_the_type(cls):
    n = 3
    for batch, shape in (
        ((), (1,)), ((), (1, 1)), ((), (4, 1, 1)), ((2,), (1,)), ((2,), (2, 1, 1)),
        ((4, 1), (2, 1, 1)),
    ):  # fmt: skip
        leaf = cls.randn(*batch, n, dtype=torch.float64, requires_grad=True)
        factor = torch.randn(shape, dtype=torch.float64).add(3).requires_grad_()
        twins = leaf.detach().to_dense().requires_grad_(), factor.detach().requires_grad_()
        for f in (
            lambda t, x: t * x, lambda t, x: x * t, lambda t, x: t / x, torch.mul, torch.div,
            lambda t, x: torch.div(t, x, rounding_mode="floor"),
        ):  # fmt: skip
            ours, theirs = f(leaf, factor), f(*twins)
            assert type(ours) is cls
            torch.testing.assert_close(ours.to_dense(), theirs)
            ours, theirs = (
                torch.autograd.grad(weighted_sum(dense(y)), x, allow_unused=True)
                for y, x in ((ours, (leaf, factor)), (theirs, twins))
            )
            torch.testing.assert_close(ours[0].to_dense(), project(cls, theirs[0]))
            torch.testing.assert_close(ours[1], theirs[1])
        if leaf.shape == (leaf * factor).shape:
            t = leaf.detach().clone()
            assert t.mul_(factor.detach()) is t
            torch.testing.assert_close(t, (leaf * factor).detach())
    t, factor = cls.randn(n), torch.full((1, 1), 2j)
    ours = t * factor
    assert type(ours) is (Tensor if cls is Hermitian else cls)
    torch.testing.assert_close(dense(ours), t.to_dense() * factor)


@each_type
def test_results_are_written_to_out(cls):
    a, b = cls.randn(2, 5), cls.randn(2, 5)
    for f in (
        torch.add, torch.sub, torch.mul, torch.maximum, torch.min, torch.hypot,
        lambda a, b, **out: torch.add(a, b, alpha=3, **out),
    ):  # fmt: skip
        out = cls.zeros(2, 5)
        version = out._version
        assert f(a, b, out=out) is out and out._version > version
        torch.testing.assert_close(out, f(a, b))
        out = a.clone()
        torch.testing.assert_close(f(out, b, out=out), f(a, b))
    other = Symmetric if cls in TRIANGULAR else LowerTriangular
    for error, message, out in (
        (TypeError, f"add.* expected a {cls.__name__} for out; got", other.zeros(2, 5)),
        (ValueError, "add.* expected out of shape", cls.zeros(5)),
        (ValueError, "add.* expected out of shape", cls.zeros(2, 5).to("meta")),
        (RuntimeError, "add.* does not support automatic", cls.zeros(2, 5).requires_grad_()),
    ):
        with pytest.raises(error, match=message):
            torch.add(a, b, out=out)


@each_type
def test_clamps_and_remainders_depend_on_zero(cls):
    t = cls.randn(5)
    kept = {
        "clamp": lambda t: t.clamp(-0.5, 0.5),
        "clamp max": lambda t: torch.clamp(t, max=0),
        "clamp_min": lambda t: t.clamp_min(0.0),
        "hardtanh": F.hardtanh,
        "hardtanh from zero": lambda t: F.hardtanh(t, 0.0, 0.5),
        "fmod": lambda t: torch.fmod(t, 0.5),
        "floor": lambda t: t // 2,
        "remainder": lambda t: t % -0.3,
    }
    moved = {
        "clamp above zero": lambda t: t.clamp(0.5, 1),
        "clamp_max": lambda t: torch.clamp_max(t, -1),
        "hardtanh above zero": lambda t: F.hardtanh(t, 0.1, 1.0),
        "cos": torch.cos,
        "pow": lambda t: t**0,
        "exp2": lambda t: 2**t,
        "logsigmoid": F.logsigmoid,
    }
    for name, f in (kept | moved).items():
        assert type(f(t)) is (cls if name in kept or cls in MIRRORED else Tensor), name
        torch.testing.assert_close(dense(f(t)), f(t.to_dense()), equal_nan=True)


@each_type
def test_two_matrices_of_a_type(cls):
    a, b = cls.randn(2, 5), cls.randn(2, 5)
    for f in (
        torch.hypot, torch.atan2, torch.maximum, torch.max, Tensor.min,
        lambda a, b: torch.max(a, other=b), lambda a, b: torch.lerp(a, b, 0.3),
    ):  # fmt: skip
        assert type(f(a, b)) is cls
        torch.testing.assert_close(f(a, b).to_dense(), f(a.to_dense(), b.to_dense()))
    # Structural zeros stay in quotients, as in those by a dense matrix.
    assert type(a / b) is cls
    torch.testing.assert_close((a / b).to_dense(), (a.to_dense() / b.to_dense()).nan_to_num(0.0))
    torch.testing.assert_close(a.clone().div_(b), a / b)
    for f in (torch.logaddexp, torch.remainder, lambda a, b: torch.addcdiv(a, a, b)):
        assert type(f(a, b)) is (cls if cls in MIRRORED else Tensor)
        torch.testing.assert_close(
            dense(f(a, b)), f(a.to_dense(), b.to_dense()), equal_nan=True, rtol=1e-4, atol=1e-4
        )


@each_type
def test_activations_in_place(cls):
    for f in (F.relu, F.silu, F.elu, F.leaky_relu, torch.relu_, F.selu_, torch.celu_):
        leaf = cls.randn(4, dtype=torch.float64, requires_grad=True)
        twin = leaf.detach().to_dense().requires_grad_()
        ours, expected = leaf * 1, twin * 1
        inplace = {} if f.__name__.endswith("_") else {"inplace": True}
        assert f(ours, **inplace) is ours
        f(expected, **inplace)
        torch.testing.assert_close(ours.to_dense(), expected)
        ours.sum().backward()
        expected.sum().backward()
        torch.testing.assert_close(leaf.grad.to_dense(), project(cls, twin.grad))


@each_triangular
def test_rows_and_columns_scale_in_place(cls):
    x = torch.rand(4, dtype=torch.float64) + 1
    leaf = cls.randn(2, 4, dtype=torch.float64, requires_grad=True)
    twin = leaf.detach().to_dense().requires_grad_()
    ours, expected = leaf * 1, twin * 1
    for t in (ours, expected):
        t *= x
        t.div_(x[:, None] * 3)
    torch.testing.assert_close(ours.to_dense(), expected)
    ours.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(leaf.grad.to_dense(), project(cls, twin.grad))


@each_type
def test_operators_that_assign(cls):
    t = cls.randn(4)
    d = t.to_dense()
    same = t
    t **= 2
    t *= 3.0
    t /= 2
    t += t
    assert t is same
    torch.testing.assert_close(t.to_dense(), (d**2) * 3)


@each_type
@wide
def test_numbers_that_torch_does_not_know(cls, wide):
    """A power of a fraction, or by one, is that of a float; the rest are Python's errors."""
    t = cls.randn(2, dtype=wide)
    for name in ("sub", "truediv", "floordiv", "mod", "pow", "itruediv", "ifloordiv", "ipow"):
        compute = getattr(operator, name)
        for number in (Fraction(3, 2), Decimal(2)):
            for pair in ((t, number), (number, t)):
                if name.endswith("pow") and type(number) is Fraction:
                    expected = compute(*map(dense, pair))
                    torch.testing.assert_close(dense(compute(*pair)), expected, equal_nan=True)
                else:
                    with pytest.raises(TypeError):
                        compute(*pair)


@each_type
def test_comparisons(cls):
    a, b = cls.randn(4), cls.randn(4)
    for f in (torch.eq, torch.lt, torch.ge, lambda a, b: a != b, torch.isclose):
        assert type(f(a, b)) is Tensor and f(a, b).dtype == torch.bool
        assert torch.equal(f(a, b), f(a.to_dense(), b.to_dense()))
    assert torch.equal(a, a.to_dense()) and torch.allclose(a.to_dense(), a)
    assert not torch.equal(a, b)
    torch.testing.assert_close(a, a.clone())
    torch.testing.assert_close(a, a.to_dense())
    torch.testing.assert_close(a.to_dense(), a)
    with pytest.raises(AssertionError, match="not close"):
        torch.testing.assert_close(a, b)
    chosen = torch.where(a > b, a, 0.0)
    assert type(chosen) is Tensor and torch.equal(chosen, a.to_dense() * (a > b))


@each_type
def test_complex_parts_keep_the_type(cls):
    z = cls.randn(2, 3, dtype=torch.complex128)
    for f in (torch.real, torch.imag, torch.abs, torch.angle, torch.conj, torch.conj_physical):
        # Imaginary parts and angles of a Hermitian matrix change their sign across the diagonal.
        skew = cls is Hermitian and f in (torch.imag, torch.angle)
        assert type(f(z)) is (Tensor if skew else cls)
        torch.testing.assert_close(dense(f(z)), f(z.to_dense()))
    assert type(z.mH) is type(z.adjoint()) is cls.transposed
    torch.testing.assert_close(z.mH.to_dense().resolve_conj(), z.to_dense().mH.resolve_conj())
    x, y = cls.randn(3), cls.randn(3)
    assert type(torch.complex(x, y)) is (Tensor if cls is Hermitian else cls)
    assert torch.equal(dense(torch.complex(x, y).imag), dense(y))


@each_triangular
def test_a_positive_diagonal(cls):
    x = cls.randn(2, 3, dtype=torch.float64)
    f = PositiveDiagonal(shift=0.5)
    y = f(x)
    assert type(y) is cls and (y.diagonal(0, -2, -1) > 0.5).all()
    torch.testing.assert_close(y.diagonal(0, -2, -1), F.softplus(x.diagonal(0, -2, -1)) + 0.5)
    torch.testing.assert_close(f.right_inverse(y), x)
    big = cls.eye(3) * 1e4
    torch.testing.assert_close(f(f.right_inverse(big)), big)
    p = x.packed.clone().requires_grad_()
    check_derivatives(lambda p: f(cls(p)).packed, p)
    with pytest.raises(ValueError, match="greater than 0.5"):
        f.right_inverse(cls.zeros(3))
    for wrong in (Symmetric.eye(2), torch.eye(2)):
        with pytest.raises(TypeError, match="PositiveDiagonal"):
            f(wrong)
    layer = torch.nn.Linear(3, 3, bias=False)
    layer.scale = torch.nn.Parameter(cls.eye(3))
    torch.nn.utils.parametrize.register_parametrization(
        layer, "scale", PositiveDiagonal(), unsafe=True
    )
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    before = layer.scale.detach().clone()
    layer.scale.to_dense().square().sum().backward()
    optimizer.step()
    assert (layer.scale.diagonal() < before.diagonal()).all() and (layer.scale.diagonal() > 0).all()


@wide
@each_type
def test_lerp_by_a_number_in_a_tensor(cls, wide, device):
    a, b = (cls.randn(2, 3, dtype=wide, device=device, requires_grad=True) for _ in range(2))
    x, y = (t.detach().to_dense().requires_grad_() for t in (a, b))
    weights = [torch.full((), 0.3, dtype=wide, device=device, requires_grad=True) for _ in "ab"]
    ours, expected = torch.lerp(a, b, weights[0]), torch.lerp(x, y, weights[1])
    kept = cls is not Hermitian or not wide.is_complex
    assert type(ours) is (cls if kept else Tensor)
    torch.testing.assert_close(dense(ours), expected)
    for result in (ours, expected):
        weighted_sum(dense(result)).backward()
    torch.testing.assert_close(weights[0].grad, weights[1].grad)
    for t, twin in ((a, x), (b, y)):
        torch.testing.assert_close(t.grad.to_dense(), project(cls, twin.grad))
    assert type(torch.lerp(a, b, weights[0].detach().expand(3, 3))) is Tensor


@pytest.mark.parametrize("shift", [1e-5, 0.1])
@each_triangular
def test_a_diagonal_just_above_the_shift(cls, shift, dtype):
    """The message must not call a number too small that is greater than the shift."""
    if dtype.is_complex:
        pytest.skip("softplus takes real numbers")
    f, at_shift = PositiveDiagonal(shift), torch.tensor(shift, dtype=dtype)
    above, below = (torch.nextafter(at_shift, at_shift.new_tensor(v)) for v in (1.0, 0.0))
    for value in (below, at_shift, above):
        x = cls.eye(2, dtype=dtype).set_diagonal_(value.expand(2))
        if value.item() > shift:
            torch.testing.assert_close(f(f.right_inverse(x)), x)
        else:
            with pytest.raises(ValueError, match=f"greater than {shift}; got {value.item()}"):
                f.right_inverse(x)


@pytest.mark.parametrize("cls", TRIANGULAR)
def test_the_number_zero_keeps_a_triangle(cls):
    terms = [cls.randn(2, 3, requires_grad=True) for _ in range(3)]
    total = sum(terms)
    assert type(total) is cls
    torch.testing.assert_close(dense(total), sum(map(dense, terms)))
    total.to_dense().square().sum().backward()
    for t in terms:
        torch.testing.assert_close(t.grad, cls.from_dense(2 * dense(total).detach()))
    t = terms[0].detach()
    for f in (lambda x: x + 0, lambda x: x - 0.0, lambda x: 0 - x, lambda x: torch.add(x, 0)):
        assert type(f(t)) is cls
        torch.testing.assert_close(dense(f(t)), f(dense(t)))
    assert type(t + 1) is type(t + torch.tensor(0.0)) is torch.Tensor


@each_type
@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_no_type_has_complex_elements_of_16_bits(cls, device):
    """Torch makes them of float16 and complex numbers; the result is dense then."""
    t = cls.randn(3, dtype=torch.float16, device=device)
    batch = cls.randn(2, 3, dtype=torch.float16, device=device)
    number = torch.full((), 1j, dtype=torch.complex32, device=device)
    numbers = number.expand(2, 1, 1)
    for f, x in (
        (lambda t: t * 1j, t),
        (lambda t: 1j * t, t),
        (lambda t: t.mul(number), t),
        (lambda t: number * t, t),
        (lambda t: t * numbers, batch),
        (lambda t: numbers * t, batch),
        (lambda t: t + 1j, t),
        (lambda t: 1j - t, t),
        (lambda t: torch.add(1j, t), t),
        (lambda t: 1j / t, t),
        (lambda t: torch.complex(t, t), t),
    ):
        result, expected = f(x), f(x.to_dense())
        assert type(result) is torch.Tensor and result.dtype == expected.dtype == torch.complex32
        as_numbers = result.to(torch.complex64), expected.to(torch.complex64)
        torch.testing.assert_close(*as_numbers, equal_nan=True, rtol=0, atol=0)
    for f in (torch._foreach_mul, torch._foreach_add):
        with pytest.raises(NotImplementedError, match=cls.__name__):
            f([t], 1j)
    # Others become complex numbers that types have, of Hermitian matrices dense.
    kept = torch.Tensor if cls is Hermitian else cls
    for other in (t.bfloat16(), t.float()):
        # Some versions of torch have complex numbers of bfloat16, but cannot compute with them.
        if torch.result_type(other, 1j) == torch.complex64:
            assert type(other * 1j) is kept
