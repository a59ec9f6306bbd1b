"""Two versions of onehop beside each other and beside PyG: epochs of models and calls of operators, in turns.

    python -m benchmarks.versions.bench_versions --other ../before/.venv/bin/python [--no-pyg]
        [--graphs arxiv,reddit-mini] [--cases gcn:32,sum:128] [--rounds 7] [--threads N] [--json FILE]

``--other`` is the Python of an environment in which the other version is installed. Every version works in a
process of its own, which waits while the others have their turns, so that a slow moment of the machine meets
all alike. A case is a model and its hidden width, or an operator and the width of its features: ``sum`` and
``weighted``, ``max`` and ``min``, forward, and ``sum+grad``, forward and backward. ``gcn:64:1500`` is a model
on 1,500 of the graph's edges, which come as a new tensor each time, as mini-batches do. Beside sums, "PyG" is
torch's CSR product; extrema are measured with ``--no-pyg`` alone. Models have two layers without dropout, of
128 features, or of 3 for reddit-mini. The losses, or the sums of the results, must agree.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import Benchmark, Option, Options, Row
from onehop.bench import command, graphs
from onehop.bench.timing import Ratio, in_turns

SERVER = Path(__file__).with_name("server.py")
CASES = {
    "arxiv": "gcn:32,gcn:128,sage:32,sage:128,gin:32,gin:128,gat:128,gatv2:128,transformer:128,"
    "sum:32,sum:128,weighted:32,weighted:128,sum+grad:32,sum+grad:128,max:128,min:32,max+grad:128",
    "cora": "gcn:32,gat:32,sum:32",
    "reddit-mini": "sage-sum:32,sage:32,gin:32,sum:32,sum:128,weighted:32,weighted:128",
}
FEATURES = {"arxiv": 128, "reddit-mini": 3, "cora": 64}
TOLERANCE = 1e-3
# Threads of the process before must have stopped spinning.
PAUSE_S = 0.1


class Version:
    """A process that works with one version."""

    def __init__(self, python: str, pyg: bool = False) -> None:
        self._pyg = pyg
        self._process = subprocess.Popen(
            [python, str(SERVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def _ask(self, **request: Any) -> dict[str, Any]:
        pipes = self._process.stdin, self._process.stdout
        if pipes[0] is None or pipes[1] is None:
            raise RuntimeError("Popen gave no pipes.")
        print(json.dumps(request), file=pipes[0], flush=True)
        if not (line := pipes[1].readline()):
            raise SystemExit(f"A process stopped at {request}: its error stands above.")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def load(self, **request: Any) -> list[float]:
        """Prepares a case; returns the losses, or results, of its first calls."""
        values: list[float] = self._ask(do="load", pyg=self._pyg, **request)["values"]
        return values

    def turn(self) -> float:
        """Seconds of a call."""
        time.sleep(PAUSE_S)
        return float(self._ask(do="turn")["seconds"])

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()


def measured(versions: dict[str, Version], rounds: int, **case: Any) -> Row:
    """One case's times by version, and the ratios to this version."""
    values = {name: version.load(**case) for name, version in versions.items()}
    for name, found in values.items():
        torch.testing.assert_close(
            found, values["this"], rtol=TOLERANCE, atol=TOLERANCE, msg=f"{case}: {name}"
        )
    times = in_turns({name: version.turn for name, version in versions.items()}, rounds)
    ratios = {name: Ratio.of(times[name], times["this"]) for name in versions if name != "this"}
    return {
        "case": case["case"],
        "seconds": {name: taken.median_s for name, taken in times.items()},
        "over_this": {
            name: [ratio.median, ratio.lower_quartile, ratio.upper_quartile] for name, ratio in ratios.items()
        },
    }


def rows(options: Options) -> Iterator[Row]:
    """Measures every case."""
    if options.other is None:
        raise SystemExit("--other is needed: the Python of the other version's environment")
    with contextlib.ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        versions = {"this": Version(sys.executable), "other": Version(options.other)}
        if not options.no_pyg:
            versions["PyG"] = Version(sys.executable, pyg=True)
        for version in versions.values():
            stack.callback(version.close)
        for graph in options.graphs:
            edges = str(Path(folder) / f"{graph}.pt")
            torch.save(graphs.workload(graph).edge_index, edges)
            about = {"edges": edges, "threads": options.threads, "features": FEATURES[graph]}
            for case in options.cases or command.names(CASES[graph]):
                if options.no_pyg or not case.startswith(("max", "min")):
                    yield {"graph": graph, **measured(versions, options.rounds, case=case, **about)}


BENCHMARK = Benchmark(
    "benchmarks/versions/bench_versions.py",
    rows,
    "graph; case; this, ms | seconds/this | ms; other over this | over_this/other | gain; "
    "PyG over this | over_this/PyG | gain",
    {
        "other": Option(None, "the Python of the other version's environment"),
        "graphs": Option(("arxiv", "reddit-mini"), known=tuple(CASES)),
        "cases": Option((), "names and widths; all by default"),
        "no_pyg": Option(False, "leave PyG out, which takes most of the time"),
    },
    key="cases",
    rounds=7,
)

if __name__ == "__main__":
    BENCHMARK.main()
