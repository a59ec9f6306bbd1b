"""Tests marked `pairwise` run few of their forms, in which every pair of values of two parameters occurs.

Few faults need three values together. With ONEHOP_TESTS=all (`make test-all`), all forms run.
"""

import inspect
import os
import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any

import pytest


def pairwise(where: Callable[..., bool] = lambda: True, **values: Any) -> Callable[[Any], Any]:
    """Parametrises a test by each list of `values`; parameters of fixtures and of other decorators join in.

    where: takes parameters by name and returns False for a combination that does not exist.
    """

    def decorate(test: Any) -> Any:
        for name, each in values.items():
            test = pytest.mark.parametrize(name, each)(test)
        return pytest.mark.pairwise(where=where)(test)

    return decorate


def cover(forms: Sequence[Sequence[Hashable]]) -> set[int]:
    """Returns the places of few forms (found greedily) with every pair of values that occurs in `forms`."""
    seen: list[dict[Hashable, int]] = [{} for _ in forms[0]]
    numbers = [[n.setdefault(value, len(n)) for n, value in zip(seen, form, strict=True)] for form in forms]
    pairs, chosen = list(combinations(range(len(seen)), 2)), set[int]()
    first, second, *others = sorted(range(len(seen)), key=lambda axis: -len(seen[axis]))

    def outside(place: int) -> int:
        """The parameters that leave the Latin squares over the two with the most values; 0 is tried first."""
        of = numbers[place]
        return sum((of[first] + k * of[second] - of[a]) % len(seen[a]) > 0 for k, a in enumerate(others, 1))

    order, covered = sorted(range(len(forms)), key=outside), set[tuple[int, ...]]()
    # A form never adds more pairs later than now: the pass that wants n pairs leaves none that adds n.
    for wanted in range(len(pairs), 0, -1):
        for place in order:
            new = {(a, b, numbers[place][a], numbers[place][b]) for a, b in pairs} - covered
            if len(new) == wanted:
                covered |= new
                chosen.add(place)
    return chosen


def spread(rows: Iterable[tuple[str, ...]], *axes: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Yields each row with a value of every axis, for products that are too large for `cover`.

    Among the rows with the same first element, the values of an axis are equally frequent; seeds draw them.
    """
    groups = defaultdict(list)
    for row in rows:
        groups[row[0]].append(row)
    for name, members in groups.items():
        columns = []
        for number, axis in enumerate(axes):
            column = [axis[at % len(axis)] for at in range(-(-len(members) // len(axis)) * len(axis))]
            random.Random(f"{name} {number}").shuffle(column)
            columns.append(column[: len(members)])
        for row, *values in zip(members, *columns, strict=True):
            yield (*row, *values)


def rounds() -> int:
    """Returns how often `spread` repeats its rows: 1, or more where all forms run."""
    return 1 if os.environ.get("ONEHOP_TESTS", "pairs") == "pairs" else 3


def values_of(form: Any) -> list[Hashable]:
    """The addresses of the values, which all forms share, of each decorator and fixture with parameters."""
    params, marks = form.callspec.params, form.iter_markers("parametrize")
    lists = [n.replace(",", " ").split() if isinstance(n := mark.args[0], str) else n for mark in marks]
    lists += [[name] for name in params if not any(name in names for names in lists)]
    return [tuple(id(params[name]) for name in names) for names in lists]


def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    """Deselects the forms that do not exist, and those whose pairs other forms have."""
    if (kind := os.environ.get("ONEHOP_TESTS", "pairs")) not in ("pairs", "all"):
        raise pytest.UsageError(f"ONEHOP_TESTS must be 'pairs' (the default) or 'all'; it is {kind!r}")
    tests, removed = defaultdict(list), set()
    for item in items:
        if mark := item.get_closest_marker("pairwise"):
            where, params = mark.kwargs["where"], item.callspec.params
            if where(**{name: params[name] for name in inspect.signature(where).parameters}):
                tests[item.nodeid.partition("[")[0]].append(item)
            else:
                removed.add(item)
    for forms in tests.values() if kind == "pairs" else ():
        chosen = cover([values_of(form) for form in forms])
        removed |= {form for place, form in enumerate(forms) if place not in chosen}
    items[:] = [item for item in items if item not in removed]
    config.hook.pytest_deselected(items=list(removed))
