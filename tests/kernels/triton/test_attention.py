"""gat, gatv2 and attention by the GPU kernels against the reference: outputs and every gradient, by name."""

from functools import partial

import pytest
import torch

import onehop
from onehop import Graph, reference
from onehop.plans import TritonPlan
from tests.kernels.triton.conftest import PLANS
from tests.kernels.triton.small_graphs import GRAPHS
from tests.ops.attention_cases import OPERATORS, call, operands
from tests.ops.comparison import compare

# Few programs and few turns of their loops, which is what an interpreter is fastest with; hubs are cut.
WIDE = TritonPlan(split_edges=16, short_edges=4, rows_per_program=32, block_features=64, num_warps=1)


@pytest.fixture(autouse=True)
def wide_tiles(small_tiles, use):
    use(WIDE)


def check(operator, name, inputs, with_weights=False, **settings):
    edge_index, num_src, num_dst = GRAPHS[name]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))

    def fast(**tensors):
        function = partial(getattr(onehop, operator), graph, return_attention_weights=with_weights)
        out = call(function, {"backend": "triton", **settings}, **tensors)
        return torch.cat([part.flatten() for part in out]) if with_weights else out

    def naive(**tensors):
        out, weights = call(partial(getattr(reference, operator), edge_index), settings, **tensors)
        return torch.cat([out.flatten(), weights.flatten()]) if with_weights else out

    # Gradients of scores are differences of numbers of this size.
    compare(fast, naive, dict(inputs), list(inputs), magnitude=1.0)


def inputs_for(operator, name, heads, width, **rest):
    return operands(operator, *GRAPHS[name], heads, width, **rest)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize(("heads", "width"), [(1, 1), (1, 63), (5, 3), (3, 32)])
def test_heads_and_widths(heads, width, operator):
    check(operator, "bipartite_wide", inputs_for(operator, "bipartite_wide", heads, width))


@pytest.mark.parametrize("setting", ["plain", "dropout", "mask"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_returned_weights_and_their_gradient(operator, setting):
    edges = GRAPHS["one_hub"][0].size(1)
    settings = {
        "plain": {},
        "dropout": {"dropout": 0.4, "seed": 9},
        "mask": {"edge_mask": torch.arange(2.0 * edges).view(-1, 2) % 3},
    }[setting]
    inputs = inputs_for(operator, "one_hub", 2, 3, edge="rows")
    check(operator, "one_hub", inputs, with_weights=True, **settings)


@pytest.mark.parametrize(
    ("operator", "seed"),
    [*((operator, 2**40 + 17) for operator in OPERATORS), ("gat", 0), ("gat", 2**31), ("gat", 2**63 - 1)],
)
def test_dropout_draws_what_the_reference_draws(seed, operator):
    inputs = inputs_for(operator, "random", 3, 5, dtype=torch.float64)
    check(operator, "random", inputs, dropout=0.6, seed=seed)


def test_dropout_draws_what_the_cpu_draws():
    edge_index, num_src, num_dst = GRAPHS["one_hub"]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    inputs = inputs_for("gat", "one_hub", 4, 3)
    drawn = [
        onehop.gat(graph, **inputs, dropout=0.3, seed=5, return_attention_weights=True, backend=name)[1] != 0
        for name in ("triton", "cpu")
    ]
    assert torch.equal(*drawn)
    assert 0 < int(drawn[0].sum()) < drawn[0].numel()


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")  # of numpy, which interprets
def test_special_scores(bad, operator):
    edge_index, num_src, num_dst = GRAPHS["one_hub"]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    inputs = inputs_for(operator, "one_hub", 1, 2)
    scores = {"gat": "score_src", "gatv2": "att", "attention": "key"}[operator]
    for rows in (slice(0, 1), slice(None)):
        changed = inputs[scores].clone()
        changed[rows] = bad
        tensors = inputs | {scores: changed}
        ours = getattr(onehop, operator)(graph, **tensors, backend="triton")
        exact, _ = getattr(reference, operator)(edge_index, **tensors)
        torch.testing.assert_close(ours, exact, equal_nan=True, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("operator", OPERATORS)
def test_gradients_that_are_expanded_and_one_at_a_time(operator):
    edge_index, num_src, num_dst = GRAPHS["random"]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    inputs = inputs_for(operator, "random", 2, 3, dtype=torch.float64, edge="rows")
    leaves = {name: t.clone().requires_grad_() for name, t in inputs.items()}
    exact, _ = getattr(reference, operator)(edge_index, **leaves)
    for name in inputs:
        one = inputs | {name: inputs[name].clone().requires_grad_()}
        out = getattr(onehop, operator)(graph, **one, backend="triton")
        (ours,) = torch.autograd.grad(out.sum(), one[name])
        (expected,) = torch.autograd.grad(exact.sum(), leaves[name], retain_graph=True)
        torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_same_bits_every_time(operator, use):
    use(PLANS["feature"])
    edge_index, num_src, num_dst = GRAPHS["one_hub"]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    leaves = [t.requires_grad_() for t in inputs_for(operator, "one_hub", 2, 3).values()]
    runs = []
    for _ in range(2):
        out = getattr(onehop, operator)(graph, *leaves, dropout=0.2, seed=1, backend="triton")
        runs.append((out, *torch.autograd.grad(out.sin().sum(), leaves)))
    assert all(torch.equal(*pair) for pair in zip(*runs, strict=True))


@pytest.mark.parametrize(
    ("operator", "edge"), [("gat", "rows"), ("gatv2", "projected"), ("attention", "projected")]
)
def test_gradcheck(operator, edge):
    edge_index = torch.tensor([[0, 0, 1], [1, 1, 0]])
    graph = Graph.from_edge_index(edge_index, 2)
    inputs = operands(operator, edge_index, 2, 2, 1, 2, torch.float64, edge)

    def function(*tensors):
        named = dict(zip(inputs, tensors, strict=True))
        settings = {"dropout": 0.3, "seed": 5, "return_attention_weights": True, "backend": "triton"}
        return call(partial(getattr(onehop, operator), graph), settings, **named)

    leaves = [t.requires_grad_() for t in inputs.values()]
    assert torch.autograd.gradcheck(function, leaves, fast_mode=True)


def test_opcheck():
    edge_index, num_src, num_dst = GRAPHS["multi_edges"]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    inputs = operands("gatv2", edge_index, num_src, num_dst, 2, 3, torch.float64)
    x_src, x_dst, att = (t.requires_grad_() for t in inputs.values())
    tensors = (x_src, None, x_dst, att, None, None, None, None)
    arguments = (*tensors, graph.number, num_dst, graph.num_edges, "gatv2", 0.2, 0.0, True, "triton")
    torch.library.opcheck(torch.ops.onehop.attention.default, arguments)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler imports deprecated names
@pytest.mark.parametrize("operator", OPERATORS)
def test_compiles_as_one_graph(operator):
    edge_index, num_src, num_dst = GRAPHS["random"]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    leaves = [t.requires_grad_() for t in inputs_for(operator, "random", 2, 3).values()]

    def layer(x, *rest):
        return getattr(onehop, operator)(graph, x.relu(), *rest, backend="triton").sin()

    torch._dynamo.reset()
    ours = torch.compile(layer, fullgraph=True, backend="aot_eager")(*leaves)
    expected = layer(*leaves)
    torch.testing.assert_close(ours, expected)
    for a, b in zip(
        torch.autograd.grad(ours.sum(), leaves), torch.autograd.grad(expected.sum(), leaves), strict=True
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_default_plan(operator, use):
    use(None)
    check(operator, "one_hub", inputs_for(operator, "one_hub", 2, 20))
