"""Construction, conversion, attributes, views and text of the packed types."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from twins import MIRRORED, TYPES, each_type

from packedtri import (
    Hermitian,
    LowerTriangular,
    PackedTensor,
    Symmetric,
    UpperTriangular,
    layout,
)
from packedtri._bands import real_diagonal
from packedtri.testing import densify, random

SIZES = (0, 1, 2, 3, 7, 31, 33, 64, 65)
BATCHES = ((), (0,), (1,), (3, 2))


def make(cls, n, dtype=torch.float64, batch=(), device="cpu", rng=None) -> PackedTensor:
    return cls(random((*batch, layout.numel(n)), dtype, device, rng))


def dense(t: PackedTensor) -> Tensor:
    """The matrix by plain torch indexing, independent of the kernels."""
    return densify(t._packed.detach(), t.n, t.kind)


@pytest.mark.parametrize("batch", BATCHES)
@each_type
def test_wraps_and_unpacks(cls, batch, dtype, device, rng):
    for n in SIZES:
        packed = random((*batch, layout.numel(n)), dtype, device, rng)
        t = cls(packed)
        assert type(t) is cls
        assert t.shape == (*batch, n, n) and t.n == n
        assert t.dtype == dtype and t.device == packed.device
        assert t.packed.data_ptr() == packed.data_ptr() and torch.equal(t.packed, packed)
        assert torch.equal(t.to_dense(), densify(packed, n, cls.kind))
        assert type(t.to_dense()) is Tensor


@pytest.mark.parametrize("batch", BATCHES)
@each_type
def test_from_dense_takes_its_triangle(cls, batch, dtype, device, rng):
    for n in SIZES:
        x = random((*batch, n, n), dtype, device, rng)
        t = cls.from_dense(x)
        i, j = torch.tril_indices(n, n, device=device)
        part = x[..., j, i] if cls is UpperTriangular else x[..., i, j]
        part = real_diagonal(part, cls.kind, n)
        assert torch.equal(t.packed, part)
        assert torch.equal(cls.from_dense(x.mT.contiguous().mT).packed, part)
        assert torch.equal(cls.from_dense(t.to_dense(), check=True).packed, part)


@each_type
def test_from_dense_checks_the_other_half(cls, device):
    x = cls.randn(2, 5, device=device).to_dense()
    i, j = (3, 1) if cls is UpperTriangular else (1, 3)
    x[1, i, j] += 1
    with pytest.raises(ValueError, match=rf"\[{cls.__name__}.from_dense\] element \(1, \d, \d\)"):
        cls.from_dense(x, check=True)
    cls.from_dense(x)


def test_check_allows_rounding_and_nan_in_both_halves(dtype, device):
    x = Symmetric.randn(6, dtype=dtype, device=device).to_dense()
    x[4, 2] *= 1 + torch.finfo(dtype).eps
    x[5, 0] = x[0, 5] = math.nan
    Symmetric.from_dense(x, check=True)
    x[5, 0] = 1
    with pytest.raises(ValueError, match="element"):
        Symmetric.from_dense(x, check=True)


@pytest.mark.parametrize("cls", TYPES[:2])
def test_adding_a_number_in_place_does_not_forget_the_zeros(cls, device):
    t = cls.eye(3, device=device)
    before = t.to_dense()
    for number in (1, -2.5, torch.tensor(1.0, device=device)):
        with pytest.raises(NotImplementedError, match=r"\+=.*add_"):
            t += number
        with pytest.raises(NotImplementedError, match=r"-=.*sub_"):
            t -= number
    t += 0
    t += t.clone()
    t -= 3 * t
    assert torch.equal(t.to_dense(), -4 * before)
    t.add_(1)
    s = Symmetric.eye(3, device=device)
    s += 1
    assert torch.equal(s.to_dense(), torch.eye(3, device=device) + 1)


@each_type
def test_types_of_users_multiply(cls, device):
    class Mine(cls):
        pass

    a, b = Mine.randn(3, device=device), cls.randn(3, device=device)
    x = torch.eye(3, device=device)
    for p, q in itertools.product((a, b, x), repeat=2):
        ours, dense_p, dense_q = p @ q, *(y.to_dense() for y in (p, q))
        torch.testing.assert_close(ours.to_dense(), dense_p @ dense_q)


@each_type
def test_arguments_of_constructors_and_conversions(cls):
    for size in ((2.5,), ("a",), ((2, None),)):
        with pytest.raises(TypeError, match="integers"):
            cls.zeros(*size)
    for make in (cls.zeros, cls.eye, cls.randn):
        with pytest.raises(TypeError, match=f"{cls.__name__}.*int32"):
            make(2, dtype=torch.int32)
        with pytest.raises(TypeError, match="base class"):
            getattr(PackedTensor, make.__name__)(2)
    with pytest.raises(TypeError, match="base class"):
        PackedTensor.from_dense(torch.eye(2))
    t = cls.eye(2)
    with pytest.raises(TypeError, match="dtpye"):
        t.to_dense(dtpye=torch.float64)
    with pytest.raises(TypeError, match="to_dense.*int64"):
        t.to_dense(torch.int64)
    assert t.to_dense(torch.float64).dtype == torch.float64


@each_type
def test_transpose_is_a_view_over_the_same_tensor(cls, dtype, device):
    t = make(cls, 5, dtype, (2,), device)
    for u in (
        t.mT,
        t.transpose(-1, -2),
        torch.transpose(t, 1, 2),
        t.swapaxes(2, 1),
        t.adjoint().conj(),
    ):
        assert type(u) is cls.transposed
        assert torch.equal(u.to_dense(), dense(t).mT)
        assert u._packed.untyped_storage().data_ptr() == t._packed.untyped_storage().data_ptr()
    # The transpose of a Hermitian matrix is its conjugate, a lazy one.
    lazy = cls is Hermitian and dtype.is_complex
    assert t.mT._packed.is_conj() if lazy else t.mT._packed is t._packed
    assert t.mT._base is t
    one = make(cls, 4, dtype, (), device)
    for u in (one.T, one.t(), torch.t(one)):
        assert type(u) is cls.transposed
        assert torch.equal(u.to_dense(), dense(one).mT)


@each_type
def test_adjoint_and_conj(cls, dtype, device):
    t = make(cls, 5, dtype, (2,), device)
    for u in (t.mH, t.adjoint()):
        assert type(u) is cls.transposed
        assert torch.equal(u.to_dense(), dense(t).mH)
    assert type(t.conj()) is cls
    assert torch.equal(t.conj().to_dense(), dense(t).conj())
    for resolve in (torch.resolve_conj, torch.resolve_neg, Tensor.resolve_conj):
        assert torch.equal(resolve(t).to_dense(), dense(t))
        assert torch.equal(resolve(t.conj()).to_dense(), dense(t).conj())
    assert not t.conj().resolve_conj().packed.is_conj()
    x = random((2, 5, 3), dtype, device)
    torch.testing.assert_close(t.mH @ x, dense(t).mH @ x)


def test_a_conjugate_with_other_data_is_a_conjugate_no_longer(device):
    a, other = (make(LowerTriangular, 3, torch.complex128, device=device) for _ in range(2))
    b = a.conj()
    b.data = other
    torch.testing.assert_close(a @ b.mT, dense(a) @ dense(other).mT)


@each_type
def test_transposes_of_batch_dimensions_are_right(cls, device):
    t = make(cls, 3, batch=(2, 4), device=device)
    for dims in ((0, 1), (0, -1), (1, 2)):
        assert torch.equal(t.transpose(*dims), dense(t).transpose(*dims))
    assert torch.equal(t.permute(1, 0, 3, 2), dense(t).permute(1, 0, 3, 2))


@each_type
def test_factories(cls, dtype, device):
    for n in (0, 1, 4):
        zeros, eye = (
            cls.zeros(n, dtype=dtype, device=device),
            cls.eye(n, dtype=dtype, device=device),
        )
        assert torch.equal(zeros.to_dense(), torch.zeros(n, n, dtype=dtype, device=device))
        assert torch.equal(eye.to_dense(), torch.eye(n, dtype=dtype, device=device))
    t = cls.randn(2, 3, dtype=dtype, device=device, requires_grad=True)
    assert t.shape == (2, 3, 3) and t.dtype == dtype and t.requires_grad and t.is_leaf
    assert cls.eye((2, 3)).shape == (2, 3, 3)
    g = torch.Generator(device)
    first, second = (cls.randn(4, device=device, generator=g.manual_seed(7)) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, cls.randn(4, device=device, generator=g))


@each_type
def test_copies_and_conversions_keep_the_type(cls, dtype, device):
    t = make(cls, 5, dtype, (2,), device)
    c = t.clone()
    assert type(c) is cls and torch.equal(c, t)
    assert c.packed.data_ptr() != t.packed.data_ptr()
    assert t.contiguous() is t and t.to(dtype) is t and t.to(device) is t
    assert t.detach()._packed is t._packed and type(t.detach()) is cls
    for other in (
        torch.float64,
        torch.complex128,
        torch.float32 if not dtype.is_complex else dtype,
    ):
        if dtype.is_complex and not other.is_complex:
            continue
        u = t.to(other)
        assert type(u) is cls and u.dtype == other
        assert torch.equal(u.to_dense(), dense(t).to(other))
    assert t.cpu().device.type == "cpu" and type(t.cpu()) is cls
    assert type(t.type_as(t.to_dense())) is cls
    assert torch.equal(t.to(t.to_dense().double() if not dtype.is_complex else t.to_dense()), t)
    assert type(torch.zeros_like(t)) is cls and torch.zeros_like(t).packed.count_nonzero() == 0
    assert type(torch.empty_like(t)) is cls
    ones = torch.ones_like(t)
    assert type(ones) is (cls if cls in MIRRORED else Tensor)
    assert torch.equal(ones.to_dense(), torch.ones_like(dense(t)))
    if not dtype.is_complex:
        for name in ("half", "bfloat16", "float", "double"):
            assert type(getattr(t, name)()) is cls
        assert torch.equal(t.to(torch.int64), dense(t).to(torch.int64))
        assert torch.equal(t.int(), dense(t).int())


@each_type
def test_a_strided_packed_vector_is_wrapped_without_a_copy(cls, device):
    storage = torch.randn(10, 3, device=device)
    t = cls(storage[:, 1])
    assert torch.equal(t.to_dense(), densify(storage[:, 1], 4, cls.kind))
    storage.zero_()
    assert t.to_dense().count_nonzero() == 0
    assert type(t.contiguous()) is cls and t.contiguous().packed.is_contiguous()


@each_type
def test_attributes(cls, device):
    t = make(cls, 4, torch.float32, (3,), device)
    assert (t.ndim, t.dim(), t.numel(), t.size(), t.size(-1)) == (3, 3, 48, (3, 4, 4), 4)
    assert t.nbytes == 3 * 10 * 4 and t.element_size() == t.itemsize == 4
    assert len(t) == 3
    assert (t.sparse_dim(), t.dense_dim()) == (0, 3)
    with pytest.raises(RuntimeError, match="expected sparse"):
        t.is_coalesced()
    assert t.layout == torch.strided and not t.is_complex() and torch.is_floating_point(t)
    assert not t.requires_grad and t.is_leaf and t.grad is None and t.grad_fn is None
    assert isinstance(hash(t), int)
    assert t.new_zeros(2).shape == (2,)


@each_type
def test_reading_elements(cls, device):
    t = make(cls, 4, batch=(3,), device=device)
    x = dense(t)
    for index in (0, (1, 2), (..., 3, 1), (0, slice(1, 3)), (slice(None), 0), -1):
        assert torch.equal(t[index], x[index])
    assert all(torch.equal(a, b) for a, b in zip(t, x, strict=True))
    assert torch.equal(t.diagonal(dim1=-2, dim2=-1), x.diagonal(dim1=-2, dim2=-1))
    assert t.tolist() == x.tolist()
    assert make(cls, 1).item() is not None
    assert torch.is_nonzero(cls.eye(1)) and cls.eye(1, 1).is_nonzero() is True
    assert cls.zeros(1).is_nonzero() is False
    with pytest.raises(RuntimeError, match="more than one value"):
        t.is_nonzero()


@each_type
def test_text_shows_the_triangle(cls):
    t = cls(torch.tensor([1.0, -2.5, 3.0, 4.0, 5.0, 60.0]))
    name, pad = cls.__name__, " " * (len(cls.__name__) + 2)
    rows = {
        LowerTriangular: ["[ 1.0000,       .,       .]", "[-2.5000,  3.0000,       .]",
                          "[ 4.0000,  5.0000, 60.0000]"],
        UpperTriangular: ["[ 1.0000, -2.5000,  4.0000]", "[      .,  3.0000,  5.0000]",
                          "[      .,       ., 60.0000]"],
        Symmetric: ["[ 1.0000, -2.5000,  4.0000]", "[-2.5000,  3.0000,  5.0000]",
                    "[ 4.0000,  5.0000, 60.0000]"],
    }[Symmetric if cls is Hermitian else cls]  # fmt: skip
    assert repr(t) == f"{name}([" + f",\n{pad}".join(rows) + "])"
    assert str(t) == repr(t)


def test_text_says_what_torch_says():
    t = LowerTriangular(
        torch.tensor([1.0], dtype=torch.float64),
    )
    assert repr(t) == "LowerTriangular([[1.]], dtype=torch.float64)"
    t = LowerTriangular(torch.tensor([1.0])).requires_grad_()
    assert repr(t) == "LowerTriangular([[1.]], requires_grad=True)"
    assert repr(t.mT) == "UpperTriangular([[1.]], grad_fn=<TransposeBackward0>)"
    assert "grad_fn=<PackedMmBackward>" in repr(t @ t)
    assert repr(torch.nn.Parameter(t.detach())).startswith(
        "Parameter containing:\nLowerTriangular("
    )
    assert repr(Symmetric.zeros(0)) == "Symmetric([], size=(0, 0))"
    assert repr(Symmetric.zeros(2, device="meta")) == "Symmetric(..., size=(2, 2), device='meta')"
    with FakeTensorMode():
        assert repr(Symmetric.zeros(2, 3)) == "Symmetric(..., size=(2, 3, 3))"
    complex_text = repr(LowerTriangular(torch.tensor([1 + 2j, 0, 3 - 1j])))
    assert complex_text == (
        "LowerTriangular([[1.+2.j,      .],\n                 [0.+0.j, 3.-1.j]])"
    )


def test_text_of_large_matrices_and_batches_is_elided():
    # Elements of one magnitude, since torch prints others in scientific notation, over more lines.
    large = repr(LowerTriangular.randn(2000).fill_(0.5))
    assert large.count("\n") == 6 and large.count("...") == 7 and len(large) < 800
    batch = repr(Symmetric.randn(50, 10).fill_(0.5))
    assert batch.count("\n\n") == 6 and "..." in batch
    assert "..." not in repr(UpperTriangular.randn(2, 5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("linewidth", [20, 40, 80, 1000])
def test_lines_are_as_long_as_those_of_torch(linewidth, dtype):
    t = Symmetric.randn(2, 14, dtype=dtype)
    name, dense_name = "Symmetric(", "tensor("
    longer = len(name) - len(dense_name)
    default = torch._tensor_str.PRINT_OPTS.linewidth
    try:
        torch.set_printoptions(linewidth=linewidth)
        expected = repr(t.to_dense())
        torch.set_printoptions(linewidth=linewidth + longer)
        ours = repr(t)
    finally:
        torch.set_printoptions(linewidth=default)
    first, *rest = expected.split("\n")
    moved = [" " * longer + line if line else line for line in rest]
    assert ours == "\n".join([first.replace(dense_name, name), *moved])


def test_text_under_torch_func_does_not_fail():
    seen = []
    torch.func.grad(lambda p: (seen.append(repr(LowerTriangular(p))), p.sum())[1])(torch.ones(3))
    torch.vmap(lambda p: (seen.append(repr(LowerTriangular(p))), p.sum())[1])(torch.ones(2, 3))
    assert all(s.startswith("LowerTriangular(") for s in seen)


@each_type
def test_in_place_arithmetic_acts_on_stored_elements(cls, device):
    t = make(cls, 4, device=device)
    before, inner = dense(t), t._packed
    t.mul_(3).add_(t).neg_()
    t /= 2
    assert t._packed is inner
    torch.testing.assert_close(dense(t), -3 * before)
    t.copy_(make(cls, 4, device=device)).zero_()
    assert t.packed.count_nonzero() == 0
    assert t.fill_(2).packed.eq(2).all()
    x = torch.ones(4, 4, dtype=torch.float64, device=device)
    torch.testing.assert_close(x.add_(t), 1 + dense(t))


@each_type
def test_in_place_arithmetic_broadcasts_over_batches(cls, device):
    t, one = make(cls, 4, batch=(2, 3), device=device), make(cls, 4, device=device)
    before = dense(t)
    t.add_(one).mul_(one[None])
    torch.testing.assert_close(dense(t), (before + dense(one)) * dense(one))
    assert torch.equal(dense(t.copy_(one)), dense(one).expand(2, 3, 4, 4))
    with pytest.raises(RuntimeError, match="has no place"):
        one.add_(t)
    with pytest.raises(NotImplementedError, match="one type and shape"):
        one.add_(make(cls, 3, device=device))


@each_type
@pytest.mark.parametrize(
    "f",
    [
        lambda t: t.transpose(5, 0),
        lambda t: t.permute(2, 3),
        lambda t: t.diagonal(0, 2, 3),
        lambda t: torch.linalg.matrix_norm(t, dim=(2, 3)),
        lambda t: t.sum(2),
    ],
)
def test_dimensions_out_of_range_raise(cls, f):
    for t in (cls.eye(3), torch.eye(3)):
        with pytest.raises(IndexError):
            f(t)


@each_type
def test_changes_through_the_transpose_are_seen(cls, device):
    t = make(cls, 4, device=device)
    before = dense(t)
    t.mT.mul_(2)
    torch.testing.assert_close(dense(t), 2 * before)
    assert t.mT._version == t._version


def test_hash_for_caches_tells_shapes_and_types_apart():
    tensors = [cls.randn(*size) for cls in TYPES for size in ((3,), (4,), (2, 3))]
    assert len({t._stable_hash_for_caching() for t in tensors}) == len(tensors)


@each_type
def test_flatten_and_unflatten(cls):
    t = make(cls, 4, batch=(2,))
    names, context = t.__tensor_flatten__()
    again = cls.__tensor_unflatten__(
        {n: getattr(t, n) for n in names}, context, t.shape, t.stride()
    )
    assert type(again) is cls and torch.equal(again, t)


@pytest.mark.parametrize(
    "dtype", [torch.int64, torch.bool, torch.complex32, torch.float8_e4m3fn], ids=str
)
@each_type
@pytest.mark.filterwarnings("ignore:To copy construct", "ignore:ComplexHalf")
def test_copies_of_other_dtypes_are_dense(cls, dtype):
    """As those of ``to`` are, where torch's own code makes them."""
    t = make(cls, 3, torch.float16, batch=(2,))
    expected = dense(t).to(dtype)
    for copy in (
        lambda: torch.as_tensor(t, dtype=dtype),
        lambda: torch.asarray(t, dtype=dtype),
        lambda: torch.tensor(t, dtype=dtype),
        lambda: t.new_tensor(t, dtype=dtype),
        lambda: torch.ones(2).to(dtype).new_tensor(t),
        lambda: t.to(dtype),
    ):
        x = copy()
        assert type(x) is Tensor and x.dtype == dtype
        assert torch.equal(x.view(torch.uint8), expected.view(torch.uint8))
    with torch._C.DisableTorchFunctionSubclass():
        assert type(t.new_zeros(t.shape, dtype=dtype)) is Tensor
        with pytest.raises(NotImplementedError, match=f"zeros_like.*{dtype}.*{cls.__name__}"):
            torch.zeros_like(t, dtype=dtype)
    for known in (torch.float16, torch.float64):
        assert type(torch.as_tensor(t, dtype=known)) is cls
        assert type(torch.tensor(t, dtype=known)) is cls


@each_type
def test_gradients_of_copies_of_other_dtypes(cls):
    t = make(cls, 3, torch.float16).requires_grad_()
    torch.as_tensor(t, dtype=torch.complex32).to(torch.complex64).real.sum().backward()
    assert type(t.grad) is cls
    assert torch.equal(t.grad.to_dense(), cls.from_dense(torch.ones(3, 3)).half().to_dense())
