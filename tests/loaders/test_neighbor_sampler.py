"""``onehop.NeighborSampler`` in PyG's loaders, which are not patched."""

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkNeighborLoader, NeighborLoader
from torch_geometric.sampler import BaseSampler, EdgeSamplerInput, NegativeSampling, NodeSamplerInput

import onehop
from onehop import Graph, NeighborSampler
from onehop.integrations.pyg.edges.kept import graph_of

NODES, EDGES = 150, 1200
CITES, WRITES = ("paper", "cites", "paper"), ("author", "writes", "paper")


@pytest.fixture
def edge_index(generator: torch.Generator) -> Tensor:
    return torch.randint(0, NODES, (2, EDGES), generator=generator)


@pytest.fixture
def graph(edge_index: Tensor) -> Graph:
    return Graph.from_edge_index(edge_index, num_nodes=NODES)


@pytest.fixture
def types(generator: torch.Generator) -> dict[tuple[str, str, str], Tensor]:
    writes = [torch.randint(0, count, (300,), generator=generator) for count in (40, NODES)]
    return {CITES: torch.randint(0, NODES, (2, 500), generator=generator), WRITES: torch.stack(writes)}


@pytest.fixture
def graphs(types: dict[Any, Tensor]) -> dict[Any, Graph]:
    return {
        CITES: Graph.from_edge_index(types[CITES], num_nodes=NODES),
        WRITES: Graph.from_edge_index(types[WRITES], size=(40, NODES)),
    }


def seeds(*nodes: int, time: Tensor | None = None) -> NodeSamplerInput:
    return NodeSamplerInput(torch.arange(len(nodes)), torch.tensor(nodes), time)


def check(out: Any, edge_index: Tensor) -> None:
    assert torch.equal(out.node[torch.stack([out.row, out.col])], edge_index[:, out.edge])


def test_it_is_a_sampler_of_pygs(graph: Graph) -> None:
    sampler = NeighborSampler(graph, [3])
    assert isinstance(sampler, BaseSampler)
    assert sampler.edge_permutation is None
    assert repr(sampler) == "NeighborSampler(num_nodes=150, hops=1)"


def test_in_a_loader(graph: Graph, edge_index: Tensor) -> None:
    data = Data(x=torch.arange(NODES), edge_index=edge_index, edge_attr=torch.arange(EDGES))
    sampler = NeighborSampler(graph, [4, 3])
    loader = NeighborLoader(data, [], neighbor_sampler=sampler, batch_size=40)
    batches = list(loader)
    assert sum(batch.batch_size for batch in batches) == NODES
    for batch in batches:
        assert torch.equal(batch.x[batch.edge_index], edge_index[:, batch.edge_attr])
        assert torch.equal(batch.e_id, batch.edge_attr)
        assert sum(batch.num_sampled_nodes) == batch.num_nodes
    links = LinkNeighborLoader(
        data, [], edge_index[:, :60], neighbor_sampler=sampler, neg_sampling="binary", batch_size=20
    )
    for batch in links:
        assert torch.equal(batch.x[batch.edge_index], edge_index[:, batch.edge_attr])
        assert torch.equal(batch.n_id[batch.edge_label_index[:, :20]], edge_index[:, batch.input_id])


def test_the_graph_of_a_batch_is_known(graph: Graph) -> None:
    out = NeighborSampler(graph, [3, 3]).sample_from_nodes(seeds(5, 6, 7))
    edge_index = out.row._base
    nodes = out.node.numel()
    found = graph_of(edge_index, nodes, nodes, forwards=True)
    again = graph_of(edge_index.clone(), nodes, nodes, forwards=True)
    assert found is not None
    assert found is graph_of(edge_index, nodes, nodes, forwards=True)
    assert found is not again
    assert torch.equal(found.col, again.col)


