"""Every row of the dispatch table: its value, its type, and that its gradient reaches the type."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from numbers import Number
from typing import Any

import pytest
import torch
from calls import (
    COMPUTED,
    DIFFERENTIABLE,
    NOT_COMPARED,
    NOT_UNIQUE,
    ROWS,
    assert_same,
    attempts,
    contains_packed,
    dense,
    divides_by_zero,
    divides_triangles,
    name_of,
    row_id,
    works_on_dense,
)
from torch import Tensor
from torch.overrides import TorchFunctionMode
from twins import TYPES, each_type, project

import packedtri  # noqa: F401  (fills the table)
from packedtri import (
    LowerTriangular,
    PackedTensor,
    Symmetric,
    UpperTriangular,
    _aten_table,
    _values,
    dispatch,
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", COMPUTED, ids=map(row_id, COMPUTED))
def test_value_and_type_of_every_row(row):
    if name_of(row.function) in NOT_COMPARED:
        pytest.skip("random, or about the object")
    tried = 0
    for cls in TYPES if not row.types else (row.types[0],):
        for args in attempts(row, cls):
            if not contains_packed(args) or divides_by_zero(row, args):
                continue
            works, expected = works_on_dense(row.function, args)
            if not works:
                continue
            try:
                ours = row.function(*args, **getattr(args, "kwargs", {}))
            except ValueError as error:
                # Dense torch reads the zeros of the other triangle then.
                if "contradicts" in str(error):
                    continue
                raise
            tried += 1
            if divides_triangles(row, args) and isinstance(ours, PackedTensor):
                expected = project(type(ours), expected)
            if name_of(row.function) not in NOT_UNIQUE:
                assert_same(ours, expected)
            exact_types = (
                len(args) >= len(row.types) > 0
                and tuple(map(_values.canonical_type, args[: len(row.types)])) == row.types
            )
            if row.result is not None and exact_types and len(args) == len(row.types):
                assert _values.canonical_type(ours) is row.result or type(ours) is row.result
    assert tried, "no argument list of this test suits the function"


def scalar(result: Any) -> Tensor:
    """A function of a result with a different weight for each of its elements."""
    if isinstance(result, (tuple, list)):
        return sum(map(scalar, result))
    result = result.to_dense() if isinstance(result, PackedTensor) else result
    weights = torch.arange(1.0, result.numel() + 1, dtype=torch.float64).reshape(result.shape)
    return (result * weights.sin()).sum()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=map(row_id, DIFFERENTIABLE))
def test_gradient_of_rows_is_the_projected_dense_gradient(row):
    for cls in TYPES if not row.types else (row.types[0],):
        for args in itertools.islice(attempts(row, cls), 12):
            works, expected = works_on_dense(row.function, args)
            if divides_by_zero(row, args):
                continue
            if not works or not isinstance(expected, Tensor) or not expected.is_floating_point():
                continue
            kwargs = getattr(args, "kwargs", {})
            ours = [a.detach().requires_grad_() if isinstance(a, PackedTensor) else a for a in args]
            twins = [dense(a).requires_grad_() if isinstance(a, PackedTensor) else a for a in args]
            result = row.function(*ours, **kwargs)
            if not scalar(result).requires_grad:
                assert name_of(row.function) == "detach"
                continue
            scalar(result).backward()
            scalar(row.function(*twins, **kwargs)).backward()
            for a, b in zip(ours, twins, strict=True):
                if isinstance(a, PackedTensor):
                    if a.grad is None:
                        assert b.grad is None or not b.grad.any()
                        continue
                    assert type(a.grad) is type(a)
                    reference = project(type(a), b.grad)
                    torch.testing.assert_close(dense(a.grad), reference, equal_nan=True)


def test_the_table_is_well_formed():
    assert len(ROWS) > 800
    assert len({(r.function, r.types) for r in ROWS}) == len(ROWS)
    for row in ROWS:
        assert row.name and callable(row.handler)
        assert all(t in (*TYPES, Tensor, Number, object) for t in row.types)
        in_place = row.name.endswith("_") and not row.name.endswith("__")
        assert not (in_place and row.how == "dense"), f"{row.name} would write to a temporary"


def test_base_types_expand_and_lookups_agree():
    row = dispatch.find(torch.matmul, (UpperTriangular, UpperTriangular))
    assert row.result is UpperTriangular and row.how == "native" and row.name == "torch.matmul"
    assert dispatch.find(torch.matmul, (Symmetric, Tensor)).how == "native"
    assert dispatch.find(torch.exp, (LowerTriangular,)) is None
    assert dispatch.rest(torch.exp).how == dispatch.classify(torch.histc) == "dense"
    assert dispatch.classify(torch.exp) == dispatch.classify(Tensor.exp_) == "native"
    assert dispatch.classify(Tensor.data_ptr) == dispatch.classify(Tensor.cauchy_) == "refused"
    assert _values.canonical_type(torch.nn.Parameter(torch.zeros(1))) is Tensor
    assert _values.canonical_type(True) is Number and _values.canonical_type("x") is object

    class Mine(LowerTriangular):
        pass

    assert _values.canonical_type(Mine(torch.zeros(3))) is LowerTriangular
    torch.testing.assert_close((Mine(torch.ones(3)) @ LowerTriangular.eye(2)).packed, torch.ones(3))
    # As load_state_dict does with either.
    assert Mine.zeros(2).copy_(LowerTriangular.eye(2)).packed.tolist() == [1, 0, 1]
    assert LowerTriangular.eye(2).copy_(Mine.zeros(2)).packed.tolist() == [0, 0, 0]
    with pytest.raises(NotImplementedError, match="one type"):
        Mine.zeros(2).copy_(UpperTriangular.eye(2))


def test_names_and_advice_of_messages():
    names = {torch.mm: "torch.mm", torch.matmul: "torch.matmul", Tensor.add: "torch.Tensor.add"}
    for function, name in names.items():
        assert _values.function_name(function) == name
    t = LowerTriangular.randn(3)
    with pytest.raises(NotImplementedError, match="torch.func"):
        torch.func.grad(lambda t: t.sum())(t)
    with (
        torch._C.DisableTorchFunctionSubclass(),
        pytest.raises(NotImplementedError, match="to_dense") as info,
    ):
        torch.sin(t)
    assert "torch.func" not in str(info.value)


BY_NAME: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "mul": (lambda L, B: L.mul(other=2), lambda L, B: L.mul(2)),
    "mul of both": (lambda L, B: torch.mul(input=L, other=L), lambda L, B: torch.mul(L, L)),
    "add": (lambda L, B: torch.add(L, other=L, alpha=3), lambda L, B: torch.add(L, L, alpha=3)),
    "sin": (lambda L, B: torch.sin(input=L), lambda L, B: torch.sin(L)),
    "pow": (lambda L, B: L.pow(exponent=2), lambda L, B: L.pow(2)),
    "div": (lambda L, B: torch.div(L, other=0.5), lambda L, B: torch.div(L, 0.5)),
    "maximum": (lambda L, B: torch.maximum(L, other=-L), lambda L, B: torch.maximum(L, -L)),
    "complex": (lambda L, B: torch.complex(real=L, imag=L), lambda L, B: torch.complex(L, L)),
    "matmul": (lambda L, B: torch.matmul(input=L, other=L), lambda L, B: L @ L),
    "mm": (lambda L, B: L.mm(mat2=L), lambda L, B: L.mm(L)),
    "inverse": (lambda L, B: torch.inverse(input=L), lambda L, B: torch.inverse(L)),
    "solve": (lambda L, B: torch.linalg.solve(A=L, B=L), lambda L, B: torch.linalg.solve(L, L)),
    "relu": (
        lambda L, B: torch.nn.functional.relu(input=L),
        lambda L, B: torch.nn.functional.relu(L),
    ),
    "addcmul": (
        lambda L, B: torch.addcmul(input=L, tensor1=L, tensor2=L),
        lambda L, B: torch.addcmul(L, L, L),
    ),
    "flip": (lambda L, B: B.flip(dims=(0,)), lambda L, B: B.flip(0)),
    "chunk": (lambda L, B: B.chunk(chunks=2)[1], lambda L, B: B.chunk(2)[1]),
    "split": (
        lambda L, B: torch.split(B, split_size_or_sections=[1, 3])[1],
        lambda L, B: B.split([1, 3])[1],
    ),
    "tensor_split": (
        lambda L, B: B.tensor_split(indices=(1, 3))[1],
        lambda L, B: B.tensor_split((1, 3))[1],
    ),
    "narrow": (lambda L, B: B.narrow(length=2, start=1, dim=0), lambda L, B: B.narrow(0, 1, 2)),
    "index_select": (
        lambda L, B: B.index_select(dim=0, index=torch.tensor([2])),
        lambda L, B: B.index_select(0, torch.tensor([2])),
    ),
    "unflatten": (lambda L, B: B.unflatten(dim=0, sizes=(2, 2)), lambda L, B: B.view(2, 2, 3, 3)),
    "flatten": (lambda L, B: B[None].flatten(end_dim=1), lambda L, B: B[None].flatten(0, 1)),
    "movedim": (
        lambda L, B: B[None].movedim(source=0, destination=1),
        lambda L, B: B[None].movedim(0, 1),
    ),
    "reversed": (lambda L, B: reversed(B), lambda L, B: B.flip(0)),
}


@pytest.mark.parametrize("name", BY_NAME)
def test_arguments_may_be_given_by_name(name: str) -> None:
    """As torch names them, in every overload: the type is found all the same."""
    by_name, by_position = BY_NAME[name]
    L, B = LowerTriangular.eye(3) * 2 + LowerTriangular.randn(3), LowerTriangular.randn(4, 3)
    ours, expected = by_name(L, B), by_position(L, B)
    assert type(ours) is type(expected) is LowerTriangular
    assert torch.equal(ours.packed, expected.packed)


def test_the_table_can_be_listed_by_itself():
    code = "from packedtri import _aten_table as table, dispatch\n"
    code += "print(len(dispatch.rows()), len(table.aten_ops()))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rows, ops = map(int, out.stdout.split())
    assert rows == len(ROWS) and ops == len(_aten_table.aten_ops()) > 100


def test_the_import_leaves_dynamo_alone() -> None:
    """It takes two seconds, which only those who compile should wait."""
    code = "import sys, packedtri; print('torch._dynamo' in sys.modules, 'sympy' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["False", "False"]


class _Names(TorchFunctionMode):
    """Keeps the names of the functions that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


@each_type
def test_operators_of_products_are_seen_by_modes(cls):
    t, x = cls.randn(3), torch.randn(3, 3)
    for left, right in itertools.product((t, x), repeat=2):
        expected = left @ right
        with _Names() as mode:
            ours = left @ right
        assert mode.names[0] in ("matmul", "__rmatmul__")
        assert type(ours) is type(expected) and torch.equal(ours, expected)


@each_type
def test_operators_of_products_are_left_to_the_rules_of_others(cls):
    class Rules:
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func.__name__

    class Mine(Rules, cls):
        pass

    t, x = cls.randn(3), torch.randn(3, 3)
    mine = Mine.randn(3)
    assert t @ Rules() == "matmul"
    assert {t @ mine, mine @ t, mine @ x, x @ mine} <= {"matmul", "__rmatmul__"}
    with pytest.raises(TypeError, match="unsupported operand"):
        t @ "text"


def test_aliases_have_rows_of_their_own():
    """Torch has two equal functions, of which one is no operator by its name."""
    assert torch.dsmm == torch.mm and dispatch.classify(torch.dsmm) == "native"
    assert dispatch.rest(torch.mm).how == "dense"
