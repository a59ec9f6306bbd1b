"""Pictures of a reproduction: grouped bars, published values beside baselines, prior works and ours."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onehop import pictures
from onehop.reproduce.tables import Chart, Reproduction, Series, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Share of a group's place that its bars take.
_FILLED = 0.84
# Inches: at 100 pixels an inch the picture is 800 pixels wide.
_WIDTH, _HEIGHT = 8.0, 4.4
# Letters of all labels along the horizontal axis, side by side; and bars that have room for upright figures.
_LETTERS, _MOST_UPRIGHT = 96, 18
# Share of the axis that figures take above the tallest bar, lying and upright.
_ABOVE, _ABOVE_UPRIGHT = 0.05, 0.14


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
    # A group without bars keeps its place.
    axes.set_xlim(-0.5, len(chart.groups) - 0.5)
    for group, values in enumerate(zip(*(series.values for series in chart.series), strict=True)):
        if not any(value is not None for value in values):
            axes.annotate(
                chart.absent,
                (group, 0),
                xycoords=("data", "axes fraction"),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=pictures.SMALL_SIZE,
            )
    axes.set_ylabel(chart.unit)
    if chart.logarithmic:
        pictures.logarithmic(axes)
    _make_room(axes, chart)
    pictures.style(axes)
    pictures.legend(figure, axes, columns=5)
    pictures.save(figure, chart.title, chart.machine, path)


def _make_room(axes: "Axes", chart: Chart) -> None:
    """Lets the axis end above the figures over the tallest bar."""
    above = _ABOVE_UPRIGHT if _is_upright(len(chart.series), len(chart.groups)) else _ABOVE
    bottom, top = axes.get_ylim()
    if chart.logarithmic:
        axes.set_ylim(top=top * (top / bottom) ** above)
    else:
        axes.set_ylim(0, top * (1 + above))


def _is_upright(together: int, groups: int) -> bool:
    """Return whether figures stand upright, because bars are too narrow for them."""
    return together * groups > _MOST_UPRIGHT


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
            rotation=90 if _is_upright(together, len(series.values)) else 0,
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
