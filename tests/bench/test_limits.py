import pytest
import torch

from onehop.bench import limits
from onehop.bench.limits import Bandwidth
from onehop.bench.timing import Times
from onehop.errors import ArgumentError


class Counting:
    """Stands in for the native module; keeps what it was asked for."""

    def __init__(self):
        self.reads = []
        self.gathers = []

    def stream_read(self, address, size, threads):
        self.reads.append(size)
        return 0.0

    def gather_rows(self, x, row_floats, index, count, prefetch, threads):
        self.gathers.append((row_floats, count, prefetch))
        return 0.0


def test_bandwidth_is_bytes_over_the_median():
    assert Bandwidth(3_000_000_000, Times((1.0, 2.0, 9.0))).gbps == pytest.approx(1.5)


@pytest.fixture
def native(monkeypatch):
    """The native module's stand-in."""
    monkeypatch.setattr("onehop.native.extension", Counting())
    return limits.native.extension


def test_streaming_reads_the_whole_buffer_and_counts_both_sides_of_a_copy(native):
    found = limits.streaming(4096, rounds=2)
    assert set(native.reads) == {4096}
    assert found["read"].moved_bytes == 4096
    assert found["copy"].moved_bytes == 2 * 4096


def test_random_gather_tries_every_distance_at_every_length(native):
    roofs = limits.random_gather([16, 32], matrix_bytes=64 * 100, rounds=1)
    assert [roof.row_floats for roof in roofs] == [16, 32]
    assert {call for call in native.gathers if call[0] == 16} == {(16, 100, p) for p in limits.PREFETCHES}
    assert {call for call in native.gathers if call[0] == 32} == {(32, 50, p) for p in limits.PREFETCHES}
    assert roofs[0].bandwidth.moved_bytes == 100 * (16 * 4 + 4)


def test_the_native_gather_adds_up_the_rows():
    x = torch.arange(5 * 16, dtype=torch.float32).reshape(5, 16)
    index = torch.tensor([4, 0, 0, 2], dtype=torch.int32)
    assert limits.gather_call(x, index, 8)() == float(x[index.long()].sum())


def test_the_native_stream_adds_up_the_buffer():
    from onehop import native

    values = torch.arange(1000, dtype=torch.float32)
    assert native.extension.stream_read(values.data_ptr(), 4000, 2) == float(values.sum())


def test_an_aggregation_that_takes_as_long_as_its_gather_is_above_the_roof_by_what_it_writes():
    edges, nodes, width, seconds = 1000, 100, 32, 0.5
    roof = Bandwidth(limits.gathered_bytes(edges, width), Times((seconds,)))
    written = nodes * width * 4
    expected = 100 * (1 + written / limits.gathered_bytes(edges, width))
    assert limits.percent_of_roof(edges, nodes, width, seconds, roof) == pytest.approx(expected)
    assert limits.percent_of_roof(edges, nodes, width, 2 * seconds, roof) == pytest.approx(expected / 2)


def test_row_lengths_are_multiples_of_sixteen():
    assert limits.row_lengths([16, 48]) == [16, 48]
    with pytest.raises(ArgumentError, match="multiples of 16, got 20"):
        limits.row_lengths([16, 20])
