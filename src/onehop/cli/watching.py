"""The layers of a script that runs: the path of each class, its calls, and its share of the time."""

import _thread
import gc
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch

from onehop.integrations import reports
from onehop.integrations.explain import LayerReport
from onehop.integrations.patch import silence

# Often enough for shares of an epoch; a sample takes some 20 us.
_PERIOD_S = 0.005


@dataclass(frozen=True, slots=True)
class Watched:
    """A class of layers, and one way that its propagations went.

    Attributes:
        row: What ran, and how often.
        share: The share of the time that forward passes of the class took, backward not counted; None for
            the further rows of a class.
    """

    row: LayerReport
    share: float | None


class Tally:
    """Counts propagations; a listener of :mod:`onehop.integrations.reports`."""

    def __init__(self) -> None:
        self._kinds: set[type] = set()
        self._counted: Counter[tuple[Any, ...]] = Counter()
        self._lock = threading.Lock()

    def append(self, call: reports.Call) -> None:
        """Counts one."""
        how = call.reason, call.form, call.reduce, call.backend, call.plan, call.program
        key = (type(call.layer).__name__, *how, reports.framework_of(call.layer))
        with self._lock:
            self._counted[key] += 1
            self._kinds.add(type(call.layer))

    def heard(self) -> set[type]:
        """The classes of layers so far. No lock is taken: a process forked meanwhile would find it locked."""
        return self._kinds.copy()

    def rows(self) -> list[LayerReport]:
        """A row for each class and way, those with most propagations first within a class."""
        merged: dict[tuple[str, str | None, str, str], list[Any]] = {}
        for (kind, reason, form, reduce, *rest), calls in self._counted.most_common():
            # Graphs of mini-batches differ in their plans alone.
            key = (kind, reason, form, reduce)
            if key in merged:
                merged[key][0] += calls
            else:
                merged[key] = [calls, *rest]
        return [
            LayerReport("", kind, calls, reason, form, reduce, *rest)
            for (kind, reason, form, reduce), (calls, *rest) in merged.items()
        ]


class Sampler:
    """Looks at the stack of the thread that made it, a few hundred times a second.

    The program does not notice it: no hook is set, so layers and compiled models run as they do without, and
    its thread is not among those of ``threading.enumerate()``, which programs join or count.
    """

    def __init__(self, tally: Tally) -> None:
        self.samples = 0
        self.within: Counter[str] = Counter()
        self._tally = tally
        self._known = 0
        self._codes: dict[CodeType, str | None] = {}
        self._thread = threading.get_ident()
        self._done, self._ended = threading.Event(), threading.Event()

    def __enter__(self) -> "Sampler":
        """Begins."""
        _thread.start_new_thread(self._look, ())
        return self

    def __exit__(self, *_: object) -> None:
        """Ends."""
        self._done.set()
        self._ended.wait()

    def share(self, kind: str) -> float:
        """Return the share of the samples in which the forward pass of a class of layers was running."""
        return self.within[kind] / self.samples if self.samples else 0.0

    def _look(self) -> None:
        try:
            while not self._done.wait(_PERIOD_S):
                kinds = self._tally.heard()
                if len(kinds) != self._known:
                    self._known, self._codes = len(kinds), _forward_codes(kinds)
                layer = _layer_of(sys._current_frames().get(self._thread), self._codes)
                self.samples += 1
                if layer is not None:
                    self.within[layer] += 1
        finally:
            self._ended.set()


def _forward_codes(kinds: Iterable[type]) -> dict[CodeType, str | None]:
    """The code of classes' forward functions, ours and the framework's; None where classes share it."""
    codes: dict[CodeType, str | None] = {}
    for kind in kinds:
        function = getattr(kind, "forward", None)
        while isinstance(function, FunctionType):
            code = function.__code__
            codes[code] = kind.__name__ if codes.get(code, kind.__name__) == kind.__name__ else None
            function = getattr(function, "__wrapped__", None)
    return codes


def _layer_of(frame: FrameType | None, codes: dict[CodeType, str | None]) -> str | None:
    """The class of the innermost layer whose forward is running."""
    while frame is not None:
        if frame.f_code in codes:
            # Locals that have been read live as long as their frame, so only where classes share their code.
            return codes[frame.f_code] or type(frame.f_locals.get("self")).__name__
        frame = frame.f_back
    return None


def watched(tally: Tally, sampler: Sampler) -> list[Watched]:
    """Return what was seen, classes with the largest share first; silent layers that are still alive too."""
    rows = tally.rows()
    rows += _silent({row.kind for row in rows})
    order = sorted(dict.fromkeys(row.kind for row in rows), key=lambda kind: -sampler.share(kind))
    result = []
    for kind in order:
        for number, row in enumerate(row for row in rows if row.kind == kind):
            result.append(Watched(row, None if number else sampler.share(kind)))
    return result


def _silent(heard: set[str]) -> Iterable[LayerReport]:
    """Layers of classes that never reached the patch, and why."""
    found: Counter[tuple[str, str, str]] = Counter()
    for each in gc.get_objects():
        # type() and not isinstance(): reading __class__ runs code of some objects.
        if issubclass(type(each), torch.nn.Module) and type(each).__name__ not in heard:
            reason = silence(each)
            if reason is not None:
                found[type(each).__name__, reason, reports.framework_of(each)] += 1
    for kind, reason, framework in found:
        yield LayerReport("", kind, 0, reason, "", "", "", "", "", framework)
