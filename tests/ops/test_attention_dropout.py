"""Dropout by counter: its statistics, where it comes from, and that every sweep draws the same."""

import pytest
import torch

import onehop
from onehop import Graph, reference

EDGE_INDEX = torch.randint(0, 400, (2, 60_000), generator=torch.Generator().manual_seed(0))


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
