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

# The text on tiles of 128 in index order: less than this on all graphs but arxiv. The twins' tails of degrees
# were chosen for it.
BELOW_PERCENT = 1.0
FITTED = "The twin's degrees and communities were chosen to come near it, so a comparison shows nothing."


def retiling(one: PaperGraph, graph: Graph) -> list[Row]:
    """Return the share of reads that tiles of each size save (Figure 7), re-tiled and in index order."""
    machine = Machine("grande_16")
    rows = []
    for retile, order, other in (
        ("rows", "re-tiled", "The curve of this graph could not be read."),
        ("index", "index order", "The curve of this graph could not be read."),
    ):
        workload = machine.workload(graph, NdpPlan(retile=retile))
        for tile in TILES:
            paper = SAVED.get((retile, one.paper)) if tile == TILES[-1] else None
            note, known = (other, False) if paper is None else (FITTED, True)
            if retile == "index" and tile == TILES[-1] and paper is None:
                paper, note = BELOW_PERCENT, f"The text says less than {BELOW_PERCENT:g} %. {FITTED}"
            if one.scale != 1:
                note += " A part of the twin has fewer nodes and the same hubs, so tiles share more of them."
            figure = f"feature reads saved, tiles of {tile}, {order}, {one.label}"
            saved = workload.read_reduction_percent(tile)
            rows.append(row(figure, "%", note, saved, paper, headline=known, fitted=paper is not None))
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
    most = max(more, key=lambda name: more[name])
    note = (
        f"Units at 1,200 MHz. Three layers take {times[0]:.2f} ms in index order and {times[1]:.2f} ms "
        f"re-tiled; the busier path alone works for {bounds[0]:.2f} and {bounds[1]:.2f} ms. Re-tiling "
        f"changes the mean rank's time, in ms: {terms}. The largest loss is in {most}. The units make their "
        f"lists in {cost.modules_ns / 1e6:.2f} ms. The host works on lists for {cost.host_ns / 1e6:.2f} ms, "
        f"{cost.merge_ns / 1e6:.2f} of them to merge them; {100 * cost.hidden_share:.0f} % of this is hidden "
        f"behind aggregation. If merging took no time, the layers would take {merged / 1e6:.2f} ms."
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
