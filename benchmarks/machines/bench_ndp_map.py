"""The best pod by width, degree and ranks: the machine's adaptive rule, spelt out.

    python -m benchmarks.machines.bench_ndp_map [--nodes 65536] [--json FILE] [--plot FILE]

Graphs whose edges are drawn evenly, in index order. Letters: R rank, D DIMM, C channel, 2 and 4 channels, S
system.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.harness import Benchmark, Options, Row
from onehop import pictures
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
# Sky, pink and yellow are light, and their letters dark.
COLOURS = (pictures.BLUE, pictures.SKY, pictures.GREEN, pictures.PINK, pictures.RED, pictures.YELLOW)
DARK = {pictures.BLUE, pictures.GREEN, pictures.RED}
LETTERS = {"rank": "R", "dimm": "D", "channel": "C", "2-channel": "2", "4-channel": "4", "system": "S"}


def even(nodes: int, degree: int) -> Graph:
    """Sources drawn evenly for every target."""
    source = torch.randint(0, nodes, (nodes * degree,), generator=torch.Generator().manual_seed(degree))
    target = torch.arange(nodes).repeat_interleave(degree)
    return Graph.from_edge_index(torch.stack([source, target]), num_nodes=nodes)


def draw(content: dict, path: Path) -> None:
    """A panel for each machine and tFAW: the best pod in each cell."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    cells, colours = content["cells"], dict(zip(LETTERS, COLOURS, strict=True))
    figure = pictures.figure(14, 7.6)
    panels = figure.subplots(2, len(MACHINES), sharex=True, sharey=True)
    order = list(LETTERS)
    for row, faw in zip(panels, ("preset", "sheet"), strict=True):
        for axes, name in zip(row, MACHINES, strict=True):
            own = {
                (c["degree"], c["width"]): c["best"] for c in cells if (c["machine"], c["faw"]) == (name, faw)
            }
            grid = [[order.index(own[degree, width]) for width in WIDTHS] for degree in DEGREES]
            colormap = ListedColormap(list(colours.values()))
            axes.imshow(grid, cmap=colormap, vmin=-0.5, vmax=len(order) - 0.5, origin="lower", aspect="auto")
            for y, degree in enumerate(DEGREES):
                for x, width in enumerate(WIDTHS):
                    best = own[degree, width]
                    ink = "white" if colours[best] in DARK else "black"
                    axes.text(x, y, LETTERS[best], ha="center", va="center", color=ink)
            axes.set_xticks(range(len(WIDTHS)), [str(width) for width in WIDTHS])
            axes.set_yticks(range(len(DEGREES)), [str(degree) for degree in DEGREES])
            axes.set_title(f"{name}, tFAW {'20 ns' if faw == 'preset' else '13.3 ns'}")
            pictures.style(axes)
            axes.grid(visible=False)
    for axes in panels[-1]:
        axes.set_xlabel("width, columns")
    for axes in panels[:, 0]:
        axes.set_ylabel("edges a node")
    keys = [Patch(color=colours[name], label=f"{LETTERS[name]}: {name}") for name in order]
    figure.legend(
        handles=keys, loc="outside lower center", ncols=len(keys), fontsize=pictures.TEXT_SIZE, frameon=False
    )
    title = f"The best pod by width and degree, even graphs of {content['nodes']:,} nodes in index order"
    pictures.save(figure, title, "simulated: near-rank machines of 8 to 64 ranks", path)


def rows(options: Options) -> Iterator[Row]:
    """Simulates a layer in every cell."""
    graphs = {degree: even(options.nodes, degree) for degree in DEGREES}
    for name, topology in MACHINES.items():
        counted = Machine(NdpConfig(name, topology))
        for faw, degree, width in itertools.product(("preset", "sheet"), DEGREES, WIDTHS):
            machine = counted.change(dram={"faw": faw})
            layer = machine.layers(graphs[degree], [width], NdpPlan(retile="index"), record=0)[0]
            yield {
                "machine": name,
                "faw": faw,
                "degree": degree,
                "width": width,
                "best": layer.run.mapping,
                "host_order": layer.run.host_order,
                "bound_ms": layer.run.bound_ns / 1e6,
                "candidates_ms": layer.candidates_ms(),
                "over_baseline": layer.baseline.time_ns / layer.time_ns,
            }


BENCHMARK = Benchmark(
    "bench ndp map",
    rows,
    "machine; faw; degree; width; best; over the host | over_baseline | x",
    {"nodes": 65536},
    key="cells",
    threads=False,
    kept=("nodes",),
    draw=draw,
)

if __name__ == "__main__":
    BENCHMARK.main()
