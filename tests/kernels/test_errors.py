"""What the raw ops say about bad arguments."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

from packedtri.layout import DENSE, HERMITIAN, LOWER, SYMMETRIC, UPPER

ops = torch.ops.packedtri


def raises(message: str) -> pytest.RaisesExc:
    return pytest.raises(RuntimeError, match=re.escape(message))


def ones(*shape: int, device: str, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.ones(shape, dtype=dtype, device=device)


@pytest.mark.parametrize("kind", [-1, 5, 2**40])
def test_unknown_kind(kind: int, device: str) -> None:
    packed, dense = ones(6, device=device), ones(3, 3, device=device)
    tail = f"to be 0 (lower), 1 (upper), 2 (symmetric), 3 (dense) or 4 (hermitian); got {kind}"
    with raises(f"[packedtri::mm] expected a_kind {tail}"):
        ops.mm(packed, packed, 3, kind, LOWER, LOWER)
    with raises(f"[packedtri::mm] expected b_kind {tail}"):
        ops.mm(packed, packed, 3, LOWER, kind, LOWER)
    with raises(f"[packedtri::mm] expected c_kind {tail}"):
        ops.mm(packed, packed, 3, LOWER, LOWER, kind)
    with raises(f"[packedtri::pack] expected kind {tail}"):
        ops.pack(dense, kind)
    with raises(f"[packedtri::unpack] expected kind {tail}"):
        ops.unpack(packed, 3, kind)


def test_unsupported_kind(device: str) -> None:
    packed, dense = ones(6, device=device), ones(3, 3, device=device)
    for kind in (UPPER, SYMMETRIC, HERMITIAN):
        with raises(f"[packedtri::mm] expected c_kind to be 0 (lower) or 3 (dense); got {kind}"):
            ops.mm(packed, packed, 3, LOWER, LOWER, kind)
    with raises("[packedtri::pack] expected kind 0, 1, 2 or 4; got 3"):
        ops.pack(dense, DENSE)
    with raises("[packedtri::unpack] expected kind 0, 1, 2 or 4; got 3"):
        ops.unpack(packed, 3, DENSE)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8, torch.float8_e4m3fn])
def test_unsupported_dtype(dtype: torch.dtype, device: str) -> None:
    packed, dense = ones(6, device=device).to(dtype), ones(3, 3, device=device).to(dtype)
    tail = "expected float16, bfloat16, float32, float64, complex64 or complex128 elements"
    with raises(f"[packedtri::mm] {tail}"):
        ops.mm(packed, packed, 3, LOWER, LOWER, LOWER)
    with raises(f"[packedtri::pack] {tail}"):
        ops.pack(dense, LOWER)
    with raises(f"[packedtri::unpack] {tail}"):
        ops.unpack(packed, 3, LOWER)


def test_different_dtypes(device: str) -> None:
    a, b = ones(6, device=device), ones(6, device=device, dtype=torch.float64)
    for operands in ((a, b), (b, a)):
        with raises("[packedtri::mm] expected both operands to have the same dtype"):
            ops.mm(*operands, 3, LOWER, LOWER, LOWER)


@pytest.mark.parametrize(("n", "needed"), [(2, 3), (4, 10), (0, 0), (-1, 0), (-4, 6)])
def test_wrong_packed_length(n: int, needed: int, device: str) -> None:
    """A negative order is wrong even where n(n+1)/2 happens to fit."""
    packed, batch = ones(6, device=device), ones(2, 6, device=device)
    tail = f"a triangle of order {n} has n(n+1)/2 = {needed} elements; got a packed tensor"
    with raises(f"[packedtri::mm] {tail} (6)"):
        ops.mm(packed, packed, n, LOWER, LOWER, LOWER)
    with raises(f"[packedtri::mm] {tail} (2, 6)"):
        ops.mm(ones(5, 3, device=device), batch, n, DENSE, UPPER, DENSE)
    with raises(f"[packedtri::unpack] {tail} (2, 6)"):
        ops.unpack(batch, n, LOWER)


def test_negative_order_of_fitting_length(device: str) -> None:
    with raises("[packedtri::unpack] a triangle of order -1"):
        ops.unpack(ones(0, device=device), -1, LOWER)


def test_huge_order(device: str) -> None:
    with raises("[packedtri::unpack] a triangle of order 4294967296"):
        ops.unpack(ones(6, device=device), 2**32, LOWER)


def test_too_few_dimensions(device: str) -> None:
    scalar, vector, packed = (ones(*s, device=device) for s in ((), (3,), (6,)))
    with raises("[packedtri::mm] expected a packed tensor (..., n(n+1)/2), got a scalar"):
        ops.mm(scalar, packed, 3, LOWER, LOWER, LOWER)
    with raises("[packedtri::unpack] expected a packed tensor (..., n(n+1)/2), got a scalar"):
        ops.unpack(scalar, 1, LOWER)
    tail = "to have at least 1 dimension; got ()"
    with raises(f"[packedtri::mm] expected dense operand a {tail}"):
        ops.mm(scalar, packed, 3, DENSE, LOWER, DENSE)
    with raises(f"[packedtri::mm] expected dense operand b {tail}"):
        ops.mm(packed, scalar, 3, LOWER, DENSE, DENSE)
    with raises("[packedtri::pack] expected square matrices (..., n, n); got (3)"):
        ops.pack(vector, LOWER)


def test_wrong_shapes(device: str) -> None:
    packed = ones(6, device=device)
    with raises("[packedtri::mm] cannot multiply 3 x 3 by 4 x 2"):
        ops.mm(packed, ones(4, 2, device=device), 3, LOWER, DENSE, DENSE)
    with raises("[packedtri::mm] cannot multiply 2 x 4 by 3 x 3"):
        ops.mm(ones(2, 4, device=device), packed, 3, DENSE, UPPER, DENSE)
    with raises("[packedtri::mm] cannot multiply 2 x 4 by 5 x 3"):
        ops.mm(ones(2, 4, device=device), ones(5, 3, device=device), 3, DENSE, DENSE, DENSE)
    with raises("[packedtri::mm] a packed result needs a square product of order 3; got 3 x 2"):
        ops.mm(packed, ones(3, 2, device=device), 3, LOWER, DENSE, LOWER)
    with raises("[packedtri::mm] a packed result needs a square product of order 1; got 1 x 1"):
        ops.mm(ones(1, device=device), ones(1, device=device), 1, LOWER, DENSE, LOWER)
    with raises("[packedtri::mm] a packed result needs a square product of order 4; got 3 x 3"):
        ops.mm(ones(3, 5, device=device), ones(5, 3, device=device), 4, DENSE, DENSE, LOWER)
    with raises("[packedtri::pack] expected square matrices (..., n, n); got (2, 3, 4)"):
        ops.pack(ones(2, 3, 4, device=device), LOWER)


def test_wrong_batches(device: str) -> None:
    with raises("[packedtri::mm] batch dimensions (2) and (4, 3) do not broadcast"):
        ops.mm(ones(2, 6, device=device), ones(4, 3, 6, device=device), 3, LOWER, LOWER, LOWER)
    with raises("[packedtri::mm] batch dimensions (0) and (2) do not broadcast"):
        ops.mm(ones(0, 6, device=device), ones(2, 3, 1, device=device), 3, LOWER, DENSE, DENSE)


@pytest.mark.cuda
def test_different_devices(device: str) -> None:
    here, there = ones(6, device=device), ones(6, device="cpu")
    for operands in ((here, there), (there, here)):
        with raises("[packedtri::mm] expected both operands to be on the same device"):
            ops.mm(*operands, 3, LOWER, LOWER, LOWER)


def test_works_after_an_error(device: str) -> None:
    packed = ones(6, device=device)
    with raises("[packedtri::mm]"):
        ops.mm(packed, packed, 4, LOWER, LOWER, LOWER)
    assert ops.mm(packed, packed, 3, LOWER, LOWER, LOWER).tolist() == [1, 2, 1, 3, 2, 1]


def test_torch_gives_the_reason(device: str) -> None:
    """A matrix of 256 TiB is not to be had, also where more memory is promised than there is.

    Older versions of torch leave us to guess.
    """
    n = 2**23
    packed = ones(1, device=device).expand(n * (n + 1) // 2)
    with pytest.raises(RuntimeError, match="memory"):
        ops.unpack(packed, n, LOWER)
