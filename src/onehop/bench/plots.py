"""Pictures of what was measured."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from onehop import pictures
from onehop.bench.floors import PARTS
from onehop.bench.limits import Bandwidth, GatherRoof
from onehop.bench.models import ModelResult
from onehop.bench.ops import OURS, CaseResult
from onehop.bench.peers import PEERS
from onehop.bench.variants import ONEHOP, PYG
from onehop.pictures import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    RED,
    SKY,
    SMALL_SIZE,
    TEXT_SIZE,
    TITLE_SIZE,
    YELLOW,
)

# The same colour for a peer's two widths of indices.
_COLOURS = (SKY, SKY, BLUE, BLUE, RED, ORANGE, GREY, GREEN, PINK, PINK, YELLOW)
_MARKERS = ("o", "v", "o", "v", "X", "s", "P", "^", "D", "h", "*")


def plot_ops(results: Sequence[CaseResult], machine: str, path: Path) -> None:
    """A panel for each graph and operation: every peer's time over onehop's, by width."""
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
    """A panel for each graph: bars of an epoch's time, with the speed-up over plain PyG above onehop's."""
    graphs = list(dict.fromkeys(r.graph for r in results))
    names = list(dict.fromkeys(name for r in results for name in r.times))
    others = [name for name in names if name != PYG.name]
    colours = dict(zip(others, (BLUE, SKY, ORANGE, GREEN, PINK, YELLOW, GREY), strict=False))
    colours[PYG.name] = RED
    most = max(len([r for r in results if r.graph == graph]) for graph in graphs)
    width = max(0.28 * most * (len(names) + 1) + 1.5, 6.5)
    figure = pictures.figure(width, 2.6 * len(graphs) + 1.2)
    grid = figure.subplots(len(graphs), 1, squeeze=False)[:, 0]
    for axes, graph in zip(grid, graphs, strict=True):
        cases = [r for r in results if r.graph == graph]
        _epochs(axes, cases, names, colours)
        axes.set_title(graph, fontsize=TITLE_SIZE, loc="left")
    pictures.legend(figure, grid[0], columns=3)
    title = (
        "Training epoch by model and hidden width, with quartiles; above the bars: speed-up over plain PyG"
    )
    pictures.save(figure, title, machine, path)


def _epochs(
    axes: Axes, cases: Sequence[ModelResult], names: Sequence[str], colours: Mapping[str, str]
) -> None:
    bar = 0.8 / len(names)
    for number, name in enumerate(names):
        left = [place + (number - (len(names) - 1) / 2) * bar for place in range(len(cases))]
        heights = [r.times[name].median_s * 1e3 if name in r.times else 0 for r in cases]
        axes.bar(left, heights, bar * 0.92, color=colours[name], label=name)
        for place, result in zip(left, cases, strict=True):
            if name not in result.times:
                continue
            times = result.times[name].to_dict()
            low, high = 1e3 * times["lower_quartile_s"], 1e3 * times["upper_quartile_s"]
            pictures.spread(axes, [place], [low], [high])
            ratio = result.speedup() if name == ONEHOP.name else None
            if ratio is not None:
                _above(axes, place, max(high, 1e3 * times["median_s"]), f"{ratio.median:.1f}x")
    axes.set_xticks(range(len(cases)), [f"{r.model}\n{r.hidden}" for r in cases])
    axes.set_ylabel("epoch, ms")
    axes.margins(y=0.12)
    pictures.style(axes)


def _above(axes: Axes, place: float, height: float, text: str) -> None:
    """Writes a figure above a bar."""
    axes.annotate(
        text, (place, height), (0, 2), textcoords="offset points", ha="center", va="bottom",
        fontsize=SMALL_SIZE,
    )  # fmt: skip


def plot_parts(results: Sequence[Mapping[str, Any]], machine: str, path: Path) -> None:
    """A panel for each graph: onehop's epochs in stacked parts, each beside its floor.

    Args:
        results: As :meth:`onehop.bench.models.ModelResult.to_dict` gives them.
        machine: The machine in a line.
        path: The PNG, PDF or SVG file.
    """
    shown = [r for r in results if r.get("breakdown")]
    graphs = list(dict.fromkeys(r["graph"] for r in shown))
    most = max((len([r for r in shown if r["graph"] == graph]) for graph in graphs), default=1)
    figure = pictures.figure(max(1.1 * most + 2.5, 6.5), 2.6 * max(len(graphs), 1) + 1.2)
    grid = figure.subplots(max(len(graphs), 1), 1, squeeze=False)[:, 0]
    for axes, graph in zip(grid, graphs, strict=False):
        cases = [r for r in shown if r["graph"] == graph]
        for place, case in enumerate(cases):
            _stacks(axes, place, case["breakdown"])
        axes.set_xticks(range(len(cases)), [f"{r['model']}\n{r['hidden']}" for r in cases])
        axes.set_ylabel("epoch, ms")
        axes.set_title(graph, fontsize=TITLE_SIZE, loc="left")
        axes.margins(y=0.12)
        pictures.style(axes)
    pictures.legend(figure, grid[0])
    title = (
        "Where onehop's epoch goes (left), and the least time for its work (right, hatched), "
        "by model and hidden width; above the bars: epoch over its least time"
    )
    pictures.save(figure, title, machine, path)


def _stacks(axes: Axes, place: int, found: Mapping[str, Any]) -> None:
    for offset, times, hatch in ((-0.2, found["seconds"], None), (0.2, found["floor_s"], "///")):
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
        if hatch is not None and found["x_of_floor"] is not None:
            _above(axes, place - 0.2, 1e3 * sum(found["seconds"].values()), f"{found['x_of_floor']:.1f}x")


def plot_limits(
    streams: Mapping[str, Bandwidth],
    roofs: Sequence[GatherRoof],
    cases: Sequence[CaseResult],
    machine: str,
    path: Path,
) -> None:
    """The gather's bandwidth by row length beside that of streaming; with a graph, its own and onehop's."""
    figure = pictures.figure(7.5, 4.8)
    axes = figure.subplots()
    for (name, bandwidth), style in zip(streams.items(), ("--", ":"), strict=True):
        axes.axhline(bandwidth.gbps, linestyle=style, color="black", linewidth=1.2, label=f"streaming {name}")
    random = [(4 * roof.row_floats, roof.bandwidth.gbps) for roof in roofs]
    axes.plot(*zip(*random, strict=True), marker="o", color=BLUE, label="gather of random rows")
    measured = [(4 * c.width, c.roof.gbps, c.percent_of_roof) for c in cases if c.roof and c.percent_of_roof]
    if measured:
        sizes, own, percents = zip(*measured, strict=True)
        reached = [gbps * percent / 100 for gbps, percent in zip(own, percents, strict=True)]
        axes.plot(sizes, own, marker="s", color=ORANGE, label=f"gather in the order of {cases[0].graph}")
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
    """Bars of epoch time and of peak memory, PyG alone and patched.

    Args:
        rows: For each model ``title``, ``pyg`` and ``onehop``, these two with ``epoch_s`` and ``peak_bytes``.
        graph: The graph's name.
        machine: The machine in a line.
        path: The PNG, PDF or SVG file.
    """
    figure = pictures.figure(max(9.5, 2.6 * len(rows)), 4.2)
    time_axes, memory_axes = figure.subplots(1, 2)
    for axes, key, unit, scale in (
        (time_axes, "epoch_s", "epoch, s (median)", 1.0),
        (memory_axes, "peak_bytes", "peak memory of the process, MiB", 2.0**-20),
    ):
        for offset, variant, label, colour in (
            (-0.2, "pyg", "PyG alone", ORANGE),
            (0.2, "onehop", "with onehop, and how many times less", BLUE),
        ):
            places = [place + offset for place in range(len(rows))]
            heights = [row[variant][key] * scale for row in rows]
            bars = axes.bar(places, heights, 0.38, color=colour, label=label)
            texts = [
                f"{height:.2g}" if height < 1 else f"{height:,.{1 if height < 100 else 0}f}"
                for height in heights
            ]
            if variant == "onehop":
                ratios = [row["pyg"][key] / row["onehop"][key] for row in rows]
                texts = [f"{text}\n{ratio:.1f}x" for text, ratio in zip(texts, ratios, strict=True)]
            axes.bar_label(bars, texts, fontsize=SMALL_SIZE, padding=2)
        axes.set_xticks(range(len(rows)), [row["title"] for row in rows])
        axes.set_ylabel(unit)
        # From milliseconds on Cora to seconds on arxiv.
        pictures.logarithmic(axes)
        axes.margins(y=0.2)
        pictures.style(axes)
    pictures.legend(figure, time_axes)
    pictures.save(figure, f"Training on {graph}: unchanged PyG models, alone and patched", machine, path)
