"""Intervals over what a work does not publish, and the unknowns that make their ends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log

from onehop.errors import ArgumentError

# The source of bounds that nothing published supports.
OUR_CHOICE = "our choice"
# What differs from the base, in words; the base itself is the empty set.
Setting = frozenset[str]
BASE: Setting = frozenset()
# An unknown is named at an end if the value without it is farther from the end by this factor.
_NOTICED = 0.01
# Between the labels of an end.
SEPARATOR = "; "


@dataclass(frozen=True, slots=True)
class Unknown:
    """Something that a work does not publish and that its figures depend on.

    Attributes:
        name: What it is.
        base: Its value in ours.
        others: Its other values. Each is unique among all unknowns of a work, and names the unknown.
        source: Where the values come from, or :data:`OUR_CHOICE` with a reason.
        settled_by: What would make it known: a measurement, or a part of a text.
    """

    name: str
    base: str
    others: tuple[str, ...]
    source: str
    settled_by: str

    def as_dict(self) -> dict[str, str | list[str]]:
        """Return the unknown, ready for JSON."""
        return {
            "name": self.name,
            "base": self.base,
            "others": list(self.others),
            "source": self.source,
            "settled_by": self.settled_by,
        }


@dataclass(frozen=True, slots=True)
class Interval:
    """A value, and its range over settings of unknowns.

    Attributes:
        ours: The value at the base.
        low: The smallest value.
        high: The largest value.
        low_by: The setting that makes the smallest value, in words, the unknown of the largest effect first.
        high_by: The setting that makes the largest value, in words.
    """

    ours: float
    low: float
    high: float
    low_by: str
    high_by: str


def interval(values: Mapping[Setting, float]) -> Interval:
    """Return the range of a figure over settings of its unknowns.

    Args:
        values: The figure by setting, including the base.

    Raises:
        ArgumentError: There is no value at the base.

    Examples:
        >>> interval({BASE: 3.0, frozenset({"32 ranks"}): 2.0}).low_by
        '32 ranks'
    """
    if BASE not in values:
        raise ArgumentError("values: expected a value at the base, the empty set, got none.")
    low, high = (end(values, key=values.__getitem__) for end in (min, max))
    return Interval(values[BASE], values[low], values[high], _named(values, low), _named(values, high))


def decides(spanned: Interval, unknowns: Sequence[Unknown]) -> str:
    """Return a sentence on what would decide a row: what settles the first unknown of each end."""
    settling = []
    for end in (spanned.low_by, spanned.high_by):
        first = end.split(SEPARATOR)[0]
        settling += [each.settled_by for each in unknowns if first in each.others]
    return f"To decide it, one needs {' and '.join(dict.fromkeys(settling))}." if settling else ""


def _named(values: Mapping[Setting, float], end: Setting) -> str:
    """Return the labels of a setting that matter, the largest effect first; "the base" without labels."""

    def effect(label: str) -> float:
        # Some works compute only a part of all combinations: then the label is judged alone.
        without, within = end - {label}, values[end]
        if without in values:
            return _apart(within, values[without])
        alone = values.get(frozenset({label}))
        return _apart(within, values[BASE]) if alone is None else _apart(alone, values[BASE])

    effects = {label: effect(label) for label in sorted(end)}
    named = sorted(effects, key=lambda label: -effects[label])
    return SEPARATOR.join([label for label in named if effects[label] >= _NOTICED] or named[:1]) or "the base"


def _apart(one: float, other: float) -> float:
    """Return how far two figures are apart, as the logarithm of their quotient."""
    return abs(log(one / other)) if one > 0 and other > 0 else float(one != other)
