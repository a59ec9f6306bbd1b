"""Estimation of a layer's time from a sample of its windows, for graphs too large to be simulated whole."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onehop.errors import ArgumentError
from onehop.machines.ndp import bounds
from onehop.machines.ndp.baseline import host_alone
from onehop.machines.ndp.case import LayerCase, each_mapping
from onehop.machines.ndp.counts import RankWorkload
from onehop.machines.ndp.durations import Reals, WindowTimes, times_of
from onehop.machines.ndp.layer import control_ns, host_orders, retiling_of
from onehop.machines.ndp.mapping import Pods, candidates
from onehop.machines.ndp.prior import PRIOR_PODS, steps_of
from onehop.machines.ndp.sampled_windows import Stretch, Targets, segments, stretches
from onehop.machines.ndp.sampling import Estimate, Runs, Sample
from onehop.machines.ndp.traffic import groups
from onehop.machines.ndp.windows import run
from onehop.plans.ndp import NdpPlan

# A graph's targets in the order of a plan.
TargetsOf = Callable[[NdpPlan], Targets]
# Progress: the current step, and the share of the work that is done.
Tell = Callable[[str, float], None]
# Number of added edges from which the host's time per edge is computed: many more than fill a burst.
_MANY = 1_000_000


@dataclass(frozen=True, slots=True)
class SampledMapping:
    """A mapping's estimated figures.

    Attributes:
        host_order: The host's order with the shortest estimated time.
        time_ns: Time, including re-tiling if it was needed.
        bound_ns: Estimated lower bound of the time, in any order. It has no interval, because the largest of
            several estimated sums tends to be above the largest sum.
        orders_ns: Estimated time in every order that the plan allows.
        windows: Number of windows in the layer.
        simulated: Number of windows that were simulated.
    """

    host_order: str
    time_ns: Estimate
    bound_ns: float
    orders_ns: dict[str, float]
    windows: int
    simulated: int


@dataclass(frozen=True)
class SampledLayer:
    """A layer, estimated from a sample of its windows; figures have confidence intervals.

    Attributes:
        plan: The requested plan.
        width: Columns of the feature vectors.
        sample: The sample's size.
        mapping: The mapping with the shortest estimated time, or the plan's.
        candidates: Every mapping that was tried.
        impossible: Mappings whose slices do not fit into a buffer or that do not support the plan's host
            order, each with the reason.
        edges: Number of edges in the graph.
        read_reduction_percent: Feature vector reads that tiling saves, in percent of the edges.
        baseline_ns: Time of the host alone.
        prior_ns: By mapping, time of prior machines whose steps follow one another.
        speedup_over_baseline: Speedup of the chosen mapping over the host alone.
        speedup_over_prior: Speedup of the chosen mapping over the best prior machine.
    """

    plan: NdpPlan
    width: int
    sample: Sample
    mapping: str
    candidates: dict[str, SampledMapping]
    impossible: dict[str, str]
    edges: Estimate
    read_reduction_percent: Estimate
    baseline_ns: Estimate
    prior_ns: dict[str, Estimate]
    speedup_over_baseline: Estimate
    speedup_over_prior: Estimate

    @property
    def chosen(self) -> SampledMapping:
        """Figures of the chosen mapping."""
        return self.candidates[self.mapping]

    @property
    def time_ns(self) -> Estimate:
        """Time of the chosen mapping."""
        return self.chosen.time_ns

    @property
    def best_prior_ns(self) -> Estimate:
        """The time of the fastest prior machine."""
        return min(self.prior_ns.values(), key=lambda found: found.value)


def sampled_layer(
    case: LayerCase, ordered_of: TargetsOf, by_number: Targets, sample: Sample, tell: Tell
) -> SampledLayer:
    """Estimate a layer under every mapping that the plan allows, and take the fastest.

    Every mapping has its own windows and therefore its own sample.

    Args:
        case: The layer.
        ordered_of: Returns the targets in a plan's order, with nodes assigned by the mapping of the case's
            plan.
        by_number: Targets in node order, with nodes assigned in turn.
        sample: Size of the sample.
        tell: Called with the step and the share of the work that is done.

    Raises:
        ArgumentError: A buffer cannot hold one output slice, no mapping supports the plan's host order, the
            host has a cache, or the graph has no destinations.
        ConfigurationError: The machine's ranks cannot be divided as the plan's mapping requires.
    """
    config, plan, width = case.config, case.plan, case.width
    if config.host.llc_mib:
        raise ArgumentError(
            "host.llc_mib: what a cache holds depends on all windows before, and a sample has only some; "
            "set it to 0, or simulate the whole graph."
        )
    if by_number.num_dst == 0:
        raise ArgumentError("graph: it has no destinations, so there are no windows to draw from.")
    if plan.mapping == "adaptive":
        choices = candidates(config.topology)
    else:
        choices = [Pods.of(config.topology, plan.mapping)]
    own_ns = control_ns(case, by_number.num_src)

    def sampled(pods: Pods) -> _SampledRun:
        tell(f"sampling {pods.name}", choices.index(pods) / (len(choices) + 1))
        return _SampledRun(case, ordered_of(case.batched(pods)), pods, sample, own_ns)

    runs, impossible = each_mapping(choices, sampled)
    name = min(runs, key=lambda name: runs[name].mapping.time_ns.value)
    tell("sampling prior machines", len(choices) / (len(choices) + 1))
    untiled = replace(case.untiled, plan=replace(case.untiled.plan, host_order="after"))
    priors = {}
    for pods in (Pods.of(config.topology, each) for each in PRIOR_PODS):
        if pods.name in runs and runs[pods.name].targets is by_number:
            priors[pods.name] = runs[pods.name].prior
        elif pods.slice_bytes(width).max() <= config.module.buffer_bytes:
            priors[pods.name] = _SampledRun(untiled, by_number, pods, sample, 0.0).prior
    chosen = runs[name]
    best_prior = min(priors.values(), key=lambda found: found.value)
    edges = chosen.edges if by_number.num_edges is None else Estimate.exact(by_number.num_edges)
    # The host's time grows linearly with the edges.
    host_ns, more_ns = (
        host_alone(case, by_number.num_src, by_number.num_dst, round(edges.value) + more).time_ns
        for more in (0, _MANY)
    )
    slope = (more_ns - host_ns) / _MANY
    over_host = chosen.gain(host_ns, slope if by_number.num_edges is None else 0.0)
    return SampledLayer(
        plan,
        width,
        sample,
        name,
        {each: found.mapping for each, found in runs.items()},
        impossible,
        edges,
        chosen.read_reduction_percent,
        Estimate.within(host_ns, slope * edges.half),
        priors,
        over_host,
        # Prior machines have their own samples.
        best_prior.over(chosen.mapping.time_ns),
    )


class _SampledRun:
    """The simulated sample of one mapping."""

    def __init__(
        self, case: LayerCase, targets: Targets, pods: Pods, sample: Sample, fixed_ns: float
    ) -> None:
        config, memory, plan = case.config, case.memory, case.plan
        shape, self.targets = groups(config, pods, case.width, plan.tile), targets
        retiling = retiling_of(case, targets, pods) if isinstance(targets, RankWorkload) else None
        orders = host_orders(pods, plan)
        windows = -(-targets.num_dst // shape.window)
        runs = Runs.draw(windows, sample, (case.width, pods.size))
        wanted = stretches(runs, windows)
        if sum(stretch.last - stretch.first for stretch in wanted) == windows:
            # The runs and the windows that they need already are the whole layer.
            runs = Runs.every(windows)
            wanted = stretches(runs, windows)
        self._runs = runs
        listing = np.zeros(windows) if retiling is None else retiling.ahead_ns()
        self._listing = np.array([listing[a:b].sum() for a, b in zip(runs.first, runs.last, strict=True)])
        # The listing time is known for every window, and uneven: most rows are scanned for the last nodes.
        known_ns = 0.0 if (runs.weight == 1).all() else float(listing.sum() - runs.total(self._listing))
        channels = config.topology.channels
        spans: dict[str, list[Reals]] = {order: [] for order in orders}
        sums: dict[str, list[Reals]] = {}
        for stretch, segment in zip(wanted, segments(config, targets, shape, wanted), strict=True):
            traffic = case.traffic(segment, pods)
            listed = None if retiling is None else retiling.part(stretch.first, stretch.last)
            times = times_of(traffic, memory, listed)
            for order in orders:
                spans[order].append(_spans(times, channels, order, runs, stretch))
            untiled = replace(traffic, broadcast=False)
            for name, of_windows in (
                ("ranks", bounds.rank_work(times)),
                ("channels", bounds.channel_work(times, channels)),
                ("prior", steps_of(untiled, memory, untiled.output_bytes).serial),
                ("edges", traffic.counts.edges.sum(axis=1)),
                ("reads", traffic.counts.reads.sum(axis=1)),
            ):
                sums.setdefault(name, []).extend(_by_run(of_windows, runs, stretch))
        self._spans = {order: np.concatenate(each) for order, each in spans.items()}
        orders_ns = {order: known_ns + _total(runs, found, wanted) for order, found in self._spans.items()}
        self._order = min(orders_ns, key=lambda order: orders_ns[order])
        of_runs = {name: np.array(found, dtype=np.float64) for name, found in sums.items()}
        self._edges = of_runs["edges"]
        self.edges, self.prior = runs.estimate(self._edges), runs.estimate(of_runs["prior"])
        self.read_reduction_percent = _reduction(runs, self._edges, of_runs["reads"])
        self.mapping = SampledMapping(
            self._order,
            Estimate.within(fixed_ns + orders_ns[self._order], runs.error(self._took())),
            fixed_ns + bounds.busiest(runs.total(of_runs["ranks"]), runs.total(of_runs["channels"])).bound_ns,
            {order: fixed_ns + ns for order, ns in orders_ns.items()},
            windows,
            sum(stretch.last - stretch.first for stretch in wanted),
        )

    def gain(self, host_ns: float, ns_per_edge: float) -> Estimate:
        """Return the host's time divided by this machine's; the host's includes an estimated edge count."""
        time = self.mapping.time_ns.value
        share = host_ns / time
        residual = ns_per_edge * self._edges - share * self._took()
        return Estimate.within(share, self._runs.error(residual) / time)

    def _took(self) -> Reals:
        """Return [n]: time of each run, minus the part that is known exactly."""
        span = self._spans[self._order]
        took: Reals = span[:, 1] - span[:, 0] - self._listing
        return took


