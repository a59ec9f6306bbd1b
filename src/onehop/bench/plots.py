"""Pictures of measurements."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from onehop import pictures
from onehop.bench.floors import PARTS
from onehop.bench.limits import Bandwidth, GatherRoof
from onehop.bench.models import ModelResult
from onehop.bench.ops import OURS, CaseResult
from onehop.bench.peers import PEERS
from onehop.bench.serving import ServingResult, gain
from onehop.bench.variants import ONEHOP, PYG
from onehop.pictures import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    RED,
    SKY,
    TEXT_SIZE,
    TITLE_SIZE,
    YELLOW,
)

# Both index widths of a peer have the same colour.
_COLOURS = (SKY, SKY, BLUE, BLUE, RED, ORANGE, GREY, GREEN, PINK, PINK, YELLOW)
_MARKERS = ("o", "v", "o", "v", "X", "s", "P", "^", "D", "h", "*")


def plot_ops(results: Sequence[CaseResult], machine: str, path: Path) -> None:
    """Plot a panel for each graph and operation: every peer's time over onehop's, by width."""
    graphs = list(dict.fromkeys(r.graph for r in results))
    operations = list(dict.fromkeys(r.operation for r in results))
    figure = pictures.figure(2.6 * len(operations) + 2.2, 2.2 * len(graphs) + 1.6)
    grid = figure.subplots(len(graphs), len(operations), sharex=True, sharey=True, squeeze=False)
    for axes_row, graph in zip(grid, graphs, strict=True):
        for axes, operation in zip(axes_row, operations, strict=True):
            cases = [r for r in results if r.graph == graph and r.operation == operation and OURS in r.times]
            _ratios(axes, cases)
        axes_row[0].set_ylabel(f"{graph}\n\ntime / onehop's")
    for axes, operation in zip(grid[0], operations, strict=True):
        axes.set_title(operation.replace("_", " "), fontsize=TITLE_SIZE)
    for axes in grid[-1]:
        axes.set_xlabel("width, columns")
    handles = {
        label: line
        for axes in grid.flat
        for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(), handles.keys(), loc="outside right upper", fontsize=TEXT_SIZE, frameon=False
    )
    pictures.save(figure, "Aggregation: time of each peer over onehop's (above 1: slower)", machine, path)


def _ratios(axes: Axes, cases: Sequence[CaseResult]) -> None:
    axes.set_yscale("log")
    axes.axhline(1, color="black", linewidth=1.2, label="onehop")
    for name, colour, marker in zip(PEERS, _COLOURS, _MARKERS, strict=True):
        points = [
            (r.width, r.times[name].median_s / r.times[OURS].median_s) for r in cases if name in r.times
        ]
        if points:
            x, y = zip(*points, strict=True)
            style = "--" if name.endswith("64") else "-"
            axes.plot(x, y, style, marker=marker, markersize=5, linewidth=1.2, color=colour, label=name)
    pictures.powers(axes, sorted({r.width for r in cases}))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    pictures.style(axes, "both")


def plot_models(results: Sequence[ModelResult], machine: str, path: Path) -> None:
    """Plot a panel for each graph: bars of an epoch's time, with onehop's speed-up over plain PyG."""
    graphs = list(dict.fromkeys(r.graph for r in results))
    names = list(dict.fromkeys(name for r in results for name in r.times))
    others = [name for name in names if name != PYG.name]
    colours = dict(zip(others, (BLUE, SKY, ORANGE, GREEN, PINK, YELLOW, GREY), strict=False))
    colours[PYG.name] = RED
    most = max(len([r for r in results if r.graph == graph]) for graph in graphs)
    figure, panels = _panels(graphs, 0.28 * most * (len(names) + 1) + 1.5)
    for graph, axes in panels.items():
        _epochs(axes, [r for r in results if r.graph == graph], names, colours)
    pictures.legend(figure, axes, columns=3)
    title = (
        "Training epoch by model and hidden width, with quartiles; above the bars: speed-up over plain PyG"
    )
    pictures.save(figure, title, machine, path)


def _epochs(
    axes: Axes, cases: Sequence[ModelResult], names: Sequence[str], colours: Mapping[str, str]
) -> None:
    shown = []
    for name in names:
        timed = [r.times[name].to_dict() if name in r.times else {} for r in cases]
        median, low, high = (
            [1e3 * times[key] if times else None for times in timed]
            for key in ("median_s", "lower_quartile_s", "upper_quartile_s")
        )
        ratios = [r.speedup() if name == ONEHOP.name else None for r in cases]
        texts = [f"{ratio.median:.1f}x" if ratio else "" for ratio in ratios]
        shown.append(
            pictures.Bars(label=name, colour=colours[name], values=median, low=low, high=high, texts=texts)
        )
    pictures.bars(axes, [f"{r.model}\n{r.hidden}" for r in cases], shown)


def plot_serving(results: Sequence[ServingResult], machine: str, path: Path) -> None:
    """Plot a panel for each size: bars of the latencies at a rate, with onehop's gain."""
    timed = [r for r in results if not r.is_wrong]
    sizes = list(dict.fromkeys(f"{r.case.nodes:,} nodes, {r.case.edges:,} edges" for r in timed)) or [""]
    figure, panels = _panels(sizes, 9.0, "latency, ms")
    for size, axes in panels.items():
        cases = [r for r in timed if r.where.endswith(f", {size}")]
        labels, shown = [], []
        for r in cases:
            for name, measured in (("p50", r.p50_s), ("p99", r.p99_s)):
                labels.append(f"{r.case.model}\n{name}")
                shown.append(measured)
        series = []
        for way, label, colour in (("pyg", "PyG", RED), ("onehop", "onehop", BLUE)):
            ratios = [gain(measured) if way == "onehop" else None for measured in shown]
            median, low, high = (
                [1e3 * measured[way].to_dict()[key] for measured in shown]
                for key in ("median_s", "lower_quartile_s", "upper_quartile_s")
            )
            texts = [f"{ratio.median:.1f}x" if ratio else "" for ratio in ratios]
            series.append(
                pictures.Bars(label=label, colour=colour, values=median, low=low, high=high, texts=texts)
            )
        if cases:
            pictures.bars(axes, labels, series)
    pictures.legend(figure, axes, columns=2)
    title = "Latency of requests at a rate, with quartiles of rounds; above the bars: PyG's over onehop's"
    pictures.save(figure, title, machine, path)


