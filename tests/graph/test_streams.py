"""Tensors that are kept, and the streams that read them: a stand-in for torch.cuda keeps the books."""

import pytest
import torch

from onehop import Graph
from onehop.graph import placed, streams
from onehop.graph.streams import Streams

CPU = torch.device("cpu")


class Stream:
    def __init__(self, name, log):
        self.name, self.log = name, log

    def record_event(self):
        self.log.append(("made", self.name))
        return f"event of {self.name}"

    def wait_event(self, event):
        self.log.append((self.name, "waits for", event))


class Runtime:
    def __init__(self):
        self.log, self.captures = [], False
        self.first, self.second = Stream("first", self.log), Stream("second", self.log)
        self.now = self.first

    def current_stream(self, device):
        return self.now

    def is_current_stream_capturing(self):
        return self.captures


class Kept:
    """A tensor, as far as it is asked."""

    device = CPU

    def __init__(self):
        self.readers = []

    def record_stream(self, stream):
        self.readers.append(stream.name)


@pytest.fixture
def runtime(monkeypatch):
    made = Runtime()
    monkeypatch.setitem(streams.RUNTIMES, "cpu", made)
    return made


def test_every_other_stream_waits_and_is_noted_once(runtime):
    kept = [Kept(), None, Kept()]
    found = Streams(kept)
    found.meet()
    assert runtime.log == [("made", "first")]
    runtime.now = runtime.second
    for _ in range(3):
        found.meet()
    assert runtime.log[1:] == [("second", "waits for", "event of first")]
    assert [each.readers for each in kept if each] == [["second"]] * 2
    runtime.now = runtime.first
    found.meet()
    assert len(runtime.log) == 2


def test_a_stream_that_is_captured_is_left_alone(runtime):
    kept = Kept()
    found = Streams([kept])
    runtime.now, runtime.captures = runtime.second, True
    found.meet()
    assert kept.readers == []
    runtime.captures = False
    found.meet()
    assert kept.readers == ["second"]


def test_what_is_made_while_calls_are_captured_is_not_kept(runtime, monkeypatch):
    monkeypatch.setattr(placed, "MADE_ON", {"cpu"})
    graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]), 2)
    runtime.captures = True
    first = graph.on(CPU, transposed=True)
    assert graph.on(CPU, transposed=True) is not first
    runtime.captures = False
    again = graph.on(CPU, transposed=True)
    assert graph.on(CPU, transposed=True) is again


def test_a_device_without_streams_is_asked_nothing():
    kept = Kept()
    Streams([kept]).meet()
    assert kept.readers == []