def test_a_seed_makes_batches_repeatable(graph: Graph) -> None:
    def drawn(sampler: NeighborSampler) -> list[int]:
        return sampler.sample_from_nodes(seeds(1, 2, 3)).edge.tolist()

    sampler = NeighborSampler(graph, [4, 4], seed=7)
    first = drawn(sampler)
    assert drawn(sampler) == first
    assert drawn(copy.deepcopy(sampler)) == first
    assert drawn(pickle.loads(pickle.dumps(sampler))) == first
    assert drawn(NeighborSampler(graph, [4, 4], seed=8)) != first
    unseeded = NeighborSampler(graph, [4, 4])
    assert drawn(unseeded) != drawn(unseeded)
    torch.manual_seed(0)
    expected = drawn(unseeded)
    torch.manual_seed(0)
    assert drawn(unseeded) == expected


def test_a_seed_makes_negative_edges_repeatable(graph: Graph, edge_index: Tensor) -> None:
    sampler = NeighborSampler(graph, [2], seed=7)

    def drawn() -> list[list[int]]:
        inputs = EdgeSamplerInput(torch.arange(9), *edge_index[:, :9])
        out = sampler.sample_from_edges(inputs, NegativeSampling("triplet", 2))
        return [out.edge.tolist(), out.metadata[3].tolist()]

    state = torch.get_rng_state()
    assert drawn() == drawn()
    assert torch.equal(torch.get_rng_state(), state)


def test_workers_draw_the_same_of_a_seed(graph: Graph, edge_index: Tensor) -> None:
    data = Data(edge_index=edge_index, num_nodes=NODES)

    def drawn(workers: int) -> list[Any]:
        sampler = NeighborSampler(graph, [4], seed=7)
        loader = NeighborLoader(data, [], neighbor_sampler=sampler, batch_size=50, num_workers=workers)
        return [batch.e_id.tolist() for batch in loader]

    assert drawn(0) == drawn(2)


def test_patched_loaders_tell_it_of_epochs(graph: Graph, edge_index: Tensor) -> None:
    data = Data(edge_index=edge_index, num_nodes=NODES)

    def drawn(workers: int) -> list[Any]:
        torch.manual_seed(0)
        sampler = NeighborSampler(graph, [4])
        loader = NeighborLoader(data, [], neighbor_sampler=sampler, batch_size=50, num_workers=workers)
        return [[batch.e_id.tolist() for batch in loader] for _ in range(2)]

    with onehop.patch():
        alone = drawn(0)
        assert drawn(2) == alone
        assert alone[0] != alone[1]
    onehop.unpatch()


@pytest.mark.parametrize("way", ["edge_time", "node_time"])
@pytest.mark.parametrize("strategy", ["uniform", "last"])
def test_times(graph: Graph, edge_index: Tensor, generator: torch.Generator, way: str, strategy: str) -> None:
    count = EDGES if way == "edge_time" else NODES
    time = torch.randint(0, 9, (count,), generator=generator)
    of_edge = time if way == "edge_time" else time[edge_index[0]]
    sampler = NeighborSampler(graph, [3], temporal_strategy=strategy, **{way: time})
    assert sampler.disjoint
    nodes, bound = torch.arange(60), torch.randint(0, 9, (60,), generator=generator)
    out = sampler.sample_from_nodes(NodeSamplerInput(None, nodes, bound))
    check(out, edge_index)
    assert out.batch[:60].tolist() == list(range(60))
    for seed in range(60):
        drawn = of_edge[out.edge[out.col == seed]].sort(descending=True).values
        allowed = of_edge[edge_index[1] == seed]
        allowed = allowed[allowed <= bound[seed]].sort(descending=True).values
        assert len(drawn) == min(len(allowed), 3)
        assert (drawn <= bound[seed]).all()
        if strategy == "last":
            assert torch.equal(drawn, allowed[:3])


def test_nodes_have_times_of_their_own(graph: Graph, edge_index: Tensor) -> None:
    time = torch.arange(NODES)
    out = NeighborSampler(graph, [-1], node_time=time).sample_from_nodes(seeds(10, 90))
    check(out, edge_index)
    for seed, node in enumerate((10, 90)):
        allowed = (edge_index[1] == node) & (edge_index[0] <= node)
        assert sorted(out.edge[out.col == seed].tolist()) == allowed.nonzero().view(-1).tolist()