def _panels(graphs: Sequence[str], width: float, what: str = "epoch, ms") -> tuple[Figure, dict[str, Axes]]:
    """Return a figure with a panel for each graph, for times."""
    figure = pictures.figure(max(width, 6.5), 2.6 * len(graphs) + 1.2)
    panels = dict(zip(graphs, figure.subplots(len(graphs), 1, squeeze=False)[:, 0], strict=True))
    for graph, axes in panels.items():
        axes.set_title(graph, fontsize=TITLE_SIZE, loc="left")
        axes.set_ylabel(what)
        axes.margins(y=0.12)
        pictures.style(axes)
    return figure, panels


def plot_parts(results: Sequence[Mapping[str, Any]], machine: str, path: Path) -> None:
    """Plot a panel for each graph: onehop's epochs in stacked parts, each next to its floor.

    Args:
        results: Results in the form of :meth:`onehop.bench.models.ModelResult.to_dict`.
        machine: The machine's description in one line.
        path: The PNG, PDF or SVG file.
    """
    shown = [r for r in results if r.get("breakdown")]
    # If there is no breakdown, the panel is empty.
    graphs = list(dict.fromkeys(r["graph"] for r in shown)) or [""]
    by_graph = {graph: [r for r in shown if r["graph"] == graph] for graph in graphs}
    figure, panels = _panels(graphs, 1.1 * max(1, *map(len, by_graph.values())) + 2.5)
    for graph, axes in panels.items():
        for place, case in enumerate(by_graph[graph]):
            _stacks(axes, place, case["breakdown"])
        labels = [f"{r['model']}\n{r['hidden']}" for r in by_graph[graph]]
        axes.set_xticks(range(len(labels)), labels)
    pictures.legend(figure, axes)
    title = (
        "Where onehop's epoch goes (left), and the least time for its work (right, hatched), "
        "by model and hidden width; above the bars: epoch over its least time"
    )
    pictures.save(figure, title, machine, path)


