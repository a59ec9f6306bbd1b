"""What two runs of the same tests say: which tests failed under the patch that passed without it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

PASSED, SKIPPED = "passed", "skipped"
NOT_RUN = "not run"
DIED = "the process died"


@dataclass(frozen=True, slots=True, order=True)
class LayerUse:
    """What a class of layers did in some test.

    Attributes:
        kind: The dotted name of the class.
        path: "fast", "tiered" or "delegated".
        what: What ran; or, if delegated, why PyG's own code ran.
    """

    kind: str
    path: str
    what: str


@dataclass(frozen=True, slots=True)
class Ending:
    """How a test ended: in one word or two, and what it printed if it failed."""

    result: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """What one run left behind: how each test ended, and what the layers did."""

    endings: Mapping[str, Ending]
    layers: frozenset[LayerUse] = frozenset()

    def count(self, result: str) -> int:
        """How many tests ended so."""
        return sum(ending.result == result for ending in self.endings.values())

    @property
    def others(self) -> int:
        """How many neither passed nor were skipped."""
        return len(self.endings) - self.count(PASSED) - self.count(SKIPPED)

    def __or__(self, other: "Run") -> "Run":
        """Both together."""
        return Run({**self.endings, **other.endings}, self.layers | other.layers)


@dataclass(frozen=True, slots=True)
class Difference:
    """A test that passed without the patch and did not pass with it."""

    test: str
    result: str
    detail: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came of two runs.

    Attributes:
        regressions: Tests that the patch broke.
        excused: Those among them that an exclusion names.
        needless: Exclusions of tests that passed both times.
    """

    regressions: tuple[Difference, ...]
    excused: tuple[Difference, ...]
    needless: tuple[str, ...]


def read_run(record: Path) -> Run:
    """Reads what the plugin wrote."""
    endings: dict[str, Ending] = {}
    layers = set()
    running: str | None = None
    finished = False
    for line in record.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if "started" in entry:
            running = entry["started"]
        elif "layer" in entry:
            layers.add(LayerUse(*entry["layer"]))
        elif "test" in entry:
            endings[entry["test"]] = Ending(entry["result"], entry["detail"])
            running = None
        else:
            finished = True
    if not finished and running is not None:
        endings[running] = Ending(DIED, "The process ended while this test was running.")
    return Run(endings, frozenset(layers))


def compare(plain: Run, patched: Run, exclusions: Mapping[str, str]) -> Comparison:
    """Finds the tests that passed without the patch and not with it.

    A test that the second run never reached counts: the process may have died, or the file may not have been
    imported.

    Args:
        plain: Without the patch.
        patched: With it.
        exclusions: Tests that may differ, each with the reason why.
    """
    regressions, excused, needless = [], [], []
    for test, before in plain.endings.items():
        after = patched.endings.get(test, Ending(NOT_RUN, "The patched run never came to this test."))
        broken = before.result == PASSED != after.result
        if broken and test in exclusions:
            excused.append(Difference(test, after.result, exclusions[test]))
        elif broken:
            regressions.append(Difference(test, after.result, after.detail))
        elif before.result == PASSED and test in exclusions:
            needless.append(test)
    return Comparison(tuple(regressions), tuple(excused), tuple(needless))


def flaky(tests: Iterable[str], repetitions: Iterable[Run]) -> frozenset[str]:
    """Those of the tests that did not pass in every repetition of the run without the patch."""
    repetitions = tuple(repetitions)
    return frozenset(
        test
        for test in tests
        if any(test not in run.endings or run.endings[test].result != PASSED for run in repetitions)
    )
