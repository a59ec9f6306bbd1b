"""Checks and measures the GPU kernels: ``python -m benchmarks.gpu``.

Everything is generated on the spot. A case is checked on the graph and at the width that are timed, and not
timed if it is wrong. What was done when the time is over is written down; what was not is named, and
``--resume`` goes on with it.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from benchmarks.gpu import report
from benchmarks.gpu.correctness import Verdict
from benchmarks.gpu.graphs import GRAPHS, edge_index_of
from benchmarks.gpu.grid import Case, grid
from benchmarks.gpu.measure import copy_bytes_per_s, measure
from benchmarks.gpu.operators import OPERATORS, Size
from benchmarks.gpu.options import DTYPES, checked, parser
from benchmarks.gpu.peers import Peers
from benchmarks.gpu.report import CaseFigures, FloorFigures
from benchmarks.gpu.sampled import judge_part, part_of
from onehop.bench.results import write_json
from onehop.kernels.triton import availability

_MEASURED = ("gatv2", "attention", "sum", "max", "gat")
# The graph on which torch.compile takes part.
_COMPILED = "ogbn-arxiv"
# Without a GPU: what the interpreter can do in a few seconds.
_SMALL_COPY = 1 << 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 where a result is wrong, 2 where the kernels cannot run, else 0."""
    chosen = _parser().parse_args(arguments)
    device = torch.device("cpu" if availability.interpreted() else "cuda")
    reason = availability.missing()
    if reason is not None:
        sys.stdout.write(f"The GPU kernels cannot run here: triton {reason}.\n")
        return 2
    begin = time.monotonic()
    chosen.out.mkdir(parents=True, exist_ok=True)
    verdicts = checked(device, chosen.hub, chosen.dtypes)
    wrong = any(not verdict.passes for verdict in verdicts)
    speed = copy_bytes_per_s(device, _SMALL_COPY) if device.type == "cpu" else copy_bytes_per_s(device)
    cases = _done(chosen.out) if chosen.resume else []
    left_out: list[str] = []
    if not wrong:
        done = {each.case for each in cases}
        wanted = [case for case in grid(chosen.graphs, chosen.operators, chosen.dtypes) if case not in done]
        for case, found in _figures(wanted, chosen.scale, device, speed, begin + 60 * chosen.minutes):
            if found is None:
                left_out.append(str(case))
                continue
            cases.append(found)
            sys.stdout.write(_line(found))
            _write(chosen.out, verdicts, cases, speed, left_out)  # so that an interruption loses little
    _write(chosen.out, verdicts, cases, speed, left_out)
    wrong = wrong or any(each.wrong for each in cases)
    if cases:
        machine = torch.cuda.get_device_name() if device.type == "cuda" else "interpreted on the CPU"
        report.plot(cases, machine, chosen.out / "gpu.png")
    if left_out:
        sys.stdout.write(
            f"Out of time after {len(cases)} cases; {len(left_out)} are not measured, from {left_out[0]} on: "
            "gpu.json names them.\n"
        )
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    made = parser("Check and measure the GPU kernels of onehop.", "benchmarks.gpu")
    made.add_argument("--graphs", nargs="+", choices=list(GRAPHS), default=list(GRAPHS))
    made.add_argument("--operators", nargs="+", choices=list(OPERATORS), default=list(_MEASURED))
    made.add_argument(
        "--resume", action="store_true", help="keep the cases that --out has, measure the others"
    )
    return made


def _done(folder: Path) -> list[CaseFigures]:
    """The cases of an earlier run; none where there was none."""
    kept = folder / "gpu.json"
    if not kept.exists():
        return []
    return [CaseFigures.from_dict(each) for each in json.loads(kept.read_text())["cases"]]


def _figures(
    cases: Sequence[Case], scale: float, device: torch.device, speed: float, deadline: float
) -> Iterator[tuple[Case, CaseFigures | None]]:
    """Case by case, or None for one that there was no time for. Graphs are kept: each comes often."""
    graphs: dict[str, Peers] = {}
    for case in cases:
        if time.monotonic() > deadline:
            yield case, None
            continue
        if case.graph not in graphs:
            compiles = device.type == "cuda" and case.graph == _COMPILED
            graphs[case.graph] = Peers(*edge_index_of(case.graph, device, scale), compiles)
        yield case, _figures_of(case, graphs[case.graph], device, speed)


def _figures_of(case: Case, peers: Peers, device: torch.device, speed: float) -> CaseFigures:
    operator, dtype = OPERATORS[case.operator], DTYPES[case.dtype]
    size = Size(peers.nodes, peers.graph.num_edges, case.heads, case.width)
    forward = backward = None
    if operator.floors is not None:
        forward = FloorFigures.of(operator.floors.forward(size, dtype.itemsize), speed)
        backward = FloorFigures.of(operator.floors.backward(size, dtype.itemsize), speed)
    inputs = operator.inputs(size, dtype, device)
    part = part_of(peers.edge_index, peers.nodes)
    verdicts = judge_part(operator, operator.ours(peers.graph, inputs), inputs, part, case.dtype)
    del inputs  # the peers' need the room
    wrong = tuple(
        f"{each.of}: error {each.error:.2g}, allowed {each.allowed:.2g}"
        for each in verdicts
        if not each.passes
    )
    return CaseFigures(
        case=case,
        peers=() if wrong else tuple(measure(peers, operator, size, dtype, device)),
        forward_floor=forward,
        backward_floor=backward,
        wrong=wrong,
    )


def _line(found: CaseFigures) -> str:
    if found.wrong:
        return f"wrong: {found.case}, {'; '.join(found.wrong)}\n"
    return report.table([found]).splitlines()[-1] + "\n"


def _write(
    folder: Path,
    verdicts: Sequence[Verdict],
    cases: Sequence[CaseFigures],
    speed: float,
    left_out: Sequence[str],
) -> None:
    content = report.document(verdicts, cases, speed, left_out)
    if torch.cuda.is_available():
        content["gpu"] = torch.cuda.get_device_name()
    write_json(folder / "gpu.json", "gpu", content)
    (folder / "gpu.md").write_text(report.table(cases))
