"""Rows that share sources: each for itself draws as the uniform sampler does, all together fewer nodes."""

import itertools
from collections import Counter

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import LinkNeighborLoader, NeighborLoader
from torch_geometric.sampler import NodeSamplerInput

from onehop import Graph, NeighborSampler
from onehop.errors import ArgumentError
from onehop.loaders.engine import Choices, Engine
from onehop.loaders.relation import Relation

NODES = 600


@pytest.fixture
def edge_index(generator: torch.Generator) -> Tensor:
    """Distinct edges, some sources being far more popular than others."""
    source = (torch.rand(12000, generator=generator) ** 2 * NODES).long()
    target = torch.randint(0, NODES, (12000,), generator=generator)
    return torch.stack([source, target]).unique(dim=1)


def engine(rows: list[list[int]], fan_outs: list[int], *, shared: bool, nodes: int = 100) -> Engine:
    ends = list(itertools.accumulate(map(len, rows)))
    rowptr = torch.tensor([0, *ends, *[ends[-1]] * (nodes - len(rows))])
    col = torch.tensor([source for row in rows for source in row], dtype=torch.int64)
    relation = Relation("edges", rowptr, col, 0, 0, tuple(fan_outs))
    return Engine([nodes], [relation], Choices(len(fan_outs), shared=shared))


@pytest.mark.parametrize("row", [[5, 6, 7, 8, 9], [5, 5, 6, 5, 7]])
def test_any_edges_of_a_row_are_as_likely(row: list[int]) -> None:
    """Those of a source that the row has several times, too."""
    drawn = engine([row], [2], shared=True)
    times = 4000
    found = Counter(tuple(drawn.draw([torch.tensor([0])], key).edges[0].tolist()) for key in range(times))
    pairs = list(itertools.combinations(range(5), 2))
    assert set(found) == set(pairs)
    # Five standard deviations of a binomial number.
    expected, deviation = times / len(pairs), (times * 0.1 * 0.9) ** 0.5
    assert all(abs(count - expected) < 5 * deviation for count in found.values())


def test_a_row_of_large_numbers_alone() -> None:
    """About one draw in 8,000 looks at the row again, for lack of small numbers."""
    drawn = engine([list(range(1, 200))], [1], shared=True, nodes=200)
    found = Counter(drawn.draw([torch.tensor([0])], key).edges[0].tolist()[0] for key in range(30000))
    assert set(found) == set(range(199))
    assert sum(found.values()) == 30000


def test_equal_rows_draw_the_same_sources() -> None:
    rows = [list(range(10, 30)), list(range(10, 30)), list(range(20, 40))]
    shared, apart = (engine(rows, [6], shared=each) for each in (True, False))
    seeds = [torch.tensor([0, 1, 2])]
    overlaps = fewer = 0
    for key in range(50):
        source, target = shared.draw(seeds, key).edge_index[0]
        first, second, third = (set(source[target == row].tolist()) for row in range(3))
        assert first == second
        overlaps += len(first & third)
        fewer += apart.draw(seeds, key).nodes[0].numel() - shared.draw(seeds, key).nodes[0].numel()
    # Independent rows would have 0.9 in common on average.
    assert overlaps > 2 * 0.9 * 50
    assert fewer > 3 * 50


def test_hops_and_types_of_sources_have_numbers_of_their_own() -> None:
    # The second seed's only neighbour is 0, which draws in the second hop what 9 draws in the first.
    rows = [list(range(10, 40)), [0], *[[] for _ in range(7)], list(range(10, 40))]
    drawn = engine(rows, [5, 5], shared=True)
    differ = 0
    for key in range(20):
        batch = drawn.draw([torch.tensor([1, 9])], key)
        source, target = batch.nodes[0][batch.edge_index[0]]
        differ += set(source[target == 0].tolist()) != set(source[target == 9].tolist())
    assert differ >= 19


