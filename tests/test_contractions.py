"""Functions that reduce to products: einsum, tensordot, inner, chains, addmm and linear layers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from derivatives import check_derivatives
from torch import Tensor
from twins import MIRRORED, TYPES, called, each_type, square_type, wide

from packedtri import Hermitian, LowerTriangular, PackedTensor, Symmetric, dense_guard
from packedtri.ops import contract
from packedtri.testing import densify

N = 4


@pytest.fixture(autouse=True)
def _nothing_is_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """What reduces to packed functions does so at the small sizes of these tests too."""
    monkeypatch.setattr(contract, "_LITTLE", -1)


def dense(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return type(x)(map(dense, x))
    return densify(x._packed.detach(), x.n, x.kind) if isinstance(x, PackedTensor) else x


def unpacks(call: Callable[[], Any]) -> bool:
    """Whether a packed operand was converted to dense on the way."""
    return any("unpack" in name for name in called(call))


def check(call: Callable[..., Any], *operands: Any, packed: bool = True) -> Any:
    """The value is that of the dense twins, and no operand was unpacked unless told."""
    result, expected = call(*operands), call(*dense(operands))
    torch.testing.assert_close(dense(result), expected)
    assert unpacks(lambda: call(*operands)) is not packed
    return result


def operands(cls: type, device: str, batch: tuple[int, ...] = ()) -> list[Any]:
    """Two packed matrices, a dense one and a vector."""
    options = {"dtype": torch.float64, "device": device}
    a, b = (cls.randn(*batch, N, **options) for _ in range(2))
    return [a, b, torch.randn(*batch, N, N, **options), torch.randn(*batch, N, **options)]


PRODUCTS = (
    ("ij,jk->ik", "ab"), ("ij , jk -> ki", "ab"), ("ij,jk", "ab"), ("ji,jk->ik", "ab"),
    ("ij,kj->ki", "ab"), ("...ij,...jk->...ik", "ab"), ("ij,jk->ik", "ax"), ("ij,jk->ki", "xa"),
    ("ij,ik->jk", "ax"), ("ij,j->i", "av"), ("i,ij->j", "va"), ("ij,j", "av"),
    ("...ij,...j->...i", "av"), ("ij->ji", "a"), ("ij -> ij", "a"), ("ij,ij->ij", "ab"),
    ("ij,ij->ji", "ab"), ("...ij,...ij->...ij", "ab"),
)  # fmt: skip
BATCHED = (
    ("bij,bjk->bik", "ab"), ("...ij,...jk->...ik", "ax"), ("bij,bj->bi", "av"),
    ("bij,cj->bci", "av"), ("bij,cj->cib", "av"), ("bij,jb->bi", "aw"), ("bij,bkj->bki", "ax"),
    ("bij,ckj->bcik", "ax"), ("...ij,...jk", "xa"), ("bij,bij->bij", "ab"),
    ("...ij,...ij->...ji", "ab"), ("bij,b->bij", "as"), ("b,bij->bji", "sa"),
)  # fmt: skip
# What is one operand's alone, several operands two at a time, and matrices that stay whole or are
# multiplied element by element and summed.
REDUCED = (
    ("ii->i", "a"), ("ii", "a"), ("ij->i", "a"), ("ij->j", "a"), ("ij->", "a"), ("...ii->...", "a"),
    ("ij,ij->", "ab"), ("ij,ji", "ab"), ("ij,jk->", "ab"), ("ii,ij->j", "ab"), ("ij,jk->i", "ax"),
    ("i,ij,j->", "vav"), ("i,ji,j", "vav"), ("i,j,ij->", "vva"), ("ij,jk,kl->il", "aba"),
    ("ij,jk,lk->il", "axa"), ("ij,jk,k->i", "abv"), ("ij,ij,ij->ji", "aba"), ("i,ij,kj,k", "vabv"),
    ("kk,ij->ij", "xa"), ("ij,ii,i->j", "axv"), ("i,j,kl->ijkl", "vva"),
)  # fmt: skip
REDUCED_BATCHES = (
    ("bii->b", "a"), ("...ii->...i", "a"), ("bii->ib", "a"), ("bij->ij", "a"), ("bij->ji", "a"),
    ("bij->", "a"), ("bij->ib", "a"), ("bi,bij,bj->b", "vav"),
    ("bi,ij,bj->b", "vuv"), ("...i,...ij,...j->...", "vav"), ("b,bij->ij", "sa"),
    ("bij,b->ji", "as"), ("bij,b,b->ij", "ass"), ("bij,bc->cij", "av"), ("bij,bij->b", "ab"),
    ("bij,bji->b", "ab"), ("bij,bij->", "ab"), ("bij,cij->cb", "ab"), ("bij,ij->b", "au"),
    ("ij,bjk->ik", "ux"), ("bij,bkl->bij", "ax"),
)  # fmt: skip
CONVERTED = (
    ("ij,kl->ijkl", "ab"), ("ij,ij->i", "ab"), ("ij,ij->", "ax"),
)  # fmt: skip


@each_type
def test_little_is_unpacked_without_a_word(cls, device, monkeypatch):
    """Where the result has no type, with the same values; a guard is for what has no other way."""
    monkeypatch.setattr(contract, "_LITTLE", 100)
    options = {"dtype": torch.float64, "device": device}
    x = torch.randn(N, **options)
    for equation in ("i,ij,j->", "ij,ij->", "ii->", "ii->i", "ij->j"):
        t = cls.randn(N, **options)
        given = [t if len(term) == 2 else x for term in equation.partition("->")[0].split(",")]
        with dense_guard("raise"):
            check(partial(torch.einsum, equation), *given, packed=False)
        result = torch.einsum(equation, *[y.requires_grad_() if y is t else y for y in given])
        (gradient,) = torch.autograd.grad(result.abs().sum(), t)
        assert type(gradient) is cls
    t = t.detach()
    with pytest.warns(UserWarning, match="a copy of elements"):
        torch.einsum("ii->i", t).zero_()
    assert not unpacks(lambda: torch.einsum("ij,j->i", t, x))


@each_type
def test_einsum(cls, device):
    for equations, batch, packed in (
        (PRODUCTS, (), True), (BATCHED, (3,), True), (REDUCED, (), True),
        (REDUCED_BATCHES, (3,), True), (CONVERTED, (), False),
    ):  # fmt: skip
        a, b, x, v = operands(cls, device, batch)
        named = {"a": a, "b": b, "x": x, "v": v, "w": v.mT if batch else v, "s": v[..., 0]}
        named["u"] = a[0]
        for equation, names in equations:
            given = [named[name] for name in names]
            check(lambda *t, e=equation: torch.einsum(e, *t), *given, packed=packed)
            check(lambda *t, e=equation: torch.einsum(e, list(t)), *given, packed=packed)


@each_type
def test_types_of_einsum(cls, device):
    a, b, *_ = operands(cls, device)
    kept = cls if cls not in MIRRORED else Tensor
    assert type(torch.einsum("ij,jk->ik", a, b)) is kept
    assert type(torch.einsum("ij,jk->ki", a, b)) is (kept if kept is Tensor else cls.transposed)
    assert type(torch.einsum("ij,kj->ik", a, a)) is square_type(cls)
    check(lambda a: torch.einsum(a, [0, 1], a, [1, 2]), a)


@each_type
def test_types_of_einsum_of_whole_matrices_and_of_chains(cls, device):
    a, b, _, v = operands(cls, device, (3,))
    u, s, kept = a[0], v[:, 0], Tensor if cls in MIRRORED else cls
    for equation, given, result in (
        ("bij->ij", [a], cls), ("bij->ji", [a], cls.transposed), ("b,bij->ij", [s, a], cls),
        ("cb,bij->cji", [s.expand(2, 3), a], cls.transposed), ("bij->b", [a], Tensor),
        ("ij,bjk->ik", [u, b], kept), ("ij,jk,kl->il", [u, u, u], kept),
        ("ij,ij,ij->ij", [u, u, u], cls), ("ij,jk,lk->il", [u, u, u], Tensor),
    ):  # fmt: skip
        assert type(torch.einsum(equation, *given)) is result, equation
    if cls is Hermitian:
        a, weights = a.to(torch.complex128), s + 1j
        for equation in ("b,bij->ij", "b,bij->bij"):
            result = torch.einsum(equation, weights, a)
            assert type(result) is Tensor
            torch.testing.assert_close(result, torch.einsum(equation, weights, dense(a)))


@wide
def test_sums_of_products_of_two_types(wide, device):
    options = {"dtype": wide, "device": device}
    for cls, other in itertools.product(TYPES, TYPES):
        a, b = cls.randn(2, N, **options), other.randn(2, N, **options)
        packed = cls is other or not {cls, other} <= set(MIRRORED)
        for equation in ("bij,bij->b", "bij,bji->b", "bij,bij->", "bij,cij->bc"):
            check(lambda *t, e=equation: torch.einsum(e, *t), a, b, packed=packed)
        check(lambda *t: torch.tensordot(*t, 2), a[0], b[0], packed=packed)
        check(lambda *t: torch.tensordot(*t, ([-1, 0], [0, 1])), a[0], b[0], packed=packed)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@each_type
def test_sums_of_products_in_16_bits_neither_overflow_nor_round_on_the_way(cls, dtype, device):
    a = cls.randn(40, dtype=dtype, device=device)
    exact = torch.einsum("ij,ij->", *2 * [dense(a).double()])
    error = (torch.einsum("ij,ij->", a, a).double() - exact).abs() / exact
    assert error <= torch.finfo(dtype).eps
    large = cls.zeros(2, dtype=dtype, device=device)
    large.packed[1] = 0.75 * torch.finfo(dtype).max
    assert torch.einsum("ij,ij->", large, cls.eye(2, dtype=dtype, device=device)).isfinite()


def test_einsum_of_batches_that_differ(device):
    options = {"dtype": torch.float64, "device": device}
    L, M = LowerTriangular.randn(2, 3, N, **options), LowerTriangular.randn(3, N, **options)
    x = torch.randn(3, 5, N, **options)
    assert type(check(lambda *t: torch.einsum("abij,bjk->abik", *t), L, M)) is LowerTriangular
    assert type(check(lambda *t: torch.einsum("bij,abjk->abik", *t), M, L)) is LowerTriangular
    check(lambda *t: torch.einsum("abij,bcj->cabi", *t), L, x)
    check(lambda *t: torch.einsum("abij,bcj->abci", *t), L, x)
    check(lambda *t: torch.einsum("abij,bjca->acib", *t), L, x.mT[..., None].expand(3, N, 5, 2))
    check(lambda *t: torch.einsum("abij,cjk->abcik", *t), L, M, packed=False)
    with pytest.raises(RuntimeError):
        torch.einsum("ij,jk->ik", L, M)
    with pytest.raises(RuntimeError, match="subscript j has size 5"):
        torch.einsum("...ij,...jk->...ik", L, x)


@each_type
def test_einsum_derivatives(cls, device):
    p = torch.randn(2, 10, dtype=torch.float64, device=device, requires_grad=True)
    x = torch.randn(2, 3, N, dtype=torch.float64, device=device, requires_grad=True)

    def f(p: Tensor, x: Tensor) -> Tensor:
        return torch.einsum("bij,bcj->cbi", cls(p), x)

    check_derivatives(f, (p, x))


@each_type
@wide
def test_derivatives_of_einsum_on_reduced_operands(cls, wide, device):
    options = {"dtype": wide, "device": device, "requires_grad": True}
    p, q = (torch.randn(2, 6, **options) for _ in range(2))
    x = torch.randn(2, 3, **options)
    for f in (
        lambda p, q, x: torch.einsum("bi,bij,bj->b", x, cls(p), x),
        lambda p, q, x: torch.einsum("bij,cji->bc", cls(p), cls(q)),
        lambda p, q, x: torch.einsum("bij,bij->", cls(p), cls(q).tril()),
        lambda p, q, x: torch.einsum("b,bij->ji", x[:, 0], cls(p)).sum(0),
        lambda p, q, x: torch.einsum("bii,bij->j", cls(p), cls(q)),
        lambda p, q, x: torch.tensordot(cls(p)[0], cls(q)[1], 2),
    ):
        check_derivatives(f, (p, q, x))


@each_type
@wide
def test_einsum_of_elementwise_products_gives_what_the_product_gives(cls, wide, device):
    options = {"dtype": wide, "device": device}
    a, b = (cls.randn(2, N, **options) for _ in range(2))
    u, x = a[0], torch.randn(2, N, N, **options)
    s, rows, columns = x[:, 0, 0].real, x[:, 0, :, None], x[:, 0, None, :]
    twos, one = cls.randn(3, 2, N, **options), x[:, :1, :1].real
    for equation, operands, product in (
        ("bij,bij->bij", (a, b), a * b),
        ("bij , bij -> bji", (a, b), a.mT * b.mT),
        ("bij,bji->bij", (a, b), a * b.mT),
        ("ij,ij->ij", (u, b[0]), u * b[0]),
        ("...ij,...ij->...ij", (twos, b), twos * b),
        ("...ij,...ij->...ij", (u, twos), u * twos),
        ("...ij,...ij->...ij", (a[:1], b), a[:1] * b),
        ("abij,bij->abji", (twos, b), twos.mT * b.mT),
        ("ij,bij->bij", (u, x), u * x),
        ("bji,bij->bij", (x, a), a * x.mT),
        ("...ij,...->...ij", (twos, s), twos * s[:, None, None]),
        ("bij,b->bij", (a, s), a * s[:, None, None]),
        ("bij,bkl->bij", (a, one), a * one),
        ("ij,ij->ij", (u, one[0]), u * one[0]),
        ("bij,bi->bij", (a, rows[..., 0]), a * rows),
        ("bj,bij->bji", (columns[:, 0], a), a.mT * columns.mT),
        ("bij,bij->ibj", (a, b), None),
        ("bij,aij->abij", (a, twos[:, 0]), None),
        ("ij,ij,ij->ij", (u, u, u), u * u * u),
    ):
        result = torch.einsum(equation, *operands)
        expected = torch.einsum(equation, *map(dense, operands))
        torch.testing.assert_close(dense(result), expected)
        assert type(result) is (Tensor if product is None else type(product)), equation
    for first, second in ((u, cls.randn(N - 1, **options)), (a, cls.randn(3, N, **options))):
        with pytest.raises(RuntimeError, match=r"einsum\(\)"):
            torch.einsum("...ij,...ij->...ij", first, second)


@each_type
@wide
def test_derivatives_of_elementwise_products_by_einsum(cls, wide, device):
    p, q = (torch.randn(2, 6, dtype=wide, device=device, requires_grad=True) for _ in range(2))

    def f(p: Tensor, q: Tensor) -> Tensor:
        return torch.einsum("bij,bij->bji", cls(p), cls(q)).packed

    check_derivatives(f, (p, q))


@each_type
def test_tensordot_and_inner(cls, device):
    a, b, x, v = operands(cls, device)
    batched = cls.randn(2, N, dtype=torch.float64, device=device)
    for dims, packed in ((1, True), (([1], [0]), True), (([0], [0]), True), (([-1], [-1]), True),
                         (torch.tensor([[1], [0]]), True), (2, None), (0, None)):  # fmt: skip
        for pair in ((a, b), (a, x), (x, a), (batched, x), (x, batched), (a, v), (v, a)):
            try:
                torch.tensordot(*dense(pair), dims)
            except (RuntimeError, IndexError):
                continue
            # A sum over a batch dimension is no product of matrices.
            over_batch = pair[1] is batched and dims == 1
            over_batch |= pair[1] is batched and isinstance(dims, tuple) and 0 in dims[1]
            over_batch |= pair[1] is batched and isinstance(dims, Tensor)
            over_batch |= pair[0] is batched and isinstance(dims, tuple) and 0 in dims[0]
            if not over_batch:
                # Two sums take two types, and products of all with all one whose matrices are last.
                types = [isinstance(t, PackedTensor) for t in pair]
                keeps = types == [dims == 2, True] if packed is None else packed
                check(lambda *t, d=dims: torch.tensordot(*t, d), *pair, packed=keeps)
    for pair in ((a, b), (a, x), (x, a), (a, v), (v, a), (batched, x), (x, batched)):
        check(torch.inner, *pair)
    assert type(torch.inner(a, a)) is square_type(cls)
    check(torch.inner, batched, batched, packed=False)


@each_type
def test_chains(cls, device):
    a, b, x, v = operands(cls, device)
    tall, wide = x[:, :1], x[:2]
    for chain in ([a, b], [a, b, a], [a, b, x], [wide, a, b, tall], [v, a, b, v], [v, a], [a, v],
                  [x, a.mT, b, v], [wide, x, a]):  # fmt: skip
        check(lambda *t: torch.linalg.multi_dot(t), *chain)
        if all(t.dim() == 2 for t in chain):
            check(torch.chain_matmul, *chain)
    assert type(torch.linalg.multi_dot([a, b, a])) is (Tensor if cls in MIRRORED else cls)
    with pytest.raises(RuntimeError):
        torch.linalg.multi_dot([a, b[None], a])


def test_chains_are_split_where_the_work_is_least():
    from packedtri.ops.contract import _splits

    def cheapest(sizes: tuple[int, ...]) -> int:
        if len(sizes) == 2:
            return 0
        inner = range(1, len(sizes) - 1)
        return min(
            cheapest(sizes[: s + 1]) + cheapest(sizes[s:]) + sizes[0] * sizes[s] * sizes[-1]
            for s in inner
        )

    def cost(sizes: tuple[int, ...], at: dict[tuple[int, int], int], i: int, j: int) -> int:
        if j - i == 1:
            return 0
        s = at[i, j]
        return cost(sizes, at, i, s) + cost(sizes, at, s, j) + sizes[i] * sizes[s] * sizes[j]

    for sizes in ((3, 9, 9, 1), (1, 9, 9, 5), (10, 100, 5, 50), (4, 8, 2, 8, 2, 8, 4, 1)):
        assert cost(sizes, _splits(sizes), 0, len(sizes) - 1) == cheapest(sizes)


# -------------------------------------------------------------------------------- addmm and linear


@each_type
def test_addmm_and_its_kin(cls, device):
    a, b, x, v = operands(cls, device)
    A, B, X, _ = operands(cls, device, (3,))
    cases = (
        (torch.addmm, (a, a, b)), (torch.addmm, (a, b, x)), (torch.addmm, (x, a, x)),
        (torch.addmm, (v, x, a)), (torch.addmv, (v, a, v)), (torch.baddbmm, (A, A, B)),
        (torch.baddbmm, (X, A, X)), (torch.baddbmm, (v, X, A)), (torch.addbmm, (x, A, X)),
        (torch.addbmm, (x, A, B)), (torch.addmm, (a, x, x)), (torch.baddbmm, (A, X, X)),
        (torch.baddbmm, (a, X, X)), (torch.addbmm, (a, X, X)),
    )  # fmt: skip
    for function, (input, *factors) in cases:
        for factor in ({}, {"beta": 2, "alpha": -3}, {"beta": 0}, {"alpha": 0.5}):
            ours = function(input, *factors, **factor)
            twin = function(*dense((input, *factors)), **factor)
            torch.testing.assert_close(dense(ours), twin)
            method = getattr(input, function.__name__)(*factors, **factor)
            torch.testing.assert_close(dense(method), twin)
    kept = Tensor if cls in MIRRORED else cls
    assert type(torch.addmm(a, a, b, beta=0.5)) is kept
    assert type(torch.addmm(input=x, mat1=a, mat2=b)) is Tensor
    eye = square_type(cls).eye(N, dtype=x.dtype, device=device)
    assert type(torch.addmm(eye, a, a.mT)) is square_type(cls)
    nan = torch.full_like(x, float("nan"))
    assert not torch.addmm(nan, a, x, beta=0).isnan().any()


@each_type
@pytest.mark.parametrize("n", [0, 1, 2])
def test_the_order_does_not_decide_the_type_of_a_sum_with_a_product(cls, n):
    """A product that is dense is a matrix where it has one element, too, and no number."""
    linear = torch.nn.functional.linear
    t, u, x, v = cls.randn(n), cls.randn(n), torch.randn(n, n), torch.randn(n)
    A, B, X = t[None], u[None], x[None]
    for f, operands in (
        (torch.addmm, (t, u, x)), (torch.addmm, (t, x, x)), (torch.addmm, (t, t, t.mH.clone())),
        (torch.addmm, (x, t, t)), (torch.addmm, (v, t, t)), (torch.baddbmm, (A, B, X)),
        (torch.baddbmm, (X, A, A)), (torch.addbmm, (t, B, X)), (torch.addbmm, (x, A, A)),
        (linear, (x, u, t)), (linear, (t, u.mH.clone(), v)), (linear, (t, u, v)),
    ):  # fmt: skip
        result = f(*operands)
        assert type(result) is Tensor
        torch.testing.assert_close(result, f(*dense(operands)))
    kept = Tensor if cls in MIRRORED else cls
    for f, operands in (
        (torch.addmm, (t, t, u)), (torch.baddbmm, (A, A, B)), (torch.addbmm, (t, A, B)),
        (linear, (t, u.mT, t)),
    ):  # fmt: skip
        assert type(f(*operands)) is kept
    if cls in MIRRORED:
        assert type(torch.addmm(t, u, u)) is type(linear(u, u, t)) is cls


@each_type
def test_autocast_of_products_with_vectors_and_sums(cls):
    n, functional = 4, torch.nn.functional
    L, B, x, v, X = (
        cls.randn(n), cls.randn(2, n), torch.randn(n, n), torch.randn(n), torch.randn(2, n, n)
    )  # fmt: skip
    for f in (
        lambda L, B: torch.mv(L, v),
        lambda L, B: torch.addmv(v, L, v),
        lambda L, B: torch.addmm(x, L, x),
        lambda L, B: torch.addmm(L, L, x),
        lambda L, B: torch.addmm(x, x, L, beta=0.5),
        lambda L, B: torch.baddbmm(X, B, X),
        lambda L, B: torch.addbmm(x, X, B),
        lambda L, B: functional.linear(x, L),
        lambda L, B: functional.linear(x, L, v),
        lambda L, B: functional.linear(L, x, v),
        lambda L, B: x.clone().addmm_(L, x),
        lambda L, B: v.clone().addmv_(L, v),
    ):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            ours, theirs = f(L, B), f(L.to_dense(), B.to_dense())
        low = theirs.dtype == torch.bfloat16
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=0.1 if low else 1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.addmm(L, L, L).dtype == torch.bfloat16


def test_sums_with_products_need_one_dtype():
    L, x, v = LowerTriangular.eye(3), torch.ones(3, 3), torch.ones(3)
    addmv = lambda L: torch.addmv(v.double(), L, v)  # noqa: E731
    for f in (
        lambda L: torch.addmm(x.double(), L, x),
        addmv,
        lambda L: torch.baddbmm(x.double()[None], L[None], x[None]),
        lambda L: torch.addbmm(x.double(), L[None], x[None]),
        lambda L: torch.nn.functional.linear(x, L, v.double()),
    ):
        # Torch before 2.12 lets addmv pass.
        if f is not addmv or torch.__version__ >= "2.12":
            with pytest.raises(RuntimeError, match="dtype"):
                f(L.to_dense())
        with pytest.raises(ValueError, match="expected .* of .*float32; got .* of .*float64"):
            f(L)


def test_addmm_in_place(device):
    for cls in TYPES[:2]:
        a, b, x, v = operands(cls, device)
        A, B, X, _ = operands(cls, device, (3,))
        for name, self, factors in (
            ("addmm_", a, (a, b)), ("addmm_", x, (a, b)), ("addmm_", x, (a, x)),
            ("addmv_", v, (a, v)), ("baddbmm_", A, (A, B)), ("baddbmm_", X, (A, X)),
            ("addbmm_", x, (A, X)),
        ):  # fmt: skip
            for factor in ({}, {"beta": 2, "alpha": -3}, {"beta": 0}):
                t = self.clone()
                twin = getattr(dense(self).clone(), name)(*dense(factors), **factor)
                assert getattr(t, name)(*factors, **factor) is t
                torch.testing.assert_close(dense(t), twin)
        with pytest.raises(NotImplementedError, match="addmm_.*storage of .* addmm"):
            a.clone().addmm_(a, x)


@each_type
def test_addmm_derivatives(cls, device):
    p, q, r = (
        torch.randn(6, dtype=torch.float64, device=device, requires_grad=True) for _ in range(3)
    )

    def f(p: Tensor, q: Tensor, r: Tensor) -> Tensor:
        c = torch.addmm(cls(p), cls(q), cls(r), beta=2, alpha=-1)
        return c if type(c) is Tensor else c.packed

    check_derivatives(f, (p, q, r))


@each_type
def test_linear(cls, device):
    a, b, x, v = operands(cls, device)
    linear = torch.nn.functional.linear
    rows = torch.randn(2, 5, N, dtype=torch.float64, device=device)
    for arguments in ((rows, a), (rows, a, v), (v, a), (a, x), (a, x, v), (a, b), (a, v)):
        check(linear, *arguments)
    assert type(linear(a, a)) is square_type(cls)
    layer = torch.nn.Linear(N, N, dtype=torch.float64, device=device)
    layer.weight = torch.nn.Parameter(a)
    torch.testing.assert_close(layer(rows), linear(rows, dense(a), layer.bias))
    with pytest.raises(ValueError, match="linear"):
        linear(rows, cls.eye(2, N, dtype=rows.dtype, device=device))


def test_errors_of_sums(device):
    L, x = LowerTriangular.eye(3, device=device), torch.ones(3, 3, device=device)
    for message, call in (
        ("addmm.* does not expand", lambda: torch.addmm(x[None], L, x)),
        ("addmm.* does not expand", lambda: torch.addmm(x[:, :2], L, x)),
        ("addmm.* does not expand", lambda: torch.addmm(L, x[:2], x)),
        ("addmm.* does not expand", lambda: torch.addmm(L[None], x, x)),
        ("addbmm.* does not expand", lambda: torch.addbmm(L[None], x[None], x[None])),
        ("addmm_.* of the shape of", lambda: x[:2].clone().addmm_(L, x)),
        ("addmm_.* of the shape of", lambda: x.expand(3, *x.shape).clone().addmm_(L, x)),
        (
            "addmm_.* of the shape of",
            lambda: LowerTriangular.zeros(3, L.n, device=device).addmm_(L, L),
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@each_type
def test_sums_that_do_not_fit_raise_and_change_nothing(cls):
    refused = pytest.raises((ValueError, NotImplementedError), match=r"addmm|addmv|baddbmm|addbmm")
    double, single, complex_ = torch.float64, torch.float32, torch.complex64
    for own, other in ((double, single), (single, complex_), (single, single)):
        t, x = (cls.eye(3, dtype=other), torch.ones(3, 3, dtype=own))
        if own == other:
            t = t.to("meta")
        for name, self, factors in (
            ("addmm", x, (t, t)), ("addmm", x, (t, t.to_dense())), ("addmv", x[0], (t, t[0])),
            ("baddbmm", x[None], (t[None], t[None])), ("addbmm", x, (t[None], t[None])),
            ("addmm", cls.eye(3, dtype=own), (t, t)),
            ("addmm", cls.eye(3, dtype=own), (t.to_dense(), t.to_dense())),
        ):  # fmt: skip
            before = self.clone()
            for factor in ({}, {"beta": 2}, {"beta": 0}):
                if own != other:
                    with pytest.raises(ValueError, match=f"{name}.*what is added"):
                        getattr(torch, name)(self, *factors, **factor)
                with refused:
                    getattr(self, f"{name}_")(*factors, **factor)
                assert torch.equal(self, before)
        if own != other:
            with pytest.raises(ValueError, match="linear.*what is added"):
                torch.nn.functional.linear(t.to_dense(), t, x[0])


@each_type
def test_complex_factors_of_real_sums_raise_and_change_nothing(cls):
    t, x = cls.eye(3), torch.ones(3, 3)
    for self, factor in itertools.product((x, t), ({"beta": 1j}, {"beta": 2, "alpha": 1j})):
        with pytest.raises(ValueError, match="what is added"):
            torch.addmm(self, t, t, **factor)
        if self is t:
            with pytest.raises(ValueError, match="what is added"):
                torch.addmm(t, x, x, **factor)
        before = self.clone()
        with pytest.raises((RuntimeError, ValueError, NotImplementedError)):
            self.addmm_(t, t, **factor)
        assert torch.equal(self, before)


@each_type
def test_gradients_of_sums_that_do_not_read_their_input(cls, device):
    a, b, x, v = operands(cls, device)
    A, B, X, _ = operands(cls, device, (3,))
    for function, (input, *factors) in (
        (torch.addmm, (a, a, b)), (torch.addmm, (x, a, b)), (torch.addmm, (x, a, a.mT)),
        (torch.addmv, (v, a, v)), (torch.baddbmm, (X, A, B)), (torch.addbmm, (x, A, B)),
        (torch.addmm, (v[0], a, x)),
    ):  # fmt: skip
        input = (input * float("nan")).detach().requires_grad_()
        result = function(input, *factors, beta=0)
        assert type(result) is type(function(input.detach(), *factors, beta=0))
        torch.testing.assert_close(
            dense(result), function(torch.zeros_like(dense(input)), *dense(factors))
        )
        (grad,) = torch.autograd.grad(dense_sum(result), input)
        assert type(grad) is type(input) and torch.equal(grad, torch.zeros_like(input))


def dense_sum(x: Tensor) -> Tensor:
    return (x.to_dense() if isinstance(x, PackedTensor) else x).sum()


@each_type
def test_summed_dimensions_of_length_one_broadcast(cls, device):
    """In einsum and tensordot, as in torch, and not in inner."""
    options = {"dtype": torch.float64, "device": device}
    for a, m in ((cls.randn(N, **options), 1), (cls.randn(1, **options), N)):
        x = torch.randn(m, 2, **options).requires_grad_()
        one = cls.randn(m, **options)
        for f in (
            lambda a, x, y: torch.einsum("ij,jk->ik", a, x),
            lambda a, x, y: torch.einsum("ij,kj", x.mT, a),
            lambda a, x, y: torch.einsum("...ij,j->...i", a, x[:, 0]),
            lambda a, x, y: torch.einsum("ij,jk->ki", a, y),
            lambda a, x, y: torch.tensordot(a, x, 1),
            lambda a, x, y: torch.tensordot(x, a, ([0], [1])),
            lambda a, x, y: torch.tensordot(y, a, 1),
        ):
            ours, expected = f(a, x, one), f(*dense((a, x, one)))
            torch.testing.assert_close(dense(ours), expected)
        (grad,) = torch.autograd.grad(torch.einsum("ij,jk->ik", a, x).sum(), x)
        (expected,) = torch.autograd.grad(torch.einsum("ij,jk->ik", dense(a), x).sum(), x)
        torch.testing.assert_close(grad, expected)
        for operand in (x.mT, one):
            with pytest.raises(RuntimeError, match="inner"):
                torch.inner(a, operand)


def test_every_equation_names_its_operands_in_either_order(device):
    """Each way to sum over one dimension of each matrix, in both orders of the operands."""
    a, b, x, _ = operands(LowerTriangular, device)
    for (i, j), out in itertools.product(itertools.product("pq", repeat=2), ("xy", "yx")):
        left = "kx" if i == "p" else "xk"
        right = "ky" if j == "p" else "yk"
        for pair in ((a, b), (a, x), (x, a)):
            check(lambda *t, e=f"{left},{right}->{out}": torch.einsum(e, *t), *pair)


@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize(
    ("cls", "wide"),
    [(Symmetric, torch.float64), (Symmetric, torch.complex128), (Hermitian, torch.complex128)],
)
def test_a_product_with_its_own_transpose_is_added_by_halves(cls, wide, batch, device):
    """As optimizers keep second moments: S.addmm_(G, G.mT)."""
    name = "baddbmm_" if batch else "addmm_"
    g = torch.randn(*batch, 5, 3, dtype=wide, device=device)
    for x in (g, g.mT.contiguous().mT, g[..., ::2, :]):
        t = cls.randn(*batch, x.shape[-2], dtype=wide, device=device)
        y = x.mH if cls is Hermitian else x.mT
        for factor in ({}, {"beta": 0.9, "alpha": -0.1}, {"beta": 0}):
            ours, twin = t.clone(), getattr(t.to_dense(), name)(x, y, **factor)
            ops = called(partial(getattr(ours, name), x, y, **factor))
            assert "packedtri.mm.default" in ops
            assert not {"aten.mm.default", "aten.bmm.default"} & set(ops)
            torch.testing.assert_close(ours.to_dense(), twin)
    # Others have the structure by chance, or two derivatives.
    t = cls.randn(*batch, 5, dtype=wide, device=device)
    twin = getattr(t.to_dense(), name)(g, (g.mH if cls is Hermitian else g.mT).clone())
    getattr(t, name)(g, (g.mH if cls is Hermitian else g.mT).clone())
    torch.testing.assert_close(t.to_dense(), twin)
    p = g.clone().requires_grad_()
    t = cls.randn(*batch, 5, dtype=wide, device=device)
    own, twin = t.clone(), t.to_dense()
    q = g.clone().requires_grad_()
    getattr(own, name)(p, p.mH if cls is Hermitian else p.mT).to_dense().abs().sum().backward()
    getattr(twin, name)(q, q.mH if cls is Hermitian else q.mT).abs().sum().backward()
    torch.testing.assert_close(p.grad, q.grad)
