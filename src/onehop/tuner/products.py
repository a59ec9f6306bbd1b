"""The library for a dense product: chosen before its class of shapes is first used, then the same.

Products of one class run in the same library. It is measured once, by every library in turn against torch's
own, and kept on disk beside the plans of this machine (:mod:`onehop.plans.store`), with the version of torch,
whose libraries they are. A choice depends on shapes and threads alone, so that a forward pass that is
repeated, as under activation checkpointing, takes the same library.
"""

import functools
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from onehop import config, native
from onehop.errors import ArgumentError
from onehop.kernels.products import FORWARD, KINDS, TO_INPUT, TORCH, Product, libraries
from onehop.plans import store
from onehop.scopes import Scoped

# Multiplications of a product that is measured, and numbers in its operands and result: two or three
# milliseconds, and 32 MB. With more rows, a product of the same columns is the same work more often.
_MOST_WORK, _MOST_NUMBERS = 1 << 28, 1 << 23
_LEAST_ROWS = 64
_LARGEST = 1 << 40
# Rounds of a trial, and seconds after which it has enough of them.
_LEAST_ROUNDS, _MOST_ROUNDS, _BUDGET_S = 5, 11, 0.04
# How much faster than torch's own a library must be in three quarters of the rounds.
_LEAST_GAIN = 1.05
# Trials before a class that is neither won nor lost is left to torch's own.
_TRIALS = 2
# Of the largest entry: far above rounding, far below a wrong result.
_TOLERANCE = 1e-4
_PERIOD = 13
_MOST_GAIN = 1e6

Clock = Callable[[Callable[[], object]], float]

