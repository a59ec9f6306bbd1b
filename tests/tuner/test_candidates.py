"""Which values are worth trying: by the graph's figures and the caches there are."""

import pytest
import torch

from onehop import Graph, processor
from onehop.tuner import candidates
from onehop.tuner.operations import operations

NODES, WIDTH = 4000, 16


@pytest.fixture(autouse=True)
def small_caches(monkeypatch):
    # Of 64-byte rows the second cache holds 512, the last 2,048.
    monkeypatch.setattr(processor, "caches", lambda: {1: 1 << 13, 2: 1 << 15, 3: 1 << 17})
    monkeypatch.setattr(processor, "last_level_cache_bytes", lambda: 1 << 17)


def axes(
    nodes: int = NODES, edges: int = 20 * NODES, width: int = WIDTH, lossy: bool = False, op: str = "sum"
):
    generator = torch.Generator().manual_seed(0)
    graph = Graph.from_edge_index(torch.randint(0, nodes, (2, edges), generator=generator), num_nodes=nodes)
    operation = operations("aggregate", op, backward=False)[0]
    return candidates.axes(graph, operation, width, torch.float32, 2, 64, lossy)


def test_orders_are_tried_where_a_cache_cannot_hold_the_features_and_edges_are_many():
    assert axes()["ordering"] == ("none", "community", "rcm", "degree")
    assert "ordering" not in axes(width=2), "32 kB of features fit into the second cache"
    assert "ordering" not in axes(edges=(1 << 15) - 1)


def test_features_are_rounded_where_that_is_allowed_and_a_kernel_does_it():
    assert "storage" not in axes()
    assert axes(lossy=True)["storage"] == ("same", "bfloat16")
    assert "storage" not in axes(lossy=True, op="max")


def test_results_pass_the_caches_where_these_cannot_hold_them_and_rows_are_whole_lines():
    assert axes()["nontemporal"] == (False, True)
    assert "nontemporal" not in axes(width=WIDTH + 1)
    assert "nontemporal" not in axes(nodes=1000), "64 kB of results fit"
