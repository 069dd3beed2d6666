"""Compiles and runs the unit checks of this directory."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch

from packedtri.testing import DTYPES, poisoned

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SOURCES = ROOT / "csrc"
COMPILER = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")

# The unit checks that take longer to run than to compile.
COMPUTING = {"test_pack_order", "test_part_work"}

# A row of timings, and the words that a program has written for it.
Shares = tuple[dict[str, Any], list[str]]


def compile_cpp(source: str, target: Path, *options: str) -> Path:
    # Libraries among the options must follow the source that needs them.
    command = [str(COMPILER), "-std=c++17", "-Wall", "-Wextra", f"-I{SOURCES}", str(HERE / source)]
    result = subprocess.run([*command, "-o", str(target), *options], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return target


@pytest.mark.parametrize(
    "name",
    [
        "test_index",
        "test_krange",
        "test_schedule",
        "test_config",
        "test_choose_direct",
        "test_choose_fragments",
        "test_choose_resident",
        "test_choose_rounding",
        "test_choose_shared_images",
        "test_choose_vectors",
        "test_left_to_dense",
        "test_engine_work",
        "test_part_work",
        "test_remembered",
        "test_strip_units",
        "test_wide_units",
        "test_blocks",
        "test_image",
        "test_line_tile",
        "test_pack_order",
    ],
)
def test_unit(name: str, tmp_path: Path) -> None:
    # Overflow in an index formula is undefined behaviour, which this makes an error.
    sanitize = ("-fsanitize=undefined", "-fno-sanitize-recover=all")
    optimize = "-O1" if name in COMPUTING else "-O0"
    program = compile_cpp(f"{name}.cpp", tmp_path / name, optimize, *sanitize)
    result = subprocess.run([str(program)], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.endswith(": ok\n")


def test_products_by_amx(tmp_path: Path) -> None:
    """Few machines have its tiles, which are emulated. The rest of that code is for AVX-512."""
    needed = ["avx512f", "avx512vl", "avx512bw", "avx512dq", "fma", "bmi2"]
    flags = Path("/proc/cpuinfo")
    if not flags.exists() or not set(needed) <= set(flags.read_text().split()):
        pytest.skip("this machine has no AVX-512")
    options = [
        *(f"-m{flag}" for flag in needed),
        "-mprefer-vector-width=512",
        "-DPACKEDTRI_ISA=amx",
    ]
    program = compile_cpp("test_amx.cpp", tmp_path / "amx", "-O2", *options)
    result = subprocess.run([str(program)], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout == "amx: ok\n"


def shares_of(source: str, file: str, fields: tuple[str, ...], folder: Path) -> list[Shares]:
    """The products of a file of timings, and what a program that is given their fields chooses."""
    # Not optimized, since compiling takes most of the time.
    program = compile_cpp(source, folder / "shares", "-O0")
    rows = json.loads((ROOT / "benchmarks" / "shares" / file).read_text())["rows"]
    products = [" ".join(str(row[field]) for field in fields) for row in rows]
    result = subprocess.run(
        [str(program)], input="\n".join(products), capture_output=True, text=True, timeout=60
    )
    lines = result.stdout.splitlines()
    return [(row, line.split()) for row, line in zip(rows, lines, strict=True)]


def share_name(split: str, above: str, graded: str = "0") -> str:
    """What the files of timings call a share: how many blocks add a tile's sums, and where from."""
    if split == "1":
        return "alone"
    return f"{split} from {above}" if graded == "0" else f"parts of {int(graded) / 2:g}"


def assert_fastest(losses: dict[Any, list[float]], rows: int, mean: float, most: float) -> None:
    """What is chosen takes so many times as long as the fastest of each kind, of most rows."""
    assert sum(map(len, losses.values())) > 0.8 * rows
    for kind, of_kind in losses.items():
        assert math.prod(of_kind) ** (1 / len(of_kind)) < mean, kind
        assert max(of_kind) < most, kind