def _spans(times: WindowTimes, channels: int, order: str, runs: Runs, stretch: Stretch) -> Reals:
    """Return [n', 2]: when each of a stretch's runs begins and ends, relative to the begin of the stretch."""
    ends = np.concatenate([[0.0], run(times, channels, order).ends_ns])
    here = slice(*stretch.runs)
    return np.stack([ends[runs.first[here] - stretch.first], ends[runs.last[here] - stretch.first]], axis=1)


def _by_run(of_windows: Reals, runs: Runs, stretch: Stretch) -> list[Reals]:
    """Return sums over each of a stretch's runs, from values of its windows, [W', ...]."""
    first, last = (at[slice(*stretch.runs)] - stretch.first for at in (runs.first, runs.last))
    return [of_windows[begin:end].sum(axis=0) for begin, end in zip(first, last, strict=True)]


def _total(runs: Runs, spans: Reals, wanted: list[Stretch]) -> float:
    """Return the estimated time of all windows.

    Consecutive runs count as one, so that a sample of all windows gives exactly the time of all windows.
    """
    weight, total = runs.weight, 0.0
    for stretch in wanted:
        begin, end = stretch.runs
        for at in range(begin + 1, end + 1):
            meets = at < end and runs.first[at] == runs.last[at - 1] and weight[at] == weight[begin]
            if not meets:
                total += float(weight[begin] * (spans[at - 1, 1] - spans[begin, 0]))
                begin = at
    return total


