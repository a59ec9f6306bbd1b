"""A recorded operation keeps its graph, so that a backward pass works when the caller has let go of it."""

import gc

import pytest
import torch

import onehop
from onehop import Graph
from onehop.graph import by_number
from onehop.ops.arg_extremum import arg_extremum
from tests.ops.hostile_graphs import HOSTILE

EDGE_INDEX, NODES, _ = HOSTILE["random"]
EDGES = EDGE_INDEX.size(1)
OPERATIONS = {
    "sum": lambda g, t: onehop.aggregate(g, t(NODES, 4)),
    "sum_of_constants_scaled": lambda g, t: onehop.aggregate(g, torch.ones(NODES, 4), t(EDGES)),
    "sum_weighted": lambda g, t: onehop.aggregate(g, t(NODES, 4), t(EDGES)),
    "mean_scaled": lambda g, t: onehop.aggregate(g, t(NODES, 4), reduce="mean", src_scale=t(NODES)),
    "max": lambda g, t: onehop.aggregate(g, t(NODES, 4), t(EDGES), "max"),
    "one_winner": lambda g, t: arg_extremum(g, t(NODES, 4), t(EDGES), "min", False),
    "sddmm": lambda g, t: onehop.sddmm(g, t(NODES, 4), t(NODES, 4)),
    "edge_softmax": lambda g, t: onehop.edge_softmax(g, t(EDGES, 2)),
    "gat": lambda g, t: onehop.gat(g, t(NODES, 2, 3), t(NODES, 2), t(NODES, 2)),
    "gatv2": lambda g, t: onehop.gatv2(g, t(NODES, 2, 3), t(NODES, 2, 3), t(2, 3)),
    "attention": lambda g, t: onehop.attention(g, t(NODES, 2, 3), t(NODES, 2, 3), t(NODES, 2, 3)),
}


def gradients(operation, keep, second=False):
    """Those of all operands, with the graph still there or not; and those of these, on wish."""
    generator = torch.Generator().manual_seed(0)
    leaves = []

    def leaf(*shape):
        leaves.append(torch.rand(*shape, generator=generator, dtype=torch.float64, requires_grad=True))
        return leaves[-1]

    graph = Graph.from_edge_index(EDGE_INDEX, NODES)
    number = graph.number
    out = OPERATIONS[operation](graph, leaf)
    grad = torch.rand(out.shape, generator=generator, dtype=out.dtype, requires_grad=True)
    if not keep:
        del graph
        gc.collect()
        assert by_number(number).num_edges == EDGES
    first = torch.autograd.grad(out, leaves, grad, create_graph=second)
    if not second:
        return first
    del out
    gc.collect()
    loss = sum((each * each).sum() for each in first)
    return torch.autograd.grad(loss, [*leaves, grad], allow_unused=True, materialize_grads=True)


@pytest.mark.parametrize("second", [False, True], ids=["first", "second"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_graph_may_be_dropped_before_the_gradient_is_asked_for(operation, second):
    pairs = zip(gradients(operation, False, second), gradients(operation, True, second), strict=True)
    for dropped, kept in pairs:
        assert torch.equal(dropped, kept)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_graph_is_freed_with_what_was_recorded(operation):
    edge_index = EDGE_INDEX.clone()
    graph = Graph.from_edge_index(edge_index, NODES)
    number = graph.number
    out = OPERATIONS[operation](graph, lambda *shape: torch.rand(*shape, requires_grad=True))
    del graph, out
    gc.collect()
    with pytest.raises(onehop.ArgumentError, match="keep the Graph alive"):
        by_number(number)
