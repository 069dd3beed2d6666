"""Solves, inverses and determinants of packed types: value, type and errors."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from systems import MIRRORED, TRIANGULAR, TYPES, WIDE, assert_near, dense, make, wide
from torch import Tensor
from twins import project

import packedtri
from packedtri import LowerTriangular, Symmetric, UpperTriangular
from packedtri.layout import UPPER
from packedtri.testing import random

LinAlgError = torch.linalg.LinAlgError


# ------------------------------------------------------------------------------------------ solves


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("function", [torch.linalg.solve_triangular, torch.linalg.solve])
@pytest.mark.parametrize("cls", TRIANGULAR)
def test_triangular_systems(cls, function, left, dtype, device, rng):
    options = {"upper": cls.kind == UPPER} if function is torch.linalg.solve_triangular else {}
    for n, m in itertools.product((0, 1, 3, 33), (0, 1, 5)):
        a = make(cls, n, dtype, (), device, rng)
        b = random((n, m) if left else (m, n), dtype, device, rng)
        x = function(a, b, left=left, **options)
        assert type(x) is Tensor
        expected = function(wide(a), wide(b), left=left, **options)
        assert_near(x, expected, dtype, f"{n=} {m=}")


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("pair", list(itertools.product(TRIANGULAR, TYPES)))
def test_packed_right_hand_sides(pair, left, dtype, device, rng):
    for n in (0, 1, 2, 31, 65):
        a, b = (make(cls, n, dtype, (), device, rng) for cls in pair)
        upper = pair[0].kind == UPPER
        expected = torch.linalg.solve_triangular(wide(a), wide(b), upper=upper, left=left)
        for x in (
            torch.linalg.solve_triangular(a, b, upper=upper, left=left),
            torch.linalg.solve(a, b, left=left),
        ):
            assert type(x) is (pair[0] if pair[0] is pair[1] else Tensor)
            assert_near(x, expected, dtype, f"{n=}")


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("pair", list(itertools.product(TRIANGULAR, (*TRIANGULAR, Tensor))))
def test_unit_diagonal(pair, left, rng):
    n = 20
    a = make(pair[0], n, torch.float64, (), "cpu", rng)
    b = torch.randn(n, n).double() if pair[1] is Tensor else make(pair[1], n, torch.float64)
    options = {"upper": pair[0].kind == UPPER, "left": left, "unitriangular": True}
    x = torch.linalg.solve_triangular(a, b, **options)
    expected = torch.linalg.solve_triangular(dense(a), dense(b), **options)
    assert_near(x, expected, torch.float64)


BATCHES = [((1,), (3,)), ((3,), ()), ((), (3,)), ((2, 1), (3,)), ((3, 4), (3, 4)), ((0,), (1,))]


@pytest.mark.parametrize("batches", BATCHES)
@pytest.mark.parametrize("cls", TYPES)
def test_batches(cls, batches, device, rng):
    n, dtype = 5, torch.float64
    a = make(cls, n, dtype, batches[0], device, rng)
    b = random((*batches[1], n, 2), dtype, device, rng)
    assert_near(torch.linalg.solve(a, b), torch.linalg.solve(dense(a), b), dtype)
    if cls not in MIRRORED:
        other = make(cls, n, dtype, batches[1], device, rng)
        x = torch.linalg.solve_triangular(a, other, upper=cls.kind == UPPER)
        assert type(x) is cls
        assert_near(x, torch.linalg.solve(dense(a), dense(other)), dtype)
    inverse = torch.linalg.inv(a)
    assert type(inverse) is cls
    assert_near(inverse, torch.linalg.inv(dense(a)), dtype)


@pytest.mark.parametrize("cls", TYPES)
def test_vectors(cls, device, rng):
    for batch, shape in (((), (4,)), ((3,), (3, 4)), ((3,), (4,))):
        a = make(cls, 4, torch.float64, batch, device, rng)
        b = random(shape, torch.float64, device, rng)
        assert_near(torch.linalg.solve(a, b), torch.linalg.solve(dense(a), b), torch.float64)


@pytest.mark.parametrize("definite", [True, False])
@pytest.mark.parametrize("left", [True, False])
def test_symmetric_systems(definite, left, dtype, device, rng):
    for n in (0, 1, 4, 40):
        a = make(Symmetric, n, dtype, (), device, rng)
        if not definite and n:
            a.packed[-1] = -3
        if dtype.itemsize == 2 and n == 0:
            continue
        b = random((n, 3) if left else (3, n), dtype, device, rng)
        expected = torch.linalg.solve(wide(a), wide(b), left=left)
        assert_near(torch.linalg.solve(a, b, left=left), expected, dtype, f"{n=}")
        assert_near(torch.linalg.inv(a), torch.linalg.inv(wide(a)), dtype, f"{n=}")
    for other in TYPES:
        b = make(other, n, dtype, (), device, rng)
        expected = torch.linalg.solve(wide(a), wide(b), left=left)
        assert_near(torch.linalg.solve(a, b, left=left), expected, dtype, other.__name__)


@pytest.mark.parametrize("cls", TRIANGULAR)
def test_cholesky_solve(cls, dtype, device, rng):
    upper = cls.kind == UPPER
    for n, batch in ((1, ()), (4, (2,)), (40, ())):
        factor = make(cls, n, dtype, batch, device, rng)
        f = wide(factor)
        a = f.mH @ f if upper else f @ f.mH
        for b in (random((n, 3), dtype, device, rng), make(LowerTriangular, n, dtype)):
            b = b.to(device) if type(b) is Tensor else type(b)(b.packed.to(device))
            x = torch.cholesky_solve(b, factor, upper=upper)
            assert type(x) is Tensor
            assert_near(x, torch.linalg.solve(a, wide(b)), dtype)
    assert torch.equal(b.to_dense().cholesky_solve(factor, upper), x)


@pytest.mark.filterwarnings("ignore:torch.triangular_solve is deprecated")
@pytest.mark.parametrize("transpose", [True, False])
@pytest.mark.parametrize("cls", TRIANGULAR)
def test_triangular_solve(cls, transpose, rng):
    a, b = make(cls, 6, torch.float64), torch.randn(6, 2, dtype=torch.float64)
    upper = cls.kind == UPPER
    expected = torch.triangular_solve(b, a.to_dense(), upper, transpose)
    x = torch.triangular_solve(b, a, upper, transpose)
    assert_near(x.solution, expected.solution, torch.float64)
    assert type(x.cloned_coefficient) is cls and torch.equal(dense(x[1]), dense(a))
    # The copy has the batch dimensions of the solution.
    batch = torch.randn(3, 6, 2, dtype=torch.float64)
    expected = torch.triangular_solve(batch, a.to_dense(), upper, transpose)
    x = torch.triangular_solve(batch, a, upper, transpose)
    assert type(x[1]) is cls and torch.equal(dense(x[1]), expected.cloned_coefficient)


# ------------------------------------------------------------------------- inverses, determinants


@pytest.mark.parametrize("cls", TYPES)
def test_inverses_keep_the_type(cls, dtype, device, rng):
    for n in (0, 1, 2, 33, 65):
        if dtype.itemsize == 2 and cls in MIRRORED and n == 0:
            continue
        a = make(cls, n, dtype, (), device, rng)
        expected = torch.linalg.inv(wide(a))
        found = [torch.linalg.inv(a), torch.inverse(a), a.inverse()]
        inverse, info = torch.linalg.inv_ex(a)
        assert info.dtype == torch.int32 and not info.any()
        for x in (*found, inverse):
            assert type(x) is cls
            assert_near(x, expected, dtype, f"{n=}")


@pytest.mark.parametrize("cls", TYPES)
def test_determinants(cls, device, rng):
    for dtype, n, sign in itertools.product(WIDE, (0, 1, 2, 9), (1, -1)):
        a = make(cls, n, dtype, (2,), device, rng)
        if n:
            a.packed[..., -1] *= sign
        d = dense(a)
        close = torch.testing.assert_close
        for det in (torch.det, torch.linalg.det, Tensor.det):
            close(det(a), det(d))
        for slogdet in (torch.slogdet, torch.linalg.slogdet):
            ours, theirs = slogdet(a), slogdet(d)
            assert type(ours) is type(theirs)
            close(tuple(ours), tuple(theirs))
        if dtype.is_complex:
            close(torch.logdet(a).exp(), torch.logdet(d).exp())
        else:
            close(torch.logdet(a), torch.logdet(d), equal_nan=True)


@pytest.mark.parametrize("cls", TYPES)
@pytest.mark.parametrize("dtype", WIDE)
def test_the_sign_of_a_determinant_takes_part_in_autograd(cls, dtype, device, rng) -> None:
    for slogdet in (torch.slogdet, torch.linalg.slogdet):
        a = make(cls, 5, dtype, (2,), device, rng).detach().requires_grad_()
        d = a.detach().to_dense().requires_grad_()
        for x in (a, d):
            sign = slogdet(x)[0]
            (sign.imag if dtype.is_complex else sign).sum().backward()
        # Of real matrices the engine gets no gradient from torch, which stands for zero.
        expected = torch.zeros_like(d) if d.grad is None else project(cls, d.grad)
        torch.testing.assert_close(a.grad.to_dense(), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("cls", [LowerTriangular, UpperTriangular])
def test_determinants_of_16_bits_are_rounded_once(cls, dtype, device) -> None:
    """The product and the sum of a thousand elements, in which each would round."""
    a = (cls.eye(1000, device=device) * 1.0078125).to(dtype)
    d = a.to_dense().float()
    assert torch.equal(torch.det(a), torch.det(d).to(dtype))
    assert torch.equal(torch.logdet(a), torch.logdet(d).to(dtype))
    assert torch.equal(torch.slogdet(a).logabsdet, torch.slogdet(d).logabsdet.to(dtype))
    large = cls.from_dense(torch.diag(torch.tensor([300.0, 300, 0.01, 0.01], device=device)))
    torch.testing.assert_close(torch.det(large.to(dtype)).item(), 9.0, rtol=0.02, atol=0)


@pytest.mark.parametrize(
    ("wide", "sizes"),
    [(torch.complex64, (1e-44, 2.9e-39, 2e38)), (torch.complex128, (1e-310, 1e308))],
)
def test_complex_divisors_near_the_ends_of_the_range(wide, sizes) -> None:
    for size in sizes:
        d = torch.tensor([[complex(size, size)]], dtype=wide)
        for n in (1, 9, 70):
            a = LowerTriangular.from_dense(d * torch.eye(n, dtype=wide))
            for m in (1, 3, 40):
                x = torch.full((n, m), complex(size, 0), dtype=wide)
                y = torch.linalg.solve_triangular(a, x, upper=False)
                torch.testing.assert_close(y, torch.full_like(y, 0.5 - 0.5j))


def test_determinant_of_a_singular_triangle() -> None:
    a = LowerTriangular.zeros(2)
    assert torch.det(a) == 0 and torch.logdet(a) == -torch.inf
    assert tuple(torch.slogdet(a)) == (0, -torch.inf)
    for f in (torch.logdet, lambda t: torch.slogdet(t)[1], lambda t: torch.linalg.slogdet(t)[1]):
        leaf = LowerTriangular(torch.tensor([0.0, 1.0, 3.0])).requires_grad_()
        twin = leaf.detach().to_dense().requires_grad_()
        f(leaf).backward()
        f(twin).backward()
        torch.testing.assert_close(leaf.grad.to_dense(), twin.grad.tril())
        assert leaf.grad[0, 0] == torch.inf


def test_inv_quad_logdet(rng) -> None:
    for n, batch, columns in ((1, (), 1), (5, (3,), 2), (40, (), 3)):
        s = make(Symmetric, n, torch.float64, batch, "cpu", rng)
        b = random((*batch, n, columns), torch.float64, generator=rng)
        inv_quad, logdet = packedtri.inv_quad_logdet(s, b)
        expected = (b * torch.linalg.solve(dense(s), b)).sum((-2, -1))
        torch.testing.assert_close(inv_quad, expected)
        torch.testing.assert_close(logdet, torch.logdet(dense(s)))
    first = packedtri.inv_quad_logdet(s, b[:, 0])[0]
    torch.testing.assert_close(first, packedtri.inv_quad_logdet(s, b[:, :1])[0])


@pytest.mark.parametrize("cls", TYPES)
def test_inv_quad_logdet_of_packed_right_hand_sides(cls, rng) -> None:
    for batch, other in (((), ()), ((2,), (2,)), ((2,), ()), ((4,), ())):
        s = make(Symmetric, 4, torch.float64, batch, "cpu", rng)
        b = make(cls, 4, torch.float64, other, "cpu", rng)
        # Of dense elements (4, 4) beside a batch of 4 would be vectors; a type is a matrix.
        expected = packedtri.inv_quad_logdet(s, dense(b).expand(*batch, 4, 4))
        torch.testing.assert_close(packedtri.inv_quad_logdet(s, b), expected)


def test_inv_quad_logdet_of_a_vector_for_each_matrix(rng) -> None:
    for n, batch in ((3, (3,)), (3, (2,)), (2, (3, 2)), (4, (0,))):
        s = make(Symmetric, n, torch.float64, batch, "cpu", rng)
        b = random((*batch, n), torch.float64, generator=rng)
        inv_quad, logdet = packedtri.inv_quad_logdet(s, b)
        expected = (b * torch.linalg.solve(dense(s), b)).sum(-1)
        torch.testing.assert_close(inv_quad, expected)
        torch.testing.assert_close(logdet, torch.logdet(dense(s)))
    # Beside one matrix a tensor of two dimensions has columns, and so it has at any other shape.
    s, b = make(Symmetric, 3, torch.float64), torch.eye(3, dtype=torch.float64)
    trace = torch.linalg.inv(dense(s)).trace()
    for matrix in (s, torch.stack([s, s])):
        for found in packedtri.inv_quad_logdet(matrix, b)[0].reshape(-1):
            torch.testing.assert_close(found, trace)


def test_inv_quad_logdet_has_the_batch_of_both_arguments(rng) -> None:
    for batch, other in (((), (3,)), ((2, 1), (3,)), ((3,), ()), ((1,), (0,))):
        s = make(Symmetric, 4, torch.float64, batch, "cpu", rng)
        b = random((*other, 4, 2), torch.float64, generator=rng)
        inv_quad, logdet = packedtri.inv_quad_logdet(s, b)
        expected = torch.broadcast_shapes(batch, other)
        assert inv_quad.shape == logdet.shape == expected
        torch.testing.assert_close(logdet, torch.logdet(dense(s)).expand(expected))


# ------------------------------------------------------------------------------------ 16-bit types

# What goes by a factorization, or by an inverse, on the way to its result.
IN_STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "solve": torch.linalg.solve,
    "solve right": lambda s, b: torch.linalg.solve(s, b.mT, left=False),
    "solve a triangle": lambda s, b: torch.linalg.solve(s, s.detach().tril()),
    "solve_ex": lambda s, b: torch.linalg.solve_ex(s, b)[0],
    "inv": lambda s, b: torch.linalg.inv(s),
    "inv_ex": lambda s, b: torch.linalg.inv_ex(s)[0],
    "cholesky_solve": lambda s, b: torch.cholesky_solve(b, s.tril()),
    "cholesky_solve upper": lambda s, b: torch.cholesky_solve(b, s.triu(), upper=True),
    "cholesky_inverse": lambda s, b: torch.cholesky_inverse(s.tril()),
    "cholesky_inverse upper": lambda s, b: torch.cholesky_inverse(s.triu(), upper=True),
    "inv_quad": lambda s, b: packedtri.inv_quad_logdet(s, b)[0],
    "inv_quad_logdet": lambda s, b: packedtri.inv_quad_logdet(s, b)[1],
    "det": lambda s, b: torch.det(s),
    "logdet": lambda s, b: torch.logdet(s),
    "slogdet": lambda s, b: torch.slogdet(s)[1],
    "power": lambda s, b: torch.linalg.matrix_power(s, -3),
    "power of a triangle": lambda s, b: torch.linalg.matrix_power(s.tril(), -3),
}
# Those that take indefinite matrices, which torch factors in float32 too.
BY_LU = ("solve", "solve right", "solve a triangle", "solve_ex", "inv", "inv_ex", "det", "slogdet")


@pytest.mark.parametrize("name", IN_STEPS)
@pytest.mark.parametrize("cls", MIRRORED)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_results_are_rounded_once(cls, name, dtype, device, rng):
    """Otherwise the condition number would multiply the rounding of what is in between."""
    f = IN_STEPS[name]
    x = random((4, 9, 9), torch.float32, device, rng)
    # Condition numbers up to about a hundred.
    s = cls.from_dense(x @ x.mT / 9 + 0.05 * torch.eye(9, device=device)).to(dtype)
    b = random((4, 9, 3), dtype, device, rng)
    check_rounded_once(f, s, b, rng)


@pytest.mark.parametrize("name", BY_LU)
@pytest.mark.parametrize("cls", MIRRORED)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_results_of_indefinite_matrices_are_rounded_once(cls, name, dtype, device, rng):
    x = random((4, 9, 9), torch.float32, device, rng) / 9
    signs = torch.tensor([1.0, -1] * 4 + [1], device=device)
    s = cls.from_dense(x + x.mT + torch.diag(signs)).to(dtype)
    f, b = IN_STEPS[name], random((4, 9, 3), dtype, device, rng)
    check_rounded_once(f, s, b, rng)
    compiled = torch.compile(f, backend="aot_eager", fullgraph=True)(s, b)
    assert torch.equal(dense(compiled), dense(f(s, b)))


def check_rounded_once(f, s, b, rng):
    """The result in 16 bits is that in float32, rounded, and so are the gradients."""
    dtype, device = s.dtype, s.device
    narrow = s.detach().requires_grad_(), b.detach().requires_grad_()
    wide = [t.detach().float().requires_grad_() for t in narrow]
    ours, expected = f(*narrow), f(*wide)
    assert type(ours) is type(expected) and ours.dtype == dtype
    ours, expected = (y.to_dense() for y in (ours, expected))
    assert torch.equal(ours, expected.to(dtype))
    # Two of these have an exact sum, which is the gradient of an element that a type mirrors.
    weight = random(ours.shape, dtype, device, rng).sign() / 64
    pairs = ((ours, narrow, weight), (expected, wide, weight.float()))
    grads = [torch.autograd.grad(y, t, w, allow_unused=True) for y, t, w in pairs]
    for found, grad in zip(*grads, strict=True):
        assert (found is None) == (grad is None)
        if grad is not None:
            assert type(found) is type(grad) and found.dtype == dtype
            torch.testing.assert_close(dense(found), dense(grad).to(dtype))


# ------------------------------------------------------------------------------------------- errors


def test_a_number_is_no_right_hand_side() -> None:
    for n in (0, 2):
        with pytest.raises(ValueError, match="expected a right-hand side"):
            packedtri.inv_quad_logdet(Symmetric.eye(n), torch.tensor(1.0))


def check_same_error(ours: Callable[[], Any], theirs: Callable[[], Any]) -> None:
    with pytest.raises(LinAlgError) as expected:
        theirs()
    with pytest.raises(LinAlgError) as got:
        ours()
    assert str(got.value) == str(expected.value)


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("function", ["linalg.inv", "inverse", "linalg.solve"])
@pytest.mark.parametrize("cls", TRIANGULAR)
def test_singular_triangles_raise_as_torch_does(cls, function, batch):
    a = make(cls, 3, torch.float32, batch)
    # Torch pivots, and names another column for a zero further up in a lower triangle.
    a.packed[..., -1] = 0
    f = {"linalg.inv": torch.linalg.inv, "inverse": torch.inverse}.get(
        function, lambda a: torch.linalg.solve(a, torch.ones(*batch, 3, 1))
    )
    check_same_error(lambda: f(a), lambda: f(a.to_dense()))


@pytest.mark.parametrize("cls", TYPES)
def test_solve_ex_tells_what_solve_raises(cls, dtype, device, rng):
    """The solution is that of solve, and the first pivot that is zero is told or raised."""
    for batch, left in itertools.product(((), (2,)), (True, False)):
        a = make(cls, 5, dtype, batch, device, rng)
        sides = [a, random((*batch, *((5, 3) if left else (3, 5))), dtype, device, rng)]
        sides += [random((*batch, 5), dtype, device, rng)] if left else []
        for b in sides:
            x, info = found = torch.linalg.solve_ex(a, b, left=left)
            expected = torch.linalg.solve(a, b, left=left)
            assert type(x) is type(expected)
            assert torch.equal(dense(x), dense(expected))
            assert info.dtype == torch.int32 and info.shape == batch and not info.any()
            assert type(found) is torch.return_types.linalg_solve_ex
        zero = cls.zeros(*batch, 5, dtype=dtype, device=device)
        b = torch.ones(*batch, 5, 5, dtype=dtype, device=device)
        assert (torch.linalg.solve_ex(zero, b, left=left).info == 1).all()
        with pytest.raises(LinAlgError, match="solve_ex.*singular"):
            torch.linalg.solve_ex(zero, b, left=left, check_errors=True)
        with pytest.raises(ValueError, match=r"linalg.solve_ex. expected a right-hand side"):
            torch.linalg.solve_ex(a, b[..., :3, :3])


def test_solve_ex_of_an_indefinite_matrix_in_forward_mode():
    p, b = torch.tensor([1.0, 3.0, 1.0], dtype=torch.float64), torch.ones(2, 1).double()
    ours = torch.func.jacfwd(lambda p: torch.linalg.solve_ex(Symmetric(p), b).result)(p)
    dense = torch.func.jacfwd(lambda p: torch.linalg.inv(Symmetric(p).to_dense()) @ b)(p)
    torch.testing.assert_close(ours, dense)


def test_inv_ex_of_a_singular_triangle():
    a = LowerTriangular(torch.tensor([1.0, 1.0, 0.0]))
    assert torch.linalg.inv_ex(a).info.item() == 2
    with pytest.raises(LinAlgError, match="diagonal element 2"):
        torch.linalg.inv_ex(a, check_errors=True)


@pytest.mark.parametrize("cls", TRIANGULAR)
def test_upper_must_not_contradict_the_type(cls):
    a, b, wrong = cls.eye(3), torch.ones(3, 1), cls.kind != UPPER
    for f in (
        lambda: torch.linalg.solve_triangular(a, b, upper=wrong),
        lambda: torch.cholesky_solve(b, a, upper=wrong),
        lambda: torch.triangular_solve(b, a, upper=wrong),
        lambda: torch.cholesky_inverse(a, upper=wrong),
    ):
        with pytest.raises(ValueError, match=f"upper={wrong} contradicts {cls.__name__}"):
            f()


def test_errors_name_operands_and_the_way_out():
    a, s, b = LowerTriangular.eye(3), Symmetric.eye(3), torch.ones(3, 1)
    solve = partial(torch.linalg.solve_triangular, upper=False)
    with pytest.raises(
        ValueError, match=r"right-hand side .* LowerTriangular \(3, 3\); got Tensor"
    ):
        solve(a, torch.ones(4, 1))
    with pytest.raises(ValueError, match="same dtype and device"):
        solve(a, b.double())
    for c in (torch.stack([a, a]), torch.stack([s, s])):
        with pytest.raises(ValueError, match=r"\[linalg.solve\] expected batch dimensions"):
            torch.linalg.solve(c, torch.ones(3, 3, 1))
    with pytest.raises(TypeError, match="real Symmetric or a Hermitian; got LowerTriangular"):
        packedtri.inv_quad_logdet(a, b)
    with pytest.raises(ValueError, match="right-hand side"):
        packedtri.inv_quad_logdet(s, torch.ones(4))
    with pytest.raises(ValueError, match="batch dimensions"):
        packedtri.inv_quad_logdet(torch.stack([s, s]), torch.ones(3, 3, 1))
    with pytest.raises(TypeError, match="tensor of right-hand sides; got list"):
        packedtri.inv_quad_logdet(s, [1.0])
    with pytest.raises(LinAlgError, match="leading minor of order 1"):
        packedtri.inv_quad_logdet(-s, b)


@pytest.mark.parametrize("left", [LowerTriangular, packedtri.UpperTriangular, Symmetric])
@pytest.mark.parametrize("right", [LowerTriangular, packedtri.UpperTriangular, Symmetric])
def test_a_type_of_the_shape_of_rows_is_a_batch_of_vectors(left: type, right: type, rng) -> None:
    """As a dense tensor of that shape is to torch."""
    a = make(left, 3, torch.float64, (3,), "cpu", rng)
    b = make(right, 3, torch.float64, (), "cpu", rng)
    x = torch.linalg.solve(a, b)
    assert type(x) is torch.Tensor
    torch.testing.assert_close(x, torch.linalg.solve(dense(a), dense(b)))
