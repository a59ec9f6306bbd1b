"""The order of files."""

from types import SimpleNamespace

import pytest

from tests.order import in_turns


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"a": 1, "b": 5, "c": 3, "d": 2}, "bbbbb a ccc dd"),
        ({"a": 1, "b": 5, "c": 3}, "bbbbb a ccc"),
        ({"a": 2}, "aa"),
        ({}, ""),
    ],
)
def test_the_most_and_the_fewest_in_turns(counts: dict[str, int], expected: str) -> None:
    items = [SimpleNamespace(nodeid=f"{file}::{at}") for file, count in counts.items() for at in range(count)]
    found = in_turns(items)
    assert "".join(item.nodeid[0] for item in found) == expected.replace(" ", "")
    for file in counts:
        of_file = [item for item in items if item.nodeid.startswith(file)]
        assert [item for item in found if item in of_file] == of_file
