"""``extremum`` against the references of both kinds: ties, NaN, destinations without edges, refusals."""

import math

import pytest
import torch

from onehop import ArgumentError, Graph, extremum

# Two edges tie for destination 0; destination 1 has a NaN; 2 has none.
EDGES = torch.tensor([[0, 1, 2, 3, 0], [0, 0, 0, 1, 1]])


@pytest.fixture
def graph() -> Graph:
    return Graph.from_edge_index(EDGES, size=(4, 3))


@pytest.mark.parametrize(
    ("ties", "gradient"), [("share", [0.5, 0.5, 0]), ("first", [1, 0, 0]), ("last", [0, 1, 0])]
)
def test_edges_that_tie_get_what_was_chosen(graph, ties, gradient):
    x = torch.tensor([[7.0], [7.0], [1.0], [0.0]], requires_grad=True)
    extremum(graph, x, ties=ties)[0].sum().backward()
    assert x.grad[:3, 0].tolist() == gradient


@pytest.mark.parametrize(
    ("ties", "expected"),
    [("share", [7, math.nan, 0]), ("first", [7, 7, -math.inf]), ("last", [7, 7, -math.inf])],
)
def test_nan_and_destinations_without_edges(graph, ties, expected):
    x = torch.tensor([[7.0], [7.0], [1.0], [math.nan]])
    torch.testing.assert_close(
        extremum(graph, x, ties=ties)[:, 0], torch.tensor(expected, dtype=x.dtype), equal_nan=True
    )


@pytest.mark.parametrize("ties", ["first", "last"])
def test_second_derivatives_without_edges(ties):
    x = torch.ones(3, 2, requires_grad=True)
    out = extremum(Graph.from_edge_index(torch.empty(2, 0, dtype=torch.long), 3), x, ties=ties)
    (grad,) = torch.autograd.grad(out, x, torch.ones_like(out), create_graph=True)
    assert not grad.any()


def test_shared_ties_promote_and_take_16_bits(graph):
    assert extremum(graph, torch.ones(4, 2, dtype=torch.bfloat16)).dtype is torch.bfloat16
    assert extremum(graph, torch.ones(4, 2, dtype=torch.bfloat16), torch.ones(5)).dtype is torch.float32


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"graph": EDGES}, "graph: expected an onehop.Graph"),
        ({"x": torch.ones(3, 2)}, "x: expected a row for each of the 4 sources"),
        ({"x": torch.ones(4, 2, dtype=torch.int32)}, "x: expected float32, float64, bfloat16 or float16"),
        ({"weight": torch.ones(4)}, "weight: expected one entry for each of the 5 edges"),
        ({"reduce": "sum"}, "reduce: expected max or min, got 'sum'"),
        ({"ties": "all"}, "ties: expected one of share, first, last, got 'all'"),
        ({"x": torch.ones(4, 2).half(), "ties": "first"}, 'with ties="first", expected float32 or float64'),
        ({"weight": torch.ones(5).double(), "ties": "last"}, "a weight of torch.float64; convert them"),
    ],
)
def test_refusals(graph, given, sentence):
    with pytest.raises(ArgumentError, match=sentence):
        extremum(**{"graph": graph, "x": torch.ones(4, 2), **given})


def test_graphs_with_too_many_edges_for_a_winner(graph, monkeypatch):
    monkeypatch.setattr("onehop.ops.arg_extremum.MOST_EDGES", 4)
    with pytest.raises(ArgumentError, match="expected at most 4 edges, got 5"):
        extremum(graph, torch.ones(4, 2), ties="first")
    assert extremum(graph, torch.ones(4, 2)).shape == (3, 2)
