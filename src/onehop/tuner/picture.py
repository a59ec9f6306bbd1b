"""The curve of a tuning run as a picture: speed-ups by width."""

from collections.abc import Sequence
from pathlib import Path

from onehop import extras
from onehop.errors import ArgumentError
from onehop.storage import write_whole
from onehop.tuner.curve import CurvePoint

# M. Okabe, K. Ito, "Color Universal Design", 2008.
_BLUE, _ORANGE, _GREEN = "#0072B2", "#E69F00", "#009E73"
_DPI = 150


def draw(path: Path, curve: Sequence[CurvePoint], suggested: Sequence[int], edges: int, title: str) -> None:
    """Plots the speed-up over the default plan and over torch (above), and 10^9 columns a second (below).

    Args:
        path: The PNG file.
        curve: The points.
        suggested: Widths to point out.
        edges: Of the graph.
        title: Of the picture.

    Raises:
        ArgumentError: Nothing was measured.
        ConfigurationError: matplotlib is not installed.
    """
    with extras.needed("plot", "cli"):
        from matplotlib.figure import Figure
        from matplotlib.ticker import NullFormatter

    points = [point for point in curve if point.tuned_s]
    if not points:
        raise ArgumentError("plot: nothing was measured within the budget; tune with more budget_s.")
    widths = [point.width for point in points]
    figure = Figure(figsize=(7.0, 6.0), layout="constrained")
    ratios, rates = figure.subplots(2, 1, sharex=True)
    ratios.axhline(1, color="black", linewidth=1)
    for label, colour, marker, values in (
        ("torch sparse CSR / tuned", _ORANGE, "s", [point.over_torch for point in points]),
        ("default plan / tuned", _BLUE, "o", [point.over_default for point in points]),
    ):
        if all(value is not None for value in values):
            ratios.plot(widths, values, marker=marker, color=colour, label=label)
    ratios.set_ylabel("times faster")
    ratios.set_ylim(bottom=0)
    ratios.legend(frameon=False)
    speed = [edges * point.width / point.tuned_s / 1e9 for point in points if point.tuned_s]
    rates.plot(widths, speed, marker="D", color=_GREEN)
    for width, height in zip(widths, speed, strict=True):
        if width in suggested:
            rates.annotate("best here", (width, height), (0, 8), textcoords="offset points", ha="center")
    rates.set_ylabel("10$^9$ edge columns a second")
    rates.set_ylim(bottom=0, top=1.2 * max(speed))
    rates.set_xlabel("width")
    for axes in (ratios, rates):
        axes.set_xscale("log", base=2)
        axes.grid(alpha=0.3)
    rates.set_xticks(widths, [str(width) for width in widths])
    rates.xaxis.set_minor_formatter(NullFormatter())
    figure.suptitle(title, fontsize=9)
    write_whole("plot", path, lambda file: figure.savefig(file, format="png", dpi=_DPI))
