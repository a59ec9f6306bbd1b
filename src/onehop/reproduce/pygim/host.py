"""Parallelism Fusion against PyTorch on the host, whose time is bounded by its memory; and utilisation."""

from collections.abc import Iterator, Sequence

from onehop.machines.pim import PimConfig
from onehop.machines.pim.combination import KINDS, Network
from onehop.machines.pim.provenance import BOUNDS
from onehop.machines.pim.shapes import Shapes
from onehop.reproduce.pygim.assumptions import base
from onehop.reproduce.pygim.comparison import LAYERS, SUMMARIES, Case, open_winner, whole
from onehop.reproduce.pygim.schemes import PUBLISHED, THREADS, WIDTH
from onehop.reproduce.rows import Row, missing

# The abstract: mean and best over PyTorch on the host; and utilisation over PyTorch's on a GPU.
_PAPER_SPEEDUP, _PAPER_ENERGY, _PAPER_UTILISATION = (3.04, 3.44), (1.55, 1.75), 11.6
_INDEX_BYTES, _ITEM_BYTES = 4, 4


def sum_ns(config: PimConfig, shapes: Shapes, cached: bool) -> float:
    """Time of a float32 sum on the host, at the speed of its memory.

    Args:
        config: The machine, whose host it is.
        shapes: Size of the graph.
        cached: Whether a row of features is read once; else it is read for every edge.
    """
    row = WIDTH * _ITEM_BYTES
    rows = shapes.num_src if cached else shapes.num_edges
    # An index and a value an edge, the rows, the results.
    moved = shapes.num_edges * (_INDEX_BYTES + _ITEM_BYTES) + (rows + shapes.num_dst) * row
    return moved / config.links.host_dram_gbps


def rows(cases: Sequence[Case], shapes: Sequence[Shapes]) -> list[Row]:
    """Speed-up and energy over PyTorch; utilisation of both sides."""
    own = [case for case in cases if case.threads == THREADS[0]]
    found = []
    for quantity, paper, energy in (("time", _PAPER_SPEEDUP, False), ("energy", _PAPER_ENERGY, True)):
        values = {cached: list(_ratios(own, shapes, cached, energy)) for cached in (False, True)}
        for (name, over), published in zip(SUMMARIES.items(), paper, strict=True):
            bounds = [over(ratios) for each in values.values() for ratios in each]
            found.append(
                Row(
                    figure=f"inference, {quantity} of PyTorch on the host over {PUBLISHED}, {name}",
                    paper=published,
                    ours=over(values[False][0]),
                    low=min(bounds),
                    high=max(bounds),
                    unit="x",
                    note="The host reads a row for every edge at 23.1 GB/s; with rows in its caches "
                    "it may be as fast as the lower end says. Floats there, integers on the cores."
                    + (" The host draws 70 W on both sides; the paper's is not known." if energy else "")
                    + open_winner(min(bounds), max(bounds)),
                )
            )
    for case in own:
        report = case.base.reports.get(PUBLISHED)
        if report is not None:
            found.append(
                Row(
                    figure=f"utilisation of the cores in the kernel, {PUBLISHED}, {case.graph}",
                    ours=100 * report.utilisation,
                    unit="%",
                    note="Operations over what the cores reach on arithmetic alone; the paper's definition "
                    "could not be read.",
                )
            )
    found.append(
        missing(
            "utilisation over PyTorch's on a GPU", "x", _PAPER_UTILISATION, "Needs a GPU for the other side."
        )
    )
    return found


def _ratios(
    cases: Sequence[Case], shapes: Sequence[Shapes], cached: bool, energy: bool
) -> Iterator[list[float]]:
    """The host over the machine, for all graphs and models: at the preset, then at its host's other rates."""
    config = base().config
    rates = (config.host.product_gflops, *BOUNDS["product_gflops"])
    for rate in rates:
        hosted = config.with_(product_gflops=rate)
        found = []
        for case, own in zip(cases, shapes, strict=True):
            if PUBLISHED not in case.base.reports:
                continue
            for kind in KINDS:
                floats = Network(kind, case.nodes, WIDTH, WIDTH, WIDTH, LAYERS, quantised=False)
                network = Network(kind, case.nodes, WIDTH, WIDTH, WIDTH, LAYERS)
                host = floats.time_ns(hosted) + LAYERS * sum_ns(hosted, own, cached)
                host *= hosted.power.host_w if energy else 1.0
                found.append(host / whole(case.base.reports[PUBLISHED], hosted, network, energy))
        yield found
