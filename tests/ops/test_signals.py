"""Signals on one graph: features with dimensions in front of the nodes."""

from functools import partial

import pytest
import torch

import onehop
from onehop import ArgumentError, Graph, reference
from onehop.ops.aggregate import REDUCTIONS
from onehop.ops.extremum import TIES
from tests.ops.comparison import compare
from tests.ops.hostile_graphs import HOSTILE, graph_of
from tests.pairs import pairwise

# Shapes of signals and of a row, and where the nodes are between them.
SHAPES = {
    "one dimension": ((3,), (5,), -2),
    "two dimensions": ((2, 3), (5,), -2),
    "from the front": ((2, 3), (5,), 2),
    "rows of two dimensions": ((3,), (2, 4), 1),
    "one signal": ((1,), (5,), -2),
    "numbers": ((2, 3), (), -1),
    "many": ((70,), (6,), -2),
}


def inputs_for(graph, signals, row, weights="", dtype=torch.float64):
    edge_index, num_src, num_dst = HOSTILE[graph]
    chance = torch.Generator().manual_seed(0)
    shapes = {"x": (*signals, num_src, *row)}
    if weights:
        shapes["weight"] = (edge_index.size(1), *row[:1]) if weights == "of heads" else (edge_index.size(1),)
    if weights == "and scales":
        shapes |= {"src_scale": (num_src,), "dst_scale": (num_dst,)}
    return {
        name: torch.randn(shape, generator=chance, dtype=torch.float64).to(dtype)
        for name, shape in shapes.items()
    }


def check(graph, inputs, **arguments):
    edge_index, _, num_dst = HOSTILE[graph]
    ours = partial(onehop.aggregate, graph_of(graph), **arguments)
    naive = partial(reference.aggregate, edge_index, num_dst=num_dst, **arguments)
    compare(ours, naive, inputs, list(inputs))


@pairwise(
    graph=[name for name in HOSTILE if name != "no_destinations"],
    shape=list(SHAPES),
    reduce=REDUCTIONS,
    weights=["", "of edges", "and scales"],
    dtype=[torch.float64, torch.float32, torch.float16, torch.bfloat16],
)
def test_each_signal_is_aggregated(graph, shape, reduce, weights, dtype):
    signals, row, node_dim = SHAPES[shape]
    check(graph, inputs_for(graph, signals, row, weights, dtype), reduce=reduce, node_dim=node_dim)


@pairwise(
    signals=[(3,), (2, 2), (1,)],
    heads=[1, 2, 3],
    reduce=REDUCTIONS,
    multiply=["mul", "add", "sigmoid"],
)
def test_weights_of_heads(signals, heads, reduce, multiply):
    # As many signals as heads too, so that an exchange of the two would not show in the shapes.
    inputs = inputs_for("random", signals, (heads, 4), "of heads")
    check("random", inputs, reduce=reduce, multiply=multiply, node_dim=-3)


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("weights", ["", "of edges", "of heads"])
def test_extremum(ties, weights):
    graph = graph_of("multi_edges")
    x, *weight = inputs_for("multi_edges", (2, 4), (2, 3), weights).values()
    x = x.round().requires_grad_()
    out = onehop.extremum(graph, x, *weight, ties=ties, node_dim=-3)
    expected = torch.stack([onehop.extremum(graph, each, *weight, ties=ties) for each in x.flatten(0, 1)])
    assert torch.equal(out, expected.view_as(out))
    pulled = torch.randn_like(out)
    grads = [torch.autograd.grad(each, x, pulled.view_as(each))[0] for each in (out, expected)]
    assert torch.equal(*grads)


@pytest.mark.parametrize("signals", [(0,), (2, 0), (0, 3)])
@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("heads", [False, True])
def test_no_signals(signals, reduce, heads):
    graph = graph_of("bipartite_tall")
    x = torch.randn(*signals, graph.num_src, 2, 3, requires_grad=True)
    weight = torch.ones(200, 2, requires_grad=True) if heads else None
    out = onehop.aggregate(graph, x, weight, reduce, node_dim=-3)
    assert out.shape == (*signals, graph.num_dst, 2, 3)
    out.sum().backward()
    assert x.grad.shape == x.shape
    assert weight is None or not weight.grad.any()


