"""The machine's speeds: that each is measured where it is said to be, and that a disturbed one is seen."""

import pytest
import torch

from onehop import native, processor
from onehop.tuner import speeds


@pytest.fixture
def small_caches(monkeypatch):
    monkeypatch.setattr(processor, "caches", lambda: {1: 1 << 15, 2: 1 << 20})
    speeds.speeds.cache_clear()
    yield
    speeds.speeds.cache_clear()


@pytest.mark.usefixtures("small_caches")
def test_rows_from_memory_are_read_once_and_not_from_a_cache(monkeypatch):
    calls = []
    gather = speeds._gather

    def spy(buffer, row_bytes, index, prefetch, threads):
        calls.append((row_bytes, index.clone()))
        return gather(buffer, row_bytes, index, prefetch, threads)

    monkeypatch.setattr(speeds, "_gather", spy)
    threads = native.threads()
    found = speeds.speeds(threads, native.extension.selected_isa())
    assert found.levels == (1 << 15, 1 << 20)
    for row_bytes in speeds.ROW_BYTES:
        measured = [index for size, index in calls if size == row_bytes and len(index) == 8192 * threads]
        # The level that was measured last is memory.
        of_memory = measured[-5 * len(speeds.PREFETCHES) :]
        assert min(int(index.max()) for index in of_memory) * row_bytes > 2 * (1 << 20)
        assert len({tuple(index.tolist()) for index in of_memory}) == len(of_memory), "the same rows twice"


def test_what_is_near_is_no_slower_and_neither_is_what_is_short():
    disturbed = [
        [(9.0, 1.0), (2.0, 2.0)],  # the first measurement of all was disturbed
        [(3.0, 3.0), (4.0, 9.0)],
        [(5.0, 5.0), (6.0, 6.0)],
    ]
    found = torch.tensor(speeds._believable([tuple(level) for level in disturbed]))
    expected = torch.tensor([[[2.0, 1.0], [2.0, 2.0]], [[3.0, 3.0], [4.0, 6.0]], [[5.0, 5.0], [6.0, 6.0]]])
    assert torch.equal(found, expected)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_every_thread_has_a_piece_to_read(threads, monkeypatch, small_caches):
    lengths = []
    monkeypatch.setattr(
        speeds, "_gather", lambda buffer, row, index, *rest: lengths.append(len(index)) or 1.0
    )
    speeds.speeds(threads, native.extension.selected_isa())
    assert max(lengths) == threads * 8192
