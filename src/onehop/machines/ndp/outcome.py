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

# A graph in a plan's order, with nodes as a mapping assigns them; None means in turn.
WorkloadOf = Callable[[NdpPlan, Pods | None], RankWorkload]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A mapping that was tried.

    Attributes:
        phases_ns: Its time by phase, as in :meth:`LayerRun.phases_ns`, including re-tiling where it was
            needed.
        host_order: The host's order.
        orders_ns: Its time in every order that the plan allows.
        bound_ns: Lower bound of its time, in any order.
        hidden_share: Share of the shorter path's work that the longer one hides.
    """

    phases_ns: dict[str, float]
    host_order: str
    orders_ns: dict[str, float]
    bound_ns: float
    hidden_share: float

    @classmethod
    def of(cls, run: LayerRun) -> "Candidate":
        """The figures of a run."""
        return cls(run.phases_ns(), run.host_order, run.orders_ns(), run.bound_ns, run.hidden_share)


@dataclass(frozen=True)
class LayerOutcome:
    """One layer.

    Attributes:
        plan: The requested plan.
        width: Columns of the feature vectors.
        run: The run under the chosen mapping.
        candidates: Every mapping that was tried.
        impossible: Mappings whose slices do not fit into a buffer or that cannot have the plan's order, with
            the reason.
        baseline: The host alone.
        priors: Prior near-data machines.
        index_order_ns: The chosen mapping's time with targets in order of their numbers; None where they are.
        tilings_ns: Where the plan left the tiling open, its time under each that was tried, without
            re-tiling.
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
        """Every mapping's time."""
        return {name: sum(one.phases_ns.values()) / 1e6 for name, one in self.candidates.items()}

    @property
    def best_prior(self) -> PriorRun:
        """The prior machine with the shortest serial windows: the paper's comparison."""
        return min(self.priors, key=lambda found: found.serial_ns)

    @property
    def best_overlapped_prior_ns(self) -> float:
        """The shortest time of a prior machine whose steps overlap."""
        return min(found.overlapped_ns for found in self.priors)


def gain(other_ns: float, own_ns: float) -> float:
    """Time of another machine over this one's; 1 where this one takes none, as for a graph of no nodes."""
    return other_ns / own_ns if own_ns else 1.0


def outcome(case: LayerCase, workload_of: WorkloadOf) -> LayerOutcome:
    """Runs a layer under every mapping and takes the plan's, or the fastest.

    Raises:
        ArgumentError: A buffer cannot hold one output slice, or no mapping can have the plan's order.
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
