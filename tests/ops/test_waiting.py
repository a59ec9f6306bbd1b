"""The queue of results on their way to the disk: its order, its bound, and writes that fail."""

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from onehop.ops.streaming.waiting import Waiting
from tests.processes import Stop


def test_results_wait_in_order_and_not_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is slow: it writes only when it is told to."""
    monkeypatch.setattr("onehop.ops.streaming.waiting.SYNC_BYTES", 60)
    disk, begun, noted = threading.Semaphore(0), [], []
    synced: list[int] = []

    def write(number: int) -> None:
        disk.acquire()
        begun.append(number)

    with Waiting(100, lambda: synced.append(len(begun)), noted.append) as waiting:
        for number in range(3):
            waiting.submit(partial(write, number), 30)
        assert begun == noted == []
        threading.Timer(0.05, disk.release, [2]).start()
        waiting.submit(partial(write, 3), 70)  # has to wait for two of them
        assert begun == [0, 1]
        while not synced:
            time.sleep(0.001)
        disk.release(2)
        waiting.finish()
        assert noted in ([2, 4], [4])  # by then both are on the disk, and the submitting thread sees the last
    assert begun == [0, 1, 2, 3]
    assert synced == [2, 4]


def test_a_disk_that_is_waited_for_does_not_hold_up_the_next_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the one after waits, so that what is in the page cache has a bound."""
    monkeypatch.setattr("onehop.ops.streaming.waiting.SYNC_BYTES", 1)
    disk, begun, noted = threading.Semaphore(0), [], []
    with Waiting(1000, disk.acquire, noted.append) as waiting:
        for number in range(4):
            waiting.submit(partial(begun.append, number), 10)
        while len(begun) < 2:
            time.sleep(0.001)
        time.sleep(0.05)
        assert begun == [0, 1]
        assert noted == []
        disk.release(4)
        waiting.finish()
    assert begun == [0, 1, 2, 3]
    assert noted[-1] == 4


def all_of(waiting: Waiting, writes: list[Callable[[], object]]) -> None:
    for write in writes:
        waiting.submit(write, 10)
    waiting.finish()


def test_nothing_is_written_or_noted_behind_a_write_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onehop.ops.streaming.waiting.SYNC_BYTES", 1)
    go_on, begun, noted = threading.Event(), [], []

    def fail() -> None:
        go_on.wait()
        raise Stop

    threading.Timer(0.05, go_on.set).start()
    writes = [partial(begun.append, 1), fail, partial(begun.append, 3)]
    with pytest.raises(Stop), Waiting(100, lambda: None, noted.append) as waiting:
        all_of(waiting, writes)
    assert begun == [1]
    assert noted == [1]


def test_a_disk_that_fails_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onehop.ops.streaming.waiting.SYNC_BYTES", 1)
    noted: list[int] = []
    begun: list[int] = []
    outcomes = iter(("fails", "succeeds"))

    def sync() -> None:
        # A system that has lost what it could not write may say that all is well the next time.
        if next(outcomes) == "fails":
            raise Stop

    with pytest.raises(Stop), Waiting(100, sync, noted.append) as waiting:
        all_of(waiting, [partial(begun.append, number) for number in range(4)])
    assert begun == [0, 1]
    assert noted == []


def test_results_that_wait_are_given_up_where_a_run_ends_early() -> None:
    begun, go_on = [], threading.Event()

    def write(number: int) -> None:
        begun.append(number)
        go_on.wait()

    waiting = Waiting(100, lambda: None, lambda written: None)
    for number in range(3):
        waiting.submit(partial(write, number), 30)
    while not begun:
        time.sleep(0.001)
    threading.Timer(0.05, go_on.set).start()
    with pytest.raises(KeyboardInterrupt), waiting:
        raise KeyboardInterrupt
    assert go_on.is_set()  # the first was waited for
    assert begun == [0]
    assert not any(
        thread.name.startswith(("onehop-write", "onehop-sync")) for thread in threading.enumerate()
    )


def test_a_result_that_cannot_be_written_ends_the_run() -> None:
    with Waiting(100, lambda: None, lambda written: pytest.fail("nothing was written")) as waiting:
        waiting.submit(partial(Path("/nowhere").read_text), 10)
        with pytest.raises(FileNotFoundError):
            waiting.finish()
