import numpy as np
import pytest
import torch

from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.machines.ndp import Topology
from onehop.machines.ndp.counts import RankWorkload, TargetGroups, pods_touched
from onehop.machines.ndp.mapping import Pods, candidates, owners
from tests.machines.ndp.graphs import hostile, random_graph
from tests.machines.ndp.naive_order import naive_counts, naive_order
from tests.ops.hostile_graphs import HOSTILE
from tests.pairs import pairwise

TOPOLOGY = Topology(4, 2, 2)


@pairwise(
    retile=["index", "rows", "ranks", "round_robin"],
    case=["random", "empty_rows", "one_hub", "multi_edges", "self_loops"],
    batch=[1, 7],
)
def test_counts_equal_the_naive_ones(case, retile, batch):
    graph = hostile(case)
    if graph.num_src != graph.num_dst:
        graph = random_graph(50, 40, seed=5)
    workload = RankWorkload(graph, TOPOLOGY, 8, 64, retile=retile, batch=batch)
    order = naive_order(graph, TOPOLOGY, retile, batch) if retile != "index" else list(range(graph.num_dst))
    if retile != "index":
        assert workload.order.tolist() == order
    counts = workload.counts(TargetGroups(tile=4, block=8, window=16))
    owner = owners(TOPOLOGY, graph.num_src)
    edges, reads, bursts, _ = naive_counts(graph, 16, order, lambda source, _: owner[source], 4, 16)
    assert np.array_equal(counts.edges, edges)
    assert np.array_equal(counts.reads, reads)
    assert np.array_equal(counts.row_bursts, bursts)


@pytest.mark.parametrize("case", HOSTILE)
def test_touched_rows_are_those_with_an_edge_in_the_pod(case):
    graph = hostile(case)
    counts = RankWorkload(graph, TOPOLOGY, 8, 64, retile="index").counts(TargetGroups(4, 8, 8))
    owner = owners(TOPOLOGY, graph.num_src)
    for pods in candidates(TOPOLOGY):
        pod_of = (owner // pods.size).tolist()
        order = range(graph.num_dst)
        *_, touched = naive_counts(graph, pods.count, order, lambda source, _, of=pod_of: of[source], 4, 8)
        assert np.array_equal(pods_touched(counts, pods), np.repeat(touched, pods.size, axis=1))


@pytest.mark.parametrize("batch", [1, 7, 128, 500, 10**9])
@pytest.mark.parametrize("retile", ["rows", "ranks"])
def test_units_scan_every_row_once(retile, batch):
    graph = random_graph(500, 900)
    workload = RankWorkload(graph, TOPOLOGY, 8, 64, retile=retile, batch=batch)
    found = workload.scanned(batch)
    assert [len(each) for each in found] == [-(-500 // batch)] * 3
    assert found.rows.sum() == 500
    assert np.array_equal(found.edges.sum(axis=0), workload.edges_of_rank)
    assert found.nodes.sum(axis=1).tolist() == [min(batch, 500 - first) for first in range(0, 500, batch)]


def test_retiling_finds_groups_that_index_order_does_not():
    # 64 groups of 16 nodes, all joined; numbers are shuffled.
    number = torch.randperm(1024, generator=torch.Generator().manual_seed(0)).view(64, 16)
    edge_index = torch.cat([torch.cartesian_prod(group, group).t() for group in number], dim=1)
    graph = Graph.from_edge_index(edge_index, num_nodes=1024)
    assert RankWorkload(graph, TOPOLOGY, 8, 64, retile="rows").read_reduction_percent(16) == pytest.approx(
        100 * 15 / 16
    )
    assert RankWorkload(graph, TOPOLOGY, 8, 64, retile="index").read_reduction_percent(16) < 40


def test_counts_do_not_depend_on_threads():
    graph, shape = random_graph(5000, 50_000), TargetGroups(8, 128, 128)
    torch.set_num_threads(1)
    one = RankWorkload(graph, TOPOLOGY, 8, 64, retile="rows").counts(shape)
    torch.set_num_threads(2)
    two = RankWorkload(graph, TOPOLOGY, 8, 64, retile="rows").counts(shape)
    assert np.array_equal(one.reads, two.reads)
    assert all(np.array_equal(one.touched[size], two.touched[size]) for size in one.touched)


def test_a_cache_of_everything_misses_each_source_once():
    graph = random_graph(64, 2000)
    workload = RankWorkload(graph, TOPOLOGY, 8, 64, retile="index")
    assert workload.cache_misses(64, 64) == len(graph.col.unique())
    assert workload.cache_misses(16, 16) > 1000


@pytest.mark.parametrize(
    ("buffer", "slice_bytes", "tile", "shape"),
    [
        (131072, 1024, 128, (128, 128, 128)),
        (131072, 64, 128, (128, 128, 2048)),
        (131072, 28, 128, (128, 128, 4608)),
        (8192, 1024, 128, (8, 8, 8)),
        (131072, 1024, 48, (48, 96, 96)),
        (100, 100, 4, (1, 1, 1)),
    ],
)
def test_windows_are_whole_blocks_of_whole_tiles(buffer, slice_bytes, tile, shape):
    found = TargetGroups.of(buffer, slice_bytes, tile)
    assert (found.tile, found.block, found.window) == shape


def test_a_block_has_at_most_128_targets_or_one_tile():
    # Three tiles of 43 would be 129.
    assert TargetGroups.of(131072, 64, 43) == TargetGroups(43, 86, 1978)
    assert TargetGroups.of(131072, 64, 32) == TargetGroups(32, 128, 2048)
    assert TargetGroups.of(131072, 64, 200) == TargetGroups(200, 200, 2000)


def test_a_buffer_that_holds_no_slice_is_refused():
    with pytest.raises(ArgumentError, match="cannot hold one output slice of 1024 bytes"):
        TargetGroups.of(1000, 1024, 4)


def test_retiling_a_bipartite_graph_is_refused():
    with pytest.raises(ArgumentError, match="retile='index'"):
        RankWorkload(random_graph(5, 9, num_src=7), TOPOLOGY, 8, 64, retile="rows")


def test_pods_of_other_sizes_are_not_counted():
    assert set(
        RankWorkload(random_graph(9, 9), TOPOLOGY, 8, 64, retile="index")
        .counts(TargetGroups(4, 8, 8))
        .touched
    ) == {Pods.of(TOPOLOGY, name).size for name in ("rank", "dimm", "channel", "2-channel", "system")}


def test_a_graph_without_edges_saves_no_reads():
    graph = random_graph(40, 0)
    assert RankWorkload(graph, TOPOLOGY, 8, 64, retile="index").read_reduction_percent(8) == 0.0
