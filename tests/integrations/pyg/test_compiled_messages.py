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
from onehop.integrations import reports
from tests.integrations.pyg import compiled_layers, small_blocks
from tests.integrations.pyg.conftest import make_edges
from tests.integrations.pyg.own_messages import layer_of

NODES, EDGES, WIDTH, DIM = 20, 120, 6, 3


@pytest.fixture(autouse=True)
def _compiled(monkeypatch):
    small_blocks.force(monkeypatch, compiled=True)


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


def assert_as_pygs(layer, inputs, edges, gradients_of):
    return compiled_layers.assert_as_pygs(
        layer, compiled_layers.call_over(edges), inputs, gradients_of, rtol=1e-10
    )


def inputs_of(edge_width: int, nodes: int = NODES, edges: int = EDGES) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    inputs = {"x": torch.randn(nodes, WIDTH, dtype=torch.float64, generator=generator)}
    if edge_width:
        inputs["edge_attr"] = torch.randn(edges, edge_width, dtype=torch.float64, generator=generator)
    return inputs


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name, gradients_of):
    make, edge_width, steps = LAYERS[name]
    row = assert_as_pygs(
        make().double(), inputs_of(edge_width), make_edges(NODES, NODES, EDGES), gradients_of
    )
    assert row.plan == f"{steps} steps on tiles of edges"


WIDE: dict[str, Callable[[int], torch.nn.Module]] = {
    "GINE": lambda dim: gnn.GINEConv(torch.nn.Linear(WIDTH, 4), edge_dim=dim),
    "GINE max": lambda dim: gnn.GINEConv(torch.nn.Linear(WIDTH, 4), edge_dim=dim, aggr="max"),
    "ResGated": lambda dim: gnn.ResGatedGraphConv(WIDTH, WIDTH, edge_dim=dim),
    "CG": lambda dim: gnn.CGConv(WIDTH, dim=dim),
}


@pytest.mark.parametrize("edges", [EDGES, 9])
@pytest.mark.parametrize("name", WIDE)
def test_many_columns_of_edges_are_multiplied_before(name, edges, gradients_of):
    index = make_edges(NODES, NODES, edges)

    def steps(dim: int, least: int) -> int:
        with thresholds.changed(edge_columns=least):
            layer = WIDE[name](dim).double()
            row = assert_as_pygs(layer, inputs_of(dim, edges=edges), index, gradients_of)
        return int(row.plan.split()[0])

    assert steps(WIDTH + 2, WIDTH + 2) < steps(WIDTH + 2, WIDTH + 3)
    # The product would be larger than what was passed in.
    assert steps(WIDTH - 1, 1) == steps(WIDTH - 1, WIDTH)


@pytest.mark.parametrize("name", LAYERS)
def test_fewer_edges_than_nodes(name, gradients_of):
    # Products stay with the edges.
    make, edge_width, _ = LAYERS[name]
    assert_as_pygs(make().double(), inputs_of(edge_width, edges=9), make_edges(NODES, NODES, 9), gradients_of)


@pytest.mark.parametrize("name", ["GINE", "CG", "CG attr", "FiLM"])
def test_turned_round(name, gradients_of):
    make, edge_width, _ = LAYERS[name]
    layer = make().double()
    layer.flow = "target_to_source"
    assert_as_pygs(layer, inputs_of(edge_width), make_edges(NODES, NODES, EDGES), gradients_of)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["CG", "CG attr", "Edge sum"])
def test_a_row_that_no_edge_reads_counts_for_nothing(name, number):
    # The last node has no edges; its product with a matrix must not reach the matrix's gradient.
    make, edge_width, _ = LAYERS[name]
    layer, inputs = make().double(), inputs_of(edge_width)
    inputs["x"][-1] = number
    edges = make_edges(NODES, NODES, EDGES)
    found = []
    for patched in (False, True):
        with onehop.patch() if patched else torch.enable_grad():
            layer.zero_grad()
            layer(inputs["x"], edges, *list(inputs.values())[1:])[:-1].sum().backward()
        found.append([p.grad.clone() for p in layer.parameters()])
    for ours, theirs in zip(*reversed(found), strict=True):
        assert bool(theirs.isfinite().all())
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)