@pytest.mark.parametrize("replace", [False, True])
def test_weights(graph: Graph, edge_index: Tensor, replace: bool) -> None:
    weight = (edge_index[0] < 75).double() + 1e-12
    heavy = torch.bincount(edge_index[1][edge_index[0] < 75], minlength=NODES)
    enough = (heavy >= 2).nonzero().view(-1).tolist()
    assert len(enough) > 50
    out = NeighborSampler(graph, [2], weight=weight, replace=replace).sample_from_nodes(seeds(*enough))
    check(out, edge_index)
    assert (edge_index[0, out.edge] < 75).all()


def test_subgraphs(graph: Graph, edge_index: Tensor) -> None:
    out = NeighborSampler(graph, [3, 3], subgraph_type="induced").sample_from_nodes(seeds(1, 2))
    check(out, edge_index)
    assert out.num_sampled_edges is None
    inside = torch.isin(edge_index, out.node).all(dim=0)
    assert sorted(out.edge.tolist()) == inside.nonzero().view(-1).tolist()
    both = NeighborSampler(graph, [3], subgraph_type="bidirectional").sample_from_nodes(seeds(1, 2))
    pairs = set(zip(both.row.tolist(), both.col.tolist(), strict=True))
    assert pairs == {(b, a) for a, b in pairs}


def test_fan_out_of_zero_and_all(graph: Graph, edge_index: Tensor) -> None:
    nothing = NeighborSampler(graph, [0, 5]).sample_from_nodes(seeds(1, 2))
    assert (nothing.edge.numel(), nothing.num_sampled_nodes) == (0, [2, 0, 0])
    all_of_them = NeighborSampler(graph, [-1]).sample_from_nodes(seeds(1, 2))
    expected = torch.isin(edge_index[1], torch.tensor([1, 2])).nonzero().view(-1)
    assert sorted(all_of_them.edge.tolist()) == expected.tolist()
    nobody = NodeSamplerInput(None, torch.empty(0, dtype=torch.int64))
    for sampler in (NeighborSampler(graph, [3]), NeighborSampler(graph, [3], node_time=torch.arange(NODES))):
        out = sampler.sample_from_nodes(nobody)
        assert (out.node.numel(), out.edge.numel(), out.num_sampled_nodes) == (0, 0, [0, 0])
    no_hops = NeighborSampler(graph, []).sample_from_nodes(seeds(1, 2))
    assert (no_hops.edge.numel(), no_hops.num_sampled_nodes, no_hops.num_sampled_edges) == (0, [2], [])


def test_several_types(graphs: dict[Any, Graph], types: dict[Any, Tensor]) -> None:
    data = HeteroData()
    data["paper"].num_nodes, data["author"].num_nodes = NODES, 40
    for kind, edge_index in types.items():
        data[kind].edge_index = edge_index
    sampler = NeighborSampler(graphs, {CITES: [3, 2], WRITES: [2, 1]})
    loader = NeighborLoader(data, {}, input_nodes="paper", neighbor_sampler=sampler, batch_size=50)
    for batch in loader:
        for kind, edge_index in types.items():
            source, target = batch[kind].edge_index
            ends = torch.stack([batch[kind[0]].n_id[source], batch[kind[-1]].n_id[target]])
            assert torch.equal(ends, edge_index[:, batch[kind].e_id])


