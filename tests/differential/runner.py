"""Many programs, on several processes, for a bounded time."""

import multiprocessing
import queue
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.differential.compare import Difference
from tests.differential.isolated import isolated, judged
from tests.differential.kinds import MODELS, AnyProgram, Kind
from tests.differential.shrink import shrunk

_BATCH = 50
_PROGRESS_SECONDS = 10.0
_SHRUNK_OF_A_SORT = 8


@dataclass(frozen=True)
class Found:
    """A program that differs."""

    seed: int
    program: AnyProgram  # the program, made as small as time allowed
    difference: Difference
    alone: bool  # whether it differs in a process of its own, and not after other programs alone

    def __str__(self) -> str:
        """The difference, and the program as Python."""
        note = "" if self.alone else "\nIt differs after other programs alone, not in a process of its own."
        return f"seed {self.seed}: {self.difference}{note}\n{self.program.listed()}"


@dataclass
class Summary:
    """What came of a run."""

    programs: int = 0  # how many ran
    seconds: float = 0.0  # how long it took
    found: list[Found] = field(default_factory=list)  # those that differ

    def line(self) -> str:
        """One line of progress."""
        rate = self.programs / self.seconds if self.seconds else 0.0
        sorts = Counter(each.difference.sort for each in self.found)
        told = ", ".join(f"{count} {sort}" for sort, count in sorts.most_common()) or "none differ"
        return f"{self.programs} programs in {self.seconds:.0f} s ({rate:.1f} a second): {told}"


def fuzz(
    seeds: Sequence[int],
    seconds: float,
    processes: int,
    shrink_seconds: float,
    tell: Callable[[str], None],
    kind: Kind = MODELS,
) -> Summary:
    """Runs the programs of seeds for so many seconds; those that have begun are finished.

    A difference may take ``shrink_seconds`` to be made smaller; 0 leaves it as it is. Every difference is
    told as it is found, and a line of progress now and then.
    """
    summary, start = Summary(), time.monotonic()
    told = start
    for verdict in _everywhere(seeds, seconds, processes, shrink_seconds, kind):
        summary.programs += 1
        summary.seconds = time.monotonic() - start
        if verdict is not None:
            summary.found.append(verdict)
            tell(str(verdict))
        if time.monotonic() - told > _PROGRESS_SECONDS:
            told = time.monotonic()
            tell(summary.line())
    summary.seconds = time.monotonic() - start
    return summary


def _everywhere(
    seeds: Sequence[int], seconds: float, processes: int, shrink_seconds: float, kind: Kind
) -> Iterator[Found | None]:
    """A verdict for every program, as they come."""
    context = multiprocessing.get_context("fork")
    verdicts: Any = context.Queue()
    deadline = time.monotonic() + seconds
    workers = [
        context.Process(target=_worker, args=(seeds, deadline, i, processes, shrink_seconds, kind, verdicts))
        for i in range(processes)
    ]
    for worker in workers:
        worker.start()
    ended = 0
    while ended < processes:
        try:
            verdict = verdicts.get(timeout=5.0)
        except queue.Empty:
            if not any(worker.is_alive() for worker in workers):
                raise RuntimeError("A process of the fuzzer itself has died.") from None
            continue
        if verdict == "ended":
            ended += 1
        else:
            yield verdict
    for worker in workers:
        worker.join()


def _worker(
    seeds: Sequence[int],
    deadline: float,
    number: int,
    processes: int,
    shrink_seconds: float,
    kind: Kind,
    verdicts: Any,
) -> None:
    """Every so-many-th batch of seeds."""
    sorts: Counter[str] = Counter()
    for start in range(number * _BATCH, len(seeds), processes * _BATCH):
        for seed, verdict in judged(list(seeds[start : start + _BATCH]), kind.generate, kind):
            found = None
            if verdict is not None:
                sorts[verdict.sort] += 1
                # One cause shows many times: a few small programs of a sort are enough.
                few = sorts[verdict.sort] <= _SHRUNK_OF_A_SORT
                found = _made_small(seed, verdict, shrink_seconds if few else 0.0, kind)
            verdicts.put(found)
            if time.monotonic() > deadline:
                verdicts.put("ended")
                return
    verdicts.put("ended")


def _made_small(seed: int, verdict: Difference, seconds: float, kind: Kind) -> Found:
    program = kind.generate(seed)
    alone = isolated(program, kind)
    if alone is None:
        return Found(seed, program, verdict, alone=False)
    if seconds:
        program, alone = small(program, alone, kind, seconds)
    return Found(seed, program, alone, alone=True)


def small(
    program: AnyProgram, found: Difference, kind: Kind, seconds: float
) -> tuple[AnyProgram, Difference]:
    """A smaller program that differs likewise, each tried in a process of its own."""
    return shrunk(program, found, lambda each: isolated(each, kind), kind.smaller, seconds)
