"""Bad input raises an error that says what was expected, what came and what to do."""

from __future__ import annotations

import copy
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.multiprocessing.reductions import StorageWeakRef
from twins import TRIANGULAR, each_type

import packedtri
from packedtri import LowerTriangular, PackedTensor, Symmetric, UpperTriangular, _library

each_triangular = pytest.mark.parametrize("cls", TRIANGULAR)


def raises(error: type[Exception], *parts: str):
    return pytest.raises(error, match=".*".join(map(re.escape, parts)))


@each_type
def test_lengths_that_are_not_triangular(cls):
    with raises(ValueError, cls.__name__, "7", "6 (n = 3)", "10 (n = 4)", "(2, 7)", "from_dense"):
        cls(torch.zeros(2, 7))
    with raises(ValueError, "65", "55 (n = 10)", "66 (n = 11)"):
        cls(torch.zeros(65))
    with raises(ValueError, cls.__name__, "scalar"):
        cls(torch.tensor(1.0))


@each_type
def test_values_that_are_no_packed_tensor(cls):
    for value in ([1.0, 2.0, 3.0], np.zeros(3), None, cls.eye(2)):
        with raises(TypeError, f"[{cls.__name__}]", "packed tensor", type(value).__name__):
            cls(value)
    for dtype in (torch.int64, torch.bool, torch.float8_e4m3fn):
        with raises(TypeError, cls.__name__, "float16", "complex128", str(dtype)):
            cls(torch.zeros(3).to(dtype))
    with raises(TypeError, cls.__name__, "strided", "sparse_coo"):
        cls(torch.zeros(3).to_sparse())
    with raises(TypeError, "base class"):
        PackedTensor(torch.zeros(3))


@each_type
def test_values_that_are_no_square_matrices(cls):
    name = f"[{cls.__name__}.from_dense]"
    for shape in ((3, 4), (2, 4, 3), (4,), ()):
        with raises(ValueError, name, "square", str(shape)):
            cls.from_dense(torch.zeros(shape))
    with raises(TypeError, name, "torch.int64"):
        cls.from_dense(torch.zeros(3, 3, dtype=torch.int64))
    for value in (np.eye(3), [[1.0]], cls.eye(3)):
        with raises(TypeError, name, "dense tensor", type(value).__name__):
            cls.from_dense(value)


@each_type
def test_sizes_of_factories(cls):
    for size in ((), (-1,), (2, -3)):
        with raises(ValueError, cls.__name__, "(*batch, n)"):
            cls.zeros(*size)


@each_triangular
def test_shapes_in_products(cls):
    a, name = cls.randn(4, 8), cls.__name__
    with raises(
        ValueError,
        f"[matmul] expected (..., n, n) @ (..., n, m); got {name} (4, 8, 8) @ Tensor (4, 9, 3)",
    ):
        a @ torch.zeros(4, 9, 3)
    with raises(
        ValueError,
        f"[matmul] expected (..., m, n) @ (..., n, n); got Tensor (3, 9) @ {name} (4, 8, 8)",
    ):
        torch.zeros(3, 9) @ a
    with raises(ValueError, "[matmul]", f"{name} (4, 8, 8) @ {name} (9, 9)"):
        a @ cls.randn(9)
    for b in (cls.randn(3, 8), cls.transposed.randn(3, 8), torch.zeros(3, 8, 2)):
        with raises(ValueError, "[matmul]", "batch", f"{name} (4, 8, 8)", "(3, 8, "):
            a @ b
    with raises(ValueError, "batch"):
        torch.zeros(3, 2, 8) @ a
    with raises(ValueError, "[matmul]", "Tensor (7,)"):
        a @ torch.zeros(7)
    with raises(ValueError, "[matmul]", "Tensor ()"):
        a @ torch.tensor(2.0)
    with raises(ValueError, "[mm]", "2 and 2 dimensions", f"{name} (4, 8, 8)"):
        torch.mm(a, a)
    with raises(ValueError, "[bmm]", "3 and 3 dimensions"):
        torch.bmm(a, cls.randn(8))
    with raises(ValueError, "[bmm]", "same length"):
        torch.bmm(a, torch.zeros(1, 8, 8))
    with raises(ValueError, "[mv]", "2 and 1 dimensions"):
        torch.mv(a, torch.zeros(8))


