"""Processes of this machine that call one function, as torchrun would start them, with one thread each."""

import socket
import subprocess
from collections.abc import Callable
from typing import Any

from benchmarks import harness


def launch(function: Callable[[Any], Any], order: Any, processes: int) -> list[Any]:
    """Calls a function of a script with ``order`` in each process, and gathers the results.

    Raises:
        SystemExit: One of them failed.
    """
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    given = {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(processes),
        "OMP_NUM_THREADS": "1", "ONEHOP_TUNED": "0",
    }  # fmt: skip
    program = harness.program_of(function, order)
    started = [
        subprocess.Popen(
            program, env=harness.environment(**given, RANK=str(rank)), stdout=subprocess.PIPE, text=True
        )
        for rank in range(processes)
    ]
    said = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise SystemExit(f"a process of {processes} failed; see above")
    return [harness.result_of(text) for text in said]
