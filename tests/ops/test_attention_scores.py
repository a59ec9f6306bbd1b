"""Softmax over scores that careless code cannot bear: huge, equal, infinite, NaN, none."""

import pytest
import torch

import onehop
from onehop import Graph, reference
from tests.ops.attention_cases import OPERATORS, check, operands
from tests.ops.hostile_graphs import HOSTILE

INF, NAN = float("inf"), float("nan")


def gat_of_scores(edge_index, scores, num_dst, value):
    """gat whose scores are these [E], positive or not, and its reference."""
    graph = Graph.from_edge_index(edge_index, size=(value.size(0), num_dst))
    zeros = torch.zeros(value.size(0), 1), torch.zeros(num_dst, 1)
    settings = {"negative_slope": 1.0, "edge_score": scores.unsqueeze(1)}
    ours = onehop.gat(graph, value, *zeros, **settings, return_attention_weights=True)
    wide = {"negative_slope": 1.0, "edge_score": scores.double().unsqueeze(1)}
    expected = reference.gat(edge_index, value.double(), *(z.double() for z in zeros), **wide)
    return ours, [t.float() for t in expected]


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("name", ["random", "one_hub"])
def test_huge_scores(operator, name):
    edge_index, num_src, num_dst = HOSTILE[name]
    inputs = operands(operator, edge_index, num_src, num_dst, 2, 5)
    for changed in ("score_src", "x_dst", "query"):
        if changed in inputs:
            inputs[changed] = inputs[changed] * 1e4
    check(operator, edge_index, num_src, num_dst, inputs, with_weights=True)


@pytest.mark.parametrize("height", [0.0, 1e4, -1e4, 3e38])
@pytest.mark.parametrize("edges", [1, 7, 1000, 50000])
def test_equal_scores_weigh_the_same(edges, height):
    edge_index = torch.zeros(2, edges, dtype=torch.long)
    (out, weights), _ = gat_of_scores(edge_index, torch.full((edges,), height), 1, torch.ones(1, 1, 3))
    torch.testing.assert_close(weights, torch.full((edges, 1), 1 / edges))
    torch.testing.assert_close(out, torch.ones(1, 1, 3))


@pytest.mark.parametrize("edges", [3, 40, 5000])
def test_minus_infinity_weighs_nothing(edges):
    edge_index = torch.stack([torch.arange(edges), torch.zeros(edges, dtype=torch.long)])
    scores = torch.randn(edges, generator=torch.Generator().manual_seed(0))
    scores[: edges - 1 : 2] = -INF
    value = torch.randn(edges, 1, 4, generator=torch.Generator().manual_seed(1))
    (out, weights), (expected, same) = gat_of_scores(edge_index, scores, 1, value)
    assert bool((weights[: edges - 1 : 2] == 0).all())
    torch.testing.assert_close(weights, same)
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("edges", [1, 5, 5000])
@pytest.mark.parametrize("what", ["all_minus_infinity", "one_infinity", "one_nan"])
def test_rows_without_a_softmax_are_nan(what, edges):
    # Two rows alike but for their scores: only the first is spoilt.
    edge_index = torch.stack([torch.zeros(2 * edges, dtype=torch.long), torch.arange(2).repeat(edges)])
    scores = torch.zeros(2 * edges)
    if what == "all_minus_infinity":
        scores[::2] = -INF
    else:
        scores[2 * (edges // 2)] = INF if what == "one_infinity" else NAN
    (out, weights), (expected, same) = gat_of_scores(edge_index, scores, 2, torch.ones(1, 1, 3))
    assert bool(out[0].isnan().all())
    torch.testing.assert_close(out, expected, equal_nan=True)
    torch.testing.assert_close(weights, same, equal_nan=True)


@pytest.mark.parametrize("operator", OPERATORS)
def test_nan_stays_in_its_rows_and_heads(operator):
    edge_index, num_src, num_dst = HOSTILE["random"]
    inputs = operands(operator, edge_index, num_src, num_dst, 2, 5)
    name = {"gat": "score_dst", "gatv2": "x_dst", "attention": "query"}[operator]
    inputs[name][3, 1] = NAN
    graph = Graph.from_edge_index(edge_index, num_src)
    out = getattr(onehop, operator)(graph, **inputs)
    wanted = torch.zeros(num_dst, 2, 5, dtype=torch.bool)
    wanted[3, 1] = True
    assert torch.equal(out.isnan(), wanted)
    check(operator, edge_index, num_src, num_dst, inputs)


@pytest.mark.parametrize("operator", OPERATORS)
def test_rows_without_edges_are_zero(operator):
    edge_index, num_src, num_dst = HOSTILE["empty_rows"]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    leaves = operands(operator, edge_index, num_src, num_dst, 2, 5)
    leaves = {name: t.requires_grad_() for name, t in leaves.items()}
    out = getattr(onehop, operator)(graph, **leaves)
    empty = torch.bincount(edge_index[1], minlength=num_dst) == 0
    assert bool((out[empty] == 0).all())
    out.sum().backward()
    for leaf in leaves.values():
        assert bool(leaf.grad.isfinite().all())
