"""The curve of a tuning run as a picture: speed-ups by width."""

from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from onehop import native
from onehop.errors import ArgumentError
from onehop.plans.cases import Case
from onehop.storage import write_whole

if TYPE_CHECKING:
    from onehop.tuner.result import TuningResult

# M. Okabe, K. Ito, "Color Universal Design", 2008.
_BLUE, _ORANGE, _GREEN = "#0072B2", "#E69F00", "#009E73"
_DPI = 150


def draw(result: "TuningResult", path: Path) -> None:
    """Plots the speed-up over the default plan and over torch (above), and 10^9 columns a second (below).

    Raises:
        ArgumentError: Nothing was measured.
    """
    points = [point for point in result.curve if point.tuned_s]
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
    # On GPUs the case gives the class of the graph; the figures are the graph's own.
    figures = result.entries[0].figures or result.entries[0].case.graph
    edges = int(figures.split(" ")[2])
    speed = [edges * point.width / point.tuned_s / 1e9 for point in points if point.tuned_s]
    rates.plot(widths, speed, marker="D", color=_GREEN)
    suggested = result.suggested_widths()
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
    case = result.entries[0].case
    directions = "forward and backward" if any(e.case.backward for e in result.entries) else "forward"
    if isinstance(case, Case):
        where = f"{result.machine['processor']}, {native.threads()} threads, {case.isa}"
    else:
        where = case.device
    figure.suptitle(
        f"{result.op} {result.reduce if result.op == 'aggregate' else ''}, {directions}, {case.dtype}, on "
        f"{figures.split(' degrees')[0]}\n{where}",
        fontsize=9,
    )
    write_whole("plot", path, lambda file: figure.savefig(file, format="png", dpi=_DPI))
