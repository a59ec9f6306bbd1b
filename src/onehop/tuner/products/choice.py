"""The library for a product: chosen before its class is first used, then the same for the whole process.

A choice is kept on disk beside the plans of this machine (:mod:`onehop.plans.store`), with the version of
torch, whose libraries they are. It depends on shapes and threads alone, so that a forward pass that is
repeated, as under activation checkpointing, takes the same library.
"""

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from onehop import config, native
from onehop.errors import ArgumentError
from onehop.kernels.products import TORCH, Product, libraries
from onehop.plans import store
from onehop.tuner.products import trial
from onehop.tuner.products.classes import ShapeClass

_lock = threading.RLock()
# Without this, a child forked while another thread holds the lock would wait for ever.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)

_MOST_GAIN = 1e6


@dataclass(frozen=True, slots=True)
class Chosen:
    """The library of a class, and what it was chosen by.

    Attributes:
        case: The class.
        library: The library.
        gains: For each other library the lower quartile, the median and the upper quartile of torch's time
            over its time.
    """

    case: ShapeClass
    library: str
    gains: dict[str, tuple[float, float, float]]

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {"case": self.case._asdict(), "library": self.library, "gains": self.gains}

    @classmethod
    def from_dict(cls, values: Any) -> "Chosen":
        """The choice that :meth:`to_dict` wrote.

        Raises:
            ArgumentError: A field is missing or of another type.
        """
        try:
            case, library, gains = values["case"], values["library"], dict(values["gains"])
            read = {
                str(name): (float(low), float(median), float(high))
                for name, (low, median, high) in gains.items()
            }
        except (TypeError, KeyError, ValueError) as error:
            raise ArgumentError(f"product: a field is missing or unknown ({error}).") from error
        if not all(0 < gain < _MOST_GAIN for each in read.values() for gain in each):
            raise ArgumentError(f"product: expected ratios of times, got {read!r}.")
        return cls(ShapeClass.from_dict(case), str(library), read)


_chosen: dict[ShapeClass, Chosen] = {}
_loaded = False
_forced: str | None = None


def library(kind: str, rows: int, inputs: int, outputs: int) -> Product:
    """The library's function for a product of float32 with torch's number of threads.

    A class that was never measured is measured now, for some tens of milliseconds.

    Args:
        kind: One of :data:`onehop.kernels.products.KINDS`.
        rows: Rows of x, 1 or more; so are the others.
        inputs: Columns of x.
        outputs: Rows of the weight.
    """
    here = libraries(kind)
    if _forced is not None:
        return here.get(_forced, here[TORCH])
    case = ShapeClass.of(kind, rows, inputs, outputs, native.threads())
    found = _chosen.get(case) or _choose(case)
    return here[found.library]


def known() -> list[Chosen]:
    """All choices that this process knows, those on disk included."""
    with _lock:
        _load()
        return sorted(_chosen.values(), key=lambda chosen: chosen.case)


def forget() -> None:
    """Drops all choices of this process and on disk: classes are measured again at their next use."""
    global _loaded
    with _lock:
        _chosen.clear()
        _loaded = True
        store_path().unlink(missing_ok=True)


def store_path() -> Path:
    """The file of choices."""
    return store.path(_machine())


@contextlib.contextmanager
def forced(name: str) -> Iterator[None]:
    """Runs products inside the block in one library, or in torch's own where that has none; for tests."""
    global _forced
    before, _forced = _forced, name
    try:
        yield
    finally:
        _forced = before


def _choose(case: ShapeClass) -> Chosen:
    with _lock:
        _load()
        found = _chosen.get(case)
        if found is None:
            outcome = trial.measured(case)
            found = _chosen[case] = Chosen(case, outcome.library, outcome.gains)
            # What noise has left open may be decided by a quieter process.
            if outcome.decided and config.tuned():
                store.save([found.to_dict()], _machine())
    return found


def _load() -> None:
    """Reads the file, once."""
    global _loaded
    if _loaded:
        return
    _loaded = True
    if not config.tuned():
        return
    try:
        read = [Chosen.from_dict(entry) for entry in store.load(_machine())]
    except ArgumentError as error:
        store.set_aside(str(error), _machine())
        return
    for chosen in read:
        if chosen.library in libraries(chosen.case.kind):
            _chosen.setdefault(chosen.case, chosen)


def _machine() -> dict[str, Any]:
    """The properties that must agree for a choice to be valid."""
    return {
        **store.machine(),
        "products": {"torch": torch.__version__, "kernels": native.extension.selected_isa()},
    }
