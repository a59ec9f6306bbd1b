"""Streams, captured graphs, autocast: what surrounds the passes of every operator on a GPU."""

import pytest
import torch

import onehop
from benchmarks.gpu.untimed import CHECKED
from tests.device.passes import Passes, assert_same_bits

pytestmark = pytest.mark.device
each_operator = pytest.mark.parametrize("name", CHECKED)


@each_operator
def test_two_streams(name, gpu):
    passes = Passes.of(name, gpu)
    graph = passes.graph()
    expected = passes(graph)
    streams = [torch.cuda.Stream() for _ in range(2)]
    found = []
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            # The second: the first use of a graph that no stream has met before.
            found += [passes(each) for each in (graph, passes.graph())]
    torch.cuda.synchronize()
    for each in found:
        assert_same_bits(each, expected)


def warmed(call):
    """Makes a call on a stream of its own, as torch asks for before a capture."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)


@each_operator
def test_captured_passes_are_replayed(name, gpu):
    passes = Passes.of(name, gpu)
    graph = passes.graph()
    warmed(lambda: passes(graph))  # compiled, and the graph's arrays on the device
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        found = passes(graph)
    with torch.no_grad():
        for each in (*passes.inputs.values(), passes.grad):
            each.copy_(torch.randn_like(each))
    captured.replay()
    assert_same_bits(found, passes(graph))


def test_a_captured_call_repeats_its_dropout(gpu):
    passes = Passes.of("gat", gpu)
    graph = passes.graph()

    def call():
        return onehop.gat(graph, **passes.inputs, dropout=0.5).detach()

    warmed(call)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        out = call()
    captured.replay()
    first = out.clone()
    captured.replay()
    assert torch.equal(out, first)
    assert not torch.equal(call(), first)


@each_operator
def test_warm_passes_do_not_synchronise(name, gpu):
    passes = Passes.of(name, gpu)
    graph = passes.graph()
    passes(graph)
    torch.cuda.set_sync_debug_mode("error")
    try:
        passes(graph)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@each_operator
def test_autocast_changes_nothing(name, device):
    """Forward, and backward inside and outside: the dtypes and the bits."""
    passes = Passes.of(name, device)
    graph = passes.graph()
    expected = passes(graph)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        out = passes.forward(graph)
        inside = passes.backward(out, retain_graph=True)
    assert_same_bits({"output": out, **inside}, expected)
    assert_same_bits({"output": out, **passes.backward(out)}, expected)
