"""Parts of an epoch's time, beside its floor."""

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, record_function

from onehop.bench.floors import AGGREGATION, DROPOUT, OTHER, PARTS, PRODUCTS

# By the names that torch's profiler shows. The first that is found counts, so dropout comes before our
# operators, which may have it in their name.
_NAMES = (
    (DROPOUT, re.compile(r"dropout|bernoulli|^_(Dropped|Masked)", re.IGNORECASE)),
    (
        PRODUCTS,
        re.compile(
            r"^aten::(mm|addmm|bmm|baddbmm|mv|addmv|matmul|linear)$|mkldnn|onednn"
            r"|onehop::.*(product|linear)|^_\w*(Product|Linear)\w*$"
        ),
    ),
    (
        AGGREGATION,
        re.compile(
            r"^onehop::|^_(Recorded|Recomputed)(Backward)?$"
            r"|^aten::_?(index_select|index_add|scatter|gather|segment_reduce|sparse\w*|spmm\w*)"
        ),
    ),
)
_BACKWARD = "autograd::engine::evaluate_function"


@dataclass(frozen=True)
class Breakdown:
    """The parts of an epoch.

    Attributes:
        epoch_s: The epoch's time, measured without a profiler.
        shares: Of each of :data:`onehop.bench.floors.PARTS`, 0 to 1, as the profiler saw another epoch.
        floor_s: Seconds that each part needs at least; None where that is not known.
    """

    epoch_s: float
    shares: Mapping[str, float]
    floor_s: Mapping[str, float] | None = None

    @property
    def seconds(self) -> dict[str, float]:
        """Of each part; together the epoch's time."""
        return {part: share * self.epoch_s for part, share in self.shares.items()}

    @property
    def of_floor(self) -> float | None:
        """The epoch's time divided by its floor; None where that is not known."""
        return None if self.floor_s is None else self.epoch_s / sum(self.floor_s.values())

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "shares": dict(self.shares),
            "seconds": self.seconds,
            "floor_s": None if self.floor_s is None else dict(self.floor_s),
            "x_of_floor": self.of_floor,
        }


def shares(epoch: Callable[[], object], epochs: int = 1) -> dict[str, float]:
    """The share of each part in the time of an epoch, as torch's profiler sees it.

    An event counts for the part that its name, or that of an event around it, tells; a sum inside a product
    is that product over its non-zeros. Backward steps of what was called inside dropout count as dropout.
    Whatever no event covers is ``other``.

    Args:
        epoch: Trains one epoch.
        epochs: How many are profiled.
    """
    # Its library would write a line to standard error whenever it starts and stops.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    with _dropout_shown(), torch.profiler.profile(activities=[ProfilerActivity.CPU]) as profiler:
        begin = time.perf_counter()
        for _ in range(epochs):
            epoch()
        total = (time.perf_counter() - begin) * 1e6
    spent = of_parts([event for event in profiler.events() or () if event.cpu_parent is None])
    spent[OTHER] += max(total - sum(spent.values()), 0.0)
    whole = sum(spent.values())
    return {part: microseconds / whole for part, microseconds in spent.items()}


def of_parts(roots: Sequence[Any]) -> dict[str, float]:
    """Microseconds of each part, in events of torch's profiler and those inside them.

    Args:
        roots: Events that lie inside no other: with ``name``, ``sequence_nr``, ``self_cpu_time_total`` and
            ``cpu_children``.
    """
    spent = dict.fromkeys(PARTS, 0.0)
    dropped = set(_steps_inside_dropout(roots, inside=False))
    for event in roots:
        _add(event, OTHER, dropped, spent)
    return spent


@contextlib.contextmanager
def _dropout_shown() -> Iterator[None]:
    """Lets the profiler see dropout as a whole: native code below it calls nothing that it knows."""
    theirs = F.dropout

    def dropout(*args: Any, **kwargs: Any) -> Any:
        with record_function("dropout"):
            return theirs(*args, **kwargs)

    F.dropout = dropout
    try:
        yield
    finally:
        F.dropout = theirs


def part_of(name: str) -> str | None:
    """The part that an event of this name belongs to; None where the name does not tell."""
    return next((part for part, pattern in _NAMES if pattern.search(name)), None)


def _steps_inside_dropout(events: Iterable[Any], inside: bool) -> Iterable[int]:
    """The numbers under which autograd recorded what dropout called: its backward steps carry them too."""
    for event in events:
        within = inside or part_of(event.name) == DROPOUT
        if within and event.sequence_nr >= 0:
            yield event.sequence_nr
        yield from _steps_inside_dropout(event.cpu_children, within)


def _add(event: Any, around: str, dropped: set[int], spent: dict[str, float]) -> None:
    part = part_of(event.name) or around
    if part == AGGREGATION and around == PRODUCTS:
        part = PRODUCTS
    if event.name.startswith(_BACKWARD) and event.sequence_nr in dropped:
        part = DROPOUT
    spent[part] += event.self_cpu_time_total
    for child in event.cpu_children:
        _add(child, part, dropped, spent)
