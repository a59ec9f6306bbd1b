"""Fixtures that every folder of tests may use."""

import dataclasses
import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch

from onehop import thresholds
from onehop.integrations import session
from tests import order, pairs
from tests.interpreter import interpreter as interpreter

# Before anything imports triton: in tests its kernels are interpreted, on CPU tensors. `make gpu` sets the
# variable, and runs some on a GPU.
if os.environ.get("ONEHOP_TEST_DEVICE") != "cuda":
    os.environ["TRITON_INTERPRET"] = "1"

# How long an example takes decides nothing.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


# Where there is no GPU, torch.manual_seed formats and keeps the stack for one that may come: half a
# millisecond, which is longer than most of what tests call.
if not torch.cuda.is_available():
    for device in (torch.cuda, torch.xpu, torch.mtia):
        vars(device)["manual_seed_all"] = lambda seed: None

# Graphs in tests are small, and what is tested is ours: PyG's own code would run on most of them.
WITH_FEW_EDGES = dataclasses.replace(thresholds.ORDINARY, few_edges=0)
if thresholds.now is thresholds.ORDINARY:
    thresholds.now = WITH_FEW_EDGES


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out forms whose pairs others have; orders files where several workers share them."""
    pairs.pytest_collection_modifyitems(config, items)
    if hasattr(config, "workerinput"):
        items[:] = order.in_turns(items)


def pytest_collection_finish() -> None:
    """Leaves what exists before the first test, a million objects, out of every garbage collection."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Lets them go at the end, as triton counts what is left."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def patch_as_before() -> Iterator[None]:
    """Fails the test that does not restore the patch, because a later test would fail otherwise."""
    before = session.now
    yield
    assert session.now == before


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    """Restores the number of threads, which commands change that run in the test's process."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def rng() -> np.random.Generator:
    """Chance that is the same in every run."""
    return np.random.default_rng(0)


@pytest.fixture
def generator() -> torch.Generator:
    """The same for torch."""
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real graphs."""
    folder = os.environ.get("ONEHOP_DATA")
    if not folder:
        pytest.skip(
            "ONEHOP_DATA is not set: it names the folder with cora.npz, tolokers.npz and cornell5.mat"
        )
    return Path(folder)


@pytest.fixture(autouse=True, scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache folder for all tests together, which is not the user's."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONEHOP_CACHE_DIR", str(folder))
        yield folder


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder for one test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("ONEHOP_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def bounds(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets thresholds, by name, for the length of the test."""

    def change(**values: int) -> None:
        monkeypatch.setattr(thresholds, "now", dataclasses.replace(thresholds.now, **values))

    return change


@pytest.fixture
def ordinary_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thresholds as in other tests, also where ONEHOP_THRESHOLDS=none is set: for tests of what they do."""
    monkeypatch.setattr(thresholds, "now", WITH_FEW_EDGES)
