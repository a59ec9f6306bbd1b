"""How many Python functions of onehop a warm call passes through, and how many of its files.

    python benchmarks/calls/count_calls.py [--cases aggregate,GCNConv] [--tree] [--json FILE]

On a small graph a call costs what its Python costs, and these counts do not depend on the machine. A call is
made a few times before it is counted, so that graphs, plans and decisions are there. Frames count whose
file lies in the package; its C++ kernels and torch's own functions do not. The graph has the size of Cora.
"""

import argparse
import collections
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import onehop

PACKAGE = Path(onehop.__file__).parent
NODES, EDGES, WIDTH, HEADS = 2708, 10556, 64, 4
WARM_CALLS = 8

Call = Callable[[], Any]


@dataclass
class Counts:
    """Frames of onehop that one call entered.

    Attributes:
        calls: How many frames.
        functions: Distinct functions, by file and first line.
        folders: Frames in each folder of the package; those of its top level by file.
        tree: The frames in order: the depth of each, and its name.
    """

    calls: int = 0
    functions: set[tuple[str, int]] = field(default_factory=set)
    folders: "collections.Counter[str]" = field(default_factory=collections.Counter)
    tree: list[tuple[int, str]] = field(default_factory=list)

    @property
    def files(self) -> set[str]:
        """Distinct files, relative to the package."""
        return {file for file, _ in self.functions}

    def row(self) -> dict[str, Any]:
        """What is written to JSON."""
        return {
            "calls": self.calls,
            "functions": len(self.functions),
            "files": len(self.files),
            "folders": dict(sorted(self.folders.items())),
        }


def count(call: Call) -> Counts:
    """Counts the frames of one call."""
    counts, root, depth = Counts(), f"{PACKAGE}/", 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal depth
        code = frame.f_code
        if not code.co_filename.startswith(root):
            return
        if event == "call":
            file = code.co_filename[len(root) :]
            counts.calls += 1
            counts.functions.add((file, code.co_firstlineno))
            counts.folders[file.split("/")[0]] += 1
            counts.tree.append((depth, f"{file} {code.co_qualname}"))
            depth += 1
        elif event == "return":
            depth -= 1

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return counts


def operators() -> dict[str, tuple[Call, Call]]:
    """Operators by name: a forward call, and one that prepares a backward call."""
    edge_index = torch.randint(0, NODES, (2, EDGES), generator=torch.Generator().manual_seed(0))
    graph = onehop.Graph.from_edge_index(edge_index, num_nodes=NODES)
    x = torch.randn(NODES, WIDTH, requires_grad=True)
    of_heads = torch.randn(NODES, HEADS, WIDTH // HEADS, requires_grad=True)
    att = torch.randn(HEADS, WIDTH // HEADS, requires_grad=True)
    return _both(
        {
            "aggregate": lambda: onehop.aggregate(graph, x),
            "gatv2": lambda: onehop.gatv2(graph, of_heads, of_heads, att),
        }
    )


def layers() -> dict[str, tuple[Call, Call]]:
    """PyG's layers by name, likewise; the last is one whose message is compiled."""
    from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, ResGatedGraphConv, SAGEConv

    edge_index = torch.randint(0, NODES, (2, EDGES), generator=torch.Generator().manual_seed(0))
    x = torch.randn(NODES, WIDTH)
    made = {
        "GCNConv": GCNConv(WIDTH, WIDTH),
        "SAGEConv": SAGEConv(WIDTH, WIDTH),
        "GATConv": GATConv(WIDTH, WIDTH // HEADS, heads=HEADS),
        "GATv2Conv": GATv2Conv(WIDTH, WIDTH // HEADS, heads=HEADS),
        "ResGatedGraphConv": ResGatedGraphConv(WIDTH, WIDTH),
    }
    return _both({name: lambda layer=layer: layer(x, edge_index) for name, layer in made.items()})


def _both(forwards: dict[str, Call]) -> dict[str, tuple[Call, Call]]:
    def backward(forward: Call) -> Call:
        out = forward()
        grad = torch.ones_like(out)
        return lambda: out.backward(grad, retain_graph=True)

    return {name: (forward, lambda forward=forward: backward(forward)) for name, forward in forwards.items()}


def counted(chosen: set[str] | None = None) -> dict[str, Counts]:
    """The counts of the chosen cases; None means all. Layers are patched."""
    results = {}
    with onehop.patch():
        for name, (forward, prepare_backward) in {**operators(), **layers()}.items():
            if chosen is not None and name not in chosen:
                continue
            for _ in range(WARM_CALLS):
                prepare_backward()()
            results[f"{name} forward"] = count(forward)
            results[f"{name} backward"] = count(prepare_backward())
    return results


def main() -> None:
    """Counts, and prints a row a call."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--cases", help="names, separated by commas; all by default")
    parser.add_argument("--tree", action="store_true", help="print every frame too")
    parser.add_argument("--json", type=Path, help="write the counts here")
    arguments = parser.parse_args()
    results = counted(None if arguments.cases is None else set(arguments.cases.split(",")))
    print(f"{'warm call':28}{'calls':>6}{'functions':>11}{'files':>7}  by folder")
    for name, counts in results.items():
        folders = ", ".join(f"{folder} {number}" for folder, number in counts.folders.most_common())
        print(f"{name:28}{counts.calls:6}{len(counts.functions):11}{len(counts.files):7}  {folders}")
        if arguments.tree:
            for depth, function in counts.tree:
                print("    " + "  " * depth + function)
    if arguments.json is not None:
        document = {name: counts.row() for name, counts in results.items()}
        arguments.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
