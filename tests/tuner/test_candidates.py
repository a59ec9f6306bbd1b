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


def graph(hubs: int, share: float) -> Graph:
    """A graph whose first ``hubs`` sources have this share of the edges, and the rest the same few each."""
    generator = torch.Generator().manual_seed(0)
    edges = 20 * NODES
    hub_edges = int(share * edges)
    source = torch.cat(
        [
            torch.arange(hub_edges) % hubs,
            hubs + torch.arange(edges - hub_edges) % (NODES - hubs),
        ]
    )
    target = torch.randint(0, NODES, (edges,), generator=generator)
    return Graph.from_edge_index(torch.stack([source, target]), num_nodes=NODES)


def hub_counts(of: Graph, width: int = WIDTH, dtype: torch.dtype = torch.float32, turned: bool = False):
    operation = operations("aggregate", "sum", True)[turned]
    return candidates.axes(of, operation, width, dtype, 2, 64, False).get("hub_cache")


def test_hubs_are_tried_where_few_sources_answer_most_reads():
    assert hub_counts(graph(200, 0.7)) == (0, 256, 512)
    assert hub_counts(graph(400, 0.7)) == (0, 512), "half of the second cache would hold too few of them"
    assert hub_counts(graph(200, 0.3)) is None
    assert hub_counts(graph(3900, 0.7)) is None


def test_hubs_are_those_that_a_direction_reads():
    assert hub_counts(graph(200, 0.7).transpose()) is None
    assert hub_counts(graph(200, 0.7).transpose(), turned=True) == (0, 256, 512)


def test_hubs_are_left_where_the_caches_hold_all_or_no_kernel_knows_them():
    assert hub_counts(graph(200, 0.7), width=8) is None, "128 kB of features fit"
    assert hub_counts(graph(200, 0.7), dtype=torch.float64) is None
