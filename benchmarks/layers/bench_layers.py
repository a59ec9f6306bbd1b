"""One layer, forward and backward: plain PyG, the same with ``onehop.patch()``, and DGL if installed.

    python benchmarks/layers/bench_layers.py [--layers gatv2,gat] [--graphs arxiv,road,cora] [--rounds 2]
                                             [--threads N] [--json FILE]

Every measurement is a process of its own, so that its peak memory is its own; the ways take turns. Results
and gradients are compared before anything is reported. Peak memory is what two forward and backward passes
add to the process, after its data and the layer have been made. For attention the operator alone is timed
too, and set against the gather of random rows of the same length (``onehop bench limits``), by the bytes that
it must move if no source row is found in a cache.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import onehop
from onehop.bench import command, graphs, limits
from onehop.bench.memory import peak_bytes, resident_bytes
from onehop.bench.stamp import machine_line
from onehop.bench.timing import measure_once, median_of_turn

WAYS = ("pyg", "onehop", "dgl")
HEADS, HEAD_WIDTH, WIDTH = 4, 32, 64
ATTENTION = ("gat", "gatv2", "transformer")
LAYERS = (*ATTENTION, "gine", "resgated", "pna")
# Relative to the largest entry: sums over hubs of float32 differ in their last digits with their order.
TOLERANCE = 1e-3
# A turn lasts about so long, so that small graphs are timed over many passes.
TURN_S = 0.5
# What takes longer is timed once a turn.
LONG_S = 5.0


def pyg_layer(name: str, degrees: Tensor) -> tuple[torch.nn.Module, int, int]:
    """The layer, the width of its input, and that of its edge features (0: none)."""
    from torch_geometric import nn

    features = HEADS * HEAD_WIDTH
    if name in ATTENTION:
        kind = {"gat": nn.GATConv, "gatv2": nn.GATv2Conv, "transformer": nn.TransformerConv}[name]
        return kind(features, HEAD_WIDTH, heads=HEADS), features, 0
    if name == "gine":
        return nn.GINEConv(torch.nn.Linear(WIDTH, WIDTH)), WIDTH, WIDTH
    if name == "resgated":
        return nn.ResGatedGraphConv(WIDTH, WIDTH), WIDTH, 0
    scalers = ["identity", "amplification", "attenuation"]
    histogram = torch.bincount(degrees)
    return nn.PNAConv(WIDTH, WIDTH, ["mean", "min", "max", "std"], scalers, histogram), WIDTH, 0


def dgl_layer(name: str, workload: Any) -> Callable[[Tensor], Tensor]:
    """DGL's layer of the same sizes, with parameters of its own."""
    from onehop.bench.peers.dgl import DglPeer

    reason = DglPeer().available()
    if reason is not None or name not in ("gat", "gatv2"):
        raise SystemExit(reason or f"no {name} in DGL")
    import dgl
    from dgl.nn.pytorch import GATConv, GATv2Conv

    graph = dgl.add_self_loop(dgl.graph(tuple(workload.edge_index), num_nodes=workload.num_nodes)).int()
    graph.create_formats_()
    layer = {"gat": GATConv, "gatv2": GATv2Conv}[name](HEADS * HEAD_WIDTH, HEAD_WIDTH, HEADS)
    return lambda x: layer(graph, x)