@pytest.mark.parametrize("disjoint", [False, True])
def test_links_between_types(graphs: dict[Any, Graph], types: dict[Any, Tensor], disjoint: bool) -> None:
    source, target = types[WRITES][:, :30]
    inputs = EdgeSamplerInput(torch.arange(30), source, target, input_type=WRITES)
    sampler = NeighborSampler(graphs, [2], disjoint=disjoint)
    out = sampler.sample_from_edges(inputs, NegativeSampling("binary", 1.5))
    label_index = out.metadata[1]
    assert torch.equal(out.node["author"][label_index[0, :30]], source)
    assert torch.equal(out.node["paper"][label_index[1, :30]], target)
    if disjoint:
        assert out.batch["author"][:30].tolist() == list(range(30))
        # As with pyg-lib: trees are numbered through both types, the sources first.
        assert out.batch["paper"][:30].tolist() == [(75 + i) % 30 for i in range(30)]


def test_times_of_types(graphs: dict[Any, Graph], types: dict[Any, Tensor]) -> None:
    time = torch.arange(500) % 7
    sampler = NeighborSampler(graphs, [-1], edge_time={CITES: time})
    inputs = NodeSamplerInput(None, torch.arange(20), torch.full((20,), 3), "paper")
    out = sampler.sample_from_nodes(inputs)
    into = types[CITES][1] < 20
    assert sorted(out.edge[CITES].tolist()) == (into & (time <= 3)).nonzero().view(-1).tolist()
    # The other type has no times, so all of its edges may be drawn.
    assert out.edge[WRITES].numel() == int((types[WRITES][1] < 20).sum())


def test_a_graph_on_disk(graph: Graph, edge_index: Tensor, tmp_path: Path) -> None:
    stored = graph.save(tmp_path / "graph")
    in_memory = NeighborSampler(stored.load(), [4, 3], seed=1).sample_from_nodes(seeds(1, 2, 3))
    on_disk = NeighborSampler(stored, [4, 3], seed=1).sample_from_nodes(seeds(1, 2, 3))
    for name in ("node", "row", "col", "edge"):
        assert torch.equal(getattr(in_memory, name), getattr(on_disk, name))
    again = pickle.dumps(NeighborSampler(stored, [4, 3], seed=1))
    assert len(again) < 2000, "the edges stay on disk"
    assert torch.equal(pickle.loads(again).sample_from_nodes(seeds(1, 2, 3)).edge, on_disk.edge)
    empty = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.int64), num_nodes=3).save(tmp_path / "empty")
    assert NeighborSampler(empty, [2]).sample_from_nodes(seeds(1)).edge.numel() == 0


def test_a_damaged_file_is_noticed(graph: Graph, tmp_path: Path) -> None:
    stored = graph.save(tmp_path / "graph")
    col = stored.col.copy()
    with stored.col_file.open("r+b") as file:
        file.seek(stored.col_file.stat().st_size - col.nbytes)
        file.write((col + NODES).tobytes())
    with pytest.raises(onehop.IndexRangeError, match=r"source \d+ of edge \d+ is not in \[0, 150\)"):
        NeighborSampler(stored, [4]).sample_from_nodes(seeds(1, 2, 3))


