"""Layers whose messages are compiled, patched and unpatched: outputs and all gradients, in float64."""

import contextlib
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from torch_geometric import nn as gnn

import onehop
from onehop import thresholds
from tests.integrations.pyg.compiled_layers import (
    COMPILED,
    DIM,
    EDGE_INDEX,
    EDGES,
    NODES,
    WIDTH,
    assert_compiled,
    assert_nothing_of_edges_times_width_is_kept,
    compiled as compiled,
    inputs_of,
)
from tests.integrations.pyg.conftest import make_edges
from tests.integrations.pyg.own_messages import layer_of
from tests.integrations.same import fast, forms, learned, same


def perceptron(width: int, out: int = 4) -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(width, 5), torch.nn.ReLU(inplace=True), torch.nn.Linear(5, out)
    )


# Layers, the columns of their features of edges (0: none), and the steps of their programs.
LAYERS: dict[str, tuple[Callable[[], torch.nn.Module], int, int]] = {
    "GINE": (lambda: gnn.GINEConv(torch.nn.Linear(WIDTH, 4)), WIDTH, 2),
    "GINE projected": (lambda: gnn.GINEConv(torch.nn.Linear(WIDTH, 4), edge_dim=DIM), DIM, 4),
    "GINE mean": (lambda: gnn.GINEConv(torch.nn.Linear(WIDTH, 4), edge_dim=DIM, aggr="mean"), DIM, 4),
    "ResGated": (lambda: gnn.ResGatedGraphConv(WIDTH, 4), 0, 3),
    "ResGated attr": (lambda: gnn.ResGatedGraphConv(WIDTH, 4, edge_dim=DIM), DIM, 9),
    "ResGated tanh": (lambda: gnn.ResGatedGraphConv(WIDTH, 17, act=torch.nn.Tanh()), 0, 3),
    "CG": (lambda: gnn.CGConv(WIDTH), 0, 5),
    "CG attr": (lambda: gnn.CGConv(WIDTH, dim=DIM), DIM, 9),
    "CG mean": (lambda: gnn.CGConv(WIDTH, dim=DIM, aggr="mean", bias=False), DIM, 9),
    "FiLM": (lambda: gnn.FiLMConv(WIDTH, 16), 0, 3),
    "FiLM sum": (lambda: gnn.FiLMConv(WIDTH, 5, aggr="sum", act=torch.nn.ELU()), 0, 3),
    "FiLM linear": (lambda: gnn.FiLMConv(WIDTH, 5, act=None), 0, 2),
    "Edge": (lambda: gnn.EdgeConv(perceptron(2 * WIDTH)), 0, 4),
    "GINE max": (lambda: gnn.GINEConv(torch.nn.Linear(WIDTH, 4), edge_dim=DIM, aggr="max"), DIM, 4),
    "CG min": (lambda: gnn.CGConv(WIDTH, dim=DIM, aggr="min"), DIM, 9),
    "Edge sum": (lambda: gnn.EdgeConv(perceptron(2 * WIDTH), aggr="sum"), 0, 2),
    "Edge mean": (lambda: gnn.EdgeConv(perceptron(2 * WIDTH), aggr="mean"), 0, 2),
    "FeaSt": (lambda: gnn.FeaStConv(WIDTH, 4, heads=3, add_self_loops=False), 0, 14),
    "FeaSt one head": (lambda: gnn.FeaStConv(WIDTH, 17, add_self_loops=False), 0, 9),
    "General": (lambda: gnn.GeneralConv(WIDTH, 4, in_edge_channels=DIM), DIM, 3),
}


def assert_as_pygs(layer, inputs, edges=EDGE_INDEX):
    return assert_compiled(layer, inputs[0], edges, *inputs[1:], rtol=1e-10)


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    make, edge_width, steps = LAYERS[name]
    assert assert_as_pygs(make(), inputs_of(edge_width)).plan == f"{steps} steps on tiles of edges"