def test_the_engine_shares_the_sums_that_were_fastest(tmp_path: Path) -> None:
    """Its estimate against the timings of many shares of each product, in benchmarks/shares."""
    fields = ("dtype", "precision", "op", "n", "m")
    shares = shares_of("shares.cpp", "nvidia-h200.json", fields, tmp_path)
    losses = defaultdict(list)
    for row, (tiles, split, above) in shares:
        chosen = row["us"].get(f"{tiles} {share_name(split, above)}")
        if chosen is not None:
            losses[row["dtype"], row["precision"]].append(chosen / min(row["us"].values()))
    assert_fastest(losses, len(shares), mean=1.015, most=1.12)


@pytest.mark.parametrize(
    ("file", "mean", "most"),
    [("direct-nvidia-h100-80gb-hbm3", 1.015, 1.25), ("direct-batches-nvidia-h200", 1.012, 1.3)],
)
def test_direct_products_share_the_sums_that_were_fastest(
    file: str, mean: float, most: float, tmp_path: Path
) -> None:
    """The same of small direct tiles, of one product and of batches."""
    fields = ("dtype", "op", "n", "m", "batch")
    shares = shares_of("splits.cpp", f"{file}.json", fields, tmp_path)
    losses = defaultdict(list)
    for row, (split, above, graded) in shares:
        chosen = row["us"].get(share_name(split, above, graded))
        # Complex numbers of 16 bytes are left to dense torch from some order on.
        if chosen is not None and (row["dtype"] != "complex128" or row["n"] <= 512):
            losses[row["dtype"]].append(chosen / min(row["us"].values()))
    assert_fastest(losses, len(shares), mean, most)


def test_float64_has_the_tiles_that_were_fastest(tmp_path: Path) -> None:
    """Direct ones, and the sums that they share, or those of blocks that go from tile to tile."""
    file, fields = "float64-nvidia-h200.json", ("op", "n", "m", "batch")
    shares, losses = shares_of("float64.cpp", file, fields, tmp_path), defaultdict(list)
    for row, (tiles, split, above, graded) in shares:
        direct = share_name(split, above, graded)
        chosen = row["us"].get(direct if tiles == "direct" else f"persistent {tiles}")
        if chosen is not None:
            losses[row["batch"] > 1].append(chosen / min(row["us"].values()))
    assert_fastest(losses, len(shares), mean=1.015, most=1.2)


def test_tiles_are_longer_along_dense_operands_where_that_was_fastest(tmp_path: Path) -> None:
    """The choice between both, other kernels and dense torch, and of the sums that are shared."""
    fields = ("dtype", "op", "n", "m", "batch")
    file = "mapped-nvidia-h100-80gb-hbm3.json"
    shares, losses = shares_of("mapped.cpp", file, fields, tmp_path), defaultdict(list)
    for row, (tiles, split, above, graded) in shares:
        name = share_name(split, above, graded) if tiles == "long" else tiles
        if (chosen := row["us"].get(name)) is not None:
            losses[row["op"]].append(chosen / min(row["us"].values()))
    assert_fastest(losses, len(shares), mean=1.015, most=1.4)


def test_triangles_beside_dense_matrices_go_the_way_that_was_fastest(tmp_path: Path) -> None:
    """Small tiles, square or long, images, or dense torch: of many columns, and of batches."""
    fields, mend = ("dtype", "op", "n", "m", "batch"), 0.95
    file = "beside-dense-nvidia-h200.json"
    losses = defaultdict(list)
    shares = shares_of("beside_dense.cpp", file, fields, tmp_path)
    for row, (way, split, above, graded) in shares:
        us = {**row["us"], "dense": row["us"]["dense"] + mend}
        tiles = way in ("long", "square")
        name = f"{way} {share_name(split, above, graded)}" if tiles else way
        if (chosen := us.get(name)) is not None:
            losses[row["batch"] > 1].append(chosen / min(us.values()))
    assert_fastest(losses, len(shares), mean=1.02, most=1.4)


def test_tile_images_are_made_where_that_was_fastest(tmp_path: Path) -> None:
    """Against timings of all else, with one product and with batches."""
    fields = ("dtype", "precision", "op", "n", "m", "batch")
    file, losses = "tile-images-nvidia-h200.json", defaultdict(list)
    shares = shares_of("tile_images.cpp", file, fields, tmp_path)
    for row, (images,) in shares:
        chosen = row["us"]["engine" if images == "1" else "else"]
        losses[row["dtype"], row["precision"], row["batch"] > 1].append(
            chosen / min(row["us"].values())
        )
    assert_fastest(losses, len(shares), mean=1.012, most=1.8)