def _reduction(runs: Runs, edges: Reals, reads: Reals) -> Estimate:
    """Return the percentage of the edges whose sources are not read again."""
    if not runs.total(edges):
        return Estimate.exact(0.0)
    saved = runs.ratio(edges - reads, edges)
    return saved.scaled(100.0)


def sampled_report(layers: Sequence[SampledLayer]) -> dict[str, Any]:
    """Report layers of one model together, under the keys of ``onehop simulate ndp --sample N --json``.

    An estimated figure has three keys: its name for the value, and its name with ``_low`` and ``_high`` for
    the ends of its interval.

    Examples:
        >>> import onehop, torch
        >>> from onehop.machines import ndp
        >>> graph = onehop.Graph.from_edge_index(torch.arange(80_000).reshape(2, -1) % 5000)
        >>> layers = ndp.Machine().sampled(graph, [64, 16], ndp.NdpPlan(retile="index"), ndp.Sample(runs=4))
        >>> report = ndp.sampled_report(layers)
        >>> report["time_ms_low"] <= report["time_ms"] <= report["time_ms_high"]
        True
    """
    time, host = total([one.time_ns for one in layers]), total([one.baseline_ns for one in layers])
    prior = total([one.best_prior_ns for one in layers])
    orders = [one.chosen.host_order for one in layers]
    first = layers[0]
    return {
        **_keys("time_ms", time.scaled(1e-6)),
        "bound_ms": sum(one.chosen.bound_ns for one in layers) / 1e6,
        **_keys("speedup_over_baseline", _gain([one.speedup_over_baseline for one in layers], host, time)),
        **_keys("speedup_over_prior", _gain([one.speedup_over_prior for one in layers], prior, time)),
        "host_order": orders[0] if len(set(orders)) == 1 else ", ".join(orders),
        "sample": {
            "runs": first.sample.runs,
            "seed": first.sample.seed,
            "confidence": first.sample.confidence,
        },
        "layers": [_layer(one) for one in layers],
    }


