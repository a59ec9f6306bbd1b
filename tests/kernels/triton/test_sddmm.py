import pytest
import torch

import onehop
from onehop import Graph, reference
from tests.kernels.triton.conftest import PLANS
from tests.kernels.triton.small_graphs import GRAPHS
from tests.ops.comparison import compare

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def ends(name, shape, dtype=torch.float32):
    _, num_src, num_dst = GRAPHS[name]
    generator = torch.Generator().manual_seed(0)
    return {
        "dst": torch.randn(num_dst, *shape, generator=generator).to(dtype),
        "src": torch.randn(num_src, *shape, generator=generator).to(dtype),
    }


def check(name, inputs):
    edge_index, num_src, num_dst = GRAPHS[name]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    compare(
        lambda **kw: onehop.sddmm(graph, backend="triton", **kw),
        lambda **kw: reference.sddmm(edge_index, **kw),
        inputs,
        ["dst", "src"],
    )


@pytest.mark.parametrize("name", GRAPHS)
def test_hostile_graphs(name):
    check(name, ends(name, (2, 5)))


@pytest.mark.parametrize("mapping", PLANS)
def test_mappings(mapping, use):
    use(PLANS[mapping])
    check("one_hub", ends("one_hub", (5,)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(dtype):
    check("random", ends("random", (3, 4), dtype))


# Heads that share a tile, that do not fill it, and that take several tiles each.
@pytest.mark.parametrize("shape", [(1,), (8, 2), (3, 3), (2, 33), (7, 0)], ids=str)
def test_shapes(shape):
    check("random", ends("random", shape))


def test_ends_that_are_not_contiguous():
    edge_index, num_src, _ = GRAPHS["random"]
    base = torch.randn(num_src, 6, 8, generator=torch.Generator().manual_seed(1))
    dst, src = base.transpose(1, 2)[:, :4], base[:, 1:5, ::2].repeat(1, 1, 2)[..., :6]
    ours = onehop.sddmm(Graph.from_edge_index(edge_index, num_src), dst, src, backend="triton")
    torch.testing.assert_close(ours, reference.sddmm(edge_index, dst, src))


@pytest.mark.parametrize("kernel", ["sigmoid", "tdist", "dot"])
def test_fusedmm(kernel):
    edge_index, num_src, num_dst = GRAPHS["bipartite_tall"]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    compare(
        lambda **kw: onehop.fusedmm(graph, kernel=kernel, scale=0.5, backend="triton", **kw),
        lambda **kw: reference.fusedmm(edge_index, kernel=kernel, scale=0.5, **kw),
        ends("bipartite_tall", (5,)),
        ["dst", "src"],
    )