@each_type
def test_dtypes_and_devices_in_products(cls):
    a = cls.randn(3)
    for b in (cls.randn(3, dtype=torch.float64), torch.zeros(3, 3, dtype=torch.float64)):
        with raises(ValueError, "[matmul]", "same dtype", "torch.float32", "torch.float64"):
            a @ b
    for b in (cls.randn(3, device="meta"), torch.zeros(3, 3, device="meta")):
        with raises(ValueError, "[matmul]", "same device", "cpu", "meta"):
            a @ b


@each_type
def test_dtypes_and_devices_in_products_under_autocast(cls):
    """Autocast casts no float64 and no complex operand; what it casts may differ before."""
    a = cls.randn(3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (a @ a.half()).dtype == torch.bfloat16
        for dtype in (torch.float64, torch.complex64):
            for b in (cls.randn(3, dtype=dtype), torch.zeros(3, 3, dtype=dtype)):
                with raises(ValueError, "same dtype", "float32", "bfloat16", str(dtype)):
                    a @ b
                with raises(ValueError, "[matmul]", "same dtype", str(dtype), "float32"):
                    b @ a
        for b in (cls.randn(3, device="meta"), torch.zeros(3, 3, device="meta")):
            with raises(ValueError, "[matmul]", "same device", "cpu", "meta"):
                a @ b
    meta = cls.randn(3, device="meta")
    with raises(ValueError, "[matmul]", "same dtype", "torch.float32", "torch.float64"):
        meta @ meta.double()


@each_type
def test_wrong_types_in_products(cls):
    a = cls.randn(3)
    for other in (2, 2.5, "x", None, [1.0]):
        with raises(TypeError, "unsupported operand type"):
            a @ other
        with raises(TypeError, "unsupported operand type"):
            other @ a
        with pytest.raises(TypeError):
            torch.matmul(a, other)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "mkldnn"])
@each_type
def test_tensors_without_strides_in_products_and_solves(cls, layout):
    a, x, d = cls.eye(3), torch.ones(3), torch.eye(3)
    other = d.to_mkldnn() if layout == "mkldnn" else d.to_sparse(layout=getattr(torch, layout))
    calls = {
        "matmul": [lambda: a @ other, lambda: other @ a],
        "mm": [lambda: torch.mm(a, other), lambda: torch.mm(other, a)],
        "linalg.solve": [lambda: torch.linalg.solve(a, other)],
        "bilinear_form": [
            lambda: packedtri.bilinear_form(other, a, x),
            lambda: packedtri.bilinear_form(x, a, other),
        ],
    }
    if cls in (LowerTriangular, UpperTriangular):
        upper = cls is UpperTriangular
        calls["linalg.solve_triangular"] = [
            lambda: torch.linalg.solve_triangular(a, other, upper=upper)
        ]
        calls["cholesky_solve"] = [lambda: torch.cholesky_solve(other, a, upper=upper)]
    else:
        calls["inv_quad_logdet"] = [lambda: packedtri.inv_quad_logdet(a, other)]
    if cls is LowerTriangular:
        calls["cholesky_update"] = [lambda: packedtri.cholesky_update(a, other)]
    for name, uses in calls.items():
        for use in uses:
            with raises(TypeError, f"[{name}]", "strided", "Tensor (3, 3)", layout, ".to_dense()"):
                use()
    with raises(TypeError, "[matmul]", "strided", ".to_dense()", "torch.sparse.mm"):
        a @ x.to_sparse()
    torch.testing.assert_close(torch.sparse.mm(d.to_sparse(), a), d)
    with raises(TypeError, "strided", ".to_dense()"):
        torch.linalg.solve(a, x.to_sparse())


