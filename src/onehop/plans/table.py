"""Tuned plans of one machine, as its backend looks them up: in memory, and loaded from disk when needed."""

import dataclasses
import os
import threading
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple

import torch

from onehop import config
from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.plans import changes, store
from onehop.plans.cases import GpuCase, PlanCase, Sizes, distance, graph_key, sizes_of
from onehop.plans.cpu import CpuPlan
from onehop.plans.entry import P, Tuned

_lock = threading.RLock()
# Without this, a child that is forked while another thread holds the lock would wait forever.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class Found(NamedTuple, Generic[P]):
    """A plan that was looked up.

    Attributes:
        plan: The plan to use now.
        tuned: The tuned entry from which the plan comes.
        stays: Whether the next call gets the same plan, unless :mod:`onehop.plans.changes` counts a change.
    """

    plan: P
    tuned: Tuned[P]
    stays: bool


@dataclass(slots=True)
class _Use(Generic[P]):
    """A tuned plan in use on one graph; a missing order is computed after enough calls."""

    tuned: Tuned[P]
    plan: P
    without_order: P
    calls: int = 0


def _capturing() -> bool:
    """Return whether a CUDA graph is being captured; then no new data can be copied to the device."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


class Table(Generic[P]):
    """All tuned plans of one machine that this process knows.

    Args:
        machine: Returns the machine's properties, which name its file (see :mod:`onehop.plans.store`).
    """

    def __init__(self, machine: Callable[[], dict[str, Any]]) -> None:
        self._machine = machine
        # Sizes of a graph -> entries for graphs of these sizes; one lookup rejects most graphs.
        self._by_size: dict[Sizes, dict[PlanCase | GpuCase, Tuned[P]]] = {}
        # Entries as read from the file, by sizes; they are parsed when a graph of these sizes is used.
        self._unread: dict[Sizes, list[Any]] = {}
        # Graph -> key of a call -> the plan in use; None means that there is none.
        self._uses: weakref.WeakKeyDictionary[Graph, dict[Hashable, _Use[P] | None]]
        self._uses = weakref.WeakKeyDictionary()
        self._loaded = False

    def knows(self, sizes: Sizes) -> bool:
        """Return whether graphs of these sizes, as in cases, may have been tuned."""
        if not self._loaded:
            self._load()
        return sizes in self._by_size or sizes in self._unread

    def find(self, graph: Graph, key: Hashable, case: Callable[[], PlanCase | GpuCase]) -> Found[P] | None:
        """Return the plan to use for a call on a graph of known sizes; None if nothing was tuned.

        This is the tuned plan, except if its order is missing: calls then run without the order until they
        have lost as much time as computing the order takes. So a program never loses more than twice what it
        could have gained, however soon it ends.

        Args:
            graph: The graph.
            key: The part of the case other than the graph; the same key means the same case.
            case: Returns the case, which may compute the graph's statistics.
        """
        uses = self._uses.get(graph)
        if uses is None:
            uses = self._uses.setdefault(graph, {})
        if key not in uses:
            uses[key] = self._choose(graph, case())
        use = uses[key]
        if use is None:
            return None
        ordering = use.plan.ordering
        if ordering != "none" and ordering not in graph.orders:
            use.calls += 1
            if use.calls <= use.tuned.break_even or _capturing():
                return Found(use.without_order, use.tuned, stays=False)
        return Found(use.plan, use.tuned, stays=True)

    def _choose(self, graph: Graph, wanted: PlanCase | GpuCase) -> _Use[P] | None:
        near = [
            (far, place, tuned)
            for place, tuned in enumerate(self._of_sizes(wanted.sizes).values())
            if tuned.measured_s is not None and (far := distance(tuned.case, wanted)) is not None
        ]
        if not near:
            return None
        best = min(near)[2]
        without = dataclasses.replace(best.plan, ordering="none")
        same = not best.figures or best.figures == graph_key(graph)
        return _Use(best, best.plan if same else without, without)

    def install(self, found: list[Tuned[P]], keep: bool = True) -> None:
        """Install plans in this process and, with ``keep``, on disk for later processes."""
        with _lock:
            if not self._loaded:
                self._load()
            for tuned in found:
                sizes = tuned.case.sizes
                self._of_sizes(sizes)
                self._by_size.setdefault(sizes, {})[tuned.case] = tuned
            self._uses.clear()
        changes.note()
        if keep:
            store.save([tuned.to_dict() for tuned in found], self._machine())

    def known(self, case: PlanCase | GpuCase) -> Tuned[P] | None:
        """Return the entry for exactly this case, or None."""
        if not self._loaded:
            self._load()
        return self._of_sizes(case.sizes).get(case)

    def _load(self) -> None:
        with _lock:
            if self._loaded:
                return
            self._loaded = True
            if not config.tuned():
                return
            try:
                for entry in store.load(self._machine()):
                    self._unread.setdefault(sizes_of(entry["case"]["graph"]), []).append(entry)
            except (ArgumentError, KeyError, TypeError, AttributeError, RecursionError) as error:
                self._give_up(error)

    def _of_sizes(self, sizes: Sizes) -> dict[PlanCase | GpuCase, Tuned[P]]:
        """Return the entries for graphs of these sizes."""
        with _lock:
            found = self._by_size.get(sizes, {})
            if sizes in self._unread:
                try:
                    read = [_kept(entry) for entry in self._unread.pop(sizes)]
                except ArgumentError as error:
                    self._give_up(error)
                    return found
                # Plans tuned in this process are newer than those in the file.
                found = {tuned.case: tuned for tuned in read} | found
                self._by_size[sizes] = found
            return found

    def _give_up(self, error: Exception) -> None:
        """Discard a damaged file, so that no more of it is used."""
        self._unread.clear()
        changes.note()
        store.set_aside(str(error), self._machine())


def _kept(entry: Any) -> Tuned[Any]:
    """Return an entry of the file.

    Raises:
        ArgumentError: The entry is invalid; or its plan would change results by more than the order of sums
            does, although plans of this kind are never written.
    """
    tuned = Tuned.from_dict(entry)
    if isinstance(tuned.plan, CpuPlan) and tuned.plan.storage != "same":
        raise ArgumentError(
            f"tuned plan: it rounds features to {tuned.plan.storage}, and the user did not allow that."
        )
    return tuned
