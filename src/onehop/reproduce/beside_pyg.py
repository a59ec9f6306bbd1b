"""Rows and pictures of what was timed in turns with PyG alone and under the patch."""

from onehop.bench.stamp import machine_line
from onehop.bench.timing import Ratio, Times
from onehop.bench.variants import ONEHOP, PYG
from onehop.reproduce.rows import Chart, Row, Series
from onehop.reproduce.tables import number

# A pair of times, by name of the variant: PYG and ONEHOP.
Pair = dict[str, Times]


def row(figure: str, times: Pair, remark: str) -> Row:
    """PyG's time over ours, and the quartiles of the rounds.

    Args:
        figure: Name of the figure.
        times: Times of both.
        remark: What stands behind both medians in the note.
    """
    ratio = Ratio.of(times[PYG.name], times[ONEHOP.name])
    ours, theirs = (times[name].median_s * 1e3 for name in (ONEHOP.name, PYG.name))
    return Row(
        figure=figure,
        ours=ratio.median,
        low=min(ratio.lower_quartile, ratio.median),
        high=max(ratio.upper_quartile, ratio.median),
        unit="x",
        note=f"{number(theirs)} ms with PyG, {number(ours)} {remark}",
    )


def chart(name: str, title: str, times: dict[str, Pair]) -> Chart:
    """Milliseconds, PyG beside ours.

    Args:
        name: Stem of the file's name.
        title: Quantity, graphs, width.
        times: Times of both, by label along the axis.
    """
    return Chart(
        name=name,
        title=title,
        machine=machine_line(),
        unit="time, ms",
        groups=tuple(times),
        series=tuple(
            Series(
                label=text,
                values=tuple(pair[variant].median_s * 1e3 for pair in times.values()),
                low=tuple(min(pair[variant].seconds) * 1e3 for pair in times.values()),
                high=tuple(max(pair[variant].seconds) * 1e3 for pair in times.values()),
            )
            for text, variant in (("PyG (baseline)", PYG.name), ("onehop", ONEHOP.name))
        ),
        logarithmic=True,
    )
