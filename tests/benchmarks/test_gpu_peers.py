"""Who the GPU benchmark measures beside onehop: that each computes what the operator says, on CPU tensors."""

import sys
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from benchmarks.gpu import dgl_calls, turbo_gnn_calls
from benchmarks.gpu.correctness import hostile_edges
from benchmarks.gpu.operators import OPERATORS, Size
from benchmarks.gpu.peers import Peers
from onehop import reference

EDGES, NODES = hostile_edges(torch.device("cpu"), 20)
SIZE = Size(NODES, EDGES.size(1), 2, 5)


def assert_is_the_operator(name, call):
    operator = OPERATORS[name]
    inputs = operator.inputs(SIZE, torch.float32, EDGES.device)
    exact = operator.naive(EDGES, NODES, inputs)
    ours = call(inputs)
    torch.testing.assert_close(ours.view_as(exact), exact)
    grad = torch.randn(exact.shape, generator=torch.Generator().manual_seed(1))
    leaves = list(inputs.values())
    expected = torch.autograd.grad(exact, leaves, grad)
    torch.testing.assert_close(torch.autograd.grad(ours.view_as(exact), leaves, grad), expected)


@pytest.mark.skipif(dgl_calls.missing() is not None, reason="DGL is not installed: make test-dgl has it")
@pytest.mark.parametrize("name", dgl_calls.OPERATORS)
def test_dgl(name):
    assert_is_the_operator(name, dgl_calls.call_of(name, dgl_calls.graph_of(EDGES, NODES)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler imports deprecated names
@pytest.mark.parametrize("names", [["sum", "max"], ["gatv2"]], ids=str)
def test_gather_and_scatter_as_one_compiled_graph(names, monkeypatch):
    """What inductor makes of the graphs is torch's; they are run as they were traced."""
    monkeypatch.setattr("torch.compile", partial(torch.compile, backend="eager"))
    torch._dynamo.reset()
    peers = Peers(EDGES, NODES, compiles=True)
    for name in names:
        assert_is_the_operator(name, peers.calls(OPERATORS[name])["torch-compile"])
    assert "takes long to compile" in Peers(EDGES, NODES).calls(OPERATORS["sum"])["torch-compile"]


class StandIn:
    """turbo_gnn's public functions as its documentation has them, without its extension."""

    def __init__(self, edges, nodes):
        self.edges, self.nodes = edges, nodes
        by_row = edges[1].argsort(stable=True)
        self.forward_indices = edges[0][by_row].int()
        self.forward_indptr = torch.bincount(edges[1], minlength=nodes).cumsum(0)
        self.forward_indptr = torch.cat([torch.zeros(1, dtype=torch.long), self.forward_indptr]).int()

    @classmethod
    def from_edge_list(cls, edge_index, num_nodes, index_dtype):
        assert index_dtype == torch.int32
        return cls(edge_index, num_nodes)

    def to(self, device):
        return self


def spmm_aggr(x, indptr, indices, norm_type, algorithm, block_dim):
    matrix = torch.sparse_csr_tensor(indptr, indices, torch.ones(indices.numel()), (len(indptr) - 1,) * 2)
    total = matrix.to_dense() @ x
    return total if norm_type == "none" else total / indptr.diff().clamp(min=1)[:, None]


def reduction_aggr(graph, x, reduce):
    return reference.aggregate(graph.edges, x, graph.nodes, reduce=reduce)


def gatv2_aggr(graph, x, x_neighbors, attention_weights, negative_slope=0.2):
    source, target = graph.edges
    z = torch.nn.functional.leaky_relu(x[target] + x_neighbors[source], negative_slope)
    weights = reference.edge_softmax(graph.edges, (z * attention_weights).sum(-1), graph.nodes)
    return reference.aggregate(graph.edges, x_neighbors, graph.nodes, weights)


def graph_transformer_aggr(graph, x, Q, K, V, scale):
    source, target = graph.edges
    weights = reference.edge_softmax(graph.edges, (Q[source] * K[target]).sum(-1) * scale, graph.nodes)
    return reference.aggregate(graph.edges, V, graph.nodes, weights)


@pytest.fixture
def turbo_gnn(monkeypatch):
    functions = (spmm_aggr, reduction_aggr, gatv2_aggr, graph_transformer_aggr)
    module = SimpleNamespace(AdjacencyForwardBackwardWithNodeBuckets=StandIn)
    for function in functions:
        setattr(module, function.__name__, function)
    monkeypatch.setitem(sys.modules, "turbo_gnn", module)


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize("name", turbo_gnn_calls.OPERATORS)
def test_turbo_gnn_is_asked_for_the_operator(name, turbo_gnn):
    assert turbo_gnn_calls.missing() is None
    assert_is_the_operator(name, turbo_gnn_calls.call_of(name, turbo_gnn_calls.graph_of(EDGES, NODES)))


@pytest.mark.parametrize("name", OPERATORS)
def test_who_is_not_installed_is_named(name, monkeypatch):
    for module in ("dgl", "turbo_gnn", "torch_geometric"):
        monkeypatch.setitem(sys.modules, module, None)
    calls = Peers(EDGES, NODES).calls(OPERATORS[name])
    absent = {peer: reason for peer, reason in calls.items() if isinstance(reason, str)}
    assert ("dgl cannot be imported" in absent.get("dgl", "")) == (name in dgl_calls.OPERATORS)
    assert ("turbo_gnn" in absent) == (name in turbo_gnn_calls.OPERATORS)
    assert ("pyg-EdgeIndex" in absent) == (name in ("sum", "mean", "max", "min"))
