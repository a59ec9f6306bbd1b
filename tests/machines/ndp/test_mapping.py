import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from onehop import reference
from onehop.errors import ArgumentError, ConfigurationError
from onehop.graph import Graph
from onehop.machines.ndp import Topology, functional
from onehop.machines.ndp.counts import RankWorkload
from onehop.machines.ndp.mapping import Pods, candidates, owners
from onehop.plans.ndp import PODS
from tests.machines.ndp.graphs import hostile
from tests.ops.hostile_graphs import HOSTILE

TOPOLOGIES = [
    Topology(4, 2, 2),
    Topology(8, 2, 2),
    Topology(1, 1, 2),
    Topology(2, 1, 1),
    Topology(4, 2, 2, 0),
]


def aggregated(graph, topology, name, x, weight=None):
    workload = RankWorkload(graph, topology, 8, 64, retile="index")
    return functional.aggregate(workload, Pods.of(topology, name), x, weight)


@pytest.mark.parametrize("name", PODS)
@pytest.mark.parametrize("width", [1, 3, 17, 63, 256])
def test_slices_cut_every_vector_once(name, width):
    pods = Pods.of(Topology(4, 2, 2), name)
    slices = pods.slices(width)
    assert slices[0] == 0
    assert slices[-1] == width
    assert np.ptp(np.diff(slices)) <= 1
    assert len(slices) == pods.size + 1
    # The bursts of the widest slice are those of the table: 64 ceil(4d / 64k) bytes.
    assert pods.slice_bursts(width, 64).max() == -(-4 * width // (64 * pods.size))


def test_candidates_differ_in_size():
    assert [pods.name for pods in candidates(Topology(4, 2, 2))] == [
        "rank",
        "dimm",
        "channel",
        "2-channel",
        "system",
    ]
    assert [pods.name for pods in candidates(Topology(8, 2, 2))] == list(PODS)
    assert [pods.name for pods in candidates(Topology(1, 1, 1))] == ["rank"]


def test_every_node_has_one_rank():
    dealt = owners(Topology(4, 2, 2), 1000)
    assert np.bincount(dealt).tolist() == [63] * 8 + [62] * 8
    parts = owners(Topology(4, 2, 2, node_block=0), 1000)
    assert (np.diff(parts.astype(int)) >= 0).all()
    assert np.bincount(parts).max() == 63
    blocks = owners(Topology(4, 2, 2, node_block=32), 1024)
    assert (blocks[:32] == 0).all()
    assert blocks[32] == 1


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=str)
@pytest.mark.parametrize("case", HOSTILE)
def test_results_on_hostile_graphs(case, topology):
    graph = hostile(case)
    x = torch.randn(graph.num_src, 17, generator=torch.Generator().manual_seed(1))
    expected = reference.aggregate(graph.edge_index(), x.double(), graph.num_dst)
    allowed = reference.aggregate(graph.edge_index(), x.abs().double(), graph.num_dst)
    for pods in candidates(topology):
        got = aggregated(graph, topology, pods.name, x)
        assert ((got - expected).abs() <= 1e-5 * allowed).all()


@settings(max_examples=40)
@given(
    nodes=st.integers(1, 60),
    edges=st.integers(0, 300),
    width=st.sampled_from([1, 3, 17, 63]),
    topology=st.sampled_from(TOPOLOGIES),
    seed=st.integers(0, 1000),
)
def test_results_equal_the_reference(nodes, edges, width, topology, seed):
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, nodes, (2, edges), generator=generator)
    graph = Graph.from_edge_index(edge_index, num_nodes=nodes)
    # Small integers: every sum is exact, in any order.
    x = torch.randint(-8, 9, (nodes, width), generator=generator).float()
    weight = torch.randint(-3, 4, (edges,), generator=generator).float()
    expected = reference.aggregate(edge_index, x, nodes, weight)
    for pods in candidates(topology):
        assert torch.equal(aggregated(graph, topology, pods.name, x, weight), expected)


def test_nan_reaches_its_targets_alone():
    graph = Graph.from_edge_index(torch.tensor([[0, 1, 2], [1, 1, 0]]), num_nodes=3)
    x = torch.tensor([[float("nan")], [1.0], [2.0]])
    for pods in candidates(Topology(4, 2, 2)):
        out = aggregated(graph, Topology(4, 2, 2), pods.name, x)
        assert out[1].isnan().all()
        assert out[[0, 2]].flatten().tolist() == [2.0, 0.0]


def test_rows_and_columns_can_be_chosen():
    graph, topology = hostile("random"), Topology(4, 2, 2)
    x = torch.randn(graph.num_src, 40, generator=torch.Generator().manual_seed(2))
    workload, pods = RankWorkload(graph, topology, 8, 64, retile="index"), Pods.of(topology, "channel")
    whole = functional.aggregate(workload, pods, x)
    rows = np.array([3, 0, 17])
    part = functional.aggregate(workload, pods, x[:, 5:30], rows=rows, columns=(5, 30), width=40)
    assert torch.equal(part, whole[rows][:, 5:30])


def test_features_need_not_be_contiguous():
    graph = hostile("random")
    x = torch.randn(17, graph.num_src, generator=torch.Generator().manual_seed(3)).t()
    got = aggregated(graph, Topology(4, 2, 2), "dimm", x)
    assert torch.equal(got, aggregated(graph, Topology(4, 2, 2), "dimm", x.contiguous()))


@pytest.mark.parametrize("threads_used", [1, 2])
def test_results_do_not_depend_on_threads(threads_used):
    graph = hostile("one_hub")
    x = torch.randn(graph.num_src, 33, generator=torch.Generator().manual_seed(4))
    torch.set_num_threads(1)
    expected = aggregated(graph, Topology(4, 2, 2), "2-channel", x)
    torch.set_num_threads(threads_used)
    assert torch.equal(aggregated(graph, Topology(4, 2, 2), "2-channel", x), expected)


def test_ranks_that_do_not_divide_into_pods_and_unknown_mappings_are_refused():
    with pytest.raises(ConfigurationError, match="3 channels cannot be divided into pods of 2"):
        Pods.of(Topology(3, 2, 2), "2-channel")
    with pytest.raises(ArgumentError, match="bank"):
        Pods.of(Topology(4, 2, 2), "bank")
