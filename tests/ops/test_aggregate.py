import sys

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

import onehop
from onehop import ArgumentError, Graph, reference, thresholds
from onehop.ops.aggregate import REDUCTIONS
from tests.ops.comparison import compare
from tests.ops.hostile_graphs import HOSTILE
from tests.pairs import pairwise

# The name of the module is that of the function, too.
aggregates = sys.modules["onehop.ops.aggregate"]


def inputs_for(edge_index, num_src, num_dst, width, dtype, names):
    generator = torch.Generator().manual_seed(0)
    shapes = {
        "x": (num_src, width),
        "weight": (edge_index.size(1),),
        "src_scale": (num_src,),
        "dst_scale": (num_dst,),
    }
    return {
        name: torch.randn(shapes[name], generator=generator, dtype=torch.float64).to(dtype) for name in names
    }


@pairwise(place=["x", "weight"], bad=[float("nan"), float("inf"), -float("inf")], reduce=REDUCTIONS)
def test_special_numbers_propagate(place, bad, reduce):
    edge_index, num_src, num_dst = HOSTILE["random"]
    inputs = inputs_for(edge_index, num_src, num_dst, 19, torch.float32, ("x", "weight"))
    inputs[place].view(-1)[::11] = bad
    graph = Graph.from_edge_index(edge_index, num_src)
    ours = onehop.aggregate(graph, reduce=reduce, **inputs)
    exact = reference.aggregate(edge_index, num_dst=num_dst, reduce=reduce, **inputs)
    torch.testing.assert_close(ours, exact, equal_nan=True, rtol=1e-4, atol=1e-5)


def test_sddmm_counts_infinity_once():
    # The last vector of a width of 17 shares columns with the one before it.
    edge_index = torch.tensor([[0], [0]])
    graph = Graph.from_edge_index(edge_index, 1)
    src = torch.ones(1, 17)
    src[0, 5] = float("inf")
    assert onehop.sddmm(graph, torch.ones(1, 17), src).item() == float("inf")


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_gradient_of_nan_is_nan_as_in_torch(reduce):
    edge_index = torch.tensor([[0, 1, 2], [0, 0, 1]])
    x = torch.tensor([[float("nan")], [1.0], [2.0]], requires_grad=True)
    graph = Graph.from_edge_index(edge_index, 3)
    (ours,) = torch.autograd.grad(onehop.aggregate(graph, x, reduce=reduce).sum(), x)
    (exact,) = torch.autograd.grad(reference.aggregate(edge_index, x, 3, reduce=reduce).sum(), x)
    assert torch.equal(ours.isnan(), exact.isnan())
    assert ours[2] == 1


@pytest.mark.parametrize("shape", [(4, 5), (2, 3, 2), (0,), (3, 0)])
def test_more_dimensions(shape):
    edge_index, num_src, num_dst = HOSTILE["random"]
    graph = Graph.from_edge_index(edge_index, num_src)
    x = torch.randn(num_src, *shape)
    out = onehop.aggregate(graph, x)
    flat = x.reshape(num_src, torch.Size(shape).numel())
    assert out.shape == (num_dst, *shape)
    torch.testing.assert_close(
        out.reshape(num_dst, flat.size(1)), reference.aggregate(edge_index, flat, num_dst)
    )


def test_edge_order_is_the_callers():
    edge_index = torch.tensor([[0, 1, 2, 0], [2, 0, 1, 1]])
    graph = Graph.from_edge_index(edge_index, 3)
    weight = torch.tensor([1.0, 10.0, 100.0, 1000.0])
    out = onehop.aggregate(graph, torch.eye(3), weight)
    assert out.tolist() == [[0, 10, 0], [1000, 0, 100], [1, 0, 0]]


@hypothesis.given(data=st.data())
@hypothesis.settings(max_examples=60)
def test_random_graphs(data):
    num_src = data.draw(st.integers(1, 30), label="num_src")
    num_dst = data.draw(st.integers(1, 30), label="num_dst")
    edges = data.draw(
        st.lists(st.tuples(st.integers(0, num_src - 1), st.integers(0, num_dst - 1)), max_size=120)
    )
    width = data.draw(st.integers(1, 40), label="width")
    reduce = data.draw(st.sampled_from(REDUCTIONS), label="reduce")
    names = ["x", *data.draw(st.sets(st.sampled_from(["weight", "src_scale", "dst_scale"])), label="vectors")]
    edge_index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).t()
    inputs = inputs_for(edge_index, num_src, num_dst, width, torch.float64, names)
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    compare(
        lambda **kw: onehop.aggregate(graph, reduce=reduce, **kw),
        lambda **kw: reference.aggregate(edge_index, num_dst=num_dst, reduce=reduce, **kw),
        inputs,
        list(inputs),
    )


@pytest.mark.parametrize(
    ("x_shape", "weight_shape"),
    [((40, 12), (300, 3)), ((40, 4, 3), (300, 3)), ((40, 3, 4), (299, 3)), ((40, 0, 4), (300, 0))],
    ids=["no heads in x", "other heads in x", "too few edges", "no heads"],
)
def test_head_weights_that_do_not_fit_are_named(x_shape, weight_shape):
    edge_index, num_src, _ = HOSTILE["random"]
    with pytest.raises(onehop.ArgumentError, match="weight: "):
        onehop.aggregate(
            Graph.from_edge_index(edge_index, num_src), torch.ones(x_shape), torch.ones(weight_shape)
        )


@pytest.mark.parametrize(("columns", "by_columns"), [(1, True), (7, True), (8, False)])
def test_heads_of_few_columns_run_column_beside_column(columns, by_columns, monkeypatch):
    edge_index, num_src, num_dst = HOSTILE["random"]
    ran = []
    plain = aggregates.reduce_by_columns
    monkeypatch.setattr(aggregates, "reduce_by_columns", lambda *given: ran.append(1) or plain(*given))
    x, weight = torch.randn(num_src, 3, columns), torch.randn(edge_index.size(1), 3)
    with thresholds.changed(columns_of_a_head=8):
        out = onehop.aggregate(Graph.from_edge_index(edge_index, num_src), x, weight)
    assert bool(ran) is by_columns
    torch.testing.assert_close(out, reference.aggregate(edge_index, x, num_dst, weight=weight))


# What a weight does: aggregate(multiply=...).


@pytest.mark.parametrize("reduce", ["max", "min"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_messages_are_compared_as_16_bits(dtype, reduce):
    edge_index, num_src, num_dst = HOSTILE["random"]
    inputs = inputs_for(edge_index, num_src, num_dst, 20, dtype, ("x", "weight"))
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
    edge_index, num_src, num_dst = HOSTILE["random"]
    graph = Graph.from_edge_index(edge_index, num_src)
    inputs = inputs_for(edge_index, num_src, num_dst, 4, torch.float64, ("x", "weight"))
    assert torch.equal(
        onehop.aggregate(graph, **inputs, multiply="copy"), onehop.aggregate(graph, inputs["x"])
    )


@pytest.mark.parametrize("multiply", ["add", "max"])
def test_mistakes_are_named(multiply):
    graph = Graph.from_edge_index(torch.tensor([[0], [1]]))
    message = "needs a weight" if multiply == "add" else "expected one of mul, add, sub, copy, sigmoid"
    with pytest.raises(ArgumentError, match=f"multiply: .*{message}"):
        onehop.aggregate(graph, torch.ones(2, 3), multiply=multiply)
