"""Measures what README.md and docs/results.md show, step by step (``make bench``).

    python -m benchmarks.steps [--results FOLDER] [--graphs cora] [--only layers,ops] [--source CHECKOUT]
                               [--list]

A step is a command that writes one file of results. The file says which commit and which arguments it is of,
and on which machine it was measured. A step whose file is of the same code, machine, versions and arguments
is not run again, so an interrupted run goes on where it was. While a step runs, its results are in a file of
their own, ``NAME.COMMIT.partial.json``; PyG's examples go on with the scripts that it lacks.

With ``--graphs`` every step is run in its smallest form, on these graphs.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onehop.bench import command
from onehop.bench.stamp import stamp
from onehop.storage import write_text

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path("benchmarks") / "results"
# What decides the figures: another commit of these measures anew.
CODE = ("src", "csrc", "benchmarks", ":(exclude)benchmarks/results")
# Parts of the stamp that figures depend on.
SAME = ("machine", "isa", "threads", "versions")

# What a user of PyG can choose; torch_sparse's where that is installed.
INPUTS = "pyg-edge_index,pyg-torch-csr,pyg-SparseTensor"
TWO_LAYER = "gcn,sage,gin,gat,gatv2,transformer"
SMALL = "GCNConv,SAGEConv,GINConv,GATConv,GATv2Conv,ResGatedGraphConv,EdgeConv,FiLMConv"
EXAMPLES = "gcn.py,gat.py,film.py,rgat.py,link_pred.py,hetero/hgt_dblp.py"


@dataclass(frozen=True)
class Step:
    """A step.

    Attributes:
        name: Of its file of results.
        minutes: About how long it takes on two cores.
        program: The module that is run, and its arguments.
        arguments: Further arguments, for all of it.
        smallest: Further arguments with ``--graphs``, instead; ``{graphs}`` is its value. Here and in
            ``program``, ``{results}`` is the folder of results.
    """

    name: str
    minutes: float
    program: str
    arguments: str
    smallest: str

    def words(self, graphs: str | None, results: Path) -> list[str]:
        """The module and its arguments."""
        chosen = self.arguments if graphs is None else self.smallest
        return f"{self.program} {chosen}".format(graphs=graphs, results=results).split()


STEPS = (
    # Buffers of at most so many bytes: some machines share caches of half a gigabyte.
    Step("limits", 1.5, "onehop bench limits", "--megabytes 1024 --rounds 5", "--megabytes 64 --rounds 1"),
    Step(
        "published_models",
        22.5,
        f"onehop bench models --peers {INPUTS}",
        "--rounds 5",
        "--rounds 1 --models cora-gcn --graphs {graphs}",
    ),
    Step(
        "models",
        9,
        f"onehop bench models --models {TWO_LAYER} --peers {INPUTS} --rounds 1",
        "--graphs twin:arxiv,twin:cora --hidden 128",
        "--graphs {graphs} --hidden 32",
    ),
    Step(
        "layers",
        7.5,
        "benchmarks.layers.bench_layers --rounds 1 --limits {results}/limits.json",
        "--graphs arxiv,cora",
        "--graphs {graphs} --layers gatv2,gine",
    ),
    Step(
        "small",
        3,
        "benchmarks.layers.bench_small",
        f"--rounds 5 --layers {SMALL} --edges 60,1500,10000,30000 --threads 2",
        "--rounds 1 --layers GCNConv --edges 60 --threads 1",
    ),
    Step(
        "sparse",
        4.5,
        "benchmarks.models.bench_sparse",
        "--rounds 5 --graphs cora,gowalla",
        "--rounds 1 --graphs cora --models kipf-cora",
    ),
    Step(
        "ops",
        3.5,
        "onehop bench ops",
        "--rounds 5 --graphs arxiv,road,cora --widths 32,128",
        "--rounds 1 --graphs {graphs} --widths 32",
    ),
    Step(
        "examples",
        6.5,
        "benchmarks.examples --resume",
        f"--rounds 5 --budget 10 --scripts {EXAMPLES}",
        "--rounds 3 --budget 1 --scripts gcn.py",
    ),
)


def commit() -> str | None:
    """The last commit of the code; None where the code is of no commit, or has been changed since."""
    changed, last = (
        subprocess.run(["git", *words, "--", *CODE], cwd=ROOT, capture_output=True, text=True, check=False)
        for words in (("status", "--porcelain"), ("log", "-1", "--format=%H"))
    )
    if changed.returncode or last.returncode or changed.stdout:
        return None
    return last.stdout.strip()


def origin(words: list[str]) -> dict[str, Any]:
    """What results depend on: the commit and the arguments of a step, and what this machine is and has."""
    now = stamp()
    return {"commit": commit(), "arguments": words, **{key: now[key] for key in SAME}}


def is_done(path: Path, own: dict[str, Any]) -> bool:
    """Whether a file has the results of a whole step, of this origin."""
    return own["commit"] is not None and path.exists() and json.loads(path.read_text()).get("step") == own


def measure(step: Step, words: list[str], path: Path) -> None:
    """Runs a step's command, which writes to ``path``.

    Raises:
        SystemExit: It fails.
    """
    program = [sys.executable, "-m", *words, "--json", str(path)]
    done = subprocess.run(program, cwd=ROOT, check=False)
    if done.returncode:
        raise SystemExit(f"{step.name}: {' '.join(program[1:])} ended with {done.returncode}.")


def run(step: Step, words: list[str], folder: Path, *further: str) -> bool:
    """Runs a step unless its results are there; returns whether it ran.

    Args:
        step: The step.
        words: Its module and arguments.
        folder: Of the results.
        further: Arguments on which results do not depend.
    """
    own = origin(words)
    # What was begun by another commit is not gone on with.
    path = folder / f"{step.name}.json"
    beside = path.with_suffix(f".{str(own['commit'])[:12]}.partial.json")
    if is_done(path, own):
        return False
    if own["commit"] is None:
        beside.unlink(missing_ok=True)
    measure(step, [*words, *further], beside.resolve())
    document = json.loads(beside.read_text())
    write_text("json", path, json.dumps({**document, "step": own}, indent=2) + "\n")
    beside.unlink()
    return True


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the steps; None means the arguments of the command line."""
    parser = command.parser(__doc__, json=False)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the files")
    parser.add_argument("--graphs", help="run each step in its smallest form, on these graphs")
    parser.add_argument("--only", type=command.names, help="names of steps; all by default")
    parser.add_argument("--source", type=os.path.abspath, help="a checkout of PyG, for its examples")
    parser.add_argument("--list", action="store_true", help="print the steps, and run none")
    options = parser.parse_args(arguments)
    known = [step.name for step in STEPS]
    if unknown := [name for name in options.only or () if name not in known]:
        raise SystemExit(f"--only: unknown {', '.join(unknown)}; there are {', '.join(known)}.")
    steps = [step for step in STEPS if options.only is None or step.name in options.only]
    if options.list:
        for step in steps:
            words = step.words(options.graphs, options.results)
            print(f"{step.minutes:5.1f} min  {step.name:18} {' '.join(words)}")
        print(f"{sum(step.minutes for step in steps):5.1f} min")
        return
    if options.source is None and any(step.name == "examples" for step in steps):
        raise SystemExit("--source: expected a checkout of PyG, for its examples; or omit them with --only.")
    options.results.mkdir(parents=True, exist_ok=True)
    if commit() is None:
        print("The code has changes that are not committed: no step can be skipped.", flush=True)
    for step in steps:
        words = step.words(options.graphs, options.results)
        further = ("--source", options.source) if step.name == "examples" else ()
        print(f"\n== {step.name}", flush=True)
        begin = time.perf_counter()
        if run(step, words, options.results, *further):
            print(f"{step.name}: {(time.perf_counter() - begin) / 60:.1f} minutes", flush=True)
        else:
            print(f"{step.name}: measured already, from this commit on this machine", flush=True)


if __name__ == "__main__":
    main()
