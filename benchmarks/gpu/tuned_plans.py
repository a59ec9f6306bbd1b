"""How far the untuned plans are from the tuned ones: the part "tuned" of ``python -m benchmarks.gpu``."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.gpu.grid import Case
from onehop.graph import Graph
from onehop.plans.entry import Tuned
from onehop.tuner import tune

# What the untuned plan may take, at most, in tuned ones.
GOAL = 1.2
# What `tune` calls an operator.
_OPS = {
    "sum": ("aggregate", "sum"),
    "mean": ("aggregate", "mean"),
    "max": ("aggregate", "max"),
    "min": ("aggregate", "min"),
    "gat": ("gat", "sum"),
    "gatv2": ("gatv2", "sum"),
    "attention": ("attention", "sum"),
}


@dataclass(frozen=True, slots=True)
class TunedFigures:
    """One direction of one operator on one graph.

    Attributes:
        graph: Its name.
        entry: What the tuner found.
    """

    graph: str
    entry: Tuned[Any]

    @property
    def behind(self) -> float | None:
        """The default plan's time in times of the tuned; None where the last race was not run."""
        return self.entry.speedup

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "graph": self.graph,
            **self.entry.to_dict(),
            "behind": self.behind,
            "break_even_runs": self.entry.break_even,
        }


def compare(graph: Graph, case: Case, dtype: torch.dtype, budget_s: float | None) -> list[TunedFigures]:
    """One case, tuned; nothing is kept on disk.

    Args:
        graph: The graph of the case.
        case: Its operator can be tuned.
        dtype: That of the case.
        budget_s: Seconds; None means the tuner's own.
    """
    op, reduce = _OPS[case.operator]
    result = tune(
        graph,
        case.heads * case.width,  # reductions see the columns of all heads together
        op,
        reduce,
        dtype=dtype,
        budget_s=budget_s,
        again=True,
        keep=False,
        device="cuda",
        heads=case.heads if op != "aggregate" else 1,
    )
    return [TunedFigures(case.graph, entry) for entry in result.entries]


def table(figures: Sequence[TunedFigures]) -> str:
    """A line an entry, in Markdown, and how many reach the goal."""
    lines = [
        "| graph | operation | dtype | width | heads | default ms | tuned ms | default / tuned | plan |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for each in figures:
        entry, case = each.entry, each.entry.case
        told = (
            each.graph,
            case.operation + (" transposed" if case.transposed else ""),
            case.dtype,
            str(case.width),
            str(getattr(case, "heads", 1)),
            _ms(entry.default_s),
            _ms(entry.measured_s),
            "" if each.behind is None else f"{each.behind:.2f}",
            str(entry.plan),
        )
        lines.append(f"| {' | '.join(told)} |")
    known = [each.behind for each in figures if each.behind is not None]
    if known:
        within = sum(behind <= GOAL for behind in known)
        lines += [
            "",
            f"{within} of {len(known)} default plans are within {GOAL - 1:.0%} of the tuned; geometric mean "
            f"{statistics.geometric_mean(known):.2f}, worst {max(known):.2f}.",
        ]
    return "\n".join(lines) + "\n"


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3g}"