def test_rows_of_nothing_and_no_destinations():
    graph = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.long), size=(4, 0))
    assert onehop.aggregate(graph, torch.ones(3, 4, 5), node_dim=1).shape == (3, 0, 5)
    ring = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]))
    assert onehop.aggregate(ring, torch.ones(3, 2, 0), reduce="max", node_dim=1).shape == (3, 2, 0)


def test_a_negated_view():
    graph = graph_of("random")
    x = torch.randn(3, 40, 8, dtype=torch.float64).to(torch.complex128).conj().imag
    expected = torch.stack([onehop.aggregate(graph, each.clone()) for each in x])
    torch.testing.assert_close(onehop.aggregate(graph, x, node_dim=1), expected, rtol=1e-13, atol=1e-13)


def test_a_leading_row_of_nodes_means_what_it_did():
    """Three dimensions without ``node_dim`` are rows of heads."""
    x = torch.randn(3, 3, 3)
    graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]), 3)
    assert torch.equal(onehop.aggregate(graph, x)[1], x[0])
    assert torch.equal(onehop.aggregate(graph, x, node_dim=-3)[1], x[0])
    assert torch.equal(onehop.aggregate(graph, x, node_dim=1)[:, 1], x[:, 0])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"node_dim": 3}, "node_dim: expected a dimension of x, which has 3, from -3 to 2, got 3"),
        ({"node_dim": -4}, "from -3 to 2, got -4"),
        ({"node_dim": 1.0}, r"got 1\.0"),
        ({"node_dim": True}, "got True"),
        ({"node_dim": None}, "got None"),
        ({"node_dim": 2}, r"x: expected the 4 sources in dimension 2, got shape \[2, 4, 3\]"),
        ({}, r"x: expected a row for each of the 4 sources, got shape \[2, 4, 3\]"),
        (
            {"weight": torch.ones(2, 5), "node_dim": 1},
            r"weight: a weight for each edge and head, \[2, 5\], needs x of shape",
        ),
        ({"weight": torch.ones(5, 2), "node_dim": 1}, r"needs x of shape \[\.\.\., num_src, 2, D\], got"),
        (
            {"x": torch.ones(2, 4, 2, 2, 3), "weight": torch.ones(5, 2), "node_dim": 1},
            r"needs x of shape \[\.\.\., num_src, 2, D\], got",
        ),
        (
            {"weight": torch.ones(2, 4, 5), "node_dim": 1},
            "weight: expected one entry for each of the 5 edges",
        ),
        ({"weight": torch.ones(4), "node_dim": 1}, "weight: expected one entry for each of the 5 edges"),
        ({"x": torch.ones(4), "node_dim": -1}, "x: expected a row for each of the 4 sources"),
        ({"x": torch.tensor(1.0), "node_dim": 1}, "x: expected a row for each of the 4 sources"),
        ({"x": "x.npy", "node_dim": 1}, "x: expected a dense tensor, got str"),
        (
            {"x": torch.ones(2, 4, 3).int(), "node_dim": 1},
            "x: expected float32, float64, bfloat16 or float16",
        ),
        ({"x": torch.ones(2, 4, 3).to_sparse(), "node_dim": 1}, "x: expected a dense tensor"),
    ],
)
@pytest.mark.parametrize("function", [onehop.aggregate, onehop.extremum])
def test_refusals(function, arguments, sentence):
    graph = Graph.from_edge_index(torch.tensor([[0, 1, 2, 3, 0], [0, 0, 0, 1, 1]]), 4)
    with pytest.raises(ArgumentError, match=sentence):
        function(graph, **{"x": torch.ones(2, 4, 3), **arguments})


@pytest.mark.parametrize("field", ["src_scale", "dst_scale"])
def test_scales_of_each_signal_are_refused(field):
    graph = Graph.from_edge_index(torch.tensor([[0], [1]]), 4)
    with pytest.raises(ArgumentError, match=f"{field}: expected one entry for each of the 4"):
        onehop.aggregate(graph, torch.ones(2, 4, 3), node_dim=1, **{field: torch.ones(2, 4)})
