import pytest
import torch

import onehop
from onehop import Graph, reference
from tests.kernels.triton.small_graphs import GRAPHS
from tests.ops.comparison import compare


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


# Heads that share a tile, that do not fill it, and that take several tiles each.
@pytest.mark.parametrize("shape", [(1,), (8, 2), (3, 3), (2, 33), (7, 0)], ids=str)
def test_shapes(shape):
    check("random", ends("random", shape))
