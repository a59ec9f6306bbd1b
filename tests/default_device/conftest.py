"""The ways to a default device, one after the other."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from tests.default_device.ways import WAYS


@pytest.fixture(params=WAYS)
def elsewhere(request: pytest.FixtureRequest) -> Callable[[], AbstractContextManager[None]]:
    """What makes "meta" the default device, for the length of a with statement."""
    return WAYS[request.param]
