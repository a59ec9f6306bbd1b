"""Measurement of a class of products: every library in turn, against torch's own."""

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from onehop.kernels.products import FORWARD, TO_INPUT, TORCH, libraries
from onehop.tuner.products.classes import ShapeClass

# Rounds of a trial, and seconds after which it has enough of them.
_LEAST_ROUNDS, _MOST_ROUNDS, _BUDGET_S = 5, 11, 0.04
# A library must be so many times as fast as torch's own in three quarters of the rounds.
_LEAST_GAIN = 1.05
# Trials before a class that is neither won nor lost is left to torch's own.
_TRIALS = 2
# Of the largest entry: far above rounding, far below a wrong result.
_TOLERANCE = 1e-4
_PERIOD = 13

Clock = Callable[[Callable[[], object]], float]


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
    runs = _runs(case)
    outcome = Outcome(TORCH, True, {})
    for _ in range(_TRIALS):
        outcome = judged(_times(runs, clock or _seconds))
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
        made = run(left, right, None)
        if made.shape == expected.shape and float((made - expected).abs().max()) <= bound:
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


def _seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return max(time.perf_counter() - begin, 1e-9)


def _quartiles(values: list[float]) -> tuple[float, float, float]:
    ordered = sorted(values)
    last = len(ordered) - 1
    return ordered[last // 4], ordered[last // 2], ordered[last - last // 4]
