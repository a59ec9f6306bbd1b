"""Every operator with all its gradients, at the widths and dtypes that are timed, against the reference."""

import pytest
import torch

from benchmarks.gpu.correctness import hostile_edges, judge
from benchmarks.gpu.graphs import GRAPHS
from benchmarks.gpu.grid import grid
from benchmarks.gpu.operators import OPERATORS, Size
from benchmarks.gpu.options import DTYPES
from onehop import Graph, aggregate
from onehop.kernels.triton import availability

pytestmark = pytest.mark.device

TIMED = sorted(
    {(case.operator, case.dtype, case.heads, case.width) for case in grid(GRAPHS, OPERATORS, DTYPES)}
)
if availability.interpreted():
    # The interpreter takes a second a program: the narrowest of each, narrowed.
    TIMED = [
        (operator, dtype, 2, 8)
        for operator, dtype in sorted({each[:2] for each in TIMED if each[1] == "float32"})
    ]
# Edges of the hub: it is cut into pieces, and they are merged.
HUB = 20 if availability.interpreted() else 20_000


@pytest.mark.parametrize(("operator", "dtype", "heads", "width"), TIMED)
def test_output_and_gradients(operator, dtype, heads, width, device):
    edge_index, nodes = hostile_edges(device, HUB)
    size = Size(nodes, edge_index.size(1), heads, width)
    verdicts = judge(OPERATORS[operator], edge_index, size, DTYPES[dtype])
    assert not [each for each in verdicts if not each.passes]


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
def test_graphs_without_edges_and_without_nodes(reduce, device):
    for nodes in (0, 3):
        graph = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.long, device=device), nodes)
        x = torch.ones(nodes, 5, device=device, requires_grad=True)
        out = aggregate(graph, x, reduce=reduce, backend="triton")
        out.sum().backward()
        assert out.shape == (nodes, 5)
        assert not out.any()
        assert not x.grad.any()


def test_results_have_the_same_bits_in_every_run(device):
    edge_index, nodes = hostile_edges(device, HUB)
    graph = Graph.from_edge_index(edge_index, nodes)
    x = torch.randn(nodes, 33, device=device)
    first = aggregate(graph, x, backend="triton")
    for _ in range(3):
        assert torch.equal(aggregate(graph, x, backend="triton"), first)


def test_more_numbers_than_32_bits_address(gpu):
    """[N, F] of more than 2^31 numbers: the last row is far beyond what an int32 reaches."""
    nodes, width = 2**21 + 5, 1024
    x = torch.zeros(nodes, width, dtype=torch.float16, device=gpu)
    x[-1], x[0] = 1, 2
    graph = Graph.from_edge_index(torch.tensor([[nodes - 1, 0], [0, nodes - 1]], device=gpu), nodes)
    for reduce in ("sum", "max"):
        out = aggregate(graph, x, reduce=reduce, backend="triton")
        assert out[0].eq(1).all()
        assert out[-1].eq(2).all()
        assert not out[1:-1].any()
        del out
