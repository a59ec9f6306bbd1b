"""Kernels compiled ahead of time. In processes of their own, for in this one triton interprets."""

import json
import os
import re
from pathlib import Path

import pytest

from onehop.kernels.triton import availability
from tests.processes import run_python

pytestmark = pytest.mark.skipif(
    availability.not_installed() is not None, reason="there is no triton to compile the kernels"
)

ROOT = Path(__file__).parents[2]
CACHE = ROOT / "build" / "triton"
KERNELS = ROOT / "src" / "onehop" / "kernels" / "triton"
DEFINED = re.compile(r"^def (\w+_kernel)\(", re.MULTILINE)
# What the programs below import.
PRELUDE = """
import torch
from benchmarks.gpu import cases
from benchmarks.gpu.check import faults
from benchmarks.gpu.compiled import compile_launch
from benchmarks.gpu.launches import launches_of
"""
# One program with 64 rows of 256 numbers in 32 threads: far more than there are registers.
TOO_MUCH = """
import onehop
from onehop.backends.triton import TritonBackend
from onehop.calls import Aggregate, on
from onehop.plans import TritonPlan

plan = TritonPlan(short_edges=0, block_edges=64, block_features=256, num_warps=1)
graph = onehop.Graph.from_edge_index(torch.zeros(2, 9, dtype=torch.long), 1)
x = torch.ones(1, 256)
(launch,) = launches_of(
    lambda: TritonBackend(plan).run(graph, on(graph, Aggregate, x=x))
)
print(*faults(launch, compile_launch(launch, "sm_90")))
"""
# What is said of a sweep whose loop waits, uses shared memory, or asks for too little at a time.
LOOPS = """
from dataclasses import replace
from benchmarks.gpu.check import bytes_in_flight

launch = launches_of(*cases.sum_calls(cases.graph_of_degree(80), 64, torch.float32))[0]
usage = compile_launch(launch, "sm_90")
assert not list(faults(launch, usage))
assert usage.loop_bytes >= 32 and bytes_in_flight(launch, usage) >= 64 * usage.loop_bytes
for wrong in ({"loop_waits": 1}, {"loop_shared": 2}, {"loop_bytes": 2}):
    print(*faults(launch, replace(usage, **wrong)))
# Some registers may be spilled outside of innermost loops, not in them, and nowhere where loops are not read.
assert not list(faults(launch, replace(usage, spills=16)))
for wrong in ({"spills": 20}, {"spills": 8, "loop_spills": 1}):
    print(*faults(launch, replace(usage, **wrong)))
print(next(faults(launch, replace(usage, spills=8), 64)))
"""
# A kernel whose loop adds up across warps, and one that does not; read of the compiled code.
ACROSS_WARPS = """
import torch, triton, triton.language as tl
from benchmarks.gpu.compiled import compile_launch
from benchmarks.gpu.launches import launches_of

@triton.jit
def kernel(x, out, count, ACROSS: tl.constexpr):
    at = tl.arange(0, 256)
    total = tl.zeros([256], tl.float32)
    for step in range(count):
        value = tl.load(x + step * 256 + at)
        total += tl.sum(value, 0) if ACROSS else value
    tl.store(out + at, total)

x = torch.ones(2048)
for across in (True, False):
    (launch,) = launches_of(lambda: kernel[(1,)](x, x, 8, ACROSS=across, num_warps=4))
    usage = compile_launch(launch, "sm_90")
    print(usage.loop_waits > 0, usage.loop_shared > 0, usage.loop_bytes > 0)
"""
# As in graphs of more than 2^31 edges; a type that changes in a loop is found by the compiler alone.
NUMBERED_IN_64_BITS = """
import onehop.kernels.triton.work as work
work._NARROW_EDGES = 0

launches = launches_of(*cases.aggregate_calls(cases.graph_of_degree(80), 64, torch.float32))
signatures = [dict(launch.signature) for launch in launches]
types = {each["items"].begin for each in signatures if "items" in each}
assert types == {"*i64", "*i32"}, types  # of edges; and of slots, whose numbers stay narrow
for launch in launches:
    print(*faults(launch, compile_launch(launch, "sm_90")))
"""
# What triton itself makes of the arguments of a launch, which it does without a GPU too.
SPECIALISED = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import JITFunction, create_function_from_signature
from benchmarks.gpu.compiled import source_of

backend = make_backend(GPUTarget("cuda", 90, 32))
expected = {}

