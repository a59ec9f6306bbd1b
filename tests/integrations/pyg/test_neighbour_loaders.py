"""PyG's loaders of neighbours under the patch, whose batches onehop draws."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkNeighborLoader, NeighborLoader
from torch_geometric.nn import SAGEConv
from torch_geometric.sampler import NegativeSampling, NeighborSampler, NodeSamplerInput

import onehop
from onehop.graph import Graph
from onehop.integrations.pyg.edges.kept import graph_of
from tests.integrations.pyg.loader_graphs import (
    NODES,
    check_edges,
    check_edges_in_trees,
    check_types,
    contents,
    data as data,
    hetero as hetero,
    patched as patched,
)

pytestmark = pytest.mark.usefixtures("patched")


def test_edges_are_those_of_the_graph(data: Data) -> None:
    loader = NeighborLoader(data, [4, 3], batch_size=32)
    seen = []
    for batch in loader:
        check_edges(data, batch)
        seen += batch.n_id[: batch.batch_size].tolist()
        assert batch.n_id.unique().numel() == batch.num_nodes
        assert len(batch.num_sampled_nodes) == 3
        assert sum(batch.num_sampled_nodes) == batch.num_nodes
        assert sum(batch.num_sampled_edges) == batch.num_edges
        degree = torch.bincount(batch.edge_index[1], minlength=batch.num_nodes)
        whole = torch.bincount(data.edge_index[1], minlength=NODES)[batch.n_id]
        assert torch.equal(degree[: batch.batch_size], whole[: batch.batch_size].clamp(max=4))
        last = sum(batch.num_sampled_nodes[:2])
        assert torch.equal(degree[batch.batch_size : last], whole[batch.batch_size : last].clamp(max=3))
        assert not degree[last:].any()
        assert torch.equal(batch.edge_index[1], batch.edge_index[1].sort().values)
    assert seen == list(range(NODES))


def test_all_neighbours_give_the_layer_of_the_whole_graph(data: Data) -> None:
    torch.manual_seed(0)
    conv, again = SAGEConv(1, 4).double(), SAGEConv(4, 3).double()
    whole = again(conv(data.x.double(), data.edge_index), data.edge_index)
    for batch in NeighborLoader(data, [-1, -1], batch_size=50):
        out = again(conv(batch.x.double(), batch.edge_index), batch.edge_index)
        torch.testing.assert_close(out[: batch.batch_size], whole[batch.n_id[: batch.batch_size]])


def test_no_layer_makes_a_graph(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = list(NeighborLoader(data, [4, 3], batch_size=64))
    expected = [Graph.from_edge_index(batch.edge_index, num_nodes=batch.num_nodes) for batch in batches]

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a layer made a graph")

    monkeypatch.setattr(Graph, "from_edge_index", refuse)
    conv = SAGEConv(1, 4)
    for batch, graph in zip(batches, expected, strict=True):
        conv(batch.x, batch.edge_index).sum().backward()
        found = graph_of(batch.edge_index, batch.num_nodes, batch.num_nodes, forwards=True)
        assert found is not None
        assert torch.equal(found.rowptr, graph.rowptr)
        assert torch.equal(found.col, graph.col)


def test_a_graph_of_edges_that_were_written_to_is_not_found(data: Data) -> None:
    batch = next(iter(NeighborLoader(data, [4], batch_size=64)))
    batch.edge_index[0] = 0
    found = graph_of(batch.edge_index, batch.num_nodes, batch.num_nodes, forwards=True)
    assert found is not None
    assert not found.col.any()


def epochs(data: Any, count: int, **arguments: Any) -> list[Any]:
    torch.manual_seed(5)
    loader = NeighborLoader(data, batch_size=64, shuffle=True, **{"num_neighbors": [4, 3]} | arguments)
    return [[contents(batch) for batch in loader] for _ in range(count)]


def test_workers_draw_the_same(data: Data) -> None:
    alone = epochs(data, 2)
    assert alone[0] != alone[1]
    assert epochs(data, 2) == alone
    assert epochs(data, 2, num_workers=1) == alone
    assert epochs(data, 2, num_workers=2) == alone
    assert epochs(data, 1, num_workers=1, multiprocessing_context="spawn") == alone[:1]


def test_a_copied_sampler_patches_nothing(data: Data) -> None:
    loader = NeighborLoader(data, [4], batch_size=100)
    list(loader)
    text = pickle.dumps(loader.node_sampler)
    onehop.unpatch()
    pickle.loads(text)
    copy.deepcopy(loader.node_sampler)
    assert onehop.patched() == ()


def test_batches_of_the_same_seeds_differ(data: Data) -> None:
    def two_epochs(**arguments: Any) -> list[Any]:
        loader = NeighborLoader(data, [4], batch_size=100, **arguments)
        return [[contents(batch) for batch in loader] for _ in range(2)]

    for arguments in ({}, {"num_workers": 1, "persistent_workers": True}):
        first, second = two_epochs(**arguments)
        assert first != second
    loader = NeighborLoader(data, [4], batch_size=100)
    list(loader)
    assert contents(loader([0, 1, 2])) != contents(loader([0, 1, 2]))


def test_a_sampler_alone_follows_torchs_seed(data: Data) -> None:
    sampler = NeighborSampler(data, [4, 2])
    seeds = NodeSamplerInput(None, torch.arange(50))

    def drawn() -> list[Any]:
        return [sampler.sample_from_nodes(seeds).edge.tolist() for _ in range(2)]

    torch.manual_seed(1)
    first = drawn()
    torch.manual_seed(1)
    assert drawn() == first
    assert first[0] != first[1]


@pytest.mark.parametrize("negatives", [None, "binary"])
def test_batches_of_edges_do_not_depend_on_workers(data: Data, negatives: str | None) -> None:
    # So many that the ends of each batch are all nodes.
    def links(**arguments: Any) -> list[Any]:
        torch.manual_seed(3)
        loader = LinkNeighborLoader(
            data, [3], neg_sampling=negatives, batch_size=500, shuffle=True, **arguments
        )
        found = [(*contents(batch), batch.edge_label_index.tolist()) for batch in loader]
        return [found, torch.rand(3).tolist()]

    alone = links()
    assert links(num_workers=2) == alone


def test_links(data: Data) -> None:
    labels = data.edge_index[:, :90]
    for batch in LinkNeighborLoader(data, [3, 3], labels, batch_size=30, neg_sampling="binary"):
        check_edges(data, batch)
        assert batch.edge_label.tolist() == [1.0] * 30 + [0.0] * 30
        assert torch.equal(batch.n_id[batch.edge_label_index[:, :30]], labels[:, batch.input_id])
    triplets = NegativeSampling("triplet", 2)
    for disjoint in (False, True):
        for batch in LinkNeighborLoader(
            data, [3], labels, batch_size=30, neg_sampling=triplets, disjoint=disjoint
        ):
            check_edges_in_trees(data, batch) if disjoint else check_edges(data, batch)
            assert batch.dst_neg_index.shape == (30, 2)
            assert torch.equal(batch.n_id[batch.src_index], labels[0, batch.input_id])
            assert torch.equal(batch.n_id[batch.dst_pos_index], labels[1, batch.input_id])


def test_disjoint_trees(data: Data) -> None:
    batch = next(iter(NeighborLoader(data, [4, 3], batch_size=20, disjoint=True)))
    check_edges_in_trees(data, batch)
    assert batch.batch[:20].tolist() == list(range(20))
    pairs = batch.batch * NODES + batch.n_id
    assert pairs.unique().numel() == batch.num_nodes


@pytest.mark.parametrize("strategy", ["uniform", "last"])
@pytest.mark.parametrize("time_attr", ["edge_time", "node_time"])
def test_no_neighbour_is_later_than_the_seed(data: Data, time_attr: str, strategy: str) -> None:
    input_time = torch.randint(2, 8, (NODES,))
    loader = NeighborLoader(
        data, [3, 2], time_attr=time_attr, input_time=input_time, temporal_strategy=strategy, batch_size=40
    )
    for batch in loader:
        check_edges_in_trees(data, batch)
        of_edge = data.edge_time if time_attr == "edge_time" else data.node_time[data.edge_index[0]]
        bound = batch.seed_time[batch.batch[batch.edge_index[1]]]
        assert (of_edge[batch.e_id] <= bound).all()
        for seed in range(batch.batch_size):
            drawn = of_edge[batch.e_id[batch.edge_index[1] == seed]]
            allowed = of_edge[data.edge_index[1] == batch.n_id[seed]]
            allowed = allowed[allowed <= batch.seed_time[seed]].sort(descending=True).values
            assert len(drawn) == min(len(allowed), 3)
            if strategy == "last":
                assert torch.equal(drawn.sort(descending=True).values, allowed[:3])


def test_weights(data: Data) -> None:
    data.weight[data.edge_index[0] % 2 == 0] = 0
    kept = torch.bincount(data.edge_index[1][data.weight > 0], minlength=NODES)
    for batch in NeighborLoader(data, [2], weight_attr="weight", batch_size=64):
        check_edges(data, batch)
        odd = torch.bincount(batch.edge_index[1][batch.weight > 0], minlength=batch.num_nodes)
        assert (odd[: batch.batch_size] >= kept[batch.n_id[: batch.batch_size]].clamp(max=2)).all()


def test_subgraph_types(data: Data) -> None:
    for batch in NeighborLoader(data, [2, 2], subgraph_type="induced", batch_size=20):
        check_edges(data, batch)
        inside = torch.isin(data.edge_index, batch.n_id).all(dim=0)
        assert sorted(batch.e_id.tolist()) == inside.nonzero().view(-1).tolist()
    for batch in NeighborLoader(data, [2, 2], subgraph_type="bidirectional", batch_size=20):
        pairs = set(zip(*batch.edge_index.tolist(), strict=True))
        assert pairs == {(b, a) for a, b in pairs}


@pytest.mark.parametrize("subgraph_type", ["directional", "induced"])
def test_several_types(hetero: HeteroData, subgraph_type: str) -> None:
    loader = NeighborLoader(
        hetero,
        {kind: [3, 2] if kind[1] != "cites" else [1, 0] for kind in hetero.edge_types},
        input_nodes=("paper", torch.arange(40)),
        batch_size=20,
        subgraph_type=subgraph_type,
    )
    for batch in loader:
        check_types(hetero, batch)
        for kind in hetero.edge_types:
            size = (batch[kind[0]].num_nodes, batch[kind[-1]].num_nodes)
            found = graph_of(batch[kind].edge_index, *size, forwards=True)
            made = Graph.from_edge_index(batch[kind].edge_index, size=size)
            assert found is not None
            assert torch.equal(found.rowptr, made.rowptr)
            assert torch.equal(found.col, made.col)
        if subgraph_type == "directional":
            cites = batch["cites"].edge_index[1]
            assert torch.bincount(cites, minlength=1).max() == 1
            assert sum(batch["paper"].num_sampled_nodes) == batch["paper"].num_nodes
            assert sum(batch["cites"].num_sampled_edges) == cites.numel()
            assert batch["cites"].num_sampled_edges[1] == 0


def test_workers_draw_the_same_of_several_types(hetero: HeteroData) -> None:
    alone = epochs(hetero, 1, input_nodes="paper")
    assert epochs(hetero, 1, input_nodes="paper", num_workers=2) == alone


def test_narrow_edges_stay_narrow(data: Data) -> None:
    data.edge_index = data.edge_index.int()
    batch = next(iter(NeighborLoader(data, [3], batch_size=10)))
    assert batch.edge_index.dtype == torch.int32
    check_edges(data, batch)


def test_arguments_of_a_sampler_may_be_set_later(data: Data) -> None:
    sampler = NeighborSampler(data, [1])
    seeds = NodeSamplerInput(None, torch.arange(50))
    few = sampler.sample_from_nodes(seeds)
    sampler.num_neighbors = [-1]
    many = sampler.sample_from_nodes(seeds)
    assert few.edge.numel() == (torch.bincount(data.edge_index[1], minlength=NODES)[:50] > 0).sum()
    assert many.edge.numel() == (data.edge_index[1] < 50).sum()


def test_refusals(data: Data) -> None:
    with pytest.raises(onehop.IndexRangeError, match=r"node 200, seed 0, is not in \[0, 200\)"):
        next(iter(NeighborLoader(data, [3], input_nodes=torch.tensor([NODES]))))
    both = NeighborSampler(data, [3], weight_attr="weight", time_attr="edge_time")
    times = NodeSamplerInput(None, torch.arange(3), torch.zeros(3, dtype=torch.int64))
    with pytest.raises(onehop.ArgumentError, match=r"weight_attr, time_attr: .* give one of them"):
        both.sample_from_nodes(times)
    with pytest.raises(onehop.ArgumentError, match="later than the seeds"):
        NeighborSampler(data, [3], time_attr="edge_time", subgraph_type="induced").sample_from_nodes(times)
    data.weight[3] = -1
    with pytest.raises(onehop.ArgumentError, match="weight_attr: expected weights that are zero or more"):
        next(iter(NeighborLoader(data, [3], weight_attr="weight")))
    data.edge_index[0, 5] = NODES
    with pytest.raises(onehop.IndexRangeError, match=r"source 200 of edge \d+ is not in \[0, 200\)"):
        list(NeighborLoader(data, [-1], batch_size=NODES))
