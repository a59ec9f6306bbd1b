import pytest
import torch

import onehop
from onehop import Graph, reference
from onehop.ops.aggregate import REDUCTIONS
from tests.kernels.triton.small_graphs import GRAPHS
from tests.ops.comparison import compare

# NumPy, which interprets the kernels, warns of what a GPU does silently.
numpy_warns = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")


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