@each_type
def test_out_arguments_that_do_not_fit(cls):
    a, x = cls.randn(3), torch.zeros(3, 3)
    with raises(NotImplementedError, "torch.exp", "dense result into packed storage, out="):
        torch.exp(x, out=a)
    with raises(NotImplementedError, "torch.mm", "dense result into packed storage, out="):
        torch.mm(x, x, out=a)
    with raises(TypeError, "torch.mm", "expected a dense Tensor for out", cls.__name__):
        torch.mm(a, x, out=a)
    with raises(ValueError, "torch.mm", "out of shape (3, 3)", "(2, 3)"):
        torch.mm(a, x, out=x[:2])
    with raises(RuntimeError, "torch.mm", "torch.float32", "torch.int64"):
        torch.mm(a, x, out=x.long())
    with raises(RuntimeError, "torch.mm", "out= does not support automatic differentiation"):
        torch.mm(a, x.clone().requires_grad_(), out=x)
    with raises(ValueError, "torch.mm", "on cpu", "on meta"):
        torch.mm(a, x, out=x.to("meta"))
    with raises(TypeError, "torch.linalg.slogdet", "expected 2 tensors for out"):
        torch.linalg.slogdet(a, out=(x, x, x))
    with raises(ValueError, "copy_", "broadcasts to (3, 3)", "(1, 3, 3)"):
        a.copy_(x[None])
    other = UpperTriangular if cls is LowerTriangular else LowerTriangular
    with raises(TypeError, "torch.neg", f"expected a {cls.__name__} for out"):
        torch.neg(a, out=other.zeros(3))


@each_type
def test_products_of_another_dtype_than_the_operands(cls):
    """Torch has them on CUDA alone, with the dtype as the last argument by position or by name."""
    dtype, wide = torch.bfloat16, torch.float32
    t, x, c = cls.eye(3, dtype=dtype), torch.ones(3, 3, dtype=dtype), torch.ones(3, 3)
    for a, b in ((t, x), (x, t), (t, t)):
        ab, aabb = (a, b), (a[None], b[None])
        for name, args in (
            ("mm", ab), ("bmm", aabb), ("addmm", (c, *ab)), ("baddbmm", (c[None], *aabb)),
            ("addmm", (t, *ab)), ("baddbmm", (t[None], *aabb)),
        ):  # fmt: skip
            function = getattr(torch, name)
            out = c.clone().reshape(args[-1].shape)
            for call in (
                lambda f=function, args=args: f(*args, wide),
                lambda f=function, args=args: f(*args, out_dtype=wide),
                lambda f=function, args=args: f(*args, dtype),
                lambda f=function, args=args, out=out: f(*args, out_dtype=wide, out=out),
                lambda f=function, args=args, out=out: f(*args, wide, out=out),
            ):
                with raises(
                    NotImplementedError, f"[{name}]", "out_dtype=torch.", cls.__name__, ".to(torch."
                ):
                    call()
            assert out.eq(1).all()
    for name, args in (("addmm", (c, x, x)), ("baddbmm", (c[None], x[None], x[None]))):
        with raises(NotImplementedError, f"[{name}]", "out_dtype", cls.__name__):
            getattr(torch, name)(t.expand(args[0].shape), *args[1:], out_dtype=wide)


@each_type
def test_wrong_types_in_contractions_and_assignments(cls):
    a, number = cls.randn(3), torch.tensor(1.0)
    for use in (
        lambda: torch.einsum("ij,jk", a, 2),
        lambda: torch.einsum("ij,jk", 2, a),
        lambda: torch.einsum("ij->ji", [a, 2]),
    ):
        with raises(TypeError, "[einsum]", "tensors for operands", "got int"):
            use()
    with raises(TypeError, "[broadcast_tensors]", "expected tensors", "got int"):
        torch.broadcast_tensors(a, 2)
    with raises(TypeError, "[chain_matmul]", "expected tensors", "got int"):
        torch.chain_matmul(a, 2)
    with raises(TypeError, "[tensordot]", "tensors for a and b", "got int"):
        torch.tensordot(a, 2, dims=1)
    with raises(RuntimeError, "tensordot expects dims", "got dims=1"):
        torch.tensordot(a, number, dims=1)
    with raises(RuntimeError, "tensordot expects dims", "got dims=1.5"):
        torch.tensordot(a, a, dims=1.5)
    with raises(IndexError, "Dimension out of range", "got 5"):
        torch.tensordot(a, a, dims=([5], [0]))
    for index in ((0, 0), ...):
        with raises(RuntimeError, "[__setitem__]", "real numbers", cls.__name__, "got complex"):
            a[index] = 1j
        for value, got in (("1", "str"), (None, "NoneType"), ([1j], "list")):
            with raises(TypeError, "[__setitem__]", "numbers", cls.__name__, f"got {got}"):
                a[index] = value


