"""Every layer of PyG, forward and backward, beside the same under ``onehop.patch()``: time and memory.

    python -m benchmarks.layers.bench_convs [--layers GCNConv,NNConv,RGCNConv-50] [--graph arxiv] [--floors]
                                            [--nodes 20000] [--edges 200000] [--rounds 5] [--json FILE]

A random graph with hubs, or one of ``onehop bench ops``; width 64, or less for layers that make a matrix for
every edge (``convs.py``, which has further cases). Each layer has processes of its own: one in which both
ways take turns, after their results and gradients have been compared, and one for each way's peak memory,
which is what two passes add to a process that has its data and the layer. With ``--floors``, the least time
for what the layer moves and multiplies is measured too (``floors.py``). The page of layers takes its columns
from the file (``python tests/integrations/pyg/host_layers.py``).
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from benchmarks import harness
from benchmarks.harness import Benchmark, Option, Options, Row
from benchmarks.layers.convs import CONVS, MORE, NOT_MEASURED, Given, given
from benchmarks.layers.floors import floor_of
from onehop.bench import graphs
from onehop.bench.cases import Workload
from onehop.bench.floors import Roofs
from onehop.datasets import chung_lu

CASES = {**CONVS, **MORE}


def operands(order: Row) -> Given:
    """What a layer is called with."""
    width = CASES[order["layer"]].width
    if order["graph"] is None:
        return given(order["nodes"], chung_lu(order["nodes"], order["edges"]), width)
    workload = graphs.workload(order["graph"])
    return given(workload.num_nodes, workload.edge_index, width)


def one_pass(order: Row) -> Callable[[], list[Tensor]]:
    """A forward and backward pass of a layer; it returns the output and all gradients.

    Those of parameters are one vector: the gradient of some is 0 but for rounding, such as that of a bias
    before a softmax.
    """
    conv, on = CASES[order["layer"]], operands(order)
    layer = conv.make(conv.width, on)
    learned = [on.x, *layer.parameters()]

    def once() -> list[Tensor]:
        out = conv.call(layer, on)
        of_x, *found = torch.autograd.grad(out.square().mean(), learned, allow_unused=True)
        of_parameters = [each.flatten() for each in found if each is not None]
        return [out.detach(), of_x, *([torch.cat(of_parameters)] if of_parameters else [])]

    return once


def peak(order: Row) -> int:
    """The peak memory of one way, in a process of its own."""
    torch.set_num_threads(order["threads"])
    once = one_pass(order)
    with harness.PYG_AND_ONEHOP[order["way"]]():
        return harness.added_bytes(once)


def rows(options: Options) -> Iterator[Row]:
    """Measures every layer."""
    if unknown := [name for name in options.layers if name not in CASES]:
        why = "; ".join(f"{name} {NOT_MEASURED.get(name, 'is no layer of PyG')}" for name in unknown)
        raise SystemExit(f"--layers: {why}.")
    for name in options.layers:
        order = {key: getattr(options, key) for key in ("graph", "nodes", "edges", "rounds", "threads")}
        order["layer"] = name
        row = {"layer": name, "width": CASES[name].width, **harness.beside_pyg_apart(one_pass, order, name)}
        row["peak_bytes"] = {
            way: harness.apart(peak, {**order, "way": way}, name) for way in harness.PYG_AND_ONEHOP
        }
        if options.floors:
            on = operands(order)
            row["floor_s"] = floor_of(name, on, Roofs(Workload(name, on.edges, on.num_nodes)))
            if row["floor_s"] is not None:
                row["x_of_floor"] = row["onehop_s"] / row["floor_s"]["total"]
        yield row


BENCHMARK = Benchmark(
    "benchmarks/layers/bench_convs.py",
    rows,
    "layer; PyG, ms | pyg_s | ms; onehop, ms | onehop_s | ms; over PyG | ratio | gain; "
    "PyG, MiB | peak_bytes/pyg | MiB; onehop, MiB | peak_bytes/onehop | MiB; "
    "floor, ms | floor_s/total | ms; of the floor | x_of_floor | x;  | wrong | wrong",
    {
        "layers": Option(tuple(CONVS)),
        "graph": Option(None, f"one of {', '.join(graphs.GRAPHS)}, in place of --nodes and --edges"),
        "nodes": 20_000,
        "edges": 200_000,
        "floors": Option(False, "measure floors too"),
    },
    rounds=5,
    more=lambda options, rows: {"graph": {"nodes": options.nodes, "edges": options.edges}},
)

if __name__ == "__main__":
    BENCHMARK.main()
