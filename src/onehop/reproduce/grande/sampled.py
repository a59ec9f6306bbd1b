"""GraNDe's largest graph, papers, at full size: rows are computed, and figures are estimated by sampling."""

from collections.abc import Mapping, Sequence
from typing import Any

from onehop import datasets
from onehop.machines.ndp import Machine, NdpPlan, Sample, sampled_report
from onehop.machines.ndp.sampled_windows import RowSource
from onehop.reproduce.grande.cases import BASE
from onehop.reproduce.grande.graphs import HIDDEN, of_sample, sizes
from onehop.reproduce.grande.tiles import BELOW_PERCENT, FITTED
from onehop.reproduce.tables import Row, row
from onehop.reproduce.twins import Progress, silent

# Columns that each of three layers aggregates.
WIDTHS = (128, HIDDEN, HIDDEN)
# A machine's name, and its differences from the preset: first the base, then each assumption that the paper
# leaves open, one at a time. Clocks above the base's change nothing: in index order hardly any read is
# shared, and 300 MHz keep up.
_CLOCK = {"clock_mhz": BASE.clock_mhz}
MACHINES: tuple[tuple[str, dict[str, dict[str, Any]]], ...] = (
    ("grande_16", {"module": _CLOCK}),
    ("grande_16", {}),
    ("grande_16", {"module": _CLOCK, "dram": {"faw": "sheet"}}),
    ("grande_32", {"module": _CLOCK}),
)
# Table 1: adjacency and features.
_PUBLISHED_MB = 26_800.0, 113_700.0
_NOTES = (
    "The twin has the graph's number of nodes; its edges are estimated from a sample, 95 %.",
    "The twin has the graph's number of nodes.",
)
_SAMPLED = "The twin at full size, in index order, as re-tiling needs every row; some of its windows."
_SPEED_UP = (
    f"{_SAMPLED} The interval spans those of the samples, 95 %, and the clock (300 or 1,200 MHz; faster "
    "units wait for reads), tFAW (20 or 13.3 ns) and ranks (16 or 32). The paper's figures by graph could "
    "not be read."
)


def sampled(
    progress: Progress = silent, graph: RowSource | None = None, sample: Sample | None = None
) -> list[Row]:
    """Estimate speed-ups, shared reads and sizes of papers at full size.

    Args:
        progress: Called with the current step and the share that is done.
        graph: Another graph; None means the twin of papers, with self loops.
        sample: Size of each sample; None means the defaults.
    """
    nodes: RowSource = datasets.implicit("papers", self_loops=True) if graph is None else graph
    reports = []
    for number, (name, sections) in enumerate(MACHINES):
        progress("papers: sampled windows", number / len(MACHINES))
        layers = Machine(name).change(**sections).sampled(nodes, WIDTHS, NdpPlan(retile="index"), sample)
        reports.append(sampled_report(layers))
        if number == 0:
            edges = layers[1].edges
    reads = f"{_SAMPLED} The text says less than {BELOW_PERCENT:g} %. {FITTED}"
    over_host, over_prior = (_ends(f"speedup_over_{name}", reports) for name in ("baseline", "prior"))
    saved = _ends("read_reduction_percent", [reports[0]["layers"][1]])
    return [
        row("aggregation over the host, papers", "x", _SPEED_UP, over_host),
        row("aggregation over the best prior machine, papers", "x", _SPEED_UP, over_prior),
        row(
            "feature reads saved, tiles of 128, index order, papers",
            "%",
            reads,
            of_sample(saved),
            BELOW_PERCENT,
            fitted=True,
        ),
        *sizes("papers", (edges.value, edges.low, edges.high), nodes.num_nodes, _PUBLISHED_MB, _NOTES),
    ]


def _ends(name: str, reports: Sequence[Mapping[str, float]]) -> list[float]:
    """Return a figure of the first report, followed by the ends of its intervals in all reports."""
    return [reports[0][name], *(report[f"{name}_{end}"] for report in reports for end in ("low", "high"))]
