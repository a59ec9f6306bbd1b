"""Operators compared with their peers: with the same operands, in one process, in turns."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from onehop import config, sizes
from onehop.bench.cases import Case, Oracle, Workload
from onehop.bench.limits import (
    ROW_MULTIPLE,
    Bandwidth,
    aggregated_bytes,
    gather_call,
    gather_roof,
    gathered_bytes,
    percent_of_roof,
)
from onehop.bench.peers import Onehop, Peer
from onehop.bench.peers.base import beta_warnings_ignored
from onehop.bench.timing import Compared, Ratio, geometric_mean, interleave

ROOF = "gather roof"
OURS = Onehop.name
TORCH = "torch-"
# A peer whose intermediate results would fill more than one over this number of memory is left out.
MEMORY_SHARE = 4
_ROOF_ROUNDS = 3


@dataclass
class CaseResult(Compared):
    """Measurements of one case.

    Attributes:
        graph: The graph's name.
        operation: One of :data:`onehop.bench.cases.OPERATIONS`.
        width: Number of columns.
        roof: The gather over the same graph, columns and width, in both directions if there is a backward
            pass; None if the width is not a multiple of 16.
        percent_of_roof: onehop's bandwidth in percent of the roof's bandwidth.
        checked_columns: Number of columns that were compared with the reference.
    """

    graph: str
    operation: str
    width: int
    roof: Bandwidth | None = None
    percent_of_roof: float | None = None
    checked_columns: int = 0

    def ratio_to(self, prefix: str = "") -> Ratio | None:
        """Return the fastest peer's time over onehop's, among peers whose name begins with ``prefix``."""
        return self.ratio(self.best_peer(prefix), OURS)

    def best_peer(self, prefix: str = "") -> str | None:
        """Return the name of the fastest peer whose name begins with ``prefix``; None if there is none."""
        peers = [name for name in self.times if name != OURS and name.startswith(prefix)]
        return min(peers, key=lambda name: self.times[name].median_s, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return the result, ready for JSON."""
        best, torch_csr = self.ratio_to(), self.ratio_to(TORCH)
        return {
            "graph": self.graph,
            "operation": self.operation,
            "width": self.width,
            "best_peer": self.best_peer(),
            "best_peer_ratio": best and vars(best),
            "torch_ratio": torch_csr and vars(torch_csr),
            "roof": self.roof and self.roof.to_dict(),
            "percent_of_roof": self.percent_of_roof,
            "checked_columns": self.checked_columns,
            **super().to_dict(),
        }


@dataclass(frozen=True)
class Summary:
    """The summary of one operation over all its cases.

    Attributes:
        operation: The operation's name.
        cases: Number of cases that have both onehop and a peer.
        best_peer_geomean: Geometric mean of the fastest peer's time divided by onehop's time.
        torch_geomean: Geometric mean for the fastest of torch's own ways; None if none was run.
        worst: Smallest ratio of any peer's time to onehop's time.
        worst_case: The case with this ratio.
        least_percent_of_roof: Smallest share of the gather roof, in percent.
    """

    operation: str
    cases: int
    best_peer_geomean: float
    torch_geomean: float | None
    worst: float
    worst_case: str
    least_percent_of_roof: float | None


def measure_case(case: Case, peers: Sequence[Peer], rounds: int, budget_s: float) -> CaseResult:
    """Check onehop and every peer on a case, then time those whose results are right.

    Args:
        case: The case to run.
        peers: The peers to compare with.
        rounds: Number of measurements of each.
        budget_s: Time after which a slow peer gets no more than three measurements.
    """
    result = CaseResult(case.workload.name, case.operation, case.width)
    limit = config.physical_memory_bytes() // MEMORY_SHARE
    oracle = Oracle(case)
    result.checked_columns = len(oracle.columns)
    calls: dict[str, Callable[[], object]] = {}
    for peer in (Onehop(), *peers):
        reason = _refusal(peer, case, limit)
        if reason is not None:
            result.skipped[peer.name] = reason
            continue
        with beta_warnings_ignored():
            call: Callable[[], Tensor] = peer.build(case)
            wrong = oracle.judge(call())
        if wrong is None:
            calls[peer.name] = call
        else:
            result.wrong[peer.name] = wrong
    roof_bytes = None
    if OURS in calls and case.width % ROW_MULTIPLE == 0:
        calls[ROOF], roof_bytes = _roof(case)
    result.times = interleave(calls, rounds, budget_s)
    if roof_bytes is not None:
        result.roof = Bandwidth(roof_bytes, result.times.pop(ROOF))
        result.percent_of_roof = _percent(case, result.times[OURS].median_s, result.roof)
    return result


def measure(
    workload: Workload, cases: Iterable[tuple[str, int]], peers: Sequence[Peer], rounds: int, budget_s: float
) -> Iterator[CaseResult]:
    """Measure operations, each at a width, on one graph; yield each result."""
    for operation, width in cases:
        yield measure_case(Case(workload, operation, width), peers, rounds, budget_s)
    workload.cache.clear()


def summarise(results: Sequence[CaseResult]) -> list[Summary]:
    """Return a summary of each operation that has a case with a peer, in the order of the results."""
    summaries = []
    for operation in dict.fromkeys(result.operation for result in results):
        cases = [r for r in results if r.operation == operation]
        best = [ratio.median for r in cases if (ratio := r.ratio_to()) is not None]
        torch_csr = [ratio.median for r in cases if (ratio := r.ratio_to(TORCH)) is not None]
        every = [
            (times.median_s / r.times[OURS].median_s, f"{r.graph} {r.width}, {name}")
            for r in cases
            if OURS in r.times
            for name, times in r.times.items()
            if name != OURS
        ]
        if not best:
            continue
        worst, where = min(every)
        percents = [r.percent_of_roof for r in cases if r.percent_of_roof is not None]
        summaries.append(
            Summary(
                operation,
                len(best),
                geometric_mean(best),
                geometric_mean(torch_csr) if torch_csr else None,
                worst,
                where,
                min(percents, default=None),
            )
        )
    return summaries


def _refusal(peer: Peer, case: Case, limit: int) -> str | None:
    reason = peer.available() or peer.refuse(case)
    if reason is None and peer.extra_bytes(case) > limit:
        needed = sizes.readable(peer.extra_bytes(case))
        return f"would need {needed} of intermediate results (limit {sizes.readable(limit)})"
    return reason


def _roof(case: Case) -> tuple[Callable[[], object], int]:
    """Return a gather of the same rows in the same order, with the transposed graph for a backward pass."""
    graph = case.workload.graph
    once = gathered_bytes(graph.num_edges, case.width)
    forward = gather_call(case.x, graph.col, _prefetch(case))
    if case.grad is None:
        return forward, once
    backward = gather_call(case.grad, graph.transposed_csr.col, _prefetch(case))
    return lambda: (forward(), backward()), 2 * once


def _prefetch(case: Case) -> int:
    key = f"prefetch {case.width}"
    distance: int = case.workload.once(
        key, lambda: gather_roof(case.x, case.workload.graph.col, _ROOF_ROUNDS).prefetch
    )
    return distance


def _percent(case: Case, seconds: float, roof: Bandwidth) -> float:
    graph = case.workload.graph
    if case.grad is None:
        return percent_of_roof(graph.num_edges, graph.num_dst, case.width, seconds, roof)
    moved = aggregated_bytes(graph.num_edges, graph.num_dst, case.width) + aggregated_bytes(
        graph.num_edges, graph.num_src, case.width
    )
    return 100 * moved / seconds / 1e9 / roof.gbps
