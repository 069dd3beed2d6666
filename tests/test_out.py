"""Results that are written into a tensor of the caller's, ``out=``."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from twins import dense, each_type

from packedtri import LowerTriangular, PackedTensor, Symmetric, UpperTriangular
from packedtri.ops import matmul, solve

S = Symmetric.eye(3, dtype=torch.float64) * 2
L = LowerTriangular(torch.arange(1.0, 7.0, dtype=torch.float64))
X = torch.arange(1.0, 10.0, dtype=torch.float64).reshape(3, 3)
CALLS = {
    "mm": lambda **out: torch.mm(S, X, **out),
    "matmul": lambda **out: torch.matmul(X, L, **out),
    "bmm": lambda **out: torch.bmm(S[None], X[None], **out),
    "mv": lambda **out: torch.mv(L, X[0], **out),
    "addmm": lambda **out: torch.addmm(X, S, X, beta=2, **out),
    "multi_dot": lambda **out: torch.linalg.multi_dot([L, X, S], **out),
    "typed product": lambda **out: torch.mm(L, L, **out),
    "solve": lambda **out: torch.linalg.solve(S, X, **out),
    "solve_triangular": lambda **out: torch.linalg.solve_triangular(L, X, upper=False, **out),
    "cholesky_solve": lambda **out: torch.cholesky_solve(X, L, **out),
    "det": lambda **out: torch.linalg.det(S, **out),
    "slogdet": lambda **out: torch.linalg.slogdet(S, **out),
    "inv": lambda **out: torch.linalg.inv(S, **out),
    "inv_ex": lambda **out: torch.linalg.inv_ex(L, **out),
    "cholesky": lambda **out: torch.linalg.cholesky(S, **out),
    "cholesky_ex": lambda **out: torch.linalg.cholesky_ex(S, **out),
    "matrix_power": lambda **out: torch.linalg.matrix_power(S, 2, **out),
    "sin": lambda **out: torch.sin(L, **out),
    "clamp": lambda **out: torch.clamp(S, -1, 1, **out),
    "lerp": lambda **out: torch.lerp(S, S * 2, 0.5, **out),
    "mul by a number": lambda **out: torch.mul(S, 2, **out),
    "add of a number": lambda **out: torch.add(S, 1.0, **out),
    "mean": lambda **out: torch.mean(S, 0, **out),
    "stack": lambda **out: torch.stack([S, S], **out),
    "kron": lambda **out: torch.kron(S, X, **out),
}


# Torch casts what these compute to the dtype of ``out``.
CASTING = {
    "cholesky_solve", "sin", "clamp", "lerp", "mul by a number", "add of a number", "mean", "stack",
    "kron",
}  # fmt: skip


def pairs(result: Tensor | tuple[Tensor, ...], out: Tensor | tuple[Tensor, ...]):
    return zip(result, out, strict=True) if isinstance(result, tuple) else [(result, out)]


@pytest.mark.parametrize("name", CALLS)
def test_results_are_written(name: str) -> None:
    call = CALLS[name]
    expected = call()
    several = isinstance(expected, tuple)
    for like in (
        torch.zeros_like,
        lambda x: torch.zeros(x.shape, dtype=x.dtype),
        lambda x: torch.empty(0, dtype=x.dtype),
    ):
        out = tuple(map(like, expected)) if several else like(expected)
        written = call(out=out)
        assert type(written) is (type(expected) if several else type(out))
        for (result, into), (found, _) in zip(
            pairs(expected, out), pairs(written, out), strict=True
        ):
            assert found is into
            torch.testing.assert_close(dense(into), dense(result))


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
@pytest.mark.parametrize("name", CALLS)
def test_dense_tensors_of_other_dtypes(name: str, dtype: torch.dtype) -> None:
    call = CALLS[name]
    expected = call()
    several = isinstance(expected, tuple)
    for shaped in (True, False):
        out = [
            torch.zeros(x.shape if shaped else 0, dtype=dtype if x.is_floating_point() else x.dtype)
            for x in (expected if several else [expected])
        ]
        if name in CASTING:
            assert call(out=out[0]) is out[0]
            torch.testing.assert_close(out[0], dense(expected).to(dtype))
        else:
            message = f"expected out of dtype torch.float64; got {dtype}"
            with pytest.raises(RuntimeError, match=message):
                call(out=tuple(out) if several else out[0])
            assert shaped or not out[0].numel()


@each_type
def test_packed_types_of_other_dtypes(cls: type[PackedTensor]) -> None:
    t = cls.randn(3, dtype=torch.float64)
    for call in (
        lambda **out: torch.mul(t, 2, **out),
        lambda **out: torch.neg(t, **out),
        lambda **out: torch.add(t, t, **out),
    ):
        for dtype in (torch.float32, torch.complex128):
            out = cls.zeros(3, dtype=dtype)
            version = out._version
            assert call(out=out) is out and out.dtype == dtype and out._version > version
            torch.testing.assert_close(out, call().to(dtype))
    with pytest.raises(ValueError, match="neg.* expected out of shape"):
        torch.neg(cls.eye(3, dtype=torch.complex64), out=t)
    with pytest.raises(ValueError, match="inv.* expected out of shape"):
        torch.linalg.inv(cls.eye(3), out=t)


@each_type
def test_an_operand_may_be_out(cls: type[PackedTensor]) -> None:
    t = cls.eye(3, dtype=torch.float64) * 2
    for call in (
        lambda **out: torch.linalg.inv(t, **out),
        lambda **out: torch.mul(t, 3, **out),
        lambda **out: torch.neg(t, **out),
    ):
        expected = call()
        version = t._version
        assert call(out=t) is t and t._version > version
        torch.testing.assert_close(t, expected)


def random(*shape: int, dtype: torch.dtype, device: str) -> Tensor:
    return torch.randn(shape, dtype=dtype, device=device)


# Orders and batches of a packed operand, and shapes of a dense one, in the ways that products go:
# alone, in a batch, a matrix for a batch of either operand, by columns that are turned into rows,
# vectors, nothing to sum over, and no elements.
SHAPES = [
    ((5,), (5, 3)), ((2, 5), (2, 5, 3)), ((5,), (4, 5, 3)), ((1, 5), (4, 5, 3)),
    ((3, 1, 5), (2, 5, 3)), ((64,), (70, 64, 1)), ((96,), (40, 96, 16)), ((5,), (5,)),
    ((2, 5), (5,)), ((0,), (0, 3)), ((5,), (5, 0)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128, torch.bfloat16])
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("cls", [LowerTriangular, UpperTriangular, Symmetric])
def test_dense_products_are_written_in_place(
    cls: type[PackedTensor],
    shapes: tuple[tuple[int, ...], ...],
    dtype: torch.dtype,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (*batch, n), right = shapes
    t = cls(random(*batch, n * (n + 1) // 2, dtype=dtype, device=device))
    x = random(*right, dtype=dtype, device=device)
    other = LowerTriangular if cls is UpperTriangular else UpperTriangular
    pairs = [(t, x), (t, other(t.packed.flip(-1)))]
    pairs += [(x.mT, t)] if x.dim() > 1 else [(x, t)] if not batch else []
    expected = [torch.matmul(a, b) for a, b in pairs]
    # A new result would be an error.
    monkeypatch.setattr(matmul, "bare_mm", None)
    monkeypatch.setattr(matmul, "quick_mm", None)
    for (a, b), result in zip(pairs, expected, strict=True):
        out = torch.full_like(result, torch.nan)
        version, place = out._version, out.data_ptr()
        assert torch.matmul(a, b, out=out) is out
        assert out._version > version and out.data_ptr() == place
        assert torch.equal(out, result)


@pytest.mark.parametrize("n", [3, 200])
def test_results_that_cannot_be_written_in_place(n: int, device: str) -> None:
    t = LowerTriangular(random(n * (n + 1) // 2, dtype=torch.float32, device=device))
    x = random(n, n, dtype=torch.float32, device=device)
    expected = t @ x
    # What is read and what is written share memory, or parts of it.
    both = torch.cat((x, x[:1]))
    for operand, out in (
        (x.clone(), None),
        (x.clone().mT.contiguous().mT, torch.empty_like(x).mT),
        (x, torch.empty(n, 2 * n, device=device)[:, ::2]),
        (both[:-1], both[1:]),
        (x, torch.empty(n * n + 1, device=device)[1:].view(n, n)),
    ):
        out = operand if out is None else out
        assert torch.matmul(t, operand, out=out) is out
        torch.testing.assert_close(out, expected)
    rest = random(2 * n * (n + 1), dtype=torch.float32, device=device)
    shared = LowerTriangular(rest[: n * (n + 1) // 2])
    expected = shared @ x
    out = rest[: n * n].view(n, n)
    torch.testing.assert_close(torch.mm(shared, x, out=out), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
@pytest.mark.parametrize("shapes", [s for s in SHAPES if len(s[1]) > 1 and s != ((5,), (5, 0))])
@pytest.mark.parametrize("cls", [LowerTriangular, UpperTriangular])
def test_solves_are_written_in_place(
    cls: type[PackedTensor],
    shapes: tuple[tuple[int, ...], ...],
    dtype: torch.dtype,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also over their right-hand sides, where these have the batch of the solution."""
    (*batch, n), right = shapes
    t = cls(random(*batch, n * (n + 1) // 2, dtype=dtype, device=device) / max(n, 1))
    t.add_diagonal_(1)
    x = random(*right, dtype=dtype, device=device)
    upper = cls is UpperTriangular
    cases = []
    for left, unit in ((True, False), (True, True), (False, False)):
        b = x if left else x.mT.contiguous()
        told = {"upper": upper, "left": left, "unitriangular": unit}
        cases.append((b, told, torch.linalg.solve_triangular(t, b, **told)))
    # A new result would be an error.
    monkeypatch.setattr(solve, "solve", None)
    monkeypatch.setattr(solve, "attempt", None)
    for b, told, expected in cases:
        before = b.clone()
        out = torch.full_like(expected, torch.nan)
        version, place = out._version, out.data_ptr()
        assert torch.linalg.solve_triangular(t, b, **told, out=out) is out
        assert out._version > version and out.data_ptr() == place
        assert torch.equal(out, expected) and torch.equal(b, before)
        if b.shape == expected.shape:
            again = b.clone()
            torch.linalg.solve_triangular(t, again, **told, out=again)
            assert torch.equal(again, expected)


@pytest.mark.parametrize("n", [3, 200])
def test_solves_that_share_memory(n: int, device: str) -> None:
    memory = random(3 * n * n, dtype=torch.float32, device=device)
    t = LowerTriangular.eye(n, device=device)
    t[n - 1, 0] = 2
    both = memory[: n * n + n].view(n + 1, n)
    for b, out in (
        (both[:-1], both[1:]),
        (both[1:], both[:-1]),
        (both[:-1].mT, both[:-1]),
        (both[:-1], both[:-1].mT),
        (both[:-1], memory[1 : n * n + 1].view(n, n)),
    ):
        expected = torch.linalg.solve_triangular(t, b, upper=False)
        assert torch.linalg.solve_triangular(t, b, upper=False, out=out) is out
        torch.testing.assert_close(out, expected)
    # The triangle itself.
    inside = LowerTriangular(memory[: n * (n + 1) // 2])
    inside.add_diagonal_(n)
    out = memory[: n * n].view(n, n)
    b = random(n, n, dtype=torch.float32, device=device)
    expected = torch.linalg.solve_triangular(inside, b, upper=False)
    torch.linalg.solve_triangular(inside, b, upper=False, out=out)
    torch.testing.assert_close(out, expected)
    leaf = t.clone().requires_grad_()
    with pytest.raises(RuntimeError, match="does not support automatic differentiation"):
        torch.linalg.solve_triangular(leaf, b, upper=False, out=b)


def test_who_else_sees_results_that_are_written(device: str) -> None:
    """Backward formulas that have saved ``out``, and inference tensors."""
    t = LowerTriangular(torch.arange(1.0, 7.0, device=device))
    x = torch.eye(3, device=device)
    out = torch.ones(3, 3, device=device)
    leaf = torch.ones(3, 3, device=device, requires_grad=True)
    product = (leaf * out).sum()
    torch.mm(t, x, out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()
    with torch.inference_mode():
        out = torch.empty(3, 3, device=device)
        assert torch.mm(t, x, out=out) is out
        assert torch.equal(out, t.to_dense())
    with pytest.raises(RuntimeError, match="outside InferenceMode"):
        torch.mm(t, x, out=out)
    with torch.autocast(device, dtype=torch.bfloat16):
        out = torch.empty(3, 3, device=device, dtype=torch.bfloat16)
        assert torch.equal(torch.mm(t, x, out=out), t.to_dense().bfloat16())


def test_places_that_are_not_aligned(device: str) -> None:
    """Dense torch has products like these on some GPUs, behind which its results are looked at."""
    n = 800
    t, u = (
        cls(random(2, n * (n + 1) // 2, dtype=torch.bfloat16, device=device))
        for cls in (LowerTriangular, UpperTriangular)
    )
    out = torch.full((2 * n * n + 1,), torch.nan, dtype=torch.bfloat16, device=device)
    torch.matmul(t, u, out=out[1:].view(2, n, n))
    assert out[0].isnan() and torch.equal(out[1:].view(2, n, n), t @ u)


def test_lists_are_looked_at_in_each_call() -> None:
    """Their types are not known by position: what one call found serves no other."""
    out = Symmetric.zeros(2, 3, dtype=torch.float64)
    for _ in range(2):
        with pytest.raises((TypeError, NotImplementedError), match="dense result into packed"):
            torch.stack([X, X], out=out)
        assert torch.stack([S, S], out=out) is out
        assert torch.equal(out[1], S)
        out.zero_()


def test_calls_with_and_without_out_differ() -> None:
    for _ in range(2):
        out = torch.full((3, 3), torch.nan, dtype=torch.float64)
        assert torch.matmul(L, X, out=out) is out
        assert torch.equal(torch.matmul(L, X), out)
        assert torch.equal(torch.matmul(L, X, out=None), out)
