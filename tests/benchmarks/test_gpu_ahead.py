"""Kernels compiled ahead of their launches, and launched by triton on a driver that stands for a GPU's.

In processes of their own, for in this one triton interprets.
"""

import os
from pathlib import Path

import pytest

from onehop.kernels.triton import availability
from tests.processes import run_python

pytestmark = pytest.mark.skipif(
    availability.not_installed() is not None, reason="there is no triton to compile the kernels"
)

ROOT = Path(__file__).parents[2]

AHEAD = """
import torch
from tests.kernels.triton.stub_driver import LAUNCHED as launched, TARGET, compiled
from benchmarks.gpu import ahead
from benchmarks.gpu.grid import Case

cases = [Case("cora", "sum", "float32", 1, 32), Case("cora", "gat", "float32", 2, 8)]
found = ahead.launches(cases, torch.device("cpu"))
ahead.compile_all(found, TARGET, 1)
before = compiled()
assert len(before) == len(found), (len(before), len(found))

from benchmarks.gpu.graphs import edge_index_of
from benchmarks.gpu.operators import OPERATORS, Size
from onehop import Graph

graph = Graph.from_edge_index(*edge_index_of("cora", torch.device("cpu")))
for case in cases:
    operator = OPERATORS[case.operator]
    size = Size(graph.num_dst, graph.num_edges, case.heads, case.width)
    inputs = operator.inputs(size, torch.float32, torch.device("cpu"))
    out = operator.ours(graph, inputs)
    torch.autograd.grad(out, list(inputs.values()), torch.ones_like(out))
expected = {"sum_kernel", "attend_kernel", "attend_grad_src_kernel", "attend_grad_dst_kernel"}
assert expected <= set(launched), launched
print(len(found), len(launched), compiled() == before)
"""
# Of two operators that no table measures, forward and backward.
UNTIMED = """
import torch
from tests.kernels.triton import stub_driver
from benchmarks.gpu import ahead

found = ahead.untimed_launches(["sddmm", "edge-softmax"], ["float32"], torch.device("cpu"))
print(*sorted({launch.name for launch in found}))
"""
# A launch that merges slots into those of a next level reads slots (no columns) and writes slots.
LEVELS = """
import torch
from benchmarks.gpu import ahead, check

ahead._NODES = 2000
for name in ("twitch-views", "ogbn-arxiv"):
    found = check.benchmarks_own([torch.float32], ["sum"], [name])
    items = [dict(launch.signature)["items"] for launch in found if launch.name == "sum_kernel"]
    print(any(each.col == "constexpr" and each.slot != "constexpr" for each in items))
"""


def printed(program, cache):
    """The words that a program prints in a process in which triton compiles."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(cache)}
    done = run_python(["-c", program], cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split()


def test_what_is_compiled_ahead_is_what_triton_launches(tmp_path):
    compiled, launched, nothing_more = printed(AHEAD, tmp_path)
    assert int(compiled) >= 4
    assert int(launched) >= 4
    assert nothing_more == "True"


def test_hubs_are_merged_in_as_many_levels_as_on_the_whole_graph(tmp_path):
    """The benchmark's graphs have a hub of more than 64 pieces, or none; smaller ones stand for them."""
    assert printed(LEVELS, tmp_path) == ["True", "False"]


def test_what_the_tests_launch_is_compiled_too(tmp_path):
    assert printed(UNTIMED, tmp_path) == [
        "edge_softmax_grad_kernel",
        "edge_softmax_kernel",
        "merge_softmax_kernel",
        "merge_sums_kernel",
        "sddmm_kernel",
        "sum_kernel",
    ]
