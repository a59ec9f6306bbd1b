"""A script with and without the patch: two processes that take turns, some epochs each."""

import contextlib
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.examples.differences import of_gradients, of_losses, saved
from benchmarks.examples.loops import Channel
from benchmarks.examples.scripts import Example
from onehop.bench.timing import Ratio, Times

ROOT = Path(__file__).resolve().parents[2]
PYG, OURS, NUDGED = "pyg", "onehop", "nudged"
"""PyG; with the patch; PyG on one thread, whose parameters are changed by a rounding at every step."""
FLAGS = {PYG: (), OURS: ("--patched",), NUDGED: ("--nudged",)}
# A turn lasts about so long, by the epoch of PyG that was seen before.
TURN_S = 0.2
# Turns that count in a loop, even where they take longer than was meant.
LEAST_ROUNDS = 3
# Epochs before the turns that count. In the first, the paths of layers are heard, and lazy layers are made.
WARM = 2
# Losses that differ by more, relatively, must be explained: by default all stay below.
LATER = 0.1
# Idle threads of the other process spin for some milliseconds before they sleep.
PAUSE_S = 0.1


class NotRun(Exception):
    """A process ended before its script did; the message says why."""


class Running:
    """A script in a process of its own, which waits for its turns.

    Args:
        script: Its file.
        arguments: Its own.
        name: ``PYG``, ``OURS`` or ``NUDGED``.
        effort: Has torch's threads, and after how many seconds of a turn the process is ended.
        folder: Where it runs, and where what it prints is kept.

    Attributes:
        gradients: The file of its first gradients.
        turns: The epochs of each turn that it was given.
    """

    def __init__(
        self,
        script: Path,
        arguments: tuple[str, ...],
        name: str,
        effort: "Effort",
        folder: Path,
    ) -> None:
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
        command += ["--threads", str(threads), *FLAGS[name], str(script), *arguments]
        search = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, search)),
            "OMP_NUM_THREADS": str(threads),
            "MPLBACKEND": "Agg",
        }
        with self._printed.open("w") as output:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
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
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return 1024 * int(line.split()[1])
        raise OSError(f"/proc/{self._process.pid}/status has no field {field}.")

    def forget_peak(self) -> None:
        """Lets the peak of its memory begin anew (proc(5): 5 to clear_refs)."""
        Path(f"/proc/{self._process.pid}/clear_refs").write_text("5")


@dataclass
class Way:
    """One of the two ways, as it goes on.

    Attributes:
        running: The process.
        at: What it said last.
        seconds: Of an epoch, by loop and round.
        peak_bytes: The most memory it had resident from its second epoch on.
        before_bytes: What it had resident before its first epoch.
    """

    running: Running
    at: dict[str, Any]
    seconds: list[list[float]] = field(default_factory=list)
    peak_bytes: int = 0
    before_bytes: int = 0

    def turn(self, epochs: int, listen: bool = False) -> float | None:
        """Seconds of an epoch; None if the loop ended meanwhile."""
        time.sleep(PAUSE_S)
        self.at = self.running.go(epochs, listen)
        return self.at["seconds"] / epochs if self.at["event"] == "epochs" else None

    def leave(self) -> None:
        """Goes on to the next loop, or to the end."""
        if self.at["event"] == "epochs":
            self.at = self.running.go(0)
        while self.at["event"] == "left":
            self.at = self.running.next()


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


