"""Feature reads that tiles save, by tile, in index order and re-tiled: the paper's Figure 7 on twins.

    python -m benchmarks.machines.bench_ndp_retiling [--scale 1] [--graphs arxiv,amazon,mag,products,papers]
                                                     [--json FILE] [--plot FILE]

Published for the originals: at most 6.66 % in index order (arxiv, 128), below 1 % on the others; 54.1 %
re-tiled on products at 128. papers (111 million nodes, 3.2 thousand million edges) is never kept: its figures
are estimates from windows of the whole graph, each with its standard error.
"""

import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import Benchmark, Option, Options, Row
from benchmarks.machines.ndp_twins import GRAPHS, structure
from benchmarks.machines.sampled_reads import shared_reads
from onehop import datasets, pictures
from onehop.machines.ndp import Machine, NdpPlan
from onehop.reproduce.grande.tiles import SAVED, TILES

PLANS = {
    "index": NdpPlan(retile="index"),
    "rows": NdpPlan(retile="rows"),
    "ranks, batch 128": NdpPlan(retile="ranks", batch=128),
    "ranks, batch 2048": NdpPlan(retile="ranks", batch=2048),
    "round robin, batch 2048": NdpPlan(retile="round_robin", batch=2048),
}
# Never kept.
SAMPLED = ("papers",)
PUBLISHED = {name: {order: percent} for (order, name), percent in SAVED.items()}


def rows(options: Options) -> Iterator[Row]:
    """Percent by tile, for each graph and order; with standard errors where a graph is sampled."""
    for name in options.graphs:
        if name in SAMPLED:
            implicit = datasets.implicit(name)
            about: Row = {"graph": name, "nodes": implicit.num_nodes, "strata": options.strata}
            for label in ("index", "rows"):
                begin = time.perf_counter()
                found = shared_reads(implicit, label, list(TILES), strata=options.strata)
                percent = {tile: one.percent for tile, one in found.items()}
                error = {tile: one.error for tile, one in found.items()}
                seconds = time.perf_counter() - begin
                yield {**about, "order": label, "percent": percent, "error": error, "seconds": seconds}
        else:
            graph = structure(name, options.scale)
            about = {"graph": name, "nodes": graph.num_dst, "edges": graph.num_edges}
            for label, plan in PLANS.items():
                begin = time.perf_counter()
                workload = Machine("grande_16").workload(graph, plan)
                percent = {tile: workload.read_reduction_percent(tile) for tile in TILES}
                seconds = time.perf_counter() - begin
                yield {**about, "order": label, "percent": percent, "seconds": seconds}


def content(options: Options, rows: list[Row]) -> Row:
    """The figures of each graph by order."""
    graphs: dict[str, Row] = {}
    for row in rows:
        whole = graphs.setdefault(row["graph"], {})
        for key, value in row.items():
            if key in ("percent", "error", "seconds"):
                whole.setdefault(key, {})[row["order"]] = value
            elif key not in ("graph", "order"):
                whole[key] = value
    return {"tiles": TILES, "published": PUBLISHED, "graphs": graphs}


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


BENCHMARK = Benchmark(
    "bench ndp retiling",
    rows,
    f"graph; order; {'; '.join(f'{tile} | percent/{tile} | {{:.2f}}' for tile in TILES)}; "
    f"+- at {TILES[-1]} | error/{TILES[-1]} | {{:.2f}}; s | seconds | {{:.1f}}",
    {
        "scale": 1.0,
        "graphs": Option((*GRAPHS, *SAMPLED)),
        "strata": Option(12, "parts of papers, with two windows each"),
    },
    key=None,
    threads=False,
    more=content,
    draw=draw,
)

if __name__ == "__main__":
    BENCHMARK.main()
