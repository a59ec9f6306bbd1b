"""Machines that GraNDe's text allows, and the times of three layers of a graph on each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple

from onehop.graph import Graph
from onehop.machines.ndp import Host, Machine, NdpPlan, layer_works
from onehop.machines.ndp.outcome import LayerOutcome
from onehop.reproduce.grande.graphs import HIDDEN, PaperGraph
from onehop.reproduce.intervals import OUR_CHOICE, Setting, Unknown


class Case(NamedTuple):
    """One choice of everything that the paper leaves open and that its ratios depend on.

    Attributes:
        machine: Name of the machine, with 16 or 32 ranks.
        faw: tFAW of the preset (20 ns) or of a data sheet (13.3 ns).
        clock_mhz: Clock of the units. 300 MHz keep up with the ranks' reads if each read is used once; a tile
            uses a read up to eight times.
        host_order: "after", as drawn in Figure 5, or "adaptive", the fastest.
        retile: "rows", the order drawn in Figure 6 (b), or "ranks", lists one after another; in batches of
            one window, as in the text.
        llc_mib: The host's cache for features: 0, because the text says that features are rarely reused, or
            the cache of the paper's Xeon Gold 6138.
    """

    machine: str = "grande_16"
    faw: str = "preset"
    clock_mhz: float = 1200.0
    host_order: str = "adaptive"
    retile: str = "rows"
    llc_mib: float = 0.0

    def on(self, machine: Machine) -> Machine:
        """Return the machine with this choice's constants; it keeps the counts of graphs."""
        return machine.change(
            dram={"faw": self.faw}, module={"clock_mhz": self.clock_mhz}, host={"llc_mib": self.llc_mib}
        )

    def layers(self, machine: Machine, graph: Graph, widths: Sequence[int]) -> list[LayerOutcome]:
        """Return a model's layers under this choice, on its machine, which keeps the graph's counts."""
        plan = NdpPlan(retile=self.retile, host_order=self.host_order)
        return self.on(machine).layers(graph, widths, plan, record=0)

    @property
    def setting(self) -> Setting:
        """The differences from :data:`BASE`, in the words of :data:`UNKNOWNS`."""
        pairs = zip(self._fields, self, strict=True)
        return frozenset(_LABELS[name, value] for name, value in pairs if getattr(BASE, name) != value)


# The units keep up with one read of 64 bytes per burst: the clock that the text implies.
BASE = Case(clock_mhz=300.0)
# Cases change ranks and tFAW one at a time from the base; the other choices appear in all combinations.
CASES = tuple(
    dict.fromkeys(
        [
            BASE,
            *(
                BASE._replace(machine=machine, faw=faw)
                for machine, faw in product(("grande_16", "grande_32"), ("preset", "sheet"))
            ),
            *(
                Case(clock_mhz=clock, host_order=order, retile=retile, llc_mib=llc)
                for clock, order, retile, llc in product(
                    (300.0, 1200.0), ("adaptive", "after"), ("rows", "ranks"), (0.0, 27.5)
                )
            ),
        ]
    )
)
# A field of a case and its value -> the label of a setting.
_LABELS: Mapping[tuple[str, Any], str] = {
    ("machine", "grande_32"): "32 ranks",
    ("faw", "sheet"): "tFAW 13.3 ns",
    ("clock_mhz", 1200.0): "units at 1,200 MHz",
    ("host_order", "after"): "the host's order of Figure 5",
    ("retile", "ranks"): "lists merged rank by rank",
    ("llc_mib", 27.5): "the host's cache of 27.5 MiB",
}
# 20 cores with 64 operations per clock at 1.9 GHz.
PEAK_GFLOPS = 2432.0
PEAK = "products at the Xeon's whole peak"
_SET_UP = "sections 7 to 9 of the paper"
UNKNOWNS = (
    Unknown(
        "the units' clock",
        "300 MHz",
        (_LABELS["clock_mhz", 1200.0],),
        "16 lanes keep up with one read of 64 bytes per burst at 300 MHz; 1,200 MHz is our choice: four uses "
        "of each read",
        f"the units' clock ({_SET_UP})",
    ),
    Unknown(
        "ranks",
        "16",
        (_LABELS["machine", "grande_32"],),
        "the measured Xeon has 4 channels of 4 ranks; pods of 2 and of 4 channels (4.2) need 8 channels",
        f"the simulated memory's channels and ranks ({_SET_UP})",
    ),
    Unknown(
        "tFAW",
        "20 ns",
        (_LABELS["faw", "sheet"],),
        "Ramulator's preset of DDR5-4800, and a data sheet of Micron",
        f"the simulated memory's timings ({_SET_UP})",
    ),
    Unknown(
        "the host's order",
        "the fastest",
        (_LABELS["host_order", "after"],),
        "section 4.3 has the host work during aggregation; Figure 5 draws its work at a window's end",
        f"when the host reads outputs ({_SET_UP})",
    ),
    Unknown(
        "the merge of lists",
        "row by row",
        (_LABELS["retile", "ranks"],),
        "Figure 6 (b) draws rows in turn; the text of 5.2 can be read as rank by rank",
        "the order in which lists are merged (the authors' code)",
    ),
    Unknown(
        "the host's cache for features",
        "none",
        (_LABELS["llc_mib", 27.5],),
        "section 1 says that features are rarely reused; the Xeon Gold 6138 has 27.5 MiB",
        f"the host's model ({_SET_UP})",
    ),
    Unknown(
        "the host's rate of products",
        "70 % of the Xeon's peak",
        (PEAK,),
        f"{OUR_CHOICE}: what libraries reach on large products, and the most that is possible",
        "the time of a combination on the paper's Xeon",
    ),
)


