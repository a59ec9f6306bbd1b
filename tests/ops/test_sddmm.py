import pytest
import torch

import onehop
from onehop import Graph, reference
from tests.ops.comparison import compare
from tests.ops.hostile_graphs import HOSTILE


def operands(num_src, num_dst, tail, dtype):
    generator = torch.Generator().manual_seed(4)
    return {
        "dst": torch.randn(num_dst, *tail, generator=generator, dtype=torch.float64).to(dtype),
        "src": torch.randn(num_src, *tail, generator=generator, dtype=torch.float64).to(dtype),
    }


def check(edge_index, num_src, num_dst, inputs):
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    compare(
        lambda **kw: onehop.sddmm(graph, **kw),
        lambda **kw: reference.sddmm(edge_index, **kw),
        inputs,
        ["dst", "src"],
    )


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("tail", [(17,), (3, 5)], ids=["plain", "heads"])
def test_hostile_graphs(name, tail):
    edge_index, num_src, num_dst = HOSTILE[name]
    check(edge_index, num_src, num_dst, operands(num_src, num_dst, tail, torch.float32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("width", [0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 63, 64, 65, 129, 300])
def test_widths_and_dtypes(width, dtype):
    edge_index, num_src, num_dst = HOSTILE["random"]
    check(edge_index, num_src, num_dst, operands(num_src, num_dst, (width,), dtype))


def test_infinity_is_not_counted_twice():
    # The last vector of a width of 17 shares columns with the one before it.
    edge_index = torch.tensor([[0], [0]])
    graph = Graph.from_edge_index(edge_index, 1)
    src = torch.ones(1, 17)
    src[0, 5] = float("inf")
    assert onehop.sddmm(graph, torch.ones(1, 17), src).item() == float("inf")


def test_mixed_dtypes_promote():
    edge_index, num_src, num_dst = HOSTILE["random"]
    inputs = operands(num_src, num_dst, (6,), torch.float32)
    inputs["dst"] = inputs["dst"].double()
    check(edge_index, num_src, num_dst, inputs)


def test_non_contiguous_operands():
    edge_index, num_src, num_dst = HOSTILE["random"]
    graph = Graph.from_edge_index(edge_index, num_src)
    src, dst = torch.randn(2, 12, 5, num_src).permute(0, 3, 2, 1)
    torch.testing.assert_close(onehop.sddmm(graph, dst, src), reference.sddmm(edge_index, dst, src))
    assert dst.size(0) == num_dst


def test_second_derivatives():
    edge_index, num_src, num_dst = HOSTILE["multi_edges"]
    graph = Graph.from_edge_index(edge_index, num_src)
    leaves = [t.requires_grad_() for t in operands(num_src, num_dst, (2, 3), torch.float64).values()]
    assert torch.autograd.gradcheck(lambda d, s: onehop.sddmm(graph, d, s), leaves)
    assert torch.autograd.gradgradcheck(lambda d, s: onehop.sddmm(graph, d, s), leaves)
