"""Softmax over edges by the GPU kernels against the reference, forward and backward."""

import pytest
import torch

import onehop
from onehop import Graph, reference
from tests.kernels.triton.small_graphs import GRAPHS


def scores_for(name, *heads, dtype=torch.float32):
    generator = torch.Generator().manual_seed(2)
    edges = GRAPHS[name][0].size(1)
    return (3 * torch.randn(edges, *heads, generator=generator, dtype=torch.float64)).to(dtype)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("rows", [slice(0, 1), slice(None)], ids=["one", "all"])
@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")  # of numpy, which interprets
def test_special_scores(rows, bad):
    edge_index, num_src, num_dst = GRAPHS["one_hub"]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    scores = scores_for("one_hub", 2)
    scores[rows] = bad
    ours = onehop.edge_softmax(graph, scores, backend="triton")
    torch.testing.assert_close(ours, reference.edge_softmax(edge_index, scores, num_dst), equal_nan=True)


def test_gradcheck_twice():
    edge_index = torch.tensor([[0, 0, 1], [1, 1, 0]])
    graph = Graph.from_edge_index(edge_index, 2)
    scores = torch.randn(3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def function(scores):
        return onehop.edge_softmax(graph, scores, backend="triton")

    assert torch.autograd.gradcheck(function, [scores.requires_grad_()], fast_mode=True)
    assert torch.autograd.gradgradcheck(function, [scores], fast_mode=True)


def test_opcheck():
    edge_index, num_src, num_dst = GRAPHS["one_hub"]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    args = (scores_for("one_hub", 2).requires_grad_(), graph.number, num_src, num_dst, "triton")
    torch.library.opcheck(torch.ops.onehop.edge_softmax.default, args)
