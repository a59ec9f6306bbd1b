"""Worker processes of ``onehop bench serve``."""

import re
import signal
from pathlib import Path

import pytest

from onehop.bench.servers import Servers

STATUS = Path("/proc/self/status")


@pytest.mark.skipif(not STATUS.exists(), reason="the mask of a process is read as Linux shows it")
def test_workers_leave_an_interrupt_to_the_process_that_started_them():
    with Servers(2, 1) as servers:
        states = [Path(f"/proc/{worker.pid}/status").read_text() for worker, _ in servers._workers]
    blocked = [int(re.search(r"SigBlk:\s*([0-9a-f]+)", state)[1], 16) for state in states]
    assert [mask >> (signal.SIGINT - 1) & 1 for mask in blocked] == [1, 1]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
