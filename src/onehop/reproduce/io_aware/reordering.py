"""Reordering against the mapping of work, counted: the third finding of the IO-aware kernels' paper.

The paper timed both mappings in a graph's own order and after METIS, and drew the difference of their
speed-ups. Its sign for each graph could be read, its values could not. Here, the sectors that the GPU's L2
cache fetches (:mod:`onehop.machines.gpu.gather`) are counted, on generated graphs of the same kinds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from onehop import datasets
from onehop.graph import Graph
from onehop.machines import gpu
from onehop.machines.gpu import MAPPINGS, ORDERS, Gpu, Kernel
from onehop.reproduce.tables import Chart, Row, number, plain, row
from onehop.reproduce.twins import Progress, Twin, loaded

# Two of the paper's five widths.
_WIDTHS: tuple[int, ...] = (128, 512)
_ITEM_BYTES = 4
# The order for whose gains there are rows. The paper's METIS needs pymetis.
_CHOSEN = "community"
_NAMES = {"random": "random", "degree": "degree", "rcm": "RCM", _CHOSEN: "communities"}


@dataclass(frozen=True)
class Kind(Twin):
    """A generated graph of the same kind as a graph that the paper timed.

    Attributes:
        paper: The paper's graph.
        signs: Signs, in the paper, of the difference of gains: neighbour-parallel minus feature-parallel.
        said: These signs in words.
        whole: The scale at which the graph is as large as the paper's; a part runs on an equal part of the
            GPU.
    """

    paper: str
    signs: tuple[int, ...]
    said: str
    whole: float = field(default=1.0, kw_only=True)


@dataclass(frozen=True)
class Hubs(Kind):
    """A Chung-Lu graph: it has hubs, and common neighbours only by chance."""

    def graph(self, progress: Progress) -> Graph:
        """Return a graph of web-traffic's size; the exponent gives its degree skewness, 738."""
        nodes, pairs = round(2_890_331 * self.scale), round(12_895_369 / 2 * self.scale)
        edge_index = datasets.chung_lu(nodes, 2 * pairs, exponent=0.83, progress=progress)
        return Graph.from_edge_index(edge_index, num_nodes=nodes)

    @property
    def label(self) -> str:
        """The graph's name in rows and pictures."""
        return f"{self.name} x {self.scale:g}"


_MORE, _FLAT, _EITHER = (1,), (0, -1), (1, 0, -1)
_NEAR_ZERO = "about zero or a little negative"
KINDS: tuple[Kind, ...] = (
    Kind("products", 0.004, "ogbn-products", _MORE, "positive throughout", scale=0.0625),
    Kind("mag", 0.015, "pokec-regions", _MORE, "positive, moderate", scale=0.25),
    Kind("arxiv-communities", 0.03, "artnet-exp", _EITHER, "of either sign", scale=0.3, whole=0.3),
    Kind("road", 0.057, "city-roads-L", _FLAT, _NEAR_ZERO, scale=0.57, whole=0.57),
    Hubs("Chung-Lu graph", 0.01, "web-traffic", _FLAT, _NEAR_ZERO, scale=0.0625),
)
# The axis of the paper's picture runs from -1.05 to 1.4; values below this look like zero there.
_ZERO = 0.05


@dataclass(frozen=True, slots=True)
class Case:
    """One choice of everything that the paper does not state, or states in two ways.

    Attributes:
        load_bytes: Bytes that a lane loads at once; the paper gives both 16 and 4.
        occupancy: Share of the warps that are resident.
        cache: Share of the L2 cache that holds different data: half if both of its partitions hold a copy
            (NVIDIA, A100 Tensor Core GPU Architecture).
        passes: How often a warp reads its neighbours: 2 in the paper's picture, once in a sum.
    """

    load_bytes: int = 16
    occupancy: float = 1.0
    cache: float = 1.0
    passes: int = 1


BASE = Case()
_CASES: tuple[Case, ...] = (BASE, Case(load_bytes=4), Case(passes=2), Case(occupancy=0.25), Case(cache=0.5))

# Sectors fetched, by case, mapping and order.
Fetched = dict[tuple[Case, str, str], int]


def fetched(graph: Graph, width: int, machine: Gpu, cases: Sequence[Case], progress: Progress) -> Fetched:
    """Count the sectors that both mappings fetch for columns of float32, in every order."""
    counts: Fetched = {}
    for done, order in enumerate(ORDERS):
        progress(f"width {width}, order {order}", done / len(ORDERS))
        ordered = gpu.in_order(graph, order)
        for case in cases:
            # The load width changes nothing for neighbour-parallel.
            same = replace(case, load_bytes=BASE.load_bytes)
            part = replace(machine, l2_bytes=round(machine.l2_bytes * case.cache))
            for mapping in MAPPINGS:
                if mapping == "neighbour" and (same, mapping, order) in counts:
                    counts[case, mapping, order] = counts[same, mapping, order]
                    continue
                kernel = Kernel(mapping, case.load_bytes, occupancy=case.occupancy, passes=case.passes)
                counts[case, mapping, order] = gpu.gather(ordered, width * _ITEM_BYTES, kernel, part).fetched
    return counts


