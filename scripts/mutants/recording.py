"""Which tests execute a line, and how long each takes: recorded once a test file, by coverage.py.

Processes that tests start are recorded too. A recording is used as long as the test file, what tests share,
and the modules whose functions it executes are the same.
"""

import hashlib
import json
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

import coverage
import pytest
import warm

FOLDER = warm.BUILD / "recorded"
# Seconds that the tests of one file may take.
LONGEST, LONGEST_TEST = 1800, 120


class Recorder:
    """A plugin: one context a test, and its time if it passes."""

    def __init__(self, name: str) -> None:
        self.data = FOLDER / f"{name}.coverage"
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []
        self.coverage = coverage.Coverage(
            data_file=str(self.data), source=[str(warm.COPY)], config_file=False, messages=False
        )
        settings = FOLDER / f"{name}.ini"
        lines = ["[run]", "parallel = true", f"source = {warm.COPY}", f"data_file = {self.data}.child"]
        settings.write_text("\n".join([*lines, "context = ${MUTANTS_TEST}", ""]))
        os.environ["COVERAGE_PROCESS_START"] = str(settings)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Switches the context."""
        os.environ["MUTANTS_TEST"] = item.nodeid
        self.coverage.switch_context(item.nodeid)
        before = time.perf_counter()
        # A test that forks while other threads run may find coverage's own lock taken in the child, for ever.
        signal.setitimer(signal.ITIMER_REAL, LONGEST_TEST)
        result = yield
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.seconds[item.nodeid] = time.perf_counter() - before
        self.coverage.switch_context("")
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remembers what did not pass."""
        if not report.passed:
            self.failed.append(report.nodeid)

    def pytest_load_initial_conftests(self) -> None:
        """Begins before onehop is imported, as by a conftest.py."""
        signal.signal(signal.SIGALRM, _too_long)
        self.coverage.start()

    def finish(self) -> None:
        """Writes what was recorded."""
        self.coverage.stop()
        self.coverage.save()
        children = list(FOLDER.glob(f"{self.data.name}.child.*"))
        if children:
            self.coverage.combine([str(child) for child in [self.data, *children]])
            self.coverage.save()
        passed = {name: round(each, 3) for name, each in self.seconds.items() if name not in self.failed}
        data = self.coverage.get_data()
        executed = [
            Path(measured).relative_to(warm.COPY)
            for measured in data.measured_files()
            if any(any(contexts) for contexts in data.contexts_by_lineno(measured).values())
        ]
        sources = {str(module): digest(warm.COPY / module) for module in executed}
        self.data.with_suffix(".json").write_text(
            json.dumps({"passed": passed, "failed": self.failed, "sources": sources})
        )


def digest(*paths: Path) -> str:
    """Tells different contents apart."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:20]


def _too_long(number: int, frame: object) -> None:
    """Ends a test."""
    raise TimeoutError(f"took longer than {LONGEST_TEST} seconds, which is recorded as not passed")


@dataclass(frozen=True, eq=False)
class Recording:
    """Tests by module and line, lines that are executed when a module is imported, and seconds of tests."""

    tests: dict[Path, dict[int, set[str]]]
    at_import: dict[Path, set[int]]
    seconds: dict[str, float]
    failed: list[str]

    def leave_out(self, test: str) -> None:
        """Forgets a test."""
        self.failed.append(test)
        for lines in self.tests.values():
            for tests in lines.values():
                tests.discard(test)

    def of(self, path: Path, first: int, last: int) -> set[str]:
        """The tests that execute a line from ``first`` to ``last``."""
        lines = self.tests.get(path, {})
        return {test for line in range(first, last + 1) for test in lines.get(line, ())}


def recording(files: list[Path], say: Callable[[str], None]) -> Recording:
    """What is recorded of test files; records what is missing."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    shared = sorted(path for path in Path("tests").rglob("*.py") if "test_" not in path.name)
    tests: dict[Path, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    at_import: dict[Path, set[int]] = defaultdict(set)
    seconds: dict[str, float] = {}
    failed: list[str] = []
    for number, file in enumerate(files):
        name = f"{file.stem}-{digest(*shared, file)}"
        found = FOLDER / f"{name}.json"
        if found.exists() and not _is_up_to_date(found):
            found.unlink()
        if not found.exists():
            say(f"recording {number + 1} of {len(files)}: {file}")
            code = warm.run([str(file)], LONGEST, Recorder(name))
            if not found.exists():
                say(f"{file} is left out: its tests ended with {code}")
                continue
        kept = json.loads(found.read_text())
        seconds |= kept["passed"]
        failed += kept["failed"]
        data = coverage.CoverageData(str(found.with_suffix(".coverage")))
        data.read()
        for measured in data.measured_files():
            module = warm.SOURCE / Path(measured).relative_to(warm.COPY)
            for line, contexts in data.contexts_by_lineno(measured).items():
                if "" in contexts:
                    at_import[module].add(line)
                tests[module][line] |= {context for context in contexts if context in kept["passed"]}
    return Recording(tests, at_import, seconds, failed)


def _is_up_to_date(found: Path) -> bool:
    sources = json.loads(found.read_text())["sources"]
    return all(
        (warm.COPY / module).exists() and digest(warm.COPY / module) == of for module, of in sources.items()
    )
