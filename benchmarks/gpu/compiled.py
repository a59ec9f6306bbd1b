"""Kernels compiled ahead of time, without a GPU, and what the compiled code says of itself."""

import json
import multiprocessing
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import triton
from triton.backends.compiler import GPUTarget

from benchmarks.gpu.launches import Launch
from onehop.errors import OnehopError

T = TypeVar("T")
# Name -> what triton calls it.
TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
# Taking code apart takes longer than finding it in triton's cache: what it said is kept there too. The folder
# is renamed when code is read in another way.
_KEPT = "onehop-usage-5"
_NVIDIA_BIN = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
# Spilled registers are stored to and loaded from local memory.
_SPILLS = re.compile(r"\b(?:STL|LDL)(?:\.\w+)*\b")
# A load of global memory into registers, or past them into shared memory; its width in bits, 32 if not said.
_LOADS = re.compile(r"\b(?:LDG|LDGSTS)((?:\.\w+)*)\b")
_AMD_LOADS = re.compile(r"\b(?:global|buffer|flat)_load_(\w+)")
_AMD_BITS = {"dword": 32, "dwordx2": 64, "dwordx3": 96, "dwordx4": 128, "ushort": 16, "short_d16": 16}
_ATOMICS = re.compile(r"\b(?:RED|ATOM|ATOMG)(?:\.\w+)*\b")
# An instruction's place and text, and the place that a jump goes to.
_INSTRUCTIONS = re.compile(r"/\*([0-9a-f]{4,})\*/\s+([^;/]+);")
_JUMPS = re.compile(r"\bBRA(?:\.\w+)*\b.*?\b0x([0-9a-f]+)")
_WAITS = re.compile(r"\bBAR(?:\.\w+)*\b")
_SHARED = re.compile(r"\b(?:LDS|STS|LDSM|STSM)(?:\.\w+)*\b")
_AMD_ATOMICS = re.compile(r"\b(?:global|buffer|flat)_atomic_\w+")


@dataclass(frozen=True, slots=True)
class Usage:
    """What a compiled kernel uses.

    Attributes:
        registers: Of a thread; on AMD vector registers.
        spills: Bytes of a thread's registers that live in memory.
        shared: Bytes of memory that a program's threads share.
        loads: Width in bits -> instructions that load as much from global memory.
        atomics: Instructions that read, change and write memory at once.
        loop_waits: Barriers in innermost loops. This and what follows are read of NVIDIA's code only; else 0.
        loop_shared: Loads and stores of shared memory there.
        loop_bytes: Bytes that a thread loads from global memory in an iteration of the innermost loop that
            loads most; 0 where none does.
        loop_spills: Loads and stores of spilled registers in innermost loops.
    """

    registers: int
    spills: int
    shared: int
    loads: dict[int, int]
    atomics: int
    loop_waits: int = 0
    loop_shared: int = 0
    loop_bytes: int = 0
    loop_spills: int = 0


def in_processes(work: Callable[[int], T], count: int, processes: int) -> Iterator[T]:
    """Calls ``work`` with each number below ``count``, in so many processes, and yields the results in order.

    The processes are forked, so that they have the kernels, which cannot be pickled.
    """
    global _work
    _work = work
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from pool.imap(_numbered, range(count))


_work: Callable[[int], Any] = range


def _numbered(number: int) -> Any:
    return _work(number)


def source_of(launch: Launch) -> Any:
    """Triton's own description of a launch; compiled, it is found in triton's cache by the launch itself."""
    return triton.compiler.ASTSource(
        fn=launch.kernel,
        signature=dict(launch.signature),
        constexprs=dict(launch.constexprs),
        attrs={path: [["tt.divisibility", 16]] if aligned else [] for path, aligned in launch.alignments},
    )


