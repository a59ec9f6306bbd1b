"""A process that is lost ends the others, with an error that names it and says what to do."""

import re
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.distributed.launch import start

WHERE = {
    "forward": "exchanging rows with ranks",
    "normalisation": "adding up values of all ranks",
    "backward": "",  # in either of these two
    "gradients": "adding up values of all ranks",
}


@pytest.fixture
def begin() -> Iterator[Callable[..., list[Any]]]:
    """Starts the ranks of one test; those that still run after it are killed."""
    begun: list[Any] = []

    def ranks(processes: int, *arguments: str) -> list[Any]:
        begun.extend(start("failing_worker.py", processes, *arguments))
        return begun

    yield ranks
    for process in begun:
        if process.returncode is None:
            process.kill()
            process.communicate()


def survivors(processes: list[Any], lost: int) -> list[str]:
    """Waits for the others, which must end with an error of their own; their stderr."""
    said = []
    for rank, process in enumerate(processes):
        if rank != lost:
            output, errors = process.communicate(timeout=600)
            assert process.returncode == 1, errors
            assert "done" not in output
            said.append(errors)
    return said


def sentence(errors: str, rank: int) -> str:
    found = re.search(rf"onehop\.errors\.CommunicationError: (rank {rank}, .*)", errors)
    assert found, errors
    return found[1]


@pytest.mark.parametrize(("how", "where"), [*(("kill", where) for where in WHERE), ("raise", "backward")])
def test_a_rank_that_ends_is_named(begin: Callable[..., list[Any]], how: str, where: str) -> None:
    # Half an hour is the timeout, and the test's patience is less: a closed connection is seen at once.
    processes = begin(3, how, "1", where, "1800")
    for rank, errors in zip((0, 2), survivors(processes, lost=1), strict=True):
        text = sentence(errors, rank)
        assert text.startswith(f"rank {rank}, {WHERE[where]}"), text
        # A third one may see the second end, which had seen the first.
        assert f"rank 1 (process {processes[1].pid} on " in text, text
        assert " ended. Look for the first error in the output of the ranks that ended" in text
        assert "start it again from its last checkpoint" in text
    _, errors = processes[1].communicate(timeout=600)
    if how == "kill":
        assert processes[1].returncode == -signal.SIGKILL
    else:
        assert "ValueError: a mistake of the program" in errors
        assert processes[1].returncode != 0


def test_the_first_rank_may_be_the_one_that_is_lost(begin: Callable[..., list[Any]]) -> None:
    # It holds the store that the processes met at.
    processes = begin(3, "kill", "0", "backward", "1800")
    for rank, errors in zip((1, 2), survivors(processes, lost=0), strict=True):
        assert f"rank 0 (process {processes[0].pid} on " in sentence(errors, rank)


def test_a_rank_that_is_stopped_is_named(begin: Callable[..., list[Any]]) -> None:
    processes = begin(3, "stop", "1", "forward", "5")
    for rank, errors in zip((0, 2), survivors(processes, lost=1), strict=True):
        text = sentence(errors, rank)
        assert re.search(rf"rank 1 \(process {processes[1].pid} on \S+\) is stopped", text), text
        assert "Find out what stopped a process" in text
        assert "start it again from its last checkpoint" in text


def test_a_rank_that_does_not_answer_is_told_from_one_that_is_lost(begin: Callable[..., list[Any]]) -> None:
    before = time.monotonic()
    processes = begin(2, "hang", "1", "backward", "5")
    (errors,) = survivors(processes, lost=1)
    text = sentence(errors, 0)
    assert "did not answer within the timeout of init_process_group" in text
    assert f"rank 1 (process {processes[1].pid} on " in text
    assert "still runs, and may be at another place of the program" in text
    processes[1].communicate()  # closes its input, which ends it
    assert processes[1].returncode == 4
    assert time.monotonic() - before < 600
