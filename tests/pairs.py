"""Tests marked `pairwise` run few of their forms, in which every pair of values of two parameters occurs.

Few faults need three values together. With ONEHOP_TESTS=all (`make test-all`), all forms run.
"""

import inspect
import os
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from itertools import combinations
from typing import Any

import pytest

KINDS = ("pairs", "all")


def pairwise(where: Callable[..., bool] | None = None, **values: Any) -> Callable[[Any], Any]:
    """Parametrises a test by each list of `values`; parameters of fixtures and of other decorators join in.

    where: takes parameters by name and returns False for a combination that does not exist; None: all exist.
    """

    def decorate(test: Any) -> Any:
        for name, each in values.items():
            test = pytest.mark.parametrize(name, each)(test)
        return pytest.mark.pairwise(where=where)(test)

    return decorate


def cover(forms: Sequence[tuple[Hashable, ...]]) -> set[int]:
    """Returns the places of few forms (found greedily) with every pair of values that occurs in `forms`."""
    seen: list[dict[Hashable, int]] = [{} for _ in forms[0]]
    numbers = [tuple(n.setdefault(v, len(n)) for n, v in zip(seen, form, strict=True)) for form in forms]
    sizes, pairs = [len(each) for each in seen], list(combinations(range(len(seen)), 2))
    first, second, *others = sorted(range(len(sizes)), key=lambda axis: -sizes[axis])

    def outside(place: int) -> int:
        """The parameters that leave the Latin squares over the two with the most values; 0 is tried first."""
        a, b = numbers[place][first], numbers[place][second]
        return sum((a + k * b - numbers[place][axis]) % sizes[axis] > 0 for k, axis in enumerate(others, 1))

    order, chosen = sorted(range(len(forms)), key=outside), set()
    covered: set[tuple[int, int, int, int]] = set()
    # A form never adds more pairs later than now: the pass that wants n pairs leaves none that adds n.
    for wanted in range(len(pairs), 0, -1):
        for place in order:
            new = {(i, j, numbers[place][i], numbers[place][j]) for i, j in pairs} - covered
            if len(new) == wanted:
                covered |= new
                chosen.add(place)
    return chosen


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects the forms that do not exist, and those whose pairs other forms have."""
    if (kind := os.environ.get("ONEHOP_TESTS", "pairs")) not in KINDS:
        raise pytest.UsageError(f"ONEHOP_TESTS must be one of {', '.join(KINDS)}; it is {kind!r}")
    tests: dict[str, list[Any]] = defaultdict(list)
    removed: list[pytest.Item] = []
    for item in items:
        if mark := item.get_closest_marker("pairwise"):
            where, params = mark.kwargs["where"], item.callspec.params
            if where and not where(**{name: params[name] for name in inspect.signature(where).parameters}):
                removed.append(item)
            else:
                tests[item.nodeid.partition("[")[0]].append(item)
    if kind == "pairs":
        for forms in tests.values():
            # A value is the same object in all forms.
            chosen = cover([tuple(map(id, form.callspec.params.values())) for form in forms])
            removed += [form for place, form in enumerate(forms) if place not in chosen]
    gone = set(removed)
    items[:] = [item for item in items if item not in gone]
    config.hook.pytest_deselected(items=removed)