def compile_launch(launch: Launch, target: str) -> Usage:
    """Compiles a kernel and reads its code, or finds in triton's cache what was read.

    Raises:
        OnehopError: The compiled code says nothing of its registers.
    """
    compiled = triton.compile(source_of(launch), target=TARGETS[target], options=dict(launch.options))
    kept = Path(triton.knobs.cache.dir) / _KEPT / f"{compiled.hash}.json"
    if kept.exists():
        told = json.loads(kept.read_text())
        return Usage(**told | {"loads": {int(bits): count for bits, count in told["loads"].items()}})
    shared = int(compiled.metadata.shared)
    if "cubin" in compiled.asm:
        usage = _of_cubin(compiled.asm["cubin"], shared)
    else:
        usage = _of_amdgcn(compiled.asm["amdgcn"], shared)
    kept.parent.mkdir(parents=True, exist_ok=True)
    aside = kept.with_suffix(f".{os.getpid()}")
    aside.write_text(json.dumps(asdict(usage)))
    aside.replace(kept)
    return usage


def _of_cubin(cubin: bytes, shared: int) -> Usage:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(_NVIDIA_BIN / "cuobjdump"), "-res-usage", "-sass", file.name]
        code = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", code)
    if found is None:
        raise OnehopError("cuobjdump: expected REG and STACK in its answer, found neither.")
    stack = int(found[2])
    if not stack and _SPILLS.search(code):
        stack = 4  # at least one
    loads = [_bits(parts) for parts in _LOADS.findall(code)]
    inner = innermost_loops(code)
    waits, of_shared, of_spills = (
        sum(len(kind.findall(loop)) for loop in inner) for kind in (_WAITS, _SHARED, _SPILLS)
    )
    loaded = max((sum(map(_bits, _LOADS.findall(loop))) // 8 for loop in inner), default=0)
    return Usage(
        registers=int(found[1]),
        spills=stack,
        shared=shared,
        loads=_counted(loads),
        atomics=len(_ATOMICS.findall(code)),
        loop_waits=waits,
        loop_shared=of_shared,
        loop_bytes=loaded,
        loop_spills=of_spills,
    )


def innermost_loops(code: str) -> list[str]:
    """The instructions of each loop that contains no other, a line each; of NVIDIA's assembly."""
    found = [(int(place, 16), text.strip()) for place, text in _INSTRUCTIONS.findall(code)]
    loops = set()
    for place, text in found:
        jump = _JUMPS.search(text)
        # The jump to itself fills the end of a kernel.
        if jump is not None and int(jump[1], 16) < place:
            loops.add((int(jump[1], 16), place))
    inner = [
        loop
        for loop in loops
        if not any(other != loop and loop[0] <= other[0] and other[1] <= loop[1] for other in loops)
    ]
    return ["\n".join(text for place, text in found if begin <= place <= end) for begin, end in sorted(inner)]


def _of_amdgcn(code: str, shared: int) -> Usage:
    numbers = {
        name: int(value)
        for name, value in re.findall(
            r"\.(vgpr_count|vgpr_spill_count|private_segment_fixed_size):\s+(\d+)", code
        )
    }
    if "vgpr_count" not in numbers:
        raise OnehopError("amdgcn: expected .vgpr_count in the code's metadata, found none.")
    spills = 4 * numbers.get("vgpr_spill_count", 0) or numbers.get("private_segment_fixed_size", 0)
    loads = [_AMD_BITS.get(kind, 8) for kind in _AMD_LOADS.findall(code)]
    return Usage(numbers["vgpr_count"], spills, shared, _counted(loads), len(_AMD_ATOMICS.findall(code)))


def _bits(parts: str) -> int:
    for part in parts.split("."):
        if part in ("128", "64"):
            return int(part)
        if part in ("U16", "S16"):
            return 16
        if part in ("U8", "S8"):
            return 8
    return 32


def _counted(widths: list[int]) -> dict[int, int]:
    return {width: widths.count(width) for width in sorted(set(widths), reverse=True)}
