"""The store under faults: writers killed, stopped, many at once, and no room on the disk."""

import fcntl
import json
import logging
import os
import resource
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from onehop import Graph
from onehop.backends.cpu import CpuBackend
from onehop.plans import CpuPlan, store, tuned
from onehop.plans.tuned import PlanCase, Tuned
from tests.processes import ended, forked

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

PLAN = CpuPlan(edges_per_item=77)


@pytest.fixture(autouse=True)
def table(own_cache: Path) -> Iterator[None]:
    tuned.forget()
    yield
    tuned.forget()


def entry(number: int) -> dict[str, Any]:
    case = PlanCase(f"{number}x{number} edges 9 degrees 1", "sum", False, number, "float32", 1, "none")
    return Tuned(case, PLAN, 1.0, 1.0, 1.0).to_dict()


def widths() -> list[int]:
    return sorted(each["case"]["width"] for each in store.load())


def signalled(where: Any, name: str, which: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the signal come right before a call."""
    original = getattr(where, name)

    def called(*given: Any, **named: Any) -> Any:
        os.kill(os.getpid(), which)
        return original(*given, **named)

    monkeypatch.setattr(where, name, called)


@pytest.mark.parametrize(
    ("where", "name"),
    [(store.tempfile, "mkstemp"), (store.json, "dump"), (os, "fsync"), (Path, "replace"), (Path, "unlink")],
)
def test_a_writer_that_is_killed_tears_nothing(
    where: Any, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert store.save([entry(1)])

    def run() -> None:
        signalled(where, name, signal.SIGKILL, monkeypatch)
        store.save([entry(2)])

    assert ended(forked(run)) == -signal.SIGKILL
    # The last of the calls comes when the file is in place.
    assert widths() == ([1, 2] if name == "unlink" else [1])
    assert store.save([entry(3)])  # the lock is free
    assert widths() == ([1, 2, 3] if name == "unlink" else [1, 3])
    assert list(store.path().parent.glob("*.part")) == []
    assert caplog.text == ""


def test_a_tuner_that_is_killed_leaves_the_plans_that_were_there(
    generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onehop

    graph = Graph.from_edge_index(torch.randint(0, 30, (2, 300), generator=generator), num_nodes=30)
    case = tuned.case_of(graph, "sum", False, 8, torch.float32)
    tuned.install([Tuned(case, PLAN, 1e-3, 1e-3, 2e-3)])
    monkeypatch.setattr("onehop.tuner.cpu._timed", lambda call, plan: 1e-3)
    monkeypatch.setattr("onehop.tuner.tuning.unsuitable", lambda: None)

    def run() -> None:
        signalled(os, "fsync", signal.SIGKILL, monkeypatch)
        onehop.tune(graph, 16, backward=False)

    assert ended(forked(run)) == -signal.SIGKILL
    tuned.forget()
    assert CpuBackend().plan_of_sum(graph, False, 8, torch.float32) == PLAN


def test_writers_that_are_killed_at_any_time_lose_nothing_of_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Twelve writers, of which every other one is killed while it writes again and again."""

    def write(number: int) -> None:
        for _ in range(6 if number % 2 else 10_000):
            if not store.save([entry(number)]):
                os._exit(2)

    children = {number: forked(lambda number=number: write(number)) for number in range(1, 13)}
    kept = [ended(child) for number, child in children.items() if number % 2]
    for number, child in children.items():
        if number % 2 == 0:
            os.kill(child, signal.SIGKILL)
            assert ended(child) == -signal.SIGKILL
    assert kept == [0] * 6
    assert set(range(1, 13, 2)) <= set(widths()) <= set(range(1, 13))
    assert caplog.text == ""
    assert list(store.path().parent.glob("*.damaged-*")) == []


def test_readers_see_whole_files_alone(caplog: pytest.LogCaptureFixture) -> None:
    store.save([entry(1)])

    def write() -> None:
        for number in range(2, 60):
            store.save([entry(number)])

    child = forked(write)
    seen: list[int] = []
    while True:
        seen.append(len(widths()))
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            break
    assert os.waitstatus_to_exitcode(status) == 0
    assert seen == sorted(seen)
    assert len(widths()) == 59
    assert caplog.text == ""


def test_nobody_waits_for_a_writer_that_was_stopped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert store.save([entry(1)])

    def run() -> None:
        signalled(os, "fsync", signal.SIGSTOP, monkeypatch)
        store.save([entry(2)])

    child = forked(run)
    assert os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1])
    try:
        monkeypatch.setattr(store, "_LOCK_S", 0.05)
        with caplog.at_level(logging.WARNING, "onehop"):
            assert not store.save([entry(3)])
        assert "another process has kept it locked for 0.05 s" in caplog.text
        assert widths() == [1]
    finally:
        os.kill(child, signal.SIGCONT)
    assert ended(child) == 0
    assert store.save([entry(3)])
    assert widths() == [1, 2, 3]


def test_a_full_disk_costs_a_warning_and_none_of_the_earlier_plans() -> None:
    assert store.save([entry(1)])
    before = store.path().read_bytes()
    warnings = logging.getLogger("onehop")

    def run() -> None:
        told: list[str] = []
        warnings.addFilter(lambda record: told.append(record.getMessage()) is None)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 50, resource.RLIM_INFINITY))
        assert not store.save([entry(2)])
        assert "File too large): tuned plans last until this process ends" in told[0]

    assert ended(forked(run)) == 0
    assert store.path().read_bytes() == before
    assert list(store.path().parent.glob("*.part")) == []


def test_a_file_system_without_locks_costs_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    with caplog.at_level(logging.WARNING, "onehop"):
        assert not store.save([entry(1)])
    assert "No locks available): tuned plans last until this process ends" in caplog.text
    assert not store.path().exists()


def test_what_is_on_disk_is_what_the_digest_says() -> None:
    store.save([entry(number) for number in range(1, 4)])
    document = json.loads(store.path().read_text())
    assert document["digest"] == store._digest(document["plans"])


def test_a_read_only_folder_costs_a_warning_and_is_read() -> None:
    with tempfile.TemporaryDirectory() as name:
        cache = Path(name)
        cache.chmod(0o755)

        def run() -> None:
            told: list[str] = []
            logging.getLogger("onehop").addFilter(lambda record: told.append(record.getMessage()) is None)
            os.environ["ONEHOP_CACHE_DIR"] = str(cache)
            assert store.save([entry(1)])
            store.path().chmod(0o444)
            store.path().parent.chmod(0o555)
            if os.geteuid() == 0:
                os.seteuid(65534)  # root may write anywhere
            assert not store.save([entry(2)])
            assert "Permission denied" in told[0]
            assert "): tuned plans last until this process ends" in told[0]
            assert widths() == [1]

        assert ended(forked(run)) == 0
