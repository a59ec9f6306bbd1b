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
from tests.integrations.pyg.two_layers import TwoLayers
from tests.integrations.same import Run, same, step

NODES, EDGES, WIDTH, CLASSES = 300, 2400, 6, 4

KINDS: dict[str, Callable[[int, int], torch.nn.Module]] = {
    "GCN": GCNConv,
    "SAGE": SAGEConv,
    "GIN": lambda a, b: GINConv(torch.nn.Linear(a, b)),
    "GAT": lambda a, b: GATConv(a, b // 2, heads=2),
}


def model_of(kind: str) -> TwoLayers:
    return TwoLayers(KINDS[kind], WIDTH, 8, CLASSES)


@pytest.fixture
def data(generator) -> Data:
    edge_index = torch.randint(0, NODES, (2, EDGES), generator=generator)
    return Data(
        x=torch.randn(NODES, WIDTH, generator=generator),
        edge_index=edge_index,
        y=torch.randint(0, CLASSES, (NODES,), generator=generator),
    )


@pytest.fixture(params=KINDS)
def net(request) -> TwoLayers:
    return model_of(request.param).double()


class RandomClusters(ClusterData):
    """Clusters drawn at random: METIS, which finds good ones, is not in every build of PyG's packages."""

    def _metis(self, edge_index: Any, num_nodes: int) -> torch.Tensor:
        return torch.randint(0, self.num_parts, (num_nodes,), generator=torch.Generator().manual_seed(2))


SAINT = {"num_steps": 3, "sample_coverage": 0}
LOADERS: dict[str, Callable[[Data], Any]] = {
    "neighbours": lambda data: NeighborLoader(data, [5, 3], batch_size=64),
    "neighbours and all edges": lambda data: NeighborLoader(
        data, [5, 3], batch_size=64, subgraph_type="induced"
    ),
    "clusters": lambda data: ClusterLoader(RandomClusters(data, num_parts=6, log=False), batch_size=2),
    "SAINT, nodes": lambda data: GraphSAINTNodeSampler(data, batch_size=80, **SAINT),
    "SAINT, edges": lambda data: GraphSAINTEdgeSampler(data, batch_size=80, **SAINT),
    "SAINT, walks": lambda data: GraphSAINTRandomWalkSampler(data, batch_size=20, walk_length=3, **SAINT),
}


def trained(net: TwoLayers, batch: Any) -> Run:
    """Output and gradients, from tensors that are new each time."""
    return step(lambda net, x: net(x, batch.edge_index.clone()), net, batch.x.double())


def same_as_pyg(net: TwoLayers, batches: list[Any]) -> None:
    assert batches
    for batch in batches:
        same(trained(net, batch), times=1)


@pytest.fixture
def quiet() -> Iterator[None]:
    """Without the advice to install pyg-lib, and without what old samplers do to sparse tensors of torch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.usefixtures("quiet")
def test_loaders(name, net, data):
    # PyG needs pyg-lib or torch-sparse for most of them.
    with onehop.patch(sampler=True):
        batches = list(LOADERS[name](data))
    same_as_pyg(net, batches)


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
            assert took_fast_path(trained(net, batch)) == [None, None]
    del batch
    gc.collect()
    assert onehop.cache_info().entries == 0


def test_graph_of_a_batch_is_built_once_and_turned_round_for_gradients_alone(generator, monkeypatch):
    built, turned = [], []
    transposed = onehop.Graph.transposed_csr

    def build(*args, **kwargs):
        built.append(onehop.Graph.from_edge_index(*args, **kwargs))
        return built[-1]

    turning = property(lambda graph: turned.append(graph) or transposed.fget(graph))
    monkeypatch.setattr(onehop.Graph, "transposed_csr", turning)
    spy = type("Spy", (), {"from_edge_index": build})
    monkeypatch.setattr("onehop.integrations.pyg.edges.kept.Graph", spy)
    batch = Batch.from_data_list(small_graphs(generator))
    net = model_of("SAGE")
    with onehop.patch():
        with torch.no_grad():
            net(batch.x, batch.edge_index)
        assert (len(built), len(turned)) == (1, 0)
        net(batch.x, batch.edge_index).sum().backward()
    assert len(built) == 1
    assert turned
    assert "statistics" not in vars(built[0])