_lock = threading.RLock()
# Without this, a child forked while another thread holds the lock would wait for ever.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class ShapeClass(NamedTuple):
    """Shapes that share one measurement, the smallest shape's.

    Attributes:
        kind: The product, one of :data:`onehop.kernels.products.KINDS`.
        rows: Rows of x: a power of two. The class of the most rows has all that have more.
        inputs: Columns of x: three leading bits, and zeros.
        outputs: Rows of the weight, rounded in the same way.
        threads: Number of threads.
        dtype: Of all operands.
    """

    kind: str
    rows: int
    inputs: int
    outputs: int
    threads: int
    dtype: str = "float32"

    @classmethod
    def of(cls, kind: str, rows: int, inputs: int, outputs: int, threads: int) -> "ShapeClass":
        """The class of a product of x, [rows, inputs], and a weight, [outputs, inputs]."""
        inputs, outputs = _leading(inputs, 3), _leading(outputs, 3)
        most = min(_MOST_WORK // (inputs * outputs), _MOST_NUMBERS // (inputs + outputs))
        return cls(kind, _leading(min(rows, max(most, _LEAST_ROWS)), 1), inputs, outputs, threads)

    @classmethod
    def from_dict(cls, values: Any) -> "ShapeClass":
        """The class that ``_asdict()`` was called on.

        Raises:
            ArgumentError: A field is missing, unknown, of another type, or out of range.
        """
        try:
            shape_class = cls(**values)
        except TypeError as error:
            raise ArgumentError(f"product: a field is missing or unknown ({error}).") from error
        numbers = (shape_class.rows, shape_class.inputs, shape_class.outputs, shape_class.threads)
        if shape_class.kind not in KINDS or shape_class.dtype != "float32":
            raise ArgumentError(f"product: {shape_class.kind!r} of {shape_class.dtype!r} is unknown.")
        if not all(type(number) is int and 0 < number < _LARGEST for number in numbers):
            raise ArgumentError(f"product: expected numbers from 1 on, got {numbers!r}.")
        return shape_class

    def __str__(self) -> str:
        """The product and its sizes."""
        plural = "" if self.threads == 1 else "s"
        return (
            f"{self.kind}, {self.inputs} to {self.outputs} columns, from {self.rows} rows on, "
            f"{self.threads} thread{plural}"
        )


def _leading(number: int, bits: int) -> int:
    """The number with all but its leading bits set to zero."""
    shift = max(number.bit_length() - bits, 0)
    return number >> shift << shift


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
_forced: Scoped[str | None] = Scoped("onehop_forced_product", None)


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
    name = _forced.get()
    if name is not None:
        return here.get(name, here[TORCH])
    case = ShapeClass.of(kind, rows, inputs, outputs, native.threads())
    choice = _chosen.get(case) or _choose(case)
    return here[choice.library]


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


def forced(name: str) -> AbstractContextManager[str | None]:
    """Runs products inside the block in one library, or in torch's own where that has none; for tests."""
    return _forced.set(name)


def _choose(case: ShapeClass) -> Chosen:
    with _lock:
        _load()
        choice = _chosen.get(case)
        if choice is None:
            outcome = measured(case)
            choice = _chosen[case] = Chosen(case, outcome.library, outcome.gains)
            # What noise has left open may be decided by a quieter process.
            if outcome.decided and config.tuned():
                store.save([choice.to_dict()], _machine())
    return choice


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


@dataclass(frozen=True, slots=True)
class Outcome:
    """The findings of a trial.

    Attributes:
        library: The library to use.
        decided: Whether another trial would most likely find the same; if not, other programs disturbed.
        gains: For each other library the lower quartile, the median and the upper quartile of torch's time
            over its time, round by round.
    """

    library: str
    decided: bool
    gains: dict[str, tuple[float, float, float]]


def measured(case: ShapeClass, clock: Clock | None = None) -> Outcome:
    """The fastest library for a class, by trials of some tens of milliseconds.

    Args:
        case: The class.
        clock: Returns the seconds that a call takes; None means the system's.
    """
    outcome = Outcome(TORCH, True, {})
    with native.torchs_kernels():
        runs = _runs(case)
        for _ in range(_TRIALS):
            outcome = judged(_times(runs, clock or _duration))
            if outcome.decided:
                break
    return outcome


def judged(times: Mapping[str, list[float]]) -> Outcome:
    """The outcome of rounds.

    Args:
        times: Seconds by library, one figure a round; torch's own among them.
    """
    gains = {
        name: _quartiles([ours / theirs for ours, theirs in zip(times[TORCH], seconds, strict=True)])
        for name, seconds in times.items()
        if name != TORCH
    }
    winners = [name for name, (low, _, _) in gains.items() if low > _LEAST_GAIN]
    if winners:
        return Outcome(max(winners, key=lambda name: gains[name][1]), True, gains)
    return Outcome(TORCH, all(median <= _LEAST_GAIN for _, median, _ in gains.values()), gains)


def _runs(case: ShapeClass) -> dict[str, Callable[[], Tensor]]:
    """The class's product in every library that computes it right, on operands of small whole numbers."""
    rows, inputs, outputs = case.rows, case.inputs, case.outputs
    if case.kind == FORWARD:
        left, right = _operand(rows, inputs), _operand(outputs, inputs)
    elif case.kind == TO_INPUT:
        left, right = _operand(rows, outputs), _operand(outputs, inputs)
    else:
        left, right = _operand(rows, outputs), _operand(rows, inputs)
    expected = libraries(case.kind)[TORCH](left, right, None)
    bound = _TOLERANCE * max(1.0, float(expected.abs().max()))
    runs: dict[str, Callable[[], Tensor]] = {}
    for name, run in libraries(case.kind).items():
        product = run(left, right, None)
        if product.shape == expected.shape and float((product - expected).abs().max()) <= bound:
            runs[name] = functools.partial(run, left, right, None)
    return runs


def _operand(rows: int, columns: int) -> Tensor:
    # No random numbers: the user's generator is not touched, nor is a result by chance.
    count = torch.arange(rows * columns, device="cpu", dtype=torch.int32)
    return count.remainder_(_PERIOD).sub_(_PERIOD // 2).float().view(rows, columns)


def _times(runs: Mapping[str, Callable[[], Tensor]], clock: Clock) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in runs}
    spent = 0.0
    for done in range(_MOST_ROUNDS):
        if done >= _LEAST_ROUNDS and spent > _BUDGET_S:
            break
        for name, run in runs.items():
            seconds = clock(run)
            times[name].append(seconds)
            spent += seconds
    return times


def _duration(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return max(time.perf_counter() - begin, 1e-9)


def _quartiles(values: list[float]) -> tuple[float, float, float]:
    ordered = sorted(values)
    last = len(ordered) - 1
    return ordered[last // 4], ordered[last // 2], ordered[last - last // 4]
