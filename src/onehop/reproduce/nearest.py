"""The one configuration that is nearest to all headline figures of a work, and what each unknown moves."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from onehop.errors import ArgumentError
from onehop.reproduce.intervals import SEPARATOR, Setting, Unknown
from onehop.reproduce.tables import number
from onehop.reproduce.twins import Progress, silent
from onehop.tables import Column, Table, titled

Values = tuple[float, ...]
# Number of configurations at which half of the search's progress is shown.
_MANY = 25
# The figures of a work by setting, in the order of its targets.
ValuesOf = Callable[[Setting], Values]


@dataclass(frozen=True, slots=True)
class Target:
    """A published figure that the configuration should meet.

    Attributes:
        figure: The figure's name, as in the work's rows.
        paper: The published value.
        group: Figures of one group are also fitted alone.
    """

    figure: str
    paper: float
    group: str


@dataclass(frozen=True, slots=True)
class Move:
    """One unknown moved alone from the nearest configuration.

    Attributes:
        unknown: The unknown.
        label: Its new value.
        values: The figures there.
    """

    unknown: Unknown
    label: str
    values: Values


@dataclass(frozen=True)
class Fit:
    """The nearest configuration of a work.

    Attributes:
        work: The work's name on the command line.
        machine: The simulated machine, and the graphs.
        targets: The published figures.
        unknowns: What the work does not publish.
        setting: The nearest configuration: what differs from the base.
        values: The figures there.
        moves: Each other value of each unknown, moved alone.
        alone: By group of figures, the configuration that is nearest to them alone, and its largest error.
        tried: Number of configurations that were computed.
        remark: A sentence on figures that are not among the targets, or on a negative result.
    """

    work: str
    machine: str
    targets: tuple[Target, ...]
    unknowns: tuple[Unknown, ...]
    setting: Setting
    values: Values
    moves: tuple[Move, ...]
    alone: dict[str, tuple[Setting, float]]
    tried: int
    remark: str = ""

    @property
    def errors(self) -> Values:
        """Each figure's distance from the published value, relative to the published value."""
        return _errors(self.targets, self.values)

    @property
    def largest_error(self) -> float:
        """The largest of :attr:`errors`."""
        return max(self.errors)

    @cached_property
    def widest(self) -> Move:
        """The move that changes a figure most."""
        return max(self.moves, key=lambda move: max(abs(each) for each in self.changes(move)))

    def changes(self, move: Move) -> Values:
        """Return the relative change of each figure by a move."""
        return tuple(there / here - 1 for here, there in zip(self.values, move.values, strict=True))

    @property
    def summary(self) -> str:
        """Sentences on the result: the errors, the most important unknown, and the remark."""
        changes = self.changes(self.widest)
        most = max(range(len(changes)), key=lambda at: abs(changes[at]))
        alone = ", and ".join(
            f"{group} within {100 * error:.0f} % ({SEPARATOR.join(sorted(setting)) or 'the base'})"
            for group, (setting, error) in self.alone.items()
        )
        sentences = [
            f"One configuration meets {len(self.targets)} published figures within "
            f"{100 * self.largest_error:.0f} %.",
            f"Fitted alone: {alone}." if len(self.alone) > 1 else "",
            f"The largest unknown is {self.widest.unknown.name}: moved alone from "
            f"{self.chosen(self.widest.unknown)} to {self.widest.label}, it changes "
            f"{self.targets[most].figure} by {100 * changes[most]:+.0f} %. It would be settled by "
            f"{self.widest.unknown.settled_by}.",
            self.remark,
        ]
        return " ".join(sentence for sentence in sentences if sentence)

    def chosen(self, unknown: Unknown) -> str:
        """Return the value of an unknown in the nearest configuration."""
        return next((label for label in unknown.others if label in self.setting), unknown.base)

    def as_dict(self) -> dict[str, Any]:
        """Return the fit, ready for JSON."""
        return {
            "work": self.work,
            "machine": self.machine,
            "summary": self.summary,
            "largest_error": self.largest_error,
            "alone": {
                group: {"largest_error": error, "setting": sorted(setting)}
                for group, (setting, error) in self.alone.items()
            },
            "tried": self.tried,
            "constants": [{"unknown": each.as_dict(), "value": self.chosen(each)} for each in self.unknowns],
            "figures": [
                {"figure": target.figure, "paper": target.paper, "ours": ours, "error": error}
                for target, ours, error in zip(self.targets, self.values, self.errors, strict=True)
            ],
            "tornado": [
                {
                    "unknown": move.unknown.name,
                    "from": self.chosen(move.unknown),
                    "to": move.label,
                    "ours": list(move.values),
                    "changes": list(self.changes(move)),
                    "largest_error": max(_errors(self.targets, move.values)),
                }
                for move in self.moves
            ],
        }

    def tables(self) -> tuple[Table, Table, Table]:
        """Return tables of the constants, the figures and the tornado."""
        constants = [(each.name, self.chosen(each), each.source) for each in self.unknowns]
        figures = list(enumerate(zip(self.targets, self.values, self.errors, strict=True), 1))
        changes = [
            Column(str(at + 1), partial(_change, self, at), _percent) for at in range(len(self.targets))
        ]
        return (
            Table(titled(("unknown", "nearest", "source"), left=3), constants, "The nearest configuration"),
            Table(_FIGURES, figures, "Its figures"),
            Table(
                (
                    Column("unknown", lambda move: move.unknown.name, left=True),
                    Column("from", lambda move: self.chosen(move.unknown), left=True),
                    Column("to", "label", left=True),
                    *changes,
                    Column("largest error", lambda move: max(_errors(self.targets, move.values)), "{:.0%}"),
                ),
                self.moves,
                "Each unknown moved alone: change of each figure, in percent",
            ),
        )


