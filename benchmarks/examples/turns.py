"""A script with and without the patch: two processes that take turns, some epochs each."""

import contextlib
import math
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.examples.differences import of_gradients, of_losses, saved
from benchmarks.examples.running import NUDGED, OURS, PYG, Effort, NotRun, Running
from benchmarks.examples.scripts import Example
from onehop.bench.timing import Ratio, Times

# A turn lasts about so long, by the epoch of PyG that was seen before.
TURN_S = 0.2
# Turns that count in a loop, even where they take longer than was meant.
LEAST_ROUNDS = 3
# Epochs before the turns that count. In the first, the paths of layers are heard, and lazy layers are made.
WARM = 2
# The first loss and the gradients of the first step come of the same parameters, in float32, with sums in
# another order. Later losses come of parameters that drift apart: an optimiser that divides gradients by
# their size, as Adam does, makes whole steps of those that are nothing but rounding. What differs by more,
# relatively, is compared with what a rounding of the parameters alone does to PyG.
FIRST, GRADIENTS, LATER = 1e-5, 1e-3, 0.1
LIMITS = {"first": FIRST, "gradients": GRADIENTS, "largest": LATER}
# Idle threads of the other process spin for some milliseconds before they sleep.
PAUSE_S = 0.1


@dataclass
class Way:
    """One of the two ways, as it goes on.

    Attributes:
        running: The process.
        at: What it said last.
        seconds: Of an epoch, by loop and round.
    """

    running: Running
    at: dict[str, Any]
    seconds: list[list[float]] = field(default_factory=list)

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


def measured(example: Example, source: Path, effort: Effort) -> dict[str, Any]:
    """Times, losses and layers of a script, both ways; or why it did not run, by way."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ways, failed = {}, {}
        running = {
            name: stack.enter_context(Running(example, source, name, effort, folder)) for name in (PYG, OURS)
        }
        for name, process in running.items():
            try:
                ways[name] = Way(process, process.next())
            except NotRun as reason:
                failed[name] = str(reason)
        loops, spent_s = 0, 0.0
        while not failed and ways[PYG].at["event"] == "loop":
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
        result.update(_compared(ways, loops))
        if far(differences(result)):
            result["drift"] = _drift(example, source, effort, ways[PYG], folder)
    return result


Differences = dict[str, float | None]


def differences(result: dict[str, Any]) -> Differences:
    """Relative differences of the "first" loss, the "largest" of all losses, and those of "gradients"."""
    deviation: dict[str, float] = result["deviation"] or {}
    return {**deviation, "gradients": result["gradients"]}


def far(found: Differences) -> dict[str, float]:
    """The differences that are larger than what a rounding usually makes."""
    return {name: value for name, value in found.items() if value is not None and value > LIMITS[name]}


def _drift(example: Example, source: Path, effort: Effort, before: Way, folder: Path) -> Differences | None:
    """Runs PyG again, as many epochs, on one thread, with parameters changed by a rounding at every step.

    Returns:
        Its differences from PyG's: how far the script amplifies a rounding. None where it cannot be told.
    """
    with Running(example, source, NUDGED, effort, folder) as running:
        try:
            at = running.next()
            for epochs in before.running.turns:
                at = running.go(epochs)
                while at["event"] == "left":
                    at = running.next()
        except NotRun:
            return None
        if at["event"] != "ended":
            return None
        gradients = of_gradients(saved(before.running.gradients), saved(running.gradients))
        return differences(
            {"deviation": of_losses(before.at["losses"], at["losses"]), "gradients": gradients}
        )


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
    else:
        # The loop's last epoch is left out: no turn follows it.
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
        "losses": {name: len(way.at["losses"]) for name, way in ways.items()},
        "first_losses": {name: way.at["losses"][:3] for name, way in ways.items()},
        "deviation": of_losses(*(way.at["losses"] for way in ways.values())),
        "gradients": of_gradients(*(saved(way.running.gradients) for way in ways.values())),
        "layers": ways[OURS].at["layers"],
    }
    if len(times) == len(ways):
        ratio = Ratio.of(times[PYG], times[OURS])
        found["times"] = {name: taken.to_dict() for name, taken in times.items()}
        found["speedup"] = vars(ratio)
    return found
