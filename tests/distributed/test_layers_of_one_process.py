"""PyG's layers on the edges of a DistributedGraph of one process, each on a graph that no other has used."""

from collections.abc import Callable

import pytest
import torch

import onehop
from onehop import ArgumentError
from onehop.distributed import DistributedGraph
from onehop.integrations import reports
from tests.distributed.cases import NODES, hostile

pytest.importorskip("torch_geometric")

from torch_geometric import nn as gnn

pytestmark = pytest.mark.usefixtures("one_process")


class Chain(torch.nn.Module):
    """A layer without parameters, after one with."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.first, self.inner = torch.nn.Linear(6, 4), inner

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.inner(self.first(x), edge_index)


class Unannotated(gnn.MessagePassing):
    """A layer for which PyG cannot render a ``propagate``."""

    def forward(self, x, edge_index):  # type: ignore[no-untyped-def]
        return self.propagate(edge_index, x=x, y=x)

    def message(self, x_j, y_i, ptr):  # type: ignore[no-untyped-def]
        return x_j * y_i


class Doubling(Unannotated):
    """One with a ``propagate`` of its own around PyG's."""

    def propagate(self, edge_index, **operands):  # type: ignore[no-untyped-def]
        return 2 * super().propagate(edge_index, **operands)


LAYERS: dict[str, Callable[[], torch.nn.Module]] = {
    "GCN": lambda: gnn.GCNConv(6, 4),
    "GCN improved": lambda: gnn.GCNConv(6, 4, improved=True),
    "GCN without loops": lambda: gnn.GCNConv(6, 4, add_self_loops=False),
    "GCN unnormalised": lambda: gnn.GCNConv(6, 4, normalize=False),
    "GCN mean": lambda: gnn.GCNConv(6, 4, aggr="mean"),
    "GCN max": lambda: gnn.GCNConv(6, 4, aggr="max"),
    "APPNP": lambda: Chain(gnn.APPNP(3, 0.2, dropout=0.0)),
    "SAGE": lambda: gnn.SAGEConv(6, 4),
    "SAGE max": lambda: gnn.SAGEConv(6, 4, aggr="max"),
    "GAT": lambda: gnn.GATConv(6, 4, heads=2),
    "GAT without loops": lambda: gnn.GATConv(6, 4, heads=2, add_self_loops=False),
    "GATv2": lambda: gnn.GATv2Conv(6, 4, heads=2),
    "GATv2 shared": lambda: gnn.GATv2Conv(6, 4, heads=2, share_weights=True),
    "Transformer": lambda: gnn.TransformerConv(6, 4, heads=2),
    "TAG": lambda: gnn.TAGConv(6, 4),
    "unannotated": lambda: Chain(Unannotated()),
    "its own propagate": lambda: Chain(Doubling()),
}
WEIGHTED = ("GCN", "GCN improved", "GCN without loops", "GCN unnormalised")


@pytest.fixture
def graph() -> DistributedGraph:
    return DistributedGraph.from_edge_index(hostile(), NODES, method="greedy")


def run(layer: torch.nn.Module, x: torch.Tensor, *operands: torch.Tensor) -> list[torch.Tensor]:
    """Output, and the gradients to x, to the operands and to all parameters."""
    leaves = [x, *(t for t in operands if t.requires_grad), *layer.parameters()]
    out = layer(x, *operands)
    return [out, *torch.autograd.grad((out * out.cos()).sum(), leaves)]