def test_symmetric_products_are_mirrored_where_that_was_fastest(tmp_path: Path) -> None:
    """The limits of what small tiles mirror, against timings of that and of what was before."""
    fields = ("dtype", "op", "n", "m", "batch")
    file = "mirrored-nvidia-h100-80gb-hbm3.json"
    losses = defaultdict(list)
    for row, (mirrored,) in shares_of("mirrored.cpp", file, fields, tmp_path):
        if mirrored != "2":
            chosen = row["us"]["mirrored" if mirrored == "1" else "else"]
            losses[row["dtype"]].append(chosen / min(row["us"].values()))
    assert_fastest(losses, 2000, mean=1.006, most=1.35)


def test_operands_go_straight_to_registers_where_that_was_fastest(tmp_path: Path) -> None:
    """The limits of these kernels, and how warps share sums, against timings."""
    fields = ("dtype", "op", "n", "m", "batch")
    file = "fragments-nvidia-h100-80gb-hbm3.json"
    shares = shares_of("fragments.cpp", file, fields, tmp_path)
    losses = defaultdict(list)
    for row, (chosen, warps) in shares:
        us = row["us"]
        # Of some products one number of warps was timed.
        time = us.get(f"{warps} warps" if chosen == "1" else "else")
        if time is not None:
            losses[row["dtype"]].append(time / min(us.values()))
    assert_fastest(losses, len(shares), mean=1.03, most=2.6)


@pytest.mark.parametrize(
    ("file", "mean", "most"),
    [
        ("resident-nvidia-h100-80gb-hbm3", 1.035, 2.5),
        ("resident-wide-nvidia-h100-80gb-hbm3", 1.035, 1.5),
    ],
)
def test_packed_operands_are_resident_where_that_was_fastest(
    file: str, mean: float, most: float, tmp_path: Path
) -> None:
    """The limits of this kernel, and what its warps and blocks have, against timings."""
    fields = ("dtype", "op", "n", "m", "batch")
    losses = defaultdict(list)
    shares = shares_of("resident.cpp", f"{file}.json", fields, tmp_path)
    for row, (chosen, tiles, warps, matrices) in shares:
        us = row["us"]
        name = f"{tiles} tiles, {warps} warps, {matrices} matrices"
        losses[row["dtype"]].append(us[name if chosen == "1" else "else"] / min(us.values()))
    assert_fastest(losses, len(shares), mean, most)


def test_elongated_products_are_left_where_that_was_fastest(tmp_path: Path) -> None:
    """Small packed matrices beside many columns, and few long sums, against timings."""
    file, losses = "elongated-nvidia-h100-80gb-hbm3.json", defaultdict(list)
    shares = shares_of("elongated.cpp", file, ("dtype", "op", "n", "m", "batch"), tmp_path)
    for row, (left,) in shares:
        chosen = row["us"]["dense" if left == "1" else "else"]
        losses[row["dtype"]].append(chosen / min(row["us"].values()))
    assert_fastest(losses, len(shares), mean=1.05, most=3.1)


def test_products_are_rounded_where_that_was_fastest(tmp_path: Path) -> None:
    """Whether products that may be rounded to TF32 are, against timings of both."""
    file, losses = "rounding-nvidia-h100-80gb-hbm3.json", defaultdict(list)
    shares = shares_of("rounding.cpp", file, ("op", "n", "m", "batch"), tmp_path)
    others = [(row, rounded) for row, (rounded,) in shares if rounded != "2"]
    for row, rounded in others:
        chosen = row["us"]["rounded" if rounded == "1" else "exact"]
        losses[row["op"]].append(chosen / min(row["us"].values()))
    # Of two triangles small ones are left, for which exact kernels are chosen too early.
    small = {op: losses.pop(op) for op in ("L@L.mT", "L@U", "U@L")}
    rows = sum(map(len, small.values()))
    assert_fastest(small, rows, mean=1.09, most=1.7)
    assert_fastest(losses, len(others) - rows, mean=1.045, most=2.9)


