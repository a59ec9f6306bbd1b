"""What the operators say of shapes and dtypes without computing, as programs are compiled: the truth."""

import pytest
import torch

from onehop import Graph
from tests.ops.hostile_graphs import HOSTILE
from tests.pairs import pairwise

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
EDGE_INDEX, NUM_SRC, NUM_DST = HOSTILE["bipartite_wide"]
EDGES = EDGE_INDEX.size(1)
OPS = torch.ops.onehop


@pytest.fixture(scope="module")
def graph():
    return Graph.from_edge_index(EDGE_INDEX, size=(NUM_SRC, NUM_DST))


def wide(dtype):
    """What sums are made in."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def aggregate(graph, dtype, widen):
    vectors = torch.rand(EDGES, dtype=wide(dtype)), None, torch.rand(NUM_DST, dtype=wide(dtype))
    return torch.rand(NUM_SRC, 5).to(dtype), *vectors, graph.number, NUM_DST, False, True, widen, ""


def aggregate_of_destinations(graph, dtype, widen):
    return torch.rand(NUM_DST, 5).to(dtype), None, None, None, graph.number, NUM_SRC, True, False, widen, ""


def sddmm(graph, dtype, widen):
    dst, src = torch.rand(NUM_DST, 2, 5).to(dtype), torch.rand(NUM_SRC, 2, 5).to(dtype)
    return dst, src, graph.number, EDGES, False, widen, ""


def edge_softmax(graph, dtype, widen):
    return torch.rand(EDGES, 3).to(dtype), graph.number, NUM_SRC, NUM_DST, ""


def edge_softmax_grad(graph, dtype, widen):
    return torch.rand(EDGES, 3).to(dtype), *edge_softmax(graph, dtype, widen)


def fusedmm(graph, dtype, widen):
    dst, src = torch.rand(NUM_DST, 5).to(dtype), torch.rand(NUM_SRC, 5).to(dtype)
    return dst, src, graph.number, EDGES, "sigmoid", 0.5, ""


def extremum(graph, dtype, widen, with_ties=True):
    x, weight = torch.rand(NUM_SRC, 5).to(dtype), torch.rand(EDGES, dtype=wide(dtype))
    return x, weight, graph.number, NUM_DST, EDGES, "max", False, widen, with_ties, ""


def extremum_without_ties(graph, dtype, widen):
    return extremum(graph, dtype, widen, with_ties=False)


def extremum_grad(graph, dtype, widen, for_x=True, for_weight=True):
    forward = extremum(graph, dtype, widen)
    out, ties = OPS.extremum(*forward)
    return *forward, out, ties, torch.ones_like(out), [for_x, for_weight]


def extremum_grad_of_features(graph, dtype, widen):
    return extremum_grad(graph, dtype, widen, for_weight=False)


def extremum_grad_of_weights(graph, dtype, widen):
    return extremum_grad(graph, dtype, widen, for_x=False)


def attention(graph, dtype, widen, with_weights=True):
    of_source, of_target = torch.rand(NUM_SRC, 2, 3).to(dtype), torch.rand(NUM_DST, 2, 3).to(dtype)
    # Parameters come in what sums are made in: the functions that users call see to it.
    att, weight = torch.rand(2, 3, dtype=wide(dtype)), torch.rand(6, 4, dtype=wide(dtype))
    operands = of_source, None, of_target, att, torch.rand(EDGES, 4).to(dtype), weight
    return *operands, None, None, graph.number, NUM_DST, EDGES, "gatv2", 0.2, 0.0, with_weights, ""


def attention_without_weights(graph, dtype, widen):
    return attention(graph, dtype, widen, with_weights=False)


def attention_grad(graph, dtype, widen, wanted=(True, False, True, True, True, True)):
    arguments = attention(graph, dtype, widen)
    out, softmax, weights = OPS.attention(*arguments)
    grads = torch.ones_like(out), torch.ones_like(weights)
    return *arguments, out, softmax, weights, *grads, list(wanted)


def attention_grad_of_values(graph, dtype, widen):
    return attention_grad(graph, dtype, widen, wanted=(True, False, False, False, False, False))


CALLS = {
    "aggregate": (aggregate, aggregate_of_destinations),
    "sddmm": (sddmm,),
    "edge_softmax": (edge_softmax,),
    "edge_softmax_grad": (edge_softmax_grad,),
    "fusedmm": (fusedmm,),
    "extremum": (extremum, extremum_without_ties),
    "extremum_grad": (extremum_grad, extremum_grad_of_features, extremum_grad_of_weights),
    "attention": (attention, attention_without_weights),
    "attention_grad": (attention_grad, attention_grad_of_values),
}
CASES = [(name, arguments) for name, several in CALLS.items() for arguments in several]


@pairwise()
@pytest.mark.parametrize("widen", [False, True], ids=["same", "widened"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "arguments"), CASES, ids=[a.__name__ for _, a in CASES])
def test_shapes_and_dtypes_are_known_beforehand(name, arguments, dtype, widen, graph):
    operator = getattr(OPS, name).default
    torch.library.opcheck(operator, arguments(graph, dtype, widen), test_utils="test_faketensor")