@each_type
def test_functions_without_a_row(cls):
    a = cls.randn(3)
    with raises(NotImplementedError, "torch.Tensor.cauchy_", cls.__name__, ".to_dense()"):
        a.cauchy_()


@each_type
def test_what_needs_dense_storage(cls):
    a = cls.randn(2)
    for use in (
        lambda: a.data_ptr(),
        lambda: a.numpy(),
        lambda: a.view(-1),
        lambda: a.view(torch.int32),
        lambda: a.as_strided((2,), (1,)),
        lambda: a.storage(),
        lambda: torch.utils.dlpack.from_dlpack(a),
        lambda: np.from_dlpack(a),
        lambda: a.resize_(3, 3),
        lambda: a.transpose_(0, 1),
        lambda: a.set_(torch.zeros(3)),
        lambda: torch.nn.utils.parameters_to_vector([a]),
    ):
        with pytest.raises(
            (NotImplementedError, RuntimeError, BufferError), match="packed|triangle"
        ):
            use()


@each_type
def test_storages_without_memory_say_so(cls):
    """What torch's own tools ask of one they get; it has no elements to read or to write."""
    a, other = cls.eye(3), torch.empty(9).untyped_storage()
    storage = a.untyped_storage()
    for name, use in (
        ("__getitem__", lambda: storage[0]),
        ("__getitem__", lambda: storage[1:3]),
        ("__getitem__", lambda: storage.tolist()),
        ("__setitem__", lambda: storage.__setitem__(0, 1)),
        ("fill_", lambda: storage.fill_(0)),
        ("copy_", lambda: storage.copy_(other)),
        ("copy_", lambda: storage.copy_(source=other)),
        ("clone", lambda: copy.deepcopy(storage)),
        ("_to", lambda: storage.float()),
        ("byteswap", lambda: storage.byteswap(torch.float32)),
        ("_share_fd_cpu_", lambda: storage._share_fd_cpu_()),
        ("data_ptr", lambda: storage.data_ptr()),
        ("__reduce__", lambda: pickle.dumps(storage)),
        ("share_memory_", lambda: storage.share_memory_()),
        ("resize_", lambda: storage.resize_(0)),
    ):
        with raises(NotImplementedError, f"[torch.UntypedStorage.{name}]", cls.__name__, ".packed"):
            use()
    assert a.untyped_storage() is storage and storage.nbytes() == len(storage) == 36
    assert f"{cls.__name__} (3, 3)" in str(storage) == repr(storage)
    assert isinstance(storage, torch.UntypedStorage) and storage.device == a.device
    assert StorageWeakRef(storage) == StorageWeakRef(a.untyped_storage())
    assert a.packed.untyped_storage().tolist() == a.packed.clone().untyped_storage().tolist()


@each_type
def test_errors_name_the_packed_argument(cls):
    t, x = cls.eye(3), torch.ones(6)
    with raises(NotImplementedError, f"not defined for {cls.__name__} (3, 3)"):
        x.clone().resize_as_(t)
    with raises(TypeError, "[data]", f"{cls.__name__} of order 3", "from_dense"):
        torch.nn.utils.vector_to_parameters(torch.ones(9), [t])
    assert not hasattr(t, "__cuda_array_interface__")
    with raises(AttributeError, f"{cls.__name__} (3, 3)", ".packed"):
        t.__cuda_array_interface__  # noqa: B018


@each_type
def test_assigning_data(cls):
    a, b = cls.randn(2), cls.randn(2)
    a.data = b
    assert torch.equal(a, b)
    for value in (torch.zeros(2, 2), torch.zeros(3)):
        with raises(TypeError, "[data]", cls.__name__, "order 2", "from_dense"):
            a.data = value
    with raises(TypeError, "[data]", cls.__name__, "order 2", f"{cls.__name__} (3, 3)", "new"):
        a.data = cls.randn(3)


