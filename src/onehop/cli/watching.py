"""The parts of a script's time: its layers, the functions that the patch serves, and other large ones."""

import _thread
import gc
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch

import onehop
from onehop.integrations import reports, rows
from onehop.integrations.explain import FunctionReport, LayerReport
from onehop.integrations.patch import silence
from onehop.integrations.torch import kernels

_INSTALLED = {"site-packages", "dist-packages"}
_STANDARD, _OURS = str(Path(os.__file__).parent), str(Path(onehop.__file__).parent)
# The files whose functions replace others.
_REPLACING = {rows.__file__, kernels.__file__}

_CALL_OF_MODULE = torch.nn.Module.__call__.__code__

_PARTS, _LEAST_SHARE = 3, 0.01

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
        self.functions: Counter[str] = Counter()
        self.others: Counter[str] = Counter()
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
                self._count(sys._current_frames().get(self._thread))
        finally:
            self._ended.set()

    def _count(self, frame: FrameType | None) -> None:
        """Counts a sample for a layer; outside of layers for a function, or for a part that is not ours."""
        self.samples += 1
        layer = _layer_of(frame, self._codes)
        if layer is not None:
            self.within[layer] += 1
            return
        function = _function_of(frame)
        if function is not None:
            self.functions[function] += 1
        elif (part := _part_of(frame)) is not None:
            self.others[part] += 1


@dataclass(frozen=True, slots=True)
class Seen:
    """The calls and the time outside of layers.

    Attributes:
        sampler: The samples, which are not all taken before Python ends.
        functions: The functions that the patch replaces, with their calls.
    """

    sampler: Sampler
    functions: tuple[FunctionReport, ...]

    def share(self, name: str) -> float:
        """Return the share of the time that a function took outside of layers."""
        return self.sampler.functions[name] / max(self.sampler.samples, 1)

    @property
    def others(self) -> list[tuple[str, float]]:
        """The largest parts of at least a hundredth of the time that are not ours, with their shares."""
        shares = [
            (name, count / self.sampler.samples) for name, count in self.sampler.others.most_common(_PARTS)
        ]
        return [(name, share) for name, share in shares if share >= _LEAST_SHARE]


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


def _function_of(frame: FrameType | None) -> str | None:
    """The function that the patch replaces, and that is running outside of layers."""
    while frame is not None:
        if frame.f_code.co_filename in _REPLACING and (name := frame.f_locals.get("counted_as")):
            return str(name)
        frame = frame.f_back
    return None


def _part_of(frame: FrameType | None) -> str | None:
    """The library's function that the program's own code called, or the line that is running there.

    None outside of the program, as while Python starts.
    """
    inner: FrameType | None = None
    while frame is not None:
        if not _is_of_library(frame.f_code.co_filename):
            if inner is None:
                return (
                    f"{frame.f_code.co_name}, line {frame.f_lineno} of {Path(frame.f_code.co_filename).name}"
                )
            module, name = str(inner.f_globals.get("__name__", "")), inner.f_code.co_qualname
            if inner.f_code is _CALL_OF_MODULE:
                kind = type(inner.f_locals["self"])
                module, name = kind.__module__, kind.__qualname__
            return f"{module.split('.')[0]}: {name}"
        # The function that a decorator wraps says more than the decorator's own.
        if inner is None or "<locals>" not in frame.f_code.co_qualname:
            inner = frame
        frame = frame.f_back
    return None


@cache
def _is_of_library(file: str) -> bool:
    """Return whether a file is not the program's own: Python's, an installed package's, or ours."""
    return file.startswith(("<frozen", _STANDARD, _OURS)) or not _INSTALLED.isdisjoint(Path(file).parts)


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
