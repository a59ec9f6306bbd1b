"""Pictures of reproductions: titled with the machine, axes named, all inside the frame, intervals drawn."""

from pathlib import Path

import pytest

from onehop import pictures
from onehop.reproduce import Chart, Reproduction, Row, Series
from onehop.reproduce.pictures import draw
from tests.pictures import drawn, faults


def chart(groups: int, logarithmic: bool) -> Chart:
    values = tuple(float(10 ** (group % 4) + 1) for group in range(groups))
    return Chart(
        name=f"c{groups}",
        title="Aggregation of a graph with a long name, width 256, int32; lines span what is assumed",
        machine="simulated: upmem_v1a, 1,992 cores at 350 MHz",
        unit="time, ms",
        groups=tuple(f"graph {group}\nof some kind" for group in range(groups)),
        series=(
            Series(label="baseline", values=(None, *values[1:])),
            Series(label="prior", values=values),
            Series(
                label="ours",
                values=values,
                low=(None, *values[1:]),
                high=(None, *(2 * v for v in values[1:])),
            ),
        ),
        logarithmic=logarithmic,
    )


@pytest.mark.parametrize("logarithmic", [True, False])
@pytest.mark.parametrize("groups", [1, 4, 9])
def test_every_chart_is_drawn_whole(tmp_path: Path, groups: int, logarithmic: bool) -> None:
    found = Reproduction(
        work="pygim",
        source="s",
        rows=(Row(figure="f", unit="x", note="n"),),
        charts=(chart(groups, logarithmic),),
    )
    with drawn() as figures:
        files = draw(found, tmp_path / "new")
    assert files == [tmp_path / "new" / f"pygim_c{groups}.png"]
    assert files[0].read_bytes().startswith(b"\x89PNG")
    (figure,) = figures
    assert faults(figure) == []
    (axes,) = figure.axes
    assert axes.get_yscale() == ("log" if logarithmic else "linear")
    # A value that is missing has no bar, an interval that is missing no line.
    assert len(axes.patches) == 3 * groups - 1
    colours = {patch.get_facecolor() for patch in axes.patches}
    assert len(colours) == (3 if groups > 1 else 2)
    lines = sum(len(each.get_segments()) for each in axes.collections)
    assert lines == groups - 1
    assert figure.get_figwidth() * 100 == 800
    assert min(each.get_fontsize() for each in axes.texts) >= pictures.SMALL_SIZE - 1


def test_a_group_without_bars_keeps_its_place_and_figures_stay_below_the_end_of_the_axis(
    tmp_path: Path,
) -> None:
    values = (None, 4000.0, 3.0, 2.0)
    series = tuple(Series(label=f"phase {number}", values=values) for number in range(5))
    empty = Chart(
        name="n", title="t", machine="m", unit="time, ms", groups=("a", "b", "c", "d"), series=series
    )
    found = Reproduction(
        work="pygim", source="s", rows=(Row(figure="f", unit="x", note="n"),), charts=(empty,)
    )
    with drawn() as figures:
        draw(found, tmp_path)
    (axes,) = figures[0].axes
    assert axes.get_xlim() == (-0.5, 3.5)
    assert [(text.get_text(), text.xy[0]) for text in axes.texts].count(("none", 0)) == 1
    end = axes.get_window_extent().y1
    assert max(text.get_window_extent().y1 for text in axes.texts) <= end
