"""One layer, forward and backward: plain PyG, the same with ``onehop.patch()``, and DGL if installed.

    python -m benchmarks.layers.bench_layers [--layers gatv2,gat] [--graphs arxiv,road,cora] [--rounds 2]
                                             [--threads N] [--json FILE]

Every measurement is a process of its own, so that its peak memory is its own; the ways take turns. Results
and gradients are compared before anything is reported. Peak memory is what two forward and backward passes
add to the process, after its data and the layer have been made. For attention the operator alone is timed
too, and set against the gather of random rows of the same length (``onehop bench limits``), by the bytes that
it must move if no source row is found in a cache.
"""

import json
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import onehop
from benchmarks import harness
from benchmarks.harness import Benchmark, Option, Options, Row
from onehop.bench import graphs, limits
from onehop.bench.cases import Workload
from onehop.bench.timing import measure_once, median_of_turn

WAYS = ("pyg", "onehop", "dgl")
HEADS, HEAD_WIDTH, WIDTH = 4, 32, 64
ATTENTION = ("gat", "gatv2", "transformer")
LAYERS = (*ATTENTION, "gine", "resgated", "pna")
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


def dgl_layer(name: str, workload: Workload) -> Callable[[Tensor], Tensor]:
    """DGL's layer of the same sizes, with parameters of its own."""
    from onehop.bench.peers.dgl import DglPeer, graph_of

    reason = DglPeer().available()
    if reason is not None or name not in ("gat", "gatv2"):
        raise SystemExit(reason or f"no {name} in DGL")
    from dgl.nn.pytorch import GATConv, GATv2Conv

    graph = graph_of(workload.edge_index, workload.num_nodes, loops=True)
    layer = {"gat": GATConv, "gatv2": GATv2Conv}[name](HEADS * HEAD_WIDTH, HEAD_WIDTH, HEADS)
    return partial(layer, graph)


def measured(order: Row) -> Row:
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
        forward: Callable[[], Tensor] = partial(dgl_layer(order["layer"], workload), x)
    else:
        forward = partial(layer, x, edge_index, *edge_attr)
    if order["way"] == "onehop":
        onehop.patch()

    def once() -> Tensor:
        x.grad = None
        layer.zero_grad()
        out = forward()
        out.backward(torch.ones_like(out))
        return out.detach()

    peak = harness.added_bytes(once)
    checks = {"out": summary(once()), "x": summary(x.grad)}
    checks |= {name: summary(p.grad) for name, p in layer.named_parameters() if p.grad is not None}
    result = {
        "seconds": seconds_of(once),
        "peak_bytes": peak,
        "checks": checks if order["way"] != "dgl" else {},
    }
    if order["way"] == "onehop" and order["layer"] in ATTENTION:
        result |= operator(order["layer"], workload)
    return result


def summary(tensor: Tensor) -> list[float]:
    """Numbers by which tensors are compared: the norm, and the products with two random vectors."""
    flat = tensor.detach().double().flatten()
    generator = torch.Generator().manual_seed(1)
    probes = [float(flat @ torch.randn(flat.numel(), generator=generator).double()) for _ in range(2)]
    return [float(flat.norm()), *probes]


def seconds_of(call: Callable[[], object]) -> float:
    """Median seconds of a call."""
    first = measure_once(call)
    return median_of_turn(call, TURN_S) if first < LONG_S else first


def operator(name: str, workload: Workload) -> Row:
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
    moved, moved_back = limits.attention_bytes(name, edges, n, HEADS, HEAD_WIDTH)
    return {
        "operator_forward_s": seconds_of(lambda: attend(graph, *operands)),
        "operator_s": seconds_of(lambda: torch.autograd.grad(attend(graph, *operands), operands, grad)),
        "forward_bytes": moved,
        "operator_bytes": moved + moved_back,
    }


def run(order: Row) -> Row | str:
    """What the process of one measurement says; or why there is none."""
    try:
        result: Row = harness.apart(measured, order)
    except SystemExit as failed:
        return (str(failed).strip().splitlines() or ["it ended without a message"])[-1]
    return result


def compare(plain: Row, patched: Row) -> float:
    """The largest difference of any number that sums up a result or a gradient.

    A gradient's is taken relative to the largest gradient: that of a key's bias, say, is 0 but for rounding.
    """
    largest = max(expected[0] for name, expected in plain["checks"].items() if name != "out")
    worst = 0.0
    for name, expected in plain["checks"].items():
        scale = expected[0] if name == "out" else largest
        pairs = zip(expected, patched["checks"][name], strict=True)
        worst = max(worst, *(abs(a - b) / (scale or 1) for a, b in pairs))
    return worst


def measure(order: Row, rounds: int, roof_gbps: float) -> Row:
    """All ways of one layer on one graph."""
    runs: dict[str, list[Row]] = {}
    skipped: dict[str, str] = {}
    for _ in range(rounds):
        for way in WAYS:
            if way in skipped:
                continue
            result = run({**order, "way": way})
            if isinstance(result, str):
                skipped[way] = result
            else:
                runs.setdefault(way, []).append(result)
    row: Row = {"layer": order["layer"], "graph": order["graph"], "skipped": skipped}
    row["seconds"] = {way: statistics.median(r["seconds"] for r in of_way) for way, of_way in runs.items()}
    row["peak_bytes"] = {way: max(r["peak_bytes"] for r in of_way) for way, of_way in runs.items()}
    if "pyg" in runs and "onehop" in runs:
        row["difference"] = compare(runs["pyg"][0], runs["onehop"][0])
        row["wrong"] = not row["difference"] <= harness.TOLERANCE
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


def rows(options: Options) -> Iterator[Row]:
    """Measures the gather, then every layer on every graph."""
    floats = HEADS * HEAD_WIDTH
    if options.limits is None:
        roof = limits.random_gather([floats], limits.default_bytes(), 3)[0].bandwidth.gbps
    else:
        gathers = json.loads(options.limits.read_text())["gather"]
        roof = next(each["gbps"] for each in gathers if each["row_floats"] == floats)
    options.noted["gather_gbps"] = roof
    for graph in options.graphs:
        for layer in options.layers:
            order = {"layer": layer, "graph": graph, "threads": options.threads}
            yield measure(order, options.rounds, roof)


def reasons(options: Options, rows: list[Row]) -> Iterator[Any]:
    """Why a way was left out."""
    yield f"gather of random rows of {HEADS * HEAD_WIDTH} floats: {options.noted['gather_gbps']:.1f} GB/s"
    for row in rows:
        for way, reason in row["skipped"].items():
            yield f"{row['graph']} {row['layer']}: {way} left out: {reason}"


BENCHMARK = Benchmark(
    "bench layers",
    rows,
    "graph; layer; PyG, ms | seconds/pyg | ms; onehop, ms | seconds/onehop | ms; "
    "over PyG | speedup/pyg | x; over DGL | speedup/dgl | x; PyG, MiB | peak_bytes/pyg | MiB; "
    "onehop, MiB | peak_bytes/onehop | MiB; "
    "of the roof, % | percent_of_roof/forward and backward | {:.0f};  | wrong | wrong",
    {
        "layers": Option(LAYERS, known=LAYERS),
        "graphs": Option(("arxiv", "road", "cora"), known=graphs.GRAPHS),
        "limits": Option(None, "results of onehop bench limits; the gather is measured otherwise", kind=Path),
    },
    rounds=2,
    notes=reasons,
)

if __name__ == "__main__":
    BENCHMARK.main()
