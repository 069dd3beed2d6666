"""Products with one's own transpose: types, values and derivatives of L @ L.mT, syrk and syr2k."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from derivatives import check_derivatives, gradgradcheck
from torch import Tensor
from torch.autograd import forward_ad as fwad
from torch.autograd import gradcheck
from twins import MIRRORED, TYPES, called, each_type, project, square_type, weighted_sum

import packedtri
from packedtri import (
    Hermitian,
    LowerTriangular,
    PackedTensor,
    Symmetric,
    UpperTriangular,
    layout,
)
from packedtri.testing import (
    assert_product_close,
    densify,
    random,
    random_integers,
    wide_dtype,
)

SIZES = (0, 1, 2, 3, 31, 33, 64, 65)
BATCHES = ((), (0,), (1,), (3, 4))
WIDE = (torch.float64, torch.complex128)
wide = pytest.mark.parametrize("wide", WIDE)


def make(cls, n, dtype, batch=(), device="cpu", rng=None) -> PackedTensor:
    return cls(random((*batch, layout.numel(n)), dtype, device, rng))


def dense(t: Tensor) -> Tensor:
    return densify(t._packed.detach(), t.n, t.kind) if isinstance(t, PackedTensor) else t


def vector(n: int, dtype: torch.dtype, device: str, batch: tuple[int, ...] = ()) -> Tensor:
    shape = (*batch, layout.numel(n))
    return torch.randn(shape, dtype=dtype, device=device, requires_grad=True)


def test_every_name_of_the_transpose():
    for batch in ((), (2,), (2, 3)):
        a = LowerTriangular.randn(*batch, 4)
        rank = a.dim()
        dims = (*range(rank - 2), rank - 1, rank - 2)
        for b in (a.permute(dims), a.movedim(-1, -2), a.transpose(-2, -1), a.swapaxes(-1, -2)):
            c = a @ b
            assert type(c) is Symmetric
            torch.testing.assert_close(c.to_dense(), (a @ a.mT).to_dense())


@each_type
def test_a_matrix_times_its_transpose_is_symmetric(cls, dtype, device, rng):
    for n in SIZES:
        for batch in BATCHES if n == 3 else [()]:
            a = make(cls, n, dtype, batch, device, rng)
            for left, right in ((a, a.mT), (a.mT, a), (a.mT.mT, a.mT)):
                c = left @ right
                # A Hermitian matrix is its own conjugate transpose, so its square is Hermitian.
                squares = cls is not Hermitian or not dtype.is_complex
                assert type(c) is (square_type(cls) if squares else Tensor)
                case = f"n={n} {batch}"
                assert_product_close(dense(c), dense(left), dense(right), case=case)


@each_type
def test_only_the_same_tensor_makes_it_symmetric(cls, device):
    a = cls.randn(3, device=device)
    twin = cls(a.packed.clone())
    for other in (twin.mT, (2 * a).mT, a.clone().mT):
        assert type(a @ other) is Tensor
    z = LowerTriangular.randn(3, dtype=torch.complex64, device=device)
    assert type(z @ z.mT) is Symmetric


@each_type
def test_a_constant_transpose_leaves_the_product_dense(cls, device):
    """Its derivative is no symmetric matrix, so a Symmetric would have a wrong gradient."""
    t = cls.randn(4, dtype=torch.float64, device=device, requires_grad=True)
    with torch.no_grad():
        unrecorded = t.mT
    for constant in (t.detach().mT, unrecorded):
        x = t.detach().to_dense().requires_grad_()
        c = t @ constant
        assert type(c) is Tensor
        (ours,) = torch.autograd.grad(weighted_sum(c), t)
        (theirs,) = torch.autograd.grad(weighted_sum(x @ x.detach().mT), x)
        torch.testing.assert_close(dense(ours), project(cls, theirs))
    with fwad.dual_level():
        dual = fwad.make_dual(t.detach(), cls.randn(4, dtype=torch.float64, device=device))
        assert type(dual @ t.detach().mT) is Tensor
        assert type(dual @ dual.mT) in MIRRORED


@wide
@each_type
def test_derivatives_of_a_square(cls, wide, device):
    def left(p: Tensor) -> Tensor:
        return _square(cls(p)).packed

    def right(p: Tensor) -> Tensor:
        return _square(cls(p).mT).packed

    for f in (left, right):
        p = vector(3, wide, device, (2,))
        check_derivatives(f, (p,))


def _square(t: PackedTensor) -> PackedTensor:
    c = t @ (t.mH if type(t) is Hermitian else t.mT)
    assert type(c) is square_type(type(t))
    return c


@each_type
def test_gradient_of_a_square_is_that_of_its_dense_twin(cls, device):
    t = cls.randn(2, 5, dtype=torch.float64, device=device, requires_grad=True)
    x = dense(t).requires_grad_()
    for square, twin in ((t @ t.mT, x @ x.mT), (t.mT @ t, x.mT @ x)):
        (ours,) = torch.autograd.grad(weighted_sum(square.to_dense()), t)
        (theirs,) = torch.autograd.grad(weighted_sum(twin), x)
        assert type(ours) is cls
        torch.testing.assert_close(dense(ours), project(cls, theirs))


def test_a_square_in_a_compiled_function(device):
    f = torch.compile(lambda t: t @ t.mT, fullgraph=True, backend="aot_eager")
    t = LowerTriangular.randn(4, device=device, requires_grad=True)
    assert type(f(t)) is Symmetric
    torch.testing.assert_close(f(t).to_dense(), (t @ t.mT).to_dense())


# ------------------------------------------------------------------------------------------- syrk


def test_syrk(dtype, device, rng):
    for n, k in ((0, 3), (1, 1), (3, 0), (5, 33), (65, 7), (33, 64)):
        for batch in BATCHES if n == 5 else [()]:
            a = random_integers((*batch, n, k), dtype, device, rng)
            x = a.to(wide_dtype(dtype))
            for c in (packedtri.syrk(a), packedtri.syrk(a.mT, trans=True)):
                assert type(c) is Symmetric
                assert torch.equal(dense(c), (x @ x.mT).to(dtype)), f"{n} x {k} {batch}"


@each_type
def test_syrk_of_a_packed_type(cls, dtype, device, rng):
    a = make(cls, 9, dtype, (2,), device, rng)
    for ours, product in ((packedtri.syrk(a), a @ a.mT), (packedtri.syrk(a, trans=True), a.mT @ a)):
        assert type(ours) is Symmetric
        torch.testing.assert_close(dense(ours).tril(), dense(product).tril(), rtol=0, atol=0)


def test_syrk_and_syr2k_add_to_a_matrix(device):
    options = {"dtype": torch.float64, "device": device}
    a, b = (torch.randn(2, 4, 3, **options) for _ in range(2))
    C = Symmetric.randn(2, 4, **options)
    twin = dense(C)
    for trans in (False, True):
        x, y = (a.mT, b.mT) if trans else (a, b)
        for product, c in (
            (a @ a.mT, partial(packedtri.syrk, x, trans=trans)),
            (a @ b.mT + b @ a.mT, partial(packedtri.syr2k, x, y, trans=trans)),
        ):
            torch.testing.assert_close(dense(c()), product)
            torch.testing.assert_close(dense(c(alpha=-2)), -2 * product)
            torch.testing.assert_close(dense(c(C=C)), product + twin)
            expected = 3 * product + 0.5 * twin
            torch.testing.assert_close(dense(c(alpha=3, C=C, beta=0.5)), expected)
            out = C.clone()
            version = out._packed._version
            assert c(alpha=3, C=out, beta=0.5, out=out) is out and out._packed._version > version
            torch.testing.assert_close(dense(out), expected)
            assert not c(C=C * float("nan"), beta=0).packed.isnan().any()


@pytest.mark.parametrize("beta", [0, 0.0, 0.5, torch.tensor(0.0)], ids=str)
def test_the_batch_of_a_summand_counts_for_every_factor(beta):
    a = torch.randn(3, 2)
    C = Symmetric.randn(4, 3)
    for c in (partial(packedtri.syrk, a), partial(packedtri.syr2k, a, a)):
        found = c(C=C, beta=beta)
        torch.testing.assert_close(found.to_dense(), c().to_dense() + beta * C.to_dense())
        assert found.is_contiguous()
        assert torch.equal(c(C=C, beta=beta, out=C.clone()).packed, found.packed)


@each_type
@wide
@pytest.mark.parametrize("name", ["syr2k", "her2k"])
def test_operands_of_rank_2k_updates(cls, wide, name, device):
    """Packed ones, ones whose sums are short and long, and factors of any kind."""
    options = {"dtype": wide, "device": device}
    function, t = getattr(packedtri, name), cls.randn(2, 6, **options)
    result = Symmetric if name == "syr2k" else Hermitian
    factors: tuple[complex | Tensor, ...] = (1, -0.5, torch.tensor(3.0))
    if wide.is_complex:
        factors += 1.5 - 2j, torch.tensor(1j, dtype=wide)
    dense_pairs = [[torch.randn(2, 6, k, **options) for _ in range(2)] for k in (0, 1, 3, 6, 9)]
    dense_pairs.append([torch.randn(6, 1, **options), torch.randn(2, 6, 1, **options)])
    full = torch.randn(6, 6, **options)
    for a, b in (*dense_pairs, (t, full), (full, t), (t, t), (t, t.mT)):
        for alpha in factors:
            for trans in (False, True):
                x, y = (a.mT, b.mT) if trans else (a, b)
                x, y = (s.requires_grad_() for s in (x.detach().clone(), y.detach().clone()))
                ours = function(x, y, alpha=alpha, trans=trans)
                assert type(ours) is result
                u, v = (dense(s).requires_grad_() for s in (x, y))
                flip = Tensor.adjoint if name == "her2k" else Tensor.mT.__get__
                first = flip(u) @ v if trans else u @ flip(v)
                twin = alpha * first
                twin = twin + flip(twin)
                torch.testing.assert_close(dense(ours), twin)
                grads, expected = (
                    torch.autograd.grad(weighted_sum(c), leaves, allow_unused=True)
                    for c, leaves in ((ours.to_dense(), (x, y)), (twin, (u, v)))
                )
                for g, h, s in zip(grads, expected, (x, y), strict=True):
                    h = project(type(s), h) if isinstance(s, PackedTensor) else h
                    torch.testing.assert_close(dense(g), h)


def test_a_thin_update_writes_its_result_once(device):
    a, b = (torch.randn(32, 2, device=device) for _ in range(2))
    ops = called(lambda: packedtri.syr2k(a, b, alpha=0.5))
    assert ops.count("packedtri.mm.default") == 1
    assert ops.count("aten.mul.Tensor") == 1 and "aten.add.Tensor" not in ops


@pytest.mark.parametrize("cls", MIRRORED)
def test_a_vector_times_itself_is_added_in_the_type(cls, device):
    options = {"dtype": torch.float64, "device": device}
    s, x = cls.randn(33, **options).requires_grad_(), torch.randn(33, **options, requires_grad=True)
    u, v = dense(s).requires_grad_(), x.detach().clone().requires_grad_()
    for factors in ({}, {"beta": 0.5}, {"alpha": -2, "beta": 0}):
        ours, twin = torch.addr(s, x, x, **factors), torch.addr(u, v, v, **factors)
        assert type(ours) is cls
        torch.testing.assert_close(dense(ours), twin)
        grads, expected = (
            torch.autograd.grad(weighted_sum(c), leaves, allow_unused=True)
            for c, leaves in ((ours.to_dense(), (s, x)), (twin, (u, v)))
        )
        assert grads[0] is None or torch.allclose(dense(grads[0]), project(cls, expected[0]))
        torch.testing.assert_close(grads[1], expected[1])
    s, x, u = s.detach(), x.detach(), u.detach()
    ops = called(lambda: s.addr_(x, x, alpha=3))
    torch.testing.assert_close(dense(s), u.addr(x, x, alpha=3))
    assert not any("unpack" in op or "packedtri.pack" in op for op in ops)
    assert type(torch.addr(s, x, x.clone())) is type(torch.addr(s[:2, :3], x[:2], x[:3])) is Tensor
    z = torch.randn(33, dtype=torch.complex128, device=device)
    h = cls.randn(33, dtype=torch.complex128, device=device)
    assert type(torch.addr(h, z, z)) is (Symmetric if cls is Symmetric else Tensor)
    torch.testing.assert_close(dense(torch.addr(h, z, z)), torch.addr(dense(h), z, z))
    for other in (torch.addr(h, x, x), torch.addr(s, z, z)):
        assert other.dtype == torch.complex128 and type(other) is Tensor


@wide
def test_derivatives_of_syrk_and_syr2k(wide, device):
    a, b = (torch.randn(2, 3, 2, dtype=wide, device=device, requires_grad=True) for _ in range(2))
    p = vector(3, wide, device)
    for f in (
        lambda a, b, p: packedtri.syrk(a, alpha=2, C=Symmetric(p), beta=3).packed,
        lambda a, b, p: packedtri.syr2k(a, b, C=Symmetric(p)).packed,
        lambda a, b, p: packedtri.syr2k(a, b.mT.mT, trans=True, alpha=-1).packed,
    ):
        check_derivatives(f, (a, b, p))
    x, y = (t.detach()[0].requires_grad_() for t in (a, b))
    for ours, twin in (
        (packedtri.syrk(x), x @ x.mT),
        (packedtri.syr2k(x, y), x @ y.mT + y @ x.mT),
    ):
        gradients = [
            torch.autograd.grad(weighted_sum(c), (x, y), allow_unused=True)
            for c in (ours.to_dense(), twin)
        ]
        for g, h in zip(*gradients, strict=True):
            assert g is h is None or torch.allclose(g, h)


def test_factors_may_be_tensors(device):
    """Also where a number would be left out, they keep their gradients."""
    options = {"dtype": torch.float64, "device": device}
    a, b = (torch.randn(2, 4, 3, **options) for _ in range(2))
    S, H = Symmetric.randn(2, 4, **options), Hermitian.randn(2, 4, **options)
    square, mixed, twin = a @ a.mT, a @ b.mT + b @ a.mT, {S: dense(S), H: dense(H)}
    for name, product, operands, C in (
        ("syrk", square, (a,), S), ("syr2k", mixed, (a, b), S),
        ("herk", square, (a,), H), ("her2k", mixed, (a, b), H),
    ):  # fmt: skip
        function = getattr(packedtri, name)
        for values in ((1.0, 1.0), (0.0, 0.0), (2.0, -3.0)):
            alpha, beta = (torch.tensor(v, **options, requires_grad=True) for v in values)
            ours, theirs = (
                function(*operands, alpha=alpha, beta=beta, C=C).to_dense(),
                alpha * product + beta * twin[C],
            )
            torch.testing.assert_close(ours, theirs)
            ours, theirs = (
                torch.autograd.grad(weighted_sum(x), (alpha, beta)) for x in (ours, theirs)
            )
            torch.testing.assert_close(ours, theirs)
        scales = torch.randn(5, **options)
        many = torch.vmap(lambda s: function(*operands, alpha=s, beta=s, C=C).packed)(scales)  # noqa: B023
        each = [function(*operands, alpha=s, beta=s, C=C).packed for s in scales]
        torch.testing.assert_close(many, torch.stack(each))
        for factors in ({"alpha": torch.ones(4, 4)}, {"beta": torch.ones(1), "C": C}):
            with pytest.raises(TypeError, match=rf"{name}\] expected a number.*got Tensor \("):
                function(*operands, **factors)


def test_dtypes_and_autocast_of_syrk_with_a_matrix():
    a, C = torch.randn(3, 2), Symmetric.randn(3)
    for call in (
        lambda: packedtri.syrk(a, C=C.double()),
        lambda: packedtri.syr2k(a, a, C=C.double(), beta=0),
        lambda: packedtri.herk(a.double(), C=Hermitian.eye(3)),
    ):
        with pytest.raises(ValueError, match=r"expected C of .*float\d+; got .*float\d+"):
            call()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert packedtri.syrk(a, C=C).dtype == torch.addmm(dense(C), a, a.mT).dtype


def test_errors_of_syrk_and_syr2k(device):
    a, S = torch.randn(3, 2, device=device), Symmetric.eye(3, device=device)
    pair = a.expand(2, 3, 2)
    for error, message, call in (
        (TypeError, "expected a tensor for A; got list", lambda: packedtri.syrk([1.0])),
        (TypeError, "expected one of float16", lambda: packedtri.syrk(a.long())),
        (ValueError, "expected matrices for A", lambda: packedtri.syrk(a[0])),
        (ValueError, "beta is the factor of C", lambda: packedtri.syrk(a, beta=2)),
        (TypeError, "a Symmetric for C; got Tensor", lambda: packedtri.syrk(a, C=S.to_dense())),
        (ValueError, "of one dtype whose", lambda: packedtri.syr2k(a, a.double())),
        (ValueError, "batches", lambda: packedtri.syr2k(pair, a.expand(3, 3, 2))),
        (ValueError, "expected C of order 2", lambda: packedtri.syrk(a, C=S, trans=True)),
        (ValueError, "out of shape", lambda: packedtri.syrk(a[None], out=S)),
        (ValueError, "out of shape", lambda: packedtri.syrk(a.double(), out=S)),
        (ValueError, "batch", lambda: packedtri.syrk(pair, C=S.expand(3, 3, 3))),
        (ValueError, "batch", lambda: packedtri.syr2k(pair, a, C=S.expand(3, 3, 3), beta=0)),
        (ValueError, "operands of one shape", lambda: packedtri.syr2k(a, a.mT)),
        (RuntimeError, "use torch.no_grad", lambda: packedtri.syrk(a.requires_grad_(), out=S)),
    ):
        with pytest.raises(error, match=message):
            call()


# ------------------------------------------------------------------------ forms, in-place products


@each_type
def test_forms(cls, dtype, device, rng):
    n = 9
    for batch, x_batch, y_batch in (
        ((), (), ()), ((), (5,), (5,)), ((), (2, 5), (5,)), ((2,), (), (2,)), ((2, 1), (3,), (3,)),
        ((0,), (), ()),
    ):  # fmt: skip
        A = make(cls, n, dtype, batch, device, rng)
        x, y = (random((*b, n), dtype, device, rng) for b in (x_batch, y_batch))
        wide = torch.complex128 if dtype.is_complex else torch.float64
        X, M, Y = x.to(wide), dense(A).to(wide), y.to(wide)
        rows = (X.conj() if cls is Hermitian else X)[..., None, :]
        expected = (rows @ M @ Y[..., None])[..., 0, 0]
        tolerance = {"rtol": 0, "atol": 300 * torch.finfo(dtype).eps}
        ours = packedtri.bilinear_form(x, A, y)
        torch.testing.assert_close(ours.to(wide), expected, **tolerance)
        square = (rows @ M @ X[..., None])[..., 0, 0]
        ours = packedtri.quadratic_form(A, x)
        assert ours.dtype == (dtype.to_real() if cls is Hermitian else dtype)
        torch.testing.assert_close(ours.to(wide), square, **tolerance)


@each_type
def test_derivatives_of_forms(cls, device):
    p = vector(3, torch.float64, device)
    x, y = (
        torch.randn(2, 3, dtype=torch.float64, device=device, requires_grad=True) for _ in range(2)
    )
    for f in (
        lambda p, x, y: packedtri.bilinear_form(x, cls(p), y),
        lambda p, x, y: packedtri.quadratic_form(cls(p), x) + y.sum(-1),
    ):
        check_derivatives(f, (p, x, y))


def test_errors_of_forms(device):
    S, x = Symmetric.eye(3, device=device), torch.ones(3, device=device)
    for error, message, call in (
        (TypeError, "a packed type for A; got Tensor", lambda: packedtri.quadratic_form(x, x)),
        (TypeError, "dense vectors; got Symmetric", lambda: packedtri.quadratic_form(S, S)),
        (ValueError, "expected vectors", lambda: packedtri.bilinear_form(x[:2], S, x)),
    ):
        with pytest.raises(error, match=message):
            call()


@each_type
def test_vectors_of_forms_fit_the_matrix(cls, device):
    A, x = cls.eye(2, 3, device=device), torch.ones(2, 3, device=device)
    for wrong, message in (
        (x.double(), r"same dtype; got .*torch\.float(32|64) and .*torch\.float(32|64)"),
        (x.to("meta"), "same device; got .*meta"),
        (torch.ones(4, 3, device=device), r"batch dimensions that broadcast; got .*\(4, 3\)"),
    ):
        for call in (
            lambda v: packedtri.bilinear_form(v, A, x),
            lambda v: packedtri.bilinear_form(x, A, v),
        ):
            with pytest.raises(ValueError, match=rf"\[bilinear_form\] expected .*{message}"):
                call(wrong)
        with pytest.raises(ValueError, match=rf"\[quadratic_form\] expected .*{message}"):
            packedtri.quadratic_form(A, wrong)
    # Two vectors that do not fit each other, each of which fits the matrix.
    with pytest.raises(ValueError, match=r"\[bilinear_form\] .*broadcast; got Tensor .* Tensor"):
        packedtri.bilinear_form(x, A[0], torch.ones(4, 3, device=device))
    with torch.autocast(device, dtype=torch.bfloat16):
        assert packedtri.bilinear_form(x.half(), A, x).dtype == torch.bfloat16


@pytest.mark.parametrize("name", ["lmul_", "rmul_"])
@pytest.mark.parametrize("cls", TYPES[:2])
def test_products_in_place(cls, name, dtype, device, rng):
    for batch, other in (((), ()), ((3,), (3,)), ((3,), ()), ((2, 3), (1, 3))):
        t, m = (make(cls, 7, dtype, b, device, rng) for b in (batch, other))
        expected = t @ m if name == "rmul_" else m @ t
        versions = t._version, t._packed._version
        assert getattr(t, name)(m) is t
        assert t._version > versions[0] and t._packed._version > versions[1]
        assert torch.equal(t.packed, expected.packed)
    square = t @ t
    assert torch.equal(getattr(t, name)(t).packed, square.packed)


@pytest.mark.parametrize("name", ["lmul_", "rmul_"])
@pytest.mark.parametrize("cls", TYPES[:2])
def test_derivatives_of_products_in_place(cls, name, device):
    def f(p: Tensor, q: Tensor) -> Tensor:
        t = cls(p).clone()
        return getattr(t, name)(cls(q)).packed

    p, q = (vector(3, torch.float64, device) for _ in range(2))
    assert gradcheck(f, (p, q), check_forward_ad=True)
    assert gradcheck(lambda p: f(p, p), (p,))
    assert gradgradcheck(f, (p, q))


def test_errors_of_products_in_place(device):
    L = LowerTriangular.eye(3, device=device)
    for error, other in (
        (TypeError, L.mT), (TypeError, L.to_dense()), (TypeError, 2.0), (ValueError, L.double()),
        (ValueError, LowerTriangular.zeros(2, 3, device=device)),
        (ValueError, LowerTriangular.zeros(4, device=device)),
    ):  # fmt: skip
        with pytest.raises(error, match="rmul_|matmul"):
            L.rmul_(other)
    with pytest.raises(TypeError, match="triangular"):
        Symmetric.eye(3).lmul_(Symmetric.eye(3))
    with pytest.raises(RuntimeError, match="leaf Variable"):
        L.requires_grad_().rmul_(LowerTriangular.eye(3, device=device))


# ------------------------------------------------------------------------------------------ oracle


@pytest.mark.parametrize("wide", [torch.float64, torch.float32])
def test_scipy_reads_the_same_bytes(wide, rng):
    """SciPy's packed routines take LAPACK's upper triangles by columns, which is our order."""
    blas = pytest.importorskip("scipy.linalg.blas")
    prefix = "d" if wide == torch.float64 else "s"
    spmv, tpmv, syr2k = (getattr(blas, prefix + f) for f in ("spmv", "tpmv", "syr2k"))
    for n in (1, 2, 7, 64, 129):
        p, x = random((layout.numel(n),), wide, generator=rng), random((n,), wide, generator=rng)
        a, b = (random((n, 5), wide, generator=rng) for _ in range(2))
        tolerance = {"rtol": 0, "atol": 8 * n * torch.finfo(wide).eps}
        for ours, theirs in (
            (Symmetric(p) @ x, spmv(n, 1.0, p.numpy(), x.numpy())),
            (UpperTriangular(p) @ x, tpmv(n, p.numpy(), x.numpy())),
            (LowerTriangular(p) @ x, tpmv(n, p.numpy(), x.numpy(), trans=1)),
            (packedtri.syr2k(a, b).to_dense().triu(), syr2k(1.0, a.numpy(), b.numpy())),
        ):
            torch.testing.assert_close(ours, torch.from_numpy(theirs), **tolerance)


@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_a_factor_of_zero_leaves_out_what_is_not_finite(dtype: torch.dtype) -> None:
    bad = torch.full((3, 2), torch.inf, dtype=dtype)
    C = Symmetric.from_dense(torch.eye(3, dtype=dtype))
    for product in (packedtri.syrk(bad, alpha=0, C=C), packedtri.syr2k(bad, bad, alpha=0, C=C)):
        assert torch.equal(product.packed, C.packed)
    assert packedtri.her2k(bad, bad, alpha=0).packed.count_nonzero() == 0
    A = torch.ones(3, 2, dtype=dtype, requires_grad=True)
    packedtri.syrk(A, alpha=0).packed.sum().abs().backward()
    assert A.grad.count_nonzero() == 0


@pytest.mark.parametrize("alpha", [1 / 20_000, -1e-3, 0.4])
def test_a_small_factor_keeps_float16_in_range(alpha: float) -> None:
    """A covariance, whose sums float16 would not hold."""
    A = torch.randn(20_000, 3, generator=torch.Generator().manual_seed(1)).half()
    A = (A * 8 if abs(alpha) < 0.1 else A[:100]).requires_grad_()
    dense = A.detach().double()
    expected = alpha * dense.mT @ dense
    for product in (
        packedtri.syrk(A, trans=True, alpha=alpha),
        packedtri.herk(A, trans=True, alpha=alpha),
        packedtri.syr2k(A, A, trans=True, alpha=alpha / 2),
    ):
        error = (product.to_dense().double() - expected).abs().max() / expected.abs().max()
        assert error < 2 * torch.finfo(torch.float16).eps
    packedtri.syrk(A, trans=True, alpha=alpha).packed.float().sum().backward()
    ones = torch.ones(3, 3, dtype=torch.float64)
    gradient = alpha * dense @ (ones.tril() + ones.tril().mT)
    assert (A.grad - gradient).abs().max() < 0.01 * gradient.abs().max()
