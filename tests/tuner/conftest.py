"""Every test has a store and a table of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from onehop.kernels.cpu import generated
from onehop.plans import tuned


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine decides no test: compilers may take as long as they take."""
    monkeypatch.setattr("onehop.tuner.codegen.compiler._VERSION_S", 1e5)
    monkeypatch.setattr("onehop.tuner.codegen.builder._TRIAL_S", 1e5)
    monkeypatch.setattr("onehop.tuner.generation._LONGEST_COMPILE_S", 1e5)


@pytest.fixture(autouse=True)
def table(own_cache: Path) -> Iterator[Path]:
    """The folder of this test's store; what is tuned elsewhere is not known here, nor the other way round."""
    tuned.forget()
    generated.forget()
    yield own_cache
    tuned.forget()
    generated.forget()
