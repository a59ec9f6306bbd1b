"""gat, gatv2 and attention against the reference: outputs and every gradient, hostile scores, dropout."""

import math
from functools import partial
from typing import Any

import pytest
import torch

import onehop
from onehop import Graph, reference
from tests.ops.attention_cases import EDGES, OPERATORS, check, operands
from tests.ops.hostile_graphs import HOSTILE, graph_of
from tests.pairs import pairwise

INF, NAN = float("inf"), float("nan")
EDGE_INDEX = torch.randint(0, 400, (2, 60_000), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize(
    ("heads", "width"), [(1, 1), (1, 1024), (5, 1), (8, 128), (16, 64), (64, 16), (100, 3)]
)
def test_heads(heads, width, operator):
    inputs = operands(operator, *HOSTILE["bipartite_wide"], heads, width)
    check(operator, *HOSTILE["bipartite_wide"], inputs)


@pytest.mark.parametrize("columns", [1, 64, 65, 130])
@pytest.mark.parametrize("operator", OPERATORS[1:])
def test_any_number_of_edge_columns(operator, columns):
    inputs = operands(operator, *HOSTILE["random"], 2, 6, torch.float64, "projected")
    generator = torch.Generator().manual_seed(5)
    inputs["edge_features"] = torch.randn(300, columns, generator=generator).double()
    inputs["edge_weight"] = torch.randn(12, columns, generator=generator).double() / columns
    check(operator, *HOSTILE["random"], inputs)


@pairwise(edge=EDGES, operator=OPERATORS, with_weights=[False, True])
def test_mask(operator, edge, with_weights):
    inputs = operands(operator, *HOSTILE["one_hub"], 2, 5, edge=edge)
    mask = torch.rand(3000, 2, generator=torch.Generator().manual_seed(1)).double()
    check(operator, *HOSTILE["one_hub"], inputs, with_weights, edge_mask=mask)


@pytest.mark.parametrize("operator", OPERATORS)
def test_gradient_of_returned_weights_alone(operator):
    leaves = [
        t.requires_grad_() for t in operands(operator, *HOSTILE["random"], 2, 4, torch.float64).values()
    ]
    _, weights = getattr(onehop, operator)(graph_of("random"), *leaves, return_attention_weights=True)
    _, same = getattr(reference, operator)(HOSTILE["random"][0], *leaves)
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


DEFAULTS: dict[str, dict[str, Any]] = {
    "gat": {"negative_slope": 0.2},
    "gatv2": {"negative_slope": 0.2},
    "attention": {"scale": 1 / math.sqrt(4)},
}


@pytest.mark.parametrize("operator", OPERATORS)
def test_defaults(operator):
    """PyG's slope or scale, no dropout, no weights returned."""
    inputs = operands(operator, *HOSTILE["random"], 2, 4)
    run = partial(getattr(onehop, operator), graph_of("random"), **inputs)
    found = run()
    assert torch.equal(found, run(**DEFAULTS[operator], dropout=0.0))
    assert not torch.allclose(found, run(**{name: 1.5 * each for name, each in DEFAULTS[operator].items()}))


# Scores that careless code cannot bear: huge, equal, infinite, NaN, none.


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
    inputs = operands(operator, *HOSTILE[name], 2, 5)
    for changed in ("score_src", "x_dst", "query"):
        if changed in inputs:
            inputs[changed] = inputs[changed] * 1e4
    check(operator, *HOSTILE[name], inputs, with_weights=True)


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
    inputs = operands(operator, *HOSTILE["random"], 2, 5)
    name = {"gat": "score_dst", "gatv2": "x_dst", "attention": "query"}[operator]
    inputs[name][3, 1] = NAN
    out = getattr(onehop, operator)(graph_of("random"), **inputs)
    wanted = torch.zeros(40, 2, 5, dtype=torch.bool)
    wanted[3, 1] = True
    assert torch.equal(out.isnan(), wanted)
    check(operator, *HOSTILE["random"], inputs)


@pytest.mark.parametrize("operator", OPERATORS)
def test_rows_without_edges_are_zero(operator):
    graph, leaves = graph_of("empty_rows"), operands(operator, *HOSTILE["empty_rows"], 2, 5)
    leaves = {name: t.requires_grad_() for name, t in leaves.items()}
    out = getattr(onehop, operator)(graph, **leaves)
    empty = graph.in_degrees == 0
    assert bool((out[empty] == 0).all())
    out.sum().backward()
    for leaf in leaves.values():
        assert bool(leaf.grad.isfinite().all())


# Dropout by counter: its statistics, its source, and that every sweep draws the same.


@pytest.fixture(scope="module")
def graph():
    return Graph.from_edge_index(EDGE_INDEX, 400)


def weights_of(graph, dropout, seed, heads=4):
    """[E, H] after dropout, where each would be one over the row's edges."""
    x = torch.ones(400, heads, 1)
    zeros = torch.zeros(400, heads)
    _, weights = onehop.gat(graph, x, zeros, zeros, dropout=dropout, seed=seed, return_attention_weights=True)
    return weights


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32 + 5, 2**63 - 1])
def test_mask_is_the_reference_s(graph, seed):
    kept = weights_of(graph, 0.3, seed) != 0
    assert torch.equal(kept, reference.dropout_mask(60_000, 4, 0.3, seed, torch.float32) != 0)


@pytest.mark.parametrize("dropout", [0.01, 0.5, 0.9])
def test_share_of_dropped_weights(graph, dropout):
    dropped = (weights_of(graph, dropout, 3) == 0).double()
    # Five standard deviations of the share of 60,000 independent draws.
    allowed = 5 * (dropout * (1 - dropout) / 60_000) ** 0.5
    assert float((dropped.mean(0) - dropout).abs().max()) < allowed


def test_heads_and_seeds_are_independent(graph):
    drawn = torch.cat([weights_of(graph, 0.5, seed) != 0 for seed in (0, 1, 2)], 1).double()
    correlation = torch.corrcoef(drawn.t()) - torch.eye(12)
    assert float(correlation.abs().max()) < 5 / 60_000**0.5
    neighbours = torch.corrcoef(torch.stack([drawn[1:].flatten(), drawn[:-1].flatten()]))[0, 1]
    assert abs(float(neighbours)) < 5 / (12 * 60_000) ** 0.5


def test_kept_weights_are_scaled(graph):
    dropped, plain = weights_of(graph, 0.75, 4), weights_of(graph, 0.0, None)
    torch.testing.assert_close(dropped[dropped != 0], 4 * plain[dropped != 0])


def test_torch_s_generator_decides_without_a_seed(graph):
    def draw():
        return weights_of(graph, 0.5, None)

    torch.manual_seed(11)
    first, second = draw(), draw()
    torch.manual_seed(11)
    assert torch.equal(draw(), first)
    assert not torch.equal(first, second)


def test_no_dropout_takes_nothing_from_the_generator(graph):
    torch.manual_seed(11)
    state = torch.get_rng_state()
    weights_of(graph, 0.0, None)
    assert torch.equal(torch.get_rng_state(), state)


def test_instruction_sets_drop_the_same(isa, graph):
    kept = weights_of(graph, 0.5, 3) != 0
    assert torch.equal(kept, reference.dropout_mask(60_000, 4, 0.5, 3, torch.float32) != 0)