def _stacks(axes: Axes, place: int, breakdown: Mapping[str, Any]) -> None:
    for offset, times, hatch in ((-0.2, breakdown["seconds"], None), (0.2, breakdown["floor_s"], "///")):
        bottom = 0.0
        for part, colour in zip(PARTS, (BLUE, ORANGE, GREEN, GREY), strict=True):
            height = 1e3 * times[part] if times else 0.0
            label = part if hatch is None else None
            axes.bar(
                place + offset,
                height,
                0.36,
                bottom,
                color=colour,
                hatch=hatch,
                edgecolor="white",
                label=label,
            )
            bottom += height
        if hatch is not None and breakdown["x_of_floor"] is not None:
            pictures.above(
                axes, place - 0.2, 1e3 * sum(breakdown["seconds"].values()), f"{breakdown['x_of_floor']:.1f}x"
            )


def plot_limits(
    streams: Mapping[str, Bandwidth],
    roofs: Sequence[GatherRoof],
    cases: Sequence[CaseResult],
    machine: str,
    path: Path,
) -> None:
    """Plot the gather's bandwidth by row length, and streaming; with a graph, also its gather and onehop."""
    figure = pictures.figure(7.5, 4.8)
    axes = figure.subplots()
    for (name, bandwidth), style in zip(streams.items(), ("--", ":"), strict=True):
        axes.axhline(bandwidth.gbps, linestyle=style, color="black", linewidth=1.2, label=f"streaming {name}")
    random = [(4 * roof.row_floats, roof.bandwidth.gbps) for roof in roofs]
    axes.plot(*zip(*random, strict=True), marker="o", color=BLUE, label="gather of random rows")
    measured = [(4 * c.width, c.roof.gbps, c.percent_of_roof) for c in cases if c.roof and c.percent_of_roof]
    if measured:
        sizes, own_gbps, percents = zip(*measured, strict=True)
        reached = [gbps * percent / 100 for gbps, percent in zip(own_gbps, percents, strict=True)]
        axes.plot(sizes, own_gbps, marker="s", color=ORANGE, label=f"gather in the order of {cases[0].graph}")
        axes.plot(
            sizes, reached, marker="D", color=GREEN, label=f"onehop.aggregate, sum, on {cases[0].graph}"
        )
    pictures.powers(axes, [size for size, _ in random])
    axes.set_xlabel("row, bytes")
    axes.set_ylabel("bandwidth, GB/s")
    axes.set_ylim(bottom=0)
    axes.margins(x=0.06)
    pictures.style(axes, "both")
    pictures.legend(figure, axes, columns=2)
    pictures.save(figure, "Memory bandwidth: the roof for aggregation", machine, path)


def plot_demo(rows: Sequence[Mapping[str, Any]], graph: str, machine: str, path: Path) -> None:
    """Plot bars of epoch time and of peak memory, PyG alone and patched.

    Args:
        rows: For each model ``title``, ``pyg`` and ``onehop``; the latter two have ``epoch_s`` and
            ``peak_bytes``.
        graph: The graph's name.
        machine: The machine's description in one line.
        path: The PNG, PDF or SVG file.
    """
    figure = pictures.figure(max(9.5, 2.6 * len(rows)), 4.2)
    time_axes, memory_axes = figure.subplots(1, 2)
    for axes, key, unit, scale in (
        (time_axes, "epoch_s", "epoch, s (median)", 1.0),
        (memory_axes, "peak_bytes", "peak memory of the process, MiB", 2.0**-20),
    ):
        heights = {variant: [row[variant][key] * scale for row in rows] for variant in ("pyg", "onehop")}
        pyg, onehop = ([_figure(height) for height in each] for each in heights.values())
        ratios = [row["pyg"][key] / row["onehop"][key] for row in rows]
        onehop = [f"{text}\n{ratio:.1f}x" for text, ratio in zip(onehop, ratios, strict=True)]
        label = "with onehop, and how many times less"
        shown = [
            pictures.Bars(label="PyG alone", colour=ORANGE, values=heights["pyg"], texts=pyg),
            pictures.Bars(label=label, colour=BLUE, values=heights["onehop"], texts=onehop),
        ]
        pictures.bars(axes, [row["title"] for row in rows], shown)
        axes.set_ylabel(unit)
        # Values range from milliseconds on Cora to seconds on arxiv.
        pictures.logarithmic(axes)
        axes.margins(y=0.2)
        pictures.style(axes)
    pictures.legend(figure, time_axes)
    pictures.save(figure, f"Training on {graph}: unchanged PyG models, alone and patched", machine, path)


def _figure(value: float) -> str:
    return f"{value:.2g}" if value < 1 else f"{value:,.{1 if value < 100 else 0}f}"
