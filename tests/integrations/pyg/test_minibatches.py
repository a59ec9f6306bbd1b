"""Mini-batches, each an edge_index of its own: PyG's results, and nothing left behind."""

import gc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.loader import (
    ClusterData,
    ClusterLoader,
    DataLoader,
    GraphSAINTEdgeSampler,
    GraphSAINTNodeSampler,
    GraphSAINTRandomWalkSampler,
    NeighborLoader,
)
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv

import onehop

NODES, EDGES, WIDTH, CLASSES = 300, 2400, 6, 4

KINDS: dict[str, Callable[[int, int], torch.nn.Module]] = {
    "GCN": GCNConv,
    "SAGE": SAGEConv,
    "GIN": lambda a, b: GINConv(torch.nn.Linear(a, b)),
    "GAT": lambda a, b: GATConv(a, b // 2, heads=2),
}


class Net(torch.nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.first, self.second = KINDS[kind](WIDTH, 8), KINDS[kind](8, CLASSES)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


@pytest.fixture
def data(generator) -> Data:
    edge_index = torch.randint(0, NODES, (2, EDGES), generator=generator)
    return Data(
        x=torch.randn(NODES, WIDTH, generator=generator),
        edge_index=edge_index,
        y=torch.randint(0, CLASSES, (NODES,), generator=generator),
    )


@pytest.fixture(params=KINDS)
def net(request) -> Net:
    torch.manual_seed(0)
    return Net(request.param).double()


def neighbours(data: Data) -> Any:
    return NeighborLoader(data, [5, 3], batch_size=64)


def neighbours_in_one_direction(data: Data) -> Any:
    return NeighborLoader(data, [5, 3], batch_size=64, subgraph_type="induced")


class RandomClusters(ClusterData):
    """Clusters drawn at random: METIS, which finds good ones, is not in every build of PyG's packages."""

    def _metis(self, edge_index: Any, num_nodes: int) -> torch.Tensor:
        return torch.randint(0, self.num_parts, (num_nodes,), generator=torch.Generator().manual_seed(2))


def clusters(data: Data) -> Any:
    return ClusterLoader(RandomClusters(data, num_parts=6, log=False), batch_size=2)


def saint_nodes(data: Data) -> Any:
    return GraphSAINTNodeSampler(data, batch_size=80, num_steps=3, sample_coverage=0)


def saint_edges(data: Data) -> Any:
    return GraphSAINTEdgeSampler(data, batch_size=80, num_steps=3, sample_coverage=0)


def saint_walks(data: Data) -> Any:
    return GraphSAINTRandomWalkSampler(data, batch_size=20, walk_length=3, num_steps=3, sample_coverage=0)


def drawn(loader: Callable[[Data], Any], data: Data) -> list[Any]:
    """The batches, which onehop draws: PyG needs pyg-lib or torch-sparse for most of them."""
    with onehop.patch(sampler=True):
        return list(loader(data))


def gradients(net: Net, batch: Any) -> list[torch.Tensor]:
    """Output and gradients, from tensors that nobody has seen."""
    net.zero_grad()
    x = batch.x.double().clone().requires_grad_()
    out = net(x, batch.edge_index.clone())
    out.square().sum().backward()
    found = [out.detach(), x.grad, *(p.grad for p in net.parameters())]
    return [torch.zeros(0) if tensor is None else tensor.clone() for tensor in found]


def same_as_pyg(net: Net, batches: list[Any]) -> None:
    assert batches
    for batch in batches:
        expected = gradients(net, batch)
        with onehop.patch():
            found = gradients(net, batch)
        for got, want in zip(found, expected, strict=True):
            torch.testing.assert_close(got, want)


@pytest.fixture
def quiet() -> Iterator[None]:
    """Without the advice to install pyg-lib, and without what old samplers do to sparse tensors of torch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


@pytest.mark.parametrize("loader", [neighbours, neighbours_in_one_direction])
@pytest.mark.usefixtures("quiet")
def test_neighbour_loader(loader, net, data):
    same_as_pyg(net, drawn(loader, data))


@pytest.mark.parametrize("loader", [saint_nodes, saint_edges, saint_walks])
@pytest.mark.usefixtures("quiet")
def test_sampled_subgraphs(loader, net, data):
    same_as_pyg(net, drawn(loader, data))


@pytest.mark.usefixtures("quiet")
def test_cluster_loader(net, data):
    same_as_pyg(net, list(clusters(data)))


def small_graphs(generator: torch.Generator) -> list[Data]:
    """Graphs of 0 to 9 nodes, some without edges."""
    graphs = []
    for nodes in (4, 0, 1, 9, 2, 0, 5):
        edges = torch.randint(0, max(nodes, 1), (2, 3 * nodes if nodes != 5 else 0), generator=generator)
        graphs.append(Data(x=torch.randn(nodes, WIDTH, generator=generator), edge_index=edges))
    return graphs


def test_batch_of_small_graphs(net, generator):
    same_as_pyg(net, [Batch.from_data_list(small_graphs(generator))])


def test_data_loader(net, generator):
    same_as_pyg(net, list(DataLoader(small_graphs(generator), batch_size=3)))


@pytest.mark.parametrize("nodes", [0, 1, 7])
def test_batch_without_edges(net, nodes):
    empty = Data(x=torch.randn(nodes, WIDTH), edge_index=torch.zeros(2, 0, dtype=torch.int64))
    same_as_pyg(net, [empty])


def test_batches_take_the_fast_path_and_leave_nothing_behind(net, generator, took_fast_path):
    batch = Batch.from_data_list(small_graphs(generator))
    onehop.clear_cache()
    with onehop.patch():
        for _ in range(3):
            assert took_fast_path(gradients, net, batch) == [None, None]
    del batch
    gc.collect()
    assert onehop.cache_info().entries == 0


def test_graph_of_a_batch_is_built_once_and_turned_round_for_gradients_alone(generator, monkeypatch):
    built, turned = [], []
    transposed = onehop.Graph.transposed_csr

    def build(*args, **kwargs):
        built.append(onehop.Graph.from_edge_index(*args, **kwargs))
        return built[-1]

    def turn(graph):
        turned.append(graph)
        return transposed.fget(graph)

    monkeypatch.setattr(onehop.Graph, "transposed_csr", property(turn))
    monkeypatch.setattr(
        "onehop.integrations.pyg.edges.listed.Graph", type("Spy", (), {"from_edge_index": build})
    )
    batch = Batch.from_data_list(small_graphs(generator))
    torch.manual_seed(0)
    net = Net("SAGE")
    with onehop.patch():
        with torch.no_grad():
            net(batch.x, batch.edge_index)
        assert (len(built), len(turned)) == (1, 0)
        net(batch.x, batch.edge_index).sum().backward()
    assert len(built) == 1
    assert turned
    assert built[0]._statistics is None
