"""Pictures of what was measured: how many times faster an epoch is."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes

from benchmarks.columns import ratio
from benchmarks.result_tables import PYG, Document, machine_line, title as model_title
from onehop import pictures
from onehop.bench.timing import LEAST_FOR_QUARTILES


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
            found = result["speedup_over"][PYG]
            top = found["median"]
            if result["times"][PYG]["rounds"] >= LEAST_FOR_QUARTILES:
                pictures.spread(axes, [centre], [found["lower_quartile"]], [found["upper_quartile"]])
                top = max(found["upper_quartile"], top)
            axes.annotate(
                ratio(found["median"]), (centre, top), (0, 3), textcoords="offset points", ha="center",
                va="bottom", rotation=90, fontsize=pictures.SMALL_SIZE,
            )  # fmt: skip
    axes.axhline(1, color="black", linewidth=1)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}x")
    axes.yaxis.set_minor_formatter("")
    axes.margins(x=0.02, y=0.2)
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.set_xticks(range(len(groups)), [f"{graph}\n{hidden}" for graph, hidden in groups])
    axes.set_ylabel("PyG's time over onehop's")
    pictures.style(axes)
    pictures.legend(figure, axes, columns=6)
    title = "Training epoch of two-layer models, by graph and hidden width"
    pictures.save(figure, title, machine_line(models["stamp"]), path)


def draw_each(document: Document, folder: Path) -> None:
    """A bar for every published model: how much faster an epoch is than with the fastest of PyG's inputs."""
    gains = {
        f"{model_title(r)} ({r['graph']})": r["speedup_over"][best]["median"]
        for r in document["results"]
        if (best := r.get("best_of_pyg"))
    }
    axis = "time of PyG's fastest input over onehop's; 1: as fast"
    draw_gains(gains, "Training epoch of published models", document, folder / "published", axis)


def draw_gains(
    gains: Mapping[str, float],
    title: str,
    document: Document,
    stem: Path,
    axis: str = "PyG's time over onehop's; 1: as fast",
) -> None:
    """Two pictures of gains by name: STEM-light.svg for light pages and STEM-dark.svg for dark ones."""
    for theme in pictures.THEMES:
        with pictures.themed(theme):
            figure = pictures.figure(7.5, 0.26 * len(gains) + 1.3)
            axes = figure.subplots()
            rungs(axes, list(gains), list(gains.values()))
            axes.set_xlabel(axis)
            path = stem.with_name(f"{stem.name}-{theme}.svg")
            pictures.save(figure, title, machine_line(document["stamp"]), path)


def rungs(axes: Axes, names: Sequence[str], gains: Sequence[float]) -> None:
    """Horizontal bars from the top down, with their values, and a line at 1."""
    places = range(len(names))
    axes.barh(places, gains, 0.7, color=[pictures.BLUE if gain >= 1 else pictures.ORANGE for gain in gains])
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    for place, gain in zip(places, gains, strict=True):
        axes.annotate(
            ratio(gain), (gain, place), (3, 0), textcoords="offset points", va="center",
            fontsize=pictures.SMALL_SIZE,
        )  # fmt: skip
    axes.axvline(1, color=axes.spines["left"].get_edgecolor(), linewidth=1)
    axes.margins(x=0.1, y=0.01)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}x")
    pictures.style(axes, values="x")
