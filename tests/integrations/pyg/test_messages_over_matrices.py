"""Layers that run their own message over a sparse matrix, compiled and in blocks: results and gradients."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn
from torch_geometric.typing import OptTensor
from torch_geometric.utils import softmax

from onehop import thresholds
from onehop.integrations.pyg.leave import TOO_SMALL
from tests.integrations.pyg import small_blocks
from tests.integrations.pyg.adjacencies import WARNINGS, matrix
from tests.integrations.pyg.layers import DEGREES, DIM, NODES, WIDTH, rowwise_mlp as mlp
from tests.integrations.same import BITS, fast, reasons, refused, same, step
from tests.pairs import pairwise

pytestmark = [pytest.mark.filterwarnings(each) for each in WARNINGS]

KINDS = ("csr", "coo", "SparseTensor", "SparseTensor with values")

LAYERS: dict[str, Callable[[], torch.nn.Module]] = {
    "ResGated": lambda: gnn.ResGatedGraphConv(WIDTH, 4),
    "CG": lambda: gnn.CGConv(WIDTH),
    "Edge": lambda: gnn.EdgeConv(mlp(2 * WIDTH)),
    "FiLM": lambda: gnn.FiLMConv(WIDTH, 4),
    "GEN": lambda: gnn.GENConv(WIDTH, 4, learn_t=True),
    "PNA": lambda: gnn.PNAConv(WIDTH, 4, ["mean", "max", "std"], ["identity", "linear"], DEGREES),
    "FeaSt": lambda: gnn.FeaStConv(WIDTH, 4, heads=2),
    "General": lambda: gnn.GeneralConv(WIDTH, 4),
    "General attention": lambda: gnn.GeneralConv(WIDTH, 4, attention=True, heads=2),
    "SAGE std": lambda: gnn.SAGEConv(WIDTH, 4, aggr="std"),
    "SAGE several": lambda: gnn.SAGEConv(WIDTH, 4, aggr=["mean", "max", "std"]),
    "SAGE median": lambda: gnn.SAGEConv(WIDTH, 4, aggr="median"),
    "Graph std": lambda: gnn.GraphConv(WIDTH, 4, aggr="std"),
    "GCN softmax": lambda: gnn.GCNConv(WIDTH, 4, aggr="softmax"),
    "weighing": lambda: Weighing(),
    "of pointers": lambda: OfPointers(),
    "of edges": lambda: OfEdges(),
    "with a product": lambda: WithProduct(),
}
ATTRIBUTES: dict[str, Callable[[], torch.nn.Module]] = {
    "GINE": lambda: gnn.GINEConv(mlp(WIDTH), edge_dim=DIM),
    "ResGated attr": lambda: gnn.ResGatedGraphConv(WIDTH, 4, edge_dim=DIM),
    "CG attr": lambda: gnn.CGConv(WIDTH, dim=DIM),
    "NN": lambda: gnn.NNConv(WIDTH, 4, torch.nn.Linear(DIM, WIDTH * 4)),
    "GMM": lambda: gnn.GMMConv(WIDTH, 4, dim=DIM, kernel_size=2),
}


class Weighing(gnn.MessagePassing):
    """A user's layer, into whose edge_weight PyG puts the values."""

    def __init__(self) -> None:
        super().__init__(aggr="mean")

    def forward(self, x: Tensor, adj_t: Any, edge_weight: OptTensor = None) -> Tensor:
        return self.propagate(adj_t, x=x, edge_weight=edge_weight)

    def message(self, x_i: Tensor, x_j: Tensor, edge_weight: OptTensor) -> Tensor:
        out = (x_i - x_j).sigmoid()
        return out if edge_weight is None else out * edge_weight.view(-1, 1)


class OfPointers(gnn.MessagePassing):
    """A user's layer, that does with ``ptr`` what it likes."""

    def forward(self, x: Tensor, adj_t: Any) -> Tensor:
        return self.propagate(adj_t, x=x)

    def message(self, x_j: Tensor, index: Tensor, ptr: OptTensor, size_i: int) -> Tensor:
        weight = softmax(x_j[:, :1], index, ptr, size_i)
        return x_j * (weight if ptr is None else weight * 2)


class OfEdges(gnn.MessagePassing):
    """A user's layer, that PyG cannot run over a matrix."""

    def forward(self, x: Tensor, adj_t: Any) -> Tensor:
        return self.propagate(adj_t, x=x)

    def message(self, x_j: Tensor, edge_index: Tensor) -> Tensor:
        return x_j * edge_index.size(1)


