"""A plan that was tuned, and what it was chosen by: an entry of the store."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from onehop.errors import ArgumentError
from onehop.plans.cases import Case, GpuCase
from onehop.plans.cpu import MOST_NARROW_SOURCES, CpuPlan
from onehop.plans.triton import TritonPlan

P = TypeVar("P", bound=CpuPlan | TritonPlan)

# No call and no order takes so many seconds, no plan is so many times faster than another, and no case has so
# many columns, heads or threads.
_MOST_SECONDS, _MOST_RATIO, _MOST_COUNT = 1e9, 1e9, 1 << 31
_QUARTILES = 3


@dataclass(frozen=True, slots=True)
class Tuned(Generic[P]):
    """A plan, and what it was chosen by.

    Attributes:
        case: What it was tuned for.
        plan: The plan.
        predicted_s: What the cost model expects of a call; None on GPUs, of which there is no model.
        measured_s: Median of the calls of the last race against the default plan; None where it was not run,
            or not for long enough: such a plan is where the next search begins, and is not used before.
        default_s: The same for the default plan.
        baseline_s: The same for torch's sparse CSR; None where torch has no such operation, or it was not
            timed, as under ``patch(tune="auto")``, and on GPUs, where it is one of the plans.
        ordering_s: What computing the plan's order took; 0 without one.
        tried: How many plans were measured.
        finished: Whether the search came to its end, so that tuning again would find no more.
        codegen: What came of generating kernels, as a sentence; empty where nobody asked for that.
        raced: Whether generated kernels were measured.
        quartiles: Of how many times faster than the default plan it was, over the pairs of the last race:
            the lower one, the median and the upper one. None where it is the default plan, or was not raced.
        pairs: How many there were.
        figures: Of the graph that it was measured on, where the case tells them in classes: on other graphs
            of the class the plan is used without its order, which may do nothing for them.
    """

    case: Case | GpuCase
    plan: P
    predicted_s: float | None
    measured_s: float | None = None
    default_s: float | None = None
    baseline_s: float | None = None
    ordering_s: float = 0.0
    tried: int = 0
    finished: bool = True
    codegen: str = ""
    raced: bool = False
    quartiles: tuple[float, float, float] | None = None
    pairs: int = 0
    figures: str = ""

    @property
    def speedup(self) -> float | None:
        """How many times faster than the default plan: the median of pairs, where there were any."""
        if self.quartiles is not None:
            return self.quartiles[1]
        return self.default_s / self.measured_s if self.default_s and self.measured_s else None

    @property
    def break_even(self) -> int:
        """After how many calls the order of the plan has paid for itself; 0 without one."""
        if not self.ordering_s or not self.default_s or not self.measured_s:
            return 0
        saved = self.default_s - self.measured_s
        return int(self.ordering_s / saved) + 1 if saved > 0 else 1 << 30

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Any) -> "Tuned[Any]":
        """What :meth:`to_dict` wrote.

        Raises:
            ArgumentError: A field is missing, unknown, of another type, or has a value that none can have.
        """
        try:
            told = values["case"]
            case: Case | GpuCase
            plan: CpuPlan | TritonPlan
            if "device" in told:
                case, plan = GpuCase(**told), TritonPlan.from_dict(values["plan"])
            else:
                case, plan = Case(**told), CpuPlan.from_dict(values["plan"])
            _check_case(case, plan)
            _check_figures(values)
            quartiles = values.get("quartiles")
            own = {"case": case, "plan": plan, "quartiles": None if quartiles is None else tuple(quartiles)}
            return cls(**{**values, **own})
        except (TypeError, KeyError, RecursionError) as error:
            raise ArgumentError(f"tuned plan: a field is missing or unknown ({error}).") from error

    def __str__(self) -> str:
        """The plan, what was expected of it, what was measured, and beside what."""
        state = "not confirmed for" if self.measured_s is None else "tuned at"
        told = [f"{state} width {self.case.width}"]
        for what, seconds in (
            ("predicted", self.predicted_s),
            ("measured", self.measured_s),
            ("default plan", self.default_s),
            ("torch CSR", self.baseline_s),
        ):
            if seconds is not None:
                told.append(f"{what} {seconds * 1e3:.3g} ms")
        if self.quartiles is not None:
            low, _, high = self.quartiles
            told.append(
                f"{low:.2f} to {high:.2f} times as fast as the default plan in half of {self.pairs} pairs"
            )
        made = f"; {self.codegen}" if self.codegen else ""
        return f"{self.plan}, {', '.join(told)} (of {self.tried} plans measured{made})"


def _check_case(case: Case | GpuCase, plan: CpuPlan | TritonPlan) -> None:
    """Raises unless the plan can run what the case tells of."""
    for name in ("width", "threads" if isinstance(case, Case) else "heads"):
        if not 0 < getattr(case, name) < _MOST_COUNT:
            raise ArgumentError(f"tuned plan: {name}: expected at least 1, got {getattr(case, name)!r}.")
    num_src, num_dst, _ = case.sizes
    sources = num_dst if case.transposed else num_src
    if isinstance(plan, CpuPlan) and plan.index == "int16" and sources > MOST_NARROW_SOURCES:
        raise ArgumentError(f"tuned plan: numbers of 16 bits cannot name {sources} sources.")


def _check_figures(values: Mapping[str, Any]) -> None:
    """Raises unless what was measured is as :class:`Tuned` says; what is left out is not looked at."""
    for name in ("predicted_s", "measured_s", "default_s", "baseline_s", "ordering_s"):
        if name not in values or (values[name] is None and name != "ordering_s"):
            continue
        seconds = values[name]
        # A number that is none (NaN) is in no range.
        if type(seconds) not in (int, float) or not 0 <= seconds < _MOST_SECONDS:
            raise ArgumentError(f"tuned plan: {name}: expected seconds, 0 or more, got {seconds!r}.")
    quartiles = values.get("quartiles")
    if quartiles is not None and not (
        isinstance(quartiles, (list, tuple))
        and len(quartiles) == _QUARTILES
        and all(type(each) in (int, float) and 0 <= each < _MOST_RATIO for each in quartiles)
    ):
        raise ArgumentError(f"tuned plan: quartiles: expected three ratios or none, got {quartiles!r}.")
    kinds = {"tried": int, "finished": bool, "codegen": str, "raced": bool, "pairs": int, "figures": str}
    for name, kind in kinds.items():
        if name in values and type(values[name]) is not kind:
            raise ArgumentError(
                f"tuned plan: {name}: expected {kind.__name__}, got {type(values[name]).__name__}."
            )
