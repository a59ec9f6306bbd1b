"""Starts the processes of a distributed test, as torchrun would, and gathers what they say."""

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.processes import run_together

WORKERS = Path(__file__).resolve().parent
# Workers are scripts, and import what lies beside them as tests do.
ROOT = str(WORKERS.parents[1])


@dataclass(frozen=True)
class Ended:
    """How one process ended."""

    code: int
    output: str
    errors: str

    @property
    def said(self) -> dict:
        """The JSON object in its last line."""
        assert self.code == 0, self.errors
        return json.loads(self.output.splitlines()[-1])


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


def start(
    script: str,
    processes: int,
    *arguments: str,
    prefixes: list[list[str]] | None = None,
    address: str = "127.0.0.1",
    interface: str | None = None,
    stdin: int | None = None,
) -> list[subprocess.Popen[str]]:
    """One process a rank; ``prefixes`` are commands to run each under, such as ``ip netns exec``."""
    environment = environment_of(processes, address)
    if interface:
        environment["GLOO_SOCKET_IFNAME"] = interface
    return [
        subprocess.Popen(
            [*(prefixes[rank] if prefixes else []), sys.executable, str(WORKERS / script), *arguments],
            env=environment | {"RANK": str(rank)},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]


def ended(processes: list[subprocess.Popen[str]], timeout: float = 1800) -> list[Ended]:
    """Waits for all; kills those that do not end."""
    results = []
    try:
        for process in processes:
            output, errors = process.communicate(timeout=timeout)
            results.append(Ended(process.returncode, output, errors))
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
    return results


def run(script: str, processes: int, *arguments: str, timeout: float = 1800) -> list[dict]:
    """What each process says in its last line, by rank; they start with their imports done."""
    environment = environment_of(processes)
    ranks = [environment | {"RANK": str(rank)} for rank in range(processes)]
    done = run_together([WORKERS / script, *arguments], ranks, timeout=timeout)
    return [Ended(each.returncode, each.stdout, each.stderr).said for each in done]
