"""``python -m benchmarks.gpu.check``: compiles every GPU kernel for every target, and judges it.

It needs no GPU.

A kernel passes if no register is spilled (on NVIDIA's GPUs: none in an innermost loop, and at most 16 bytes a
thread outside of these, where the assembler sets a few aside for more warps), a thread has at most 128
registers (168 on AMD), no atomic is used, and rows of features are loaded 16 bytes at a time where their
length allows. On NVIDIA's GPUs, the innermost loop of a sweep that adds up rows must not wait at a barrier
nor use shared memory, and must have enough bytes in flight. Besides the forms of the default plans, what the
benchmark itself launches is checked, for the GPU that it is meant for.
"""

import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any
from unittest import mock

import torch
import triton

from benchmarks.gpu import ahead, cases
from benchmarks.gpu.compiled import TARGETS, Usage, compile_launch, in_processes
from benchmarks.gpu.graphs import GRAPHS
from benchmarks.gpu.grid import grid
from benchmarks.gpu.launches import Launch, launches_of
from benchmarks.gpu.operators import OPERATORS
from onehop.bench import command
from onehop.kernels.triton import availability
from onehop.kernels.triton.attention_call import Multiprocessors

# Threads of a warp -> registers of a thread. With more, fewer than 16 warps of 32 fit one of NVIDIA's
# multiprocessors (65,536 registers), fewer than 12 of 64 one of AMD's compute units (131,072).
MOST_REGISTERS = {32: 128, 64: 168}
_WIDE_BITS = 128
# Bytes of a thread's registers that may be spilled outside of innermost loops.
MOST_ASIDE_BYTES = 16
# The GPU that the benchmark is meant for: an H100 or H200 (NVIDIA's H100 whitepaper, the SXM5 board).
BENCHMARKED = "sm_90"
HOPPER = Multiprocessors(count=132, registers=65_536, threads=2048, shared_bytes=233_472, warp_threads=32)
# Bytes that must be on their way on each multiprocessor for full speed: 4.8e12 bytes a second (NVIDIA's H200
# data sheet) over 132, times 560 ns until a load arrives. That time is assumed; no device has told it yet.
NEEDED_BYTES = 20_480
# The least of them that passes, 10,240: one load of 16 bytes, and the four bytes of an edge's index, for each
# thread, of as few as may fit. Only the sweep that adds up the gradient of ``att`` comes near, in 16 bits: it
# needs six registers for each number of a row (the row that is read, query, gradient, ``att``, two sums), so
# that a thread takes 8 numbers, 16 bytes, where other sweeps take 16.
LEAST_BYTES = HOPPER.registers // MOST_REGISTERS[32] * (_WIDE_BITS // 8 + 4)
# Sweeps that gather rows and add them up. Others store a number an edge, which takes sums across threads.
_SWEEPS = (
    *("sum_kernel", "extremum_kernel", "extremum_grad_source_kernel"),
    *("arg_extremum_kernel", "arg_extremum_grad_source_kernel"),
    *("attend_kernel", "attend_grad_dst_kernel", "attend_grad_src_kernel"),
)
# Of the benchmark, by default.
BENCHMARKED_DTYPES = (torch.float32, torch.bfloat16)
_ITEMSIZE = {"fp64": 8, "fp32": 4, "bf16": 2, "fp16": 2}


def faults(launch: Launch, usage: Usage, warp_threads: int = 32) -> Iterator[str]:
    """What is wrong with a compiled kernel, as sentences."""
    # AMD's loops are not read.
    aside = MOST_ASIDE_BYTES if warp_threads == 32 and not usage.loop_spills else 0
    if usage.spills > aside:
        where = " in an innermost loop" if usage.loop_spills else ""
        yield f"{usage.spills} bytes of registers are spilled{where}"
    most = MOST_REGISTERS[warp_threads]
    if usage.registers > most:
        yield f"{usage.registers} registers are more than {most}"
    if usage.atomics:
        yield f"{usage.atomics} atomic instructions"
    # Those of edge features store something an edge too.
    if launch.name in _SWEEPS and not launch.constants.get("EDGE"):
        if usage.loop_waits:
            yield f"{usage.loop_waits} barriers in an innermost loop"
        if usage.loop_shared:
            yield f"{usage.loop_shared} loads and stores of shared memory in an innermost loop"
    row_bytes = _row_bytes(launch, warp_threads)
    if row_bytes and row_bytes % 16 == 0 and not usage.loads.get(_WIDE_BITS):
        yield f"no load of {_WIDE_BITS} bits, though rows are {row_bytes} bytes"
    flying = bytes_in_flight(launch, usage)
    gathers = launch.name in _SWEEPS and usage.loop_bytes > 0 and row_bytes > 0
    if gathers and not launch.constants.get("EDGE") and flying < LEAST_BYTES:
        yield f"{flying / NEEDED_BYTES:.0%} of the bytes that must be on their way"


def bytes_in_flight(launch: Launch, usage: Usage) -> int:
    """Bytes that a multiprocessor loads in one iteration of the loops of all programs that it runs."""
    warps: int = dict(launch.options).get("num_warps", 1)
    programs = HOPPER.programs_on_each(usage.registers, usage.shared, warps)
    return programs * warps * HOPPER.warp_threads * usage.loop_bytes


