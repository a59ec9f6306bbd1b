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
    measure = speeds._sum

    def spy(graph, x, plan):
        calls.append((x.nbytes, x.size(1) * x.element_size(), graph, plan))
        return measure(graph, x, plan)

    monkeypatch.setattr(speeds, "_sum", spy)
    threads = native.threads()
    found = speeds.speeds(threads, native.extension.selected_isa())
    assert found.levels == (1 << 15, 1 << 20)
    assert {nbytes for nbytes, *_ in calls} == {1 << 14, 1 << 19, 1 << 22}
    for row_bytes in speeds.ROW_BYTES:
        of_memory = [
            (graph, plan) for nbytes, row, graph, plan in calls if row == row_bytes and nbytes == 1 << 22
        ]
        assert [plan.prefetch for _, plan in of_memory] == 4 * list(speeds.PREFETCHES)
        assert all(plan.threads == threads and plan.column_tile == 0 for _, plan in of_memory)
        sources = {tuple(graph.col[:1000].tolist()) for graph, _ in of_memory}
        assert len(sources) == len(of_memory), "the same rows twice"
        assert all(int(graph.col.max()) * row_bytes > 2 << 20 for graph, _ in of_memory)


def test_what_is_near_is_no_slower_and_neither_is_what_is_short():
    disturbed = [
        [(9.0, 1.0), (2.0, 2.0)],  # the first measurement of all was disturbed
        [(3.0, 3.0), (4.0, 9.0)],
        [(5.0, 5.0), (6.0, 6.0)],
    ]
    found = torch.tensor(speeds._believable([tuple(level) for level in disturbed]))
    expected = torch.tensor([[[2.0, 1.0], [2.0, 2.0]], [[3.0, 3.0], [4.0, 6.0]], [[5.0, 5.0], [6.0, 6.0]]])
    assert torch.equal(found, expected)
