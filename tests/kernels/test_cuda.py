"""What holds on a GPU only: memory, streams, graphs, devices, and offsets beyond 2^31."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from cases import (
    DIRECT,
    ENGINE,
    FLOATS,
    PAIRS,
    SIXTEEN_BITS,
    SMALL,
    THIN,
    Failures,
    Force,
    assert_same,
    draw_operand,
    each,
    mm,
    part_of,
    shifted,
)
from torch import Tensor

from packedtri.layout import DENSE, HERMITIAN, LOWER, SYMMETRIC, UPPER, numel
from packedtri.testing import (
    DTYPES,
    assert_product_close,
    assert_product_probe,
    densify,
    epsilon,
    packed_rows,
    packed_times,
    poisoned,
    random,
    random_integers,
)

pytestmark = pytest.mark.cuda

ops = torch.ops.packedtri
MIB = 2**20


@pytest.mark.skipif(SMALL, reason="large sizes")
@pytest.mark.parametrize("n", [2048, 4097])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_large(n: int, dtype: torch.dtype, device: str, rng: torch.Generator) -> None:
    failures = Failures()
    for (a_kind, b_kind), c_kind in each(PAIRS, (LOWER, DENSE)):
        a = draw_operand(a_kind, n, dtype, rng)
        b = draw_operand(b_kind, n, dtype, rng)
        c = mm(a.stored, b.stored, n, a_kind, b_kind, c_kind)
        with failures.case(f"kinds {a_kind}, {b_kind}, {c_kind}"):
            assert_product_close(densify(c, n, c_kind), a.dense, b.dense, part=part_of(c_kind))
            if c_kind == DENSE or (a_kind, b_kind) == (LOWER, LOWER):
                kinds = (a_kind, b_kind, c_kind)
                assert_product_probe(c, a.stored, b.stored, n, kinds, rng)
    failures.report()


# ------------------------------------------------------------------------------------------ memory


def added_memory(dtype: torch.dtype, n: int, rng: torch.Generator) -> tuple[int, int, int]:
    """Bytes of L @ L, and what the call adds to the memory in use at its peak and for good."""
    a, b = (random((numel(n),), dtype, rng.device, rng) for _ in range(2))
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    c = ops.mm(a, b, n, LOWER, LOWER, LOWER)
    peak, after = torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated()
    return c.nbytes, peak - before, after - before


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_peak_memory(dtype: torch.dtype, device: str, rng: torch.Generator, force: Force) -> None:
    """L @ L from packed rows never holds more than its operands, its result and a constant."""
    force(DIRECT, -1, -1, -1, -1)
    result, peak, _ = added_memory(dtype, 64 if SMALL else 3001, rng)
    assert peak <= result + 2 * MIB, f"{peak} bytes for a result of {result}"


@pytest.mark.skipif(SMALL, reason="large sizes")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scratch_memory(dtype: torch.dtype, device: str, rng: torch.Generator) -> None:
    """By default it may also hold images of its operands, while it runs."""
    result, peak, after = added_memory(dtype, 3001, rng)
    images = {torch.float16: 2, torch.bfloat16: 2, torch.float32: 3}.get(dtype, 0)
    assert peak <= result * (1 + 1.1 * images) + 32 * MIB, f"{peak} bytes for one of {result}"
    assert after <= result + MIB


# ---------------------------------------------------------------------- streams, graphs, devices


def calls(
    n: int, dtype: torch.dtype, rng: torch.Generator
) -> Iterator[tuple[str, tuple, Callable]]:
    """(name, tensors, op on tensors) for a representative of every op."""
    for a_kind, b_kind in PAIRS:
        a = draw_operand(a_kind, n, dtype, rng, draw=random_integers).stored
        b = draw_operand(b_kind, n, dtype, rng, draw=random_integers).stored
        for c_kind in (LOWER, DENSE):
            yield (
                f"mm {a_kind}, {b_kind}, {c_kind}",
                (a, b),
                lambda x, y, k=(a_kind, b_kind, c_kind): ops.mm(x, y, n, *k),
            )
    column = random_integers((n, 1), dtype, rng.device, rng)
    packed = random_integers((numel(n),), dtype, rng.device, rng)
    for kind in (LOWER, UPPER, SYMMETRIC, HERMITIAN):
        yield (
            f"vector {kind}",
            (packed, column),
            lambda x, y, k=kind: ops.mm(x, y, n, k, DENSE, DENSE),
        )
    square = random_integers((n, n), dtype, rng.device, rng)
    for kind in range(3):
        yield f"pack {kind}", (square,), lambda x, k=kind: ops.pack(x, k)
        yield f"unpack {kind}", (packed,), lambda x, k=kind: ops.unpack(x, n, k)
        block = (n // 3, 0, n // 2, n)
        yield (
            f"unpack block {kind}",
            (packed,),
            lambda x, k=kind, b=block: ops.unpack_block(x, n, k, *b),
        )
        yield (
            f"pack block {kind}",
            (square,),
            lambda x, k=kind: ops.pack_block(x[: n // 2], n, k, n // 3, 0),
        )
        yield (
            f"write block {kind}",
            (packed, square),
            lambda x, y, k=kind: changed_block(x, y[: n // 2], n, k),
        )
    yield "diagonal", (packed,), lambda x: ops.diagonal(x, n, 2)
    yield "embed diagonal", (square,), lambda x: ops.embed_diagonal(x[2:, 0], n, 2)
    yield "scale band", (packed,), lambda x: ops.scale_band(x, n, 0, 0, 0.5, 2.0, True)


def changed_block(packed: Tensor, block: Tensor, n: int, kind: int) -> Tensor:
    result = packed.clone()
    ops.write_block_(result, block, n, kind, n // 3, 0)
    return result


def fresh(tensors: tuple[Tensor, ...], rng: torch.Generator) -> list[Tensor]:
    return [random_integers(tuple(t.shape), t.dtype, t.device, rng) for t in tensors]


@pytest.mark.skipif(SMALL, reason="large sizes")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bfloat16", "float32"])
def test_no_room_for_images(dtype: torch.dtype, device: str, rng: torch.Generator) -> None:
    """A product that the memory left would not do for goes without tile images."""
    n = 4096
    a, b = (random((numel(n),), dtype, device, rng) for _ in range(2))
    expected = ops.mm(a, b, n, LOWER, LOWER, LOWER)
    torch.cuda.empty_cache()
    room = 2 * expected.nbytes  # The images alone take twice as much as the result, or more.
    limit = torch.cuda.memory_reserved() + room
    try:
        torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.mem_get_info()[1])
        c = ops.mm(a, b, n, LOWER, LOWER, LOWER)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    tolerance = 64 * epsilon(dtype) * expected.abs().amax().item()
    torch.testing.assert_close(c, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("n", [5, 130, 520])
def test_graph(n: int, device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    """A captured call replays on new data; one that waited for the device could not be captured."""
    failures = Failures()
    for name, tensors, call in calls(n, dtype, rng):
        with failures.case(name):
            call(*tensors)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                c = call(*tensors)
            for _ in range(2):
                new = fresh(tensors, rng)
                for old, x in zip(tensors, new, strict=True):
                    old.copy_(x)
                c.fill_(float("nan"))
                graph.replay()
                assert_same(c, call(*new))
    failures.report()


@pytest.mark.parametrize("n", [5, 130])
def test_stream(n: int, device: str, dtype: torch.dtype, rng: torch.Generator) -> None:
    """The op runs on the current stream: after what is queued there, and without waiting for it."""
    stream = torch.cuda.Stream()
    failures = Failures()
    for name, tensors, call in calls(n, dtype, rng):
        new = fresh(tensors, rng)
        torch.cuda.synchronize()
        with failures.case(name), torch.cuda.stream(stream):
            expected = call(*new)
            # The result below finds memory of this stream ready: asking the driver for some waits.
            spare = call(*new)
            stream.synchronize()
            del spare
            torch.cuda._sleep(20_000_000)
            slept = stream.record_event()
            for old, x in zip(tensors, new, strict=True):
                old.copy_(x, non_blocking=True)
            torch.cuda.set_sync_debug_mode("error")
            try:
                c = call(*tensors)
            finally:
                torch.cuda.set_sync_debug_mode("default")
            waited = slept.query()
            stream.synchronize()
            assert not waited, "the call waited for the stream"
            assert_same(c, expected)
    failures.report()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_threads_of_the_host(dtype: torch.dtype, device: str) -> None:
    """They launch one kernel at the same time, with blocks that need different shared memory."""

    def run(n: int, batch: int) -> None:
        shape = (batch, numel(n)) if batch > 1 else (numel(n),)
        own = torch.Generator(device).manual_seed(n)
        a, b = (random_integers(shape, dtype, device, own) for _ in range(2))
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            expected = ops.mm(a, b, n, LOWER, UPPER, DENSE)
            for _ in range(300):
                assert torch.equal(ops.mm(a, b, n, LOWER, UPPER, DENSE), expected)

    sizes = ((300, 1), (700, 1), (130, 50), (30, 500), (60, 500))
    with ThreadPoolExecutor(len(sizes)) as pool:
        for done in [pool.submit(run, *size) for size in sizes]:
            done.result()


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_other_device(device: str, dtype: torch.dtype) -> None:
    """Tensors elsewhere than on the current device, which stays current."""
    rng = torch.Generator("cuda:1").manual_seed(torch.initial_seed() % 2**63)
    for name, tensors, call in calls(130, dtype, rng):
        c = call(*tensors)
        assert c.device == torch.device("cuda:1"), name
        assert torch.cuda.current_device() == 0, name
        assert_same(c.to("cuda:0"), call(*(t.to("cuda:0") for t in tensors)))


# -------------------------------------------------------------------------------- beyond 2^31

BIG = 66_000
needs_memory = pytest.mark.skipif(
    SMALL or not torch.cuda.is_available() or torch.cuda.mem_get_info()[0] < 40 * 2**30,
    reason="needs 40 GiB of free GPU memory",
)


def big_rows() -> list[int]:
    """The first and last rows, those about the offset 2^31 (row 65,535), and some between."""
    return [0, 1, 40_001, 46_340, 46_341, 65_534, 65_535, 65_536, BIG - 2, BIG - 1]


def beyond_rounding(got: Tensor, expected: Tensor) -> Tensor:
    """How far the error passes one rounding to bfloat16 and that of a float32 sum of 66,000 terms
    about 1, in which tensor cores truncate every step."""
    return (got - expected).abs() - expected.abs() * 2**-8 - 0.5


@needs_memory
@pytest.mark.parametrize("method", [DIRECT, ENGINE])
def test_big_product(method: int, device: str, rng: torch.Generator, force: Force) -> None:
    """Rows of L @ L whose packed offsets pass 2^31, against float64."""
    a, b = (random((numel(BIG),), torch.bfloat16, device, rng) for _ in range(2))
    force(method, -1, -1, -1, -1)
    c = mm(a, b, BIG, LOWER, LOWER, LOWER)
    rows = big_rows()
    expected = packed_times(b, BIG, UPPER, packed_rows(a, BIG, LOWER, rows).mT).mT
    got = packed_rows(c, BIG, LOWER, rows)
    excess = beyond_rounding(got, expected)
    good = (excess <= 0).all(dim=1).tolist()
    assert all(good), f"wrong rows: {[r for r, ok in zip(rows, good, strict=True) if not ok]}"


@needs_memory
@pytest.mark.parametrize("kind", [LOWER, UPPER])
@pytest.mark.parametrize("method", [-1, THIN], ids=["chosen", "thin"])
def test_big_thin(method: int, kind: int, device: str, rng: torch.Generator, force: Force) -> None:
    """A big triangle times one and several columns, and rows times it."""
    force(method, -1, -1, -1, -1)
    t = random((numel(BIG),), torch.bfloat16, device, rng)
    for thin, left in itertools.product((1, 5), (False, True)):
        x = random((thin, BIG) if left else (BIG, thin), torch.bfloat16, device, rng)
        operands = (x, t, BIG, DENSE, kind, DENSE) if left else (t, x, BIG, kind, DENSE, DENSE)
        c = mm(*operands)
        got = (c.mT if left else c).double()
        expected = packed_times(t, BIG, 1 - kind if left else kind, x.mT if left else x)
        excess = beyond_rounding(got, expected)
        assert (excess <= 0).all(), f"{thin} {'rows' if left else 'columns'}: {excess.max()}"


@needs_memory
@pytest.mark.parametrize("kind", [LOWER, UPPER, SYMMETRIC])
def test_big_strips(kind: int, device: str, rng: torch.Generator) -> None:
    """A big matrix of float32 times some columns: on Hopper by strips."""
    n, m = BIG, 12
    t = random((numel(n),), torch.float32, device, rng)
    x = random((n, m), torch.float32, device, rng)
    error = (mm(t, x, n, kind, DENSE, DENSE) - packed_times(t, n, kind, x)).abs().max()
    # Of sums about n^(1/2) that take some thousand roundings; a wrong element would be about 1.
    assert error <= n**0.5 * 2**-16, error


@pytest.mark.skipif(SMALL, reason="large sizes")
@pytest.mark.parametrize("kind", [LOWER, UPPER, SYMMETRIC])
@pytest.mark.parametrize("dtype", SIXTEEN_BITS, ids=str)
def test_wide_conversions(dtype: torch.dtype, kind: int, device: str, rng: torch.Generator) -> None:
    """Rows of many words, at every distance from aligned addresses on both sides."""
    failures = Failures()
    for (n, batch), skip in each(((1531, 1), (1600, 1), (300, 20)), range(8)):
        dense = random((batch, n, n), dtype, device, rng)
        gaps = dense.new_full((batch, n, n + 11), math.nan)[..., skip : skip + n].copy_(dense)
        packed = shifted(ops.pack(dense.cpu(), kind).to(device), skip)
        with failures.case(f"{n=}, {batch=}, {skip} elements off"), poisoned():
            assert_same(ops.pack(shifted(dense, skip), kind), packed)
            assert_same(ops.pack(gaps, kind), packed)
            assert_same(ops.unpack(packed, n, kind), densify(packed, n, kind))
    failures.report()


@needs_memory
@pytest.mark.parametrize("kind", [LOWER, UPPER])
def test_big_conversions(kind: int, device: str, rng: torch.Generator) -> None:
    packed = random((numel(BIG),), torch.bfloat16, device, rng)
    dense = ops.unpack(packed, BIG, kind)
    rows = big_rows()
    assert_same(dense[rows].double(), packed_rows(packed, BIG, kind, rows))
    assert torch.equal(ops.pack(dense, kind), packed)
    for i in rows:
        assert_same(ops.unpack_block(packed, BIG, kind, i, 0, 1, BIG), dense[i : i + 1])
    last = BIG - 100
    block = ops.unpack_block(packed, BIG, kind, last, last - 50, 100, 150)
    assert_same(block, dense[last:, last - 50 :][:, :150].contiguous())
    del dense
    again = ops.pack_block(block, BIG, kind, last, last - 50)
    assert_same(ops.unpack_block(again, BIG, kind, last, last - 50, 100, 150), block)
    assert again.count_nonzero() == block.count_nonzero()
    ops.write_block_(packed, block * 0, BIG, kind, last, last - 50)
    assert ops.unpack_block(packed, BIG, kind, last, last - 50, 100, 150).count_nonzero() == 0
    line = ops.diagonal(packed, BIG, 1)
    assert_same(ops.diagonal(ops.embed_diagonal(line, BIG, 1), BIG, 1), line)
    halved = ops.scale_band(packed, BIG, 1, 1, 1.0, 0.5, False)
    assert_same(ops.diagonal(halved, BIG, 1), line)
    first = [numel(i) for i in rows if i > 1]
    assert_same(halved[first], packed[first] * 0.5)
