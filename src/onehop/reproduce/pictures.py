"""Pictures of a reproduction: grouped bars, published values beside baselines, prior works and ours."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onehop import pictures
from onehop.reproduce.rows import Chart, Reproduction, Series
from onehop.reproduce.tables import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Share of a group's place that its bars take.
_FILLED = 0.84
# Inches: at 100 pixels an inch the picture is 800 pixels wide.
_WIDTH, _HEIGHT = 8.0, 4.4
# Letters of all labels along the horizontal axis, side by side; and bars that have room for upright figures.
_LETTERS, _MOST_UPRIGHT = 96, 18


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
    together = len(chart.series)
    for place, series in enumerate(chart.series):
        _bars(axes, series, place, together, pictures.PALETTE[place % len(pictures.PALETTE)])
    letters = _LETTERS // len(chart.groups)
    labels = ["\n".join(textwrap.wrap(group, letters, break_long_words=False)) for group in chart.groups]
    axes.set_xticks(range(len(chart.groups)), labels)
    axes.set_ylabel(chart.unit)
    if chart.logarithmic:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    pictures.style(axes)
    pictures.legend(figure, axes)
    pictures.save(figure, chart.title, chart.machine, path)


def _bars(axes: "Axes", series: Series, place: int, together: int, colour: str) -> None:
    step = _FILLED / together
    centres = [group + (place - (together - 1) / 2) * step for group in range(len(series.values))]
    known = [i for i, value in enumerate(series.values) if value is not None]
    axes.bar(
        [centres[i] for i in known],
        _chosen(series.values, known),
        width=0.92 * step,
        color=colour,
        label=series.label,
    )
    tops = [series.values, *([series.high] if series.high else [])]
    for i in known:
        axes.annotate(
            number(series.values[i]),
            (centres[i], max(top[i] or 0.0 for top in tops)),
            xytext=(0, 1),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=pictures.SMALL_SIZE - 1,
            rotation=90 if together * len(series.values) > _MOST_UPRIGHT else 0,
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
