"""The best pod by width, degree and ranks: the machine's adaptive rule, spelt out.

    python benchmarks/machines/bench_ndp_map.py [--nodes 65536] [--json FILE] [--plot FILE]

Graphs whose edges are drawn evenly, in index order. Letters: R rank, D DIMM, C channel, 2 and 4 channels, S
system.
"""

from pathlib import Path

import torch

from onehop.bench import command
from onehop.graph import Graph
from onehop.machines.ndp import Machine, NdpConfig, NdpPlan, Topology

WIDTHS = (16, 32, 64, 128, 256, 512, 1024)
DEGREES = (4, 8, 16, 32, 64, 128, 256)
MACHINES = {
    "8 ranks, 2 channels": Topology(2, 2, 2),
    "16 ranks, 4 channels": Topology(4, 2, 2),
    "32 ranks, 8 channels": Topology(8, 2, 2),
    "64 ranks, 16 channels": Topology(16, 2, 2),
}
LETTERS = {"rank": "R", "dimm": "D", "channel": "C", "2-channel": "2", "4-channel": "4", "system": "S"}


def even(nodes: int, degree: int) -> Graph:
    """Sources drawn evenly for every target."""
    source = torch.randint(0, nodes, (nodes * degree,), generator=torch.Generator().manual_seed(degree))
    target = torch.arange(nodes).repeat_interleave(degree)
    return Graph.from_edge_index(torch.stack([source, target]), num_nodes=nodes)


def draw(cells: list[dict], path: Path) -> None:
    """A panel for each machine and tFAW: the best pod in each cell."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 7), layout="constrained")
    panels = figure.subplots(2, len(MACHINES))
    order = list(LETTERS)
    for row, faw in zip(panels, ("preset", "sheet"), strict=True):
        for axes, name in zip(row, MACHINES, strict=True):
            own = {
                (c["degree"], c["width"]): c["best"] for c in cells if (c["machine"], c["faw"]) == (name, faw)
            }
            grid = [[order.index(own[degree, width]) for width in WIDTHS] for degree in DEGREES]
            axes.imshow(grid, cmap="viridis", vmin=0, vmax=len(order) - 1, origin="lower", aspect="auto")
            for y, degree in enumerate(DEGREES):
                for x, width in enumerate(WIDTHS):
                    axes.text(x, y, LETTERS[own[degree, width]], ha="center", va="center", color="white")
            axes.set_xticks(range(len(WIDTHS)), [str(width) for width in WIDTHS])
            axes.set_yticks(range(len(DEGREES)), [str(degree) for degree in DEGREES])
            axes.set_title(f"{name}, tFAW {'20 ns' if faw == 'preset' else '13.3 ns'}", fontsize=9)
            axes.set_xlabel("width")
            axes.set_ylabel("degree")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Reads the options, runs, prints."""
    parser = command.parser(__doc__)
    parser.add_argument("--nodes", type=int, default=65536)
    parser.add_argument("--plot", type=Path)
    options = command.read(parser)
    plan = NdpPlan(retile="index")
    graphs = {degree: even(options.nodes, degree) for degree in DEGREES}
    cells = []
    for name, topology in MACHINES.items():
        counted = Machine(NdpConfig(name, topology))
        for faw in ("preset", "sheet"):
            machine = counted.change(dram={"faw": faw})
            print(f"{name}, tFAW {faw}: degree down, width {', '.join(map(str, WIDTHS))} across")
            for degree, graph in graphs.items():
                letters = []
                for width in WIDTHS:
                    layer = machine.layers(graph, [width], plan, record=0)[0]
                    best = layer.run.mapping
                    letters.append(LETTERS[best])
                    times = layer.candidates_ms()
                    cells.append(
                        {
                            "machine": name,
                            "faw": faw,
                            "degree": degree,
                            "width": width,
                            "best": best,
                            "candidates_ms": times,
                            "over_baseline": layer.baseline.time_ns / layer.time_ns,
                        }
                    )
                print(f"{degree:5}  {' '.join(letters)}", flush=True)
    command.write(options, "bench ndp map", {"nodes": options.nodes, "cells": cells})
    if options.plot:
        draw(cells, options.plot)


if __name__ == "__main__":
    main()
