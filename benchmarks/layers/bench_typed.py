"""Layers over typed edges, forward and backward: PyG, and the same with ``onehop.patch()``.

    python benchmarks/layers/bench_typed.py [--layers rgcn-5,hgt] [--graph arxiv] [--edges 200000]
                                            [--relations 50] [--rounds 5] [--memory] [--threads N]
                                            [--json FILE]

RGCNConv has the edges of a graph, of 5 and of 50 types; the layers of which PyG's own makes a matrix
or several rows for each edge, random edges of 5 types. HeteroConv and to_hetero have many relations of 5,000
edges each among 10 types of nodes, and a layer of its own for each. Both ways take turns, after their
results were compared; a ratio is PyG's time over the patched one's, with its quartiles over the rounds.
Beside each layer stands its floor (``message_floors.py``). With ``--memory`` peaks are measured too: what two
forward and backward passes add to a process of their own, after its data and the layer have been made.
"""

import argparse
import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from message_floors import Linear, attention_floor, beside_floor, fewest_pairs, joined, sums_floor
from torch import Tensor

import onehop
from onehop.bench import command, graphs
from onehop.bench.cases import Workload
from onehop.bench.floors import Roofs
from onehop.bench.memory import peak_bytes, resident_bytes
from onehop.bench.patched import beside_pyg
from onehop.bench.stamp import machine_line

WIDTH, HEADS = 64, 4
EDGES, EDGES_A_NODE, TYPES = 200_000, 10, 5
RELATIONS, NODE_TYPES, EDGES_A_RELATION, NODES_A_TYPE = 50, 10, 5_000, 2_000
INSIDE = ("hetero-sage", "hetero-gat", "to-hetero-sage", "to-hetero-gat")
LAYERS = ("rgcn-5", "rgcn-50", "fast-rgcn", "han", "hgt", "rgat", "heat", *INSIDE)
# Columns of HEATConv's edge features and embeddings.
NARROW = 16
# Relative to the largest entry: sums over hubs of float32 differ in their last digits with their order.
TOLERANCE = 1e-3


class Pass(NamedTuple):
    """A forward and backward pass of a layer.

    Attributes:
        once: Runs it, and returns the output and all gradients.
        floor: Measures the least time for it.
    """

    once: Callable[[], list[Tensor]]
    floor: Callable[[], dict[str, float]]


