"""What was measured on a GPU, as JSON has it, as a table and as pictures.

A case has the fields of :class:`benchmarks.gpu.grid.Case`, and

- ``forward_floor``, ``backward_floor``: ``no_reuse_s`` and ``compulsory_s``, what the bytes of a pass take at
  the speed of a copy; None where no formula is kept;
- ``wrong``: what is wrong with onehop's results on this graph; then no peer was measured;
- ``peers``: what each took, as :func:`benchmarks.gpu.measure.measure` says.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from benchmarks.gpu.grid import Case
from onehop import pictures
from onehop.tables import Column, Table

Row = dict[str, Any]
_OURS = "onehop"
# What PyG does with a plain edge_index.
_HOST = "gather-scatter"


def case_of(found: Row) -> Case:
    """The point of the grid."""
    return Case(*(found[field.name] for field in fields(Case)))


def seconds_of(found: Row, peer: str, backward: bool) -> float | None:
    """A peer's median, of the forward pass or of both; None where it has none."""
    times = _peer(found, peer).get("forward_and_backward" if backward else "forward")
    return None if times is None else float(times["median_s"])


def floor_share(found: Row, backward: bool) -> float | None:
    """The floor without reuse over onehop's time; None where a figure is missing.

    The time of the backward pass is what both take less what the forward pass does.
    """
    floor = found["backward_floor" if backward else "forward_floor"]
    forward, both = (seconds_of(found, _OURS, passes) for passes in (False, True))
    if floor is None or forward is None or both is None:
        return None
    seconds = both - forward if backward else forward
    return float(floor["no_reuse_s"]) / seconds if seconds > 0 else None


def best_other_s(found: Row, backward: bool) -> float | None:
    """The median of the fastest other; None where all others failed."""
    others = (seconds_of(found, each["peer"], backward) for each in found["peers"] if each["peer"] != _OURS)
    return min((seconds for seconds in others if seconds is not None), default=None)


def speedup(found: Row, backward: bool = True) -> float | None:
    """How many times faster than the fastest other; None where a figure is missing."""
    own, best = seconds_of(found, _OURS, backward), best_other_s(found, backward)
    return None if own is None or best is None else best / own


def memory_ratio(found: Row) -> float | None:
    """Gather and scatter's peak memory over onehop's; None where a figure is missing."""
    host, own = (_peer(found, name).get("peak_bytes") for name in (_HOST, _OURS))
    return None if not host or not own else float(host / own)


def table(cases: Sequence[Row]) -> str:
    """A line a case, in Markdown: milliseconds, and what they are held against."""
    return Table(_COLUMNS, cases).markdown() + "\n"


def plot(cases: Sequence[Row], machine: str, path: Path) -> None:
    """Bars: how many times faster than the fastest other, forward and with the backward pass."""
    names = [str(case_of(found)) for found in cases]
    figure = pictures.figure(9, 1.7 + 0.3 * len(cases))
    axes = figure.subplots()
    for backward, colour, offset in ((False, pictures.ORANGE, 0.2), (True, pictures.BLUE, -0.2)):
        heights = [speedup(found, backward) or 0.0 for found in cases]
        places = [place + offset for place in range(len(cases))]
        axes.barh(places, heights, 0.4, color=colour, label="both passes" if backward else "forward")
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(range(len(cases)), names)
    axes.set_xlabel("the fastest other's time over onehop's")
    pictures.style(axes, "x")
    pictures.legend(figure, axes)
    pictures.save(figure, "Operators by graph, dtype, heads and width", machine, path)


def _peer(found: Row, name: str) -> Row:
    """What a peer took; empty where no peer was measured."""
    return next((peer for peer in found["peers"] if peer["peer"] == name), {})


def _without_figures(found: Row) -> Iterator[str]:
    for peer in found["peers"]:
        for reason in ("absent", "failed"):
            if peer[reason] is not None:
                yield f"{peer['peer']} ({reason})"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g}"


_COLUMNS = (
    *(Column(name, name, left=True) for name in ("graph", "operator", "dtype")),
    Column("H x D", lambda each: f"{each['heads']} x {each['width']}", left=True),
    Column("forward ms", lambda each: seconds_of(each, _OURS, False), _ms, left=True),
    Column("of no-reuse floor", lambda each: floor_share(each, False), "{:.0%}", left=True),
    Column("both ms", lambda each: seconds_of(each, _OURS, True), _ms, left=True),
    Column("backward, of its floor", lambda each: floor_share(each, True), "{:.0%}", left=True),
    Column("best other, both ms", lambda each: best_other_s(each, True), _ms, left=True),
    Column("times faster", speedup, "{:.2f}", left=True),
    Column("times less memory", memory_ratio, "{:.2f}", left=True),
    Column("without figures", lambda each: ", ".join(_without_figures(each)), left=True),
)
