"""Every public name has an example in its docstring, which runs and prints what it says."""

import dataclasses
import doctest
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import onehop
from onehop import thresholds
from onehop.plans import tuned
from onehop.tuner.speeds import speeds
from tests.registries import as_before

API = Path(__file__).resolve().parents[1] / "docs" / "reference" / "api"

# Arguments and results of others, each with the name whose example has one.
SHOWN_BY = {
    "onehop.CacheInfo": "onehop.cache_info",
    "onehop.files.FileContent": "onehop.files.read",
    "onehop.machines.dram.DramReport": "onehop.machines.dram.Memory",
    "onehop.machines.gpu.Gathered": "onehop.machines.gpu.gather",
    "onehop.machines.gpu.Kernel": "onehop.machines.gpu.gather",
    "onehop.machines.ndp.ClockPoint": "onehop.machines.ndp.by_clock",
    "onehop.machines.ndp.Estimate": "onehop.machines.ndp.Sample",
    "onehop.machines.ndp.ModelRun": "onehop.machines.ndp.run_model",
    "onehop.machines.ndp.NamedPrior": "onehop.machines.ndp.named_priors",
    "onehop.machines.ndp.SampledLayer": "onehop.machines.ndp.Sample",
    "onehop.machines.ndp.SampledMapping": "onehop.machines.ndp.Sample",
    "onehop.machines.pim.PimReport": "onehop.machines.pim.Machine",
    "onehop.tuner.CurvePoint": "onehop.TuningResult",
}
# Names without an example, and the reason. Errors need none, because nobody calls them.
WITHOUT = {
    "onehop.datasets.ogb": "it downloads a graph",
    "onehop.datasets.pyg": "it downloads a graph",
}
# Packages that users may lack, which some examples import.
EXTRAS = {"torch_geometric": "torch_geometric", "onehop.ingest(": "duckdb"}


def public_names() -> list[str]:
    """The names that the pages of the API describe, and those that the package exports."""
    pages = [path.read_text() for path in API.glob("*.md")]
    described = [name for page in pages for name in re.findall(r"^::: (\S+)", page, re.M)]
    return sorted({*described, *(f"onehop.{name}" for name in onehop._HOMES)})


def named(name: str) -> Any:
    """The object of a dotted name."""
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


def is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, BaseException)


NAMES = public_names()
EXPECTED = [
    name for name in NAMES if name not in SHOWN_BY and name not in WITHOUT and not is_error(named(name))
]


def examples(value: Any, name: str) -> dict[str, doctest.DocTest]:
    """The examples of an object's docstring, and of the methods' of a class, by name."""
    found = doctest.DocTestFinder().find(value, name)
    return {each.name: each for each in found if each.examples}


def faults(example: doctest.DocTest) -> str:
    """Runs the example, and returns the differences to what it says; its variables stay in ``globs``."""
    told: list[str] = []
    doctest.DocTestRunner(verbose=False).run(example, out=told.append, clear_globs=False)
    return "".join(told)


@pytest.fixture(autouse=True)
def _undone_afterwards() -> Iterator[None]:
    with as_before(), torch.random.fork_rng(devices=[]):
        yield
    if torch.distributed.is_initialized():  # an example failed before its end
        torch.distributed.destroy_process_group()
    tuned.forget()
    onehop.clear_cache()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which examples run, as for users: there they leave nothing."""
    monkeypatch.setattr(thresholds, "now", thresholds.ORDINARY)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(autouse=True)
def _small_buffers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tuning starts after a fraction of a second, not after seconds: its buffers are small."""
    monkeypatch.setattr("onehop.processor.caches", dict)
    monkeypatch.setattr("onehop.processor.last_level_cache_bytes", lambda: 0)
    monkeypatch.setattr("onehop.tuner.speeds._UNKNOWN_BYTES", 1 << 22)
    speeds.cache_clear()
    yield
    speeds.cache_clear()


@pytest.mark.parametrize("name", EXPECTED)
def test_the_example_runs(name: str) -> None:
    found = examples(named(name), name)
    assert name in found, f"{name} has no example in its docstring; write one, under Examples:"
    for example in found.values():
        for text, package in EXTRAS.items():
            if text in str(example.docstring):
                pytest.importorskip(package)
        assert faults(example) == ""
        assert any(line.want for line in example.examples), f"{example.name}: its example shows no result"
    assert not torch.distributed.is_initialized()


def within(value: Any) -> Iterator[Any]:
    """The value, and what its fields and entries hold."""
    yield value
    inner: list[Any] = []
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        inner = [getattr(value, field.name) for field in dataclasses.fields(value)]
    elif isinstance(value, dict):
        inner = list(value.values())
    for each in inner:
        yield from within(each)


@pytest.mark.parametrize(("name", "by"), SHOWN_BY.items())
def test_another_example_shows_it(name: str, by: str) -> None:
    example = examples(named(by), by)[by]
    assert faults(example) == ""
    shown = [each for value in example.globs.values() for each in within(value)]
    assert any(isinstance(each, named(name)) for each in shown)


def test_names_without_an_example_are_public_and_have_none() -> None:
    assert {*SHOWN_BY, *WITHOUT} <= set(NAMES)
    assert [name for name in (*SHOWN_BY, *WITHOUT) if name in examples(named(name), name)] == []


def twice(number: int) -> int:
    """A wrong example.

    Examples:
        >>> 2 * 3
        7
    """
    return 2 * number


def test_a_wrong_result_is_seen() -> None:
    told = faults(examples(twice, "twice")["twice"])
    assert "Expected:\n    7\nGot:\n    6" in told
