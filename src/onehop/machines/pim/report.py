"""The report of a run on a near-bank machine."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from onehop import sizes
from onehop.machines.common.report import Report
from onehop.machines.common.trace import Trace
from onehop.plans.pim import PimPlan

PHASES = ("send", "broadcast", "kernel", "retrieve", "merge")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PimReport(Report):
    """Report of a run on a near-bank machine.

    The phases are: ``send``, data for single cores (arguments; features if a rank holds several clusters; the
    matrix if it is streamed); ``broadcast``, features that all cores of a rank share; ``kernel``;
    ``retrieve``, partial results to the host; ``merge``, adding them up on the host.

    Attributes:
        plan: The plan.
        dtype: Dtype of the features in the machine.
        accumulator: Dtype of the sums.
        utilisation: Operations per second in the kernel phase, divided by the machine's peak for the dtype,
            which the cores reach with arithmetic alone (:meth:`PimConfig.peak_gops`).
        utilisation_total: Operations per second over the whole run, divided by this peak.
        mram_bytes_max: Bytes of the bank of the core that needs most.
        wram_bytes_max: Bytes of working memory of the core that needs most.
        prepare_ns: Time of sending the matrix once per graph; not part of the total. 0 if every call sends
            it.
        core_busy_ns: [cores]: busy time of each core; empty in a summary.
        tasklet_busy_ns: [cores, tasklets]: time that each tasklet would take alone; empty in a summary.
        output_max_abs_error: Largest difference from the exact result in float64; None if not compared.
    """

    plan: PimPlan
    dtype: str
    accumulator: str
    utilisation: float
    utilisation_total: float
    mram_bytes_max: int
    wram_bytes_max: int
    prepare_ns: float
    core_busy_ns: np.ndarray = field(repr=False)
    tasklet_busy_ns: np.ndarray = field(repr=False)
    output_max_abs_error: float | None = None

    def summary(self) -> "PimReport":
        """Return a copy without timeline and busy times."""
        nothing = np.empty(0)
        return replace(self, timeline=Trace(), core_busy_ns=nothing, tasklet_busy_ns=nothing)

    def as_dict(self) -> dict[str, Any]:
        """Return everything except the timeline, ready for JSON: times in ms, energy in mJ."""
        # super() does not work here: the decorator of a class with slots creates a new class.
        content = Report.as_dict(self)
        content.update(
            utilisation=self.utilisation,
            utilisation_total=self.utilisation_total,
            mram_bytes_max=self.mram_bytes_max,
            wram_bytes_max=self.wram_bytes_max,
            plan=self.plan.to_dict(),
            output_max_abs_error=self.output_max_abs_error,
            dtype=self.dtype,
            accumulator=self.accumulator,
            prepare_ms=self.prepare_ns / 1e6,
        )
        if self.core_busy_ns.size:
            content["core_busy_ms"] = _spread(self.core_busy_ns)
            content["tasklet_busy_ms"] = _spread(self.tasklet_busy_ns)
        return content

    def table(self) -> str:
        """Return the report as lines of plain text."""
        # The operator is a word, so it belongs with the plan and not with the figures.
        figures = {key: value for key, value in self.figures.items() if key != "operator"}
        lines = [
            Report.table(replace(self, figures=figures)),
            "",
            *([f"operator     {self.figures['operator']}"] if "operator" in self.figures else []),
            f"plan         {self.plan}",
            f"types        {self.dtype} features, {self.accumulator} sums",
            f"utilisation  {100 * self.utilisation:.1f} % of peak in the kernel, "
            f"{100 * self.utilisation_total:.1f} % of the whole",
            f"memory       {sizes.readable(self.mram_bytes_max)} of a bank, "
            f"{sizes.readable(self.wram_bytes_max)} of working memory",
            f"once         {self.prepare_ns / 1e6:.4g} ms to send the matrix",
        ]
        if self.core_busy_ns.size:
            busy = _spread(self.core_busy_ns)
            lines.append(f"cores        busy {busy['mean']:.4g} ms on average, {busy['max']:.4g} ms at most")
        if self.output_max_abs_error is not None:
            lines.append(f"error        {self.output_max_abs_error:.3g} at most, against float64")
        return "\n".join(lines)


def _spread(times_ns: np.ndarray) -> dict[str, float]:
    return {
        "min": float(times_ns.min()) / 1e6,
        "mean": float(times_ns.mean()) / 1e6,
        "max": float(times_ns.max()) / 1e6,
    }
