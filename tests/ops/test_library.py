import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

import onehop
from onehop import ArgumentError, BackendError
from tests.ops.hostile_graphs import graph_of


@pytest.fixture
def graph():
    return graph_of("bipartite_wide")


def leaf(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def test_a_backward_pass_asks_for_the_backend_of_its_call(graph):
    x = leaf(graph.num_src, 5).detach()
    forward = (x, None, graph.number, graph.num_dst, graph.num_edges, "max", False, False, True)
    out, ties = torch.ops.onehop.extremum(*forward, "")
    with pytest.raises(ArgumentError, match="nobody"):
        torch.ops.onehop.extremum_grad(*forward, "nobody", out, ties, torch.ones_like(out), [True, False])


def test_gradients_of_torch_func_are_refused(graph):
    with pytest.raises(BackendError, match=r"onehop\.aggregate.*take torch\.autograd\.grad"):
        torch.func.grad(lambda x: onehop.aggregate(graph, x).sum())(torch.randn(graph.num_src, 3))


def test_derivatives_in_forward_mode_are_refused(graph):
    x = torch.randn(graph.num_src, 3)
    weight = torch.rand(graph.num_edges)
    refused = pytest.raises(BackendError, match=r"forward mode.*take torch\.autograd\.grad")
    with refused:
        torch.func.jvp(lambda x: onehop.aggregate(graph, x), (x,), (torch.ones_like(x),))
    with forward_ad.dual_level():
        with refused:
            onehop.aggregate(graph, forward_ad.make_dual(x, torch.ones_like(x)))
        with refused, torch.no_grad():
            onehop.aggregate(graph, x, weight=forward_ad.make_dual(weight, torch.ones_like(weight)))
        expected = onehop.aggregate(graph, x)  # what has no tangent is as usual
    assert torch.equal(expected, onehop.aggregate(graph, x))


def test_a_graph_that_is_gone_is_named():
    graph = graph_of("random")
    number, x, num_src = graph.number, torch.randn(40, 2), graph.num_src
    del graph
    with pytest.raises(ArgumentError, match="keep the Graph alive"):
        torch.ops.onehop.aggregate(x, None, None, None, number, num_src, False, False, False, "")


def test_an_operand_on_another_device_is_refused_before_it_runs(graph):
    with torch.no_grad(), FakeTensorMode():
        x, weight = torch.empty(graph.num_src, 4, device="cuda:0"), torch.empty(graph.num_edges)
        with pytest.raises(ArgumentError, match="weight: expected it on cuda:0"):
            onehop.aggregate(graph, x, weight)
