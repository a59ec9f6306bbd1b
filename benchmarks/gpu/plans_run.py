"""What plans do on a GPU: ``python -m benchmarks.gpu tuned`` and ``python -m benchmarks.gpu orders``.

Results are checked first; what was done when the time is over is written down, what was not is named.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu import order_study, tuned_plans
from benchmarks.gpu.graphs import graph_of
from benchmarks.gpu.grid import Case
from benchmarks.gpu.options import DTYPES, checked, parser
from onehop.bench.results import write_json
from onehop.graph import Graph
from onehop.kernels.triton import availability

PARTS = ("tuned", "orders")
# Heads and width of each; reductions see H * D columns.
_SIZES = ((4, 64), (1, 64))
# Random graphs have no communities for an order to find; twins have, and roads have neighbours.
_GRAPHS = {
    "tuned": ("ogbn-arxiv", "pokec-regions", "city-roads-L", "twitch-views", "cora"),
    "orders": ("twin:arxiv-communities", "twin:reddit", "city-roads-L", "ogbn-arxiv"),
}
_OPERATORS = {
    "tuned": ("sum", "max", "gat", "gatv2", "attention"),
    "orders": ("sum", "gatv2", "attention"),
}


def main(part: str, arguments: Sequence[str] | None = None) -> int:
    """Returns 1 where a result is wrong, 2 where the kernels cannot run, else 0."""
    chosen = _parser(part).parse_args(arguments)
    reason = availability.missing()
    if reason is not None:
        sys.stdout.write(f"The GPU kernels cannot run here: triton {reason}.\n")
        return 2
    deadline = time.monotonic() + 60 * chosen.minutes
    device = availability.current()
    verdicts = checked(device, chosen.hub, chosen.dtypes)
    if any(not verdict.passes for verdict in verdicts):
        return 1
    chosen.out.mkdir(parents=True, exist_ok=True)
    table = tuned_plans.table if part == "tuned" else order_study.table
    figures: list[Any] = []
    left_out: list[str] = []
    for name, found in _figures(part, chosen, device, deadline):
        if found is None:
            left_out.append(name)
            continue
        figures += found
        rows = [line for line in table(found).splitlines()[2:] if line.startswith("|")]
        sys.stdout.write("\n".join(rows) + "\n")
        _write(part, chosen.out, device, figures, left_out, table)  # so that an interruption loses little
    _write(part, chosen.out, device, figures, left_out, table)
    if left_out:
        sys.stdout.write(f"out of time, not measured: {', '.join(left_out)}\n")
    return 0


def _figures(
    part: str, chosen: argparse.Namespace, device: torch.device, deadline: float
) -> Iterator[tuple[str, Any]]:
    """Case by case, or None for one that there was no time for."""
    made: tuple[str, Graph] | None = None
    for name, operator, of, (heads, width) in product(chosen.graphs, chosen.operators, chosen.dtypes, _SIZES):
        dtype = DTYPES[of]
        told = f"{name} {operator} {dtype} {heads}x{width}"
        if time.monotonic() > deadline:
            yield told, None
            continue
        if made is None or made[0] != name:
            made = name, graph_of(name, device, chosen.scale)
        case = Case(name, operator, of, heads, width)
        if part == "orders":
            yield told, order_study.study(made[1], case, dtype, device)
        else:
            yield told, tuned_plans.compare(made[1], case, dtype, chosen.budget)


def _parser(part: str) -> argparse.ArgumentParser:
    what = "untuned plans with tuned ones" if part == "tuned" else "orders of rows, for either mapping"
    made = parser(f"Compare {what} on a GPU.", f"benchmarks.gpu {part}")
    made.add_argument("--graphs", nargs="+", default=_GRAPHS[part], help="the benchmark's, or twin:NAME")
    made.add_argument("--operators", nargs="+", choices=_OPERATORS[part], default=_OPERATORS[part])
    if part == "tuned":
        made.add_argument("--budget", type=float, help="seconds for tuning a case; by default the tuner's")
    return made


def _write(
    part: str,
    folder: Path,
    device: torch.device,
    figures: Sequence[Any],
    left_out: Sequence[str],
    table: Callable[[Any], str],
) -> None:
    content = {
        "gpu": availability.machine(device),
        "cases": [each.to_dict() for each in figures],
        "left_out": list(left_out),
    }
    write_json(folder / f"gpu-{part}.json", f"gpu-{part}", content)
    (folder / f"gpu-{part}.md").write_text(table(figures))