@each_type
def test_assigning_data_of_another_dtype_or_batch(cls):
    """As dense tensors allow it, and Module.double() does it."""
    p = torch.nn.Parameter(cls.randn(3))
    expected = p.to_dense().double()
    p.data = p.data.double()
    assert p.dtype is p.packed.dtype is torch.float64 and p.requires_grad
    torch.testing.assert_close(p.to_dense(), expected)
    p.data = torch.stack([p.data, 2 * p.data])
    assert p.shape == (2, 3, 3) and p.packed.shape == (2, 6)
    (p @ torch.ones(3, dtype=torch.float64)).sum().backward()
    assert type(p.grad) is cls and p.grad.shape == p.shape and p.grad.dtype is p.dtype
    torch.optim.Adam([p], 0.1).step()


@each_triangular
def test_in_place_operations_that_would_leave_the_type(cls):
    a = cls.randn(3)
    for use in (
        lambda: a.add_(torch.ones(3, 3)),
        lambda: a.sub_(torch.ones(3)),
        lambda: a.add_(cls.transposed.randn(3)),
    ):
        with raises(NotImplementedError, "storage", cls.__name__):
            use()
    for use in (lambda x: a.copy_(x), lambda x: a.__setitem__(slice(None), x)):
        with raises(ValueError, "assignment", "element (", cls.__name__, "from_dense"):
            use(torch.arange(9.0).reshape(3, 3))


@each_triangular
def test_numbers_in_place_do_not_fill_the_other_half(cls):
    """Tensors without dimensions are operands too, which change every element."""
    a, two = cls.eye(2), torch.tensor(2.0)
    for use in (
        lambda: a.lerp_(two, 0.5),
        lambda: a.lerp_(end=two, weight=0.5),
        lambda: a.addcmul_(two, two),
        lambda: a.addcdiv_(two, cls.eye(2) + 1),
    ):
        with raises(NotImplementedError, "storage", cls.__name__):
            use()
    for value in (two, 2, 2.5, True, torch.nan, np.float64(2)):
        with raises(ValueError, "assignment", "element (", cls.__name__):
            a.copy_(value)
    assert torch.equal(a, cls.eye(2))
    assert torch.equal(a.addcmul_(a.clone(), two), 3 * cls.eye(2))
    assert torch.equal(a.lerp_(cls.eye(2), two / 4), 2 * cls.eye(2))
    assert torch.equal(a.addcdiv_(cls.eye(2), two), 2.5 * cls.eye(2))
    for zero in (torch.tensor(0.0), 0, 0.0):
        assert torch.equal(cls.eye(2).copy_(zero), 0 * cls.eye(2))
    assert cls.eye(1, dtype=torch.float64).copy_(0.1).item() == 0.1
    for value in (two, 2):
        assert torch.equal(Symmetric.eye(2).copy_(value).to_dense(), torch.full((2, 2), 2.0))


@pytest.mark.parametrize("name", ["LBFGS"])
@each_type
def test_optimizers_that_are_not_supported(cls, name):
    """They raise in their first step, and take none that would be wrong."""
    weight = cls.eye(3, requires_grad=True)
    optimizer = getattr(torch.optim, name)([weight])

    def loss():
        optimizer.zero_grad()
        value = (weight @ torch.ones(3)).square().sum()
        value.backward()
        return value

    with raises(NotImplementedError, cls.__name__, "to_dense"):
        optimizer.step(loss)
    assert torch.equal(weight.detach(), cls.eye(3))


@each_triangular
def test_rprop_would_write_to_structural_zeros(cls):
    weight = cls.eye(3, requires_grad=True)
    optimizer = torch.optim.Rprop([weight])
    (weight @ torch.ones(3)).square().sum().backward()
    with raises(ValueError, cls.__name__, "structural zero", "to_dense"):
        optimizer.step()
    assert torch.equal(weight.detach(), cls.eye(3))


