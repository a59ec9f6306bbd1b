"""What waits to be tuned under ``patch(tune="auto")``, and what becomes of it where something fails."""

import pytest
import torch

from onehop import Graph
from onehop.integrations.tuning import _Auto, _Stopwatch, _Tuning


class Search:
    """Advances a few times, or fails."""

    def __init__(self, slices, error=None):
        self.slices, self.error, self.closed, self.steps = slices, error, False, self

    def advance(self):
        if self.error is not None:
            raise self.error
        self.slices -= 1
        return self.slices > 0

    def close(self):
        self.closed = True


def test_one_is_advanced_until_it_ends_and_then_the_next():
    auto, first, second = _Auto(), Search(2), Search(1)
    auto.waiting = [first, second]
    left = []
    for _ in range(4):
        auto.advance()
        left.append(list(auto.waiting))
    assert left == [[first, second], [second], [], []]


def test_one_that_fails_is_not_tried_again():
    auto, failing, other = _Auto(), Search(2, RuntimeError("no kernel")), Search(1)
    auto.waiting = [failing, other]
    with pytest.raises(RuntimeError, match="no kernel"):
        auto.advance()
    assert auto.waiting == [other]
    auto.advance()
    assert auto.waiting == []


class Failing(_Tuning):
    """The tuning of a graph that fails."""

    def __init__(self, graph, error):
        self.graph, self.watch, self.asked = graph, _Stopwatch(), 0
        self.steps = self._steps(error)

    def _steps(self, error):
        self.asked += 1
        raise error
        yield


def test_an_error_ends_the_tuning_of_its_graph_and_is_logged_once(caplog):
    auto, graphs = _Auto(), [Graph.from_edge_index(torch.randint(9, (2, 20)), 9) for _ in range(2)]
    first, second, other = (Failing(graph, RuntimeError("no kernel")) for graph in (graphs[0], *graphs))
    auto.waiting = [first, second, other]
    for _ in range(3):
        auto.advance()
    assert auto.waiting == []
    assert [each.asked for each in (first, second, other)] == [1, 0, 1]
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert "is not tuned any more" in caplog.text
    assert "no kernel" in caplog.text
    assert "onehop.patch(tune='never')" in caplog.text


def test_what_is_no_error_passes():
    auto = _Auto()
    auto.waiting = [Failing(Graph.from_edge_index(torch.randint(9, (2, 20)), 9), KeyboardInterrupt())]
    with pytest.raises(KeyboardInterrupt):
        auto.advance()
    assert auto.waiting == []


def test_giving_up_closes_all():
    auto, searches = _Auto(), [Search(2), Search(3)]
    auto.waiting = list(searches)
    auto.give_up()
    assert auto.waiting == []
    assert all(search.closed for search in searches)


def test_a_forked_child_leaves_its_parents_searches_alone(monkeypatch):
    auto, search = _Auto(), Search(2)
    auto.waiting = [search]
    monkeypatch.setattr("onehop.integrations.tuning.os.getpid", lambda: auto.process + 1)
    auto.advance()
    auto.give_up()
    assert auto.waiting == [search]
    assert (search.slices, search.closed) == (2, False)
