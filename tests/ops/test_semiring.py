"""aggregate(multiply=...) against its reference: outputs and gradients."""

import pytest
import torch

import onehop
from onehop import ArgumentError, Graph, reference
from onehop.ops.aggregate import REDUCTIONS
from onehop.ops.semiring import MULTIPLY
from tests.ops.comparison import compare
from tests.ops.hostile_graphs import HOSTILE
from tests.pairs import pairwise

OTHERS = [name for name in MULTIPLY if name != "mul"]


def inputs_for(edge_index, num_src, num_dst, width, dtype=torch.float64, scales=(), heads=None):
    generator = torch.Generator().manual_seed(0)
    shapes = {
        "x": (num_src, width) if heads is None else (num_src, heads, width),
        "weight": (edge_index.size(1),) if heads is None else (edge_index.size(1), heads),
        "src_scale": (num_src,),
        "dst_scale": (num_dst,),
    }
    names = ("x", "weight", *scales)
    return {n: torch.randn(shapes[n], generator=generator, dtype=torch.float64).to(dtype) for n in names}


def check(name, inputs, reduce, multiply, backend=None):
    edge_index, num_src, num_dst = HOSTILE[name]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    differentiate = [n for n in inputs if not (n == "weight" and multiply == "copy")]
    compare(
        lambda **kw: onehop.aggregate(graph, reduce=reduce, multiply=multiply, backend=backend, **kw),
        lambda **kw: reference.aggregate(edge_index, num_dst=num_dst, reduce=reduce, multiply=multiply, **kw),
        inputs,
        differentiate,
        magnitude=1.0,
    )


@pairwise(name=HOSTILE, reduce=REDUCTIONS, multiply=OTHERS)
def test_hostile_graphs(name, reduce, multiply):
    check(name, inputs_for(*HOSTILE[name], 17), reduce, multiply)


@pytest.mark.parametrize("multiply", ["add", "sub"])
@pytest.mark.parametrize("reduce", ["sum", "max"])
@pytest.mark.parametrize("width", [1, 3, 63, 129])
def test_widths(width, reduce, multiply):
    check("random", inputs_for(*HOSTILE["random"], width, torch.float32), reduce, multiply)


@pytest.mark.parametrize("multiply", OTHERS)
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_scales(reduce, multiply):
    inputs = inputs_for(*HOSTILE["bipartite_wide"], 5, scales=("src_scale", "dst_scale"))
    check("bipartite_wide", inputs, reduce, multiply)


@pytest.mark.parametrize("multiply", OTHERS)
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_heads(reduce, multiply):
    check("random", inputs_for(*HOSTILE["random"], 6, heads=3), reduce, multiply)


@pytest.mark.parametrize("multiply", OTHERS)
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_the_reference_backend_agrees(reduce, multiply):
    check("random", inputs_for(*HOSTILE["random"], 4), reduce, multiply, backend="reference")


@pytest.mark.parametrize("reduce", ["max", "min"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_messages_are_compared_as_16_bits(dtype, reduce):
    inputs = inputs_for(*HOSTILE["random"], 20, dtype)
    edge_index, num_src, num_dst = HOSTILE["random"]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    out = onehop.aggregate(graph, reduce=reduce, multiply="add", **inputs)
    naive = reference.aggregate(edge_index, num_dst=num_dst, reduce=reduce, multiply="add", **inputs)
    assert out.dtype == dtype
    assert torch.equal(out, naive)


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_second_derivatives_of_added_weights(reduce):
    edge_index, num_src, num_dst = HOSTILE["random"]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    inputs = inputs_for(edge_index, num_src, num_dst, 3)
    found = []
    for function in (
        lambda x, w: onehop.aggregate(graph, x, w, reduce, multiply="add"),
        lambda x, w: reference.aggregate(edge_index, x, num_dst, w, reduce, multiply="add"),
    ):
        x, weight = (inputs[n].clone().requires_grad_() for n in ("x", "weight"))
        (first,) = torch.autograd.grad(function(x, weight).pow(3).sum(), x, create_graph=True)
        found.append(torch.autograd.grad(first.pow(2).sum(), [x, weight]))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


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
    inputs = inputs_for(*HOSTILE["random"], 4)
    assert torch.equal(
        onehop.aggregate(graph, **inputs, multiply="copy"), onehop.aggregate(graph, inputs["x"])
    )


@pytest.mark.parametrize("multiply", ["add", "max"])
def test_mistakes_are_named(multiply):
    graph = Graph.from_edge_index(torch.tensor([[0], [1]]))
    message = "needs a weight" if multiply == "add" else "expected one of mul, add, sub, copy, sigmoid"
    with pytest.raises(ArgumentError, match=f"multiply: .*{message}"):
        onehop.aggregate(graph, torch.ones(2, 3), multiply=multiply)
