"""The parts of a script's time: its layers, functions that the patch serves, and other large parts."""

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
# Files with functions that replace functions of torch or PyG.
_REPLACING = {rows.__file__, kernels.__file__}

_CALL_OF_MODULE = torch.nn.Module.__call__.__code__

_PARTS, _LEAST_SHARE = 3, 0.01

# This is often enough for shares of an epoch; a sample takes about 20 us.
_PERIOD_S = 0.005


@dataclass(frozen=True, slots=True)
class Watched:
    """A class of layers, and one way in which its propagations ran.

    Attributes:
        row: What ran, and how often.
        share: Share of the time that forward passes of the class took, without backward passes; None for
            further rows of the same class.
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
        """Count one propagation."""
        how = call.reason, call.form, call.reduce, call.backend, call.plan, call.program
        key = (type(call.layer).__name__, *how, reports.framework_of(call.layer))
        with self._lock:
            self._counted[key] += 1
            self._kinds.add(type(call.layer))

    def heard(self) -> set[type]:
        """Return the classes of layers seen so far.

        No lock is taken, because a process forked during the call would find the lock taken.
        """
        return self._kinds.copy()

    def rows(self) -> list[LayerReport]:
        """Return a row for each class and way; within a class, rows with most propagations come first."""
        merged: dict[tuple[str, str | None, str, str], list[Any]] = {}
        for (kind, reason, form, reduce, *rest), calls in self._counted.most_common():
            # Graphs of mini-batches differ only in their plans.
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
    """Samples the stack of the thread that created it, a few hundred times a second.

    The program is not affected: no hook is set, so layers and compiled models run as usual, and the sampling
    thread is not listed by ``threading.enumerate()``, whose threads programs join or count.
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
        """Start sampling."""
        _thread.start_new_thread(self._look, ())
        return self

    def __exit__(self, *_: object) -> None:
        """Stop sampling."""
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
        """Count a sample for a layer; outside of layers, for a function or for a part that is not ours."""
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
    """Calls and time outside of layers.

    Attributes:
        sampler: The samples; sampling goes on until Python ends.
        functions: The functions that the patch replaces, with their calls.
    """

    sampler: Sampler
    functions: tuple[FunctionReport, ...]

    def share(self, name: str) -> float:
        """Return the share of the time that a function took outside of layers."""
        return self.sampler.functions[name] / max(self.sampler.samples, 1)

    @property
    def others(self) -> list[tuple[str, float]]:
        """Return the largest parts that are not onehop's, with their shares of at least a hundredth."""
        shares = [
            (name, count / self.sampler.samples) for name, count in self.sampler.others.most_common(_PARTS)
        ]
        return [(name, share) for name, share in shares if share >= _LEAST_SHARE]


def _forward_codes(kinds: Iterable[type]) -> dict[CodeType, str | None]:
    """Return the code of classes' forward functions, ours and the framework's; None if classes share it."""
    codes: dict[CodeType, str | None] = {}
    for kind in kinds:
        function = getattr(kind, "forward", None)
        while isinstance(function, FunctionType):
            code = function.__code__
            codes[code] = kind.__name__ if codes.get(code, kind.__name__) == kind.__name__ else None
            function = getattr(function, "__wrapped__", None)
    return codes


def _layer_of(frame: FrameType | None, codes: dict[CodeType, str | None]) -> str | None:
    """Return the class of the innermost layer whose forward is running."""
    while frame is not None:
        if frame.f_code in codes:
            # Locals that were read live as long as their frame, so they are read only if classes share their
            # code.
            return codes[frame.f_code] or type(frame.f_locals.get("self")).__name__
        frame = frame.f_back
    return None


def _function_of(frame: FrameType | None) -> str | None:
    """Return the function that the patch replaced and that is running outside of layers."""
    while frame is not None:
        if frame.f_code.co_filename in _REPLACING and (name := frame.f_locals.get("counted_as")):
            return str(name)
        frame = frame.f_back
    return None


def _part_of(frame: FrameType | None) -> str | None:
    """Return the library function that the program's own code called, or the line that runs there.

    The result is None outside of the program, for example while Python starts.
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
        # The function inside a decorator says more than the decorator's own function.
        if inner is None or "<locals>" not in frame.f_code.co_qualname:
            inner = frame
        frame = frame.f_back
    return None


@cache
def _is_of_library(file: str) -> bool:
    """Return whether a file is not the program's own: it is Python's, an installed package's, or ours."""
    return file.startswith(("<frozen", _STANDARD, _OURS)) or not _INSTALLED.isdisjoint(Path(file).parts)


def watched(tally: Tally, sampler: Sampler) -> list[Watched]:
    """Return what was seen, largest share first; silent layers that are still alive are included."""
    rows = tally.rows()
    rows += _silent({row.kind for row in rows})
    order = sorted(dict.fromkeys(row.kind for row in rows), key=lambda kind: -sampler.share(kind))
    result = []
    for kind in order:
        for number, row in enumerate(row for row in rows if row.kind == kind):
            result.append(Watched(row, None if number else sampler.share(kind)))
    return result


def _silent(heard: set[str]) -> Iterable[LayerReport]:
    """Yield layers of classes that never reached the patch, with the reason."""
    found: Counter[tuple[str, str, str]] = Counter()
    for each in gc.get_objects():
        # type() is used because isinstance() reads __class__, which runs code of some objects.
        if issubclass(type(each), torch.nn.Module) and type(each).__name__ not in heard:
            reason = silence(each)
            if reason is not None:
                found[type(each).__name__, reason, reports.framework_of(each)] += 1
    for kind, reason, framework in found:
        yield LayerReport("", kind, 0, reason, "", "", "", "", "", framework)
