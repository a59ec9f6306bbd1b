"""The common style of all pictures: palette, titles, axes, and file formats by file name.

matplotlib is imported when a picture is drawn; the extra ``cli`` installs it.
"""

import contextlib
import importlib.util
import os
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onehop import extras, storage
from onehop.errors import ArgumentError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The colours are from M. Okabe, K. Ito, "Color Universal Design", 2008; colour-blind people can distinguish
# them. Black is reserved for reference lines and spreads.
BLUE, ORANGE, GREEN, RED, SKY, PINK, YELLOW, GREY = PALETTE = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#56B4E9",
    "#CC79A7",
    "#C8B900",
    "#7F7F7F",
)
_KINDS = ("png", "pdf", "svg")
_DPI = 150
TITLE_SIZE, TEXT_SIZE, SMALL_SIZE = 10, 9, 8
# Number of letters that fit into an inch of a title.
_LETTERS_AN_INCH = 13
# The share of a group's width that its bars take.
_FILLED = 0.84


def check(argument: str, path: str | os.PathLike[str]) -> None:
    """Raise unless a picture can be written to a path; call this before the work whose results it shows.

    Args:
        argument: The argument that the path comes from.
        path: The path; missing folders will be created.

    Raises:
        ArgumentError: The name does not end in .png, .pdf or .svg.
        ConfigurationError: matplotlib is not installed.
        StorageError: The file could not be written.
    """
    with extras.needed(argument, "cli"):
        if importlib.util.find_spec("matplotlib") is None:
            raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")
    _kind(argument, path)
    storage.check(argument, path)


def figure(width: float, height: float) -> "Figure":
    """Return an empty figure.

    Args:
        width: The width in inches.
        height: The height in inches.

    Raises:
        ConfigurationError: matplotlib is not installed.
    """
    with extras.needed("plot", "cli"):
        from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


THEMES = {"light": "#24292f", "dark": "#e6edf3"}
"""The colour of text and lines for each theme of pages."""


@contextlib.contextmanager
def themed(theme: str) -> Iterator[None]:
    """Lets pictures drawn and saved in the block fit pages of a theme; their background is transparent.

    Args:
        theme: A key of :data:`THEMES`.
    """
    import matplotlib

    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    # Without a fixed salt, every run of the same code would write other ids to an SVG file.
    settings: Any = {"figure.facecolor": "none", "axes.facecolor": "none", "svg.hashsalt": "onehop"}
    with matplotlib.rc_context(settings | dict.fromkeys(inked, THEMES[theme])):
        yield


def style(axes: "Axes", values: str = "y") -> None:
    """Apply the common style to axes.

    Args:
        axes: The axes.
        values: The axis that shows values and gets grid lines: "x", "y" or "both".
    """
    axes.grid(visible=True, axis=values, alpha=0.3)  # type: ignore[arg-type]
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=SMALL_SIZE)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_fontsize(TEXT_SIZE)
    axes.title.set_fontsize(TITLE_SIZE)


def powers(axes: "Axes", values: Sequence[int]) -> None:
    """Make the horizontal axis logarithmic, with these values as tick labels."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(values, [str(value) for value in values])
    axes.xaxis.set_minor_formatter("")


def logarithmic(axes: "Axes") -> None:
    """Make the vertical axis logarithmic, with tick labels at 1, 2 and 5 of every decade.

    This is useful even if the data span one decade or less.
    """
    from matplotlib.ticker import LogLocator

    axes.set_yscale("log", subs=[])
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.yaxis.set_minor_formatter("")


def spread(axes: "Axes", places: Sequence[float], low: Sequence[float], high: Sequence[float]) -> None:
    """Draw a line from the lower to the upper quartile over each bar."""
    axes.vlines(places, low, high, color="black", linewidth=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """The bars of one colour: one in each group, from left to right.

    Attributes:
        label: The entry in the legend.
        colour: The colour of the bars.
        values: The heights; None means no bar.
        low: The lower ends of the spreads; empty without spreads, None for a bar without a spread.
        high: The upper ends of the spreads.
        texts: The texts above the bars; empty without texts, an empty string for a bar without a text.
    """

    label: str
    colour: str
    values: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    texts: Sequence[str] = ()


def bars(
    axes: "Axes",
    groups: Sequence[str],
    series: Sequence[Bars],
    size: float = SMALL_SIZE,
    rotation: float = 0,
) -> None:
    """Draw grouped bars with spreads and texts; a group without bars keeps its place.

    Args:
        axes: The axes.
        groups: The labels of the groups, from left to right.
        series: The bars, from left to right within a group.
        size: The font size of the texts.
        rotation: The rotation of the texts, in degrees.
    """
    step = _FILLED / len(series)
    for number, each in enumerate(series):
        shift = (number - (len(series) - 1) / 2) * step
        known = {group: value for group, value in enumerate(each.values) if value is not None}
        places = {group: group + shift for group in known}
        axes.bar(
            list(places.values()), list(known.values()), 0.92 * step, color=each.colour, label=each.label
        )
        spreads = {
            group: (low, high)
            for group, (low, high) in enumerate(zip(each.low, each.high, strict=True))
            if group in known and low is not None and high is not None
        }
        if spreads:
            spread(axes, [places[group] for group in spreads], *zip(*spreads.values(), strict=True))
        for group, text in enumerate(each.texts):
            if group in known:
                top = max([known[group], *spreads.get(group, ())])
                above(axes, places[group], top, text, size=size, rotation=rotation)
    axes.set_xticks(range(len(groups)), groups)
    axes.set_xlim(-0.5, len(groups) - 0.5)


def above(
    axes: "Axes", place: float, height: float, text: str, size: float = SMALL_SIZE, rotation: float = 0
) -> None:
    """Write a text above a bar."""
    axes.annotate(
        text,
        (place, height),
        xytext=(0, 2),
        textcoords="offset points",
        ha="center",
        va="bottom",
        fontsize=size,
        rotation=rotation,
    )


def legend(figure: "Figure", axes: "Axes", columns: int = 4) -> None:
    """Draw the legend below the axes, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    figure.legend(
        unique.values(),
        unique.keys(),
        loc="outside lower center",
        ncols=min(max(len(unique), 1), columns),
        fontsize=TEXT_SIZE,
        frameon=False,
    )


def save(figure: "Figure", title: str, where: str, path: str | os.PathLike[str]) -> None:
    """Write a figure with its title to a PNG, PDF or SVG file.

    Args:
        figure: The figure.
        title: The title: what is shown, for which graph and which width.
        where: The name of the machine.
        path: The file; without an extension it is a PNG file.

    Raises:
        ArgumentError: The name has another extension.
        StorageError: The file cannot be written; an earlier one is left unchanged.
    """
    letters = int(figure.get_figwidth() * _LETTERS_AN_INCH)
    lines = [textwrap.fill(line, letters) for text in (title, where) for line in text.split("\n") if line]
    figure.suptitle("\n".join(lines), fontsize=TITLE_SIZE)
    kind = _kind("plot", path)
    dateless = {"Date": None} if kind == "svg" else None
    storage.write_whole(
        "plot", path, lambda file: figure.savefig(file, format=kind, dpi=_DPI, metadata=dateless)
    )


def _kind(argument: str, path: str | os.PathLike[str]) -> str:
    """Return the file format of a name, by its extension."""
    kind = Path(path).suffix.lower().removeprefix(".") or _KINDS[0]
    if kind not in _KINDS:
        raise ArgumentError(
            f"{argument}: expected the name of a picture, which ends in .png, .pdf or .svg, got {Path(path)}."
        )
    return kind
