"""Conversions to LAPACK's packed and RFP formats and TFP's, with SciPy's routines as oracle."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from derivatives import gradgradcheck
from scipy.linalg import lapack
from torch.autograd import gradcheck
from twins import MIRRORED, each_type, peak_bytes

from packedtri import Hermitian, LowerTriangular, PackedTensor, Symmetric, UpperTriangular

SIZES = (1, 2, 3, 4, 5, 8, 31, 64)
LETTERS = {LowerTriangular: "L", UpperTriangular: "U", Symmetric: "LU", Hermitian: "LU"}
REAL_AND_COMPLEX = (torch.float64, torch.complex128)


def routine(name: str, dtype: torch.dtype):
    return getattr(lapack, ("z" if dtype.is_complex else "d") + name)


@each_type
@pytest.mark.parametrize("dtype", REAL_AND_COMPLEX)
def test_packed_formats(cls, dtype):
    for n in SIZES:
        for uplo in LETTERS[cls]:
            t = cls.randn(n, dtype=dtype)
            ap, info = routine("trttp", dtype)(t.to_dense().numpy(), uplo=uplo)
            assert info == 0
            np.testing.assert_array_equal(t.to_lapack(uplo).numpy(), ap)
            assert torch.equal(cls.from_lapack(torch.tensor(ap), uplo), t)
            i, j = torch.tril_indices(n, n) if uplo == "L" else torch.triu_indices(n, n)
            rows = t.to_dense()[i, j]
            assert torch.equal(t.to_lapack(uplo, row_major=True), rows)
            assert torch.equal(cls.from_lapack(rows, uplo, row_major=True), t)


@each_type
@pytest.mark.parametrize("dtype", REAL_AND_COMPLEX)
def test_rectangular_full_packed_format(cls, dtype):
    if cls is Symmetric and dtype.is_complex:
        with pytest.raises(NotImplementedError, match="Hermitian"):
            cls.randn(3, dtype=dtype).to_rfp("L")
        return
    for n in SIZES:
        for uplo in LETTERS[cls]:
            for transr in ("N", "C" if dtype.is_complex else "T"):
                t = cls.randn(n, dtype=dtype)
                arf, info = routine("trttf", dtype)(t.to_dense().numpy(), transr=transr, uplo=uplo)
                assert info == 0
                np.testing.assert_array_equal(t.to_rfp(uplo, transr).resolve_conj().numpy(), arf)
                assert torch.equal(cls.from_rfp(torch.tensor(arf), uplo, transr), t)


@each_type
def test_fill_triangular(cls):
    """The definition in TensorFlow Probability's documentation, on a square."""
    for n in SIZES:
        x = torch.randn(2, n * (n + 1) // 2)
        if cls is UpperTriangular:
            square = torch.cat([x, x[..., n:].flip(-1)], -1).reshape(2, n, n).triu()
        else:
            square = torch.cat([x[..., n:], x.flip(-1)], -1).reshape(2, n, n).tril()
        t = cls.from_fill_triangular(x)
        expected = square + square.tril(-1).mT if cls in MIRRORED else square
        assert torch.equal(t.to_dense(), expected) and torch.equal(t.to_fill_triangular(), x)


@each_type
def test_batches_gradients_and_shared_memory(cls):
    uplo = LETTERS[cls][0]
    for convert, back in (
        (lambda t: t.to_lapack(uplo), lambda x: cls.from_lapack(x, uplo)),
        (lambda t: t.to_lapack(uplo, True), lambda x: cls.from_lapack(x, uplo, True)),
        (lambda t: t.to_rfp(uplo), lambda x: cls.from_rfp(x, uplo)),
        (lambda t: t.to_fill_triangular(), cls.from_fill_triangular),
    ):
        t = cls.randn(3, 4, 5, dtype=torch.float64)
        assert torch.equal(back(convert(t)), t)
        p = torch.randn(2, 6, dtype=torch.float64, requires_grad=True)
        loss = lambda p, c=convert, b=back: b(c(cls(p) * 2)).pow(2).packed  # noqa: E731
        assert gradcheck(loss, p, check_forward_ad=True)
        for size in (0, 1):
            assert convert(cls.randn(2, size)).shape == (2, size)
    t = cls.randn(4)
    own = t.to_lapack("U") if cls is not LowerTriangular else t.to_lapack("L", row_major=True)
    assert own.data_ptr() == t.packed.data_ptr()


@pytest.mark.parametrize("uplo", ["L", "U"])
@pytest.mark.parametrize("lazy", [False, True])
def test_formats_have_no_imaginary_parts_on_the_diagonal_of_a_hermitian_matrix(uplo, lazy):
    def make(packed):
        return Hermitian.from_lapack(packed, "U") if lazy else Hermitian(packed)

    packed = torch.randn(2, 10, dtype=torch.complex128)
    h, p = make(packed), packed.clone().requires_grad_()
    real = Hermitian.from_dense(h.to_dense())
    assert not torch.equal(h.packed, real.packed)
    for convert in (
        lambda t: t.to_lapack(uplo),
        lambda t: t.to_lapack(uplo, row_major=True),
        lambda t: t.to_rfp(uplo),
        lambda t: t.to_rfp(uplo, "C"),
        lambda t: t.to_fill_triangular(),
    ):
        x = convert(h)
        if x.data_ptr() == packed.data_ptr():
            # What shares the memory has what is stored.
            assert torch.equal(x, packed)
            continue
        assert torch.equal(x, convert(real)) and not x.is_conj()
        (grad,) = torch.autograd.grad(convert(make(p)).abs().square().sum(), p)
        torch.testing.assert_close(grad, 2 * make(real.packed).packed)
    shared = [
        h.to_lapack(letter, row_major).data_ptr() == packed.data_ptr()
        for letter in "LU"
        for row_major in (False, True)
    ]
    assert shared == [False, not lazy, lazy, False]


@each_type
def test_bad_letters(cls):
    t = cls.randn(3)
    wrong = "X" if cls in MIRRORED else {"L": "U", "U": "L"}[LETTERS[cls]]
    for use in (t.to_lapack, t.to_rfp, lambda u: cls.from_lapack(t.packed, u)):
        with pytest.raises(ValueError, match=rf'lapack|rfp.*{cls.__name__}.*got "{wrong}"'):
            use(wrong)
    for letter in ("C", 1):
        with pytest.raises(ValueError, match="transr"):
            t.to_rfp(LETTERS[cls][0], letter)
    with pytest.raises(ValueError, match=r"triangular|n\(n\+1\)"):
        cls.from_fill_triangular(torch.zeros(4))
    for convert in (cls.from_lapack, cls.from_rfp, lambda x, uplo: cls.from_fill_triangular(x)):
        with pytest.raises(TypeError, match=r"expected a packed tensor .* got list"):
            convert([1.0], LETTERS[cls][0])


@each_type
@pytest.mark.filterwarnings("ignore:__array_wrap__ must accept:DeprecationWarning")
def test_other_libraries_read_the_packed_vector(cls):
    t = cls.randn(4)
    assert np.shares_memory(t.packed.numpy(), torch.from_dlpack(t.packed).numpy())
    np.testing.assert_array_equal(np.asarray(t), t.to_dense().numpy())
    np.testing.assert_array_equal(
        t.clone().requires_grad_().numpy(force=True), t.to_dense().numpy()
    )
    x = np.arange(16.0).reshape(4, 4)
    for f in (
        np.exp,
        np.transpose,
        lambda t: np.linalg.eigh(t)[1],
        lambda t: np.add(t, t),
        lambda t: t * x,
        lambda t: t @ x,
        lambda t: t @ x[0],
        lambda t: x / (t + 1),
        lambda t: np.greater(t, 0),
    ):
        ours, theirs = f(t), f(t.to_dense())
        assert type(ours) is type(theirs)
        np.testing.assert_allclose(ours, theirs)
    for use in (lambda: t.numpy(), lambda: torch.from_dlpack(t), lambda: t.data_ptr()):
        with pytest.raises((NotImplementedError, BufferError), match="packed"):
            use()


def test_the_base_class_has_no_formats() -> None:
    for make in (
        lambda x: PackedTensor.from_lapack(x, "L"),
        lambda x: PackedTensor.from_rfp(x, "L"),
        PackedTensor.from_fill_triangular,
    ):
        with pytest.raises(TypeError, match="base class"):
            make(torch.ones(3))


def test_scratch_memory_is_below_two_triangles():
    """Of several strips of rows, which are put together to what SciPy makes of all."""
    n = 800
    t = LowerTriangular.randn(n, dtype=torch.float64)
    arf, _ = lapack.dtrttf(t.to_dense().numpy(), transr="T", uplo="L")
    np.testing.assert_array_equal(t.to_rfp("L", "T").numpy(), arf)
    for name, args in (("lapack", "L"), ("rfp", "L"), ("fill_triangular", "")):
        x = getattr(t, f"to_{name}")(*args)
        back = getattr(LowerTriangular, f"from_{name}")
        assert torch.equal(back(x, *args), t)
        for call in (
            lambda to=f"to_{name}", a=args: getattr(t, to)(*a),
            lambda f=back, x=x, a=args: f(x, *a),
        ):
            assert peak_bytes(call) < 3 * t.packed.nbytes


@pytest.mark.parametrize("dtype", REAL_AND_COMPLEX)
@pytest.mark.parametrize("name", ["lapack", "rfp", "fill_triangular"])
def test_formats_in_transforms_and_graphs(name, dtype):
    args = () if name == "fill_triangular" else ("L",)

    def convert(p):
        return getattr(LowerTriangular(p), f"to_{name}")(*args)

    def both(p):
        x = convert(p)
        return getattr(LowerTriangular, f"from_{name}")(x * x, *args).packed

    p = torch.randn(3, 15, dtype=dtype, requires_grad=True)
    assert gradgradcheck(both, p)
    torch.testing.assert_close(torch.vmap(both)(p), both(p))
    compiled = torch.compile(both, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(p), both(p))
    assert convert(p.detach().to("meta")).shape == p.shape
