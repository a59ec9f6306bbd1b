"""Sorting, grouping and looking up integers: naive versions of what ``csrc/runtime`` does with threads."""

from collections.abc import Sequence


def sort(x: Sequence[int], descending: bool = False) -> tuple[list[int], list[int]]:
    """Return the integers in order, and their positions in ``x``; equal integers keep their order."""
    places = sorted(range(len(x)), key=lambda place: -x[place] if descending else x[place])
    return [x[place] for place in places], places


def unique(x: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Return the distinct integers, ascending; each integer's index among them; and how often each occurs."""
    values = sorted(set(x))
    return values, [values.index(each) for each in x], [list(x).count(each) for each in values]


def unique_pairs(
    first: Sequence[int], second: Sequence[int]
) -> tuple[list[tuple[int, int]], list[int], list[int]]:
    """Return the same as :func:`unique` for pairs, which are ordered by first, then by second number."""
    pairs = list(zip(first, second, strict=True))
    values = sorted(set(pairs))
    return values, [values.index(each) for each in pairs], [pairs.count(each) for each in values]


def isin(x: Sequence[int], others: Sequence[int], inverted: bool = False) -> list[bool]:
    """Return, for each integer, whether it is among ``others``; if ``inverted``, whether it is not."""
    return [(each in others) != inverted for each in x]
