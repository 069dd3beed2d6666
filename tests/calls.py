"""Calls of torch functions for the rows of the dispatch table, and their dense twins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from numbers import Number
from typing import Any

import torch
from torch import Tensor
from twins import TRIANGULAR

from packedtri import PackedTensor, dispatch
from packedtri.testing import densify

N = 4
ROWS = dispatch.rows()
# Collectives need another process: see test_distributed.
COMPUTED = [r for r in ROWS if r.how in ("native", "dense") and ".distributed." not in r.name]

# Results that are random, or say something of the object and not of its elements.
NOT_COMPARED = {
    "bernoulli", "dropout", "rand_like", "randn_like", "randint_like", "empty_like", "new_empty",
    "new", "type", "pin_memory", "is_shared", "is_pinned", "__dlpack_device__", "share_memory_",
    "data", "nbytes", "__set__", "cuda", "__bool__", "__int__", "__float__", "__complex__",
    "__index__", "item", "__contains__", "__iter__", "__array__", "new_tensor", "xpu", "ipu",
    "mtia", "__setitem__", "view", "record_stream",
}  # fmt: skip
# Results that are determined only up to signs or order of vectors.
NOT_UNIQUE = {
    "qr",
    "svd",
    "eig",
    "eigh",
    "householder_product",
    "argsort",
    "ldl_factor",
    "lu",
    "lu_factor",
}


def name_of(function: Callable[..., Any]) -> str:
    if (name := getattr(function, "__name__", "")) in ("__get__", "__set__", "__delete__"):
        return function.__self__.__name__ if hasattr(function, "__self__") else name
    return name


def well_conditioned(cls: type[PackedTensor]) -> PackedTensor:
    """A random matrix with distinct elements; a Symmetric one is positive definite."""
    t = cls.randn(N, dtype=torch.float64)
    return cls(t.packed + 8 * cls.eye(N, dtype=torch.float64).packed)


def dense(value: Any) -> Any:
    if isinstance(value, PackedTensor):
        return densify(value._packed.detach(), value.n, value.kind)
    if isinstance(value, (tuple, list)):
        return (
            type(value)(map(dense, value))
            if type(value) in (tuple, list)
            else tuple(map(dense, value))
        )
    return value


def extra_arguments() -> Iterator[tuple[Any, ...]]:
    """What a function may need after its first argument."""
    vector, matrix = torch.rand(N).double(), torch.rand(N, N).double()
    yield from (
        (),
        (matrix,),
        (vector,),
        (2,),
        (0,),
        (0.5,),
        (0, 1),
        (-1, -2),
        (0, torch.arange(2)),
    )
    yield from (((N, N),), ((N * N,),), ((0, 1),), (0, 1, 2), (matrix, matrix), (vector, vector))
    yield from (
        (torch.float64,),
        (matrix > 0.5,),
        (0, torch.zeros(N, N).long()),
        (torch.arange(3),),
    )
    yield from (
        (matrix > 0.5, 1.0),
        (0, torch.arange(N), matrix),
        (0, torch.arange(N), 1.0),
        ([1, 1],),
    )
    yield from ((0, torch.zeros(N, N).long(), matrix), (1, 0, 2), (1, (2, 2)), (0.5, 0), (2, 0, 1))
    yield from (
        (matrix[None], matrix[None]),
        ((1, 1),),
        (0, (2, 2)),
        ((N,), matrix),
        (matrix.bool(), matrix),
    )


def attempts(row: dispatch.Row, cls: type) -> Iterator[tuple[Any, ...]]:
    """Argument lists to try, the packed type first where the row does not say."""
    sample = {Tensor: lambda: torch.rand(N, N).double(), Number: lambda: 2, object: lambda: 2}
    if row.types:
        first = tuple(sample.get(t, lambda t=t: well_conditioned(t))() for t in row.types)
    else:
        first = (well_conditioned(cls),)
    for extra in extra_arguments():
        yield (*first, *extra)
        if len(first) == 2 and first[1] is not None and isinstance(first[1], Tensor):
            yield (first[0], first[1][0] if row.types[1] is Tensor else first[1], *extra)
    t = first[0]
    if not isinstance(t, PackedTensor):
        t = next(x for x in first if isinstance(x, PackedTensor))
    batched = tuple(
        type(x)(x.packed[None]) if isinstance(x, PackedTensor) else x[None]
        for x in first
        if isinstance(x, Tensor)
    )
    z = type(t)(torch.randn(t.packed.shape, dtype=torch.complex128))
    lu = torch.linalg.lu_factor(torch.rand(N, N).double())
    special = {
        "bmm": [batched],
        "imag": [(z,)],
        "__get__": [(z,)],
        "new_full": [(t, (2, 3), 1.5)],
        "allclose": [first, (t, t)],
        "dsplit": [(type(t)(t.packed[None]), 2)],
        "hsplit": [(t, 2)],
        "addmv": [(torch.rand(N).double(), t, torch.rand(N).double())],
        "chain_matmul": [(t, t), (t, torch.rand(N, 2).double(), torch.rand(2, N).double())],
        "bitwise_not": [],
        "where": [(torch.rand(N, N) > 0.5, t, 0.0)],
        "einsum": [("ij,jk->ik", t, t)],
        "polygamma": [(1, t)],
        "block_diag": [(t, t)],
        "bilinear": [(t, t, torch.rand(2, N, N).double())],
        "tensorsolve": [(t, torch.rand(N).double())],
        "embedding": [(torch.tensor([0, 1]), t)],
        "layer_norm": [(t, (N,))],
        "lu_solve": [(t, *lu)],
        "linalg_lu_solve": [(*lu, t)],
        "linalg_ldl_solve": [(*torch.linalg.ldl_factor(lu[0] + lu[0].mT), t)],
        "reshape_as": [(t, torch.zeros(N * N))],
        "cross": [(type(t)(torch.rand(6).double()), torch.rand(3, 3).double())],
        "cholesky_solve": [(torch.rand(N, 2).double(), t), (*first, True)],
        "cholesky_inverse": [(t, True)],
        "triangular_solve": [(*first, False)],
        "solve_triangular": [],
        "linalg_cross": [(type(t)(torch.rand(6).double()), torch.rand(3, 3).double())],
        "__rpow__": [(t, 2.0)],
        "eye": [Keywords((N,), {"out": t})],
        "index_put": [(type(t)(t.packed.repeat(3, 1)), (torch.tensor([2]),), t)],
        "index_put_": [(type(t)(t.packed.repeat(3, 1)), (torch.tensor([2]),), t)],
    }
    yield from special.get(name_of(row.function), ())
    for sequence in ([t, t], (t, t)):
        for extra in ((), (0,)):
            yield (sequence, *extra)
    for upper in (True, False):
        yield Keywords((t, torch.rand(N, 2).double()), {"upper": upper})
    for function in ({"dtype": torch.float64}, {"repeats": 2}, {"size": (N, N)}):
        yield Keywords((t,), function)


class Keywords(tuple):
    """Positional arguments with keyword arguments beside them."""

    kwargs: dict[str, Any]

    def __new__(cls, args: tuple[Any, ...], kwargs: dict[str, Any]):
        self = super().__new__(cls, args)
        self.kwargs = kwargs
        return self


def works_on_dense(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[bool, Any]:
    try:
        with torch.no_grad():
            options = getattr(args, "kwargs", {})
            result = function(*map(dense, args), **{k: dense(v) for k, v in options.items()})
    except (TypeError, ValueError, RuntimeError, IndexError, AttributeError, AssertionError):
        return False, None
    return result is not NotImplemented and result is not None, result


def divides_by_zero(row: dispatch.Row, args: tuple[Any, ...]) -> bool:
    """Structural zeros stay zero there, where 0 / 0 is nan: documented, and not compared."""
    if name_of(row.function) == "relu" and len(args) > 1:
        return True  # That argument asks for it in place.
    return "div" in row.name and len(args) > 1 and not isinstance(args[1], Tensor) and args[1] == 0


def divides_triangles(row: dispatch.Row, args: tuple[Any, ...]) -> bool:
    """The same of quotients of two triangles, whose stored elements are compared."""
    types = set(map(type, args[:2]))
    return "div" in row.name and len(args) > 1 and types in ({c} for c in TRIANGULAR)


def contains_packed(args: Any) -> bool:
    if isinstance(args, (tuple, list)):
        return any(map(contains_packed, (*args, *getattr(args, "kwargs", {}).values())))
    return isinstance(args, PackedTensor)


DIFFERENTIABLE = [r for r in COMPUTED if name_of(r.function) in (
    "add", "sub", "mul", "div", "neg", "abs", "sin", "sqrt", "exp", "square", "tanh", "maximum",
    "matmul", "mm", "sum", "det", "diagonal", "trace", "inverse", "inv", "solve", "norm", "logdet",
    "transpose", "T", "mT", "mH", "conj", "adjoint", "clone", "tril", "stack", "__getitem__", "pow",
    "__matmul__", "__rmatmul__", "__rsub__", "__radd__", "__truediv__", "linear", "cholesky",
    "matrix_exp", "reshape", "unsqueeze", "where", "relu", "reciprocal", "detach", "vector_norm",
)]  # fmt: skip


def row_id(row: dispatch.Row) -> str:
    return "-".join([row.name.removeprefix("torch."), *(t.__name__ for t in row.types)])


def assert_same(ours: Any, expected: Any) -> None:
    ours = dense(ours)
    if isinstance(expected, (tuple, list)):
        for a, b in zip(ours, expected, strict=True):
            assert_same(a, b)
    elif isinstance(expected, Tensor):
        assert type(ours) is Tensor
        torch.testing.assert_close(ours, expected, equal_nan=True)
    else:
        assert ours == expected or ours is expected or (ours != ours and expected != expected)
