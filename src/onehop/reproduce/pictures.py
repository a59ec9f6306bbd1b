"""Pictures of a reproduction: grouped bars of published values, baselines, prior works and ours."""

import itertools
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from onehop import pictures
from onehop.reproduce.nearest import Fit
from onehop.reproduce.tables import Chart, Reproduction, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# In inches: at 100 pixels per inch, the picture is 800 pixels wide.
_WIDTH, _HEIGHT = 8.0, 4.4
# Number of letters of all labels along the horizontal axis; maximum number of bars with horizontal figures.
_LETTERS, _MOST_UPRIGHT = 96, 18
# Maximum number of legend columns, so that the legend's lines are about equally long.
_MOST_COLUMNS = 5
# In inches, a tornado's frame and each of its lines; number of letters of a line's label.
_FIT_FRAME, _FIT_LINE, _FIT_LETTERS = 1.4, 0.34, 58
# Share of the axis that figures take above the tallest bar, for horizontal and upright figures.
_ABOVE, _ABOVE_UPRIGHT = 0.05, 0.14


def draw(reproduction: Reproduction, folder: Path) -> list[Path]:
    """Draws every chart of a reproduction.

    Args:
        reproduction: The reproduction.
        folder: The folder for the pictures; created if it is missing.

    Returns:
        The PNG files, named after the work and the chart.

    Raises:
        ConfigurationError: matplotlib is not installed.
        StorageError: A file cannot be written.
    """
    files = []
    for chart in reproduction.charts:
        path = folder / f"{reproduction.work}_{chart.name}.png"
        draw_chart(chart, path)
        files.append(path)
    return files


def draw_chart(chart: Chart, path: Path) -> None:
    """Draws one chart to a file."""
    figure = pictures.figure(_WIDTH, _HEIGHT)
    axes = figure.add_subplot()
    letters = _LETTERS // len(chart.groups)
    labels = ["\n".join(textwrap.wrap(group, letters, break_long_words=False)) for group in chart.groups]
    series = [
        pictures.Bars(
            label=each.label,
            colour=colour,
            values=each.values,
            low=each.low,
            high=each.high,
            texts=[number(value) for value in each.values],
        )
        for each, colour in zip(chart.series, itertools.cycle(pictures.PALETTE), strict=False)
    ]
    upright = 90 if _is_upright(len(chart.series), len(chart.groups)) else 0
    pictures.bars(axes, labels, series, pictures.SMALL_SIZE - 1, upright)
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
    lines = -(-len(chart.series) // _MOST_COLUMNS)
    pictures.legend(figure, axes, columns=-(-len(chart.series) // lines))
    pictures.save(figure, chart.title, chart.machine, path)


def draw_fit(fit: Fit, path: Path) -> None:
    """Draws a tornado to a file: for each unknown moved alone, how far each figure moves.

    Args:
        fit: The nearest configuration.
        path: The file.

    Raises:
        ConfigurationError: matplotlib is not installed.
        StorageError: The file cannot be written.
    """
    lines = [f"{move.unknown.name}: {move.label}" for move in fit.moves]
    figure = pictures.figure(_WIDTH, _FIT_FRAME + _FIT_LINE * len(lines))
    axes = figure.add_subplot()
    places = range(len(lines))
    for place, move in zip(places, fit.moves, strict=True):
        changes = fit.changes(move)
        axes.plot(
            [100 * min(0.0, *changes), 100 * max(0.0, *changes)], [place, place], color="black", linewidth=1
        )
    groups = dict.fromkeys(target.group for target in fit.targets)
    for group, colour in zip(groups, pictures.PALETTE, strict=False):
        points = [
            (100 * change, place)
            for place, move in zip(places, fit.moves, strict=True)
            for target, change in zip(fit.targets, fit.changes(move), strict=True)
            if target.group == group
        ]
        across, along = zip(*points, strict=True)
        axes.scatter(across, along, color=colour, s=14, zorder=3, label=group)
    axes.axvline(0, color="black", linewidth=1)
    axes.set_yticks(places, ["\n".join(textwrap.wrap(line, _FIT_LETTERS)) for line in lines])
    axes.invert_yaxis()
    axes.set_xlabel("change of each figure, %")
    pictures.style(axes, "x")
    pictures.legend(figure, axes)
    title = f"{len(fit.targets)} figures within {100 * fit.largest_error:.0f} %; each unknown moved alone"
    pictures.save(figure, title, fit.machine, path)


def _make_room(axes: "Axes", chart: Chart) -> None:
    """Extend the axis above the figures over the tallest bar."""
    above = _ABOVE_UPRIGHT if _is_upright(len(chart.series), len(chart.groups)) else _ABOVE
    bottom, top = axes.get_ylim()
    if chart.logarithmic:
        axes.set_ylim(top=top * (top / bottom) ** above)
    else:
        axes.set_ylim(0, top * (1 + above))


def _is_upright(together: int, groups: int) -> bool:
    """Return whether figures are upright, because bars are too narrow for them."""
    return together * groups > _MOST_UPRIGHT
