"""Two versions of onehop beside each other and beside PyG: epochs of models and calls of operators, in turns.

    python benchmarks/versions/bench_versions.py --other ../before/.venv/bin/python [--no-pyg]
            [--graphs arxiv,reddit-mini] [--cases gcn:32,sum:128] [--rounds 7] [--threads N] [--json FILE]

``--other`` is the Python of an environment in which the other version is installed. Every version works in a
process of its own, which waits while the others have their turns, so that a slow moment of the machine meets
all alike. A case is a model and its hidden width, or an operator and the width of its features: ``sum`` and
``weighted``, ``max`` and ``min``, forward, and ``sum+grad``, forward and backward. Beside sums, "PyG" is
torch's CSR product; extrema are measured with ``--no-pyg`` alone. Models have two layers without dropout, of
128 features, or of 3 for reddit-mini. The losses, or the sums of the results, must agree. Only what every
version has is called.
"""

import contextlib
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import onehop

MODELS = Path(__file__).resolve().parents[2] / "src" / "onehop" / "bench" / "plain_models.py"
CASES = {
    "arxiv": "gcn:32,gcn:128,sage:32,sage:128,gin:32,gin:128,gat:128,gatv2:128,transformer:128,"
    "sum:32,sum:128,weighted:32,weighted:128,sum+grad:32,sum+grad:128,max:128,min:32,max+grad:128",
    "cora": "gcn:32,gat:32,sum:32",
    "reddit-mini": "sage-sum:32,sage:32,gin:32,sum:32,sum:128,weighted:32,weighted:128",
}
CLASSES = 40
FEATURES = {"arxiv": 128, "reddit-mini": 3, "cora": 64}
TOLERANCE = 1e-3
# A turn lasts at least so long; before it, one call that is not counted.
TURN_S = 0.2
# Threads of the process before must have stopped spinning.
PAUSE_S = 0.1


def model_call(name: str, width: int, edge_index: torch.Tensor, features: int) -> Callable[[], float]:
    """An epoch of a two-layer model: forward, backward, Adam; it returns the loss."""
    spec = importlib.util.spec_from_file_location("plain_models", MODELS)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(MODELS)
    models = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(models)
    nodes = int(edge_index.max()) + 1
    torch.manual_seed(0)
    x, y = torch.randn(nodes, features), torch.randint(CLASSES, (nodes,))
    model = models.MODELS[name.removesuffix("-sum")](features, width, CLASSES)
    if name.endswith("-sum"):
        model.first.aggr = model.second.aggr = "sum"
        for layer in (model.first, model.second):
            layer.aggr_module = type(layer)(2, 2, aggr="sum").aggr_module
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)

    def epoch() -> float:
        optimiser.zero_grad()
        loss = F.cross_entropy(model(x, edge_index), y)
        loss.backward()
        optimiser.step()
        return loss.item()

    return epoch


def operator_call(name: str, width: int, edge_index: torch.Tensor, by_torch: bool) -> Callable[[], float]:
    """A call of an operator; it returns the sum of the result's sizes."""
    nodes = int(edge_index.max()) + 1
    torch.manual_seed(0)
    with_grad = name.endswith("+grad")
    x = torch.randn(nodes, width, requires_grad=with_grad)
    weight = torch.rand(edge_index.size(1)) if name == "weighted" else None
    if by_torch:
        values = torch.ones(edge_index.size(1)) if weight is None else weight
        matrix = torch.sparse_coo_tensor(edge_index.flip(0), values, (nodes, nodes)).to_sparse_csr()
        product: Callable[[], torch.Tensor] = partial(torch.sparse.mm, matrix, x)
    else:
        graph = onehop.Graph.from_edge_index(edge_index, num_nodes=nodes)
        reduce = "sum" if name.startswith(("sum", "weighted")) else name[:3]
        product = partial(onehop.aggregate, graph, x, weight=weight, reduce=reduce)
    ones = torch.ones(nodes, width)

    def call() -> float:
        out = product()
        if with_grad:
            x.grad = None
            out.backward(ones)
        return float(out.detach()[:1000].abs().sum())

    return call


def serve() -> None:
    """Answers requests from standard input, one JSON object a line, until it ends."""
    stack = contextlib.ExitStack()
    call: Callable[[], float] = float
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "load":
            stack.close()
            torch.set_num_threads(request["threads"])
            name, width = request["case"].split(":")
            edge_index = torch.load(request["edges"])
            if name.split("+")[0] in ("sum", "weighted", "max", "min"):
                call = operator_call(name, int(width), edge_index, request["pyg"])
            else:
                if not request["pyg"]:
                    stack.enter_context(onehop.patch())
                call = model_call(name, int(width), edge_index, request["features"])
            answer = {"values": [call() for _ in range(3)]}
        else:
            call()
            begin, count = time.perf_counter(), 0
            while count == 0 or time.perf_counter() - begin < TURN_S:
                call()
                count += 1
            answer = {"seconds": (time.perf_counter() - begin) / count}
        print(json.dumps(answer), flush=True)


class Version:
    """A process that works with one version."""

    def __init__(self, python: str, pyg: bool = False) -> None:
        self._pyg = pyg
        command = [python, str(Path(__file__).resolve()), "--serve"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

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


def measured(versions: dict[str, Version], rounds: int, **case: Any) -> dict[str, Any]:
    """One case's times by version, and the ratios to this version."""
    from onehop.bench.timing import Ratio, in_turns

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


def main() -> None:
    """Prints a line a case."""
    from onehop.bench import command, graphs
    from onehop.bench.stamp import machine_line

    parser = command.parser(__doc__, rounds=7, threads=True)
    parser.add_argument("--other", required=True, help="the Python of the other version's environment")
    parser.add_argument("--graphs", type=command.names, default=["arxiv", "reddit-mini"])
    parser.add_argument("--cases", help="names and widths, separated by commas; all by default")
    parser.add_argument("--no-pyg", action="store_true", help="leave PyG out, which takes most of the time")
    options = command.read(parser)
    print(machine_line())
    found = []
    versions = {"this": Version(sys.executable), "other": Version(options.other)}
    if not options.no_pyg:
        versions["PyG"] = Version(sys.executable, pyg=True)
    with contextlib.ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        for version in versions.values():
            stack.callback(version.close)
        for graph in options.graphs:
            edges = str(Path(folder) / f"{graph}.pt")
            torch.save(graphs.workload(graph).edge_index, edges)
            for case in command.names(options.cases or CASES[graph]):
                if case.startswith(("max", "min")) and not options.no_pyg:
                    continue
                result = measured(
                    versions,
                    options.rounds,
                    case=case,
                    edges=edges,
                    threads=options.threads,
                    features=FEATURES[graph],
                )
                found.append({"graph": graph, **result})
                shown = [
                    f"{name} {median:.2f}x ({low:.2f} to {high:.2f})"
                    for name, (median, low, high) in result["over_this"].items()
                ]
                this_ms = 1e3 * result["seconds"]["this"]
                print(f"{graph:12} {case:16} {this_ms:8.1f} ms  {'  '.join(shown)}", flush=True)
    command.write(options, "benchmarks/versions/bench_versions.py", {"cases": found})


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
    else:
        main()
