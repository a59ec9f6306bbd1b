"""Chooses the library for a dense product, once for each class of shapes.

Products of one class always run in the same library. The choice is made before the class is first used: every
library is measured in turn against torch's own. It is kept on disk with the plans of this machine
(:mod:`onehop.plans.store`) and with the version of torch, which ships the libraries. A choice depends only on
shapes and threads, so a repeated forward pass, as in activation checkpointing, uses the same library.
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

# Maximum multiplications of a measured product, and maximum numbers in its operands and result: two or three
# milliseconds, and 32 MB. A product with more rows and the same columns only repeats this work.
_MOST_WORK, _MOST_NUMBERS = 1 << 28, 1 << 23
_LEAST_ROWS = 64
_LARGEST = 1 << 40
# Rounds of a trial, at least and at most, and seconds after which a trial ends.
_LEAST_ROUNDS, _MOST_ROUNDS, _BUDGET_S = 5, 11, 0.04
# Factor by which a library must be faster than torch's own in three quarters of the rounds.
_LEAST_GAIN = 1.05
# Number of trials before an undecided class uses torch's own library.
_TRIALS = 2
# Relative to the largest entry: far above rounding errors, far below a wrong result.
_TOLERANCE = 1e-4
_PERIOD = 13
_MOST_GAIN = 1e6

Clock = Callable[[Callable[[], object]], float]

_lock = threading.RLock()
# Without this, a child that is forked while another thread holds the lock would wait forever.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class ShapeClass(NamedTuple):
    """Shapes that share one measurement, made with the smallest of them.

    Attributes:
        kind: The product, one of :data:`onehop.kernels.products.KINDS`.
        rows: Rows of x: a power of two. The class with the most rows includes all larger shapes.
        inputs: Columns of x, rounded down to three leading bits.
        outputs: Rows of the weight, rounded in the same way.
        threads: Number of threads.
        dtype: Dtype of all operands.
    """

    kind: str
    rows: int
    inputs: int
    outputs: int
    threads: int
    dtype: str = "float32"

    @classmethod
    def of(cls, kind: str, rows: int, inputs: int, outputs: int, threads: int) -> "ShapeClass":
        """Return the class of a product of x, [rows, inputs], and a weight, [outputs, inputs]."""
        inputs, outputs = _leading(inputs, 3), _leading(outputs, 3)
        most = min(_MOST_WORK // (inputs * outputs), _MOST_NUMBERS // (inputs + outputs))
        return cls(kind, _leading(min(rows, max(most, _LEAST_ROWS)), 1), inputs, outputs, threads)

    @classmethod
    def from_dict(cls, values: Any) -> "ShapeClass":
        """Return the class from the result of ``_asdict()``.

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
        """Return the product and its sizes as text."""
        plural = "" if self.threads == 1 else "s"
        return (
            f"{self.kind}, {self.inputs} to {self.outputs} columns, from {self.rows} rows on, "
            f"{self.threads} thread{plural}"
        )


def _leading(number: int, bits: int) -> int:
    """Return the number with all bits except its leading bits set to zero."""
    shift = max(number.bit_length() - bits, 0)
    return number >> shift << shift


@dataclass(frozen=True, slots=True)
class Chosen:
    """The library of a class, and the measurements that led to the choice.

    Attributes:
        case: The class.
        library: The library.
        gains: For each other library, the lower quartile, the median and the upper quartile of torch's time
            divided by its time.
    """

    case: ShapeClass
    library: str
    gains: dict[str, tuple[float, float, float]]

    def to_dict(self) -> dict[str, Any]:
        """Return the choice, ready for JSON."""
        return {"case": self.case._asdict(), "library": self.library, "gains": self.gains}

    @classmethod
    def from_dict(cls, values: Any) -> "Chosen":
        """Return the choice that :meth:`to_dict` wrote.

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
    """Return the library's function for a float32 product with torch's number of threads.

    A class that was never measured is measured now, which takes some tens of milliseconds.

    Args:
        kind: One of :data:`onehop.kernels.products.KINDS`.
        rows: Rows of x; this and the other sizes are at least 1.
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
    """Return all choices that this process knows, including the choices on disk."""
    with _lock:
        _load()
        return sorted(_chosen.values(), key=lambda chosen: chosen.case)


def forget() -> None:
    """Forget all choices in this process and on disk; classes are measured again at their next use."""
    global _loaded
    with _lock:
        _chosen.clear()
        _loaded = True
        store_path().unlink(missing_ok=True)


def store_path() -> Path:
    """Return the file of choices."""
    return store.path(_machine())


def forced(name: str) -> AbstractContextManager[str | None]:
    """Run products inside the block in one library, or torch's own if that lacks the product; for tests."""
    return _forced.set(name)


def _choose(case: ShapeClass) -> Chosen:
    with _lock:
        _load()
        choice = _chosen.get(case)
        if choice is None:
            outcome = measured(case)
            choice = _chosen[case] = Chosen(case, outcome.library, outcome.gains)
            # A quieter process may decide what noise has left open, so undecided outcomes are not saved.
            if outcome.decided and config.tuned():
                store.save([choice.to_dict()], _machine())
    return choice


def _load() -> None:
    """Read the file, once."""
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
    """Return the properties that must match for a choice to be valid."""
    return {
        **store.machine(),
        "products": {"torch": torch.__version__, "kernels": native.extension.selected_isa()},
    }


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a trial.

    Attributes:
        library: The library to use.
        decided: Whether another trial would most likely give the same result; if not, other programs
            disturbed it.
        gains: For each other library, the lower quartile, the median and the upper quartile of torch's time
            divided by its time, round by round.
    """

    library: str
    decided: bool
    gains: dict[str, tuple[float, float, float]]


def measured(case: ShapeClass, clock: Clock | None = None) -> Outcome:
    """Find the fastest library for a class, by trials of some tens of milliseconds.

    Args:
        case: The class.
        clock: Returns the seconds that a call takes; None means that the system's clock is used.
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
    """Return the outcome of a trial's rounds.

    Args:
        times: Seconds by library, one number per round, including torch's own library.
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
    """Return the class's product in every library that computes it right, on operands of small integers."""
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
    # No random numbers are used: the user's generator is not advanced, and results do not depend on chance.
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
