"""The result of tuning: plans, the curve over widths, and the plot."""

import html
import json
import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onehop import native
from onehop.errors import ArgumentError
from onehop.kernels.triton import availability
from onehop.plans import CpuPlan, TritonPlan, gpu_tuned, store, tuned
from onehop.plans.cases import PlanCase
from onehop.plans.entry import Tuned
from onehop.tables import Column, Table
from onehop.tuner.curve import CurvePoint, draw

_COLUMNS = 100
# Keys of a curve point in JSON.
_OF_A_POINT = ("width", "tuned_s", "default_s", "torch_s", "predicted_s", "over_default", "over_torch")


@dataclass(frozen=True, slots=True, repr=False)
class TuningResult:
    """The result of :func:`onehop.tune`; printing it gives a line of at most 100 columns per plan.

    A notebook shows it as a table, with the full plans below.

    Attributes:
        op: The tuned operator.
        reduce: The operator's reduction.
        entries: A plan for each width and direction, forward before backward.
        machine: The machine, as returned by :func:`onehop.plans.store.machine` or, for a GPU, by
            :func:`onehop.kernels.triton.availability.machine`.
        seconds: Duration of tuning in seconds.

    Examples:
        >>> import onehop, torch
        >>> graph = onehop.Graph.from_edge_index(torch.tensor([[0, 0, 1], [1, 2, 2]]))
        >>> result = onehop.tune(graph, width=[4, 8], backward=False, budget_s=1.0, keep=False)
        >>> result.widths
        (4, 8)
        >>> point = result.curve[0]  # result.plot(path) draws all of them
        >>> point.width, point.predicted_s > 0
        (4, True)
    """

    op: str
    reduce: str
    entries: tuple[Tuned[Any], ...]
    machine: dict[str, Any]
    seconds: float

    @property
    def widths(self) -> tuple[int, ...]:
        """The widths, in the order of the request."""
        return tuple(dict.fromkeys(entry.case.width for entry in self.entries))

    @property
    def plans(self) -> dict[int, CpuPlan | TritonPlan]:
        """The forward plan of each width."""
        return {entry.case.width: entry.plan for entry in self.entries if not entry.case.backward}

    @property
    def plan(self) -> CpuPlan | TritonPlan:
        """The forward plan, if one width was tuned.

        Raises:
            ArgumentError: Several widths were tuned.
        """
        if len(self.widths) != 1:
            raise ArgumentError(
                f"plan: {len(self.widths)} widths were tuned; take plans[width], with one of "
                f"{', '.join(map(str, self.widths))}."
            )
        plan: CpuPlan | TritonPlan = self.entries[0].plan
        return plan

    @property
    def curve(self) -> tuple[CurvePoint, ...]:
        """The times by width; both directions are added up."""
        return tuple(self._point(width) for width in self.widths)

    def _point(self, width: int) -> CurvePoint:
        parts = [entry for entry in self.entries if entry.case.width == width]
        return CurvePoint(
            width,
            _total([entry.measured_s for entry in parts]),
            _total([entry.default_s for entry in parts]),
            _total([entry.baseline_s for entry in parts]),
            _total([entry.predicted_s for entry in parts]),
        )

    def suggested_widths(self, share: float = 0.9) -> tuple[int, ...]:
        """Return the best widths here: those with at least ``share`` of the highest columns per second."""
        rates = {p.width: p.width / p.tuned_s for p in self.curve if p.tuned_s}
        most = max(rates.values(), default=0.0)
        return tuple(width for width, rate in rates.items() if rate >= share * most)

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw the curve into a PNG, PDF or SVG file; needs matplotlib (``onehop[cli]``).

        A vertical line at each point joins the quartiles of the speed-up over the default plan.

        Raises:
            ArgumentError: Nothing was measured, or the file name does not end in .png, .pdf or .svg.
            ConfigurationError: matplotlib is not installed.
            StorageError: The file cannot be written.
        """
        case = self.entries[0].case
        # On GPUs the case gives the class of the graph; the figures are the graph's own.
        figures = self.entries[0].figures or case.graph
        directions = "forward and backward" if any(e.case.backward for e in self.entries) else "forward"
        if isinstance(case, PlanCase):
            where = f"{self.machine['processor']}, {native.threads()} threads, {case.isa}"
        else:
            where = case.device
        draw(
            Path(path),
            self.curve,
            self._spreads,
            suggested=self.suggested_widths(),
            edges=int(figures.split(" ")[2]),
            title=f"{self._what}, {directions}, {case.dtype}, on {figures.split(' degrees')[0]}",
            where=where,
        )

    @property
    def _what(self) -> str:
        return f"aggregate {self.reduce}" if self.op == "aggregate" else self.op

    @property
    def _spreads(self) -> dict[int, tuple[float, float]]:
        """Return quartiles of the speed-up over the default plan for widths with a single tuned direction."""
        spreads = {}
        for width in self.widths:
            parts = [entry for entry in self.entries if entry.case.width == width]
            if len(parts) == 1 and parts[0].quartiles is not None:
                spreads[width] = (parts[0].quartiles[0], parts[0].quartiles[2])
        return spreads

    def use(self) -> None:
        """Install the plans in this process, as :func:`onehop.tune` did when they were tuned.

        Raises:
            ArgumentError: The plans were tuned on another machine.
        """
        of_gpu = "gpu" in self.machine
        if of_gpu:
            reason = availability.missing()
            here = {"gpu": f"no GPU ({reason})"} if reason else availability.machine(availability.current())
        else:
            here = store.machine()
        if self.machine != here:
            kind = "gpu" if of_gpu else "processor"
            raise ArgumentError(
                f"result: tuned on {self.machine.get(kind, 'an unknown machine')}, and this is "
                f"{here[kind]}, or has other software: tune here with onehop.tune."
            )
        if of_gpu:
            gpu_tuned.install(list(self.entries), here, keep=False)
        else:
            tuned.install(list(self.entries), keep=False)

    def to_json(self) -> str:
        """Return the whole result as a JSON object."""
        return json.dumps(
            {
                "op": self.op,
                "reduce": self.reduce,
                "machine": self.machine,
                "seconds": self.seconds,
                "entries": [entry.to_dict() for entry in self.entries],
                "curve": [{key: getattr(point, key) for key in _OF_A_POINT} for point in self.curve],
            },
            indent=2,
        )

    @property
    def confirmed(self) -> tuple[Tuned[Any], ...]:
        """The entries whose plan was measured against the default plan; only these are used."""
        return tuple(entry for entry in self.entries if entry.measured_s is not None)

    @classmethod
    def from_json(cls, text: str) -> "TuningResult":
        """Return the result that :meth:`to_json` wrote.

        Raises:
            ArgumentError: The text is not JSON, or not a tuning result.
        """
        try:
            values = json.loads(text)
            entries = tuple(Tuned.from_dict(entry) for entry in values["entries"])
            return cls(values["op"], values["reduce"], entries, values["machine"], values["seconds"])
        except (ValueError, RecursionError) as error:
            if isinstance(error, ArgumentError):
                raise
            raise ArgumentError(f"result: not JSON ({error}).") from error
        except (KeyError, TypeError) as error:
            raise ArgumentError(f"result: not a tuning result ({error}).") from error

    def __repr__(self) -> str:
        """Return one line that says what was tuned."""
        widths = f"width {self.widths[0]}" if len(self.widths) == 1 else f"{len(self.widths)} widths"
        confirmed = f"{len(self.confirmed)} of {len(self.entries)} plans confirmed"
        return f"TuningResult({self._what}, {widths}, {confirmed}, {self.seconds:.1f} s)"

    def __str__(self) -> str:
        """Return a line for each plan: its gain and its times."""
        lines = []
        for entry in self.entries:
            lines.append(f"{_case(entry)}: {_verdict(entry)}{_times(entry)}")
            if entry.ordering_s:
                lines.append(f"  {_order(entry)}")
            if entry.codegen:
                lines += textwrap.wrap(entry.codegen, _COLUMNS, initial_indent="  ", subsequent_indent="  ")
        return "\n".join(lines)

    def details(self) -> str:
        """Return every plan in full, with its predicted and measured times, and the baselines' times."""
        return "\n".join(f"{_case(entry)}: {entry}" for entry in self.entries)

    def _repr_html_(self) -> str:
        """Return a table for notebooks, with the plans in full below it."""
        plans = f"<details><summary>plans</summary><pre>{html.escape(self.details())}</pre></details>"
        return Table(_TABLE, self.entries)._repr_html_() + plans


