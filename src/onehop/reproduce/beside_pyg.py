"""Rows and pictures of times measured in turns under the patch and in other ways, first PyG alone."""

from collections.abc import Mapping

from onehop.bench.stamp import machine_line
from onehop.bench.timing import Compared
from onehop.bench.variants import ONEHOP, PYG
from onehop.reproduce import tables
from onehop.reproduce.tables import Chart, Row, number, spans


def row(figure: str, compared: Compared, remark: str, over: str = PYG.name, whose: str = "PyG") -> Row:
    """Return a row with another way's time divided by ours, and quartiles; or why it was not timed.

    The note calls the way ``over`` by the name ``whose``, has both medians, and ends with ``remark``.
    """
    ratio = compared.ratio(over, ONEHOP.name)
    if ratio is None:
        left = {**compared.skipped, **compared.wrong}
        reasons = "; ".join(left[name] for name in (over, ONEHOP.name) if name in left)
        return tables.row(figure, "x", f"Not timed: {reasons}.")
    ours, theirs = (number(compared.times[name].median_s * 1e3) for name in (ONEHOP.name, over))
    values = (ratio.median, ratio.lower_quartile, ratio.upper_quartile)
    return tables.row(figure, "x", f"{theirs} ms with {whose}, {ours} {remark}", values)


def charts(name: str, title: str, compared: Mapping[str, Compared]) -> tuple[Chart, ...]:
    """Return a chart of milliseconds by group, PyG and ours; no chart if nothing was timed."""
    timed = {group: each.times for group, each in compared.items() if each.ratio(PYG.name, ONEHOP.name)}
    if not timed:
        return ()
    ways = {"PyG (baseline)": PYG.name, "onehop": ONEHOP.name}
    by_way = {text: [times[way] for times in timed.values()] for text, way in ways.items()}
    chart = Chart(
        name=name,
        title=title,
        machine=machine_line(),
        unit="time, ms",
        groups=tuple(timed),
        series=spans(
            {
                text: [(each.median_s * 1e3, each.min_s * 1e3, max(each.seconds) * 1e3) for each in times]
                for text, times in by_way.items()
            }
        ),
        logarithmic=True,
    )
    return (chart,)
