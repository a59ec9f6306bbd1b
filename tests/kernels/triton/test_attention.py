"""gat, gatv2 and attention by the GPU kernels against the reference: outputs and every gradient, by name."""

import pytest
import torch

import onehop
from onehop.plans import TritonPlan
from tests.kernels.triton.small_graphs import GRAPHS, graph_of
from tests.ops.attention_cases import OPERATORS, check as check_on, operands

# Few programs and few turns of their loops, which is what an interpreter is fastest with; hubs are cut.
WIDE = TritonPlan(split_edges=16, short_edges=4, rows_per_program=32, block_features=64, num_warps=1)


@pytest.fixture(autouse=True)
def wide_tiles(small_tiles, use):
    use(WIDE)


def check(operator, name, inputs, **settings):
    check_on(operator, *GRAPHS[name], inputs, backend="triton", **settings)


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
    graph, inputs = graph_of("one_hub"), inputs_for("gat", "one_hub", 4, 3)
    drawn = [
        onehop.gat(graph, **inputs, dropout=0.3, seed=5, return_attention_weights=True, backend=name)[1] != 0
        for name in ("triton", "cpu")
    ]
    assert torch.equal(*drawn)
    assert 0 < int(drawn[0].sum()) < drawn[0].numel()
