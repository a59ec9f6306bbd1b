"""Bytes of every mapping against formulas in nodes, edges, width, ranks, channels and pods alone."""

import pytest
import torch

from onehop.graph import Graph
from onehop.machines.ndp import load
from onehop.machines.ndp.counts import RankWorkload
from onehop.machines.ndp.mapping import Pods, candidates
from onehop.machines.ndp.traffic import LayerTraffic
from tests.machines.ndp.graphs import circulant, random_graph

NODES, DEGREE, WIDTH = 2048, 32, 256


def traffic(graph, config, name, width=WIDTH, tile=128, broadcast=True, retile="index"):
    workload = RankWorkload(graph, config.topology, config.module.adjacency_entry_bytes, 64, retile=retile)
    return LayerTraffic(config, workload, Pods.of(config.topology, name), width, tile, broadcast)


def table(config, pods, graph, width, broadcast, touched):
    """Bytes in all, as the table has them; a rank's or channel's share is these divided by R or C."""
    nodes, edges = graph.num_dst, graph.num_edges
    topology = config.topology
    ranks, channels, k = topology.ranks, topology.channels, pods.size
    over_host = k > topology.ranks_per_dimm or (k > 1 and not broadcast)
    slice_bytes = 64 * -(-4 * width // (64 * k))
    copies = 1 if broadcast else min(k, topology.ranks_per_channel)
    return {
        "adjacency_useful": 8 * edges,
        "bundle_read": 8 * edges if over_host else 0,
        # 8 E / min(P, C) on each of C channels.
        "bundle_write": 8 * edges * channels // min(ranks // k, channels) * copies if over_host else 0,
        "outputs_read": touched * 4 * width,
        "finals_write": nodes * 4 * width,
        "write_back": nodes * k * slice_bytes,
    }


@pytest.mark.parametrize("broadcast", [True, False])
@pytest.mark.parametrize("machine", ["grande_16", "grande_32", "gnnear"])
def test_bytes_equal_the_table(machine, broadcast):
    config = load(machine)
    graph = circulant(NODES, DEGREE)
    for pods in candidates(config.topology):
        found = traffic(graph, config, pods.name, broadcast=broadcast)
        touched = int(found.counts.touched[pods.size].sum())
        totals = found.totals()
        expected = table(config, pods, graph, WIDTH, broadcast, touched)
        assert {key: totals[key] for key in expected} == expected
        # With as many edges of every pod in every window, lambda is 1.
        if machine == "grande_16":
            k = pods.size
            each = totals["feature_read"] / config.topology.ranks
            reads = int(found.counts.reads.sum())
            assert each == reads / pods.count * 64 * -(-4 * WIDTH // (64 * k))


@pytest.mark.parametrize("width", [1, 3, 17, 63, 100, 256])
def test_bytes_are_conserved(width):
    config, graph = load("grande_32"), random_graph(700, 5000, seed=3)
    for pods in candidates(config.topology):
        found = traffic(graph, config, pods.name, width)
        totals = found.totals()
        assert found.counts.edges.sum() == graph.num_edges
        assert found.pod_edges.sum() == graph.num_edges * pods.size
        assert totals["write_back_useful"] == totals["finals_write"] == 700 * 4 * width
        assert totals["feature_useful"] == int(found.counts.reads.sum()) * 4 * width
        assert totals["feature_read"] >= totals["feature_useful"]
        assert totals["outputs_read"] == int(found.counts.touched[pods.size].sum()) * 4 * width
        assert (found.by_channel(found.final_bytes).sum(axis=1) == found.final_bytes.sum(axis=1)).all()


def test_waste_of_short_slices_is_64_over_the_slice():
    graph = circulant(NODES, DEGREE)
    for width, slice_bytes in ((512, 64), (256, 32), (128, 16), (64, 8)):
        totals = traffic(graph, load("grande_32"), "system", width).totals()
        assert totals["feature_read"] * slice_bytes == totals["feature_useful"] * 64


def test_retiled_adjacency_is_read_row_by_row():
    config, graph = load("grande_16"), random_graph(900, 9000)
    found = traffic(graph, config, "system", retile="rows").totals()
    by_number = traffic(graph, config, "system").totals()
    assert found["adjacency_useful"] == by_number["adjacency_useful"]
    assert found["adjacency_read"] > by_number["adjacency_read"]
    assert found["tile_list_read"] == 900 * 4 * 16


def test_row_pointers_are_a_stream_by_number_and_bursts_of_each_tile_from_a_list():
    graph = random_graph(900, 9000)
    config = load("grande_16")
    windows = -(-900 // traffic(graph, config, "system").shape.window)
    assert windows == 1
    assert traffic(graph, config, "system").totals()["row_pointer_read"] == -(-900 * 4 // 64) * 64 * 16
    listed = traffic(graph, config, "system", retile="rows")
    order = listed.workload.order.tolist()
    # Sixteen pointers a burst; the end of a row is the begin of the next one.
    tiles = [
        {(node + end) // 16 for node in order[at : at + 128] for end in (0, 1)} for at in range(0, 900, 128)
    ]
    assert listed.totals()["row_pointer_read"] == sum(map(len, tiles)) * 64 * 16
    assert sum(map(len, tiles)) < 900
    for retile in ("rows", "index"):
        free = config.change(module={"row_pointer_bytes": 0})
        assert traffic(graph, free, "system", retile=retile).totals()["row_pointer_read"] == 0


def test_bipartite_graphs_write_their_destinations():
    config = load("grande_16")
    graph = random_graph(90, 800, num_src=300)
    totals = traffic(graph, config, "channel").totals()
    assert totals["finals_write"] == 90 * 4 * WIDTH


def test_a_graph_without_edges_moves_pointers_and_finals_alone():
    graph = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.long), num_nodes=40)
    totals = traffic(graph, load("grande_16"), "system").totals()
    assert {key for key, count in totals.items() if count} == {
        "row_pointer_read",
        "finals_write",
        "write_back",
        "write_back_useful",
    }