def total(parts: Sequence[Estimate]) -> Estimate:
    """Return the sum of figures; equal figures come from one sample, all others from independent samples."""
    half = sum((count * part.half) ** 2 for part, count in Counter(parts).items()) ** 0.5
    return Estimate.within(sum(part.value for part in parts), half)


def _gain(of_layers: list[Estimate], other: Estimate, own: Estimate) -> Estimate:
    """Return another machine's time divided by this one's; for several layers, as of independent samples."""
    return of_layers[0] if len(of_layers) == 1 else other.over(own)


def _layer(found: SampledLayer) -> dict[str, Any]:
    return {
        "width": found.width,
        "mapping": found.mapping,
        "host_order": found.chosen.host_order,
        **_keys("time_ms", found.time_ns.scaled(1e-6)),
        "bound_ms": found.chosen.bound_ns / 1e6,
        **_keys("baseline_ms", found.baseline_ns.scaled(1e-6)),
        **_keys("speedup_over_baseline", found.speedup_over_baseline),
        **_keys("speedup_over_prior", found.speedup_over_prior),
        **_keys("read_reduction_percent", found.read_reduction_percent),
        **_keys("edges", found.edges),
        "candidates": {name: _candidate(each) for name, each in found.candidates.items()},
        "impossible": dict(found.impossible),
        "prior": {name: _keys("serial_ms", each.scaled(1e-6)) for name, each in found.prior_ns.items()},
    }


def _candidate(found: SampledMapping) -> dict[str, Any]:
    return {
        "host_order": found.host_order,
        **_keys("time_ms", found.time_ns.scaled(1e-6)),
        "bound_ms": found.bound_ns / 1e6,
        "orders_ms": {order: ns / 1e6 for order, ns in found.orders_ns.items()},
        "windows": found.windows,
        "simulated": found.simulated,
    }


def _keys(name: str, found: Estimate) -> dict[str, float]:
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
