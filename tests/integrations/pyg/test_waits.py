"""Steps of mini-batches on a device, for which its host never waits: fresh edges in every one."""

import json
import os
from pathlib import Path

import pytest

from onehop import config
from onehop.kernels.triton import availability
from tests.processes import run_python

pytestmark = [
    pytest.mark.skipif(
        availability.not_installed() is not None, reason="there is no triton to compile the kernels"
    ),
    pytest.mark.skipif(config.without_thresholds(), reason="orders are chosen where it pays to wait"),
]

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def waits(tmp_path_factory):
    """By layer, what each step waits for."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))
    done = run_python(["-m", "tests.integrations.pyg.count_waits"], cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("layer", ["SAGE", "SAGE max", "Graph", "GATv2", "Transformer"])
def test_no_step_waits_for_the_device(layer, waits):
    assert waits[layer] == [[], [], []]


def test_edges_that_go_by_the_host_are_counted(waits):
    """The count can fail: a graph that is made on the host has its edges copied there, in every step."""
    assert len(waits["by the host"]) == 3
    assert all("aten::_copy_from" in each for each in waits["by the host"])
