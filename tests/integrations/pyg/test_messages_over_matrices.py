"""Layers that run their own message over a sparse matrix, compiled and in blocks: results and gradients."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn
from torch_geometric.typing import OptTensor
from torch_geometric.utils import softmax

import onehop
from onehop import thresholds
from onehop.integrations.pyg.leave import TOO_SMALL
from tests.integrations.pyg import small_blocks
from tests.integrations.pyg.adjacencies import WARNINGS, assert_same, matrix, outcome
from tests.integrations.pyg.layers import DEGREES, DIM, NODES, WIDTH, rowwise_mlp as mlp
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
def test_messages_are_pygs(name, kind, way, at, values, gradients_of, took_fast_path):
    torch.manual_seed(0)
    model, x = LAYERS[name]().double(), torch.randn(NODES, WIDTH).double()
    edges = adjacency(kind, at, values)
    call = lambda m, x: m(x, edges)  # noqa: E731, a test's own
    expected = outcome(lambda: gradients_of(model, call, x=x))
    with onehop.patch():
        found = outcome(lambda: gradients_of(model, call, x=x))
        again = outcome(lambda: gradients_of(model, call, x=x))
        reasons = outcome(lambda: took_fast_path(call, model, x=x))
    assert_same(found, expected, rtol=1e-8, atol=1e-9)
    assert_same(again, expected, rtol=1e-8, atol=1e-9)
    # Of COO, PyG gives no pointers either; a softmax inside a message is compiled or not at all.
    left = name in LEFT and not (name == "of pointers" and kind == "coo" and way)
    if not left and not (name == "General attention" and not way):
        assert set(reasons) == {None}
    elif isinstance(reasons, list):
        assert None not in reasons


@pairwise(name=ATTRIBUTES, kind=KINDS)
def test_features_of_edges_are_in_the_order_of_the_values(
    name, kind, way, at, values, gradients_of, took_fast_path
):
    torch.manual_seed(0)
    model, edges = ATTRIBUTES[name]().double(), adjacency(kind, at, values)
    operands = {"x": torch.randn(NODES, WIDTH).double(), "attr": torch.rand(at.size(1), DIM).double()}
    call = lambda m, x, attr: m(x, edges, attr)  # noqa: E731, a test's own
    expected = gradients_of(model, call, **operands)
    with onehop.patch():
        assert_same(gradients_of(model, call, **operands), expected, rtol=1e-8, atol=1e-9)
        assert took_fast_path(call, model, **operands) == [None]


@pytest.mark.parametrize("kind", ["csr", "coo", "SparseTensor with values"])
def test_gradients_reach_the_values(kind, way, at, values, gradients_of):
    model, x = Weighing(), torch.randn(NODES, WIDTH).double()
    call = lambda m, x, v: m(x, adjacency(kind, at, v))  # noqa: E731, a test's own
    expected = gradients_of(model, call, x=x, v=values)
    assert "gradient of v" in expected
    with onehop.patch():
        assert_same(gradients_of(model, call, x=x, v=values), expected, rtol=1e-8, atol=1e-9)


@pairwise(name=["NN", "GMM", "GINE", "CG attr"], kind=["csr", "coo", "SparseTensor with values"])
def test_further_dimensions_of_values_are_features_of_edges(
    name, kind, way, at, gradients_of, took_fast_path
):
    model, x = ATTRIBUTES[name]().double(), torch.randn(NODES, WIDTH).double()
    attributes = torch.rand(at.size(1), DIM).double()

    def call(model: torch.nn.Module, x: Tensor, v: Tensor) -> Tensor:
        if kind.startswith("SparseTensor"):
            return model(x, adjacency(kind, at, v))
        return model(x, matrix(kind, at, v, shape=(NODES, NODES, DIM)))

    expected = outcome(lambda: gradients_of(model, call, x=x, v=attributes))
    with onehop.patch():
        found = outcome(lambda: gradients_of(model, call, x=x, v=attributes))
        assert_same(found, expected, rtol=1e-8, atol=1e-9)
        assert took_fast_path(call, model, x=x, v=attributes) == [None]


@pytest.mark.parametrize("kind", KINDS)
def test_points_attend_over_a_matrix(kind, at, values, gradients_of, took_fast_path, monkeypatch):
    small_blocks.force(monkeypatch, compiled=True)
    torch.manual_seed(0)
    conv = gnn.PointTransformerConv(WIDTH, 4, add_self_loops=False).double()
    operands = {"x": torch.randn(NODES, WIDTH).double(), "pos": torch.randn(NODES, 3).double()}
    edges = adjacency(kind, at, values)
    call = lambda m, x, pos: m(x, pos, edges)  # noqa: E731, a test's own
    expected = gradients_of(conv, call, **operands)
    with onehop.patch():
        assert_same(gradients_of(conv, call, **operands), expected, rtol=1e-7, atol=1e-8)
        assert took_fast_path(call, conv, **operands) == [None]


def test_small_graphs_are_left_to_pyg(at, values, took_fast_path, monkeypatch):
    monkeypatch.setattr(thresholds, "now", thresholds.ORDINARY)
    conv, x = gnn.ResGatedGraphConv(WIDTH, 4).double(), torch.randn(NODES, WIDTH).double()
    edges = matrix("csr", at, values)
    expected = conv(x, edges)
    with onehop.patch():
        assert torch.equal(conv(x, edges), expected)
        assert took_fast_path(conv, x, edges) == [TOO_SMALL]
