"""gat, gatv2 and attention against the reference: outputs and every gradient, by name."""

import math
from functools import partial

import pytest
import torch

import onehop
from onehop import Graph, reference
from tests.ops.attention_cases import EDGES, OPERATORS, call, check, operands
from tests.ops.hostile_graphs import HOSTILE
from tests.pairs import pairwise

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pairwise(name=HOSTILE, operator=OPERATORS, edge=EDGES)
def test_hostile_graphs(name, operator, edge):
    edge_index, num_src, num_dst = HOSTILE[name]
    inputs = operands(operator, edge_index, num_src, num_dst, 3, 5, edge=edge)
    check(operator, edge_index, num_src, num_dst, inputs)


@pairwise(width=[1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 63, 64, 65, 129, 300], operator=OPERATORS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_widths_and_dtypes(width, dtype, operator):
    edge_index, num_src, num_dst = HOSTILE["random"]
    check(operator, edge_index, num_src, num_dst, operands(operator, edge_index, 40, 40, 2, width, dtype))


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize(
    ("heads", "width"), [(1, 1), (1, 1024), (5, 1), (8, 128), (16, 64), (64, 16), (100, 3)]
)
def test_heads(heads, width, operator):
    edge_index, num_src, num_dst = HOSTILE["bipartite_wide"]
    inputs = operands(operator, edge_index, num_src, num_dst, heads, width)
    check(operator, edge_index, num_src, num_dst, inputs)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pairwise(operator=OPERATORS, edge=EDGES[1:])
def test_edge_features_in_every_dtype(operator, edge, dtype):
    edge_index, num_src, num_dst = HOSTILE["bipartite_tall"]
    inputs = operands(operator, edge_index, num_src, num_dst, 2, 17, dtype, edge)
    check(operator, edge_index, num_src, num_dst, inputs)


@pytest.mark.parametrize("columns", [1, 64, 65, 130])
@pytest.mark.parametrize("operator", OPERATORS[1:])
def test_any_number_of_edge_columns(operator, columns):
    edge_index, num_src, num_dst = HOSTILE["random"]
    inputs = operands(operator, edge_index, num_src, num_dst, 2, 6, torch.float64, "projected")
    generator = torch.Generator().manual_seed(5)
    inputs["edge_features"] = torch.randn(edge_index.size(1), columns, generator=generator).double()
    inputs["edge_weight"] = torch.randn(12, columns, generator=generator).double() / columns
    check(operator, edge_index, num_src, num_dst, inputs)


@pytest.mark.parametrize("value_width", [1, 9, 40])
def test_values_of_another_width(value_width):
    edge_index, num_src, num_dst = HOSTILE["random"]
    inputs = operands("attention", edge_index, num_src, num_dst, 2, 12, value_width=value_width)
    check("attention", edge_index, num_src, num_dst, inputs)


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("operator", OPERATORS)
def test_mask(operator, edge):
    edge_index, num_src, num_dst = HOSTILE["one_hub"]
    inputs = operands(operator, edge_index, num_src, num_dst, 2, 5, edge=edge)
    mask = torch.rand(edge_index.size(1), 2, generator=torch.Generator().manual_seed(1)).double()
    check(operator, edge_index, num_src, num_dst, inputs, edge_mask=mask)


@pairwise(operator=OPERATORS, name=["random", "one_hub", "empty_rows"], setting=["plain", "dropout", "mask"])
def test_returned_weights_and_their_gradient(operator, name, setting):
    edge_index, num_src, num_dst = HOSTILE[name]
    inputs = operands(operator, edge_index, num_src, num_dst, 3, 5, edge="rows")
    settings = {
        "plain": {},
        "dropout": {"dropout": 0.4, "seed": 9},
        "mask": {"edge_mask": torch.arange(3.0 * edge_index.size(1)).view(-1, 3) % 2},
    }[setting]
    check(operator, edge_index, num_src, num_dst, inputs, with_weights=True, **settings)


@pytest.mark.parametrize("operator", OPERATORS)
def test_gradient_of_returned_weights_alone(operator):
    edge_index, num_src, num_dst = HOSTILE["random"]
    graph = Graph.from_edge_index(edge_index, num_src)
    inputs = operands(operator, edge_index, num_src, num_dst, 2, 4, torch.float64)
    leaves = [t.requires_grad_() for t in inputs.values()]
    _, weights = getattr(onehop, operator)(graph, *leaves, return_attention_weights=True)
    _, same = getattr(reference, operator)(edge_index, *leaves)
    grad = torch.randn(weights.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    for ours, expected in zip(
        torch.autograd.grad(weights, leaves, grad, allow_unused=True),
        torch.autograd.grad(same, leaves, grad, allow_unused=True),
        strict=True,
    ):
        assert (ours is None) == (expected is None)
        if expected is not None:
            torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("wanted", ["output", "weights", "both"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_first_derivatives_are_the_same_where_a_second_one_may_follow(operator, wanted):
    edge_index, num_src, num_dst = HOSTILE["multi_edges"]
    graph = Graph.from_edge_index(edge_index, num_src)
    for edge in EDGES:
        inputs = operands(operator, edge_index, num_src, num_dst, 2, 3, torch.float64, edge)
        leaves = {name: t.requires_grad_() for name, t in inputs.items()}
        run = partial(getattr(onehop, operator), graph)
        out, weights = call(run, {"return_attention_weights": True}, **leaves)
        loss = {"output": out.square().sum(), "weights": weights.square().sum()}
        loss["both"] = loss["output"] + loss["weights"]
        once = torch.autograd.grad(
            loss[wanted], list(leaves.values()), retain_graph=True, materialize_grads=True
        )
        again = torch.autograd.grad(
            loss[wanted], list(leaves.values()), create_graph=True, materialize_grads=True
        )
        for name, a, b in zip(leaves, again, once, strict=True):
            torch.testing.assert_close(a, b, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("negative_slope", [0.0, -0.5, 1.0, 3.0])
@pytest.mark.parametrize("operator", OPERATORS[:2])
def test_slopes(operator, negative_slope):
    edge_index, num_src, num_dst = HOSTILE["random"]
    inputs = operands(operator, edge_index, num_src, num_dst, 2, 9)
    check(operator, edge_index, num_src, num_dst, inputs, negative_slope=negative_slope)


def test_scale():
    edge_index, num_src, num_dst = HOSTILE["random"]
    inputs = operands("attention", edge_index, num_src, num_dst, 2, 9, edge="rows")
    check("attention", edge_index, num_src, num_dst, inputs, scale=-0.7)
    graph = Graph.from_edge_index(edge_index, num_src)
    default = onehop.attention(graph, **inputs)
    assert torch.equal(default, onehop.attention(graph, **inputs, scale=1 / math.sqrt(9)))


@pytest.mark.parametrize("operator", OPERATORS)
def test_operands_with_gaps(operator):
    edge_index, num_src, num_dst = HOSTILE["bipartite_wide"]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    inputs = operands(operator, edge_index, num_src, num_dst, 3, 5, edge="rows")
    function = getattr(onehop, operator)
    expected = function(graph, **inputs)

    def with_gaps(t):
        return torch.stack([t, t + 1], 1)[:, 0] if t.dim() > 1 else t

    def turned(t):
        return t.transpose(0, -1).contiguous().transpose(0, -1)

    for change in (with_gaps, turned):
        assert torch.equal(function(graph, **{name: change(t) for name, t in inputs.items()}), expected)


@pytest.mark.parametrize("operator", OPERATORS)
def test_gradients_that_are_expanded(operator):
    edge_index, num_src, num_dst = HOSTILE["random"]
    graph = Graph.from_edge_index(edge_index, num_src)
    inputs = operands(operator, edge_index, num_src, num_dst, 2, 4, torch.float64)
    leaves = [t.requires_grad_() for t in inputs.values()]
    ours = torch.autograd.grad(getattr(onehop, operator)(graph, *leaves).sum(), leaves)
    expected = torch.autograd.grad(getattr(reference, operator)(edge_index, *leaves)[0].sum(), leaves)
    for a, b in zip(ours, expected, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("operator", OPERATORS)
def test_one_gradient_at_a_time(operator):
    edge_index, num_src, num_dst = HOSTILE["random"]
    graph = Graph.from_edge_index(edge_index, num_src)
    for edge in EDGES:
        inputs = operands(operator, edge_index, num_src, num_dst, 2, 4, torch.float64, edge)
        everything = {name: t.clone().requires_grad_() for name, t in inputs.items()}
        out = call(lambda **kw: getattr(onehop, operator)(graph, **kw), {}, **everything)
        grads = dict(zip(everything, torch.autograd.grad(out.sin().sum(), everything.values()), strict=True))
        for name in inputs:
            one = inputs | {name: inputs[name].clone().requires_grad_()}
            out = call(lambda **kw: getattr(onehop, operator)(graph, **kw), {}, **one)
            assert torch.equal(torch.autograd.grad(out.sin().sum(), one[name])[0], grads[name]), name


def test_mixed_dtypes_promote():
    edge_index, num_src, num_dst = HOSTILE["random"]
    inputs = operands("gatv2", edge_index, num_src, num_dst, 2, 4, torch.bfloat16)
    inputs["att"] = inputs["att"].float()
    graph = Graph.from_edge_index(edge_index, num_src)
    assert onehop.gatv2(graph, **inputs).dtype == torch.float32
    inputs["x_dst"] = inputs["x_dst"].double()
    assert onehop.gatv2(graph, **inputs).dtype == torch.float64


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_hub_of_a_million_edges(operator):
    edges, nodes = 1_000_000, 500
    generator = torch.Generator().manual_seed(6)
    source = torch.randint(0, nodes, (edges,), generator=generator)
    edge_index = torch.stack([source, torch.zeros_like(source)])
    inputs = operands(operator, edge_index, nodes, 3, 1, 4)
    check(operator, edge_index, nodes, 3, inputs)


@pytest.mark.parametrize("operator", OPERATORS)
def test_gradcheck(operator):
    edge_index, num_src, num_dst = HOSTILE["multi_edges"]
    graph = Graph.from_edge_index(edge_index, num_src)
    for edge in EDGES:
        inputs = operands(operator, edge_index, num_src, num_dst, 2, 3, torch.float64, edge)

        def function(*tensors, names=tuple(inputs)):
            named = dict(zip(names, tensors, strict=True))
            run = getattr(onehop, operator)
            settings = {"dropout": 0.3, "seed": 5, "return_attention_weights": True}
            return call(lambda **kw: run(graph, **kw), settings, **named)

        assert torch.autograd.gradcheck(function, [t.requires_grad_() for t in inputs.values()])


@pytest.mark.parametrize("operator", OPERATORS)
def test_second_derivatives(operator):
    edge_index, num_src, num_dst = HOSTILE["multi_edges"]
    graph = Graph.from_edge_index(edge_index, num_src)
    leaves = operands(operator, edge_index, num_src, num_dst, 1, 2, torch.float64).values()
    function = getattr(onehop, operator)
    settings = {"dropout": 0.3, "seed": 5, "return_attention_weights": True}
    assert torch.autograd.gradgradcheck(
        lambda *tensors: function(graph, *tensors, **settings), [t.requires_grad_() for t in leaves]
    )
