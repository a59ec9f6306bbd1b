"""Builds the DPU program for this machine, on the shim of the vendor's runtime, and runs it on one slice."""

import dataclasses
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

SOURCES = Path(__file__).parents[3] / "csrc" / "pim"
COMPILER = shutil.which("cc")
# Under make sanitize the programs have sanitizers too.
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1")
FLAGS = (
    "-std=gnu11",
    "-O1",
    "-Wall",
    "-Wextra",
    "-Werror",
    *(SANITIZERS if "ONEHOP_SANITIZED" in os.environ else ()),
)
# What the program is compiled from: file, and its way of sharing rows.
VARIANTS = {
    "csr": ("csr", "ROWS"),
    "rows": ("coo", "ROWS"),
    "free": ("coo", "LOCK_FREE"),
}
C_TYPES = {"float32": "float", "float64": "double"}


@dataclasses.dataclass(frozen=True)
class Build:
    """What is chosen when the program is compiled."""

    variant: str = "csr"
    feature: str = "int32"
    sums: str = ""
    tasklets: int = 11
    row_bytes: int = 512
    flags: tuple[str, ...] = ()

    @property
    def sum_dtype(self) -> np.dtype:
        return np.dtype(self.sums or self.feature)

    def compile(self, folder: Path, program: Path | None = None) -> Path:
        """The executable; made when it is not there yet."""
        name = "-".join(
            [self.variant, self.feature, self.sums, str(self.tasklets), str(self.row_bytes), *self.flags]
        )
        path = folder / (name if program is None else f"{program.stem}-{name}")
        if path.exists():
            return path
        stem, sync = VARIANTS[self.variant]
        c_type = [C_TYPES.get(str(dtype), f"{dtype}_t") for dtype in (self.feature, self.sum_dtype)]
        common = [
            *(COMPILER, *FLAGS, "-fwrapv", "-pthread", *self.flags),
            *(f"-DNR_TASKLETS={self.tasklets}", f"-DFEATURE={c_type[0]}", f"-DSUM={c_type[1]}"),
            *(
                f"-DSYNC=SYNC_{sync}",
                f"-DROW_BYTES={self.row_bytes}",
                f"-I{SOURCES}",
                f"-I{SOURCES / 'shim'}",
            ),
        ]
        source = SOURCES / f"aggregate_{stem}.c" if program is None else program
        compiled = folder / f"{path.name}.o"
        commands = (
            [*common, "-Dmain=tasklet_main", "-c", str(source), "-o", str(compiled)],
            [*common, str(compiled), str(SOURCES / "shim" / "core.c"), "-o", str(path)],
        )
        for command in commands:
            subprocess.run(command, check=True, capture_output=True, text=True)
        return path


def numbers(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray:
    """Random numbers; whole ones are small."""
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(-3, 4, shape).astype(dtype)


@dataclasses.dataclass(frozen=True)
class Slice:
    """A core's part of a graph: edges ordered by row, sources, and features; weights None means ones."""

    rows: int
    row: np.ndarray
    source: np.ndarray
    x: np.ndarray
    weight: np.ndarray | None = None

    @property
    def rowptr(self) -> np.ndarray:
        return np.searchsorted(self.row, np.arange(self.rows + 1))

    def expected(self, dtype: np.dtype) -> np.ndarray:
        """The sums, [rows, width]: integers as they wrap round in ``dtype``, others in float64."""
        kind = dtype if dtype.kind == "i" else np.dtype(np.float64)
        messages = self.x[self.source].astype(kind)
        if self.weight is not None:
            messages = messages * self.weight.astype(kind)[:, None]
        result = np.zeros((self.rows, self.x.shape[1]), dtype=kind)
        np.add.at(result, self.row, messages)
        return result

    def check(self, found: np.ndarray, steps: int) -> None:
        """Sums are exact, or within so many roundings of the sum of the messages' sizes."""
        expected = self.expected(found.dtype)
        if found.dtype.kind == "i":
            assert np.array_equal(found, expected)
            return
        weight = None if self.weight is None else abs(self.weight)
        sizes = dataclasses.replace(self, x=abs(self.x), weight=weight).expected(found.dtype)
        assert bool((abs(found - expected) <= steps * np.finfo(found.dtype).eps * sizes).all())


@dataclasses.dataclass(frozen=True)
class Transfers:
    """What the run moved between MRAM and WRAM, and how much of the heap in WRAM it took."""

    reads: int
    read_bytes: int
    writes: int
    written_bytes: int
    heap_bytes: int


def parts(build: Build, work: Slice) -> list[int]:
    """Where each tasklet begins: rows or edges dealt out evenly; for ``rows``, edges cut between rows."""
    tasklets = build.tasklets
    if build.variant == "csr":
        return [work.rows * t // tasklets for t in range(tasklets + 1)]
    cuts = [len(work.row) * t // tasklets for t in range(tasklets + 1)]
    if build.variant == "rows":
        ends = work.rowptr
        cuts = [int(ends[np.searchsorted(ends, cut)]) for cut in cuts]
    return cuts


def padded(array: np.ndarray) -> bytes:
    content = np.ascontiguousarray(array).tobytes()
    return content + bytes(-len(content) % 8)


def padded_width(build: Build, width: int) -> int:
    least = min(np.dtype(build.feature).itemsize, build.sum_dtype.itemsize)
    per_step = max(1, 8 // least)
    return -(-width // per_step) * per_step


def image(build: Build, work: Slice, cuts: Sequence[int]) -> tuple[bytes, int]:
    """What the host writes: arguments, then MRAM; and the padded width."""
    feature = np.dtype(build.feature)
    width = padded_width(build, work.x.shape[1])
    x = np.zeros((len(work.x), width), dtype=feature)
    x[:, : work.x.shape[1]] = work.x
    # Output that is full of something else: the program must write all of it.
    blank = np.full(work.rows * width * build.sum_dtype.itemsize, 0x5A, dtype=np.uint8)
    index = work.rowptr if build.variant == "csr" else work.row
    weight = np.zeros(0, dtype=feature) if work.weight is None else work.weight.astype(feature)
    content, offsets = b"", []
    for array in (blank, x, index.astype(np.uint32), work.source.astype(np.uint32), weight):
        offsets.append(len(content))
        content += padded(array)
    tail = [*cuts] + [0] * ((build.tasklets + 2) // 2 * 2 - len(cuts))
    words = [work.rows, len(work.row), width, work.weight is None, *offsets, 0, *tail]
    return np.array(words, dtype=np.uint32).tobytes() + content, width


def run(
    executable: Path, build: Build, work: Slice, cuts: Sequence[int] | None = None
) -> tuple[np.ndarray, Transfers]:
    """The sums, [rows, width], sum dtype, and what was moved. A run that hangs raises TimeoutExpired."""
    content, width = image(build, work, parts(build, work) if cuts is None else cuts)
    before, after = executable.with_suffix(".in"), executable.with_suffix(".out")
    before.write_bytes(content)
    told = subprocess.run(
        [executable, before, after], check=True, capture_output=True, text=True, timeout=60
    ).stdout
    sums = np.frombuffer(after.read_bytes(), dtype=build.sum_dtype, count=work.rows * width)
    return sums.reshape(work.rows, width)[:, : work.x.shape[1]], Transfers(*map(int, told.split()))
