"""What every picture has: a title that names the machine, named axes, and nothing outside its frame."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

# Rounding of pixels.
SLACK = 1.5


@contextmanager
def drawn() -> Iterator[list[Figure]]:
    """The figures that are written inside the block."""
    figures: list[Figure] = []
    save = Figure.savefig

    def keep(self: Figure, *arguments: Any, **options: Any) -> None:
        save(self, *arguments, **options)
        figures.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", keep)
        yield figures


def faults(figure: Figure) -> list[str]:
    """What is outside the frame, and what has no name."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    found = []
    titles = [each for each in figure.texts if each.get_text()]
    for part in (*figure.axes, *figure.legends, *titles):
        box, frame = part.get_tightbbox(canvas.get_renderer()), figure.bbox
        assert box is not None
        if box.x0 < -SLACK or box.y0 < -SLACK or box.x1 > frame.x1 + SLACK or box.y1 > frame.y1 + SLACK:
            found.append(f"outside the frame: {part}")
    if len(figure.get_suptitle().splitlines()) < 2:
        found.append(f"no machine in the title: {figure.get_suptitle()!r}")
    for axes in figure.axes:
        last = axes.get_subplotspec().is_last_row()
        first = axes.get_subplotspec().is_first_col()
        if first and not (axes.get_ylabel() or axes.get_yticklabels()):
            found.append("a vertical axis without a name")
        if last and not (axes.get_xlabel() or any(each.get_text() for each in axes.get_xticklabels())):
            found.append("a horizontal axis without a name")
    return found