def _total(parts: Sequence[float | None]) -> float | None:
    numbers = [part for part in parts if part is not None]
    return sum(numbers) if parts and len(numbers) == len(parts) else None


def _case(entry: Tuned[Any]) -> str:
    return f"width {entry.case.width}, {_direction(entry)}"


def _direction(entry: Tuned[Any]) -> str:
    return "backward" if entry.case.backward else "forward"


def _order(entry: Tuned[Any]) -> str:
    return (
        f"its order {entry.plan.ordering!r} takes {entry.ordering_s:.2f} s to make, "
        f"and has paid for itself after {entry.break_even} calls"
    )


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.3g}"


def _times(entry: Tuned[Any]) -> str:
    """Return the times in brackets; empty if the plan was not measured."""
    if entry.measured_s is None:
        return ""
    others = (("was", entry.default_s), ("torch CSR", entry.baseline_s))
    texts = [f"{what} {_ms(seconds)} ms" for what, seconds in others if seconds is not None]
    return f" ({', '.join([f'{_ms(entry.measured_s)} ms', *texts])})"


def _verdict(entry: Tuned[Any]) -> str:
    """Return the outcome of a plan, in a few words."""
    if entry.measured_s is None:
        return "not measured for long enough, so the default plan is used"
    return f"{entry.speedup:.2f}x the default plan" if entry.speedup else "measured"


def _plan(entry: Tuned[Any]) -> str:
    return _verdict(entry) + (f"; {_order(entry)}" if entry.ordering_s else "")


_TABLE = (
    Column("width", lambda entry: entry.case.width, left=True),
    Column("direction", _direction, left=True),
    Column("plan", _plan, left=True),
    Column("ms", "measured_s", _ms, absent=_ms(None), left=True),
    Column("default plan, ms", "default_s", _ms, absent=_ms(None), left=True),
    Column("torch CSR, ms", "baseline_s", _ms, absent=_ms(None), left=True),
)


class TuningInterrupted(KeyboardInterrupt):
    """Raised when tuning is interrupted; confirmed results are kept.

    Args:
        result: The results so far.
        on_disk: Whether the results are also kept for later processes.

    Attributes:
        result: The confirmed results.
    """

    def __init__(self, result: TuningResult, on_disk: bool) -> None:
        confirmed = result.confirmed
        self.result = TuningResult(result.op, result.reduce, confirmed, result.machine, result.seconds)
        if confirmed:
            state = "kept" if on_disk else "used until this process ends"
            plans = "plan was" if len(confirmed) == 1 else "plans were"
            outcome = (
                f"{len(confirmed)} {plans} confirmed and {'is' if len(confirmed) == 1 else 'are'} {state}"
            )
        else:
            outcome = "no plan was confirmed, the default plans are used"
        super().__init__(f"onehop.tune: interrupted; {outcome}. Tune again to continue.")
