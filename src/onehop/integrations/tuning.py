"""Tuning under the patch: graphs that come back are tuned once, between two calls; others never."""

import weakref

import torch

from onehop.backends import Backend
from onehop.graph import Graph
from onehop.integrations import reports
from onehop.kernels.cpu import generated
from onehop.plans import tuned
from onehop.tuner.tuning import tune, unsuitable

# A graph is tuned when it is met so often at one width: mini-batches, each a graph of its own, never are.
SIGHTINGS = 5
# Seconds for one width and both directions.
BUDGET_S = 3.0
# Of edges times width: with less, calls take so little time that no plan saves any.
LEAST_WORK = 1 << 20

_auto = False
_seen: "weakref.WeakKeyDictionary[Graph, dict[tuple[str, int, torch.dtype], int]]" = (
    weakref.WeakKeyDictionary()
)


def switch(on: bool) -> None:
    """Turns automatic tuning on or off."""
    global _auto
    _auto = on


def saw(graph: Graph, reduce: str, width: int, dtype: torch.dtype, backward: bool) -> None:
    """A layer is about to aggregate: under "auto", the last sighting that tuning waits for sets it off."""
    if not _auto or graph.num_edges * width < LEAST_WORK:
        return
    counts = _seen.setdefault(graph, {})
    key = (_operation(reduce), width, dtype)
    counts[key] = counts.get(key, 0) + 1
    if counts[key] != SIGHTINGS:
        return
    reason = unsuitable()
    if reason is not None:
        reports.LOGGER.info("%r is not tuned: %s.", graph, reason)
        return
    result = tune(graph, width, reduce=reduce, dtype=dtype, backward=backward, budget_s=BUDGET_S)
    reports.LOGGER.info("%r was tuned in %.1f s.\n%s", graph, result.seconds, result)


def plan_text(backend: Backend, graph: Graph, reduce: str, width: int, dtype: torch.dtype) -> str:
    """The plan that a layer's sum runs with, and, if it was tuned, what it was chosen by."""
    if backend.name == "cpu":
        found = tuned.find(graph, _operation(reduce), False, width, dtype)
        if found is not None:
            return str(found[1]) + _of_generated(found[1], width)
    return str(backend.prepare(graph, False, width, dtype))


def _of_generated(entry: tuned.Tuned, width: int) -> str:
    """Why the plan's generated kernel does not run here, where it has one and that is so."""
    name = entry.plan.generated
    if not name:
        return ""
    if width != entry.case.width:
        return f"; its generated kernel is for width {entry.case.width} alone, so the built-in one runs"
    reason = generated.why_not(name)
    return "" if reason is None else f"; {reason}, so the built-in one runs"


def _operation(reduce: str) -> str:
    return "sum" if reduce in ("sum", "mean") else "extremum"