def test_bipartite(gradients_of):
    edges = make_edges(20, 13, 90)
    layer = gnn.CGConv((WIDTH, 4), dim=DIM).double()
    generator = torch.Generator().manual_seed(2)
    operands = {
        name: torch.randn(shape, dtype=torch.float64, generator=generator)
        for name, shape in (("src", (20, WIDTH)), ("dst", (13, 4)), ("edge_attr", (90, DIM)))
    }

    def call(model, src, dst, edge_attr):
        return model((src, dst), edges, edge_attr)

    expected = gradients_of(layer, call, **operands)
    with onehop.patch():
        found = gradients_of(layer, call, **operands)
        (row,) = onehop.explain(
            layer, (operands["src"], operands["dst"]), edges, operands["edge_attr"]
        ).layers
    assert row.form == "its message, compiled"
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-10, atol=1e-11)


# Messages that are compiled, each with its own turn of phrase.
MATRIX = torch.linspace(-1, 1, 36, dtype=torch.float64).sin().view(6, 6)
SCALE = torch.nn.Parameter(torch.linspace(0.5, 1.5, 6, dtype=torch.float64))


def by_heads(self, x_i: Tensor, x_j: Tensor) -> Tensor:
    return ((x_i.view(-1, 2, 3) * x_j.view(-1, 2, 3)).sum(-1, keepdim=True) * x_j.view(-1, 2, 3)).view(-1, 6)


def by_mean_of_heads(self, x_j: Tensor) -> Tensor:
    return (x_j.view(-1, 2, 3) - x_j.view(-1, 2, 3).mean(-1, keepdim=True)).view(-1, 6)


def one_row_for_all_heads(self, x_i: Tensor, x_j: Tensor) -> Tensor:
    return (x_i.view(-1, 3, 2) * x_j[:, :2].unsqueeze(1)).view(-1, 6)


def in_the_middle(self, x_i: Tensor, x_j: Tensor) -> Tensor:
    wide = x_i.view(-1, 2, 1, 3) * x_j[:, :4].view(-1, 1, 4, 1) + x_j[:, 3:].view(-1, 1, 1, 3)
    of_heads = wide.sum((1, 3)).tanh()  # [edges, 4]
    return (wide - wide.mean(2, keepdim=True) * of_heads.view(-1, 1, 4, 1)).sum(2).view(-1, 6)


def by_columns(self, x_j: Tensor) -> Tensor:
    first, second = x_j.chunk(2, dim=1)
    return first.sigmoid() * second + x_j[:, 1:4]


def in_place(self, x_i: Tensor, x_j: Tensor) -> Tensor:
    out = x_i + x_j
    out *= 0.5
    return out.add_(x_j, alpha=2).sigmoid_()


def with_a_parameter(self, x_j: Tensor) -> Tensor:
    return 1 - x_j * SCALE / 2 + SCALE.exp()


def with_numbers(self, x_i: Tensor, x_j: Tensor) -> Tensor:
    return (2 / (1 + x_i.abs())) * x_j.clamp(min=-0.5) ** 2 - x_j.clamp(-1, 1)


def with_functions(self, x_i: Tensor, x_j: Tensor) -> Tensor:
    functional = torch.nn.functional
    return functional.silu(x_i) + functional.leaky_relu(x_j, 0.1) - functional.softplus(x_i - x_j, 2.0, 3.0)


def with_gelu(self, x_i: Tensor, x_j: Tensor) -> Tensor:
    gelu = torch.nn.functional.gelu
    return gelu(3 * x_i) - gelu(x_i * x_j, approximate="tanh") + torch.nn.GELU()(x_j - x_i)


def with_the_error_function(self, x_i: Tensor, x_j: Tensor) -> Tensor:
    return (x_i - x_j).erf() * torch.special.erf(x_j)


def softmax_of_heads(self, x_i: Tensor, x_j: Tensor) -> Tensor:
    shares = (x_i * x_j).view(-1, 3, 2).softmax(1)
    return (shares * x_j.view(-1, 3, 2)).view(-1, 6) + torch.log_softmax(5 * x_j, -1)


def difference_alone(self, x_i: Tensor, x_j: Tensor) -> Tensor:
    return ((x_j - x_i) @ MATRIX).tanh()


def difference_beside_its_end(self, x_i: Tensor, x_j: Tensor) -> Tensor:
    return (torch.cat([x_i, x_i + x_j - x_i, x_j], 1) @ MATRIX.repeat(3, 1)).tanh()


def a_last_product(self, x_i: Tensor, x_j: Tensor) -> Tensor:
    return (x_i * x_j) @ MATRIX


def detached(self, x_i: Tensor, x_j: Tensor) -> Tensor:
    return x_i.detach() * x_j + (x_i * x_j).detach()