WIDE: dict[str, Callable[[int], torch.nn.Module]] = {
    "GINE": lambda dim: gnn.GINEConv(torch.nn.Linear(WIDTH, 4), edge_dim=dim),
    "GINE max": lambda dim: gnn.GINEConv(torch.nn.Linear(WIDTH, 4), edge_dim=dim, aggr="max"),
    "ResGated": lambda dim: gnn.ResGatedGraphConv(WIDTH, WIDTH, edge_dim=dim),
    "CG": lambda dim: gnn.CGConv(WIDTH, dim=dim),
}


@pytest.mark.parametrize("edges", [EDGES, 9])
@pytest.mark.parametrize("name", WIDE)
def test_many_columns_of_edges_are_multiplied_before(name, edges):
    index = make_edges(NODES, NODES, edges)

    def steps(dim: int, least: int) -> int:
        with thresholds.changed(edge_columns=least):
            row = assert_as_pygs(WIDE[name](dim), inputs_of(dim, edges=edges), index)
        return int(row.plan.split()[0])

    assert steps(WIDTH + 2, WIDTH + 2) < steps(WIDTH + 2, WIDTH + 3)
    # The product would be larger than what was passed in.
    assert steps(WIDTH - 1, 1) == steps(WIDTH - 1, WIDTH)


@pytest.mark.parametrize("name", LAYERS)
def test_fewer_edges_than_nodes(name):
    # Products stay with the edges.
    make, edge_width, _ = LAYERS[name]
    assert_as_pygs(make(), inputs_of(edge_width, edges=9), make_edges(NODES, NODES, 9))


@pytest.mark.parametrize("name", ["GINE", "CG", "CG attr", "FiLM"])
def test_turned_round(name):
    make, edge_width, _ = LAYERS[name]
    layer = make()
    layer.flow = "target_to_source"
    assert_as_pygs(layer, inputs_of(edge_width))


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["CG", "CG attr", "Edge sum"])
def test_a_row_that_no_edge_reads_counts_for_nothing(name, number):
    # The last node has no edges; its product with a matrix must not reach the matrix's gradient.
    make, edge_width, _ = LAYERS[name]
    layer, (x, *attr) = make().double(), inputs_of(edge_width)
    x[-1] = number

    def gradients() -> list[Tensor]:
        return learned(layer(x, EDGE_INDEX, *attr)[:-1], layer)[1:]

    assert all(bool(each.isfinite().all()) for each in gradients())
    fast(gradients, rtol=1e-10, atol=1e-11)


def test_bipartite():
    pair, attr = (torch.randn(20, WIDTH).double(), torch.randn(13, 4).double()), torch.randn(90, DIM).double()
    assert_compiled(gnn.CGConv((WIDTH, 4), dim=DIM), pair, make_edges(20, 13, 90), attr)


# Messages that are compiled, each with its own turn of phrase.
MATRIX = torch.linspace(-1, 1, 36, dtype=torch.float64).sin().view(6, 6)
SCALE = torch.nn.Parameter(torch.linspace(0.5, 1.5, 6, dtype=torch.float64))


def softmax_of_heads(self, x_i, x_j):
    shares = (x_i * x_j).view(-1, 3, 2).softmax(1)
    return (shares * x_j.view(-1, 3, 2)).view(-1, 6) + torch.log_softmax(5 * x_j, -1)


def without_gradients(self, x_i, x_j):
    return x_i.detach().sigmoid() * x_j


def in_the_middle(self, x_i, x_j):
    wide = x_i.view(-1, 2, 1, 3) * x_j[:, :4].view(-1, 1, 4, 1) + x_j[:, 3:].view(-1, 1, 1, 3)
    of_heads = wide.sum((1, 3)).tanh()  # [edges, 4]
    return (wide - wide.mean(2, keepdim=True) * of_heads.view(-1, 1, 4, 1)).sum(2).view(-1, 6)


def by_columns(self, x_j):
    first, second = x_j.chunk(2, dim=1)
    return first.sigmoid() * second + x_j[:, 1:4]


def in_place(self, x_i, x_j):
    out = x_i + x_j
    out *= 0.5
    return out.add_(x_j, alpha=2).sigmoid_()


def with_functions(self, x_i, x_j):
    functional = torch.nn.functional
    return functional.silu(x_i) + functional.leaky_relu(x_j, 0.1) - functional.softplus(x_i - x_j, 2.0, 3.0)


