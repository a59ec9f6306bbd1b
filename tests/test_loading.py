"""Ways between rooms that do not import each other."""

import sys

from onehop.loading import Way, imported


def test_who_waits_for_a_way_is_called_once_when_it_is_provided() -> None:
    way, calls = Way("provider", "user"), []
    way.when_provided(lambda: calls.append(way.provided))
    assert way.provided is None
    assert calls == []
    way.provide("rows")
    assert calls == ["rows"]
    way.when_provided(lambda: calls.append("at once"))
    assert calls == ["rows", "at once"]
    way.provide("other rows")
    assert (calls, way.provided) == (["rows", "at once"], "other rows")


def test_a_package_of_others_is_not_imported_to_be_asked_for() -> None:
    assert imported("sys") is sys
    assert imported("antigravity") is None
    assert "antigravity" not in sys.modules