def without_gradients(self, x_i: Tensor, x_j: Tensor) -> Tensor:
    with torch.no_grad():
        scale = x_i.sigmoid()
    return scale * x_j


COMPILED = (
    softmax_of_heads,
    difference_alone,
    difference_beside_its_end,
    a_last_product,
    detached,
    without_gradients,
    by_heads,
    by_mean_of_heads,
    one_row_for_all_heads,
    in_the_middle,
    by_columns,
    in_place,
    with_a_parameter,
    with_numbers,
    with_functions,
    with_gelu,
    with_the_error_function,
)


@pytest.mark.parametrize("message", COMPILED, ids=lambda m: m.__name__)
def test_messages(message, gradients_of):
    edges, x = make_edges(NODES, NODES, EDGES), inputs_of(0)["x"]
    expected = gradients_of(layer_of(message), lambda model, x: model(x, edges), x=x)
    SCALE.grad, theirs = None, SCALE.grad
    with onehop.patch():
        layer = layer_of(message)
        found = gradients_of(layer, lambda model, x: model(x, edges), x=x)
        (row,) = onehop.explain(layer, x, edges).layers
    SCALE.grad, ours = None, SCALE.grad
    assert row.form == "its message, compiled", row
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-10, atol=1e-11)
    assert (ours is None) == (theirs is None) == (message is not with_a_parameter)
    if theirs is not None:
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)


def test_a_small_difference_of_large_rows_keeps_its_digits():
    # Each end's product for itself would be rounded to more than the result.
    edges, x = make_edges(NODES, NODES, EDGES), inputs_of(0)["x"].float() * 0.01 + 1000
    layer = layer_of(lambda self, x_i, x_j: (x_j - x_i) @ MATRIX.to(x_j.dtype))
    exact = layer(x.double(), edges)
    error = (layer(x, edges).double() - exact).abs().max()
    with onehop.patch(), reports.recorded() as calls:
        ours = layer(x, edges)
    assert [call.form for call in calls] == ["its message, compiled"]
    assert (ours.double() - exact).abs().max() <= 4 * error


@pytest.mark.parametrize("aggr", ["max", "sum"])
def test_infinite_numbers_meet_as_in_a_difference(aggr):
    edges, x = make_edges(NODES, NODES, EDGES), inputs_of(0)["x"]
    x[3, 1], x[7], x[9, 2] = float("inf"), -float("inf"), float("nan")
    layer = gnn.EdgeConv(torch.nn.Linear(2 * WIDTH, 4), aggr=aggr).double()
    expected = layer(x, edges)
    assert bool(expected.isinf().any())
    assert bool(expected.isnan().any())
    with onehop.patch():
        torch.testing.assert_close(layer(x, edges), expected, equal_nan=True)


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_a_last_linear_step_is_done_once_for_a_destination(reduce):
    edges, x = make_edges(NODES, NODES, EDGES), inputs_of(0)["x"]
    layer = gnn.EdgeConv(perceptron(2 * WIDTH), aggr=reduce).double()
    told = str(onehop.explain(layer, x, edges, verbose=True))
    assert "product" not in told
    assert "the sums or means of messages: times a matrix" in told
    layer.aggr_module = gnn.aggr.MaxAggregation()
    told = str(onehop.explain(layer, x, edges, verbose=True))
    assert told.count("= product") == 1
    assert "the sums or means of messages" not in told


def test_a_parameter_that_changes_before_the_backward_pass_is_noticed():
    edges, x = make_edges(NODES, NODES, EDGES), inputs_of(0)["x"].requires_grad_()

    def stepped() -> None:
        out = layer_of(lambda self, x_j: x_j * SCALE.exp() + (SCALE * SCALE).tanh())(x, edges)
        with torch.no_grad():
            SCALE.mul_(1.0)
        out.sum().backward()

    for surroundings in (contextlib.nullcontext, onehop.patch):
        with surroundings(), pytest.raises(RuntimeError, match="modified by an inplace operation"):
            stepped()
    SCALE.grad = None


def _through_a_view(self, x_j: Tensor) -> Tensor:
    out = x_j * 2
    view = out.view(-1, 2, 3)
    out += 1
    return view.reshape(-1, 6)


def _concatenated(self, x_i: Tensor, x_j: Tensor) -> Tensor:
    return torch.cat([x_i, x_j], 1).tanh()


def _numbers_of_nodes(self, x_j: Tensor, index: Tensor) -> Tensor:
    return x_j * index.view(-1, 1)