def run(kernel, *args, grid, warmup, **kwargs):
    bind = create_function_from_signature(kernel.signature, kernel.params, backend)
    bound, types, options = bind(*args, **kwargs)
    _, *described = kernel._pack_args(backend, kwargs, bound, types, options)
    expected[ASTSource(kernel, *described).hash()] = None

calls = cases.calls(torch.float32)
found = launches_of(*calls)
JITFunction.run = run
for call in calls:
    call()
print(len(found), {source_of(each).hash() for each in found} == set(expected))
"""
# The forms of a kernel among those that are shipped, and whether it is one of many.
SHIPPED = """
from benchmarks.gpu.check import launches, some_of_each

found = launches([torch.bfloat16])
merges = [dict(each.signature) for each in found if each.name == "merge_kernel"]
print({each["next_rows"] != "constexpr" for each in merges}, end=" ")
print(some_of_each(found, None) != some_of_each(found, 1) and len(found) > 80)
"""
# A check that was interrupted goes on: what was said of a kernel is not read of its code again.
AGAIN = """
from benchmarks.gpu import compiled

launch = launches_of(*cases.sum_calls(cases.graph_of_degree(8), 64, torch.float32))[0]
usage = compiled.compile_launch(launch, "sm_90")
del compiled._of_cubin
print(compiled.compile_launch(launch, "sm_90") == usage)
"""


def printed(*command):
    """What a program prints in a process in which triton compiles."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(CACHE)}
    done = run_python(command, cwd=ROOT, env=environment | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kernels_spill_nothing_and_load_16_bytes_at_a_time(tmp_path):
    """A form of each kernel, in one or two dtypes, for one GPU; ``make gpu-check`` does them all."""
    table = tmp_path / "table.json"
    options = ("--dtypes", "bfloat16", "float32", "--targets", "sm_90", "--json", str(table))
    options += ("--graphs", "cora", "--forms", "1")
    printed("-m", "benchmarks.gpu.check", *options)
    kernels = json.loads(table.read_text())["kernels"]
    assert {each["target"] for each in kernels} == {"sm_90"}
    defined = {name for file in KERNELS.glob("*.py") for name in DEFINED.findall(file.read_text())}
    assert {each["kernel"] for each in kernels} == defined
    assert all(each["registers"] > 0 and each["loads"] for each in kernels)


def test_every_form_that_is_shipped_is_listed():
    # Of hubs that are merged in levels too.
    assert printed("-c", PRELUDE + SHIPPED).strip() == "{False, True} True"


def test_spilled_registers_are_found():
    assert "bytes of registers are spilled in an innermost loop" in printed("-c", PRELUDE + TOO_MUCH)


def test_what_code_says_is_kept():
    assert printed("-c", PRELUDE + AGAIN).strip() == "True"


def test_loops_that_wait_or_ask_for_little_are_found():
    waits, shared, bytes_, *spills = printed("-c", PRELUDE + LOOPS).splitlines()
    assert waits == "1 barriers in an innermost loop"
    assert shared == "2 loads and stores of shared memory in an innermost loop"
    assert bytes_.endswith("% of the bytes that must be on their way")
    assert spills == [
        "20 bytes of registers are spilled",
        "8 bytes of registers are spilled in an innermost loop",
        "8 bytes of registers are spilled",
    ]


def test_barriers_and_shared_memory_are_read_of_the_code(tmp_path):
    program = tmp_path / "kernel.py"
    program.write_text(ACROSS_WARPS)  # triton reads a kernel's source
    assert printed(str(program)).splitlines() == ["True True True", "False False True"]


def test_innermost_loops_are_found():
    from benchmarks.gpu.compiled import innermost_loops

    code = "".join(
        f"        /*{16 * place:04x}*/                   {text} ;      /* 0x0 */\n"
        for place, text in enumerate(
            ["MOV R1, R2", "BAR.SYNC 0x0", "LDG.E R3, [R4]", "@!P1 BRA 0x20", "@P0 BRA 0x10", "BRA 0x50"]
        )
    )
    assert innermost_loops(code) == ["LDG.E R3, [R4]\n@!P1 BRA 0x20"]


def test_edges_numbered_in_64_bits_compile():
    assert not printed("-c", PRELUDE + NUMBERED_IN_64_BITS).strip()


def test_launches_are_written_down_as_triton_specialises_them():
    count, agree = printed("-c", PRELUDE + SPECIALISED).split()
    assert int(count) > 50
    assert agree == "True"