def measured(example: Example, source: Path, effort: Effort) -> dict[str, Any]:
    """Times, memory, losses and layers of a script, both ways; or why it did not run, by way.

    Args:
        example: The script.
        source: A checkout of PyG.
        effort: How much is measured.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ways, failed = {}, {}
        running = {
            name: stack.enter_context(
                Running(source / "examples" / example.name, example.arguments, name, effort, folder)
            )
            for name in (PYG, OURS)
        }
        for name, process in running.items():
            try:
                ways[name] = Way(process, process.next())
            except NotRun as reason:
                failed[name] = str(reason)
        loops, spent_s = 0, 0.0
        while not failed and ways[PYG].at["event"] == "loop":
            if not loops:
                for way in ways.values():
                    way.before_bytes = way.running.status("VmRSS")
            began = time.perf_counter()
            failed = _loop(ways, effort.rounds, effort.budget_s - spent_s)
            spent_s += time.perf_counter() - began
            loops += 1
        for name in ways.keys() - failed.keys() if failed else ():
            failed.update(_alone(name, ways[name]))
        if not failed and ways[OURS].at["event"] != "ended":
            failed[OURS] = "it comes to a loop over epochs that PyG's run does not come to"
        result: dict[str, Any] = {"script": example.name, "failed": failed}
        if failed:
            return result
        for way in ways.values():
            way.peak_bytes = way.running.status("VmHWM")
        result.update(_compared(ways, loops))
    if result["deviation"] is not None and result["deviation"]["largest"] > LATER:
        result["drift"] = _drift(example, source, effort, ways[PYG])
    return result


def _drift(example: Example, source: Path, effort: Effort, before: Way) -> float | None:
    """Runs PyG again, as many epochs, on one thread, with parameters changed by a rounding at every step.

    Returns:
        The largest relative difference of its losses from PyG's: how far the script amplifies a rounding.
        None where it cannot be told.
    """
    with tempfile.TemporaryDirectory() as folder:
        script = source / "examples" / example.name
        with Running(script, example.arguments, NUDGED, effort, Path(folder)) as running:
            try:
                at = running.next()
                for epochs in before.running.turns:
                    at = running.go(epochs)
                    while at["event"] == "left":
                        at = running.next()
            except NotRun:
                return None
    deviation = of_losses(before.at["losses"], at["losses"]) if at["event"] == "ended" else None
    return None if deviation is None else deviation["largest"]


def _loop(ways: dict[str, Way], rounds: int, budget_s: float) -> dict[str, str]:
    """Takes turns in one loop; returns who failed, and why."""
    failed: dict[str, str] = {}
    ends = time.perf_counter() + budget_s
    available = ways[PYG].at["epochs"]
    epochs, counted = 1, 0

    def round_of(listen: bool) -> dict[str, float | None]:
        taken: dict[str, float | None] = {}
        for name, way in ways.items():
            try:
                taken[name] = way.turn(epochs, listen)
            except NotRun as reason:
                failed[name] = str(reason)
        return taken

    for way in ways.values():
        way.seconds.append([])
    for number in range(min(WARM, available)):
        taken = round_of(listen=number == 0)
        if failed or None in taken.values():
            break
        if number == 0 and len(ways[PYG].seconds) == 1:
            for way in ways.values():
                way.running.forget_peak()
    else:
        # The loop's last epoch is left out: nobody asks for a turn after it.
        left = available - WARM - 1
        if left > 0 and (last := taken[PYG]) is not None:
            epochs = min(max(math.ceil(TURN_S / max(last, 1e-6)), 1), max(left // rounds, 1))
            while counted < min(rounds, left) and (counted < LEAST_ROUNDS or time.perf_counter() < ends):
                taken = round_of(listen=False)
                if failed or None in taken.values():
                    break
                for name, seconds in taken.items():
                    if seconds is not None:
                        ways[name].seconds[-1].append(seconds)
                counted += 1
    if failed:
        return failed
    for name, way in ways.items():
        try:
            way.leave()
        except NotRun as reason:
            failed[name] = str(reason)
    return failed


def _alone(name: str, way: Way) -> dict[str, str]:
    """Lets the way that has not failed go on alone, an epoch in each loop; returns why it fails."""
    try:
        while way.at["event"] != "ended":
            if way.at["event"] == "loop":
                way.turn(1)
            way.leave()
    except NotRun as reason:
        return {name: str(reason)}
    return {}


def _compared(ways: dict[str, Way], loops: int) -> dict[str, Any]:
    """What the ways say of each other. A script's epoch is the sum of an epoch of each of its loops."""
    rounds = {
        name: tuple(sum(parts) for parts in zip(*(loop for loop in way.seconds if loop), strict=False))
        for name, way in ways.items()
    }
    times = {name: Times(seconds) for name, seconds in rounds.items() if seconds}
    found: dict[str, Any] = {
        "loops": loops,
        "peak_bytes": {name: way.peak_bytes for name, way in ways.items()},
        "before_bytes": {name: way.before_bytes for name, way in ways.items()},
        "losses": {name: len(way.at["losses"]) for name, way in ways.items()},
        "first_losses": {name: way.at["losses"][:3] for name, way in ways.items()},
        "deviation": of_losses(*(way.at["losses"] for way in ways.values())),
        "gradients": of_gradients(*(saved(way.running.gradients) for way in ways.values())),
        "layers": ways[OURS].at["layers"],
    }
    if len(times) == len(ways):
        ratio = Ratio.of(times[PYG], times[OURS])
        found["times"] = {name: taken.to_dict() for name, taken in times.items()}
        found["speedup"] = {
            "median": ratio.median,
            "lower_quartile": ratio.lower_quartile,
            "upper_quartile": ratio.upper_quartile,
        }
    return found