def _row_bytes(launch: Launch, warp_threads: int) -> int:
    """Of a row of features, of one head for attention; 0 where a tile has not 16 bytes for every thread."""
    constants = launch.constants
    itemsize = _ITEMSIZE[launch.dtype]
    sizes = ("FEATURES",) if "WIDTH" in constants else ("HEADS", "BLOCK_V")
    tile = math.prod(constants.get(name, 1) for name in ("ROWS", "EDGES", *sizes))
    if tile * itemsize < 16 * warp_threads * dict(launch.options).get("num_warps", 1):
        return 0
    # Weights come of keys alone; of "gat" these are numbers.
    of_head = "D" if launch.name == "attend_weights_kernel" else "V"
    return int(constants.get("WIDTH", constants.get(of_head, 0)) * itemsize)


def launches(dtypes: Sequence[torch.dtype]) -> list[Launch]:
    """Everything that is shipped, for some dtypes."""
    return launches_of(*(call for dtype in dtypes for call in cases.calls(dtype)))


def some_of_each(found: Sequence[Launch], forms: int | None) -> list[Launch]:
    """The first launches of each kernel, so many at most; all of them for None."""
    taken: dict[str, list[Launch]] = {}
    for launch in found:
        taken.setdefault(launch.name, []).append(launch)
    return [launch for those in taken.values() for launch in those[:forms]]


def benchmarks_own(
    dtypes: Sequence[torch.dtype], operators: Sequence[str], graphs: Sequence[str]
) -> list[Launch]:
    """What the benchmark launches, for some dtypes: every width and graph of its grid."""
    names = [str(dtype).removeprefix("torch.") for dtype in dtypes if dtype in BENCHMARKED_DTYPES]
    # Nothing runs, so that the backend may have tensors of the CPU.
    with mock.patch.object(availability, "refuses", return_value=None):
        return ahead.launches(grid(graphs, operators, names), torch.device("cpu"))


def check_all(
    shipped: Sequence[Launch], own: Sequence[Launch], targets: Sequence[str], processes: int
) -> Iterator[dict[str, Any]]:
    """Checks everything, and yields each kernel as it is found, in order: what it uses, and its faults.

    What was compiled, and what its code says, stays in triton's cache: an interrupted check goes on from
    there.

    Args:
        shipped: For all targets.
        own: For the GPU that the benchmark is meant for, if it is among these.
        targets: Names of :data:`benchmarks.gpu.compiled.TARGETS`.
        processes: How many compile at a time.
    """
    more = [launch for launch in dict.fromkeys(own) if launch not in set(shipped)]
    jobs = [
        (launch, target)
        for number, launch in enumerate((*shipped, *more))
        for target in targets
        if number < len(shipped) or target == BENCHMARKED
    ]
    usages = in_processes(lambda number: compile_launch(*jobs[number]), len(jobs), processes)
    for (launch, target), usage in zip(jobs, usages, strict=True):
        yield {
            "kernel": launch.name,
            "dtype": launch.dtype,
            "target": target,
            **asdict(usage),
            "bytes_in_flight": bytes_in_flight(launch, usage),
            "faults": list(faults(launch, usage, TARGETS[target].warp_size)),
            "types": dict(launch.signature),
            "constants": launch.constants,
            "options": dict(launch.options),
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a table, writes JSON, and returns 1 where something is wrong."""
    parser = command.parser("Compile every GPU kernel for every target and judge the code.")
    parser.add_argument("--targets", nargs="+", choices=list(TARGETS), default=list(TARGETS))
    dtypes = {str(dtype).removeprefix("torch."): dtype for dtype in cases.DTYPES}
    parser.add_argument("--dtypes", nargs="+", choices=list(dtypes), default=list(dtypes))
    parser.add_argument("--operators", nargs="*", choices=list(OPERATORS), default=list(OPERATORS))
    parser.add_argument("--graphs", nargs="*", choices=list(GRAPHS), default=list(GRAPHS))
    parser.add_argument("--forms", type=int, help="of each kernel, shipped and the benchmark's (all)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    chosen = command.read(parser, arguments)
    wanted = [dtypes[name] for name in chosen.dtypes]
    begin = time.perf_counter()
    shipped, own = launches(wanted), benchmarks_own(wanted, chosen.operators, chosen.graphs)
    shipped, own = some_of_each(shipped, chosen.forms), some_of_each(own, chosen.forms)
    found = []
    for each in check_all(shipped, own, chosen.targets, chosen.processes):
        found.append(each)
        sys.stdout.write(_line(each))
        sys.stdout.flush()
    seconds = time.perf_counter() - begin
    faulty = [each for each in found if each["faults"]]
    sys.stdout.write(
        f"{len(found)} kernels compiled by triton {triton.__version__} for {', '.join(chosen.targets)} "
        f"in {seconds:.0f} s; {len(faulty)} with faults\n"
    )
    command.write(chosen, "gpu check", {"triton": triton.__version__, "seconds": seconds, "kernels": found})
    return 1 if faulty or not found else 0


def _line(found: dict[str, Any]) -> str:
    constants = found["constants"]
    sizes = ("PARTS", "FEATURES") if "FEATURES" in constants else ("HEADS", "BLOCK_V")
    names = ("ROWS", "EDGES", *sizes)
    tile = "x".join(str(constants[name]) for name in names if name in constants)
    loads = " ".join(f"{bits}:{count}" for bits, count in found["loads"].items())
    verdict = "; ".join(found["faults"]) or "ok"
    return (
        f"{found['kernel']:28} {found['dtype']:5} {found['target']:7} {tile:>12} "
        f"{found['registers']:4} registers  loads {loads:24} {verdict}\n"
    )


if __name__ == "__main__":
    sys.exit(main())