def case_of(setting: Setting) -> Case:
    """Return the case of a setting; the rate of products is in no case."""
    changed = {name: value for (name, value), label in _LABELS.items() if label in setting}
    return BASE._replace(**changed)


@dataclass(frozen=True, slots=True)
class Run:
    """Three layers of one graph on one machine.

    Attributes:
        twin: The graph.
        case: What the paper leaves open.
        time_ns: Time with adaptive mapping, including re-tiling.
        host_ns: Time of the host alone.
        prior_ns: Time of the best prior machine with its steps one after another, as the paper draws it.
        nodes: Number of nodes in the graph.
    """

    twin: PaperGraph
    case: Case
    time_ns: float
    host_ns: float
    prior_ns: float
    nodes: int

    @property
    def over_host(self) -> float:
        """Speed-up over the host."""
        return self.host_ns / self.time_ns

    @property
    def over_prior(self) -> float:
        """Speed-up over the best prior machine."""
        return self.prior_ns / self.time_ns

    @property
    def serial(self) -> float:
        """Speed-up of a whole GCN whose layers aggregate and then combine, as drawn in Figure 8."""
        return self.end_to_end(Host().combine_gflops)

    def end_to_end(self, gflops: float) -> float:
        """Return :attr:`serial` for a host of another rate of products."""
        combined = combination_ns(self, gflops)
        return (self.host_ns + combined) / (self.time_ns + combined)

    @property
    def by_amdahl(self) -> float:
        """Speed-up of a whole GCN by Amdahl's law, with the share of aggregation from Figure 2."""
        share = self.twin.aggregation_percent / 100
        return 1 / (1 - share + share / self.over_host)

    def share(self, gflops: float) -> float:
        """Return the share of aggregation in a GCN's time on the host alone, in percent."""
        return 100 * self.host_ns / (self.host_ns + combination_ns(self, gflops))


# The host's rates of products, by the label of a setting; "" is the base.
RATES = {"": Host().combine_gflops, PEAK: PEAK_GFLOPS}
SUMMARIES: Mapping[str, Callable[[Sequence[float]], float]] = {"mean": fmean, "best": max}


def with_rate(setting: Setting, label: str) -> Setting:
    """Return a setting with a label of :data:`RATES`."""
    return setting | {label} if label else setting


def run(one: PaperGraph, graph: Graph, machines: Mapping[str, Machine], case: Case) -> Run:
    """Run a graph on one machine; ``machines`` has the machines by name, and keeps their counts.

    For a part of a graph, the host's cache is reduced in the same proportion.
    """
    reduced = case._replace(llc_mib=case.llc_mib * one.scale)
    layers = reduced.layers(machines[case.machine], graph, one.widths)
    return Run(
        one,
        case,
        sum(layer.time_ns for layer in layers),
        sum(layer.baseline.time_ns for layer in layers),
        sum(layer.best_prior.serial_ns for layer in layers),
        graph.num_dst,
    )


def machines() -> dict[str, Machine]:
    """Return the machines that cases name."""
    return {name: Machine(name) for name in dict.fromkeys(case.machine for case in CASES)}


def combination_ns(run: Run, gflops: float) -> float:
    """Return the host's time for the products and elementwise steps of a GCN of three layers."""
    works = layer_works("gcn", [*run.twin.widths, HIDDEN], replace(Host(), combine_gflops=gflops))
    return run.nodes * sum(work.ns for work in works)
