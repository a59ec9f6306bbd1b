"""Rows and pictures of what was timed in turns under the patch and in other ways, first PyG's."""

from collections.abc import Mapping

from onehop.bench.stamp import machine_line
from onehop.bench.timing import Compared
from onehop.bench.variants import ONEHOP, PYG
from onehop.reproduce import tables
from onehop.reproduce.tables import Chart, Row, Series, number


def row(figure: str, found: Compared, remark: str, over: str = PYG.name, whose: str = "PyG") -> Row:
    """The time of another way over ours, and the quartiles of the rounds; or why they were not timed.

    Args:
        figure: Name of the figure.
        found: Times of both.
        remark: The end of the note, after both medians.
        over: Name of the other way.
        whose: What the note calls it.
    """
    ratio = found.ratio(over, ONEHOP.name)
    if ratio is None:
        left = {**found.skipped, **found.wrong}
        reasons = "; ".join(left[name] for name in (over, ONEHOP.name) if name in left)
        return tables.row(figure, "x", f"Not timed: {reasons}.")
    ours, theirs = (number(found.times[name].median_s * 1e3) for name in (ONEHOP.name, over))
    values = (ratio.median, ratio.lower_quartile, ratio.upper_quartile)
    return tables.row(figure, "x", f"{theirs} ms with {whose}, {ours} {remark}", values)


def charts(name: str, title: str, found: Mapping[str, Compared]) -> tuple[Chart, ...]:
    """Milliseconds, PyG beside ours; no chart where nothing was timed.

    Args:
        name: Stem of the file's name.
        title: Quantity, graphs, width.
        found: Times of both, by label along the axis.
    """
    timed = {group: each.times for group, each in found.items() if each.ratio(PYG.name, ONEHOP.name)}
    if not timed:
        return ()
    series = tuple(
        Series(
            label=text,
            values=tuple(times[variant].median_s * 1e3 for times in timed.values()),
            low=tuple(times[variant].min_s * 1e3 for times in timed.values()),
            high=tuple(max(times[variant].seconds) * 1e3 for times in timed.values()),
        )
        for text, variant in (("PyG (baseline)", PYG.name), ("onehop", ONEHOP.name))
    )
    chart = Chart(
        name=name,
        title=title,
        machine=machine_line(),
        unit="time, ms",
        groups=tuple(timed),
        series=series,
        logarithmic=True,
    )
    return (chart,)
