"""What was measured on a GPU, as JSON, as a table and as pictures."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.gpu.correctness import Verdict
from benchmarks.gpu.floors import Floor
from benchmarks.gpu.grid import Case
from benchmarks.gpu.measure import Measured
from onehop import pictures
from onehop.bench.timing import Times
from onehop.tables import Column, Table

_OURS = "onehop"
# What PyG does with a plain edge_index.
_HOST = "gather-scatter"


@dataclass(frozen=True, slots=True)
class FloorFigures:
    """What the bytes of a pass take at the speed of a copy.

    Attributes:
        no_reuse_s: Every gathered row read from memory.
        compulsory_s: Every array read once.
    """

    no_reuse_s: float
    compulsory_s: float

    @classmethod
    def of(cls, floor: Floor, bytes_per_s: float) -> "FloorFigures":
        """Of a number of bytes."""
        return cls(floor.no_reuse / bytes_per_s, floor.compulsory / bytes_per_s)


@dataclass(frozen=True, slots=True)
class CaseFigures:
    """One operator on one graph.

    Attributes:
        case: Which.
        peers: What each took.
        forward_floor: Of the forward pass; None where no formula is kept.
        backward_floor: Likewise, of all gradients.
        wrong: What is wrong with onehop's results on this graph; then nobody was measured.
    """

    case: Case
    peers: tuple[Measured, ...]
    forward_floor: FloorFigures | None
    backward_floor: FloorFigures | None
    wrong: tuple[str, ...] = ()

    @property
    def ours(self) -> Measured:
        """Onehop's; without figures where its results are wrong."""
        return next((peer for peer in self.peers if peer.peer == _OURS), Measured(_OURS, failed="is wrong"))

    def floor_share(self, backward: bool) -> float | None:
        """The floor without reuse over onehop's time; None where a figure is missing.

        The time of the backward pass is what both take less what the forward pass does.
        """
        floor = self.backward_floor if backward else self.forward_floor
        forward, both = self.ours.forward, self.ours.both
        if floor is None or forward is None or both is None:
            return None
        seconds = both.median_s - forward.median_s if backward else forward.median_s
        return floor.no_reuse_s / seconds if seconds > 0 else None

    def best_peer_s(self, backward: bool) -> float | None:
        """The median of the fastest other; None where all others failed."""
        times = [
            found.median_s
            for peer in self.peers
            if peer.peer != _OURS and (found := peer.both if backward else peer.forward) is not None
        ]
        return min(times, default=None)

    def speedup(self, backward: bool = True) -> float | None:
        """How many times faster than the fastest other; None where a figure is missing."""
        own = self.ours.both if backward else self.ours.forward
        best = self.best_peer_s(backward)
        return None if own is None or best is None else best / own.median_s

    def memory_ratio(self) -> float | None:
        """Gather and scatter's peak memory over onehop's; None where a figure is missing."""
        host = next((peer.peak_bytes for peer in self.peers if peer.peer == _HOST), None)
        own = self.ours.peak_bytes
        return None if not host or not own else host / own

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            **asdict(self.case),
            "forward_floor": None if self.forward_floor is None else asdict(self.forward_floor),
            "backward_floor": None if self.backward_floor is None else asdict(self.backward_floor),
            "wrong": list(self.wrong),
            "peers": [
                {
                    "peer": peer.peer,
                    "forward": _kept(peer.forward),
                    "forward_and_backward": _kept(peer.both),
                    "peak_bytes": peer.peak_bytes,
                    "failed": peer.failed,
                    "absent": peer.absent,
                }
                for peer in self.peers
            ],
        }

    @classmethod
    def from_dict(cls, kept: dict[str, Any]) -> "CaseFigures":
        """What :meth:`to_dict` made."""
        return cls(
            case=Case(*(kept[field.name] for field in fields(Case))),
            peers=tuple(
                Measured(
                    peer["peer"],
                    _times_of(peer["forward"]),
                    _times_of(peer["forward_and_backward"]),
                    peer["peak_bytes"],
                    peer["failed"],
                    peer["absent"],
                )
                for peer in kept["peers"]
            ),
            forward_floor=_floor_of(kept["forward_floor"]),
            backward_floor=_floor_of(kept["backward_floor"]),
            wrong=tuple(kept["wrong"]),
        )


def document(
    verdicts: Sequence[Verdict],
    cases: Sequence[CaseFigures],
    copy_bytes_per_s: float,
    left_out: Sequence[str],
) -> dict[str, Any]:
    """Everything, ready for JSON."""
    return {
        "correctness": [
            {
                "operator": each.operator,
                "dtype": each.dtype,
                "of": each.of,
                "error": each.error,
                "allowed": each.allowed,
                "passes": each.passes,
            }
            for each in verdicts
        ],
        "copy_bytes_per_s": copy_bytes_per_s,
        "cases": [case.to_dict() for case in cases],
        "left_out": list(left_out),
    }


def table(cases: Sequence[CaseFigures]) -> str:
    """A line a case, in Markdown: milliseconds, and what they are held against."""
    return Table(_COLUMNS, cases).markdown() + "\n"


def plot(cases: Sequence[CaseFigures], machine: str, path: Path) -> None:
    """Bars: how many times faster than the fastest other, forward and with the backward pass."""
    names = [str(case.case) for case in cases]
    figure = pictures.figure(9, 1.7 + 0.3 * len(cases))
    axes = figure.subplots()
    for backward, colour, offset in ((False, pictures.ORANGE, 0.2), (True, pictures.BLUE, -0.2)):
        heights = [case.speedup(backward) or 0.0 for case in cases]
        places = [place + offset for place in range(len(cases))]
        axes.barh(places, heights, 0.4, color=colour, label="both passes" if backward else "forward")
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(range(len(cases)), names)
    axes.set_xlabel("the fastest other's time over onehop's")
    pictures.style(axes, "x")
    pictures.legend(figure, axes)
    pictures.save(figure, "Operators by graph, dtype, heads and width", machine, path)


def _kept(times: Times | None) -> dict[str, Any] | None:
    return None if times is None else {**times.to_dict(), "seconds": list(times.seconds)}


def _times_of(kept: dict[str, Any] | None) -> Times | None:
    return None if kept is None else Times(tuple(kept["seconds"]))


def _floor_of(kept: dict[str, float] | None) -> FloorFigures | None:
    return None if kept is None else FloorFigures(**kept)


def _without_figures(peers: Sequence[Measured]) -> Iterator[str]:
    for peer in peers:
        if peer.absent is not None:
            yield f"{peer.peer} (absent)"
        elif peer.failed is not None:
            yield f"{peer.peer} (failed)"


def _median_ms(times: Times | None) -> str:
    return _ms(times.median_s if times else None)


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3g}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


_COLUMNS = tuple(
    Column(title, field, left=True)
    for title, field in (
        ("graph", lambda each: each.case.graph),
        ("operator", lambda each: each.case.operator),
        ("dtype", lambda each: each.case.dtype),
        ("H x D", lambda each: f"{each.case.heads} x {each.case.width}"),
        ("forward ms", lambda each: _median_ms(each.ours.forward)),
        ("of no-reuse floor", lambda each: _percent(each.floor_share(False))),
        ("both ms", lambda each: _median_ms(each.ours.both)),
        ("backward, of its floor", lambda each: _percent(each.floor_share(True))),
        ("best other, both ms", lambda each: _ms(each.best_peer_s(True))),
        ("times faster", lambda each: _times(each.speedup())),
        ("times less memory", lambda each: _times(each.memory_ratio())),
        ("without figures", lambda each: ", ".join(_without_figures(each.peers))),
    )
)
