"""What a type checker says about programs: wrong ones are refused, and results have real types."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from onehop.compiler import message
from onehop.distributed import exchange
from onehop.graph import orders
from onehop.ops.aggregate import REDUCTIONS
from onehop.tuner import operations

ROOT = Path(__file__).resolve().parents[1]

SETTING = """
import torch
import onehop
from onehop import Graph, datasets, distributed
from torch import Tensor

x = torch.ones(3, 2)
heads = torch.ones(3, 1, 2)
scores = torch.ones(3, 1)
index = torch.tensor([0, 1, 1])
graph = Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
stored = Graph.open("graph")
model = torch.nn.Linear(2, 2)
"""

WRONG = (
    "onehop.agregate(graph, x)",
    "onehop.nonsense",
    "from onehop import agregate",
    "onehop.machines.upmem",
    'onehop.aggregate(graph, x, reduce="sun")',
    'onehop.aggregate(graph, x, multiply="times")',
    "onehop.aggregate(graph, x, redcue='sum')",
    "onehop.aggregate(stored, 'x.npy')",
    "onehop.aggregate(graph, x, out='out.npy')",
    'onehop.extremum(graph, x, reduce="sum")',
    'onehop.extremum(graph, x, ties="both")',
    'onehop.scatter(x, index, reduce="median")',
    'onehop.scatter(x, index, ties="all")',
    'onehop.fusedmm(graph, x, x, "gauss")',
    "onehop.gat(graph, heads, scores)",
    "onehop.gat(graph, heads, scores, scores, weights=True)",
    "onehop.gatv2(graph, heads, heads, scores, edge_mask='none')",
    "onehop.attention(graph, heads, heads, heads).count(0)",
    "onehop.attention(graph, heads, heads, heads, return_attention_weights=True).sum()",
    'onehop.message(graph, lambda x_j: x_j, reduce="median", x=x)',
    'onehop.NeighborSampler(graph, [2], method="fast")',
    'onehop.NeighborSampler(graph, [2], subgraph_type="both")',
    'onehop.hops(stored, "x.npy", 2, "out.npy", normalise="sym")',
    'onehop.hops(stored, "x.npy", 2, "out.npy", keep="first")',
    'onehop.ingest("edges.csv", "graph", dtype="int8")',
    'onehop.ingest("edges.csv", "graph", weight_dtype="float16")',
    'onehop.tune(graph, op="spmm")',
    'onehop.tune(graph, reduce="median")',
    'onehop.patch(tune="always")',
    'graph.reorder("metros")',
    'distributed.partition(graph, 2, method="random")',
    "stored.number_of_nodes",
    "graph.num_nodes()",
    "onehop.infer(model, graph, 'x.npy', 'out.npy')",
)

REVEALED = {
    "onehop.aggregate(graph, x)": "torch._tensor.Tensor",
    'onehop.aggregate(stored, "x.npy", out="out.npy")': "pathlib.Path",
    "onehop.extremum(graph, x)": "torch._tensor.Tensor",
    "onehop.gat(graph, heads, scores, scores)": "torch._tensor.Tensor",
    "onehop.gat(graph, heads, scores, scores, return_attention_weights=True)": (
        "tuple[torch._tensor.Tensor, torch._tensor.Tensor]"
    ),
    "onehop.gatv2(graph, heads, heads, scores, edge_mask=None)": "torch._tensor.Tensor",
    "onehop.gatv2(graph, heads, heads, scores, return_attention_weights=True)": (
        "tuple[torch._tensor.Tensor, torch._tensor.Tensor]"
    ),
    "onehop.attention(graph, heads, heads, heads, seed=3)": "torch._tensor.Tensor",
    "onehop.attention(graph, heads, heads, heads, return_attention_weights=True)[1]": "torch._tensor.Tensor",
    "onehop.attention(graph, heads, heads, heads, return_attention_weights=bool(index[0]))": (
        "torch._tensor.Tensor | tuple[torch._tensor.Tensor, torch._tensor.Tensor]"
    ),
    "onehop.dropout(x)": "torch._tensor.Tensor",
    "onehop.scatter(x, index, 3, 'max', ties='first')": "torch._tensor.Tensor",
    "onehop.hops(stored, 'x.npy', 2, 'out.npy')": "pathlib.Path",
    "onehop.infer(model, stored, 'x.npy', 'out.npy')": "pathlib.Path",
    "onehop.tune(graph, reduce='mean')": "onehop.tuner.result.TuningResult",
    "onehop.patch(tune='auto')": "onehop.integrations.patch.Patch",
    "onehop.explain(model, x)": "onehop.integrations.explain.Explanation",
    "onehop.ingest('edges.csv', 'graph').num_nodes": "int",
    "graph.num_nodes": "int",
    "graph.save('graph').out_degrees": "torch._tensor.Tensor",
    "datasets.twin('cora').num_nodes": "int",
    "distributed.partition(graph, 2)": "torch._tensor.Tensor",
    "onehop.datasets.names()": "list[str]",
}

# By checker: how to call it on a file, and the form of its lines.
CHECKERS = {
    "mypy": ("mypy --strict --follow-imports=silent --no-error-summary", r"{file}:(\d+): {kind}: (.*)"),
    "pyright": ("pyright --pythonpath {python}", r"{file}:(\d+):\d+ - {kind}: (.*)"),
}


def said(checker: str, program: str, folder: Path) -> tuple[dict[int, str], dict[int, str]]:
    """The errors and the notes of a checker, by line."""
    command, line = CHECKERS[checker]
    start = [sys.executable, "-m", *command.format(python=sys.executable).split()]
    # Pyright needs node, and a connection when it is called for the first time.
    if subprocess.run([*start, "--version"], capture_output=True).returncode != 0:
        pytest.skip(f"{checker} does not run here")
    file = folder / "program.py"
    file.write_text(program)
    (folder / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT / "src")]}))
    environment = os.environ | {"MYPYPATH": str(ROOT / "src")}
    done = subprocess.run([*start, file.name], capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 1, done.stdout + done.stderr
    found = []
    for kind in ("error", "note" if checker == "mypy" else "information"):
        each = re.findall(line.format(file=".*" + re.escape(file.name), kind=kind), done.stdout)
        found.append({int(number): text for number, text in each})
    return found[0], found[1]


@pytest.mark.parametrize("checker", CHECKERS)
def test_checkers_refuse_what_is_wrong_and_know_what_is_right(checker: str, tmp_path: Path) -> None:
    first = len(SETTING.splitlines())
    right = [f"reveal_type({call})" for call in REVEALED]
    errors, notes = said(checker, SETTING + "\n".join([*WRONG, *right]) + "\n", tmp_path)
    lines = dict(enumerate([*WRONG, *REVEALED], start=first + 1))
    assert [call for line, call in lines.items() if call in WRONG and line not in errors] == []
    assert [(line, text) for line, text in errors.items() if lines.get(line) not in WRONG] == []
    types = {call: re.sub(r'^.*is "(.*)"$', r"\1", notes.get(line, "")) for line, call in lines.items()}
    for call, wanted in REVEALED.items():
        if checker == "mypy":
            assert types[call] == wanted, call
        else:  # pyright shows names without their modules
            assert types[call] == re.sub(r"[a-z_.]+\.([A-Z])", r"\1", wanted), call


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        (message.Reduce, message._NAMES),
        (orders.Order, ("degree", *orders._METHODS)),
        (exchange.HaloMode, exchange._MODES),
        (operations.Op, operations.GPU_OPS),
        (operations.Reduction, REDUCTIONS),
    ],
    ids=str,
)
def test_types_name_what_is_accepted(kind: object, known: object) -> None:
    assert strings_of(kind) == set(known)  # type: ignore[call-overload]


def strings_of(kind: object) -> set[str]:
    """The strings of a ``Literal``, or of a union of such types."""
    return {text for each in get_args(kind) for text in ([each] if isinstance(each, str) else get_args(each))}