def child(order: dict[str, Any]) -> dict[str, Any]:
    """What one process measures."""
    torch.set_num_threads(order["threads"])
    torch.manual_seed(0)
    workload = graphs.workload(order["graph"])
    edge_index = workload.edge_index
    degrees = torch.bincount(edge_index[1], minlength=workload.num_nodes)
    layer, width, edge_width = pyg_layer(order["layer"], degrees)
    x = torch.randn(workload.num_nodes, width).requires_grad_()
    edge_attr = (torch.randn(edge_index.size(1), edge_width),) if edge_width else ()
    if order["way"] == "dgl":
        forward: Callable[[], Tensor] = _bound(dgl_layer(order["layer"], workload), x)
    else:
        forward = _bound(layer, x, edge_index, *edge_attr)
    if order["way"] == "onehop":
        onehop.patch()

    def once() -> Tensor:
        x.grad = None
        layer.zero_grad()
        out = forward()
        out.backward(torch.ones_like(out))
        return out.detach()

    before = resident_bytes()
    once()
    first = once()
    peak = peak_bytes() - before
    checks = {"out": summary(first), "x": summary(x.grad)}
    checks |= {name: summary(p.grad) for name, p in layer.named_parameters() if p.grad is not None}
    result = {
        "seconds": seconds_of(once),
        "peak_bytes": peak,
        "checks": checks if order["way"] != "dgl" else {},
    }
    if order["way"] == "onehop" and order["layer"] in ATTENTION:
        result |= operator(order["layer"], workload)
    return result


def _bound(function: Callable[..., Tensor], *args: Any) -> Callable[[], Tensor]:
    return lambda: function(*args)


def summary(tensor: Tensor) -> list[float]:
    """Numbers that tell tensors apart: the norm, and the products with two random vectors."""
    flat = tensor.detach().double().flatten()
    generator = torch.Generator().manual_seed(1)
    probes = [float(flat @ torch.randn(flat.numel(), generator=generator).double()) for _ in range(2)]
    return [float(flat.norm()), *probes]


def seconds_of(call: Callable[[], object]) -> float:
    """Median seconds of a call."""
    first = measure_once(call)
    return median_of_turn(call, TURN_S) if first < LONG_S else measure_once(call)


def operator(name: str, workload: Any) -> dict[str, Any]:
    """Forward and backward of the operator alone, and the bytes they must move if no row is reused."""
    n, edges = workload.num_nodes, workload.num_edges
    graph = workload.graph
    rows = [torch.randn(n, HEADS, HEAD_WIDTH).requires_grad_() for _ in range(3)]
    scores = [torch.randn(n, HEADS).requires_grad_() for _ in range(2)]
    att = torch.randn(HEADS, HEAD_WIDTH).requires_grad_()
    calls: dict[str, tuple[Callable[..., Tensor], list[Tensor]]] = {
        "gat": (onehop.gat, [rows[0], *scores]),
        "gatv2": (onehop.gatv2, [rows[0], rows[1], att]),
        "transformer": (onehop.attention, rows),
    }
    attend, operands = calls[name]
    grad = torch.ones_like(attend(graph, *operands))
    forward_s = seconds_of(lambda: attend(graph, *operands))
    both_s = seconds_of(lambda: torch.autograd.grad(attend(graph, *operands), operands, grad))
    moved, moved_back = limits.attention_bytes(name, edges, n, HEADS, HEAD_WIDTH)
    return {
        "operator_forward_s": forward_s,
        "operator_s": both_s,
        "forward_bytes": moved,
        "operator_bytes": moved + moved_back,
    }


