"""A store and a table for every test, and what replaces clocks and compilers."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from onehop import native
from onehop.kernels.cpu import generated
from onehop.plans import gpu_tuned, tuned
from onehop.tuner.speeds import speeds
from tests.tuner.fake_compilers import fake_compiler


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine decides no test: compilers may take as long as they take."""
    monkeypatch.setattr("onehop.tuner.codegen.builder._VERSION_S", 1e5)
    monkeypatch.setattr("onehop.tuner.codegen.builder._TRIAL_S", 1e5)
    monkeypatch.setattr("onehop.tuner.codegen.generation._LONGEST_COMPILE_S", 1e5)


def _forget() -> None:
    for each in (tuned, gpu_tuned, generated):
        each.forget()


@pytest.fixture(autouse=True)
def table(own_cache: Path) -> Iterator[Path]:
    """The folder of this test's store; what is tuned elsewhere is not known here, nor the other way round."""
    _forget()
    yield own_cache
    _forget()


@pytest.fixture(scope="module")
def _calibrated() -> None:
    """The machine's speeds are measured once; no test's budget is to pay for that."""
    speeds(torch.get_num_threads(), native.extension.selected_isa())


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Any], float]], None]:
    """Makes calls take what a function says of their plan, in seconds; they are not run."""
    return lambda cost: monkeypatch.setattr("onehop.tuner.cpu._timed", lambda call, plan: cost(plan))


@pytest.fixture
def with_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Sets ``$CXX`` to a fake; returns the file that counts its calls."""

    def set_it(kind: str) -> Path:
        program, log = fake_compiler(tmp_path, kind)
        monkeypatch.setenv("CXX", str(program))
        return log

    return set_it
