"""gat, gatv2 and attention against the reference: outputs and every gradient, by name."""

import pytest
import torch

import onehop
from onehop import Graph, reference
from tests.ops.attention_cases import EDGES, OPERATORS, check, operands
from tests.ops.hostile_graphs import HOSTILE
from tests.pairs import pairwise


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize(
    ("heads", "width"), [(1, 1), (1, 1024), (5, 1), (8, 128), (16, 64), (64, 16), (100, 3)]
)
def test_heads(heads, width, operator):
    edge_index, num_src, num_dst = HOSTILE["bipartite_wide"]
    inputs = operands(operator, edge_index, num_src, num_dst, heads, width)
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


@pairwise(edge=EDGES, operator=OPERATORS, with_weights=[False, True])
def test_mask(operator, edge, with_weights):
    edge_index, num_src, num_dst = HOSTILE["one_hub"]
    inputs = operands(operator, edge_index, num_src, num_dst, 2, 5, edge=edge)
    mask = torch.rand(edge_index.size(1), 2, generator=torch.Generator().manual_seed(1)).double()
    check(operator, edge_index, num_src, num_dst, inputs, with_weights, edge_mask=mask)


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


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_hub_of_a_million_edges(operator):
    edges, nodes = 1_000_000, 500
    generator = torch.Generator().manual_seed(6)
    source = torch.randint(0, nodes, (edges,), generator=generator)
    edge_index = torch.stack([source, torch.zeros_like(source)])
    inputs = operands(operator, edge_index, nodes, 3, 1, 4)
    check(operator, edge_index, nodes, 3, inputs)
