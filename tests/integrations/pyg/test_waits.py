"""Steps of mini-batches on a device, for which its host never waits: fresh edges in every one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onehop.kernels.triton import availability

pytestmark = pytest.mark.skipif(
    availability.not_installed() is not None, reason="there is no triton to compile the kernels"
)

ROOT = Path(__file__).parents[3]


def steps(program, layer, cache):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", program, layer],
        cwd=ROOT,
        env=environment | {"TRITON_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split("\n")[:-1]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("triton")


@pytest.mark.parametrize("layer", ["SAGE", "SAGE max", "Graph", "GATv2", "Transformer"])
def test_no_step_waits_for_the_device(layer, cache):
    assert steps("tests.integrations.pyg.count_waits", layer, cache) == ["", "", ""]


def test_edges_that_go_by_the_host_are_counted(cache):
    """The count can fail: a graph that is made on the host has its edges copied there, in every step."""
    found = steps("tests.integrations.pyg.count_waits", "by the host", cache)
    assert len(found) == 3
    assert all("aten::_copy_from" in each for each in found)
