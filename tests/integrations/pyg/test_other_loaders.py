"""Loaders besides those of neighbours under the patch, without torch-sparse and METIS."""

import itertools
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import (
    ClusterData,
    ClusterLoader,
    GraphSAINTEdgeSampler,
    GraphSAINTNodeSampler,
    GraphSAINTRandomWalkSampler,
    HGTLoader,
    ShaDowKHopSampler,
    graph_saint,
)
from torch_geometric.sampler import hgt_sampler

import onehop
from onehop.integrations.pyg.loaders.saint import Adjacency
from onehop.loaders.layerwise import LayerwiseEngine
from onehop.loaders.relation import Relation
from tests.integrations.pyg.loader_graphs import (
    NODES,
    check_types,
    data as data,
    hetero as hetero,
    patched as patched,
)


def check_layers(data: HeteroData, batch: HeteroData) -> None:
    check_types(data, batch)
    for kind in data.edge_types:
        n_id = [batch[end].n_id for end in (kind[0], kind[-1])]
        whole = data[kind].edge_index
        inside = torch.isin(whole[0], n_id[0]) & torch.isin(whole[1], n_id[1])
        if not (kind[1] == "cites" and (n_id[1] == 0).any()):
            assert sorted(batch[kind].e_id.tolist()) == inside.nonzero().view(-1).tolist()


@pytest.mark.usefixtures("patched")
def test_layers_of_nodes(hetero: HeteroData) -> None:
    loader = HGTLoader(
        hetero,
        {"author": [5, 4], "paper": [7, 6]},
        batch_size=10,
        input_nodes=("paper", torch.arange(1, 41)),
    )
    for number, batch in enumerate(loader):
        assert batch["paper"].n_id[:10].tolist() == list(range(10 * number + 1, 10 * number + 11))
        assert batch["paper"].num_nodes == 10 + 7 + 6
        assert batch["author"].num_nodes == 5 + 4
        for kind in hetero.node_types:
            assert batch[kind].n_id.unique().numel() == batch[kind].num_nodes
        check_layers(hetero, batch)


@pytest.mark.usefixtures("patched")
def test_layers_do_not_depend_on_workers(hetero: HeteroData) -> None:
    def drawn(workers: int) -> list[Any]:
        torch.manual_seed(1)
        loader = HGTLoader(
            hetero, [4, 4], batch_size=25, input_nodes="paper", shuffle=True, num_workers=workers
        )
        return [
            [batch["author"].n_id.tolist(), batch["cites"].e_id.tolist()]
            for _ in range(2)
            for batch in loader
        ]

    alone = drawn(0)
    assert drawn(2) == alone


def wheel(scores: list[int]) -> LayerwiseEngine:
    """Node 0 has that many edges from each of the others."""
    col = torch.repeat_interleave(torch.arange(1, len(scores) + 1), torch.tensor(scores))
    rowptr = torch.tensor([0] + [col.numel()] * (len(scores) + 1))
    return LayerwiseEngine([len(scores) + 1], [Relation("edges", rowptr, col, 0, 0, ())])


def test_another_default_device() -> None:
    seeds = [torch.tensor([0])]
    engine = wheel([1, 2, 3])
    expected = engine.draw(seeds, [[1, 1]], 3)
    with torch.device("meta"):
        found = engine.draw(seeds, [[1, 1]], 3)
    assert torch.equal(found.nodes[0], expected.nodes[0])
    assert torch.equal(found.edges[0], expected.edges[0])


def test_nodes_of_a_layer_are_drawn_by_the_squares_of_their_scores() -> None:
    engine, times = wheel([1, 2, 3]), 3000
    drawn = [int(engine.draw([torch.tensor([0])], [[1]], key).nodes[0][1]) for key in range(times)]
    for node, share in ((1, 1 / 14), (2, 4 / 14), (3, 9 / 14)):
        assert abs(drawn.count(node) - times * share) < 5 * (times * share * (1 - share)) ** 0.5


def test_layers_end_where_there_is_nothing_left() -> None:
    engine = pickle.loads(pickle.dumps(wheel([1, 1])))
    batch = engine.draw([torch.tensor([0])], [[5, 5]], 3)
    assert batch.nodes[0].tolist() == [0, 1, 2]
    assert batch.edges[0].tolist() == [0, 1]
    nothing = engine.draw([None], [[2]], 3)
    assert nothing.nodes[0].numel() == nothing.edges[0].numel() == 0


@pytest.mark.usefixtures("patched")
def test_clusters(data: Data) -> None:
    clusters = ClusterData(data, num_parts=6, log=False)
    seen = []
    for batch in ClusterLoader(clusters, batch_size=2):
        nodes = batch.x.view(-1).long()
        inside = torch.isin(data.edge_index, nodes).all(dim=0)
        assert sorted(batch.edge_attr.tolist()) == inside.nonzero().view(-1).tolist()
        assert torch.equal(nodes[batch.edge_index], data.edge_index[:, batch.edge_attr])
        seen += nodes.tolist()
    assert sorted(seen) == list(range(NODES))


SAINTS = {
    "nodes": lambda data: GraphSAINTNodeSampler(
        data, batch_size=30, num_steps=3, sample_coverage=5, log=False
    ),
    "edges": lambda data: GraphSAINTEdgeSampler(
        data, batch_size=30, num_steps=3, sample_coverage=5, log=False
    ),
    "walks": lambda data: GraphSAINTRandomWalkSampler(
        data, batch_size=10, walk_length=3, num_steps=3, sample_coverage=5, log=False
    ),
}


