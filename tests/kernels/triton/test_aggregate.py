import pytest
import torch

import onehop
from onehop import Graph, reference
from onehop.kernels.triton import work
from onehop.ops.aggregate import REDUCTIONS
from tests.kernels.triton.conftest import PLANS
from tests.kernels.triton.small_graphs import GRAPHS
from tests.ops.comparison import compare
from tests.pairs import pairwise

# NumPy, which interprets the kernels, warns of what a GPU does silently.
numpy_warns = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def dtype_name(dtype):
    return str(dtype).removeprefix("torch.")


def inputs_for(name, width, dtype, names):
    edge_index, num_src, num_dst = GRAPHS[name]
    shapes = {
        "x": (num_src, width),
        "weight": (edge_index.size(1),),
        "src_scale": (num_src,),
        "dst_scale": (num_dst,),
    }
    generator = torch.Generator().manual_seed(0)
    return {
        each: torch.randn(shapes[each], generator=generator, dtype=torch.float64).to(dtype) for each in names
    }


def check(name, reduce, inputs, **kwargs):
    edge_index, num_src, num_dst = GRAPHS[name]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    compare(
        lambda **kw: onehop.aggregate(graph, reduce=reduce, backend="triton", **kw, **kwargs),
        lambda **kw: reference.aggregate(edge_index, num_dst=num_dst, reduce=reduce, **kw, **kwargs),
        inputs,
        list(inputs),
    )


@pairwise(name=GRAPHS, reduce=["sum", "max"], mapping=PLANS)
def test_hostile_graphs(name, reduce, mapping, use):
    use(PLANS[mapping])
    check(name, reduce, inputs_for(name, 5, torch.float32, ("x", "weight")))


@pytest.mark.parametrize("reduce", ["mean", "min"])
@pytest.mark.parametrize("name", ["random", "one_hub", "empty_rows"])
def test_mean_and_min(name, reduce):
    check(name, reduce, inputs_for(name, 3, torch.float64, ("x", "weight")))


@pytest.mark.parametrize("reduce", ["sum", "max"])
@pytest.mark.parametrize("width", [0, 1, 16, 17, 33])
def test_widths(width, reduce):
    check("random", reduce, inputs_for("random", width, torch.float32, ("x",)))


@pytest.mark.parametrize(
    ("reduce", "inputs"),
    [("sum", ("x", "weight")), ("max", ("x", "weight")), ("mean", ("x",)), ("min", ("x",))],
    ids=["weighted-sum", "weighted-max", "mean", "min"],
)
@pytest.mark.parametrize("dtype", DTYPES, ids=dtype_name)
def test_dtypes(dtype, reduce, inputs):
    check("one_hub", reduce, inputs_for("one_hub", 5, dtype, inputs))


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
@pytest.mark.parametrize("name", ["random", "bipartite_wide"])
def test_scales(name, reduce):
    check(name, reduce, inputs_for(name, 4, torch.float64, ("x", "weight", "src_scale", "dst_scale")))


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_a_weight_for_every_head(reduce):
    edge_index, num_src, _ = GRAPHS["random"]
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(num_src, 3, 7, generator=generator)
    check("random", reduce, {"x": x, "weight": torch.randn(edge_index.size(1), 3, generator=generator)})


@pytest.mark.parametrize("multiply", ["add", "sub", "sigmoid", "copy"])
@pytest.mark.parametrize("reduce", ["sum", "min"])
def test_other_semirings(reduce, multiply):
    edge_index, _, num_dst = GRAPHS["random"]
    graph = Graph.from_edge_index(edge_index, num_dst)
    inputs = inputs_for("random", 3, torch.float64, ("x", "weight"))
    compare(
        lambda **kw: onehop.aggregate(graph, reduce=reduce, multiply=multiply, backend="triton", **kw),
        lambda **kw: reference.aggregate(edge_index, num_dst=num_dst, reduce=reduce, multiply=multiply, **kw),
        inputs,
        ["x"] if multiply == "copy" else ["x", "weight"],
    )


