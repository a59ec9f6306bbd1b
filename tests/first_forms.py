"""A plugin of pytest: the first forms of each test alone measure coverage, which is a lower bound thus.

Python runs at a third of its speed where lines are counted, and Triton's interpreter is Python.
"""

import sys
from collections import Counter
from collections.abc import Generator

import pytest

MEASURED_FORMS = 2
_forms: Counter[str] = Counter()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Takes the tracer off for the length of a later form."""
    test = item.nodeid.partition("[")[0]
    _forms[test] += 1
    if _forms[test] <= MEASURED_FORMS:
        return (yield)
    counting = sys.gettrace()
    sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(counting)
