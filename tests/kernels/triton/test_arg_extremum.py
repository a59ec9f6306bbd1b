"""Max and min with one winner: NaN, infinities, and winners of rows that are cut, as on the CPU."""

import pytest
import torch

from onehop import Graph
from onehop.calls import ArgExtremum, on
from onehop.kernels.triton.positions import edge_places
from onehop.ops.arg_extremum import ARG_EXTREMUM, arg_extremum
from tests.kernels.triton.small_graphs import graph_of

NAN, INF = float("nan"), float("inf")
BOTH = pytest.mark.parametrize("reduce", ["max", "min"])
TIES = pytest.mark.parametrize("last", [False, True])
# NumPy, which interprets the kernels, warns of what a GPU does silently.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")


def of_hub(reduce, last, x):
    """Extrema and winners of 40 edges, which are cut, and of a row without any; of Triton and of the CPU."""
    graph = Graph.from_edge_index(
        torch.stack([torch.arange(40), torch.zeros(40, dtype=torch.long)]), size=(40, 2)
    )
    calls = (
        on(graph, ArgExtremum, x=x, reduce=reduce, last=last, backend=name) for name in ("triton", "cpu")
    )
    return [ARG_EXTREMUM(call) for call in calls]


@BOTH
@TIES
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_nan_is_passed_over_and_infinities_compete(bad, last, reduce):
    # Multiples of a quarter, of which many tie.
    x = torch.randint(-8, 9, (40, 3), generator=torch.Generator().manual_seed(0)) / 4
    x[::7], x[:, 2] = bad, bad
    ours, cpus = of_hub(reduce, last, x)
    assert torch.equal(ours[0], cpus[0])
    assert torch.equal(ours[1], cpus[1])
    assert ours[1][1].tolist() == [-1] * 3


@BOTH
@TIES
@pytest.mark.parametrize("place", [0, 5, 17, 39])
def test_the_winner_wherever_it_is(place, last, reduce):
    x = torch.zeros(40, 2)
    x[place] = x[20] = 2.0 if reduce == "max" else -2.0
    ours, _ = of_hub(reduce, last, x)
    assert ours[1][0].tolist() == [max(place, 20) if last else min(place, 20)] * 2


def test_an_edge_that_did_not_win_passes_nothing_on_though_its_weight_is_infinite():
    edges = torch.tensor([[0, 1, 2], [0, 0, 0]])
    graph = Graph.from_edge_index(edges, size=(3, 1))
    x, weight = torch.tensor([[1.0], [-1.0], [NAN]]), torch.tensor([2.0, INF, 1.0])
    leaf = x.requires_grad_()
    arg_extremum(graph, leaf, weight, backend="triton")[0].sum().backward()
    assert leaf.grad.tolist() == [[2.0], [0.0], [0.0]]


def test_places_of_edges_are_made_once_for_each_graph():
    graph = graph_of("random")
    places = edge_places(graph, torch.device("cpu"))
    assert edge_places(graph, torch.device("cpu")) is places
    transposed = graph.transposed_csr
    # By both ways from an edge's place to the caller's number of it.
    assert torch.equal(graph.perm[places.long()], transposed.perm)