def with_gelu(self, x_i, x_j):
    gelu = torch.nn.functional.gelu
    return gelu(3 * x_i) - gelu(x_i * x_j, approximate="tanh") + torch.nn.GELU()(x_j - x_i)


MESSAGES: dict[str, Callable[..., Tensor]] = {
    "softmax of heads": softmax_of_heads,
    "difference alone": lambda self, x_i, x_j: ((x_j - x_i) @ MATRIX).tanh(),
    "difference beside its end": lambda self, x_i, x_j: (
        torch.cat([x_i, x_i + x_j - x_i, x_j], 1) @ MATRIX.repeat(3, 1)
    ).tanh(),
    "a last product": lambda self, x_i, x_j: (x_i * x_j) @ MATRIX,
    "detached": lambda self, x_i, x_j: x_i.detach() * x_j + (x_i * x_j).detach(),
    "without gradients": without_gradients,
    "by heads": lambda self, x_i, x_j: (
        (x_i.view(-1, 2, 3) * x_j.view(-1, 2, 3)).sum(-1, keepdim=True) * x_j.view(-1, 2, 3)
    ).view(-1, 6),
    "by mean of heads": lambda self, x_j: (
        x_j.view(-1, 2, 3) - x_j.view(-1, 2, 3).mean(-1, keepdim=True)
    ).view(-1, 6),
    "one row for all heads": lambda self, x_i, x_j: (x_i.view(-1, 3, 2) * x_j[:, :2].unsqueeze(1)).view(
        -1, 6
    ),
    "in the middle": in_the_middle,
    "by columns": by_columns,
    "in place": in_place,
    "with a parameter": lambda self, x_j: 1 - x_j * SCALE / 2 + SCALE.exp(),
    "with numbers": lambda self, x_i, x_j: (
        (2 / (1 + x_i.abs())) * x_j.clamp(min=-0.5) ** 2 - x_j.clamp(-1, 1)
    ),
    "with functions": with_functions,
    "with gelu": with_gelu,
    "with the error function": lambda self, x_i, x_j: (x_i - x_j).erf() * torch.special.erf(x_j),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages(name):
    def run() -> list[Tensor | None]:
        SCALE.grad = None
        leaf = inputs_of(0)[0].requires_grad_()
        out = layer(leaf, EDGE_INDEX)
        out.square().sum().backward()
        return [out.detach(), leaf.grad, SCALE.grad]

    layer = layer_of(MESSAGES[name])
    calls = same(run, rtol=1e-10, atol=1e-11)
    assert forms(calls) == [COMPILED]
    assert (SCALE.grad is not None) == (name == "with a parameter")
    SCALE.grad = None


def test_a_small_difference_of_large_rows_keeps_its_digits():
    # Each end's product for itself would be rounded to more than the result.
    x = inputs_of(0)[0].float() * 0.01 + 1000
    layer = layer_of(lambda self, x_i, x_j: (x_j - x_i) @ MATRIX.to(x_j.dtype))
    exact = layer(x.double(), EDGE_INDEX)
    error = (layer(x, EDGE_INDEX).double() - exact).abs().max()
    with onehop.patch():
        ours = layer(x, EDGE_INDEX)
        assert onehop.explain(layer, x, EDGE_INDEX).layers[0].form == COMPILED
    assert (ours.double() - exact).abs().max() <= 4 * error


@pytest.mark.parametrize("aggr", ["max", "sum"])
def test_infinite_numbers_meet_as_in_a_difference(aggr):
    (x,) = inputs_of(0)
    x[3, 1], x[7], x[9, 2] = float("inf"), -float("inf"), float("nan")
    layer = gnn.EdgeConv(torch.nn.Linear(2 * WIDTH, 4), aggr=aggr).double()
    expected = layer(x, EDGE_INDEX)
    assert bool(expected.isinf().any())
    assert bool(expected.isnan().any())
    fast(lambda: layer(x, EDGE_INDEX))


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_a_last_linear_step_is_done_once_for_a_destination(reduce):
    (x,) = inputs_of(0)
    layer = gnn.EdgeConv(perceptron(2 * WIDTH), aggr=reduce).double()
    told = str(onehop.explain(layer, x, EDGE_INDEX, verbose=True))
    assert "product" not in told
    assert "the sums or means of messages: times a matrix" in told
    layer.aggr_module = gnn.aggr.MaxAggregation()
    told = str(onehop.explain(layer, x, EDGE_INDEX, verbose=True))
    assert told.count("= product") == 1
    assert "the sums or means of messages" not in told


def test_a_parameter_that_changes_before_the_backward_pass_is_noticed():
    x = inputs_of(0)[0].requires_grad_()

    def stepped() -> None:
        out = layer_of(lambda self, x_j: x_j * SCALE.exp() + (SCALE * SCALE).tanh())(x, EDGE_INDEX)
        with torch.no_grad():
            SCALE.mul_(1.0)
        out.sum().backward()

    for surroundings in (contextlib.nullcontext, onehop.patch):
        with surroundings(), pytest.raises(RuntimeError, match="modified by an inplace operation"):
            stepped()
    SCALE.grad = None


def _through_a_view(self, x_j):
    out = x_j * 2
    view = out.view(-1, 2, 3)
    out += 1
    return view.reshape(-1, 6)


def _many_steps(self, x_j):
    for _ in range(300):
        x_j = x_j.tanh()
    return x_j


# Why messages run in blocks.
IN_BLOCKS: dict[str, Callable[..., Tensor]] = {
    "has views": _through_a_view,
    "uses a concatenation other than in a product": lambda self, x_i, x_j: torch.cat([x_i, x_j], 1).tanh(),
    "uses numbers of nodes": lambda self, x_j, index: x_j * index.view(-1, 1),
    "uses _to_copy": lambda self, x_j: x_j.float().tanh(),
    "multiplies edges by a matrix of 6 x 5000": lambda self, x_i, x_j: (
        (x_i * x_j) @ torch.ones(6, 5000, dtype=x_i.dtype)
    ),
    "has too many steps": _many_steps,
    "uses cumsum": lambda self, x_j: x_j.cumsum(-1),
}


@pytest.mark.parametrize("reason", IN_BLOCKS)
def test_messages_that_run_in_blocks(reason):
    (row,) = onehop.explain(layer_of(IN_BLOCKS[reason]), *inputs_of(0), EDGE_INDEX).layers
    assert row.form == "its message in blocks"
    assert reason in row.plan


def test_other_reductions_and_autocast_run_in_blocks():
    x = inputs_of(0)[0].float()
    (row,) = onehop.explain(gnn.CGConv(WIDTH, aggr="median"), x, EDGE_INDEX).layers
    assert "its reduction, median, is not made of" in row.plan
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (row,) = onehop.explain(gnn.CGConv(WIDTH), x, EDGE_INDEX).layers
    assert "autocast chooses the dtypes" in row.plan
    (row,) = onehop.explain(gnn.CGConv(WIDTH).bfloat16(), x.bfloat16(), EDGE_INDEX).layers
    assert "its messages are of torch.bfloat16" in row.plan


def test_the_program_is_explained():
    layer, (x,) = gnn.CGConv(WIDTH).double(), inputs_of(0)
    told = str(onehop.explain(layer, x, EDGE_INDEX, verbose=True))
    assert "each message:" in told
    assert "(x_i W)1: rows of 6" in told
    assert "sigmoid(v0)" in told
    assert "each message" not in str(onehop.explain(layer, x, EDGE_INDEX))


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("name", ["CG attr", "FiLM"])
def test_activation_checkpointing(name, use_reentrant):
    # Its hooks on saved tensors detach them in the second pass, while the message is traced.
    make, edge_width, _ = LAYERS[name]
    layer, (x, *attr) = make().double(), inputs_of(edge_width)
    x.requires_grad_()

    def run() -> list[Tensor | None]:
        layer.zero_grad()
        x.grad = None
        out = checkpoint(layer, x, EDGE_INDEX, *attr, use_reentrant=use_reentrant)
        out.square().sum().backward()
        return [out.detach(), x.grad, *(each.grad for each in layer.parameters())]

    assert set(forms(fast(run))) == {COMPILED}


def test_nothing_of_edges_times_width_is_kept():
    layer = gnn.CGConv(WIDTH)
    assert_nothing_of_edges_times_width_is_kept(layer)
