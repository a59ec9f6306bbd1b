"""Checks and measures the GPU kernels: ``python -m benchmarks.gpu``.

Everything is generated on the spot. A case is checked on the graph and at the width that are timed, and not
timed if it is wrong. What was done when the time is over is written down; what was not is named, and
``--resume`` goes on with it.
"""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path

import torch

from benchmarks.gpu import report
from benchmarks.gpu.floors import Floor
from benchmarks.gpu.graphs import GRAPHS, edge_index_of
from benchmarks.gpu.grid import Case, grid
from benchmarks.gpu.measure import copy_bytes_per_s, measure
from benchmarks.gpu.operators import OPERATORS, Size
from benchmarks.gpu.options import DTYPES, can_run, checked, parser, until
from benchmarks.gpu.peers import Peers
from benchmarks.gpu.report import Row
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
    made = parser("Check and measure the GPU kernels of onehop.", "benchmarks.gpu")
    made.add_argument("--graphs", nargs="+", choices=list(GRAPHS), default=list(GRAPHS))
    made.add_argument("--operators", nargs="+", choices=list(OPERATORS), default=list(_MEASURED))
    made.add_argument(
        "--resume", action="store_true", help="keep the cases that --out has, measure the others"
    )
    chosen = made.parse_args(arguments)
    if not can_run():
        return 2
    device = torch.device("cpu" if availability.interpreted() else "cuda")
    deadline = time.monotonic() + 60 * chosen.minutes
    chosen.out.mkdir(parents=True, exist_ok=True)
    verdicts = checked(device, chosen.hub, chosen.dtypes)
    wrong = any(not verdict.passes for verdict in verdicts)
    speed = copy_bytes_per_s(device, _SMALL_COPY) if device.type == "cpu" else copy_bytes_per_s(device)
    cases = _done(chosen.out) if chosen.resume else []
    left_out: list[str] = []
    content: Row = {
        "correctness": [{**asdict(each), "passes": each.passes} for each in verdicts],
        "copy_bytes_per_s": speed,
        "cases": cases,
        "left_out": left_out,
    }
    if torch.cuda.is_available():
        content["gpu"] = torch.cuda.get_device_name()

    @cache
    def peers_of(graph: str) -> Peers:
        compiles = device.type == "cuda" and graph == _COMPILED
        return Peers(*edge_index_of(graph, device, chosen.scale), compiles)

    def figures_of(case: Case) -> Row:
        return _figures_of(case, peers_of(case.graph), device, speed)

    done = [report.case_of(each) for each in cases]
    wanted = [case for case in grid(chosen.graphs, chosen.operators, chosen.dtypes) if case not in done]
    for case, found in until(deadline, () if wrong else wanted, figures_of):
        if found is None:
            left_out.append(str(case))
            continue
        cases.append(found)
        sys.stdout.write(_line(case, found))
        _write(chosen.out, content)  # so that an interruption loses little
    _write(chosen.out, content)
    if cases:
        machine = torch.cuda.get_device_name() if device.type == "cuda" else "interpreted on the CPU"
        report.plot(cases, machine, chosen.out / "gpu.png")
    if left_out:
        sys.stdout.write(
            f"Out of time after {len(cases)} cases; {len(left_out)} are not measured, from {left_out[0]} on: "
            "gpu.json names them.\n"
        )
    return 1 if wrong or any(each["wrong"] for each in cases) else 0


def _done(folder: Path) -> list[Row]:
    """The cases of an earlier run; none where there was none."""
    kept = folder / "gpu.json"
    return list(json.loads(kept.read_text())["cases"]) if kept.exists() else []


def _figures_of(case: Case, peers: Peers, device: torch.device, speed: float) -> Row:
    """A case as :mod:`benchmarks.gpu.report` has it."""
    operator, dtype = OPERATORS[case.operator], DTYPES[case.dtype]
    size = Size(peers.nodes, peers.graph.num_edges, case.heads, case.width)
    inputs = operator.inputs(size, dtype, device)
    part = part_of(peers.edge_index, peers.nodes)
    verdicts = judge_part(operator, operator.ours(peers.graph, inputs), inputs, part, case.dtype)
    del inputs  # the peers' need the room
    wrong = [str(each) for each in verdicts if not each.passes]

    def seconds(floor: Floor) -> dict[str, float]:
        return {f"{name}_s": moved / speed for name, moved in asdict(floor).items()}

    floors = operator.floors
    return {
        **asdict(case),
        "forward_floor": floors and seconds(floors.forward(size, dtype.itemsize)),
        "backward_floor": floors and seconds(floors.backward(size, dtype.itemsize)),
        "wrong": wrong,
        "peers": [] if wrong else list(measure(peers, operator, size, dtype, device)),
    }


def _line(case: Case, found: Row) -> str:
    if found["wrong"]:
        return f"wrong: {case}, {'; '.join(found['wrong'])}\n"
    return report.table([found]).splitlines()[-1] + "\n"


def _write(folder: Path, content: Row) -> None:
    write_json(folder / "gpu.json", "gpu", content)
    (folder / "gpu.md").write_text(report.table(content["cases"]))
