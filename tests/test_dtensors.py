"""Types whose stored elements are DTensors, in a mesh of this process alone.

What more than one process does with them is in test_distributed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from calls import COMPUTED, NOT_COMPARED, Keywords, attempts, name_of, row_id
from torch import Tensor
from twins import TYPES, dense, each_type

import packedtri
from packedtri import LowerTriangular, PackedTensor, Symmetric, UpperTriangular, dispatch

tensors = pytest.importorskip("torch.distributed.tensor")
pytestmark = pytest.mark.skipif(
    torch.__version__ < "2.12", reason="torch has too few rules of its own"
)
ROWS = [r for r in COMPUTED if name_of(r.function) not in NOT_COMPARED]


@pytest.fixture
def mesh(process_group: None) -> Any:
    return tensors.init_device_mesh("cpu", (1,))


def spread(value: Any, mesh: Any, made: dict[int, Any] | None = None) -> Any:
    """The same with DTensors in the place of tensors, one for each."""
    made = {} if made is None else made
    if isinstance(value, (tuple, list)):
        parts = [spread(v, mesh, made) for v in value]
        if isinstance(value, Keywords):
            options = {k: spread(v, mesh, made) for k, v in value.kwargs.items()}
            return Keywords(tuple(parts), options)
        return type(value)(parts)
    if not isinstance(value, Tensor):
        return value
    if id(value) not in made:
        plain = value.packed if isinstance(value, PackedTensor) else value
        whole = [tensors.Replicate()]
        one = tensors.distribute_tensor(plain.detach().clone(), mesh, whole)
        made[id(value)] = type(value)(one) if isinstance(value, PackedTensor) else one
    return made[id(value)]


def gathered(value: Any) -> Any:
    """The same with plain tensors, packed types as dense ones."""
    value = dense(value)
    if isinstance(value, (tuple, list)):
        return [gathered(v) for v in value]
    return value.full_tensor() if isinstance(value, tensors.DTensor) else value


def call(row: dispatch.Row, args: Any) -> Any:
    with torch.no_grad():
        return row.function(*args, **getattr(args, "kwargs", {}))


def calls(row: dispatch.Row) -> Iterator[tuple[Any, Any]]:
    """Arguments, the first for each type that suit the function, and its results for them."""
    for cls in TYPES[::2] if not row.types else (row.types[0],):
        for args in attempts(row, cls):
            try:
                result = call(row, args)
            except Exception:
                continue
            if result is not NotImplemented and isinstance(result, (Tensor, tuple, list)):
                yield args, result
                break


@pytest.mark.filterwarnings("ignore")
def test_every_row(mesh):
    """The value and the type that a row gives for plain tensors, where torch can at all."""
    wrong, compared = [], 0
    for row in ROWS:
        for args, expected in calls(row):
            given = spread(args, mesh)
            try:
                ours = call(row, given)
            except Exception as error:
                if not fails_dense(row, given):
                    wrong.append(f"{row_id(row)}: {error}")
                continue
            compared += 1
            try:
                torch.testing.assert_close(gathered(ours), gathered(expected), equal_nan=True)
                assert isinstance(expected, PackedTensor) == isinstance(ours, PackedTensor)
            except AssertionError as error:
                wrong.append(f"{row_id(row)}: {error}")
    assert not wrong, "\n".join(wrong)
    assert compared > 1500


def fails_dense(row: dispatch.Row, given: Any) -> bool:
    """Whether torch has no rule for dense DTensors either."""
    twins = [dense(v) for v in given]
    options = {k: dense(v) for k, v in getattr(given, "kwargs", {}).items()}
    try:
        with torch.no_grad():
            row.function(*twins, **options)
    except Exception:
        return True
    return False


@each_type
def test_functions_of_ours(cls, mesh):
    t = cls.eye(3, dtype=torch.float64) * 2
    x = torch.randn(3, 2, dtype=torch.float64)
    for function in (
        lambda t, x: t.add_diagonal(x[:, 0]),
        lambda t, x: t.clone().add_diagonal_(0.5),
        lambda t, x: t.unit_diagonal(),
        lambda t, x: t.clone().set_diagonal_(x[:, 0]),
        lambda t, x: t[1:, :2],
        lambda t, x: packedtri.quadratic_form(t, x[:, 0]),
        lambda t, x: packedtri.error_bounds(t, x, x).backward,
        lambda t, x: packedtri.principal_submatrix(t, [0, 2]),
        lambda t, x: torch.block_diag(t, t),
    ):
        expected = function(t, x)
        ours = function(spread(t, mesh), spread(x, mesh))
        torch.testing.assert_close(gathered(ours), gathered(expected))
        assert isinstance(ours, PackedTensor) == isinstance(expected, PackedTensor)


def test_factors_that_gain_and_lose_rows(mesh):
    L = LowerTriangular.eye(3, dtype=torch.float64) * 2
    b, c = (torch.ones(2, k, dtype=torch.float64) for k in (3, 2))
    c = c + 4 * torch.eye(2, dtype=torch.float64)
    for at in (0, 1, 3):
        grown = packedtri.cholesky_insert(L, b, c, at=at)
        ours = packedtri.cholesky_insert(spread(L, mesh), spread(b, mesh), spread(c, mesh), at=at)
        torch.testing.assert_close(gathered(ours), gathered(grown))
        shrunk = packedtri.cholesky_delete(ours, slice(at, at + 2))
        torch.testing.assert_close(gathered(shrunk), gathered(L))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@each_type
def test_formats(cls, dtype, mesh):
    t, uplo = cls.randn(4, dtype=dtype), "U" if cls is UpperTriangular else "L"
    for name, args in (("lapack", (uplo,)), ("rfp", (uplo,)), ("fill_triangular", ())):
        if name == "rfp" and cls is Symmetric and dtype.is_complex:
            continue  # RFP has no place for it.
        stored = getattr(t, f"to_{name}")(*args)
        ours = spread(t, mesh)
        torch.testing.assert_close(gathered(getattr(ours, f"to_{name}")(*args)), stored)
        back = getattr(cls, f"from_{name}")(spread(stored, mesh), *args)
        torch.testing.assert_close(gathered(back), dense(t))


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@each_type
def test_changes_in_place(cls, dtype, mesh):
    t = cls.randn(2, 3, dtype=dtype)
    corner = cls.eye(2, dtype=dtype).to_dense().expand(2, 2, 2)
    for change in (
        lambda t, _: t.__setitem__((slice(None), 1, 1), 2.0),
        lambda t, x: t.__setitem__((slice(None), slice(0, 2), slice(0, 2)), x),
        lambda t, x: t.set_diagonal_(x[..., 0].real.sum(-1, keepdim=True)),
        lambda t, _: t.add_(t).mul_(0.5),
        lambda t, _: t.copy_(2 * t),
        lambda t, _: t.add_diagonal_(1.0),
    ):
        ours, plain = spread(t, mesh), t.clone()
        change(ours, spread(corner, mesh))
        change(plain, corner)
        torch.testing.assert_close(gathered(ours), dense(plain))
    one = cls.randn(3, dtype=dtype)
    ours = spread(one, mesh).fill_diagonal_(3.0)
    torch.testing.assert_close(gathered(ours), dense(one.fill_diagonal_(3.0)))


def test_whoever_comes_first_tells_torch(mesh, monkeypatch):
    """A process may meet DTensors in dense operands before any in a type."""
    told = []
    monkeypatch.setattr("packedtri._dtensor.importlib.import_module", told.append)
    square = spread(torch.eye(3), mesh)
    stored = spread(torch.ones(6), mesh)
    for enter in (
        lambda: LowerTriangular(stored),
        lambda: LowerTriangular._wrap(stored, 3),  # As torch.load does.
        lambda: Symmetric.from_dense(square),
        lambda: packedtri.syrk(square),
        lambda: packedtri.syr2k(square, square),
        lambda: packedtri.tria(square),
    ):
        told.clear()
        enter()
        assert told[:1] == ["packedtri.ops.sharding"]


def test_compiled(mesh):
    L, x = LowerTriangular.randn(3), torch.randn(3, 2)
    product = torch.compile(lambda L, x: (L @ x, L @ L.mT), fullgraph=True, backend="aot_eager")
    ours = product(spread(L, mesh), spread(x, mesh))
    torch.testing.assert_close(gathered(ours), gathered((L @ x, L @ L.mT)))
    assert type(ours[1]) is Symmetric


def test_texts_and_mixtures(mesh):
    L = spread(LowerTriangular.eye(3), mesh)
    assert repr(L) == "LowerTriangular(..., size=(3, 3), placements=(Replicate(),))"
    with pytest.raises(RuntimeError, match="mixed torch.Tensor and DTensor"):
        L @ torch.ones(3, 1)
    with pytest.raises(NotImplementedError, match=r"share_memory_.*local part"):
        L.share_memory_()
    with pytest.raises(ValueError, match=r"all_reduce\].*to_local"):
        torch.distributed.all_reduce(L)
    with pytest.raises(NotImplementedError, match=r"distribute_tensor.*LowerTriangular\(distrib"):
        tensors.distribute_tensor(LowerTriangular.eye(3), mesh, [tensors.Shard(0)])
