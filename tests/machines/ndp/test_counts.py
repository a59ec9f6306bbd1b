import numpy as np
import pytest
import torch

from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.machines.ndp import Topology
from onehop.machines.ndp.counts import RankWorkload, TargetGroups, pods_rows, pods_touched
from onehop.machines.ndp.mapping import Pods, candidates, owners
from tests.machines.ndp.graphs import random_graph
from tests.machines.ndp.naive_order import naive_order, sources
from tests.ops.hostile_graphs import HOSTILE

TOPOLOGY = Topology(4, 2, 2)


def graph_of(case):
    edge_index, num_src, num_dst = HOSTILE[case]
    return Graph.from_edge_index(edge_index, size=(num_src, num_dst))


def naive_counts(graph, topology, order, tile, window):
    """Edges, reads and bursts by window and rank."""
    owner, windows = owners(topology, graph.num_src), -(-graph.num_dst // window)
    edges, reads, bursts = (np.zeros((windows, topology.ranks), dtype=int) for _ in range(3))
    for first in range(0, len(order), tile):
        seen = set()
        for target in order[first : first + tile]:
            mine = np.zeros(topology.ranks, dtype=int)
            for source in sources(graph, target):
                mine[owner[source]] += 1
                if source not in seen:
                    seen.add(source)
                    reads[first // window, owner[source]] += 1
            edges[first // window] += mine
            bursts[first // window] += -(-mine * 8 // 64)
    return edges, reads, bursts


@pytest.mark.parametrize("retile", ["index", "rows", "ranks", "round_robin"])
@pytest.mark.parametrize("case", ["random", "empty_rows", "one_hub", "multi_edges", "self_loops"])
def test_counts_equal_the_naive_ones(case, retile):
    graph = graph_of(case)
    if graph.num_src != graph.num_dst:
        graph = random_graph(50, 40, seed=5)
    workload = RankWorkload(graph, TOPOLOGY, 8, 64, retile=retile, batch=7)
    order = naive_order(graph, TOPOLOGY, retile, 7) if retile != "index" else list(range(graph.num_dst))
    if retile != "index":
        assert workload.order.tolist() == order
    counts = workload.counts(TargetGroups(tile=4, block=8, window=16))
    edges, reads, bursts = naive_counts(graph, TOPOLOGY, order, 4, 16)
    assert np.array_equal(counts.edges, edges)
    assert np.array_equal(counts.reads, reads)
    assert np.array_equal(counts.row_bursts, bursts)


def test_reads_without_tiles_are_the_edges():
    workload = RankWorkload(graph_of("multi_edges"), TOPOLOGY, 8, 64, retile="none")
    counts = workload.counts(TargetGroups(4, 8, 8))
    assert np.array_equal(counts.reads, counts.edges)


@pytest.mark.parametrize("case", HOSTILE)
def test_touched_rows_are_those_with_an_edge_in_the_pod(case):
    graph = graph_of(case)
    counts = RankWorkload(graph, TOPOLOGY, 8, 64, retile="index").counts(TargetGroups(4, 8, 8))
    owner = owners(TOPOLOGY, graph.num_src)
    for pods in candidates(TOPOLOGY):
        expected = np.zeros((-(-graph.num_dst // 8), TOPOLOGY.ranks), dtype=int)
        for target in range(graph.num_dst):
            for pod in {owner[source] // pods.size for source in sources(graph, target)}:
                expected[target // 8, pod * pods.size : (pod + 1) * pods.size] += 1
        assert np.array_equal(pods_touched(counts, pods), expected)


@pytest.mark.parametrize("retile", ["index", "rows"])
def test_every_target_has_its_final_vector_in_one_pod(retile):
    graph = random_graph(77, 300)
    counts = RankWorkload(graph, TOPOLOGY, 8, 64, retile=retile).counts(TargetGroups(4, 8, 16))
    for pods in candidates(TOPOLOGY):
        assert pods_rows(counts, pods).sum() == 77 * pods.size
    assert counts.rows.sum() == 77


def test_every_order_has_every_node_once():
    graph = random_graph(500, 900)
    for retile in ("rows", "ranks", "round_robin"):
        order = RankWorkload(graph, TOPOLOGY, 8, 64, retile=retile, batch=64).order
        assert np.array_equal(np.sort(order), np.arange(500))


def test_batches_of_one_node_are_in_the_order_in_which_nodes_are_met():
    graph = random_graph(300, 900)
    met = dict.fromkeys(graph.col.tolist())
    expected = [*met, *(node for node in range(300) if node not in met)]
    for retile in ("ranks", "round_robin"):
        assert RankWorkload(graph, TOPOLOGY, 8, 64, retile=retile, batch=1).order.tolist() == expected


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


def test_index_order_saves_what_chance_lets_it():
    # 1 - sum over nodes of (N / T) (1 - (1 - d / N)^T) / E, for sources drawn evenly.
    nodes, edges, tile = 2048, 40_960, 128
    graph = random_graph(nodes, edges)
    degree = graph.out_degrees.numpy()
    expected = 1 - (nodes / tile * (1 - (1 - degree / nodes) ** tile)).sum() / edges
    found = RankWorkload(graph, TOPOLOGY, 8, 64, retile="index").read_reduction_percent(tile)
    assert found == pytest.approx(100 * expected, abs=1.0)


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
