"""Max and min with one winner: NaN, infinities, and winners of rows that are cut."""

import pytest
import torch

from onehop import Graph
from onehop.backends.cpu import CpuBackend
from onehop.calls import ArgExtremum, on
from onehop.ops.arg_extremum import arg_extremum
from onehop.plans import CpuPlan
from onehop.reference import arg_extremum as reference
from tests.ops.hostile_graphs import HOSTILE


def multiples(*shape, dtype, seed=0):
    """Multiples of a quarter, of which many tie, and whose sums are exact."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-8, 9, shape, generator=generator).to(dtype) / 4


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("reduce", ["max", "min"])
def test_nan_is_passed_over_and_infinities_compete(last, reduce):
    edge_index, num_src, num_dst = HOSTILE["random"]
    x = multiples(num_src, 6, dtype=torch.float32)
    x[::2] = torch.tensor([float("nan"), float("inf"), float("-inf")]).repeat(num_src // 2, 2)
    x[:, 0] = float("nan")
    x[:, 1] = float("-inf") if reduce == "max" else float("inf")
    graph, results = Graph.from_edge_index(edge_index, size=(num_src, num_dst)), []
    for dtype in (torch.float32, torch.float64):
        leaf = x.to(dtype, copy=True).requires_grad_()
        if dtype is torch.float32:
            out = arg_extremum(graph, leaf, None, reduce, last)[0]
        else:
            out = reference(edge_index, leaf, num_dst, None, reduce, last)[0]
        grad = multiples(*out.shape, dtype=dtype, seed=3)
        results.append([out.detach().double(), torch.autograd.grad(out, leaf, grad)[0].double()])
    for ours, exact in zip(*results, strict=True):
        assert torch.equal(ours, exact)


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
