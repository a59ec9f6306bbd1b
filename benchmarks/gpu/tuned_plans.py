"""How far the untuned plans are from the tuned ones: the part "tuned" of ``python -m benchmarks.gpu``."""

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.gpu.graphs import graph_of
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


def compare(
    graphs: Sequence[str],
    operators: Sequence[str],
    dtypes: Sequence[torch.dtype],
    sizes: Sequence[tuple[int, int]],
    *,
    scale: float,
    device: torch.device,
    budget_s: float | None,
    deadline: float,
) -> Iterator[tuple[str, list[TunedFigures] | None]]:
    """Case by case, or None for one that there was no time for; nothing is kept on disk.

    Args:
        graphs: Names.
        operators: Those of the benchmark that can be tuned; others are passed over.
        dtypes: Of the features.
        sizes: Heads, and the width of each.
        scale: Of the graphs.
        device: Where; the interpreter's is the CPU.
        budget_s: Seconds for a case; None means the tuner's own.
        deadline: Of ``time.monotonic()``: no case is begun later.
    """
    for name in graphs:
        graph = None
        for operator in operators:
            if operator not in _OPS:
                continue
            op, reduce = _OPS[operator]
            for dtype in dtypes:
                for heads, width in sizes:
                    case = f"{name} {operator} {dtype} {heads}x{width}"
                    if time.monotonic() > deadline:
                        yield case, None
                        continue
                    if graph is None:
                        graph = graph_of(name, device, scale)
                    # Reductions see the columns of all heads together.
                    result = tune(
                        graph,
                        heads * width,
                        op,
                        reduce,
                        dtype=dtype,
                        budget_s=budget_s,
                        again=True,
                        keep=False,
                        device="cuda",
                        heads=heads if op != "aggregate" else 1,
                    )
                    yield case, [TunedFigures(name, entry) for entry in result.entries]


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
