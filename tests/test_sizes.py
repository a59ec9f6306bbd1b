"""Sizes in bytes, as people read them."""

import pytest

from onehop.sizes import mebibytes, parsed, readable


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536 << 20, "1.5 GiB"), (12345678, "11.77 MiB")],
)
def test_a_size_has_the_unit_that_suits_it(size: int, text: str) -> None:
    assert readable(size) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [("100000", 100_000), ("4 GiB", 4 << 30), ("1.5MiB", 1536 << 10), ("7 B", 7), (" 2KiB ", 2048)],
)
def test_a_size_is_read(text: str, size: int) -> None:
    assert parsed(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "4 GB", "-1", "1e9", "4 GiB of it"])
def test_what_is_no_size_is_not_read(text: str) -> None:
    assert parsed(text) is None


@pytest.mark.parametrize(
    ("size", "text"), [(None, "-"), (0, "0"), (10**5, "0.095"), (6368 << 20, "6,368"), (34 << 20, "34")]
)
def test_a_column_has_mebibytes(size: int | None, text: str) -> None:
    assert mebibytes(size) == text
