"""Messages with a softmax over each destination's edges, and dropout on it, with and without the patch."""

import math
from collections.abc import Callable
from typing import Optional

import pytest
import torch
from torch import Tensor
from torch_geometric import nn as gnn
from torch_geometric.typing import OptTensor
from torch_geometric.utils import scatter, softmax

import onehop
from tests.integrations.pyg import small_blocks
from tests.integrations.pyg.compiled_layers import assert_as_pygs, call_over
from tests.integrations.pyg.conftest import make_edges
from tests.integrations.pyg.own_messages import layer_of

# PyG reads annotations of messages, and does not know the shorter way to write this one.
Size = Optional[int]  # noqa: UP045
NODES, EDGES, WIDTH, DIM = 20, 120, 6, 3


@pytest.fixture(autouse=True)
def _compiled(monkeypatch):
    small_blocks.force(monkeypatch, compiled=True)


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(shape[-1]))


def types(count: int, of: int) -> Tensor:
    return torch.randint(0, of, (count,), generator=torch.Generator().manual_seed(2))


def perceptron(width: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(width, 5), torch.nn.ReLU(), torch.nn.Linear(5, 4))


def general(kind: str, **kwargs):
    return gnn.GeneralConv(WIDTH, 4, attention=True, heads=2, attention_type=kind, **kwargs)


# Layers, and what they take besides the edges: differentiable operands, and others.
LAYERS: dict[str, tuple[Callable[[], torch.nn.Module], dict[str, Tensor], dict[str, Tensor]]] = {
    "PointTransformer": (
        lambda: gnn.PointTransformerConv(WIDTH, 4),
        {"x": numbers(NODES, WIDTH), "pos": numbers(NODES, 3)},
        {},
    ),
    "PointTransformer networks": (
        lambda: gnn.PointTransformerConv(WIDTH, 4, perceptron(3), perceptron(4), add_self_loops=False),
        {"x": numbers(NODES, WIDTH), "pos": numbers(NODES, 3)},
        {},
    ),
    "HEAT": (
        lambda: gnn.HEATConv(WIDTH, 4, 3, 2, 5, DIM, 2, heads=3, aggr="max"),
        {"x": numbers(NODES, WIDTH), "edge_attr": numbers(EDGES, DIM)},
        {"node_type": types(NODES, 3), "edge_type": types(EDGES, 2)},
    ),
    "HEAT one head, std": (
        lambda: gnn.HEATConv(WIDTH, 4, 3, 2, 5, DIM, 2, concat=False, root_weight=False, aggr="std"),
        {"x": numbers(NODES, WIDTH), "edge_attr": numbers(EDGES, DIM)},
        {"node_type": types(NODES, 3), "edge_type": types(EDGES, 2)},
    ),
    "General additive": (lambda: general("additive"), {"x": numbers(NODES, WIDTH)}, {}),
    "General dot product": (
        lambda: general("dot_product", in_edge_channels=DIM, directed_msg=False),
        {"x": numbers(NODES, WIDTH), "edge_attr": numbers(EDGES, DIM)},
        {},
    ),
}


def call_of(others):
    def call(model, **operands):
        edges = make_edges(NODES, NODES, EDGES)
        return model(edge_index=edges, **operands, **others)

    return call


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name, gradients_of):
    make, operands, others = LAYERS[name]
    torch.manual_seed(0)
    assert_as_pygs(make().double(), call_of(others), operands, gradients_of)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 1e3, 0.0])
@pytest.mark.parametrize("name", LAYERS)
def test_extreme_numbers(name, number, gradients_of):
    make, operands, others = LAYERS[name]
    torch.manual_seed(0)
    x = operands["x"].clone()
    x[3, 1:4] = number
    x[-1] = number
    assert_as_pygs(make().double(), call_of(others), {**operands, "x": x}, gradients_of)


# Messages of [E, WIDTH], each with its own turn of phrase.
def plain(self, x_i: Tensor, x_j: Tensor, index: Tensor, ptr: OptTensor, size_i: Size) -> Tensor:
    return softmax((x_i * x_j).sum(-1, keepdim=True), index, ptr, size_i) * x_j


def dropped(self, x_i: Tensor, x_j: Tensor, index: Tensor, size_i: Size) -> Tensor:
    alpha = softmax((x_i * x_j).view(-1, 2, 3).sum(-1), index, num_nodes=size_i)
    alpha = torch.nn.functional.dropout(alpha, p=0.4, training=True)
    return (x_j.view(-1, 2, 3) * alpha.unsqueeze(-1)).view(-1, 6)


def dropped_twice(self, x_i: Tensor, x_j: Tensor, index: Tensor, size_i: Size) -> Tensor:
    x_j = torch.nn.functional.dropout(x_j, p=0.3, training=True)
    torch.nn.functional.dropout(x_i, p=0.5, training=True)
    alpha = softmax(x_i + x_j, index, num_nodes=size_i)
    return x_j * torch.nn.functional.dropout(alpha, p=0.7, training=True, inplace=True)


def softmax_of_a_softmax(self, x_i: Tensor, x_j: Tensor, index: Tensor, size_i: Size) -> Tensor:
    alpha = softmax(x_j - x_i, index, num_nodes=size_i)
    return softmax(3 * alpha * x_i, index, num_nodes=size_i) * x_j + alpha


def degrees(self, x_j: Tensor, index: Tensor, dim_size: Size) -> Tensor:
    ones = x_j * 0 + 1
    return x_j / scatter(ones, index, 0, dim_size, "sum")[index]


