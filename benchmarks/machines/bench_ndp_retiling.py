"""Feature reads that tiles save, by tile, in index order and re-tiled: the paper's Figure 7 on twins.

    python benchmarks/machines/bench_ndp_retiling.py [--scale 1] [--graphs arxiv,amazon,mag,products,papers]
                                                     [--json FILE] [--plot FILE]

Published for the originals: at most 6.66 % in index order (arxiv, 128), below 1 % on the others; 54.1 %
re-tiled on products at 128. papers (111 million nodes, 3.2 thousand million edges) is never kept: its figures
are estimates from windows of the whole graph, each with its standard error.
"""

import time
from pathlib import Path

import sampled_reads
from ndp_twins import GRAPHS

from onehop import datasets, pictures
from onehop.bench import command
from onehop.machines.ndp import Machine, NdpPlan

TILES = (4, 8, 16, 32, 64, 128)
PLANS = {
    "index": NdpPlan(retile="index"),
    "rows": NdpPlan(retile="rows"),
    "ranks, batch 128": NdpPlan(retile="ranks", batch=128),
    "ranks, batch 2048": NdpPlan(retile="ranks", batch=2048),
    "round robin, batch 2048": NdpPlan(retile="round_robin", batch=2048),
}
# Never kept.
SAMPLED = ("papers",)
PUBLISHED = {"arxiv": {"index": 6.66}, "products": {"rows": 54.1}}


def curves(name: str, scale: float) -> dict:
    """Percent by order and tile."""
    graph = GRAPHS[name].graph(scale)
    machine = Machine("grande_16")
    found = {"nodes": graph.num_dst, "edges": graph.num_edges, "percent": {}, "seconds": {}}
    for label, plan in PLANS.items():
        begin = time.perf_counter()
        workload = machine.workload(graph, plan)
        found["percent"][label] = {tile: workload.read_reduction_percent(tile) for tile in TILES}
        found["seconds"][label] = time.perf_counter() - begin
        figures = "  ".join(f"{percent:6.2f}" for percent in found["percent"][label].values())
        print(f"{name:9} {label:24} {figures}   ({found['seconds'][label]:.1f} s)", flush=True)
    return found


def sampled(name: str, strata: int) -> dict:
    """Percent by order and tile, from windows of a graph that is never kept; with standard errors."""
    graph = datasets.implicit(GRAPHS[name].twin)
    found = {"nodes": graph.num_nodes, "strata": strata, "percent": {}, "error": {}, "seconds": {}}
    for label, estimate in (("index", sampled_reads.index_order), ("rows", sampled_reads.row_order)):
        begin = time.perf_counter()
        estimates = estimate(graph, list(TILES), strata=strata)
        found["percent"][label] = {tile: one.percent for tile, one in estimates.items()}
        found["error"][label] = {tile: one.error for tile, one in estimates.items()}
        found["seconds"][label] = time.perf_counter() - begin
        figures = "  ".join(f"{one.percent:6.2f}" for one in estimates.values())
        print(
            f"{name:9} {label + ', sampled':24} {figures}   ({found['seconds'][label]:.1f} s; +- "
            f"{estimates[TILES[-1]].error:.2f} at {TILES[-1]})",
            flush=True,
        )
    return found


def draw(content: dict, path: Path) -> None:
    """One panel an order: a line for each graph, with standard errors where it was sampled."""
    figure = pictures.figure(10, 4.6)
    panels = figure.subplots(1, 2)
    for axes, label, title in zip(panels, ("index", "rows"), ("index order", "re-tiled"), strict=True):
        for (name, found), colour in zip(content["graphs"].items(), pictures.PALETTE, strict=False):
            percent = list(found["percent"][label].values())
            error = list(found["error"][label].values()) if "error" in found else None
            axes.errorbar(TILES, percent, error, marker="o", capsize=3, color=colour, label=name)
            if label in PUBLISHED.get(name, {}):
                axes.plot(
                    [TILES[-1]], [PUBLISHED[name][label]], "*", color=colour, markersize=13, mec="black"
                )
        pictures.powers(axes, TILES)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("targets a tile")
        axes.set_ylabel("feature reads saved, %")
        axes.set_title(title)
        pictures.style(axes, "both")
    pictures.legend(figure, panels[0], columns=5)
    title = "Feature reads that tiles save on twins, any width; stars: published, of the graph of that colour"
    pictures.save(figure, title, "simulated: grande_16", path)


def main() -> None:
    """Reads the options, counts, prints."""
    parser = command.parser(__doc__, plot=True)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--graphs", type=command.names, default=",".join(GRAPHS))
    parser.add_argument("--strata", type=int, default=12, help="parts of papers, with two windows each")
    options = command.read(parser)
    print(f"{'':34} " + "  ".join(f"{tile:6}" for tile in TILES))
    results = {
        name: sampled(name, options.strata) if name in SAMPLED else curves(name, options.scale)
        for name in options.graphs
    }
    content = {"tiles": TILES, "published": PUBLISHED, "graphs": results}
    command.write(options, "bench ndp retiling", content)
    if options.plot:
        draw(content, options.plot)


if __name__ == "__main__":
    main()
