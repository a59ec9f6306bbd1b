"""A tuned plan with its measurements: an entry of the store."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from onehop.errors import ArgumentError
from onehop.plans.cases import GpuCase, PlanCase
from onehop.plans.cpu import CpuPlan
from onehop.plans.triton import TritonPlan

P = TypeVar("P", bound=CpuPlan | TritonPlan)

# Upper bounds of plausible values: seconds of a call or an order; speed-up of a plan; columns, heads and
# threads of a case.
_MOST_SECONDS, _MOST_RATIO, _MOST_COUNT = 1e9, 1e9, 1 << 31
_QUARTILES = 3


@dataclass(frozen=True, slots=True)
class Tuned(Generic[P]):
    """A plan, and the measurements that led to its choice.

    Attributes:
        case: The case for which the plan was tuned.
        plan: The plan.
        predicted_s: Prediction of the cost model for a call; None on GPUs, which have no model.
        measured_s: Median time of the plan's calls in the last race against the default plan. None if there
            was no race, or too short a race; the next search then starts from this plan, and the plan is not
            used before.
        default_s: Median time of the default plan's calls in this race.
        baseline_s: Median time of torch's sparse CSR. None if torch has no such operation; if it was not
            timed, as under ``patch(tune="auto")``; and on GPUs, where it is one of the plans.
        ordering_s: Time to compute the plan's order; 0 without an order.
        tried: Number of plans measured.
        finished: Whether the search finished, so that tuning again would find nothing more.
        codegen: Outcome of generating kernels, as a sentence; empty if it was not requested.
        raced: Whether generated kernels were measured.
        quartiles: Lower quartile, median and upper quartile of the speed-up over the default plan, over the
            pairs of the last race. None for the default plan itself, or without a race.
        pairs: Number of pairs in the last race.
        figures: Statistics of the measured graph, if the case has them in classes. On other graphs of the
            class, the plan is used without its order, which may not help them.
    """

    case: PlanCase | GpuCase
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
        """Speed-up over the default plan: the median over pairs if there are any."""
        if self.quartiles is not None:
            return self.quartiles[1]
        return self.default_s / self.measured_s if self.default_s and self.measured_s else None

    @property
    def break_even(self) -> int:
        """Number of calls after which the plan's order has paid for itself; 0 without an order."""
        if not self.ordering_s or not self.default_s or not self.measured_s:
            return 0
        saved = self.default_s - self.measured_s
        return int(self.ordering_s / saved) + 1 if saved > 0 else 1 << 30

    def to_dict(self) -> dict[str, Any]:
        """Return the entry, ready for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Any) -> "Tuned[Any]":
        """Return the entry that :meth:`to_dict` wrote.

        Raises:
            ArgumentError: A field is missing, unknown, of another type, or out of range.
        """
        try:
            case_fields = values["case"]
            case: PlanCase | GpuCase
            plan: CpuPlan | TritonPlan
            if "device" in case_fields:
                case, plan = GpuCase(**case_fields), TritonPlan.from_dict(values["plan"])
            else:
                case, plan = PlanCase(**case_fields), CpuPlan.from_dict(values["plan"])
            _check_case(case, plan)
            _check_figures(values)
            quartiles = values.get("quartiles")
            own = {"case": case, "plan": plan, "quartiles": None if quartiles is None else tuple(quartiles)}
            return cls(**{**values, **own})
        except (TypeError, KeyError, RecursionError) as error:
            raise ArgumentError(f"tuned plan: a field is missing or unknown ({error}).") from error

    def __str__(self) -> str:
        """Return the plan, its predicted and measured times, and the baselines' times as text."""
        state = "not confirmed for" if self.measured_s is None else "tuned at"
        parts = [f"{state} width {self.case.width}"]
        for what, seconds in (
            ("predicted", self.predicted_s),
            ("measured", self.measured_s),
            ("default plan", self.default_s),
            ("torch CSR", self.baseline_s),
        ):
            if seconds is not None:
                parts.append(f"{what} {seconds * 1e3:.3g} ms")
        if self.quartiles is not None:
            low, _, high = self.quartiles
            parts.append(
                f"{low:.2f} to {high:.2f} times as fast as the default plan in half of {self.pairs} pairs"
            )
        made = f"; {self.codegen}" if self.codegen else ""
        return f"{self.plan}, {', '.join(parts)} (of {self.tried} plans measured{made})"


def _check_case(case: PlanCase | GpuCase, plan: CpuPlan | TritonPlan) -> None:
    """Raise an error unless the plan can run the case."""
    for name in ("width", "threads" if isinstance(case, PlanCase) else "heads"):
        if not 0 < getattr(case, name) < _MOST_COUNT:
            raise ArgumentError(f"tuned plan: {name}: expected at least 1, got {getattr(case, name)!r}.")


def _check_figures(values: Mapping[str, Any]) -> None:
    """Raise an error unless the measurements are valid (:class:`Tuned`); omitted ones are not checked."""
    for name in ("predicted_s", "measured_s", "default_s", "baseline_s", "ordering_s"):
        if name not in values or (values[name] is None and name != "ordering_s"):
            continue
        seconds = values[name]
        # NaN is not in any range.
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
