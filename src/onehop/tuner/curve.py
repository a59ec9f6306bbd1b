"""The curve of a tuning run over widths: its points, and speed-ups as a picture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onehop import pictures
from onehop.errors import ArgumentError


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One width of the curve: medians of a call or, with backward, of a call and its gradient together.

    Attributes:
        width: Number of columns.
        tuned_s: Time with the tuned plans; None if nothing was measured.
        default_s: Time with the default plans.
        torch_s: Time with torch's sparse CSR; None if torch has no such operation.
        predicted_s: Prediction of the cost model for the tuned plans; None on GPUs.
    """

    width: int
    tuned_s: float | None
    default_s: float | None
    torch_s: float | None
    predicted_s: float | None

    @property
    def over_default(self) -> float | None:
        """Speed-up over the default plans."""
        return self.default_s / self.tuned_s if self.default_s and self.tuned_s else None

    @property
    def over_torch(self) -> float | None:
        """Speed-up over torch's sparse CSR."""
        return self.torch_s / self.tuned_s if self.torch_s and self.tuned_s else None


def draw(
    path: Path,
    curve: Sequence[CurvePoint],
    spreads: Mapping[int, tuple[float, float]],
    suggested: Sequence[int],
    edges: int,
    title: str,
    where: str,
) -> None:
    """Plot the speed-up over the default plan and over torch (above), and 10^9 columns per second (below).

    Args:
        path: The PNG, PDF or SVG file.
        curve: The points.
        spreads: Quartiles of the speed-up over the default plan, by width, if known.
        suggested: Widths to highlight.
        edges: Number of edges in the graph.
        title: Title of the picture.
        where: The machine's name.

    Raises:
        ArgumentError: Nothing was measured, or the file name does not end in .png, .pdf or .svg.
        ConfigurationError: matplotlib is not installed.
        StorageError: The file cannot be written.
    """
    pictures.check("plot", path)
    points = [point for point in curve if point.tuned_s]
    if not points:
        raise ArgumentError("plot: nothing was measured within the budget; tune with more budget_s.")
    widths = [point.width for point in points]
    figure = pictures.figure(7.0, 6.0)
    ratios, rates = figure.subplots(2, 1, sharex=True)
    ratios.axhline(1, color="black", linewidth=1)
    for label, colour, marker, values in (
        ("torch sparse CSR / tuned", pictures.ORANGE, "s", [point.over_torch for point in points]),
        ("default plan / tuned", pictures.BLUE, "o", [point.over_default for point in points]),
    ):
        if all(value is not None for value in values):
            ratios.plot(widths, values, marker=marker, color=colour, label=label)
    shown = [width for width in widths if width in spreads]
    pictures.spread(ratios, shown, *([spreads[width][side] for width in shown] for side in (0, 1)))
    ratios.set_ylabel("times as fast")
    ratios.set_ylim(bottom=0)
    speed = [edges * point.width / point.tuned_s / 1e9 for point in points if point.tuned_s]
    rates.plot(widths, speed, marker="D", color=pictures.GREEN)
    for width, height in zip(widths, speed, strict=True):
        if width in suggested:
            rates.annotate(
                "best here",
                (width, height),
                (0, 8),
                textcoords="offset points",
                ha="center",
                fontsize=pictures.SMALL_SIZE,
            )
    rates.set_ylabel("10$^9$ edges x columns a second")
    rates.set_ylim(bottom=0, top=1.2 * max(speed))
    rates.set_xlabel("width, columns")
    pictures.powers(rates, widths)
    for axes in (ratios, rates):
        axes.margins(x=0.1)
        pictures.style(axes, "both")
    pictures.legend(figure, ratios)
    pictures.save(figure, title, where, path)