def _another_dtype(self, x_j: Tensor) -> Tensor:
    return x_j.float().tanh()


def _too_large_a_matrix(self, x_i: Tensor, x_j: Tensor) -> Tensor:
    return (x_i * x_j) @ torch.ones(6, 5000, dtype=x_i.dtype)


def _many_steps(self, x_j: Tensor) -> Tensor:
    for _ in range(300):
        x_j = x_j.tanh()
    return x_j


def _running_sums(self, x_j: Tensor) -> Tensor:
    return x_j.cumsum(-1)


# Messages that run in blocks, and why.
IN_BLOCKS = {
    _through_a_view: "has views",
    _concatenated: "uses a concatenation other than in a product",
    _numbers_of_nodes: "uses numbers of nodes",
    _another_dtype: "uses _to_copy",
    _too_large_a_matrix: "multiplies edges by a matrix of 6 x 5000",
    _many_steps: "has too many steps",
    _running_sums: "uses cumsum",
}


@pytest.mark.parametrize("message", IN_BLOCKS, ids=lambda m: m.__name__)
def test_messages_that_run_in_blocks(message):
    layer, x, edges = layer_of(message), inputs_of(0)["x"], make_edges(NODES, NODES, EDGES)
    (row,) = onehop.explain(layer, x, edges).layers
    assert row.form == "its message in blocks"
    assert IN_BLOCKS[message] in row.plan


def test_other_reductions_and_autocast_run_in_blocks():
    x, edges = inputs_of(0)["x"].float(), make_edges(NODES, NODES, EDGES)
    (row,) = onehop.explain(gnn.CGConv(WIDTH, aggr="median"), x, edges).layers
    assert "its reduction, median, is not made of" in row.plan
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (row,) = onehop.explain(gnn.CGConv(WIDTH), x, edges).layers
    assert "autocast chooses the dtypes" in row.plan
    (row,) = onehop.explain(gnn.CGConv(WIDTH).bfloat16(), x.bfloat16(), edges).layers
    assert "its messages are of torch.bfloat16" in row.plan


def test_a_layer_is_looked_at_as_it_is():
    x, edges = inputs_of(0)["x"], make_edges(NODES, NODES, EDGES)
    layer = gnn.FiLMConv(WIDTH, 5).double()
    for act in (torch.nn.ReLU(), torch.nn.Tanh(), torch.nn.LeakyReLU(0.3), None):
        layer.act = act
        expected = layer(x, edges)
        with onehop.patch():
            torch.testing.assert_close(layer(x, edges), expected, rtol=1e-10, atol=1e-11)


def test_the_program_is_explained():
    x, edges = inputs_of(0)["x"], make_edges(NODES, NODES, EDGES)
    layer = gnn.CGConv(WIDTH).double()
    told = str(onehop.explain(layer, x, edges, verbose=True))
    assert "each message:" in told
    assert "(x_i W)1: rows of 6" in told
    assert "sigmoid(v0)" in told
    assert "each message" not in str(onehop.explain(layer, x, edges))


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("name", ["CG", "FiLM"])
def test_activation_checkpointing(name, use_reentrant, gradients_of):
    # Its hooks on saved tensors detach them in the second pass, while the message is traced.
    edges, inputs = make_edges(NODES, NODES, EDGES), inputs_of(DIM)
    layer = (gnn.CGConv(WIDTH, dim=DIM) if name == "CG" else gnn.FiLMConv(WIDTH, WIDTH)).double()
    if name == "FiLM":
        del inputs["edge_attr"]

    def call(model, x, **edge_attr):
        return checkpoint(model, x, edges, *edge_attr.values(), use_reentrant=use_reentrant)

    expected = gradients_of(layer, call, **inputs)
    with onehop.patch(), reports.recorded() as calls:
        found = gradients_of(layer, call, **inputs)
    assert {c.form for c in calls} == {"its message, compiled"}
    for each, tensor in expected.items():
        torch.testing.assert_close(found[each], tensor, rtol=1e-10, atol=1e-11)


def test_nothing_of_edges_times_width_is_kept():
    # What autograd keeps for the backward pass: tensors of nodes and parameters.
    x = torch.randn(NODES, WIDTH, requires_grad=True)
    edges = make_edges(NODES, NODES, 4000)
    kept = []
    with (
        onehop.patch(),
        torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t),
    ):
        gnn.CGConv(WIDTH)(x, edges).sum().backward()
    assert max(kept) < 4000
