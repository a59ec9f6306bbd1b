"""Sizes in bytes, as people read them."""

import pytest

from onehop.sizes import mebibytes, told


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536 << 20, "1.5 GiB"), (12345678, "11.77 MiB")],
)
def test_a_size_has_the_unit_that_suits_it(size: int, text: str) -> None:
    assert told(size) == text


@pytest.mark.parametrize(
    ("size", "text"), [(None, "-"), (0, "0"), (10**5, "0.095"), (6368 << 20, "6,368"), (34 << 20, "34")]
)
def test_a_column_has_mebibytes(size: int | None, text: str) -> None:
    assert mebibytes(size) == text
