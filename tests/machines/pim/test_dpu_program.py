"""The DPU program, compiled for this machine: every variant and type on slices that are hard to split."""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.machines.pim.dpu_program import COMPILER, Build, Slice, numbers, padded_width, run
from tests.pairs import pairwise

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler (cc)")

VARIANTS = ["csr", "rows", "free"]
DTYPES = ["int8", "int16", "int32", "int64", "float32", "float64"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dpu")


def slice_of(degrees: list[int], width: int, dtype: str, *, weighted: bool = True, seed: int = 0) -> Slice:
    """Rows of these degrees, over 13 sources, so that edges repeat. Whole numbers are small."""
    rng = np.random.default_rng(seed)
    row = np.repeat(np.arange(len(degrees)), degrees)
    source = rng.integers(0, 13, len(row))
    weight = numbers(rng, dtype, len(row)) if weighted else None
    return Slice(len(degrees), row, source, numbers(rng, dtype, 13, width), weight)


def check(folder: Path, build: Build, work: Slice, cuts: list[int] | None = None) -> None:
    found, _ = run(build.compile(folder), build, work, cuts)
    work.check(found, steps=40)


SHAPES = {
    "mixed": [3, 0, 0, 7, 1, 12, 0, 5, 2, 2, 9, 0, 1, 30, 0],
    "one hub": [0, 0, 200, 0, 1],
    "one row": [57],
    "fewer edges than tasklets": [0, 1, 0, 2],
    "fewer rows than tasklets": [40, 1],
    "no edges": [0] * 9,
    "all alike": [4] * 50,
    "straddling everywhere": [25, 3, 31, 18, 23],
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("variant", VARIANTS)
def test_shapes(folder: Path, variant: str, shape: list[int]) -> None:
    check(folder, Build(variant), slice_of(shape, 6, "int32"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_dtypes(folder: Path, variant: str, dtype: str) -> None:
    build = Build(variant, dtype)
    check(folder, build, slice_of(SHAPES["mixed"], 16, dtype))
    check(folder, build, slice_of(SHAPES["straddling everywhere"], 16, dtype, weighted=False))


@pairwise(variant=["csr", "free"], dtype=["int8", "int32", "float64"], width=[1, 3, 17, 63, 129, 300])
def test_widths(folder: Path, variant: str, dtype: str, width: int) -> None:
    check(folder, Build(variant, dtype), slice_of(SHAPES["straddling everywhere"], width, dtype))


@pytest.mark.parametrize("tasklets", [1, 2, 16, 24])
@pytest.mark.parametrize("variant", VARIANTS)
def test_numbers_of_tasklets(folder: Path, variant: str, tasklets: int) -> None:
    build = Build(variant, tasklets=tasklets, row_bytes=256)
    for shape in ("mixed", "one hub", "fewer edges than tasklets"):
        check(folder, build, slice_of(SHAPES[shape], 10, "int32"))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("feature", "sums"), [("int8", "int32"), ("int16", "int64")])
def test_sums_can_be_wider_than_features(folder: Path, variant: str, feature: str, sums: str) -> None:
    work = slice_of([300, 0, 40], 5, feature)
    work.x[:] = np.iinfo(feature).max
    work.weight[:] = np.iinfo(feature).min
    check(folder, Build(variant, feature, sums), work)
    assert abs(work.expected(np.dtype(sums))).max() > np.iinfo(feature).max, "else nothing would be shown"


def test_narrow_sums_wrap_round(folder: Path) -> None:
    work = slice_of([300], 4, "int8", weighted=False)
    work.x[:] = 100
    check(folder, Build("csr", "int8"), work)


def test_tasklets_without_edges_between_others(folder: Path) -> None:
    # Cuts of a host's own choosing: empty parts first, in the middle and last.
    cuts = [0, 0, 0, 9, 9, 9, 20, 70, 70, 100, 100, 100]
    check(folder, Build("free"), slice_of(SHAPES["straddling everywhere"], 6, "int32"), cuts)


@pytest.mark.parametrize("variant", VARIANTS)
def test_floats_do_not_depend_on_who_is_first(folder: Path, variant: str) -> None:
    build = Build(variant, "float32", tasklets=16)
    work = slice_of(SHAPES["straddling everywhere"], 33, "float32")
    first, _ = run(build.compile(folder), build, work)
    for _ in range(5):
        again, _ = run(build.compile(folder), build, work)
        assert np.array_equal(first, again)


@pytest.mark.parametrize("weighted", [True, False], ids=["weights", "unit weights"])
def test_what_is_moved(folder: Path, weighted: bool) -> None:
    build = Build("csr", tasklets=4)
    work = slice_of([20] * 40, 12, "int32", weighted=weighted)
    _, moved = run(build.compile(folder), build, work)
    edges, rows, row_bytes = 800, 40, 12 * 4
    assert (moved.writes, moved.written_bytes) == (rows, rows * row_bytes)
    streamed = moved.read_bytes - edges * row_bytes
    arrays = 4 * (rows + 1 + edges * (2 if weighted else 1))
    # Every block of indices and weights once; where tasklets begin and end, at most a block more each.
    assert arrays <= streamed <= arrays + 4 * (3 if weighted else 2) * 64
    assert moved.heap_bytes == 4 * (3 * 64 + 2 * 512)


def test_odd_widths_are_padded_to_eight_bytes() -> None:
    assert [padded_width(Build(feature="int8"), width) for width in (1, 8, 9)] == [8, 8, 16]
    assert padded_width(Build(feature="int64"), 3) == 3
    assert padded_width(Build(feature="int8", sums="int32"), 3) == 8


BROKEN = {
    "12 bytes": ("mram_read(heap, block, 12);", "mram_read: 12 bytes; a transfer has 8 to 2048"),
    "too long": ("mram_write(block, heap, 2056);", "mram_write: 2056 bytes"),
    "nothing": ("mram_read(heap, block, 0);", "mram_read: 0 bytes"),
    "MRAM unaligned": ("mram_read(heap + 4, block, 8);", "MRAM address 0x4 of 8 bytes is unaligned"),
    "MRAM outside": ("mram_read(heap + (64 << 20) - 8, block, 16);", "is unaligned or outside"),
    "WRAM unaligned": ("mram_write(block + 1, heap, 8);", "WRAM address .* unaligned"),
    "not in WRAM": ("static uint64_t far; mram_read(heap, &far, 8);", "outside the heap"),
    "WRAM full": ("mem_alloc(60000);", r"WRAM: \d+ bytes wanted, the heap has 61440"),
}


@pytest.mark.parametrize(("line", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_the_shim_ends_a_run_that_breaks_a_rule(tmp_path: Path, line: str, message: str) -> None:
    source = tmp_path / "broken.c"
    source.write_text(
        "#include <alloc.h>\n#include <defs.h>\n#include <mram.h>\n#include <arguments.h>\n"
        "__host struct arguments arguments;\n"
        "int main(void) {\n  uint8_t *block = mem_alloc(2100);\n"
        "  __mram_ptr uint8_t *heap = DPU_MRAM_HEAP_POINTER;\n  (void)block, (void)heap;\n"
        f"  {line}\n  return 0;\n}}\n"
    )
    build = Build(tasklets=3)
    executable = build.compile(tmp_path, source)
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run(executable, build, slice_of([1], 2, "int32"))
    assert caught.value.returncode == 3
    assert re.search(message, caught.value.stderr)


def test_rows_too_long_for_all_tasklets_are_noticed(folder: Path) -> None:
    build = Build("free", tasklets=24, row_bytes=2048)
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run(build.compile(folder), build, slice_of([3], 4, "int32"))
    assert "WRAM:" in caught.value.stderr


@pytest.fixture(scope="module")
def thread_checker(folder: Path) -> str:
    flag = "-fsanitize=thread"
    source = folder / "nothing.c"
    source.write_text("int main(void) { return 0; }\n")
    made = subprocess.run([str(COMPILER), flag, source, "-o", folder / "nothing"], capture_output=True)
    if made.returncode or subprocess.run([folder / "nothing"], capture_output=True).returncode:
        pytest.skip("the C compiler has no thread sanitizer that runs here")
    return flag


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_two_tasklets_race(folder: Path, thread_checker: str, variant: str) -> None:
    build = Build(variant, tasklets=6, row_bytes=64, flags=(thread_checker, "-g"))
    # Several pieces of columns, so that each step comes after the one before.
    check(folder, build, slice_of(SHAPES["straddling everywhere"], 40, "int32"))
