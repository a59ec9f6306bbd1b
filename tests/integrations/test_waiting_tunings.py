"""What waits to be tuned under ``patch(tune="auto")``, and what becomes of it where something fails."""

import pytest

from onehop.integrations.tuning import _Auto


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
