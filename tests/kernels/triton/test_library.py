"""What torch asks of registered operators, through the GPU kernels."""

import pytest
import torch

import onehop
from onehop import Graph
from onehop.plans import TritonPlan

EDGE_INDEX, NUM_SRC, NUM_DST = torch.tensor([[0, 1, 3, 1, 2], [0, 0, 0, 1, 1]]), 4, 2


@pytest.fixture
def graph():
    return Graph.from_edge_index(EDGE_INDEX, size=(NUM_SRC, NUM_DST))


def leaf(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


def test_opcheck_aggregate(graph):
    vectors = leaf(graph.num_edges), leaf(NUM_SRC), leaf(NUM_DST)
    args = (leaf(NUM_SRC, 3), *vectors, graph.number, NUM_DST, False, True, False, "triton")
    torch.library.opcheck(torch.ops.onehop.aggregate.default, args)


def test_opcheck_extremum(graph):
    args = (leaf(NUM_SRC, 3), leaf(graph.num_edges), graph.number, NUM_DST, graph.num_edges)
    args = (*args, "max", False, False, True, "triton")
    torch.library.opcheck(torch.ops.onehop.extremum.default, args)


def test_opcheck_sddmm(graph):
    args = (leaf(NUM_DST, 2, 3), leaf(NUM_SRC, 2, 3), graph.number, graph.num_edges, True, False, "triton")
    torch.library.opcheck(torch.ops.onehop.sddmm.default, args)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler imports deprecated names
@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_compiles_as_one_graph(graph, reduce):
    def layer(x, weight, scale):
        return onehop.aggregate(graph, x.relu(), weight, reduce, dst_scale=scale, backend="triton").sin()

    inputs = [leaf(NUM_SRC, 3), leaf(graph.num_edges), leaf(NUM_DST)]
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    ours, expected = compiled(*inputs), layer(*inputs)
    torch.testing.assert_close(ours, expected)
    grads = torch.autograd.grad(ours.sum(), inputs), torch.autograd.grad(expected.sum(), inputs)
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_gradcheck(reduce):
    edge_index = torch.tensor([[0, 1, 1, 2, 0, 2, 1, 0, 1], [0, 0, 1, 1, 1, 1, 1, 1, 1]])
    graph = Graph.from_edge_index(edge_index, 3)
    torch.autograd.gradcheck(
        lambda x, weight: onehop.aggregate(graph, x, weight, reduce, backend="triton"),
        (leaf(3, 2, seed=1), leaf(9, seed=2)),
        fast_mode=True,
    )


def test_gradgradcheck():
    edge_index = torch.tensor([[0, 1, 1], [0, 0, 1]])
    graph = Graph.from_edge_index(edge_index, 2)
    torch.autograd.gradgradcheck(
        lambda x, weight: onehop.aggregate(graph, x, weight, backend="triton"), (leaf(2, 1), leaf(3))
    )


def test_autocast_does_not_reach_torchs_own_products(graph, use):
    """Sums by sparse matrices are products, which autocast would take in 16 bits."""
    use(TritonPlan(variant="torch_csr"))
    x = torch.randn(NUM_SRC, 3, generator=torch.Generator().manual_seed(1))
    expected = onehop.aggregate(graph, x, backend="triton")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = onehop.aggregate(graph, x, backend="triton")
    assert torch.equal(found, expected)
