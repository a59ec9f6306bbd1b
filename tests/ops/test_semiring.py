"""aggregate(multiply=...): 16 bits, shortest paths, and what is refused."""

import pytest
import torch

import onehop
from onehop import ArgumentError, Graph, reference
from tests.ops.hostile_graphs import HOSTILE


def inputs_for(width, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    edge_index, num_src, _ = HOSTILE["random"]
    shapes = {"x": (num_src, width), "weight": (edge_index.size(1),)}
    return {
        name: torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
        for name, shape in shapes.items()
    }


@pytest.mark.parametrize("reduce", ["max", "min"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_messages_are_compared_as_16_bits(dtype, reduce):
    inputs = inputs_for(20, dtype)
    edge_index, num_src, num_dst = HOSTILE["random"]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    out = onehop.aggregate(graph, reduce=reduce, multiply="add", **inputs)
    naive = reference.aggregate(edge_index, num_dst=num_dst, reduce=reduce, multiply="add", **inputs)
    assert out.dtype == dtype
    assert torch.equal(out, naive)


def test_shortest_paths_by_relaxation():
    # 0 -> 1 -> 2 -> 3, and a dear way from 0 to 3.
    edge_index = torch.tensor([[0, 1, 2, 0, 0, 1, 2, 3], [1, 2, 3, 3, 0, 1, 2, 3]])
    length = torch.tensor([1.0, 2.0, 3.0, 9.0, 0.0, 0.0, 0.0, 0.0])
    graph = Graph.from_edge_index(edge_index)
    distance = torch.tensor([[0.0], [1e9], [1e9], [1e9]])
    for _ in range(3):
        distance = onehop.aggregate(graph, distance, length, "min", multiply="add")
    assert distance.flatten().tolist() == [0.0, 1.0, 3.0, 6.0]


def test_copy_leaves_the_weight_out():
    edge_index, num_src, _ = HOSTILE["random"]
    graph = Graph.from_edge_index(edge_index, num_src)
    inputs = inputs_for(4)
    assert torch.equal(
        onehop.aggregate(graph, **inputs, multiply="copy"), onehop.aggregate(graph, inputs["x"])
    )


@pytest.mark.parametrize("multiply", ["add", "max"])
def test_mistakes_are_named(multiply):
    graph = Graph.from_edge_index(torch.tensor([[0], [1]]))
    message = "needs a weight" if multiply == "add" else "expected one of mul, add, sub, copy, sigmoid"
    with pytest.raises(ArgumentError, match=f"multiply: .*{message}"):
        onehop.aggregate(graph, torch.ones(2, 3), multiply=multiply)
