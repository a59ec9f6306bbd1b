"""Streams, captured graphs, autocast: what surrounds a call on a GPU."""

import pytest
import torch

import onehop
from benchmarks.gpu.correctness import hostile_edges
from onehop import Graph

pytestmark = pytest.mark.device
WIDTH = 64


@pytest.fixture
def graph(gpu):
    return Graph.from_edge_index(*hostile_edges(gpu, 5000))


def test_two_streams(gpu, graph):
    x = torch.randn(graph.num_src, WIDTH, device=gpu)
    expected = onehop.aggregate(graph, x)
    streams = [torch.cuda.Stream() for _ in range(2)]
    found = []
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            # The first use of a graph that no stream has met before.
            fresh = Graph.from_edge_index(*hostile_edges(gpu, 5000))
            found += [onehop.aggregate(each, x) for each in (graph, fresh)]
    torch.cuda.synchronize()
    for each in found:
        assert torch.equal(each, expected)


def test_a_captured_call_is_replayed(gpu, graph):
    x = torch.randn(graph.num_src, WIDTH, device=gpu)
    onehop.aggregate(graph, x)  # compiled, and the graph's arrays on the device
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        out = onehop.aggregate(graph, x)
    x.copy_(torch.randn_like(x))
    captured.replay()
    assert torch.equal(out, onehop.aggregate(graph, x))


def test_warm_calls_do_not_synchronise(gpu, graph):
    x = torch.randn(graph.num_src, WIDTH, device=gpu, requires_grad=True)
    onehop.aggregate(graph, x).sum().backward()
    torch.cuda.set_sync_debug_mode("error")
    try:
        onehop.aggregate(graph, x).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_autocast(gpu, graph):
    heads = [torch.randn(graph.num_src, 2, WIDTH, device=gpu) for _ in range(3)]
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = onehop.attention(graph, *heads)
    expected = onehop.attention(graph, *heads)
    torch.testing.assert_close(out.float(), expected, rtol=0.05, atol=0.05)