def run(order: dict[str, Any]) -> dict[str, Any] | str:
    """What the process of one measurement says; or why there is none."""
    program = [sys.executable, __file__, "--child", json.dumps(order)]
    finished = subprocess.run(program, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        return (finished.stderr.strip().splitlines() or ["it ended without a word"])[-1]
    result: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return result


def compare(plain: dict[str, Any], patched: dict[str, Any]) -> float:
    """The largest difference of any number that sums up a result or a gradient.

    A gradient's is taken relative to the largest gradient: that of a key's bias, say, is 0 but for rounding.
    """
    largest = max(expected[0] for name, expected in plain["checks"].items() if name != "out")
    worst = 0.0
    for name, (norm, *probes) in plain["checks"].items():
        got, *got_probes = patched["checks"][name]
        scale = norm if name == "out" else largest
        pairs = zip((norm, *probes), (got, *got_probes), strict=True)
        worst = max(worst, *(abs(a - b) / (scale or 1) for a, b in pairs))
    return worst


def measure(layer: str, graph: str, rounds: int, threads: int, roof_gbps: float) -> dict[str, Any]:
    """All ways of one layer on one graph."""
    runs: dict[str, list[dict[str, Any]]] = {}
    skipped: dict[str, str] = {}
    for _ in range(rounds):
        for way in WAYS:
            if way in skipped:
                continue
            result = run({"layer": layer, "graph": graph, "way": way, "threads": threads})
            if isinstance(result, str):
                skipped[way] = result
            else:
                runs.setdefault(way, []).append(result)
    row: dict[str, Any] = {"layer": layer, "graph": graph, "skipped": skipped}
    row["seconds"] = {way: statistics.median(r["seconds"] for r in of_way) for way, of_way in runs.items()}
    row["peak_bytes"] = {way: max(r["peak_bytes"] for r in of_way) for way, of_way in runs.items()}
    if "pyg" in runs and "onehop" in runs:
        row["difference"] = compare(runs["pyg"][0], runs["onehop"][0])
        row["wrong"] = not row["difference"] <= TOLERANCE
        row["speedup"] = {
            way: row["seconds"][way] / row["seconds"]["onehop"] for way in runs if way != "onehop"
        }
        row["memory_ratio"] = row["peak_bytes"]["pyg"] / row["peak_bytes"]["onehop"]
    if "operator_s" in runs.get("onehop", [{}])[0]:
        for part in ("operator_forward_s", "operator_s"):
            row[part] = statistics.median(r[part] for r in runs["onehop"])
        first = runs["onehop"][0]
        row["percent_of_roof"] = {
            "forward": first["forward_bytes"] / row["operator_forward_s"] / 1e7 / roof_gbps,
            "forward and backward": first["operator_bytes"] / row["operator_s"] / 1e7 / roof_gbps,
        }
    return row


def main() -> None:
    """Reads the options, measures, prints."""
    parser = command.parser(__doc__, rounds=2, threads=True)
    parser.add_argument("--layers", type=command.names, default=",".join(LAYERS))
    parser.add_argument("--graphs", type=command.names, default="arxiv,road,cora")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = command.read(parser)
    if options.child:
        print(json.dumps(child(json.loads(options.child))))
        return
    print(machine_line())
    roof = limits.random_gather([HEADS * HEAD_WIDTH], limits.default_bytes(), 3)[0].bandwidth.gbps
    print(f"gather of random rows of {HEADS * HEAD_WIDTH} floats: {roof:.1f} GB/s")
    rows = []
    for graph in options.graphs:
        for layer in options.layers:
            rows.append(measure(layer, graph, options.rounds, options.threads, roof))
            print(describe(rows[-1]), flush=True)
            command.write(options, "bench layers", {"gather_gbps": roof, "results": rows})


def describe(row: dict[str, Any]) -> str:
    """A line."""
    seconds = ", ".join(f"{way} {value * 1e3:.1f} ms" for way, value in row["seconds"].items())
    peaks = ", ".join(f"{way} {value / 1e6:.0f} MB" for way, value in row["peak_bytes"].items())
    text = f"{row['graph']} {row['layer']}: {seconds}; {peaks}"
    if "speedup" in row:
        over = ", ".join(f"{ratio:.2f}x {way}" for way, ratio in row["speedup"].items())
        text += f"; {over}; memory 1/{row['memory_ratio']:.1f} of PyG's"
        text += f"; difference {row['difference']:.1e}{' WRONG' if row['wrong'] else ''}"
    if "percent_of_roof" in row:
        shares = ", ".join(f"{part} {share:.0f} %" for part, share in row["percent_of_roof"].items())
        text += f"; roof: {shares}"
    for way, reason in row["skipped"].items():
        text += f"; {way} left out: {reason}"
    return text


if __name__ == "__main__":
    main()
