"""Pictures of a reproduction: grouped bars, published values beside baselines, prior works and ours."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onehop import pictures
from onehop.reproduce.rows import Chart, Reproduction, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Share of a group's place that its bars take.
_FILLED = 0.84
# Inches: at 100 pixels an inch the picture is 800 pixels wide.
_WIDTH, _HEIGHT = 8.0, 4.4
_MOST_UPRIGHT = 6


def draw(found: Reproduction, folder: Path) -> list[Path]:
    """Draws every chart of a reproduction.

    Args:
        found: The reproduction.
        folder: The pictures' folder; made if it is missing.

    Returns:
        The files, PNG, named after the work and the chart.

    Raises:
        ConfigurationError: matplotlib is not installed.
        StorageError: A file cannot be written.
    """
    files = []
    for chart in found.charts:
        path = folder / f"{found.work}_{chart.name}.png"
        draw_chart(chart, path)
        files.append(path)
    return files


def draw_chart(chart: Chart, path: Path) -> None:
    """Draws one chart to a file."""
    figure = pictures.figure(_WIDTH, _HEIGHT)
    axes = figure.add_subplot()
    number = len(chart.series)
    for place, series in enumerate(chart.series):
        _bars(axes, series, place, number, pictures.PALETTE[place % len(pictures.PALETTE)])
    slanted = len(chart.groups) > _MOST_UPRIGHT
    axes.set_xticks(
        range(len(chart.groups)),
        chart.groups,
        rotation=30 if slanted else 0,
        ha="right" if slanted else "center",
    )
    axes.set_ylabel(chart.unit)
    if chart.logarithmic:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    pictures.style(axes)
    pictures.legend(figure, axes)
    pictures.save(figure, chart.title, chart.machine, path)


def _bars(axes: "Axes", series: Series, place: int, number: int, colour: str) -> None:
    step = _FILLED / number
    centres = [group + (place - (number - 1) / 2) * step for group in range(len(series.values))]
    known = [i for i, value in enumerate(series.values) if value is not None]
    axes.bar(
        [centres[i] for i in known],
        _chosen(series.values, known),
        width=0.92 * step,
        color=colour,
        label=series.label,
    )
    for i in known:
        axes.annotate(
            f"{series.values[i]:.3g}",
            (centres[i], float(series.values[i] or 0)),
            xytext=(0, 1),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=pictures.SMALL_SIZE - 1,
            rotation=90 if number * len(series.values) > 3 * _MOST_UPRIGHT else 0,
        )
    bounded = [i for i in known if series.low and series.low[i] is not None]
    if bounded:
        pictures.spread(
            axes,
            [centres[i] for i in bounded],
            _chosen(series.low, bounded),
            _chosen(series.high, bounded),
        )


def _chosen(values: Sequence[float | None], which: Sequence[int]) -> list[float]:
    return [float(value) for i in which if (value := values[i]) is not None]
