"""Serving a model request by request on the CPU: latencies at a rate, and requests per second.

PyG and onehop take turns in the same worker processes and answer the same requests. Their answers are
compared first. Requests per second are measured in a closed loop: a worker begins the next request as soon as
it has answered the last. Latencies at a rate are measured in an open loop: answers do not delay the arrival
of requests, and requests wait if all workers are busy.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from onehop.bench.arrivals import Latencies, answered_a_second, latencies, poisson, requests_of_turn
from onehop.bench.servers import Case, Servers
from onehop.bench.timing import Ratio, Times, in_turns
from onehop.errors import ArgumentError

# Name of a way -> whether it is patched.
WAYS = {"pyg": False, "onehop": True}
SIZES = ((40, 160), (400, 1_600), (4_000, 16_000))
WIDTH = 64
# Relative to the largest entry, because float32 sums differ in their last digits with their order.
TOLERANCE = 1e-4
# Default rate as a share of what PyG can answer.
_LOAD = 0.5


@dataclass(frozen=True)
class Load:
    """The requests of a measurement, and its turns.

    Attributes:
        rate: Requests that arrive per second; None means half of what PyG can answer.
        seconds: Approximate duration of a turn.
        rounds: Number of turns for each way.
        seed: Seed of the arrivals.
    """

    rate: float | None
    seconds: float
    rounds: int
    seed: int

    def __post_init__(self) -> None:
        """Refuse values that are not positive and finite."""
        for name, value, unit in (("rate", self.rate, "requests a second"), ("seconds", self.seconds, "s")):
            if value is not None and not 0 < value < math.inf:
                raise ArgumentError(f"{name}: expected a number above 0 ({unit}), got {value:g}.")


@dataclass
class ServingResult:
    """Measurements of one model on graphs of one size.

    Attributes:
        case: The model and the size.
        difference: The largest difference of onehop's answers from PyG's, relative to the largest entry.
        rate: Requests that arrived per second; None if nothing was timed.
        requests: Number of requests in a turn.
        busy_s: Seconds per request of all busy workers together (the inverse of requests per second), by way.
        p50_s: Time within which half of the requests at the rate were answered, by way.
        p99_s: Time within which 99 % of the requests at the rate were answered, by way.
    """

    case: Case
    difference: float
    rate: float | None = None
    requests: int = 0
    busy_s: dict[str, Times] = field(default_factory=dict)
    p50_s: dict[str, Times] = field(default_factory=dict)
    p99_s: dict[str, Times] = field(default_factory=dict)

    @property
    def is_wrong(self) -> bool:
        """Return whether the answers differ."""
        return not self.difference <= TOLERANCE  # also true for NaN

    @property
    def where(self) -> str:
        """The model and the size in words."""
        return f"{self.case.model}, {self.case.nodes:,} nodes, {self.case.edges:,} edges"

    def to_dict(self) -> dict[str, Any]:
        """Return the result, ready for JSON."""
        return {
            "model": self.case.model,
            "nodes": self.case.nodes,
            "edges": self.case.edges,
            "difference": self.difference,
            "wrong": self.is_wrong,
            "rate": self.rate,
            "requests": self.requests,
            "requests_per_second": {way: 1 / times.median_s for way, times in self.busy_s.items()},
            **{
                name: {way: times.to_dict() for way, times in measured.items()}
                for name, measured in self._measured().items()
            },
            "ratio": {
                name: vars(ratio)
                for name, measured in self._measured().items()
                if (ratio := gain(measured)) is not None
            },
        }

    def _measured(self) -> dict[str, dict[str, Times]]:
        return {"busy": self.busy_s, "p50": self.p50_s, "p99": self.p99_s}


def gain(times: dict[str, Times]) -> Ratio | None:
    """Return PyG's time divided by onehop's; None if they were not timed."""
    return Ratio.of(times["pyg"], times["onehop"]) if times else None


def measure(servers: Servers, cases: Iterable[Case], load: Load) -> Iterator[ServingResult]:
    """Measure models, each on graphs of one size; yield each result."""
    for case in cases:
        result = ServingResult(case, servers.prepare(case))
        if not result.is_wrong:
            _time(servers, result, load)
        yield result


def _time(servers: Servers, result: ServingResult, load: Load) -> None:
    busy = {way: partial(_busy, servers, patched, load.seconds) for way, patched in WAYS.items()}
    result.busy_s = in_turns(busy, load.rounds)
    answered = 1 / result.busy_s["pyg"].median_s
    result.rate = _LOAD * answered if load.rate is None else load.rate
    result.requests = requests_of_turn(result.rate, answered, load.seconds)
    turns: dict[str, list[Latencies]] = {way: [] for way in WAYS}
    for number in range(load.rounds):
        arrivals = poisson(result.rate, result.requests, load.seed + number)
        for way, patched in WAYS.items():
            turns[way].append(latencies(*servers.serve(patched, arrivals)))
    result.p50_s = {way: Times(tuple(each.p50_s for each in rounds)) for way, rounds in turns.items()}
    result.p99_s = {way: Times(tuple(each.p99_s for each in rounds)) for way, rounds in turns.items()}


def _busy(servers: Servers, patched: bool, seconds: float) -> float:
    """Return the seconds per request of all workers together."""
    return 1 / answered_a_second(*servers.busy(patched, seconds))
