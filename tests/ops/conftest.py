"""What tests of operators share."""

from collections.abc import Iterator

import pytest

from onehop import native


@pytest.fixture(params=native.extension.available_isas())
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs the test on each instruction set that this processor has."""
    before = native.extension.selected_isa()
    assert native.extension.select_isa(request.param)
    yield request.param
    native.extension.select_isa(before)
