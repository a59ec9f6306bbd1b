"""A layer on the machine: all candidates' times, the chosen mapping, and the baselines."""

from collections.abc import Callable
from dataclasses import dataclass, field

from onehop.machines.ndp.baseline import BaselineRun, baseline
from onehop.machines.ndp.case import LayerCase, each_mapping
from onehop.machines.ndp.counts import RankWorkload
from onehop.machines.ndp.layer import LayerRun, simulate
from onehop.machines.ndp.mapping import Pods, candidates
from onehop.machines.ndp.prior import PriorRun, prior
from onehop.plans.ndp import NdpPlan

# A graph in a plan's order, with nodes assigned by a mapping; None means in turn.
WorkloadOf = Callable[[NdpPlan, Pods | None], RankWorkload]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A mapping that was tried, with its times.

    Attributes:
        phases_ns: Time by phase, as in :meth:`LayerRun.phases_ns`, including re-tiling if it was needed.
        host_order: The host's order that was chosen.
        orders_ns: Total time in every host order that the plan allows.
        bound_ns: Lower bound of the time, in any host order.
        hidden_share: Share of the shorter path's work that the longer one hides.
    """

    phases_ns: dict[str, float]
    host_order: str
    orders_ns: dict[str, float]
    bound_ns: float
    hidden_share: float

    @classmethod
    def of(cls, run: LayerRun) -> "Candidate":
        """Return the figures of a run."""
        return cls(run.phases_ns(), run.host_order, run.orders_ns(), run.bound_ns, run.hidden_share)


@dataclass(frozen=True)
class LayerOutcome:
    """The outcome of one layer: the chosen run, the other candidates and the baselines.

    Attributes:
        plan: The requested plan.
        width: Columns of the feature vectors.
        run: The run under the chosen mapping.
        candidates: Every mapping that was tried.
        impossible: Mappings whose slices do not fit into a buffer or that do not support the plan's host
            order, each with the reason.
        baseline: The run of the host alone.
        priors: Runs of prior near-data machines.
        index_order_ns: The chosen mapping's time with targets in node order; None if they already are in node
            order.
        tilings_ns: If the plan left the tiling open, the layer's time under each tiling that was tried,
            without re-tiling.
    """

    plan: NdpPlan
    width: int
    run: LayerRun
    candidates: dict[str, Candidate]
    impossible: dict[str, str]
    baseline: BaselineRun
    priors: list[PriorRun]
    index_order_ns: float | None
    tilings_ns: dict[str, float] = field(default_factory=dict)

    @property
    def time_ns(self) -> float:
        """Time of the chosen mapping."""
        return self.run.time_ns

    def candidates_ms(self) -> dict[str, float]:
        """Time of every mapping in ms."""
        return {name: sum(one.phases_ns.values()) / 1e6 for name, one in self.candidates.items()}

    @property
    def best_prior(self) -> PriorRun:
        """The prior machine with the shortest serial time, as in the paper's comparison."""
        return min(self.priors, key=lambda found: found.serial_ns)

    @property
    def best_overlapped_prior_ns(self) -> float:
        """The shortest time of a prior machine whose steps overlap."""
        return min(found.overlapped_ns for found in self.priors)


def gain(other_ns: float, own_ns: float) -> float:
    """Return another machine's time divided by this one's; 1 if this one takes no time (no nodes)."""
    return other_ns / own_ns if own_ns else 1.0


def outcome(case: LayerCase, workload_of: WorkloadOf) -> LayerOutcome:
    """Run a layer under every mapping and take the plan's mapping, or the fastest.

    Raises:
        ArgumentError: A buffer cannot hold one output slice, or no mapping supports the plan's host order.
        ConfigurationError: The machine's ranks cannot be divided as the plan's mapping requires.
    """
    config, plan, untiled = case.config, case.plan, case.untiled
    choices, named = candidates(config.topology), None
    if plan.mapping != "adaptive":
        named = Pods.of(config.topology, plan.mapping)
        choices = [named, *(other for other in choices if named.own or other.size != named.size)]
    runs, impossible = each_mapping(
        choices, lambda pods: simulate(case, workload_of(case.batched(pods), pods), pods), named
    )
    chosen = min(runs.values(), key=lambda run: run.time_ns) if named is None else runs[named.name]
    by_number, by_index = workload_of(untiled.plan, None), None
    if plan.reorders:
        pods = chosen.traffic.pods
        by_index = simulate(untiled, workload_of(untiled.plan, pods), pods)
    return LayerOutcome(
        plan,
        case.width,
        chosen,
        {name: Candidate.of(run) for name, run in runs.items()},
        impossible,
        baseline(case, by_number),
        prior(case, by_number),
        None if by_index is None else by_index.time_ns,
    )
