"""Starts the processes of a distributed test, as torchrun would, and gathers what they say."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.processes import Forked, run_together, text

# The operators' suite and that of whole models run on two as well.
PROCESSES = (1, 2, 4) if os.environ.get("ONEHOP_TESTS") == "all" else (1, 4)
WORKERS = Path(__file__).resolve().parent
# Workers are scripts, and import what lies beside them as tests do.
ROOT = str(WORKERS.parents[1])


def said(process: "subprocess.CompletedProcess[str]") -> dict:
    """The JSON object in the last line of a process that ended well."""
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def environment_of(processes: int, address: str = "127.0.0.1") -> dict[str, str]:
    """What torchrun tells processes, but for their rank."""
    return os.environ | {
        "MASTER_ADDR": address,
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(processes),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")])),
    }


class Rank(Forked):
    """A process that starts with its imports done. Its input ends when it is waited for."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._said = [tempfile.TemporaryFile("w+") for _ in range(2)]  # noqa: SIM115 - closed with the process
        read, write = os.pipe()
        self._input = os.fdopen(write, "w")
        with os.fdopen(read) as stdin:
            super().__init__(command, None, environment, stdin, *self._said)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Ends its input and waits for it; returns what it wrote to standard output and standard error."""
        self._input.close()
        self.wait(timeout)
        output, errors = map(text, self._said)
        for stream in self._said:
            stream.close()
        return output, errors


def start(
    script: str,
    processes: int,
    *arguments: str,
    prefixes: list[list[str]] | None = None,
    address: str = "127.0.0.1",
    interface: str | None = None,
) -> list[Any]:
    """One process a rank, with what is used of ``subprocess.Popen``; most start with their imports done.

    ``prefixes`` are commands to run each under, such as ``ip netns exec``.
    """
    environment = environment_of(processes, address)
    if interface:
        environment["GLOO_SOCKET_IFNAME"] = interface
    ranks = [environment | {"RANK": str(rank)} for rank in range(processes)]
    command = [str(WORKERS / script), *arguments]
    # A recording of what programs execute begins where a process does.
    if prefixes is None and "COVERAGE_PROCESS_START" not in environment:
        return [Rank(command, each) for each in ranks]
    return [
        subprocess.Popen(
            [*prefix, sys.executable, *command],
            env=each,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for prefix, each in zip(prefixes or [[]] * processes, ranks, strict=True)
    ]


def ended(processes: Sequence[Any], timeout: float = 1800) -> "list[subprocess.CompletedProcess[str]]":
    """Waits for all; kills those that do not end."""
    results = []
    try:
        for process in processes:
            both = process.communicate(timeout=timeout)
            results.append(subprocess.CompletedProcess([], process.returncode, *both))
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
                process.communicate()
    return results


def run(script: str, processes: int, *arguments: str, timeout: float = 1800) -> list[dict]:
    """What each process says in its last line, by rank; they start with their imports done."""
    environment = environment_of(processes)
    ranks = [environment | {"RANK": str(rank)} for rank in range(processes)]
    return [said(each) for each in run_together([WORKERS / script, *arguments], ranks, timeout=timeout)]


def reports_of(script: str, counts: Sequence[int] = PROCESSES, *arguments: str) -> Any:
    """A fixture of a module: what a worker's processes say, for each of some numbers of processes."""

    @pytest.fixture(scope="module", params=counts, ids=lambda count: f"{count}-processes")
    def reports(request: pytest.FixtureRequest) -> list[dict]:
        return run(script, request.param, *arguments)

    return reports