def less_the_mean(self, x_j: Tensor, edge_index_i: Tensor, size_i: Size) -> Tensor:
    mean = scatter(x_j, edge_index_i, dim=0, dim_size=size_i) / 3
    return (x_j - mean.index_select(0, edge_index_i)).tanh()


COMPILED = (plain, dropped, dropped_twice, softmax_of_a_softmax, degrees, less_the_mean)


@pytest.mark.parametrize("message", COMPILED, ids=lambda m: m.__name__)
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_messages(message, flow, gradients_of):
    edges = make_edges(NODES, NODES, EDGES)
    layer = layer_of(message)
    layer.flow = flow
    states = []

    def call(model, x):
        out = model(x, edges)
        states.append(torch.get_rng_state())
        return out

    assert_as_pygs(layer, call, {"x": numbers(NODES, WIDTH)}, gradients_of)
    # The generator is afterwards where PyG leaves it.
    assert torch.equal(states[0], states[1])


@pytest.mark.parametrize("message", [plain, softmax_of_a_softmax], ids=lambda m: m.__name__)
def test_gradients_of_gradients(message):
    edges, x, found = make_edges(NODES, NODES, EDGES), numbers(NODES, WIDTH).requires_grad_(), []
    for patched in (False, True):
        with onehop.patch() if patched else torch.enable_grad():
            (grad,) = torch.autograd.grad(layer_of(message)(x, edges).tanh().sum(), x, create_graph=True)
            found.append(torch.autograd.grad(grad.square().sum(), x)[0])
    torch.testing.assert_close(found[1], found[0], rtol=1e-8, atol=1e-9)


def test_one_edge_a_destination_and_repeated_edges(gradients_of):
    nodes = torch.arange(NODES - 1)
    for edges in (torch.stack([nodes, nodes.roll(3)]), torch.stack([nodes, nodes * 0 + 4]).repeat(1, 3)):
        assert_as_pygs(layer_of(plain), call_over(edges), {"x": numbers(NODES, WIDTH)}, gradients_of)


def _without_a_size(self, x_i: Tensor, x_j: Tensor, index: Tensor, ptr: OptTensor) -> Tensor:
    return softmax(x_i * x_j, index, ptr) * x_j


def _of_another_size(self, x_j: Tensor, index: Tensor, ptr: OptTensor, size_i: Size) -> Tensor:
    return softmax(x_j, index, ptr, size_i + 1) * x_j


def _of_the_other_end(self, x_j: Tensor, edge_index_j: Tensor, ptr: OptTensor, size_j: Size) -> Tensor:
    return softmax(x_j, edge_index_j, ptr, size_j) * x_j


def _of_shifted_numbers(self, x_j: Tensor, index: Tensor, ptr: OptTensor, size_i: Size) -> Tensor:
    return softmax(x_j, (index + 1) % size_i, ptr, size_i) * x_j


def _taken_by_other_numbers(self, x_j: Tensor, index: Tensor, ptr: OptTensor, size_i: Size) -> Tensor:
    return x_j + scatter(x_j, index, 0, size_i, "sum")[index.flip(0)]


def _times_the_size(self, x_j: Tensor, index: Tensor, ptr: OptTensor, size_i: Size) -> Tensor:
    return softmax(x_j, index, ptr, size_i) * size_i


def _with_gradients_of_a_largest(self, x_j: Tensor, index: Tensor, ptr: OptTensor, size_i: Size) -> Tensor:
    return x_j - scatter(x_j, index, 0, size_i, "max")[index]


def _over_all_destinations(self, x_j: Tensor, index: Tensor, ptr: OptTensor, size_i: Size) -> Tensor:
    return x_j * scatter(x_j, index, 0, size_i, "sum").sum(0)


REFUSED = (
    _without_a_size,
    _of_another_size,
    _of_the_other_end,
    _of_shifted_numbers,
    _taken_by_other_numbers,
    _times_the_size,
    _with_gradients_of_a_largest,
    _over_all_destinations,
)


@pytest.mark.parametrize("message", REFUSED, ids=lambda m: m.__name__)
def test_what_is_left_to_pyg(message, gradients_of):
    edges, x = make_edges(NODES, NODES, EDGES), numbers(NODES, WIDTH)

    def call(model, x):
        return model(x, edges)

    expected = gradients_of(layer_of(message), call, x=x)
    with onehop.patch(), onehop.integrations.reports.recorded() as calls:
        found = gradients_of(layer_of(message), call, x=x)
    assert calls[0].reason is not None
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor)


def test_small_numbers_of_nodes_are_told_apart(gradients_of):
    # As many nodes as there are edges, or as few destinations as a trial tells of.
    for nodes in (7, 11, 13, 17, 19):
        generator = torch.Generator().manual_seed(nodes)
        edges = torch.randint(0, nodes, (2, nodes), generator=generator)
        assert_as_pygs(layer_of(plain), call_over(edges), {"x": numbers(nodes, WIDTH)}, gradients_of)


def test_nothing_of_edges_times_width_is_kept():
    edges, kept = make_edges(NODES, NODES, 4000), []
    x, pos = torch.randn(NODES, WIDTH, requires_grad=True), torch.randn(NODES, 3)
    with (
        onehop.patch(),
        torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t),
    ):
        gnn.PointTransformerConv(WIDTH, 4, add_self_loops=False)(x, pos, edges).sum().backward()
    assert max(kept) < 4000
