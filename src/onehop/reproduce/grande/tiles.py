"""GraNDe's tiles: the reads that they save, and the cost and gain of re-tiling."""

from collections.abc import Sequence

from onehop.graph import Graph
from onehop.machines.ndp import Machine, NdpPlan
from onehop.machines.ndp.durations import list_cost, pointer_cost
from onehop.machines.ndp.outcome import LayerOutcome
from onehop.reproduce.grande.graphs import PaperGraph
from onehop.reproduce.tables import Row, row

# Tile sizes of Figure 7; the text has figures for the last size.
TILES = (4, 8, 16, 32, 64, 128)
# Figure 7 and its text, percent. The twins' tails and communities were chosen to match these very figures.
SAVED = {("index", "arxiv"): 6.66, ("rows", "products"): 54.1}

_OTHER_GRAPH = (
    "For the published value the twin would have to be the paper's graph: it has that graph's numbers of "
    "nodes and edges and a tail of degrees, and its communities are assumed."
)


def retiling(one: PaperGraph, graph: Graph) -> list[Row]:
    """Return the share of reads that tiles of each size save (Figure 7), re-tiled and in index order."""
    machine = Machine("grande_16")
    rows = []
    for retile, order, other in (
        ("rows", "re-tiled", "The curve of this graph could not be read."),
        ("index", "index order", "The text says less than 1 % for all graphs but arxiv."),
    ):
        workload = machine.workload(graph, NdpPlan(retile=retile))
        for tile in TILES:
            paper = SAVED.get((retile, one.paper)) if tile == TILES[-1] else None
            fitted = (
                "The twin's degrees and communities were chosen to come near it, so agreement shows nothing."
            )
            note = other if paper is None else fitted
            if one.scale != 1:
                note += " A part of the twin has fewer nodes and the same hubs, so tiles share more of them."
            figure = f"feature reads saved, tiles of {tile}, {order}, {one.label}"
            saved = workload.read_reduction_percent(tile)
            rows.append(
                row(figure, "%", note, saved, paper, headline=paper is not None, otherwise=_OTHER_GRAPH)
            )
    return rows


def gains(one: PaperGraph, graph: Graph) -> list[Row]:
    """Return the time of three layers in index order divided by the re-tiled time, with its parts."""
    machine = Machine("grande_16")
    index, listed = (
        machine.layers(graph, one.widths, NdpPlan(retile=retile), record=0) for retile in ("index", "rows")
    )
    before, after, at_once = _terms(index), _terms(listed), machine.change(host={"merge_nodes_per_us": 1e9})
    more = {name: after[name] - before[name] for name in before}
    terms = ", ".join(f"{name} {ms:+.2f}" for name, ms in more.items())
    [cost] = [layer.run.retiling for layer in listed if layer.run.retiling is not None]
    merged = sum(layer.time_ns for layer in at_once.layers(graph, one.widths, NdpPlan(), record=0))
    times, bounds = (
        [sum(map(figure, layers)) / 1e6 for layers in (index, listed)]
        for figure in (lambda layer: layer.time_ns, lambda layer: layer.run.bound_ns)
    )
    note = (
        f"Three layers, ms: {times[0]:.2f} in index order, {times[1]:.2f} re-tiled; the busier path alone "
        f"{bounds[0]:.2f} and {bounds[1]:.2f}. Of the mean rank, re-tiled less index order: {terms}; most is "
        f"lost to {max(more, key=lambda name: more[name])}. Units "
        f"list for {cost.modules_ns / 1e6:.2f}, the host for {cost.host_ns / 1e6:.2f}, of which it merges "
        f"for {cost.merge_ns / 1e6:.2f}; {100 * cost.hidden_share:.0f} % of that is hidden. With a merge "
        f"that takes no time it is {merged / 1e6:.2f}."
    )
    return [row(f"speed-up of re-tiling over index order, {one.label}", "x", note, times[0] / times[1])]


def _terms(layers: Sequence[LayerOutcome]) -> dict[str, float]:
    """Return the time of the mean rank in ms, by activity, over all layers."""
    terms = dict.fromkeys(
        ("features", "row pointers", "adjacency", "listing", "tile lists", "write-back", "waits"), 0.0
    )
    for layer in layers:
        run, phases = layer.run, layer.run.phases_ns()
        traffic = run.traffic
        pointers = float(traffic.pointer_bursts.sum()) * pointer_cost(traffic, run.memory).ns
        bursts = float(traffic.list_bytes.sum()) / traffic.config.burst_bytes
        lists = bursts * list_cost(traffic, run.memory).ns
        for name, ns in (
            ("features", phases["features"]),
            ("row pointers", pointers),
            ("adjacency", phases["adjacency"] - pointers - lists),
            ("listing", phases["re-tiling"]),
            ("tile lists", lists),
            ("write-back", phases["write-back"]),
            ("waits", phases["imbalance"] + phases["host"]),
        ):
            terms[name] += ns / 1e6
    return terms
