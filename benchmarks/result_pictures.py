"""Pictures of what was measured: how many times faster an epoch is."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.columns import ratio
from benchmarks.result_tables import PYG, Document, machine_line
from onehop import pictures


def draw(models: Document, path: Path) -> None:
    """Bars: how many times faster an epoch is, by graph, a colour a model."""
    results = [r for r in models["results"] if PYG in r["speedup_over"]]
    groups = list(dict.fromkeys((r["graph"], r["hidden"]) for r in results))
    names = list(dict.fromkeys(r["model"] for r in results))
    colours = dict(zip(names, pictures.PALETTE, strict=False))
    figure = pictures.figure(max(1.1 * len(groups) + 2.5, 8), 4.4)
    axes = figure.subplots()
    width = 0.8 / len(names)
    for place, group in enumerate(groups):
        # Centred over their label, however many there are.
        of_group = [r for r in results if (r["graph"], r["hidden"]) == group]
        for number, result in enumerate(of_group):
            name = result["model"]
            label = name if name not in axes.get_legend_handles_labels()[1] else None
            centre = place + (number - (len(of_group) - 1) / 2) * width
            # From 1, "as fast", up or down: on a logarithmic axis there is no other ground to stand on.
            height = result["speedup_over"][PYG]["median"] - 1
            axes.bar(centre, height, 0.92 * width, bottom=1, color=colours[name], label=label)
            speedup_label(axes, centre, result, rotation=90)
    axes.axhline(1, color="black", linewidth=1)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}x")
    axes.yaxis.set_minor_formatter("")
    axes.margins(x=0.02, y=0.2)
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.set_xticks(range(len(groups)), [f"{graph}\n{hidden}" for graph, hidden in groups])
    finish(figure, axes, "Training epoch of two-layer models, by graph and hidden width", models, path)


def draw_each(document: Document, path: Path) -> None:
    """A bar for every published model: how many times faster an epoch is; a colour a graph."""
    results = [r for r in document["results"] if PYG in r["speedup_over"]]
    colours = dict(zip(dict.fromkeys(r["graph"] for r in results), pictures.PALETTE, strict=False))
    figure = pictures.figure(max(1.1 * len(results) + 1, 6.5), 4.2)
    axes = figure.subplots()
    for place, result in enumerate(results):
        graph = result["graph"]
        label = graph if graph not in axes.get_legend_handles_labels()[1] else None
        axes.bar(place, result["speedup_over"][PYG]["median"], 0.7, color=colours[graph], label=label)
        speedup_label(axes, place, result)
    axes.axhline(1, color="black", linewidth=1, label="as fast as PyG")
    axes.margins(y=0.15)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}x")
    axes.set_xticks(range(len(results)), [f"{r['model']}\n{r['hidden']}" for r in results])
    finish(figure, axes, "Training epoch of published models, by hidden width", document, path)


def speedup_label(axes: Axes, place: float, result: Document, rotation: float = 0) -> None:
    """The quartiles over a bar, and the median above them."""
    found = result["speedup_over"][PYG]
    pictures.spread(axes, [place], [found["lower_quartile"]], [found["upper_quartile"]])
    top = max(found["upper_quartile"], found["median"])
    axes.annotate(
        ratio(found["median"]), (place, top), (0, 3), textcoords="offset points", ha="center", va="bottom",
        rotation=rotation, fontsize=pictures.SMALL_SIZE,
    )  # fmt: skip


def finish(figure: Figure, axes: Axes, title: str, document: Document, path: Path) -> None:
    """What both pictures of epochs have in common."""
    axes.set_ylabel("PyG's time over onehop's")
    pictures.style(axes)
    pictures.legend(figure, axes, columns=6)
    pictures.save(figure, f"{title}; on the bars: quartiles", machine_line(document["stamp"]), path)