def test_torch_func_over_a_type_raises_and_says_how():
    """torch.func hides the type, so that gradients would silently be dense and unprojected."""
    a = LowerTriangular.randn(3)
    x = torch.randn(3, 3)
    for f in (
        lambda t: (t @ x).sum(),
        lambda t: t.sum(),
        lambda t: (t * t).sum(),
        lambda t: t.to_dense().sum(),
        lambda t: (t + x).square().sum(),
        lambda t: torch.linalg.det(t),
        lambda t: t.packed.sum(),
    ):
        with pytest.raises((NotImplementedError, AttributeError), match="packed"):
            torch.func.grad(f)(a)
    with pytest.raises(NotImplementedError, match="packed"):
        torch.vmap(lambda t: t @ x)(LowerTriangular.randn(2, 3))


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@each_type
def test_make_fx_of_a_type_would_trace_a_constant(cls, mode):
    t, x = cls.randn(3), torch.randn(3, 3)
    functions = [
        lambda t: t @ t.to_dense(),
        lambda t: x @ t,
        lambda t: t.packed,
        lambda t: t.to_dense(),
        lambda t: t.sum(),
        lambda t: t.mT.clone(),
    ]
    for f in functions:
        with raises(NotImplementedError, "make_fx", cls.__name__, "p: f("):
            make_fx(f, tracing_mode=mode)(t)
    with raises(NotImplementedError, "make_fx", cls.__name__, "p: f("):
        make_fx(lambda pair: pair[0] @ pair[1], tracing_mode=mode)((t, x))
    graph = make_fx(lambda p: cls(p) @ t.to_dense(), tracing_mode="real")(t.packed)
    other = cls.randn(3)
    torch.testing.assert_close(graph(other.packed), other @ t.to_dense())