def test_tf32_has_small_tiles_where_that_was_fastest(tmp_path: Path) -> None:
    """The estimates of them and of all else, and which sums they share, against timings."""
    shares = shares_of("tf32.cpp", "tf32-nvidia-h200.json", ("op", "n", "m", "batch"), tmp_path)
    losses, sharing = defaultdict(list), defaultdict(list)
    for row, (small, split, above, graded) in shares:
        us = row["us"]
        other, tiles = min(us["exact"], us["rounded"]), us["tiles"]
        chosen = tiles.get(share_name(split, above, graded))
        if chosen is None:
            continue
        time = chosen if small == "1" else other
        losses[row["op"]].append(time / min(chosen, other))
        if small == "1":
            sharing[row["op"]].append(chosen / min(tiles.values()))
    assert_fastest(losses, len(shares), mean=1.03, most=1.5)
    assert_fastest(sharing, sum(map(len, sharing.values())), mean=1.025, most=1.25)


def test_images_are_in_shared_memory_where_that_was_fastest(tmp_path: Path) -> None:
    """The limits of this kernel against timings of it and of what was before."""
    fields = ("dtype", "op", "n", "m", "batch")
    file = "shared-images-nvidia-h100-80gb-hbm3.json"
    losses = defaultdict(list)
    shares = shares_of("shared_images.cpp", file, fields, tmp_path)
    for row, (chosen,) in shares:
        times = {x: row["us"][x] for x in ("else", "images")}
        time = times["images" if chosen == "1" else "else"]
        losses[row["dtype"]].append(time / min(times.values()))
    assert_fastest(losses, len(shares), mean=1.01, most=1.5)


def test_vectors_have_the_kernels_that_were_fastest(tmp_path: Path) -> None:
    """How a packed matrix is multiplied by a vector, against timings of every way."""
    fields = ("dtype", "op", "n", "m", "batch")
    file = "vectors-nvidia-h100-80gb-hbm3.json"
    losses = defaultdict(list)
    shares = shares_of("vectors.cpp", file, fields, tmp_path)
    named = {"groups": "groups of {}, {} warps", "held": "held by {}, {} threads"}
    for row, (way, group, warps) in shares:
        name = named.get(way, way).format(group, warps)
        ours = {x: time for x, time in row["us"].items() if x != "dense"}
        losses[row["op"], row["dtype"]].append(ours[name] / min(ours.values()))
    assert_fastest(losses, len(shares), mean=1.05, most=1.5)


def test_some_vectors_have_the_kernels_that_were_fastest(tmp_path: Path) -> None:
    """The kernels for some vectors against timings of them and of all else."""
    fields = ("dtype", "op", "n", "m", "batch")
    shares = shares_of("some_vectors.cpp", "some-vectors-nvidia-h200.json", fields, tmp_path)
    losses = defaultdict(list)
    for row, (kernel,) in shares:
        us = {way: time for way, time in row["us"].items() if way != "dense"}
        losses[row["dtype"], row["op"]].append(us[kernel] / min(us.values()))
    assert_fastest(losses, len(shares), mean=1.01, most=1.25)


def test_poison_reaches_the_bindings(tmp_path: Path) -> None:
    """Tensors allocated through the stable ABI are poisoned too, so unwritten results show."""
    torch_dir = Path(torch.__file__).parent
    library = compile_cpp(
        "unwritten.cpp",
        tmp_path / "unwritten.so",
        "-O0", "-shared", "-fPIC", "-w",
        f"-isystem{torch_dir / 'include'}",
        "-DTORCH_TARGET_VERSION=0x020a000000000000",
        f"-L{torch_dir / 'lib'}", "-ltorch_cpu",
    )  # fmt: skip
    torch.ops.load_library(str(library))
    for dtype in DTYPES:
        like = torch.ones(3, dtype=dtype)
        with poisoned():
            assert torch.ops.packedtri_test.unwritten(like, 1000).isnan().all(), dtype
    plain = [torch.ops.packedtri_test.unwritten(torch.ones(3), 1000) for _ in range(20)]
    assert not all(x.isnan().all() for x in plain), "the poison stayed after its context"
