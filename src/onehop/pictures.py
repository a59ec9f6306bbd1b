"""The style of all pictures: one palette, titles and axes alike, and files of the kind that their names say.

matplotlib is imported when a picture is drawn; the extra ``cli`` brings it.
"""

import contextlib
import importlib
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

# M. Okabe, K. Ito, "Color Universal Design", 2008, which the colour-blind can tell apart; black is kept for
# lines of reference and for spreads.
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
# What fits into an inch of a title.
_LETTERS_AN_INCH = 13
# Share of a group's place that its bars take.
_FILLED = 0.84


def check(argument: str, path: str | os.PathLike[str]) -> None:
    """Raises unless a picture can be written to a path: to be called before the work that it is to show.

    Args:
        argument: What the path was given for.
        path: The path; folders that are missing will be made.

    Raises:
        ArgumentError: The name ends in something else than .png, .pdf or .svg.
        ConfigurationError: matplotlib is not installed.
        StorageError: The system would refuse.
    """
    with extras.needed(argument, "cli"):
        importlib.import_module("matplotlib")
    _kind(argument, path)
    storage.check(argument, path)


def figure(width: float, height: float) -> "Figure":
    """An empty figure.

    Args:
        width: In inches.
        height: In inches.

    Raises:
        ConfigurationError: matplotlib is not installed.
    """
    with extras.needed("plot", "cli"):
        from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


THEMES = {"light": "#24292f", "dark": "#e6edf3"}
"""The colour of text and lines on pages of each theme."""


@contextlib.contextmanager
def themed(theme: str) -> Iterator[None]:
    """Lets pictures that are drawn and saved in the block fit pages of a theme; their ground is transparent.

    Args:
        theme: A key of :data:`THEMES`.
    """
    import matplotlib

    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    # Without a salt, every run of the same code writes other names into an SVG file.
    settings: Any = {"figure.facecolor": "none", "axes.facecolor": "none", "svg.hashsalt": "onehop"}
    with matplotlib.rc_context(settings | dict.fromkeys(inked, THEMES[theme])):
        yield


def style(axes: "Axes", values: str = "y") -> None:
    """Makes axes look as all others do.

    Args:
        axes: The axes.
        values: Where values are read off, and lines help: "x", "y" or "both".
    """
    axes.grid(visible=True, axis=values, alpha=0.3)  # type: ignore[arg-type]
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=SMALL_SIZE)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_fontsize(TEXT_SIZE)
    axes.title.set_fontsize(TITLE_SIZE)


def powers(axes: "Axes", values: Sequence[int]) -> None:
    """Lets the horizontal axis be logarithmic, with these values written along it."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(values, [str(value) for value in values])
    axes.xaxis.set_minor_formatter("")


def logarithmic(axes: "Axes") -> None:
    """Lets the vertical axis be logarithmic, with 1, 2 and 5 of every decade written along it.

    One decade, or less, may be all there is.
    """
    from matplotlib.ticker import LogLocator

    axes.set_yscale("log", subs=[])
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.yaxis.set_minor_formatter("")


def spread(axes: "Axes", places: Sequence[float], low: Sequence[float], high: Sequence[float]) -> None:
    """Draws a line from the lower to the upper quartile over each bar."""
    axes.vlines(places, low, high, color="black", linewidth=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """The bars of one colour: one in each group, from left to right.

    Attributes:
        label: Entry of the legend.
        colour: Their colour.
        values: Heights; None means no bar.
        low: Lower ends of the spreads; empty for none, and None where a bar has none.
        high: Upper ends.
        texts: Written above the bars; empty for none, and an empty text where a bar has none.
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
    """Draws bars side by side in groups, with spreads and texts; a group without bars keeps its place.

    Args:
        axes: The axes.
        groups: Labels of the groups, from left to right.
        series: The bars, from left to right within a group.
        size: Of the texts.
        rotation: Of the texts, in degrees.
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
    """Writes a text above a bar."""
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
    """Writes what colours mean below everything, where it hides nothing."""
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
    """Writes a figure under its title, to a PNG, PDF or SVG file.

    Args:
        figure: The figure.
        title: Its title: what is shown, of which graph, at which width.
        where: The machine.
        path: The file; without an ending it is a PNG file.

    Raises:
        ArgumentError: The name ends in something else.
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
    """The kind of file that a name ends in."""
    kind = Path(path).suffix.lower().removeprefix(".") or _KINDS[0]
    if kind not in _KINDS:
        raise ArgumentError(
            f"{argument}: expected the name of a picture, which ends in .png, .pdf or .svg, got {Path(path)}."
        )
    return kind
