import hypothesis
import pytest
import torch
from hypothesis import strategies as st

import onehop
from onehop import Graph, reference
from onehop.ops.aggregate import REDUCTIONS
from tests.ops.comparison import compare
from tests.ops.hostile_graphs import HOSTILE
from tests.pairs import pairwise

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def dtype_name(dtype):
    return str(dtype).removeprefix("torch.")


def inputs_for(edge_index, num_src, num_dst, width, dtype, names, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = {
        "x": (num_src, width),
        "weight": (edge_index.size(1),),
        "src_scale": (num_src,),
        "dst_scale": (num_dst,),
    }
    return {
        name: torch.randn(shapes[name], generator=generator, dtype=torch.float64).to(dtype) for name in names
    }


def check(edge_index, num_src, num_dst, reduce, inputs, differentiate=None):
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    compare(
        lambda **kw: onehop.aggregate(graph, reduce=reduce, **kw),
        lambda **kw: reference.aggregate(edge_index, num_dst=num_dst, reduce=reduce, **kw),
        inputs,
        list(inputs) if differentiate is None else differentiate,
    )


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pairwise(name=HOSTILE, reduce=REDUCTIONS)
def test_hostile_graphs(name, reduce, weighted):
    edge_index, num_src, num_dst = HOSTILE[name]
    names = ("x", "weight") if weighted else ("x",)
    check(
        edge_index,
        num_src,
        num_dst,
        reduce,
        inputs_for(edge_index, num_src, num_dst, 17, torch.float32, names),
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
@pairwise(width=[0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 255, 300], reduce=REDUCTIONS)
def test_widths_and_dtypes(width, reduce, dtype):
    edge_index, num_src, num_dst = HOSTILE["random"]
    differentiate = ["x", "weight"] if dtype in (torch.float32, torch.float64) else ["x"]
    inputs = inputs_for(edge_index, num_src, num_dst, width, dtype, ("x", "weight"))
    check(edge_index, num_src, num_dst, reduce, inputs, differentiate)
    check(edge_index, num_src, num_dst, reduce, {"x": inputs["x"]})


@pairwise(graph=["random", "bipartite_wide", "empty_rows"], reduce=REDUCTIONS)
@pytest.mark.parametrize(
    "names",
    [("src_scale",), ("dst_scale",), ("src_scale", "dst_scale"), ("weight", "src_scale", "dst_scale")],
    ids="+".join,
)
def test_scales(graph, names, reduce):
    edge_index, num_src, num_dst = HOSTILE[graph]
    check(
        edge_index,
        num_src,
        num_dst,
        reduce,
        inputs_for(edge_index, num_src, num_dst, 9, torch.float64, ("x", *names)),
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("names", [("src_scale", "dst_scale"), ("weight", "src_scale")], ids="+".join)
def test_scales_of_sources_with_very_many_edges(names, reduce, dtype):
    num_src, num_dst = 3, 40
    generator = torch.Generator().manual_seed(1)
    counts = torch.tensor([[num_src], [num_dst]])
    edge_index = (torch.rand(2, 100 * num_src, generator=generator) * counts).long()
    inputs = inputs_for(edge_index, num_src, num_dst, 9, dtype, ("x", *names))
    check(edge_index, num_src, num_dst, reduce, inputs, ["x"])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=dtype_name)
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_float32_weights_widen_16_bit_features(reduce, dtype):
    edge_index, num_src, num_dst = HOSTILE["random"]
    inputs = inputs_for(edge_index, num_src, num_dst, 20, dtype, ("x", "weight"))
    inputs["weight"] = inputs["weight"].float()
    graph = Graph.from_edge_index(edge_index, num_src)
    assert onehop.aggregate(graph, reduce=reduce, **inputs).dtype == torch.float32
    check(edge_index, num_src, num_dst, reduce, inputs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=dtype_name)
@pairwise(reduce=REDUCTIONS)
@pytest.mark.parametrize(
    "names", [("src_scale",), ("dst_scale",), ("weight", "src_scale", "dst_scale")], ids="+".join
)
def test_16_bit_scales_keep_16_bits(names, reduce, dtype):
    edge_index, num_src, num_dst = HOSTILE["random"]
    inputs = inputs_for(edge_index, num_src, num_dst, 20, dtype, ("x", *names))
    graph = Graph.from_edge_index(edge_index, num_src)
    assert onehop.aggregate(graph, reduce=reduce, **inputs).dtype == dtype
    check(edge_index, num_src, num_dst, reduce, inputs, ["x"])
    wide = inputs | {names[-1]: inputs[names[-1]].float()}
    assert onehop.aggregate(graph, reduce=reduce, **wide).dtype == torch.float32


def test_float64_weights_widen_float32_features():
    edge_index, num_src, num_dst = HOSTILE["random"]
    inputs = inputs_for(edge_index, num_src, num_dst, 5, torch.float32, ("x", "weight"))
    inputs["weight"] = inputs["weight"].double()
    check(edge_index, num_src, num_dst, "sum", inputs)


@pytest.mark.parametrize("reduce", ["max", "min"])
@pytest.mark.parametrize("value", [0.0, 1.5, -2.0])
def test_ties_split_the_gradient_as_torch_does(value, reduce):
    edge_index, num_src, num_dst = HOSTILE["multi_edges"]
    check(edge_index, num_src, num_dst, reduce, {"x": torch.full((num_src, 6), value, dtype=torch.float64)})


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("reduce", ["max", "min"])
def test_many_ties_after_relu(reduce, weighted):
    edge_index, num_src, num_dst = HOSTILE["one_hub"]
    inputs = inputs_for(
        edge_index, num_src, num_dst, 33, torch.float32, ("x", "weight") if weighted else ("x",)
    )
    inputs["x"] = inputs["x"].relu()
    check(edge_index, num_src, num_dst, reduce, inputs)


@pairwise(place=["x", "weight"], bad=[float("nan"), float("inf"), -float("inf")], reduce=REDUCTIONS)
def test_special_numbers_propagate(place, bad, reduce):
    edge_index, num_src, num_dst = HOSTILE["random"]
    inputs = inputs_for(edge_index, num_src, num_dst, 19, torch.float32, ("x", "weight"))
    inputs[place].view(-1)[::11] = bad
    graph = Graph.from_edge_index(edge_index, num_src)
    ours = onehop.aggregate(graph, reduce=reduce, **inputs)
    exact = reference.aggregate(edge_index, num_dst=num_dst, reduce=reduce, **inputs)
    torch.testing.assert_close(ours, exact, equal_nan=True, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_gradient_of_nan_is_nan_as_in_torch(reduce):
    edge_index = torch.tensor([[0, 1, 2], [0, 0, 1]])
    x = torch.tensor([[float("nan")], [1.0], [2.0]], requires_grad=True)
    graph = Graph.from_edge_index(edge_index, 3)
    (ours,) = torch.autograd.grad(onehop.aggregate(graph, x, reduce=reduce).sum(), x)
    (exact,) = torch.autograd.grad(reference.aggregate(edge_index, x, 3, reduce=reduce).sum(), x)
    assert torch.equal(ours.isnan(), exact.isnan())
    assert ours[2] == 1


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("layout", ["transposed", "strided_rows", "strided_columns", "expanded", "offset"])
def test_non_contiguous_features(layout, reduce):
    edge_index, num_src, num_dst = HOSTILE["random"]
    base = torch.randn(num_src * 4, 60, generator=torch.Generator().manual_seed(1))
    x = {
        "transposed": base[:20, :num_src].t(),
        "strided_rows": base[::4, :20],
        "strided_columns": base[:num_src, ::3],
        "expanded": base[:1, :20].expand(num_src, 20),
        "offset": base[3 : 3 + num_src, 7:27],
    }[layout]
    assert not x.is_contiguous()
    graph = Graph.from_edge_index(edge_index, num_src)
    leaf = x.detach().requires_grad_()
    ours = onehop.aggregate(graph, leaf, reduce=reduce)
    other = x.detach().clone().requires_grad_()
    exact = reference.aggregate(edge_index, other, num_dst, reduce=reduce)
    torch.testing.assert_close(ours, exact)
    grad = torch.randn(20, num_dst, generator=torch.Generator().manual_seed(2)).t()
    torch.testing.assert_close(
        torch.autograd.grad(ours, leaf, grad)[0], torch.autograd.grad(exact, other, grad)[0]
    )


def test_expanded_weights_and_gradients():
    edge_index, num_src, num_dst = HOSTILE["random"]
    graph = Graph.from_edge_index(edge_index, num_src)
    x = torch.randn(num_src, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.tensor([2.0], dtype=torch.float64).expand(edge_index.size(1)).requires_grad_()
    out = onehop.aggregate(graph, x, weight)
    torch.testing.assert_close(out, 2 * reference.aggregate(edge_index, x, num_dst))
    out.sum().backward()  # an expanded gradient, of stride 0
    torch.testing.assert_close(x.grad, 2 * graph.out_degrees.double().unsqueeze(1).expand(-1, 6))


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
    check(edge_index, num_src, num_dst, reduce, inputs)


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_gradcheck_first_and_second_order(reduce):
    edge_index, num_src, num_dst = HOSTILE["multi_edges"]
    graph = Graph.from_edge_index(edge_index, num_src)
    inputs = inputs_for(
        edge_index, num_src, num_dst, 3, torch.float64, ("x", "weight", "src_scale", "dst_scale")
    )
    leaves = [t.requires_grad_() for t in inputs.values()]

    def run(x, weight, src_scale, dst_scale):
        return onehop.aggregate(graph, x, weight, reduce, src_scale, dst_scale)

    assert torch.autograd.gradcheck(run, leaves)
    assert torch.autograd.gradgradcheck(run, leaves)


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_gradcheck_of_extrema(reduce):
    edge_index, num_src, num_dst = HOSTILE["multi_edges"]
    graph = Graph.from_edge_index(edge_index, num_src)
    inputs = inputs_for(edge_index, num_src, num_dst, 3, torch.float64, ("x", "weight"))
    leaves = [t.requires_grad_() for t in inputs.values()]
    # Multi-edges of equal weight would tie; distinct weights keep the function differentiable.
    assert torch.autograd.gradcheck(lambda x, w: onehop.aggregate(graph, x, w, reduce), leaves)
    assert torch.autograd.gradgradcheck(lambda x, w: onehop.aggregate(graph, x, w, reduce), leaves)


def test_nothing_is_recorded_without_need():
    edge_index, num_src, _ = HOSTILE["random"]
    graph = Graph.from_edge_index(edge_index, num_src)
    x = torch.randn(num_src, 4, requires_grad=True)
    with torch.no_grad():
        assert onehop.aggregate(graph, x).grad_fn is None
    assert onehop.aggregate(graph, x.detach()).grad_fn is None
    assert onehop.aggregate(graph, x).grad_fn is not None


def test_graph_may_be_dropped_before_backward():
    edge_index, num_src, num_dst = HOSTILE["random"]
    x = torch.randn(num_src, 4, requires_grad=True)
    out = onehop.aggregate(Graph.from_edge_index(edge_index, num_src), x)
    out.sum().backward()
    assert x.grad is not None
    assert num_dst == out.size(0)


def test_reference_backend_gives_the_same():
    edge_index, num_src, num_dst = HOSTILE["random"]
    graph = Graph.from_edge_index(edge_index, num_src)
    for reduce in REDUCTIONS:
        leaves = [
            t.requires_grad_()
            for t in inputs_for(edge_index, num_src, num_dst, 8, torch.float64, ("x", "weight")).values()
        ]
        ours = onehop.aggregate(graph, *leaves, reduce)
        slow = onehop.aggregate(graph, *leaves, reduce, backend="reference")
        torch.testing.assert_close(ours, slow)
        grad = torch.randn_like(ours)
        for a, b in zip(
            torch.autograd.grad(ours, leaves, grad), torch.autograd.grad(slow, leaves, grad), strict=True
        ):
            torch.testing.assert_close(a, b)


def inputs_with_heads(edge_index, num_src, num_dst, heads, width, dtype):
    inputs = inputs_for(edge_index, num_src, num_dst, heads * width, dtype, ("x", "src_scale", "dst_scale"))
    generator = torch.Generator().manual_seed(2)
    weight = torch.randn(edge_index.size(1), heads, generator=generator, dtype=torch.float64).to(dtype)
    return inputs | {"x": inputs["x"].view(num_src, heads, width), "weight": weight}


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_weight_for_every_head_on_hostile_graphs(name, reduce):
    edge_index, num_src, num_dst = HOSTILE[name]
    check(
        edge_index,
        num_src,
        num_dst,
        reduce,
        inputs_with_heads(edge_index, num_src, num_dst, 3, 5, torch.float32),
    )


@pairwise(reduce=["sum", "mean"], backend=["cpu", "reference"])
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
@pytest.mark.parametrize(("heads", "width"), [(1, 1), (1, 8), (2, 0), (2, 17), (4, 32), (8, 1), (5, 63)])
def test_a_weight_for_every_head(heads, width, reduce, dtype, backend):
    edge_index, num_src, num_dst = HOSTILE["bipartite_wide"]
    inputs = inputs_with_heads(edge_index, num_src, num_dst, heads, width, dtype)
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    exact = dtype in (torch.float32, torch.float64)
    compare(
        lambda **kw: onehop.aggregate(graph, reduce=reduce, backend=backend, **kw),
        lambda **kw: reference.aggregate(edge_index, num_dst=num_dst, reduce=reduce, **kw),
        inputs,
        list(inputs) if exact else ["x"],
    )


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_first_derivatives_are_the_same_where_a_second_one_may_follow(reduce):
    edge_index, num_src, _ = HOSTILE["multi_edges"]
    graph = Graph.from_edge_index(edge_index, num_src)
    leaf = torch.randn(num_src, 2, dtype=torch.float64, requires_grad=True)
    x = leaf.sin()
    out = onehop.aggregate(graph, x, (x[edge_index[0]] * x[edge_index[1]]).sum(-1), reduce).square().sum()
    (once,) = torch.autograd.grad(out, leaf, retain_graph=True)
    (again,) = torch.autograd.grad(out, leaf, create_graph=True)
    torch.testing.assert_close(again, once)


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_second_derivatives_with_heads(reduce):
    edge_index, num_src, num_dst = HOSTILE["multi_edges"]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    inputs = inputs_with_heads(edge_index, num_src, num_dst, 2, 2, torch.float64)
    leaves = [inputs["x"].requires_grad_(), inputs["weight"].requires_grad_()]
    assert torch.autograd.gradcheck(lambda x, w: onehop.aggregate(graph, x, w, reduce), leaves)
    assert torch.autograd.gradgradcheck(lambda x, w: onehop.aggregate(graph, x, w, reduce), leaves)


def test_heads_of_a_transposed_view():
    edge_index, num_src, _ = HOSTILE["random"]
    graph = Graph.from_edge_index(edge_index, num_src)
    x, weight = torch.randn(5, 3, num_src).permute(2, 1, 0), torch.randn(3, 300).t()
    torch.testing.assert_close(
        onehop.aggregate(graph, x, weight), reference.aggregate(edge_index, x, num_src, weight)
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