def compare(name: str, graph: DistributedGraph, weight: torch.Tensor | None = None) -> None:
    torch.manual_seed(0)
    layer, owned = LAYERS[name]().double(), graph.owned_nodes
    x = torch.randn(NODES, 6, dtype=torch.float64)
    whole = [] if weight is None else [weight.clone().requires_grad_()]
    mine = [] if weight is None else [weight[graph.owned_edges].requires_grad_()]
    expected = run(layer, x.clone().requires_grad_(), hostile(), *whole)
    with onehop.patch():
        found = run(layer, x[owned].requires_grad_(), graph.edge_index, *mine)
    for number, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        if number < 2:
            theirs = theirs[owned]
        elif number == 2 and weight is not None:
            theirs = theirs[graph.owned_edges]
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", LAYERS)
def test_one_process_has_pygs_numbers(name: str, graph: DistributedGraph) -> None:
    compare(name, graph)


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_of_edges_and_their_gradients(name: str, graph: DistributedGraph) -> None:
    weight = torch.rand(hostile().size(1), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    compare(name, graph, weight)


@pytest.mark.parametrize("first", ["GAT", "GCN"])
def test_layers_share_what_was_derived_from_a_graph(first: str, graph: DistributedGraph) -> None:
    for name in (first, "GATv2", "GCN", "GAT", "GCN improved"):
        compare(name, graph)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_weights_of_gcn_are_made_for_those_who_compute_with_them(
    dtype: torch.dtype, graph: DistributedGraph
) -> None:
    found = gnn.conv.gcn_conv.gcn_norm(hostile(), None, NODES, dtype=dtype)
    with onehop.patch():
        edges, weights = gnn.conv.gcn_conv.gcn_norm(graph.edge_index, None, NODES, dtype=dtype)
    assert weights.shape == (edges.graph.num_edges,)
    assert weights.dtype is dtype
    before = graph.nbytes
    plain = weights * 1
    assert type(plain) is torch.Tensor
    # Products of scales would have other roundings than PyG's in 16 bits, and are not left to be made.
    assert graph.nbytes - before == (0 if dtype is torch.bfloat16 else plain.nbytes)
    # Each edge by its ends; equal ends have equal weights.
    exact = {tuple(ends): weight for *ends, weight in zip(*found[0].tolist(), found[1].tolist(), strict=True)}
    ends = graph.owned_nodes[edges.graph.ends()].tolist()
    assert [exact[pair] for pair in zip(*ends, strict=True)] == plain.tolist()


@pytest.mark.parametrize("training", [False, True])
def test_dropout_of_attention_weights_is_drawn_in_training_alone(
    training: bool, graph: DistributedGraph
) -> None:
    torch.manual_seed(0)
    layer = gnn.GATv2Conv(6, 4, heads=2, dropout=0.5).double().train(training)
    x = torch.randn(NODES, 6, dtype=torch.float64)[graph.owned_nodes]
    with onehop.patch():
        torch.manual_seed(1)
        first = layer(x, graph.edge_index)
        second = layer(x, graph.edge_index)
        torch.manual_seed(1)
        again = layer(x, graph.edge_index)
    assert torch.equal(first, again)
    assert torch.equal(first, second) != training


def test_features_that_do_not_fit_are_named(graph: DistributedGraph) -> None:
    layer = gnn.SAGEConv(6, 4)
    with onehop.patch(), pytest.raises(ArgumentError, match=f"a row for each of {NODES} owned nodes"):
        layer(torch.ones(NODES - 1, 6), graph.edge_index)


def test_a_class_that_the_patch_leaves_out_is_refused(graph: DistributedGraph) -> None:
    layer, x = gnn.SAGEConv(6, 4), torch.randn(NODES, 6)[graph.owned_nodes]
    with (
        onehop.patch(only=["GCNConv"]),
        pytest.raises(ArgumentError, match=r"SAGEConv cannot run .*: patch\(only=...\) leaves its class out"),
    ):
        layer(x, graph.edge_index)


@pytest.mark.parametrize(("name", "form"), [("SAGE", "source"), ("unannotated", "its messages")])
def test_an_explanation_names_the_part(name: str, form: str, graph: DistributedGraph) -> None:
    layer, x = LAYERS[name](), torch.randn(NODES, 6)[graph.owned_nodes]
    with onehop.patch(), reports.recorded() as calls:
        layer(x, graph.edge_index)
    shown = [(call.form, call.backend, call.plan) for call in calls]
    assert shown == [(f"{form}, over processes", "distributed", "rank 0 of 1")]


@pytest.mark.parametrize("elsewhere", ["features", "weight"])
def test_features_and_weights_on_another_device_are_named(elsewhere: str, graph: DistributedGraph) -> None:
    device = {"features": "cpu", "weight": "cpu", elsewhere: "meta"}
    x = torch.ones(NODES, 6, device=device["features"])
    weight = torch.ones(graph.num_edges, device=device["weight"])
    layer = gnn.GraphConv(6, 4).to(device["features"])
    with (
        onehop.patch(associate=False),
        pytest.raises(ArgumentError, match=r"on cpu, (where its part is|got them on meta)"),
    ):
        layer(x, graph.edge_index, weight)