@pytest.mark.usefixtures("patched")
@pytest.mark.parametrize("kind", SAINTS)
def test_saints(data: Data, kind: str) -> None:
    batches = list(SAINTS[kind](data))
    assert len(batches) == 3
    for batch in batches:
        nodes = batch.x.view(-1).long()
        assert torch.equal(nodes[batch.edge_index], data.edge_index[:, batch.edge_attr])
        inside = torch.isin(data.edge_index, nodes).all(dim=0)
        assert sorted(batch.edge_attr.tolist()) == inside.nonzero().view(-1).tolist()
        assert batch.node_norm.shape == (batch.num_nodes,)
        assert batch.edge_norm.shape == (batch.num_edges,)
        assert (batch.edge_norm >= 0).all()


def adjacency(edge_index: Tensor, nodes: int) -> Adjacency:
    return Adjacency(edge_index[0], edge_index[1], torch.arange(edge_index.size(1)), (nodes, nodes))


def test_walks_follow_edges(data: Data) -> None:
    edge_index = data.edge_index[:, data.edge_index[0] != 7]
    walks = adjacency(edge_index, NODES).random_walk(torch.arange(NODES), 4)
    assert walks.shape == (NODES, 5)
    assert walks[:, 0].tolist() == list(range(NODES))
    pairs, ways = set(zip(*edge_index.tolist(), strict=True)), set(edge_index[0].tolist())
    for walk in walks.tolist():
        for here, there in itertools.pairwise(walk):
            assert (here, there) in pairs or (here == there and here not in ways)
    assert walks[7].tolist() == [7] * 5


def test_every_way_on_is_as_likely() -> None:
    edge_index = torch.tensor([[0, 0, 0], [1, 2, 3]])
    torch.manual_seed(0)
    ends = adjacency(edge_index, 4).random_walk(torch.zeros(3000, dtype=torch.int64), 1)[:, 1]
    assert all(abs(int(count) - 1000) < 150 for count in torch.bincount(ends, minlength=4)[1:])


def test_unpatched_the_modules_are_as_before() -> None:
    before = (graph_saint.SparseTensor, hgt_sampler.WITH_TORCH_SPARSE, ClusterData._metis)
    with onehop.patch(sampler=True):
        assert hgt_sampler.WITH_TORCH_SPARSE
        with onehop.patch(sampler=False):
            assert bool(hgt_sampler.WITH_TORCH_SPARSE) is bool(before[1])
    assert (graph_saint.SparseTensor, hgt_sampler.WITH_TORCH_SPARSE, ClusterData._metis) == before


# ShaDow


def walk_in(data: Data, root: int, depth: int) -> set[int]:
    """The nodes within ``depth`` steps against the edges."""
    source, target = data.edge_index
    found = torch.tensor([root])
    for _ in range(depth):
        found = torch.cat([found, source[torch.isin(target, found)]])
    return set(found.tolist())


@pytest.mark.usefixtures("patched")
@pytest.mark.parametrize("replace", [False, True])
def test_graphs_around_nodes(data: Data, replace: bool) -> None:
    data.y = torch.arange(NODES)
    data.name = "of the whole graph"
    loader = ShaDowKHopSampler(data, 2, 2, torch.arange(5, 45), replace, batch_size=8)
    roots: list[int] = []
    for batch in loader:
        roots += batch.y.tolist()
        source, target = batch.edge_index
        nodes = batch.x.view(-1).long()
        assert torch.equal(torch.stack([nodes[source], nodes[target]]), data.edge_index[:, batch.edge_attr])
        assert torch.equal(nodes[batch.root_n_id], batch.y)
        assert torch.equal(batch.batch[source], batch.batch[target])
        assert batch.ptr.tolist() == [0, *torch.bincount(batch.batch).cumsum(0).tolist()]
        assert batch.name == data.name
        ends = list(zip(source.tolist(), target.tolist(), strict=True))
        assert ends == sorted(ends)
        for number, root in enumerate(batch.y.tolist()):
            around = nodes[batch.batch == number]
            assert around.tolist() == sorted(set(around.tolist()))
            assert set(around.tolist()) <= walk_in(data, root, 2)
            assert around.numel() <= 1 + 2 + 4
            # All edges between its nodes.
            inside = torch.isin(data.edge_index, around).all(0)
            assert (
                sorted(batch.edge_attr[batch.batch[source] == number].tolist())
                == inside.nonzero()[:, 0].tolist()
            )
    assert roots == list(range(5, 45))


@pytest.mark.usefixtures("patched")
def test_all_neighbours_of_nodes(data: Data) -> None:
    everywhere = ShaDowKHopSampler(data, 2, 100, batch_size=1)
    assert len(everywhere) == NODES
    for root, batch in enumerate(everywhere):
        assert set(batch.x.view(-1).long().tolist()) == walk_in(data, root, 2)
    mask = torch.arange(NODES) % 70 == 0
    assert [batch.num_graphs for batch in ShaDowKHopSampler(data, 1, 1, mask, batch_size=2)] == [2, 1]


def test_graphs_around_nodes_need_the_patch_or_torch_sparse(data: Data) -> None:
    with pytest.raises(ImportError, match="torch-sparse"):
        ShaDowKHopSampler(data, 1, 1)
    with onehop.patch(sampler=True):
        loader = ShaDowKHopSampler(data, 1, 1, batch_size=NODES)
        torch.manual_seed(1)
        first = next(iter(loader))
    # It keeps on drawing.
    torch.manual_seed(1)
    assert torch.equal(next(iter(loader)).x, first.x)
    with onehop.patch(sampler=False), pytest.raises(ImportError, match="torch-sparse"):
        ShaDowKHopSampler(data, 1, 1)
