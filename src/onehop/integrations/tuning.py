"""Tuning under the patch: graphs that are used repeatedly are tuned once, in slices before their calls."""

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from onehop import thresholds
from onehop.backends import Backend
from onehop.backends.cpu import CpuBackend
from onehop.backends.triton import TritonBackend
from onehop.calls import SCORES
from onehop.graph import Graph
from onehop.integrations import reports, session
from onehop.kernels.cpu import generated
from onehop.plans import CpuPlan, tuned

if TYPE_CHECKING:
    from onehop.tuner.result import TuningResult
    from onehop.tuner.search import Steps

# A graph is tuned after this many calls at one width. Mini-batches are never tuned, because each is a new
# graph.
SIGHTINGS = 5
# Seconds of tuning for one width, forward and backward.
BUDGET_S = 3.0
# Seconds of tuning in one call, unless one measurement takes longer.
SLICE_S = 0.05

_Key = tuple[str, int, torch.dtype]
_CPU = torch.device("cpu")


class _Stopwatch:
    """Counts the seconds spent on tuning; stopped between slices."""

    def __init__(self) -> None:
        self._spent = 0.0
        self._since: float | None = None

    def __call__(self) -> float:
        return self._spent + (0.0 if self._since is None else _clock() - self._since)

    def go(self) -> None:
        self._since = _clock()

    def stop(self) -> None:
        self._spent, self._since = self(), None


class _Tuning:
    """Tunes one graph at one width, in slices. It keeps the graph alive until the tuning has ended."""

    def __init__(self, graph: Graph, reduce: str, width: int, dtype: torch.dtype, backward: bool) -> None:
        from onehop.tuner.tuning import tuning_steps

        self.graph = graph
        self.watch = _Stopwatch()
        self.steps: Steps[TuningResult] = tuning_steps(
            graph, width, reduce=reduce, dtype=dtype, backward=backward, budget_s=BUDGET_S, clock=self.watch
        )

    def advance(self) -> bool:
        """Runs a slice; returns whether there is more to do. An error ends the tuning of the graph."""
        if self.graph in _stopped:
            return False
        self.watch.go()
        try:
            begin = now = self.watch()
            last = 0.0
            # The next step is assumed to take as long as the last.
            while now - begin + last <= SLICE_S:
                next(self.steps)
                last, now = self.watch() - now, self.watch()
        except StopIteration as end:
            reports.LOGGER.info("%r was tuned in %.1f s.\n%s", self.graph, self.watch(), end.value)
            return False
        except Exception as error:
            _stop(self.graph, error)
            return False
        finally:
            self.watch.stop()
        return True


class _Auto:
    """The tunings in progress and waiting. Forked processes do not continue them."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.waiting: list[_Tuning] = []
        self.lock = threading.Lock()

    def advance(self) -> None:
        """Runs a slice of the first tuning, unless another thread is running one."""
        if self.process != os.getpid() or not self.lock.acquire(blocking=False):
            return
        try:
            if self.waiting:
                more = False
                try:
                    more = self.waiting[0].advance()
                finally:
                    if not more:
                        del self.waiting[0]
        finally:
            self.lock.release()

    def give_up(self) -> None:
        """Ends all tunings; results found so far are kept."""
        if self.process != os.getpid():
            return
        with self.lock:
            for tuning in self.waiting:
                tuning.steps.close()
            self.waiting.clear()


_clock: Callable[[], float] = time.perf_counter
_auto = _Auto()
give_up = _auto.give_up
atexit.register(give_up)
_seen: "weakref.WeakKeyDictionary[Graph, dict[_Key, int]]" = weakref.WeakKeyDictionary()
# Graphs whose tuning ended in an error.
_stopped: "weakref.WeakSet[Graph]" = weakref.WeakSet()


def saw(graph: Graph, reduce: str, width: int, dtype: torch.dtype, backward: bool) -> None:
    """Counts a layer's aggregation; under "auto", runs a slice of the tuning in progress.

    A graph is queued at its fifth aggregation at one width. Every later aggregation, of any graph, runs a
    slice, so that a graph that is never used again is not kept alive forever. Unfinished tuning waits while
    "auto" is off: functions that :func:`onehop.autotune` decorates turn it off when they return. An error of
    tuning is logged, and ends the tuning of its graph; the layer's call is not affected.
    """
    if session.now.settings.tune != "auto" or graph.num_edges * width < thresholds.now.tuned_work:
        return
    if graph in _stopped:
        return
    try:
        # The import is here because it takes a megabyte of memory and few programs tune under the patch.
        from onehop.tuner.tuning import unsuitable

        counts = _seen.setdefault(graph, {})
        key = (_operation(reduce), width, dtype)
        counts[key] = counts.get(key, 0) + 1
        reason = unsuitable()
        if counts[key] == SIGHTINGS:
            if reason is not None:
                reports.LOGGER.info("%r is not tuned: %s.", graph, reason)
            else:
                _auto.waiting.append(_Tuning(graph, reduce, width, dtype, backward))
        if reason is None:
            _auto.advance()
    except Exception as error:
        _stop(graph, error)


def _stop(graph: Graph, error: Exception) -> None:
    """Ends the tuning of a graph because of an error, which is logged."""
    _stopped.add(graph)
    reports.LOGGER.warning(
        "%r is not tuned any more, because tuning raised the error below. Its layers run as before, with the "
        "plan that they have. Report the error; onehop.patch(tune='never') turns tuning off.",
        graph,
        exc_info=error,
    )


def plan_text(
    backend: Backend,
    graph: Graph,
    what: str,
    width: int,
    dtype: torch.dtype,
    device: torch.device = _CPU,
    heads: int = 1,
) -> str:
    """Return the plan of a layer's forward pass in words and, if it was tuned, how it was chosen.

    Args:
        backend: The backend that runs it.
        graph: The graph.
        what: How messages are reduced, or "gat", "gatv2" or "attention" for fused attention.
        width: Columns of a head.
        dtype: The dtype of the features.
        device: The device of the features.
        heads: Number of heads.
    """
    fused = what in SCORES
    if isinstance(backend, CpuBackend):
        operation = "attention" if fused else _operation(what)
        columns = heads * width if fused else width
        choice = tuned.find(graph, operation, False, columns, dtype)
        if choice is not None:
            return str(choice[1]) + _generated_note(choice[1], columns)
        return str(backend.plan_for(graph, operation, False, columns, dtype))
    if isinstance(backend, TritonBackend):
        operation, shared_by = (what, heads) if fused else (_operation(what), 1)
        call = (graph, operation, False, heads * width, shared_by, dtype, device)
        tuned_plan = backend.tuned_for(*call)
        return str(backend.plan_for(*call) if tuned_plan is None else tuned_plan[1])
    plan = backend.plan_of_sum(graph, False, width, dtype)
    return "which has no plans" if plan is None else str(plan)


def _generated_note(entry: tuned.Tuned[CpuPlan], width: int) -> str:
    """Return why the plan's generated kernel does not run; empty if it runs or there is none."""
    name = entry.plan.generated
    if not name:
        return ""
    if width != entry.case.width:
        return f"; its generated kernel is for width {entry.case.width} alone, so the built-in one runs"
    reason = generated.why_not(name)
    return "" if reason is None else f"; {reason}, so the built-in one runs"


def _operation(reduce: str) -> str:
    return "extremum" if reduce in ("max", "min") else "sum"
