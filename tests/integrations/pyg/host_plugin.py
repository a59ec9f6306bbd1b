"""A pytest plugin for PyG's own tests: patches for the whole session, and writes down what happened.

Loaded by host_suite.py with ``-p host_plugin``. It writes one JSON object a line, as things happen, so that a
process that dies leaves behind which test it was running.
"""

import dataclasses
import json
import random
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TIERED = (
    "its message in blocks",
    "its message, compiled",
    "source * weight for each head, weights by PyG",
    "source * softmax of scores for each head",
    "source * tanh of scores * weight",
)
"""What runs as several operators, or runs the layer's own message, of the forms that ``explain`` names."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("onehop")
    group.addoption("--onehop-record", metavar="FILE", help="where to write what happened")
    group.addoption("--onehop-patch", action="store_true", help="run every test under onehop.patch()")
    group.addoption("--onehop-sampler", action="store_true", help="run PyG's tests of samplers with onehop's")
    group.addoption("--onehop-seed", type=int, default=0, help="what the tests' random numbers begin with")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--onehop-record")
    if path is not None:
        patched, sampler = (config.getoption(f"--onehop-{name}") for name in ("patch", "sampler"))
        if patched:
            say_pyg_lib_is_installed()
        if sampler:
            say_a_sampler_is_installed()
        recorder = Recorder(Path(path), patched, config.getoption("--onehop-seed"), sampler)
        config.pluginmanager.register(recorder)


class Recorder:
    """Seeds each test, lets it run, and writes down how it ended and what the layers in it did."""

    def __init__(self, path: Path, patched: bool, seed: int, sampler: bool) -> None:
        self._lines = path.open("w", encoding="utf-8")
        self._patched = patched
        self._seed = seed
        self._sampler = sampler
        self._reports: list[pytest.TestReport] = []

    def pytest_sessionstart(self) -> None:
        # Before the tests are imported, so that the functions of PyG that they import are ours too.
        if self._patched:
            import onehop
            from onehop import thresholds

            if not onehop.patch(sampler=True if self._sampler else None).active:
                raise pytest.UsageError(
                    "ONEHOP_DISABLE=1 forbids the patch: nothing would be shown; unset it."
                )

            # Graphs of a few edges, as PyG's tests have them, are not left to PyG for their size, what can be
            # kept is kept at once, and messages come in several blocks.
            thresholds.now = dataclasses.replace(thresholds.NONE, block_edges=2)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write({"test": report.nodeid, "result": "not collected", "detail": report.longreprtext})

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._write({"started": item.nodeid})
        seed_everything(self._seed + zlib.crc32(item.nodeid.encode()))
        self._reports = []
        if not self._patched:
            done = yield
        else:
            from onehop.integrations import reports

            with reports.recorded() as calls:
                done = yield
            for layer in {layer_use(call) for call in calls}:
                self._write({"layer": layer})
        self._write({"test": item.nodeid, **ending(self._reports)})
        return done

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(report)

    def pytest_sessionfinish(self) -> None:
        if self._patched:
            import onehop

            onehop.unpatch()
        self._write({"finished": True})
        self._lines.close()

    def _write(self, line: dict[str, Any]) -> None:
        self._lines.write(json.dumps(line) + "\n")
        self._lines.flush()


def say_pyg_lib_is_installed() -> None:
    """Lets those tests of PyG's run that want pyg-lib, of which the patch has what they need."""
    from torch_geometric.testing import decorators

    has_package = decorators.has_package
    decorators.has_package = lambda package: package.startswith("pyg_lib") or has_package(package)


def say_a_sampler_is_installed() -> None:
    """Sets the flags by which PyG's tests of samplers tell what may draw."""
    import torch_geometric.typing
    from torch_geometric.testing import decorators

    decorators.WITH_PYG_LIB = True
    for flag in ("WITH_EDGE_TIME_NEIGHBOR_SAMPLE", "WITH_WEIGHTED_NEIGHBOR_SAMPLE"):
        setattr(torch_geometric.typing, flag, True)


def seed_everything(seed: int) -> None:
    import numpy
    import torch

    random.seed(seed)
    numpy.random.seed(seed % 2**32)  # noqa: NPY002 - PyG draws from this generator
    torch.manual_seed(seed)


def ending(phases: list[pytest.TestReport]) -> dict[str, str]:
    """How a test ended: what its first phase says that did not pass."""
    for report in phases:
        if report.outcome != "passed":
            result = report.outcome if report.when == "call" or report.skipped else f"{report.when} failed"
            return {"result": result, "detail": report.longreprtext}
    return {"result": "passed", "detail": ""}


def layer_use(call: Any) -> tuple[str, str, str]:
    """A layer's class, which path it took, and what ran or why not."""
    from onehop.compiler.lines import without_line

    kind = type(call.layer)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if call.reason is not None:
        return name, "delegated", without_line(call.reason)
    return name, "tiered" if call.form in TIERED else "fast", f"{call.reduce} of {call.form}"