def one_pass(name: str, graph: str, edges: int) -> Pass:
    """The pass of one layer over all edges."""
    from torch_geometric import nn

    torch.manual_seed(0)
    if name.startswith("rgcn"):
        workload, types = graphs.workload(graph), int(name.split("-")[1])
    else:
        nodes, types = edges // EDGES_A_NODE, TYPES
        workload = Workload("random", torch.randint(nodes, (2, edges)), nodes)
    edge_index, nodes = workload.edge_index, workload.num_nodes
    edge_type = torch.randint(types, (edge_index.size(1),))
    x = torch.randn(nodes, WIDTH, requires_grad=True)
    if name in ("han", "hgt"):
        kinds = [("node", f"type {i}", "node") for i in range(types)]
        of_types = {kind: edge_index[:, edge_type == i].contiguous() for i, kind in enumerate(kinds)}
        make = nn.HANConv if name == "han" else nn.HGTConv
        layer: Any = make(WIDTH, WIDTH, (["node"], kinds), heads=HEADS)
        operands: tuple[Any, ...] = ({"node": x}, of_types)
    elif name == "rgat":
        layer = nn.RGATConv(WIDTH, WIDTH // HEADS, types, heads=HEADS)
        torch.nn.init.constant_(layer.l2, 0.5)  # which PyG leaves as the memory was
        operands = (x, edge_index, edge_type)
    elif name == "heat":
        layer = nn.HEATConv(WIDTH, WIDTH, NODE_TYPES, types, NARROW, NARROW, NARROW, heads=HEADS)
        edge_attr = torch.randn(edge_index.size(1), NARROW)
        operands = (x, edge_index, torch.randint(NODE_TYPES, (nodes,)), edge_type, edge_attr)
    else:
        layer = (nn.FastRGCNConv if name == "fast-rgcn" else nn.RGCNConv)(WIDTH, WIDTH, types)
        operands = (x, edge_index, edge_type)
    learned = [x, *layer.parameters()]

    def once() -> list[Tensor]:
        out = layer(*operands)
        out = out["node"] if isinstance(out, dict) else out
        found = torch.autograd.grad(out.square().mean(), learned, allow_unused=True)
        return [out.detach(), *(each for each in found if each is not None)]

    def floor() -> dict[str, float]:
        roofs, head = Roofs(workload), WIDTH // HEADS
        if name == "han":
            # Its features, and for each type the scores of what it gives.
            products = {Linear(WIDTH, WIDTH): (1 + types) * nodes}
            return attention_floor("gat", workload, HEADS, WIDTH, products, roofs)
        if name == "hgt":
            # Keys, queries, values and the result; keys and values by the matrix of each type and head.
            products = {Linear(WIDTH, WIDTH): 4 * nodes, Linear(head, head): 2 * types * nodes * HEADS}
            return attention_floor("transformer", workload, HEADS, WIDTH, products, roofs)
        rows = min(fewest_pairs(workload, edge_type), types * nodes)
        return sums_floor(workload, WIDTH, {Linear(WIDTH, WIDTH): rows + nodes}, roofs)

    return Pass(once, floor)


def one_pass_of_relations(name: str, relations: int) -> Pass:
    """The pass of a layer for each relation, with all of their outputs and gradients."""
    from torch_geometric import nn

    torch.manual_seed(0)
    types = [f"type{i}" for i in range(NODE_TYPES)]
    # Numbers that follow one another reach every type of destinations.
    kinds = [(types[i % 10], f"relation{i}", types[(3 * i + i // 10) % 10]) for i in range(relations)]
    x = {each: torch.randn(NODES_A_TYPE, WIDTH, requires_grad=True) for each in types}
    edges = {kind: torch.randint(NODES_A_TYPE, (2, EDGES_A_RELATION)) for kind in kinds}

    def make() -> torch.nn.Module:
        if name.endswith("sage"):
            return nn.SAGEConv(WIDTH, WIDTH)
        return nn.GATConv((WIDTH, WIDTH), WIDTH // HEADS, heads=HEADS, add_self_loops=False)

    model: Any
    if name.startswith("to-hetero"):
        model = nn.to_hetero(nn.Sequential("x, edges", [(make(), "x, edges -> x")]), (types, kinds))
    else:
        model = nn.HeteroConv({kind: make() for kind in kinds})
    learned = [*x.values(), *model.parameters()]

    def once() -> list[Tensor]:
        outs = [out for out in model(x, edges).values() if out is not None]
        loss = torch.stack([out.square().mean() for out in outs]).sum()
        found = torch.autograd.grad(loss, learned, allow_unused=True)
        return [*(out.detach() for out in outs), *(each for each in found if each is not None)]

    def floor() -> dict[str, float]:
        workload = joined(edges, NODES_A_TYPE)
        # Each relation multiplies the rows of both of its ends.
        products = {Linear(WIDTH, WIDTH): 2 * relations * NODES_A_TYPE}
        if name.endswith("gat"):
            return attention_floor("gat", workload, HEADS, WIDTH, products, Roofs(workload))
        return sums_floor(workload, WIDTH, products, Roofs(workload))

    return Pass(once, floor)


def pass_of(order: dict[str, Any]) -> Pass:
    """A forward and backward pass of a layer, and its floor."""
    if order["layer"] in INSIDE:
        return one_pass_of_relations(order["layer"], order["relations"])
    return one_pass(order["layer"], order["graph"], order["edges"])


def peak_of(order: dict[str, Any]) -> int:
    """The peak memory of one way, in a process of its own."""
    torch.set_num_threads(order["threads"])
    once = pass_of(order).once
    patch = onehop.patch()
    before = resident_bytes()
    with contextlib.nullcontext() if order["patched"] else patch.paused():
        once()
        once()
    return peak_bytes() - before


def in_own_process(order: dict[str, Any]) -> int:
    """What :func:`peak_of` says.

    Raises:
        SystemExit: It failed.
    """
    program = [sys.executable, __file__, "--child", json.dumps(order)]
    finished = subprocess.run(program, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        raise SystemExit(finished.stderr)
    return int(finished.stdout.splitlines()[-1])


def measure(name: str, options: Any) -> dict[str, Any]:
    """One layer."""
    found = pass_of(_order(name, options))
    row = {
        "layer": name,
        **beside_pyg(found.once, options.rounds, TOLERANCE),
        "floor_s": found.floor(),
    }
    if not options.memory:
        return row
    ways = {"pyg": False, "onehop": True}
    peaks = {way: in_own_process({**_order(name, options), "patched": on}) for way, on in ways.items()}
    return {**row, "peak_bytes": peaks}


def _order(name: str, options: Any) -> dict[str, Any]:
    """What a process is told to measure."""
    return {
        "layer": name,
        **{key: getattr(options, key) for key in ("graph", "edges", "relations", "threads")},
    }


def main() -> None:
    """Prints a line a layer."""
    parser = command.parser(__doc__, rounds=5, threads=True)
    parser.add_argument("--layers", type=command.names, default=",".join(LAYERS))
    parser.add_argument("--graph", default="arxiv", help="of RGCNConv (arxiv)")
    parser.add_argument("--edges", type=int, default=EDGES, help=f"of the other layers ({EDGES})")
    parser.add_argument("--relations", type=int, default=RELATIONS, help=f"of many layers ({RELATIONS})")
    parser.add_argument("--memory", action="store_true", help="measure peaks of memory too")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = command.read(parser)
    if options.child:
        print(peak_of(json.loads(options.child)))
        return
    if unknown := [name for name in options.layers if name not in LAYERS]:
        raise SystemExit(f"--layers: unknown {', '.join(unknown)}; there are {', '.join(LAYERS)}.")
    print(machine_line())
    rows = []
    for name in options.layers:
        rows.append(row := measure(name, options))
        ratio, wrong = row["ratio"], " WRONG" if row["wrong"] else ""
        peaks, memory = row.get("peak_bytes"), ""
        if peaks is not None:
            times = peaks["pyg"] / peaks["onehop"]
            memory = f"{peaks['pyg'] / 1e6:.0f} and {peaks['onehop'] / 1e6:.0f} MB (1/{times:.1f}), "
        print(
            f"{name:14} PyG {row['pyg_s'] * 1e3:7.1f} ms, onehop {row['onehop_s'] * 1e3:7.1f} ms, "
            f"{ratio['median']:.2f}x ({ratio['lower_quartile']:.2f} to {ratio['upper_quartile']:.2f}), "
            f"{beside_floor(row['onehop_s'], row['floor_s'])}, {memory}"
            f"difference {row['difference']:.1e}{wrong}",
            flush=True,
        )
        command.write(options, "bench typed", {"results": rows})


if __name__ == "__main__":
    main()
