"""Every layer of PyG, forward and backward, beside the same under ``onehop.patch()``: time and memory.

    python benchmarks/layers/bench_convs.py [--layers GCNConv,NNConv] [--nodes 20000] [--edges 200000]
                                            [--rounds 5] [--threads N] [--json FILE]

A random graph with hubs; width 64, or less for layers that make a matrix for every edge (``convs.py``). Each
layer has processes of its own: one in which both ways take turns, after their results and gradients have been
compared, and one for each way's peak memory, which is what two passes add to a process that has its data and
the layer. The page of layers takes its columns from the file
(``python tests/integrations/pyg/host_layers.py``).
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch
from convs import CONVS, NOT_MEASURED, given
from torch import Tensor

import onehop
from onehop.bench import command
from onehop.bench.memory import peak_bytes, resident_bytes
from onehop.bench.patched import beside_pyg
from onehop.bench.stamp import machine_line
from onehop.datasets import chung_lu

NODES, EDGES = 20_000, 200_000
# Relative to the largest entry: sums over hubs of float32 differ in their last digits with their order.
TOLERANCE = 1e-3


def one_pass(name: str, nodes: int, edges: int) -> Callable[[], list[Tensor]]:
    """A forward and backward pass of a layer; it returns the output and all gradients.

    Those of parameters are one vector, for the gradient of some is 0 but for rounding, such as that of a bias
    before a softmax.
    """
    conv = CONVS[name]
    on = given(nodes, chung_lu(nodes, edges), conv.width)
    layer = conv.make(conv.width, on)
    learned = [on.x, *layer.parameters()]

    def once() -> list[Tensor]:
        out = conv.call(layer, on)
        of_x, *found = torch.autograd.grad(out.square().mean(), learned, allow_unused=True)
        of_parameters = [each.flatten() for each in found if each is not None]
        return [out.detach(), of_x, *([torch.cat(of_parameters)] if of_parameters else [])]

    return once


def child(order: dict[str, Any]) -> dict[str, Any]:
    """What one process measures: times of both ways, or the peak memory of one."""
    torch.set_num_threads(order["threads"])
    once = one_pass(order["layer"], order["nodes"], order["edges"])
    if order["way"] is None:
        return beside_pyg(once, order["rounds"], TOLERANCE)
    patch = onehop.patch()
    if order["way"] == "pyg":
        patch.remove()
    before = resident_bytes()
    once()
    once()
    return {"peak_bytes": max(peak_bytes() - before, 0)}


def run(order: dict[str, Any]) -> dict[str, Any]:
    """What the process of one measurement says.

    Raises:
        SystemExit: It failed.
    """
    program = [sys.executable, __file__, "--child", json.dumps(order)]
    finished = subprocess.run(program, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        raise SystemExit(f"{order['layer']}:\n{finished.stderr}")
    result: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return result


def measure(name: str, options: Any) -> dict[str, Any]:
    """One layer."""
    order = {
        "layer": name,
        "nodes": options.nodes,
        "edges": options.edges,
        "rounds": options.rounds,
        "threads": options.threads,
        "way": None,
    }
    row = {"layer": name, "width": CONVS[name].width, **run(order)}
    row["peak_bytes"] = {way: run({**order, "way": way})["peak_bytes"] for way in ("pyg", "onehop")}
    return row


def describe(row: dict[str, Any]) -> str:
    """A line."""
    ratio, peaks = row["ratio"], row["peak_bytes"]
    wrong = " WRONG" if row["wrong"] else ""
    return (
        f"{row['layer']:22} PyG {row['pyg_s'] * 1e3:7.1f} ms, onehop {row['onehop_s'] * 1e3:7.1f} ms, "
        f"{ratio['median']:5.2f}x ({ratio['lower_quartile']:.2f} to {ratio['upper_quartile']:.2f}); "
        f"memory {peaks['pyg'] / 1e6:6.0f} and {peaks['onehop'] / 1e6:6.0f} MB; "
        f"difference {row['difference']:.1e}{wrong}"
    )


def main() -> None:
    """Prints a line a layer."""
    parser = command.parser(__doc__, rounds=5, threads=True)
    parser.add_argument("--layers", type=command.names, default=",".join(CONVS))
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--edges", type=int, default=EDGES)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = command.read(parser)
    if options.child:
        print(json.dumps(child(json.loads(options.child))))
        return
    if unknown := [name for name in options.layers if name not in CONVS]:
        why = "; ".join(f"{name} {NOT_MEASURED.get(name, 'is no layer of PyG')}" for name in unknown)
        raise SystemExit(f"--layers: {why}.")
    print(machine_line())
    rows: list[dict[str, Any]] = []
    for name in options.layers:
        rows.append(measure(name, options))
        print(describe(rows[-1]), flush=True)
        graph = {"nodes": options.nodes, "edges": options.edges}
        command.write(options, "benchmarks/layers/bench_convs.py", {"graph": graph, "results": rows})


if __name__ == "__main__":
    main()