def test_another_default_device(graph: Graph, edge_index: Tensor) -> None:
    inputs, time = seeds(1, 2, 3), torch.arange(EDGES)
    weight = torch.ones(EDGES)
    with torch.device("meta"):
        for arguments in ({"weight": weight}, {"edge_time": time}, {"subgraph_type": "induced"}):
            sampler = NeighborSampler(graph, [4, 4], **arguments)
            inputs.time = torch.full((3,), EDGES, device="cpu") if "edge_time" in arguments else None
            out = sampler.sample_from_nodes(inputs)
            assert out.node.is_cpu
            check(out, edge_index)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "fan-out": ({"num_neighbors": [-2]}, "num_neighbors: expected a list of integers"),
    "fan-outs by type": ({"num_neighbors": {CITES: [2]}}, "num_neighbors: expected a list, or one for each"),
    "no graph": ({"graph": torch.zeros(2, 3)}, "graph: expected a Graph, a StoredGraph"),
    "no types": ({"graph": {}}, "graph: expected at least one"),
    "keys": ({"graph": {"cites": None}}, "graph: expected keys"),
    "subgraph": ({"subgraph_type": "tree"}, "subgraph_type: expected one of directional, bidirectional"),
    "strategy": ({"temporal_strategy": "first"}, "temporal_strategy: expected one of uniform, last"),
    "times twice": (
        {"node_time": torch.zeros(NODES).long(), "edge_time": torch.zeros(EDGES).long()},
        "node_time, edge_time: .* give one of them",
    ),
    "weights and times": (
        {"weight": torch.ones(EDGES), "edge_time": torch.zeros(EDGES).long()},
        "weight, edge_time: .* give one of them",
    ),
    "induced": (
        {"subgraph_type": "induced", "edge_time": torch.zeros(EDGES).long()},
        "subgraph_type: an induced subgraph would hold edges that are later",
    ),
    "too few times": ({"node_time": torch.zeros(3).long()}, r"node_time: expected \[150\] integers"),
    "fractions": ({"edge_time": torch.zeros(EDGES)}, r"edge_time: expected \[1200\] integers"),
    "too few weights": ({"weight": torch.ones(3)}, r"weight: expected \[1200\] numbers"),
    "negative weights": ({"weight": -torch.ones(EDGES)}, "weight: expected weights that are zero or more"),
    "by type": ({"weight": {CITES: torch.ones(3)}}, "weight: expected a tensor, got dict"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(graph: Graph, case: str) -> None:
    changed, message = WRONG[case]
    arguments = {"graph": graph, "num_neighbors": [3]} | changed
    with pytest.raises(onehop.ArgumentError, match=message):
        NeighborSampler(**arguments)


def test_wrong_arguments_of_types(graphs: dict[Any, Graph]) -> None:
    for changed, message in (
        ({"weight": torch.ones(3)}, "weight: expected a dictionary by"),
        ({"weight": {("a", "b", "c"): torch.ones(3)}}, "is unknown; there are"),
        ({"node_time": {"paper": [1, 2]}}, "node_time: expected tensors, got list"),
    ):
        with pytest.raises(onehop.ArgumentError, match=message):
            NeighborSampler(graphs, [3], **changed)
    with pytest.raises(onehop.ArgumentError, match="venue is no type of nodes; there are paper, author"):
        NeighborSampler(graphs, [3]).sample_from_nodes(
            NodeSamplerInput(None, torch.tensor([0]), input_type="venue")
        )
    uneven = graphs | {("author", "knows", "author"): graphs[CITES]}
    with pytest.raises(
        onehop.ArgumentError, match="40 nodes of type 'author' on one side and 150 on another"
    ):
        NeighborSampler(uneven, [3])
    with pytest.raises(onehop.ArgumentError, match="40 nodes on one side and 150 on another"):
        NeighborSampler(graphs[WRITES], [3])


def test_wrong_seeds(graph: Graph) -> None:
    for node in (-1, NODES):
        with pytest.raises(onehop.IndexRangeError, match=rf"node {node}, seed 1, is not in \[0, 150\)"):
            NeighborSampler(graph, [3]).sample_from_nodes(seeds(0, node))
        with pytest.raises(onehop.IndexRangeError, match=r"seeds: nodes .* are not all in"):
            NeighborSampler(graph, [3], node_time=torch.arange(NODES)).sample_from_nodes(seeds(0, node))
    with pytest.raises(onehop.ArgumentError, match="time: the seeds need times"):
        NeighborSampler(graph, [3], edge_time=torch.arange(EDGES)).sample_from_nodes(seeds(0, 1))
    with pytest.raises(onehop.ArgumentError, match=r"time: expected \[2\] integers, one a seed"):
        NeighborSampler(graph, [3], edge_time=torch.arange(EDGES)).sample_from_nodes(
            seeds(0, 1, time=torch.zeros(2))
        )


def test_without_pyg_it_says_what_to_install() -> None:
    told = (
        "import sys; sys.modules['torch_geometric'] = None; import onehop\n"
        "try:\n    onehop.NeighborSampler\n"
        "except onehop.ConfigurationError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(
        "onehop.NeighborSampler needs torch_geometric, which is not installed: pip install"
    )