class WithProduct(gnn.MessagePassing):
    """A user's layer, with a message of its own, and a product that PyG takes for matrices."""

    def forward(self, x: Tensor, adj_t: Any) -> Tensor:
        return self.propagate(adj_t, x=x)

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return x_i * x_j

    def message_and_aggregate(self, adj_t: Any, x: Tensor) -> Tensor:
        return x * 3


LEFT = ("of pointers", "of edges", "with a product")


@pytest.fixture(params=[False, True], ids=["blocks", "compiled"])
def way(request, monkeypatch) -> bool:
    small_blocks.force(monkeypatch, compiled=request.param)
    return request.param


def adjacency(kind: str, at: Tensor, values: Tensor) -> Any:
    if not kind.startswith("SparseTensor"):
        return matrix(kind, at, values)
    found = pytest.importorskip(
        "torch_sparse", reason="torch_sparse is not installed: pip install torch_sparse"
    )
    given = values if kind.endswith("values") else None
    return found.SparseTensor(row=at[0].clone(), col=at[1].clone(), value=given, sparse_sizes=(NODES, NODES))


@pairwise(name=LAYERS, kind=KINDS)
def test_messages_are_pygs(name, kind, way, at, values):
    torch.manual_seed(0)
    model, edges = LAYERS[name]().double(), adjacency(kind, at, values)
    run = step(model, torch.randn(NODES, WIDTH).double(), edges)
    found = reasons(same(run, rtol=1e-8, errors=name == "of edges"))
    # Of COO, PyG gives no pointers either; a softmax inside a message is compiled or not at all.
    left = name in LEFT and not (name == "of pointers" and kind == "coo" and way)
    if not left and not (name == "General attention" and not way):
        assert set(found) == {None}
    else:
        assert None not in found


@pairwise(name=ATTRIBUTES, kind=KINDS)
def test_features_of_edges_are_in_the_order_of_the_values(name, kind, way, at, values):
    torch.manual_seed(0)
    model, edges = ATTRIBUTES[name]().double(), adjacency(kind, at, values)
    x, attributes = torch.randn(NODES, WIDTH).double(), torch.rand(at.size(1), DIM).double()
    fast(step(model, x, edges, attributes), rtol=1e-8)


@pytest.mark.parametrize("kind", ["csr", "coo", "SparseTensor with values"])
def test_gradients_reach_the_values(kind, way, at, values):
    def call(model: torch.nn.Module, x: Tensor, v: Tensor) -> Tensor:
        return model(x, adjacency(kind, at, v))

    run = step(call, Weighing(), torch.randn(NODES, WIDTH).double(), values)
    assert run()[2] is not None
    same(run, rtol=1e-8)


@pairwise(name=["NN", "GMM", "GINE", "CG attr"], kind=["csr", "coo", "SparseTensor with values"])
def test_further_dimensions_of_values_are_features_of_edges(name, kind, way, at):
    def call(model: torch.nn.Module, x: Tensor, v: Tensor) -> Tensor:
        if kind.startswith("SparseTensor"):
            return model(x, adjacency(kind, at, v))
        return model(x, matrix(kind, at, v, shape=(NODES, NODES, DIM)))

    model, attributes = ATTRIBUTES[name]().double(), torch.rand(at.size(1), DIM).double()
    fast(step(call, model, torch.randn(NODES, WIDTH).double(), attributes), rtol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_points_attend_over_a_matrix(kind, at, values, monkeypatch):
    small_blocks.force(monkeypatch, compiled=True)
    torch.manual_seed(0)
    conv = gnn.PointTransformerConv(WIDTH, 4, add_self_loops=False).double()
    x, pos = torch.randn(NODES, WIDTH).double(), torch.randn(NODES, 3).double()
    fast(step(conv, x, pos, adjacency(kind, at, values)), rtol=1e-7, atol=1e-8)


def test_small_graphs_are_left_to_pyg(at, values, monkeypatch):
    monkeypatch.setattr(thresholds, "now", thresholds.ORDINARY)
    conv, x = gnn.ResGatedGraphConv(WIDTH, 4).double(), torch.randn(NODES, WIDTH).double()
    edges = matrix("csr", at, values)
    refused(lambda: conv(x, edges), TOO_SMALL, **BITS)
