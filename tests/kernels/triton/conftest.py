"""The GPU kernels, interpreted on the CPU."""

import pytest

from onehop.backends import registry
from onehop.backends.triton import TritonBackend
from onehop.kernels.triton import availability
from onehop.plans import TritonPlan

# Rows of more than six edges are cut, rows of more than two have programs of their own.
SMALL = TritonPlan(
    split_edges=6, short_edges=2, rows_per_program=8, block_edges=4, block_features=16, num_warps=1
)
PLANS = {
    "neighbour": SMALL,
    "feature": TritonPlan(split_edges=6, short_edges=6, rows_per_program=8, block_features=16, num_warps=1),
}
collect_ignore_glob = ["test_*.py"] if availability.not_installed() else []


@pytest.fixture(autouse=True, scope="module")
def interpreted(interpreter):
    """Everything here is."""


@pytest.fixture
def use(monkeypatch):
    """Makes backend="triton" follow a plan."""

    def use_plan(plan):
        monkeypatch.setitem(registry._BACKENDS, "triton", TritonBackend(plan))

    return use_plan


@pytest.fixture(autouse=True)
def small_tiles(use):
    """Small graphs show what large ones would."""
    use(SMALL)
