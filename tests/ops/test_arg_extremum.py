"""Max and min with one winner: results, winners and gradients against the reference."""

import pytest
import torch

from onehop import Graph
from onehop.backends.cpu import CpuBackend
from onehop.calls import ArgExtremum, on
from onehop.ops.arg_extremum import arg_extremum
from onehop.plans import CpuPlan
from onehop.reference import arg_extremum as reference
from tests.ops.hostile_graphs import HOSTILE
from tests.pairs import pairwise


def multiples(*shape, dtype, seed=0):
    """Multiples of a quarter, so that many tie and products and sums are exact."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-8, 9, shape, generator=generator).to(dtype) / 4


def both(edge_index, size, x, weight, reduce, last):
    """Output and gradients, of ours and of the reference in float64."""
    found = []
    for fast in (True, False):
        dtype = x.dtype if fast else torch.float64
        leaves = [None if t is None else t.detach().to(dtype).requires_grad_() for t in (x, weight)]
        if fast:
            out = arg_extremum(Graph.from_edge_index(edge_index, size=size), *leaves, reduce, last)
        else:
            out = reference(edge_index, leaves[0], size[1], leaves[1], reduce, last)[0]
        grad = multiples(*out.shape, dtype=out.dtype, seed=3)
        wanted = [leaf for leaf in leaves if leaf is not None]
        grads = torch.autograd.grad(out, wanted, grad, allow_unused=True)
        pairs = zip(grads, wanted, strict=True)
        found.append([out.detach(), *(torch.zeros_like(t) if g is None else g for g, t in pairs)])
    return found


def assert_same(ours, exact):
    for name, a, b in zip(("output", "gradient of x", "gradient of weight"), ours, exact, strict=False):
        assert a.shape == b.shape, name
        assert torch.equal(a.double(), b), name


@pairwise(weighted=[False, True], last=[False, True], reduce=["max", "min"], name=HOSTILE)
def test_hostile_graphs(name, reduce, last, weighted):
    edge_index, num_src, num_dst = HOSTILE[name]
    for dtype in (torch.float32, torch.float64):
        x = multiples(num_src, 5, dtype=dtype)
        weight = multiples(edge_index.size(1), dtype=dtype, seed=1) if weighted else None
        assert_same(*both(edge_index, (num_src, num_dst), x, weight, reduce, last))


@pytest.mark.parametrize("width", [0, 1, 2, 3, 7, 16, 17, 63, 130])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_widths_of_rows_that_lie_apart(width, dtype):
    edge_index, num_src, num_dst = HOSTILE["random"]
    x = multiples(num_src, 2 * width + 3, dtype=dtype)[:, 3 : 3 + width]
    for last in (False, True):
        assert_same(*both(edge_index, (num_src, num_dst), x, None, "max", last))
        assert_same(*both(edge_index, (num_src, num_dst), x.t().contiguous().t(), None, "min", last))


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("width", [1, 4, 17])
def test_a_weight_for_every_head(heads, width):
    edge_index, num_src, num_dst = HOSTILE["random"]
    x = multiples(num_src, heads, width, dtype=torch.float32)
    weight = multiples(heads, edge_index.size(1), dtype=torch.float32, seed=1).t()
    for last in (False, True):
        assert_same(*both(edge_index, (num_src, num_dst), x, weight, "max", last))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("reduce", ["max", "min"])
def test_nan_is_passed_over_and_infinities_compete(last, reduce):
    edge_index, num_src, num_dst = HOSTILE["random"]
    x = multiples(num_src, 6, dtype=torch.float32)
    x[::2] = torch.tensor([float("nan"), float("inf"), float("-inf")]).repeat(num_src // 2, 2)
    x[:, 0] = float("nan")
    x[:, 1] = float("-inf") if reduce == "max" else float("inf")
    assert_same(*both(edge_index, (num_src, num_dst), x, None, reduce, last))


@pytest.mark.parametrize("last", [False, True])
def test_winners_of_a_row_that_is_cut(last):
    """Tiny pieces of work, so that the hub and a row whose pieces have only NaN are put together."""
    edge_index, num_src, num_dst = HOSTILE["one_hub"]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    x = multiples(num_src, 20, dtype=torch.float32)
    x[: num_src // 2] = float("nan")
    x[:, 3], x[:, 4] = float("nan"), float("-inf")
    call = on(graph, ArgExtremum, x=x, reduce="max", last=last)
    out, winner = CpuBackend(CpuPlan(edges_per_item=64)).run(graph, call)
    exact, edges = reference(edge_index, x, num_dst, last=last)
    assert torch.equal(out, exact)
    place = winner.long() if graph.perm is None else graph.perm.long()[winner.long()]
    assert torch.equal(torch.where(winner < 0, -1, place), edges)


def test_second_derivatives():
    edge_index, num_src, num_dst = HOSTILE["random"]
    graph = Graph.from_edge_index(edge_index, size=(num_src, num_dst))
    x = torch.randn(num_src, 2, 3, dtype=torch.float64).requires_grad_()
    weight = torch.rand(edge_index.size(1), 2, dtype=torch.float64).add(0.5).requires_grad_()

    def finite(x, weight):
        out = arg_extremum(graph, x, weight)
        return out[out.isfinite().all(-1).all(-1)]

    assert torch.autograd.gradgradcheck(finite, (x, weight))


def test_the_same_bits_with_any_number_of_threads():
    generator = torch.Generator().manual_seed(5)
    edge_index = torch.randint(0, 2000, (2, 30_000), generator=generator)
    edge_index[1, :9000] = 7
    x, threads = torch.randn(2000, 40, generator=generator), torch.get_num_threads()
    weight = torch.rand(30_000, generator=generator)
    results = []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            leaves = [x.clone().requires_grad_(), weight.clone().requires_grad_()]
            out = arg_extremum(Graph.from_edge_index(edge_index, 2000), *leaves)
            grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(6))
            results.append([out, *torch.autograd.grad(out, leaves, grad)])
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
