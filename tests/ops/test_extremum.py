"""``extremum`` of both kinds: ties, NaN, infinities, rows without edges, rows that are cut, refusals."""

import math

import pytest
import torch

from onehop import ArgumentError, Graph, extremum
from onehop.backends.cpu import CpuBackend
from onehop.calls import ArgExtremum, on
from onehop.ops.arg_extremum import arg_extremum
from onehop.plans import CpuPlan
from onehop.reference import arg_extremum as reference
from tests.ops.hostile_graphs import HOSTILE

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


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("reduce", ["max", "min"])
def test_an_infinite_weight_of_an_edge_that_loses(graph, reduce, create_graph):
    x = torch.tensor([[7.0], [-1.0], [1.0], [2.0]])
    weight = torch.tensor([1.0, math.inf, 7.0, 1.0, 1.0])
    sign = 1 if reduce == "max" else -1
    x, weight = (x * sign).requires_grad_(), weight.requires_grad_()
    source, target = EDGES
    messages = x[source] * weight[:, None]
    expected = torch.full((3, 1), -sign * math.inf).scatter_reduce(0, target[:, None], messages, f"a{reduce}")
    found = extremum(graph, x, weight, reduce=reduce)
    assert torch.equal(found[:2], expected[:2])
    for one, other in zip(
        torch.autograd.grad(found[:2].sum(), (x, weight), create_graph=create_graph),
        torch.autograd.grad(expected[:2].sum(), (x, weight)),
        strict=True,
    ):
        torch.testing.assert_close(one, other, equal_nan=True, rtol=0, atol=0)


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


def multiples(*shape, dtype, seed=0):
    """Multiples of a quarter, of which many tie, and whose sums are exact."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-8, 9, shape, generator=generator).to(dtype) / 4


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("reduce", ["max", "min"])
def test_nan_is_passed_over_and_infinities_compete(last, reduce):
    edge_index, num_src, num_dst = HOSTILE["random"]
    x = multiples(num_src, 6, dtype=torch.float32)
    x[::2] = torch.tensor([float("nan"), float("inf"), float("-inf")]).repeat(num_src // 2, 2)
    x[:, 0] = float("nan")
    x[:, 1] = float("-inf") if reduce == "max" else float("inf")
    graph, results = Graph.from_edge_index(edge_index, size=(num_src, num_dst)), []
    for dtype in (torch.float32, torch.float64):
        leaf = x.to(dtype, copy=True).requires_grad_()
        if dtype is torch.float32:
            out = arg_extremum(graph, leaf, None, reduce, last)[0]
        else:
            out = reference(edge_index, leaf, num_dst, None, reduce, last)[0]
        grad = multiples(*out.shape, dtype=dtype, seed=3)
        results.append([out.detach().double(), torch.autograd.grad(out, leaf, grad)[0].double()])
    for ours, exact in zip(*results, strict=True):
        assert torch.equal(ours, exact)


@pytest.mark.parametrize("last", [False, True])
def test_winners_of_a_row_that_is_cut(last):
    """Tiny pieces of work, so that the hub and a row whose pieces have only NaN are put together."""
    edge_index, num_src, num_dst = HOSTILE["one_hub"]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    x = multiples(num_src, 20, dtype=torch.float32)
    x[: num_src // 2] = float("nan")
    x[:, 3], x[:, 4] = float("nan"), float("-inf")
    call = on(graph, ArgExtremum, x=x, reduce="max", last=last)
    out, winner = CpuBackend(CpuPlan(edges_per_item=64)).run(graph, call)
    exact, edges = reference(edge_index, x, num_dst, last=last)
    assert torch.equal(out, exact)
    place = winner.long() if graph.perm is None else graph.perm.long()[winner.long()]
    assert torch.equal(torch.where(winner < 0, -1, place), edges)
