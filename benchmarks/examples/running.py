"""A script in a process of its own, which runs some epochs, waits, and runs some more."""

import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks import harness
from benchmarks.examples.loops import Channel
from benchmarks.examples.scripts import Example
from onehop.bench.memory import status_bytes

PYG, OURS, NUDGED = "pyg", "onehop", "nudged"
"""PyG; with the patch; PyG on one thread, whose parameters are changed by a rounding at every step."""
FLAGS = {PYG: (), OURS: ("--patched",), NUDGED: ("--nudged",)}


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured of a script.

    Attributes:
        rounds: Turns that count, of each way, in each loop over epochs.
        budget_s: Once the loops of a script have run for so many seconds, a loop ends after ``LEAST_ROUNDS``.
        threads: Torch's threads.
        limit_s: Seconds that a turn may take; a script that takes longer counts as failed.
    """

    rounds: int = 7
    budget_s: float = 20.0
    threads: int = 1
    limit_s: float = 300.0


class NotRun(Exception):
    """A process ended before its script did; the message says why."""


class Running:
    """A script in a process of its own, which waits for its turns.

    Args:
        example: Its name and arguments.
        source: A checkout of PyG, which has it among its examples.
        name: ``PYG``, ``OURS`` or ``NUDGED``.
        effort: Has torch's threads, and after how many seconds of a turn the process is ended.
        folder: Where it runs, and where what it prints is kept.

    Attributes:
        gradients: The file of its first gradients.
        turns: The epochs of each turn that it was given.
    """

    def __init__(self, example: Example, source: Path, name: str, effort: Effort, folder: Path) -> None:
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(effort.limit_s)
        self._limit_s = effort.limit_s
        self._channel = Channel(self._socket)
        self.turns: list[int] = []
        self._printed, self.gradients = folder / f"{name}.txt", folder / f"{name}.pt"
        command = [sys.executable, "-m", "benchmarks.examples.child", "--channel", str(theirs.fileno())]
        command += ["--gradients", str(self.gradients)]
        # Another number of threads adds up in another order, as the patch does.
        threads = 1 if name == NUDGED else effort.threads
        command += ["--threads", str(threads), *FLAGS[name]]
        command += [str(source / "examples" / example.name), *example.arguments]
        with self._printed.open("w") as output:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=harness.environment(OMP_NUM_THREADS=str(threads), MPLBACKEND="Agg"),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
            )
        theirs.close()

    def __enter__(self) -> "Running":
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the process, wherever it is."""
        self._process.kill()
        self._process.wait()
        self._channel.close()
        self._socket.close()

    def next(self) -> dict[str, Any]:
        """What it says next: it waits at a loop, epochs are done, it left a loop, or its script has ended.

        Raises:
            NotRun: It failed, is gone, or took too long.
        """
        try:
            message = self._channel.receive()
        except EOFError:
            code, last = self._process.wait(), self._printed.read_text().strip().rpartition("\n")[2]
            raise NotRun(f"the process ended with {code}: {last}") from None
        except TimeoutError:
            raise NotRun(f"no turn ended within {self._limit_s:g} s") from None
        if message["event"] == "failed":
            raise NotRun(message["reason"])
        return message

    def go(self, epochs: int, listen: bool = False) -> dict[str, Any]:
        """Lets it run so many epochs, or for 0 leave the loop; returns what it says next."""
        self.turns.append(epochs)
        self._channel.send(epochs=epochs, listen=listen)
        return self.next()

    def status(self, field: str) -> int:
        """Bytes, as /proc/PID/status has them under such a name (proc(5))."""
        return status_bytes(field, self._process.pid)

    def forget_peak(self) -> None:
        """Lets the peak of its memory begin anew (proc(5): 5 to clear_refs)."""
        Path(f"/proc/{self._process.pid}/clear_refs").write_text("5")