def gain(counts: Fetched, case: Case, mapping: str, order: str) -> float:
    """Return the sectors in the graph's own order divided by those in another; 1 without edges."""
    counted = counts[case, mapping, order]
    return counts[case, mapping, "own"] / counted if counted else 1.0


def apart(counts: Fetched, case: Case, order: str) -> float:
    """Return the gain of neighbour-parallel minus the gain of feature-parallel, to three digits."""
    mine, other = (gain(counts, case, mapping, order) for mapping in MAPPINGS)
    return round(mine - other, 3) + 0.0  # no negative zero


def sign(difference: float) -> int:
    """Return 1, 0 or -1; 0 if the paper's picture would show no difference."""
    return 0 if abs(difference) < _ZERO else 1 if difference > 0 else -1


def measured(quick: bool, progress: Progress) -> tuple[list[Row], Chart]:
    """Return a row for each kind of graph and width, a row for the finding, and the picture of all orders.

    A quick run uses small parts of the graphs, the last width, and one case.
    """
    machine = gpu.load("a100_80gb")
    cases, widths = (_CASES[:1], _WIDTHS[-1:]) if quick else (_CASES, _WIDTHS)
    by_kind: dict[tuple[Kind, int], Fetched] = {}
    for one, graph, report in loaded([each.of_run(quick) for each in KINDS], progress):
        for width in widths:
            by_kind[one, width] = fetched(graph, width, machine.part(one.scale / one.whole), cases, report)
    rows = [of_graph(one, width, cases, counts) for (one, width), counts in by_kind.items()]
    widest = {one: counts for (one, width), counts in by_kind.items() if width == widths[-1]}
    return [*rows, finding(list(by_kind.values()), cases)], _chart(widths[-1], widest)


def of_graph(one: Kind, width: int, cases: Sequence[Case], counts: Fetched) -> Row:
    """Return the difference of both gains in the chosen order; the note has both gains in all orders."""
    gains = ", ".join(
        f"{name} {' / '.join(number(gain(counts, BASE, mapping, order)) for mapping in MAPPINGS)}"
        for order, name in _NAMES.items()
    )
    differences = [apart(counts, case, _CHOSEN) for case in cases]
    return row(
        f"reordering, {one.label}, F = {width}: neighbour-parallel's gain less feature-parallel's, "
        f"{_NAMES[_CHOSEN]}",
        "x",
        "Sectors fetched in the own order over those in another, both mappings: "
        f"{gains}. In the paper's times on {one.paper} it is {one.said}: {verdict(one, differences)}.",
        differences,
    )


def verdict(one: Kind, differences: Sequence[float]) -> str:
    """Return "agrees" if every sign is one of the paper's, "open" if only some are, else "differs".

    A quick run omits some assumptions, so it never returns "differs".
    """
    matches = [sign(each) in one.signs for each in differences]
    return "agrees" if all(matches) else "open" if any(matches) else _otherwise(differences)


def _otherwise(of_cases: Sequence[object]) -> str:
    return "differs" if len(of_cases) == len(_CASES) else "open"


def finding(tallies: Sequence[Fetched], cases: Sequence[Case]) -> Row:
    """Count the graphs, widths, orders and cases in which either mapping gains more."""
    signs = {
        order: [sign(apart(counts, case, order)) for counts in tallies for case in cases] for order in _NAMES
    }
    more, less = (sum(each.count(which) for each in signs.values()) for which in (1, -1))
    by_order = ", ".join(
        f"{_NAMES[order]} {each.count(1)} and {each.count(-1)}" for order, each in signs.items()
    )
    return row(
        f"reordering: times of {sum(map(len, signs.values()))} (graph, width, order, assumption) that "
        "neighbour-parallel gains more",
        "times",
        f"Feature-parallel gains more {less} times; by order: {by_order}; else gains are less than {_ZERO} "
        "apart. The paper's third finding, that neighbour-parallel gains more consistently, is of clock "
        f"times: {'agrees' if more > less else _otherwise(cases)}. Where a sign differs, these follow "
        "something else than sectors from memory: loads that a first cache does not join, or latency.",
        more,
    )


def _chart(width: int, by_kind: Mapping[Kind, Fetched]) -> Chart:
    return Chart(
        name="reordering",
        title=f"Sums, F = {width}: sectors fetched in the own order over those in another, by mapping",
        machine="counted: the second cache of an A100, 40 MiB; parts of graphs on as large parts of it",
        unit="ratio, x",
        groups=tuple(one.label for one in by_kind),
        series=plain(
            {
                f"{name}, {mapping}": [gain(counts, BASE, mapping, order) for counts in by_kind.values()]
                for order, name in _NAMES.items()
                for mapping in MAPPINGS
            }
        ),
        logarithmic=True,
    )
