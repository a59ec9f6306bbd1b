"""What kernels read and write is what the formulas say, within five percent."""

import pytest
import torch

from benchmarks.gpu.floors import (
    Shape,
    extremum_floor,
    extremum_grad_floor,
    sddmm_floor,
    sum_floor,
)
from onehop import Graph
from onehop.backends.triton import TritonBackend
from onehop.calls import Aggregate, Extremum, ExtremumGrad, Sddmm, on
from tests.kernels.triton.traffic import counted

NUM_SRC, NUM_DST = 30, 24


@pytest.fixture(scope="module")
def graph():
    """About 15 edges a destination, and a hub that is cut, from either side."""
    generator = torch.Generator().manual_seed(0)
    edges = torch.stack([torch.randint(0, NUM_SRC, (360,), generator=generator), torch.arange(360) % NUM_DST])
    to_hub = torch.stack([torch.arange(400) % NUM_SRC, torch.full((400,), 5)])
    from_hub = torch.stack([torch.full((400,), 7), torch.arange(400) % NUM_DST])
    return Graph.from_edge_index(torch.cat([edges, to_hub, from_hub], 1), size=(NUM_SRC, NUM_DST))


def shape_of(graph, x, transposed=False, per_edge=0):
    rows, cols = (graph.num_src, graph.num_dst) if transposed else (graph.num_dst, graph.num_src)
    acc = 8 if x.dtype == torch.float64 else 4
    return Shape(rows, cols, graph.num_edges, x.size(1), x.itemsize, acc, per_edge)


def assert_close(traffic, floor):
    assert traffic.bytes == pytest.approx(floor.no_reuse, rel=0.05)
    assert floor.compulsory < floor.no_reuse


CASES = [(64, torch.float32), (200, torch.float32), (128, torch.bfloat16), (33, torch.float64)]


@pytest.mark.parametrize("transposed", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize(("width", "dtype"), CASES, ids=str)
def test_sum(graph, width, dtype, transposed):
    x = torch.ones(NUM_DST if transposed else NUM_SRC, width, dtype=dtype)
    with counted() as traffic:
        TritonBackend().run(graph, on(graph, Aggregate, x=x, transposed=transposed))
    assert_close(traffic, sum_floor(shape_of(graph, x, transposed)))


def test_weighted_sum(graph):
    x, weight = torch.ones(NUM_SRC, 64), torch.ones(graph.num_edges)
    with counted() as traffic:
        TritonBackend().run(graph, on(graph, Aggregate, x=x, weight=weight))
    assert_close(traffic, sum_floor(shape_of(graph, x, per_edge=4 + 4)))


@pytest.mark.parametrize(("width", "dtype"), CASES[:3], ids=str)
def test_max(graph, width, dtype):
    x = torch.ones(NUM_SRC, width, dtype=dtype)
    with counted() as traffic:
        TritonBackend().run(graph, on(graph, Extremum, x=x, reduce="max", with_ties=True))
    assert_close(traffic, extremum_floor(shape_of(graph, x)))


def test_gradient_of_max(graph):
    """Repeated edges would tie, so every edge has a source of its own and no weight."""
    generator = torch.Generator().manual_seed(0)
    target = torch.randint(0, NUM_DST, (900,), generator=generator)
    graph = Graph.from_edge_index(torch.stack([torch.arange(900), target]), size=(900, NUM_DST))
    x, out = torch.rand(900, 64, generator=generator), torch.ones(NUM_DST, 64)
    forward = on(graph, Extremum, x=x, reduce="max", with_ties=True)
    extremum, saved = TritonBackend().run(graph, forward)
    call = ExtremumGrad(call=forward, extremum=extremum, ties=saved, grad=out, wanted=[True, False])
    with counted() as traffic:
        TritonBackend().run(graph, call)
    shape = Shape(900, NUM_DST, 900, 64, 4)
    assert_close(traffic, extremum_grad_floor(shape))


@pytest.mark.parametrize("heads", [1, 4])
def test_sddmm(graph, heads):
    dst, src = torch.ones(NUM_DST, heads, 64 // heads), torch.ones(NUM_SRC, heads, 64 // heads)
    with counted() as traffic:
        TritonBackend().run(graph, on(graph, Sddmm, dst=dst, src=src))
    assert_close(traffic, sddmm_floor(shape_of(graph, src.flatten(1), per_edge=4), heads, 4))
