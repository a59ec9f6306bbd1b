from collections.abc import Iterator

import pytest

import onehop


@pytest.fixture(autouse=True)
def _unpatched_afterwards() -> Iterator[None]:
    """Each test begins and ends without a patch and with an empty cache."""
    yield
    onehop.unpatch()
    onehop.clear_cache()
    assert onehop.patched() == ()
