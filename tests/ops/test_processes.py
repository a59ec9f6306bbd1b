"""Instruction sets by environment, and work in forked processes."""

import json
import os
import subprocess
import sys

import pytest
import torch

import onehop
from onehop import Graph, native, reference

CHECK = """
import json, torch, onehop
from onehop import Graph, native, reference
generator = torch.Generator().manual_seed(0)
edge_index = torch.randint(0, 50, (2, 900), generator=generator)
graph = Graph.from_edge_index(edge_index, 50)
worst = 0.0
for width in (3, 129):
    x = torch.randn(50, width, generator=generator)
    for reduce in ("sum", "max"):
        exact = reference.aggregate(edge_index, x, 50, reduce=reduce)
        worst = max(worst, float((onehop.aggregate(graph, x, None, reduce) - exact).abs().max()))
isa, vector = native.extension.selected_isa(), native.extension.vector_bytes()
print(json.dumps({"isa": isa, "vector": vector, "worst": worst}))
"""


def run_python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("isa", native.extension.available_isas())
def test_every_instruction_set_runs_when_asked_for(isa):
    finished = run_python(CHECK, ONEHOP_ISA=isa)
    assert finished.returncode == 0, finished.stderr
    result = json.loads(finished.stdout)
    assert result["isa"] == isa
    assert result["vector"] == {"avx512": 64, "avx2": 32}.get(isa, 16)
    assert result["worst"] < 1e-4


def test_portable_is_always_there_and_last():
    assert native.extension.available_isas()[-1] == "portable"


def test_unknown_instruction_set_is_refused():
    finished = run_python("import onehop", ONEHOP_ISA="mmx")
    assert finished.returncode != 0
    assert "ConfigurationError: ONEHOP_ISA='mmx'" in finished.stderr
    assert "portable" in finished.stderr


def test_openmp_is_torchs_own():
    # One runtime in the process, and it is bound.
    code = """
import re, onehop, torch
from pathlib import Path
from onehop import native
assert native.extension.openmp_bound()
maps = Path("/proc/self/maps").read_text()
print(len(set(re.findall(r"\\S*lib(?:g|i)omp\\S*", maps))))
"""
    finished = run_python(code)
    assert finished.stdout.strip() == "1", finished.stdout + finished.stderr


class Aggregates(torch.utils.data.Dataset):
    """Every item is a sum over a graph that the parent process made."""

    def __init__(self, graph, x):
        self.graph, self.x = graph, x

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return onehop.aggregate(self.graph, self.x * (index + 1)), native.extension.in_forked_child()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_loader_workers():
    generator = torch.Generator().manual_seed(0)
    edge_index = torch.randint(0, 2000, (2, 50000), generator=generator)
    graph = Graph.from_edge_index(edge_index, 2000)
    x = torch.randn(2000, 16, generator=generator)
    onehop.aggregate(graph, x)  # the parent's threads have been used
    loader = torch.utils.data.DataLoader(
        Aggregates(graph, x), batch_size=None, num_workers=2, multiprocessing_context="fork"
    )
    for index, (out, forked) in enumerate(loader):
        assert forked
        torch.testing.assert_close(
            out, reference.aggregate(edge_index, x * (index + 1), 2000), rtol=1e-4, atol=1e-4
        )
    assert not native.extension.in_forked_child()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_fork_with_threads_set_high_does_not_hang():
    # Unlike a loader's worker, a plain fork keeps torch's number of threads.
    graph = Graph.from_edge_index(torch.randint(0, 2000, (2, 50000)), 2000)
    x = torch.randn(2000, 16)
    expected = onehop.aggregate(graph, x)
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.equal(onehop.aggregate(graph, x), expected) else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
