import pytest
import torch

import onehop
from onehop import ArgumentError, Graph, reference
from tests.ops.hostile_graphs import HOSTILE, graph_of

INF, NAN = float("inf"), float("nan")


def scores_for(edges, tail, dtype, scale=3.0):
    generator = torch.Generator().manual_seed(11)
    return (scale * torch.randn(edges, *tail, generator=generator, dtype=torch.float64)).to(dtype)


def on_one_row(scores):
    """The softmax of scores over one destination, and the reference's."""
    scores = torch.as_tensor(scores, dtype=torch.float32)
    edge_index = torch.zeros(2, scores.size(0), dtype=torch.long)
    graph = Graph.from_edge_index(edge_index, 1)
    return onehop.edge_softmax(graph, scores), reference.edge_softmax(edge_index, scores, 1)


@pytest.mark.parametrize(
    "scores",
    [
        [0.0, -INF, 1.0],
        [-INF, -INF],
        [NAN, 1.0, 2.0],
        [1.0, 2.0, NAN],
        [NAN, NAN],
        [INF, 1.0],
        [INF, -INF, INF],
        [3e38, -3e38, 3e38],
        [-3e38, -3e38],
        [88.0, 89.0, 1000.0],
        [0.0] * 9,
        [-200.0, -100.0, 0.0],
    ],
    ids=str,
)
def test_special_scores(scores):
    ours, expected = on_one_row(scores)
    torch.testing.assert_close(ours, expected, equal_nan=True, rtol=1e-6, atol=0)


@pytest.mark.parametrize("special", [-INF, NAN, INF])
@pytest.mark.parametrize("where", ["one", "a_piece", "all"])
def test_special_scores_in_a_cut_row(special, where):
    scores = scores_for(5000, (), torch.float32)
    scores[{"one": slice(2500, 2501), "a_piece": slice(0, 2100), "all": slice(None)}[where]] = special
    ours, expected = on_one_row(scores)
    torch.testing.assert_close(ours, expected, equal_nan=True, rtol=1e-5, atol=0)


def test_shares_add_up_to_one():
    graph = graph_of("empty_rows")
    shares = onehop.edge_softmax(graph, scores_for(30, (2,), torch.float64, scale=100.0))
    sums = torch.zeros(90, 2, dtype=torch.float64).index_add(0, HOSTILE["empty_rows"][0][1], shares)
    torch.testing.assert_close(sums, (graph.in_degrees > 0).double().unsqueeze(1).expand(-1, 2))


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (torch.ones(5), r"scores: expected \[6\] or \[6, heads\]"),
        (torch.ones(6, 1, 1), r"scores: expected \[6\] or \[6, heads\]"),
        (torch.ones(6, dtype=torch.long), "scores: expected float32"),
        (torch.ones(6, 2).to_sparse(), "scores: expected a dense tensor, got a torch.sparse_coo"),
        ([1.0] * 6, "scores: expected a dense tensor, got list"),
    ],
    ids=["too_few", "three_dimensions", "integers", "sparse", "a_list"],
)
def test_bad_scores_are_named(scores, message):
    with pytest.raises(ArgumentError, match=message):
        onehop.edge_softmax(graph_of("multi_edges"), scores)
