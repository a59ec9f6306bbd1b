"""Max and min with one winner: results and gradients of the kernels against the reference and the CPU's."""

import pytest
import torch

from onehop import Graph
from onehop.calls import ArgExtremum, on
from onehop.kernels.triton.positions import edge_places
from onehop.ops.arg_extremum import ARG_EXTREMUM, arg_extremum
from onehop.reference import arg_extremum as reference
from tests.kernels.triton.conftest import PLANS
from tests.kernels.triton.small_graphs import GRAPHS
from tests.pairs import pairwise

NAN, INF = float("nan"), float("inf")
BOTH = pytest.mark.parametrize("reduce", ["max", "min"])
TIES = pytest.mark.parametrize("last", [False, True])
# NumPy, which interprets the kernels, warns of what a GPU does silently.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")


def multiples(*shape, dtype=torch.float32, seed=0):
    """Multiples of a quarter, so that many tie and products and sums are exact."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-8, 9, shape, generator=generator).to(dtype) / 4


def outcome(run, *leaves):
    """A result, and its gradients where leaves have some."""
    leaves = [None if each is None else each.detach().requires_grad_() for each in leaves]
    out = run(*leaves)
    grad = multiples(*out.shape, dtype=out.dtype, seed=3)
    wanted = [each for each in leaves if each is not None]
    grads = torch.autograd.grad(out, wanted, grad, allow_unused=True)
    pairs = zip(grads, wanted, strict=True)
    return [out.detach(), *(torch.zeros_like(t) if g is None else g for g, t in pairs)]


def assert_same(edges, size, x, weight, reduce, last):
    """Bit for bit: what is added up is exact."""
    graph = Graph.from_edge_index(edges, size=size)
    ours = outcome(lambda x, w: arg_extremum(graph, x, w, reduce, last, backend="triton")[0], x, weight)
    wide = [None if each is None else each.double() for each in (x, weight)]
    exact = outcome(lambda x, w: reference(edges, x, size[1], w, reduce, last)[0], *wide)
    for name, found, expected in zip(("out", "of x", "of weight"), ours, exact, strict=False):
        assert found.shape == expected.shape, name
        assert torch.equal(found.double(), expected), name


@pytest.mark.parametrize(("mapping", "reduce"), [("neighbour", "max"), ("feature", "min")])
@TIES
@pairwise(name=GRAPHS, weighted=[False, True])
def test_small_graphs(name, weighted, last, mapping, reduce, use):
    use(PLANS[mapping])
    edges, num_src, num_dst = GRAPHS[name]
    weight = multiples(edges.size(1), seed=1) if weighted else None
    assert_same(edges, (num_src, num_dst), multiples(num_src, 5), weight, reduce, last)


@TIES
@pairwise(width=[1, 4, 17], heads=[1, 3])
def test_a_weight_for_every_head(heads, width, last):
    edges, num_src, num_dst = GRAPHS["random"]
    weight = multiples(heads, edges.size(1), seed=1).t()
    assert_same(edges, (num_src, num_dst), multiples(num_src, heads, width), weight, "max", last)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [0, 1, 17])
def test_widths_of_rows_that_lie_apart(width, dtype):
    edges, num_src, num_dst = GRAPHS["random"]
    x = multiples(num_src, 2 * width + 3, dtype=dtype)[:, 3 : 3 + width]
    assert_same(edges, (num_src, num_dst), x, None, "max", False)
    assert_same(edges, (num_src, num_dst), x.t().contiguous().t(), None, "min", False)


def of_hub(reduce, last, x):
    """Extrema and winners of 40 edges, which are cut, and of a row without any; of Triton and of the CPU."""
    graph = Graph.from_edge_index(
        torch.stack([torch.arange(40), torch.zeros(40, dtype=torch.long)]), size=(40, 2)
    )
    calls = (
        on(graph, ArgExtremum, x=x, reduce=reduce, last=last, backend=name) for name in ("triton", "cpu")
    )
    return [ARG_EXTREMUM(call) for call in calls]


@BOTH
@TIES
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_nan_is_passed_over_and_infinities_compete(bad, last, reduce):
    x = multiples(40, 3)
    x[::7], x[:, 2] = bad, bad
    ours, cpus = of_hub(reduce, last, x)
    assert torch.equal(ours[0], cpus[0])
    assert torch.equal(ours[1], cpus[1])
    assert ours[1][1].tolist() == [-1] * 3


@BOTH
@TIES
@pytest.mark.parametrize("place", [0, 5, 17, 39])
def test_the_winner_wherever_it_is(place, last, reduce):
    x = torch.zeros(40, 2)
    x[place] = x[20] = 2.0 if reduce == "max" else -2.0
    ours, _ = of_hub(reduce, last, x)
    assert ours[1][0].tolist() == [max(place, 20) if last else min(place, 20)] * 2


def test_an_edge_that_did_not_win_passes_nothing_on_though_its_weight_is_infinite():
    edges = torch.tensor([[0, 1, 2], [0, 0, 0]])
    graph = Graph.from_edge_index(edges, size=(3, 1))
    x, weight = torch.tensor([[1.0], [-1.0], [NAN]]), torch.tensor([2.0, INF, 1.0])
    leaf = x.requires_grad_()
    arg_extremum(graph, leaf, weight, backend="triton")[0].sum().backward()
    assert leaf.grad.tolist() == [[2.0], [0.0], [0.0]]


def test_gradients_can_be_differentiated_again():
    edges, num_src, num_dst = GRAPHS["random"]
    graph = Graph.from_edge_index(edges, size=(num_src, num_dst))
    x = torch.randn(num_src, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    weight = torch.rand(edges.size(1), dtype=torch.float64, generator=torch.Generator().manual_seed(2))

    def finite(x, w):
        out = arg_extremum(graph, x, w, backend="triton")[0]
        return out.masked_fill(out.isinf(), 0)

    operands = (x.requires_grad_(), weight.requires_grad_())
    assert torch.autograd.gradcheck(finite, operands, fast_mode=True)
    assert torch.autograd.gradgradcheck(finite, operands, fast_mode=True)


def test_places_of_edges_are_made_once_for_each_graph():
    edges, num_src, num_dst = GRAPHS["random"]
    graph = Graph.from_edge_index(edges, size=(num_src, num_dst))
    places = edge_places(graph, torch.device("cpu"))
    assert edge_places(graph, torch.device("cpu")) is places
    transposed = graph.transposed_csr
    # By both ways from an edge's place to the caller's number of it.
    assert torch.equal(graph.perm[places.long()], transposed.perm)
