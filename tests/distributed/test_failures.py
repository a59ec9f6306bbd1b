"""A process that is lost ends the job of the others, with a reason."""

import subprocess

from tests.distributed.launch import ended, start


def test_a_rank_that_dies() -> None:
    lost = ended(start("failing_worker.py", 2, "ends", "1800"))
    assert lost[1].code == 3
    # Long before the timeout: its connection is closed.
    assert lost[0].said["seconds"] < 900
    error = lost[0].said["error"]
    assert error.startswith("rank 0, exchanging rows with ranks [1]: another process ended or did not answer")
    assert "start it again from its last checkpoint" in error


def test_a_rank_that_does_not_answer() -> None:
    processes = start("failing_worker.py", 2, "hangs", "5", stdin=subprocess.PIPE)
    output, errors = processes[0].communicate(timeout=1800)
    processes[1].communicate()  # closes its input, which ends it
    assert processes[0].returncode == 0, errors
    assert "did not answer within the timeout" in output
    assert processes[1].returncode == 4