class _Double(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


@each_type
def test_operators_that_take_functions_are_named(cls):
    t, x = cls.randn(3), torch.randn(3, 3)
    way_out = f"{cls.__name__} (3, 3)", ".packed", "inside"
    with raises(NotImplementedError, "[torch.autograd.Function]", *way_out):
        torch.func.grad(lambda x: (_Double.apply(t) @ x).sum())(x)
    calls = (
        (lambda t: t.to_dense() * 2, lambda t: t.to_dense() + 1, (t,)),
        (lambda x: t @ x, lambda x: x @ t, (x,)),
    )
    with raises(NotImplementedError, "[torch.cond]", *way_out):
        torch.ops.higher_order.cond(torch.tensor(True), *calls[0])
    # Before 2.13 torch itself stops at the types, with an assertion.
    told = torch.__version__ >= "2.13"
    named = r"\[torch\.cond\].*" + re.escape(way_out[0])
    for call in calls:
        torch._dynamo.reset()
        with pytest.raises(Exception, match=named if told else None) as info:
            torch.cond(torch.tensor(True), *call)
        if told:
            assert "object at" not in str(info.value).split("[torch.cond]")[1].split("inside")[0]

    def branches(p):
        return torch.cond(p.sum() > 0, lambda p: cls(p) @ x, lambda p: cls(2 * p) @ x, (p,))

    torch.testing.assert_close(branches(x.new_ones(6)), cls(torch.ones(6)) @ x)


@each_type
def test_lists_of_types_for_nested_tensors(cls):
    with raises(NotImplementedError, "nested_tensor", f"{cls.__name__} (3, 3)", "stack"):
        torch.nested.nested_tensor([cls.eye(3), cls.eye(3)])


def test_cuda_tensors_without_the_cuda_library():
    """The op's CUDA kernel, where none was built, says how to get one."""
    if _library.cuda_library is not None:
        pytest.skip("the CUDA library is there")
    cuda = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
    p, x = torch.zeros(3), torch.zeros(2, 2)
    for op, args in (
        (torch.ops.packedtri.mm.default, (p, p, 2, 0, 0, 0)),
        (torch.ops.packedtri.pack.default, (x, 0)),
        (torch.ops.packedtri.unpack.default, (p, 2, 0)),
        (torch.ops.packedtri.pack_block.default, (x, 2, 0, 0, 0)),
        (torch.ops.packedtri.unpack_block.default, (p, 2, 0, 0, 0, 1, 1)),
        (torch.ops.packedtri.write_block_.default, (p, x, 2, 0, 0, 0)),
        (torch.ops.packedtri.scale_band.default, (p, 2, 0, 0, 1.0, 1.0, False)),
    ):
        with raises(RuntimeError, f"packedtri::{op._opname}", "nvcc", "PACKEDTRI_CUDA=ON"):
            op.redispatch(cuda, *args)


def test_every_op_says_what_it_lacks_on_cuda() -> None:
    """Its kernels, or an error that tells that they were not built; never torch's own."""
    ops = torch._C._dispatch_get_all_op_names()
    ours = [name for name in ops if name.startswith("packedtri::") and "." not in name]
    assert len(ours) >= 10
    lacking = [
        name
        for name in ours
        if torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU")
        and not torch._C._dispatch_has_kernel_for_dispatch_key(name, "CUDA")
    ]
    assert not lacking


def test_checks_of_values_that_vmap_hides_name_themselves():
    x = torch.eye(3).expand(2, 3, 3)
    with pytest.raises(NotImplementedError, match="from_dense.*check=True looks at values.*vmap"):
        torch.vmap(lambda x: LowerTriangular.from_dense(x, check=True).packed)(x)
    found = torch.vmap(lambda x: LowerTriangular.from_dense(x).packed)(x)
    assert found.shape == (2, 6)


def test_the_function_that_was_called_says_that_a_matrix_is_not_positive_definite():
    t = packedtri.Symmetric.eye(2).neg()
    with pytest.raises(
        torch.linalg.LinAlgError, match=r"\[inv_quad_logdet\].*order 1 is not positive-definite"
    ):
        packedtri.inv_quad_logdet(t, torch.ones(2))


def test_submodules_come_with_the_package():
    code = "import packedtri; print(packedtri.nn.PositiveDiagonal.__name__)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "PositiveDiagonal"


BROADCASTS = {
    "sub_": lambda a, b: a.sub_(b),
    "mul_": lambda a, b: a.mul_(b),
    "div_": lambda a, b: a.div_(b),
    "copy_": lambda a, b: a.copy_(b),
    "lerp_": lambda a, b: a.lerp_(b, 0.5),
    "addcmul_": lambda a, b: a.addcmul_(b, b),
    "addcdiv_": lambda a, b: a.addcdiv_(b, 1.0 + b.to_dense()),
    "maximum, by name": lambda a, b: a.clamp_(min=b),
    "another type": lambda a, b: a.mul_(b.mT),
    "dense": lambda a, b: a.sub_(b.to_dense()),
    "masked_fill_": lambda a, b: a.masked_fill_(b.to_dense() > 0, 1.0),
    "pow_": lambda a, b: a.pow_(1.0 + b.to_dense()),
}


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("name", BROADCASTS)
def test_results_in_place_have_the_shape_of_what_changes(name, recorded):
    for batches, of_others in (((1,), (3,)), ((), (3,)), ((2, 1), (1, 3))):
        a = LowerTriangular.eye(*batches, 2).requires_grad_(recorded).clone()
        b = LowerTriangular.eye(*of_others, 2)
        shape = tuple(torch.broadcast_shapes(a.shape, b.shape))
        with raises(RuntimeError, "_] the result has the shape", str(shape), "no place", "expand"):
            BROADCASTS[name](a, b)
        assert torch.equal(a.to_dense(), torch.eye(2).expand(a.shape))
        with pytest.raises(RuntimeError):
            BROADCASTS[name](a.to_dense(), b)


@pytest.mark.parametrize("recorded", [False, True])
def test_copies_of_other_types_name_the_function(recorded):
    t = LowerTriangular.eye(2).requires_grad_(recorded).clone()
    with raises(NotImplementedError, "[torch.Tensor.copy_]", "Hermitian (2, 2)"):
        t.copy_(packedtri.Hermitian.eye(2))


def test_storage_is_not_set():
    t, x = LowerTriangular.eye(2), torch.eye(2)
    for change in (
        lambda: t.set_(t),
        lambda: t.set_(x),
        lambda: t.set_(),
        lambda: t.set_(x.untyped_storage()),
        lambda: x.set_(t),
    ):
        with raises(NotImplementedError, "[torch.Tensor.set_]", "(2, 2)", ".data", "copy_"):
            change()


@each_type
def test_dense_tensors_are_viewed_as_types(cls):
    x = torch.randn(9)
    view = x.view_as(cls.eye(3))
    assert type(view) is torch.Tensor and view.shape == (3, 3) and view._base is x
    with raises(NotImplementedError, "view", "to_dense"):
        cls.eye(3).view_as(x)