@pytest.mark.parametrize("shared", [False, True])
def test_means_of_two_hops_are_those_of_all_neighbours(shared: bool, generator: torch.Generator) -> None:
    # Layers: 0 to 7 draw from 10 to 29, these from 30 to 99.
    rows = [torch.randperm(20, generator=generator)[:12].add(10).tolist() for _ in range(8)] + [[], []]
    rows += [torch.randperm(70, generator=generator)[:15].add(30).tolist() for _ in range(20)]
    x = torch.randn(100, dtype=torch.float64, generator=generator)

    def means(batch_of: Engine, key: int) -> Tensor:
        batch = batch_of.draw([torch.arange(8)], key)
        (source, target), nodes = batch.edge_index[0], batch.nodes[0]
        h = x[nodes]
        hops = torch.arange(2).repeat_interleave(torch.tensor(batch.edges_per_hop[0]))
        for hop in (1, 0):
            s, t = source[hops == hop], target[hops == hop]
            sums, counts = torch.zeros_like(h).index_add_(0, t, h[s]), torch.bincount(t, minlength=len(h))
            h = torch.where(counts > 0, sums / counts.clamp(min=1), h)
        return h[:8]

    expected = means(engine(rows, [-1, -1], shared=shared), 0)
    times = 3000
    drawn = engine(rows, [4, 3], shared=shared)
    found = torch.stack([means(drawn, key) for key in range(times)])
    error = (found.mean(0) - expected).abs()
    assert (error < 4.5 * found.std(0) / times**0.5).all()


def test_a_batch_has_fewer_nodes_and_as_many_edges(edge_index: Tensor) -> None:
    graph = Graph.from_edge_index(edge_index, num_nodes=NODES)
    data = Data(x=torch.arange(NODES), edge_index=edge_index)
    sizes, edges = {}, {}
    for method in ("uniform", "labor"):
        sampler = NeighborSampler(graph, [5, 5], method=method, seed=0)
        loader = NeighborLoader(data, [], neighbor_sampler=sampler, batch_size=50)
        sizes[method] = edges[method] = 0
        for batch in loader:
            assert torch.equal(batch.x[batch.edge_index], edge_index[:, batch.e_id])
            counts = torch.bincount(batch.edge_index[1], minlength=batch.num_nodes)[:50]
            degrees = torch.bincount(edge_index[1], minlength=NODES)[batch.n_id[:50]]
            assert torch.equal(counts, degrees.clamp(max=5))
            sizes[method] += batch.num_sampled_nodes[1]
            edges[method] += batch.num_sampled_edges[0]
    assert edges["labor"] == edges["uniform"]
    assert sizes["labor"] < 0.85 * sizes["uniform"]


def test_types_of_edges_share_sources_of_one_type(edge_index: Tensor) -> None:
    graph = Graph.from_edge_index(edge_index, num_nodes=NODES)
    graphs = {("a", "to", "b"): graph, ("a", "of", "b"): graph}
    sampler = NeighborSampler(graphs, [4], method="labor", seed=0)
    inputs = NodeSamplerInput(None, torch.arange(40), input_type="b")
    batch = sampler.sample_from_nodes(inputs)
    assert torch.equal(batch.edge["a", "to", "b"], batch.edge["a", "of", "b"])


def test_links(edge_index: Tensor) -> None:
    graph = Graph.from_edge_index(edge_index, num_nodes=NODES)
    sampler = NeighborSampler(graph, [4], method="labor")
    loader = LinkNeighborLoader(
        Data(edge_index=edge_index, num_nodes=NODES), [], edge_label_index=edge_index[:, :20],
        neighbor_sampler=sampler, batch_size=10, neg_sampling="binary",
    )  # fmt: skip
    batch = next(iter(loader))
    assert torch.equal(batch.n_id[batch.edge_index], edge_index[:, batch.e_id])


@pytest.mark.parametrize(
    "given",
    [
        {"replace": True},
        {"disjoint": True},
        {"weight": torch.ones(1)},
        {"node_time": torch.zeros(NODES, dtype=torch.int64)},
        {"method": "ladies"},
    ],
)
def test_what_cannot_be_shared_is_refused(edge_index: Tensor, given: dict[str, object]) -> None:
    graph = Graph.from_edge_index(edge_index, num_nodes=NODES)
    with pytest.raises(ArgumentError, match="method: "):
        NeighborSampler(graph, [4], **({"method": "labor"} | given))
