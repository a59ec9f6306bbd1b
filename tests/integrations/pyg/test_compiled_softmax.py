"""Messages with a softmax over each destination's edges, and dropout on it, with and without the patch."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn
from torch_geometric.utils import scatter, softmax

from tests.integrations.pyg.compiled_layers import (
    DIM,
    EDGE_INDEX,
    EDGES,
    NODES,
    WIDTH,
    assert_compiled,
    assert_nothing_of_edges_times_width_is_kept,
    compiled as compiled,
    numbers,
)
from tests.integrations.pyg.own_messages import layer_of
from tests.integrations.same import fast, refused, step, twice


def types(count: int, of: int) -> Tensor:
    return torch.randint(0, of, (count,), generator=torch.Generator().manual_seed(2))


def perceptron(width: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(width, 5), torch.nn.ReLU(), torch.nn.Linear(5, 4))


def general(kind: str, **kwargs):
    return gnn.GeneralConv(WIDTH, 4, attention=True, heads=2, attention_type=kind, **kwargs)


OF_TYPES = {
    "x": numbers(NODES, WIDTH),
    "edge_attr": numbers(EDGES, DIM),
    "node_type": types(NODES, 3),
    "edge_type": types(EDGES, 2),
}
# Layers, and what they take besides the edges.
LAYERS: dict[str, tuple[Callable[[], torch.nn.Module], dict[str, Tensor]]] = {
    "PointTransformer": (
        lambda: gnn.PointTransformerConv(WIDTH, 4),
        {"x": numbers(NODES, WIDTH), "pos": numbers(NODES, 3)},
    ),
    "PointTransformer networks": (
        lambda: gnn.PointTransformerConv(WIDTH, 4, perceptron(3), perceptron(4), add_self_loops=False),
        {"x": numbers(NODES, WIDTH), "pos": numbers(NODES, 3)},
    ),
    "HEAT": (
        lambda: gnn.HEATConv(WIDTH, 4, 3, 2, 5, DIM, 2, heads=3, aggr="max"),
        OF_TYPES,
    ),
    "HEAT one head, std": (
        lambda: gnn.HEATConv(WIDTH, 4, 3, 2, 5, DIM, 2, concat=False, root_weight=False, aggr="std"),
        OF_TYPES,
    ),
    "General additive": (lambda: general("additive"), {"x": numbers(NODES, WIDTH)}),
    "General dot product": (
        lambda: general("dot_product", in_edge_channels=DIM, directed_msg=False),
        {"x": numbers(NODES, WIDTH), "edge_attr": numbers(EDGES, DIM)},
    ),
}


@pytest.mark.parametrize("number", [None, math.nan, math.inf, -math.inf, 1e3, 0.0])
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name, number):
    make, operands = LAYERS[name]
    torch.manual_seed(0)
    x = operands["x"].clone()
    if number is not None:
        x[3, 1:4] = number
        x[-1] = number
    assert_compiled(make(), edge_index=EDGE_INDEX, **operands | {"x": x})


def dropped(self, x_i, x_j, index, size_i):
    alpha = softmax((x_i * x_j).view(-1, 2, 3).sum(-1), index, num_nodes=size_i)
    alpha = torch.nn.functional.dropout(alpha, p=0.4, training=True)
    return (x_j.view(-1, 2, 3) * alpha.unsqueeze(-1)).view(-1, 6)


def dropped_twice(self, x_i, x_j, index, size_i):
    x_j = torch.nn.functional.dropout(x_j, p=0.3, training=True)
    torch.nn.functional.dropout(x_i, p=0.5, training=True)
    alpha = softmax(x_i + x_j, index, num_nodes=size_i)
    return x_j * torch.nn.functional.dropout(alpha, p=0.7, training=True, inplace=True)


def softmax_of_a_softmax(self, x_i, x_j, index, size_i):
    alpha = softmax(x_j - x_i, index, num_nodes=size_i)
    return softmax(3 * alpha * x_i, index, num_nodes=size_i) * x_j + alpha


def degrees(self, x_j, index, dim_size):
    ones = x_j * 0 + 1
    return x_j / scatter(ones, index, 0, dim_size, "sum")[index]


def less_the_mean(self, x_j, edge_index_i, size_i):
    mean = scatter(x_j, edge_index_i, dim=0, dim_size=size_i) / 3
    return (x_j - mean.index_select(0, edge_index_i)).tanh()


# Messages of [E, WIDTH], each with its own turn of phrase.
MESSAGES: dict[str, Callable[..., Tensor]] = {
    "plain": lambda self, x_i, x_j, index, ptr, size_i: (
        softmax((x_i * x_j).sum(-1, keepdim=True), index, ptr, size_i) * x_j
    ),
    "dropped": dropped,
    "dropped twice": dropped_twice,
    "softmax of a softmax": softmax_of_a_softmax,
    "degrees": degrees,
    "less the mean": less_the_mean,
}


@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_messages(name, flow):
    assert_compiled(layer_of(MESSAGES[name], flow=flow), numbers(NODES, WIDTH), EDGE_INDEX)


@pytest.mark.parametrize("name", ["plain", "softmax of a softmax"])
def test_gradients_of_gradients(name):
    layer, x = layer_of(MESSAGES[name]), numbers(NODES, WIDTH).requires_grad_()
    fast(lambda: twice(layer(x, EDGE_INDEX), x), rtol=1e-8)


NUMBERS = torch.arange(NODES - 1)


@pytest.mark.parametrize(
    "edges",
    [
        torch.stack([NUMBERS, NUMBERS.roll(3)]),
        torch.stack([NUMBERS, NUMBERS * 0 + 4]).repeat(1, 3),
        # As many nodes as there are edges, or as few destinations as a trial tells of.
        *(
            torch.randint(0, nodes, (2, nodes), generator=torch.Generator().manual_seed(nodes))
            for nodes in (7, 11, 13, 17, 19)
        ),
    ],
    ids=["one edge a destination", "repeated", "7", "11", "13", "17", "19"],
)
def test_other_graphs(edges, request):
    count = request.node.callspec.id
    nodes = int(count) if count.isdigit() else NODES
    assert_compiled(layer_of(MESSAGES["plain"]), numbers(nodes, WIDTH), edges)


# Messages that PyG's own code runs.
LEFT: dict[str, Callable[..., Tensor]] = {
    "without a size": lambda self, x_i, x_j, index, ptr: softmax(x_i * x_j, index, ptr) * x_j,
    "of another size": lambda self, x_j, index, ptr, size_i: softmax(x_j, index, ptr, size_i + 1) * x_j,
    "of the other end": lambda self, x_j, edge_index_j, ptr, size_j: (
        softmax(x_j, edge_index_j, ptr, size_j) * x_j
    ),
    "of shifted numbers": lambda self, x_j, index, ptr, size_i: (
        softmax(x_j, (index + 1) % size_i, ptr, size_i) * x_j
    ),
    "taken by other numbers": lambda self, x_j, index, ptr, size_i: (
        x_j + scatter(x_j, index, 0, size_i, "sum")[index.flip(0)]
    ),
    "times the size": lambda self, x_j, index, ptr, size_i: softmax(x_j, index, ptr, size_i) * size_i,
    "with gradients of a largest": lambda self, x_j, index, ptr, size_i: (
        x_j - scatter(x_j, index, 0, size_i, "max")[index]
    ),
    "over all destinations": lambda self, x_j, index, ptr, size_i: (
        x_j * scatter(x_j, index, 0, size_i, "sum").sum(0)
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_to_pyg(name):
    refused(step(layer_of(LEFT[name]), numbers(NODES, WIDTH), EDGE_INDEX), "", rtol=1e-7, atol=1e-7)


def test_nothing_of_edges_times_width_is_kept():
    layer = gnn.PointTransformerConv(WIDTH, 4, add_self_loops=False)
    assert_nothing_of_edges_times_width_is_kept(layer, torch.randn(NODES, 3))
