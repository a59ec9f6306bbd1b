"""Integers sorted, told apart, and looked up in others: what ``csrc/runtime`` does with threads."""

from collections.abc import Sequence


def sort(x: Sequence[int], descending: bool = False) -> tuple[list[int], list[int]]:
    """The integers in order, and the place of each in ``x``; equal ones keep their order."""
    places = sorted(range(len(x)), key=lambda place: -x[place] if descending else x[place])
    return [x[place] for place in places], places


def unique(x: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """The distinct integers in ascending order, which of them each one is, and how often each occurs."""
    values = sorted(set(x))
    return values, [values.index(each) for each in x], [list(x).count(each) for each in values]


def unique_pairs(
    first: Sequence[int], second: Sequence[int]
) -> tuple[list[tuple[int, int]], list[int], list[int]]:
    """The same of pairs, in the order of their first numbers, then of their second."""
    pairs = list(zip(first, second, strict=True))
    values = sorted(set(pairs))
    return values, [values.index(each) for each in pairs], [pairs.count(each) for each in values]


def isin(x: Sequence[int], others: Sequence[int], inverted: bool = False) -> list[bool]:
    """Tells of each integer if it is among others; if ``inverted``, if it is not."""
    return [(each in others) != inverted for each in x]