_FIGURES = (
    Column("no.", 0),
    Column("figure", lambda line: line[1][0].figure, left=True),
    Column("paper", lambda line: line[1][0].paper, number),
    Column("ours", lambda line: line[1][1], number),
    Column("error", lambda line: line[1][2], "{:.0%}"),
)


def _change(fit: Fit, at: int, move: Move) -> float:
    return fit.changes(move)[at]


def _percent(change: float) -> str:
    return f"{100 * change:+.0f}"


def _errors(targets: Sequence[Target], values: Values) -> Values:
    return tuple(abs(ours / target.paper - 1) for target, ours in zip(targets, values, strict=True))


def nearest(
    work: str,
    machine: str,
    targets: Sequence[Target],
    unknowns: Sequence[Unknown],
    values_of: ValuesOf,
    starts: Iterable[Setting],
    remark: str = "",
    progress: Progress = silent,
    searches: int = 1,
) -> Fit:
    """Return the configuration whose largest error over all figures is least.

    Each search begins at one of the best ``starts`` and moves one unknown at a time to the best value, until
    no single move is better.

    Args:
        work: See :class:`Fit`.
        machine: See :class:`Fit`.
        targets: See :class:`Fit`.
        unknowns: See :class:`Fit`.
        values_of: The figures at a setting, in the order of the targets; called once for each setting.
        starts: Settings to begin at.
        remark: See :class:`Fit`.
        progress: Called at each new setting. How many there will be is not known, so the share that is done
            grows ever more slowly.
        searches: Number of starts from which to search.

    Raises:
        ArgumentError: There are no targets or no starts.
    """
    begins = list(starts)
    if not targets or not begins:
        raise ArgumentError(f"fit of {work}: expected targets and starts, got {len(targets)}, {len(begins)}.")
    known: dict[Setting, Values] = {}

    def values(setting: Setting) -> Values:
        if setting not in known:
            progress(f"configuration {len(known) + 1}", 1 - 1 / (1 + len(known) / _MANY))
            known[setting] = values_of(setting)
        return known[setting]

    def best(wanted: Sequence[int]) -> Setting:
        def error(setting: Setting) -> float:
            errors = _errors(targets, values(setting))
            return max(errors[at] for at in wanted)

        def descend(here: Setting) -> Setting:
            while True:
                other = min((there for *_, there in _moves(here, unknowns)), key=error, default=here)
                if error(other) >= error(here):
                    return here
                here = other

        return min(map(descend, sorted(begins, key=error)[:searches]), key=error)

    groups: dict[str, list[int]] = {}
    for at, target in enumerate(targets):
        groups.setdefault(target.group, []).append(at)
    setting = best(range(len(targets)))
    alone = {}
    for group, wanted in groups.items():
        there = best(wanted)
        errors = _errors(targets, values(there))
        alone[group] = there, max(errors[at] for at in wanted)
    moves = [Move(unknown, label, values(there)) for unknown, label, there in _moves(setting, unknowns)]
    here = values(setting)

    def moved(move: Move) -> float:
        return max(abs(there / then - 1) for there, then in zip(move.values, here, strict=True))

    return Fit(
        work=work,
        machine=machine,
        targets=tuple(targets),
        unknowns=tuple(unknowns),
        setting=setting,
        values=here,
        # The unknowns that move figures most come first.
        moves=tuple(sorted(moves, key=moved, reverse=True)),
        alone=alone,
        tried=len(known),
        remark=remark,
    )


def _moves(setting: Setting, unknowns: Sequence[Unknown]) -> Iterable[tuple[Unknown, str, Setting]]:
    """Yield every unknown with each of its other values, and the setting with this value."""
    for unknown in unknowns:
        without = setting - set(unknown.others)
        if without != setting:
            yield unknown, unknown.base, without
        for label in unknown.others:
            if label not in setting:
                yield unknown, label, without | {label}
