"""DGL's graphs and tensors on a device that is written in Python: the GPU's kernels, no copies, no waits.

In processes of their own, for a process can have one such device.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch.utils import backend_registration

from onehop.kernels.triton import availability

pytest.importorskip("dgl", reason="dgl is not installed here: make test-dgl runs these tests")

pytestmark = [
    pytest.mark.skipif(availability.not_installed() is not None, reason="there is no triton for the kernels"),
    pytest.mark.skipif(
        not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
        reason="this torch cannot have a device that is written in Python",
    ),
]


def lines(program, *arguments, **environment):
    inherited = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", f"tests.integrations.dgl.{program}", *arguments],
        cwd=Path(__file__).parents[3],
        env=inherited | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split("\n")[:-1]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("triton"))


def test_operators_and_layers_run_on_the_kernels_with_the_numbers_of_the_cpu():
    told = lines("run_on_another_device", TRITON_INTERPRET="1")
    ran = dict(line.split(": ", 1) for line in told)
    assert len(ran) == len(told) >= 80
    assert all(ran.values())
    assert ran["Graph.from_dgl"] == "far:0"
    assert ran["GATv2Conv on hub"] == "attention attention_grad"
    assert ran["copy_u_max on block"] == "arg_extremum arg_extremum_grad"
    assert ran["copy_u_max of NaN without gradients on random"] == "arg_extremum"


LAYERS = ["GraphConv", "SAGEConv mean", "SAGEConv pool", "GATConv", "GATv2Conv", "DotGatConv"]


@pytest.mark.parametrize("layer", LAYERS)
def test_no_step_with_a_fresh_graph_waits_for_the_device(layer, cache):
    assert lines("count_waits", layer, "fresh", TRITON_CACHE_DIR=cache) == [""] * 3


@pytest.mark.parametrize("layer", ["GATConv", "GATv2Conv"])
def test_a_graph_whose_degrees_are_looked_at_is_waited_for_once(layer, cache):
    assert lines("count_waits", layer, "same", TRITON_CACHE_DIR=cache) == [
        "aten::_local_scalar_dense",
        "",
        "",
    ]


def test_graphs_that_go_by_the_host_are_counted(cache):
    """The count can fail: a graph that is made on the host has its edges copied there, in every step."""
    found = lines("count_waits", "SAGEConv mean", "by the host", TRITON_CACHE_DIR=cache)
    assert len(found) == 3
    assert all("aten::_copy_from" in each for each in found)
