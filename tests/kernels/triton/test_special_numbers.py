"""NaN and infinities in what the GPU kernels read, and shapes that only one kernel knows."""

import pytest
import torch

import onehop
from onehop import reference
from tests.kernels.triton.small_graphs import GRAPHS, graph_of
from tests.ops.attention_cases import OPERATORS, operands
from tests.ops.comparison import compare
from tests.ops.operators import CASES

BAD = pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
# Of numpy, which interprets.
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
EDGES, NUM_SRC, NUM_DST = GRAPHS["one_hub"]


@BAD
@pytest.mark.parametrize("reduce", ["sum", "max", "min"])
@pytest.mark.parametrize("place", ["x", "weight"])
def test_sums_and_extrema(place, reduce, bad):
    inputs = CASES["sum, weighted"].operands(*GRAPHS["one_hub"], 5)
    inputs = {name: each.float() for name, each in inputs.items()}
    inputs[place].view(-1)[::7] = bad
    ours = onehop.aggregate(graph_of("one_hub"), reduce=reduce, backend="triton", **inputs)
    exact = reference.aggregate(EDGES, num_dst=NUM_DST, reduce=reduce, **inputs)
    torch.testing.assert_close(ours, exact, equal_nan=True, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_gradient_of_nan_is_nan_as_in_torch(reduce):
    edge_index = torch.tensor([[0, 1, 2], [0, 0, 1]])
    x = torch.tensor([[float("nan")], [1.0], [2.0]], requires_grad=True)
    graph = onehop.Graph.from_edge_index(edge_index, 3)
    out = onehop.aggregate(graph, x, reduce=reduce, backend="triton")
    (ours,) = torch.autograd.grad(out.sum(), x)
    (exact,) = torch.autograd.grad(reference.aggregate(edge_index, x, 3, reduce=reduce).sum(), x)
    assert torch.equal(ours.isnan(), exact.isnan())
    assert ours[2] == 1


@BAD
@pytest.mark.parametrize("rows", [slice(0, 1), slice(None)], ids=["one", "all"])
def test_edge_softmax(rows, bad):
    scores = 3 * CASES["edge_softmax, heads"].operands(*GRAPHS["one_hub"])["scores"].float()
    scores[rows] = bad
    ours = onehop.edge_softmax(graph_of("one_hub"), scores, backend="triton")
    torch.testing.assert_close(ours, reference.edge_softmax(EDGES, scores, NUM_DST), equal_nan=True)


@BAD
@pytest.mark.parametrize("operator", OPERATORS)
def test_attention(operator, bad):
    inputs = operands(operator, *GRAPHS["one_hub"], 1, 2)
    scores = {"gat": "score_src", "gatv2": "att", "attention": "key"}[operator]
    for rows in (slice(0, 1), slice(None)):
        changed = inputs[scores].clone()
        changed[rows] = bad
        tensors = inputs | {scores: changed}
        ours = getattr(onehop, operator)(graph_of("one_hub"), **tensors, backend="triton")
        exact, _ = getattr(reference, operator)(EDGES, **tensors)
        torch.testing.assert_close(ours, exact, equal_nan=True, rtol=1e-4, atol=1e-5)


# Heads that share a tile, that do not fill it, and that take several tiles each.
@pytest.mark.parametrize("shape", [(1,), (8, 2), (3, 3), (2, 33), (7, 0)], ids=str)
def test_heads_of_dot_products(shape):
    edge_index, num_src, num_dst = GRAPHS["random"]
    generator = torch.Generator().manual_seed(0)
    inputs = {
        name: torch.randn(rows, *shape, generator=generator)
        for name, rows in (("dst", num_dst), ("src", num_src))
    }
    compare(
        lambda **kw: onehop.sddmm(graph_of("random"), backend="triton", **kw),
        lambda **kw: reference.sddmm(edge_index, **kw),
        inputs,
        ["dst", "src"],
    )
