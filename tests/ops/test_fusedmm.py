import pytest
import torch

import onehop
from onehop import ArgumentError, BackendError, Graph, reference
from onehop.ops.fusedmm import KERNELS
from tests.ops.hostile_graphs import HOSTILE


@pytest.mark.parametrize("kernel", KERNELS)
def test_one_tensor_at_both_ends(kernel):
    edge_index = HOSTILE["random"][0]
    graph = Graph.from_edge_index(edge_index)
    x = torch.randn(graph.num_src, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    grads = []
    for function in (
        lambda x: onehop.fusedmm(graph, x, x, kernel),
        lambda x: reference.fusedmm(edge_index, x, x, kernel),
    ):
        leaf = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(function(leaf).pow(2).sum(), leaf, create_graph=True)
        grads.append((first, *torch.autograd.grad(first.pow(2).sum(), leaf)))
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("kernel", KERNELS)
def test_nan_reaches_its_neighbours_alone(kernel):
    graph = Graph.from_edge_index(torch.tensor([[0, 1, 2], [1, 2, 0]]))
    x = torch.ones(3, 40)
    x[0, 7] = float("nan")
    out = onehop.fusedmm(graph, torch.ones(3, 40), x, kernel)
    assert out.isnan().any(1).tolist() == [False, True, False]


def test_large_products_saturate():
    graph = Graph.from_edge_index(torch.tensor([[0], [1]]))
    for sign, limit in ((1.0, 1.0), (-1.0, 0.0)):
        out = onehop.fusedmm(graph, torch.full((2, 4), 1e3), torch.full((2, 4), sign), "sigmoid")
        assert out[1].tolist() == [sign * limit] * 4


def test_a_machine_refuses():
    graph = Graph.from_edge_index(torch.tensor([[0], [1]]))
    with pytest.raises(BackendError, match="fusedmm is not among what pim runs"):
        onehop.fusedmm(graph, torch.ones(2, 2), torch.ones(2, 2), "dot", backend="pim")


def test_the_published_forces():
    """-2 (x - y) / (1 + |x - y|^2) and (1 - sigmoid(x.y)) y, worked out by hand for one edge."""
    graph = Graph.from_edge_index(torch.tensor([[0], [1]]), num_nodes=2)
    x = torch.tensor([[1.0, 2.0], [3.0, -1.0]])
    pull = -2 * onehop.fusedmm(graph, x, x, "tdist")
    torch.testing.assert_close(pull[1], torch.tensor([-4.0, 6.0]) / 14)
    rest = onehop.aggregate(graph, x) - onehop.fusedmm(graph, x, x, "sigmoid")
    torch.testing.assert_close(rest[1], x[0] * (1 - 0.7310585786))


def test_a_node_exerts_no_force_on_itself():
    x = torch.randn(9, 5, generator=torch.Generator().manual_seed(0)) * 100
    graph = Graph.from_edge_index(HOSTILE["self_loops"][0])
    assert onehop.fusedmm(graph, x, x, "tdist").abs().max() < 1e-2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernel": "gauss"}, "kernel: expected one of sigmoid, tdist, dot, got 'gauss'"),
        ({"src": torch.ones(3, 5)}, "dst, src: expected matrices of the same width"),
        ({"src": torch.ones(4, 2)}, "src: expected a row for each of the 3 sources"),
        ({"dst": torch.ones(3, 2, dtype=torch.int32)}, "dst: expected float32"),
        ({"scale": float("inf")}, "scale: expected a finite number, got inf"),
        ({"scale": True}, "scale: expected a finite number, got True"),
    ],
)
def test_mistakes_are_named(arguments, message):
    graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
    with pytest.raises(ArgumentError, match=message):
        onehop.fusedmm(
            **{
                "graph": graph,
                "dst": torch.ones(3, 2),
                "src": torch.ones(3, 2),
                "kernel": "tdist",
                **arguments,
            }
        )
