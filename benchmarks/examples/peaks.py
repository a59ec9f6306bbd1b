"""The memory of a script with and without the patch: the median peak of several processes of each way.

What the system counts as a process's memory depends on where the C library happens to find room: the peaks of
one script, run twice from one seed, differ by tens of MiB.
"""

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.examples.running import OURS, PYG, Effort, NotRun, Running
from benchmarks.examples.scripts import Example

PROCESSES = 3
# Epochs of each loop. The first make plans and lazy layers; after some more, nothing new is allocated.
EPOCHS = 5
# Seconds after which no further epoch of a loop begins.
LOOP_S = 10.0


def peaks(example: Example, source: Path, effort: Effort) -> dict[str, Any]:
    """Measures a script's memory, both ways in turns, without the turns in which its time is measured.

    Args:
        example: The script; it runs both ways.
        source: A checkout of PyG.
        effort: Has torch's threads, and the seconds after which a process is ended.

    Returns:
        ``peak_bytes``, by way: the most memory that a process has resident from its first epoch on, Python,
        torch and the data included; the median of :data:`PROCESSES`. ``peaks_bytes``: all of them.
        ``before_bytes``: what a process has resident before its first epoch; the median.
        Where a process ended before its script did, or took too long, ``failed`` alone: why, by way.
    """
    peak: dict[str, list[int]] = {PYG: [], OURS: []}
    before: dict[str, list[int]] = {PYG: [], OURS: []}
    for _ in range(PROCESSES):
        for way in peak:
            try:
                at_first, most = _once(example, source, way, effort)
            except NotRun as reason:
                return {"failed": {way: str(reason)}}
            before[way].append(at_first)
            peak[way].append(most)
    return {
        "peak_bytes": {way: median(each) for way, each in peak.items()},
        "peaks_bytes": peak,
        "before_bytes": {way: median(each) for way, each in before.items()},
    }


def _once(example: Example, source: Path, way: str, effort: Effort) -> tuple[int, int]:
    """Bytes before the first epoch, and at most from there on."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Running(example, source, way, effort, Path(folder)) as running,
    ):
        at = running.next()
        before = running.status("VmRSS")
        running.forget_peak()
        while at["event"] != "ended":
            at = running.next() if at["event"] == "left" else _loop(running)
        return before, running.status("VmHWM")


def _loop(running: Running) -> dict[str, Any]:
    """Runs a loop that waits for its first epoch; returns what the process says once it has left it."""
    ends = time.perf_counter() + LOOP_S
    at = running.go(1)
    for _ in range(EPOCHS - 1):
        if at["event"] == "epochs" and time.perf_counter() < ends:
            at = running.go(1)
    return running.go(0) if at["event"] == "epochs" else at