@pytest.mark.parametrize("reduce", ["max", "min"])
@pytest.mark.parametrize("value", [0.0, 1.5, -2.0])
@pytest.mark.parametrize("name", ["multi_edges", "one_hub"])
def test_ties_split_the_gradient_as_torch_does(name, value, reduce):
    check(name, reduce, {"x": torch.full((GRAPHS[name][1], 3), value, dtype=torch.float64)})


@numpy_warns
@pytest.mark.parametrize("reduce", ["sum", "max", "min"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("place", ["x", "weight"])
def test_special_numbers_propagate(place, bad, reduce):
    edge_index, num_src, num_dst = GRAPHS["one_hub"]
    inputs = inputs_for("one_hub", 5, torch.float32, ("x", "weight"))
    inputs[place].view(-1)[::7] = bad
    graph = Graph.from_edge_index(edge_index, num_src)
    ours = onehop.aggregate(graph, reduce=reduce, backend="triton", **inputs)
    exact = reference.aggregate(edge_index, num_dst=num_dst, reduce=reduce, **inputs)
    torch.testing.assert_close(ours, exact, equal_nan=True, rtol=1e-4, atol=1e-5)


@numpy_warns
@pytest.mark.filterwarnings("ignore:divide by zero encountered:RuntimeWarning")
@pytest.mark.parametrize("reduce", ["max", "min"])
def test_gradient_of_nan_is_nan_as_in_torch(reduce):
    edge_index = torch.tensor([[0, 1, 2], [0, 0, 1]])
    x = torch.tensor([[float("nan")], [1.0], [2.0]], requires_grad=True)
    graph = Graph.from_edge_index(edge_index, 3)
    out = onehop.aggregate(graph, x, reduce=reduce, backend="triton")
    (ours,) = torch.autograd.grad(out.sum(), x)
    (exact,) = torch.autograd.grad(reference.aggregate(edge_index, x, 3, reduce=reduce).sum(), x)
    assert torch.equal(ours.isnan(), exact.isnan())
    assert ours[2] == 1


@pytest.mark.parametrize("reduce", ["sum", "max"])
@pytest.mark.parametrize("layout", ["transposed", "rows_apart", "columns_apart", "expanded"])
def test_features_that_are_not_contiguous(layout, reduce):
    edge_index, num_src, num_dst = GRAPHS["random"]
    base = torch.randn(num_src * 4, 60, generator=torch.Generator().manual_seed(1))
    x = {
        "transposed": base[:20, :num_src].t(),
        "rows_apart": base[::4, 3:20],
        "columns_apart": base[:num_src, ::3],
        "expanded": base[:1, :20].expand(num_src, 20),
    }[layout]
    ours = onehop.aggregate(Graph.from_edge_index(edge_index, num_src), x, reduce=reduce, backend="triton")
    torch.testing.assert_close(ours, reference.aggregate(edge_index, x, num_dst, reduce=reduce))


@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_edges_numbered_in_64_bits(reduce, monkeypatch):
    monkeypatch.setattr(work, "_NARROW_EDGES", 0)
    check("one_hub", reduce, inputs_for("one_hub", 5, torch.float32, ("x", "weight")))


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_the_default_plan(reduce, use):
    use(None)
    generator = torch.Generator().manual_seed(3)
    edge_index = torch.randint(0, 12, (2, 40), generator=generator)
    hub = torch.stack([torch.randint(0, 12, (300,), generator=generator), torch.full((300,), 5)])
    edge_index = torch.cat([edge_index, hub], 1)
    graph = Graph.from_edge_index(edge_index, 12)
    compare(
        lambda **kw: onehop.aggregate(graph, reduce=reduce, backend="triton", **kw),
        lambda **kw: reference.aggregate(edge_index, num_dst=12, reduce=reduce, **kw),
        {"x": torch.randn(12, 20, generator=generator)},
        ["x"],
    )
