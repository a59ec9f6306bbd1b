"""Bytes that a divided graph and its layers hold for each owned edge, after a step of training.

    python benchmarks/distributed/count_memory.py [--graph twin:arxiv-communities]
        [--models gcn sage gatv2 gat transformer] [--processes 2] [--method greedy] [--json FILE]

Counted are all tensors and native graphs that the process has, each storage once, but for the features, the
labels, the model, its gradients and the optimizer. For each rank and model: owned rows, halo rows and edges,
these bytes, and what ``DistributedGraph.nbytes`` says.
"""

import argparse
import itertools
import json
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from held import held_bytes
from processes import launch

import onehop
from onehop import distributed
from onehop.bench import command
from onehop.bench.plain_models import MODELS
from onehop.bench.sources import structure
from onehop.bench.stamp import machine_line

FEATURES, HIDDEN, CLASSES = 8, 8, 4


def count(graph_name: str, model_name: str, method: str) -> dict[str, object]:
    """One process's work: a step, and the bytes that are held afterwards."""
    torch.set_num_threads(1)
    before = held_bytes([])
    workload = structure(graph_name)
    nodes = workload.num_nodes
    graph = distributed.DistributedGraph.from_edge_index(workload.edge_index, nodes, method=method)
    del workload
    x = torch.randn(graph.num_nodes, FEATURES, requires_grad=True)
    y = torch.randint(CLASSES, (graph.num_nodes,))
    with onehop.patch():
        torch.manual_seed(0)
        model = MODELS[model_name](FEATURES, HIDDEN, CLASSES)
        edges = graph.edge_index
        loss = F.cross_entropy(model(x, edges), y, reduction="sum") / nodes
        loss.backward()
        del loss
        parameters = list(model.parameters())
        known = [x, x.grad, y, *parameters, *(each.grad for each in parameters)]
        held = held_bytes(known) - before
    return {
        "rows": graph.num_nodes,
        "halo": graph.num_halo,
        "edges": graph.num_edges,
        "held_bytes": held,
        "nbytes": graph.nbytes,
        "cut_rows": graph.part.cut_rows,
    }


def work(options: argparse.Namespace) -> dict[str, object]:
    """One process's counts, by model."""
    dist.init_process_group("gloo")
    found = {name: count(options.graph, name, options.method) for name in options.models}
    dist.barrier()
    dist.destroy_process_group()
    return found


def main() -> None:
    """Counts, prints, writes."""
    parser = command.parser(__doc__)
    parser.add_argument("--graph", default="twin:arxiv-communities")
    parser.add_argument("--models", nargs="+", default=["gcn", "sage", "gatv2", "gat", "transformer"])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--method", default="greedy")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = command.read(parser)
    if options.worker:
        print(json.dumps(work(options)))
        return
    print(machine_line())
    ranks = launch(__file__, options.processes, *sys.argv[1:], "--worker")
    for name, (rank, found) in itertools.product(options.models, enumerate(ranks)):
        each = found[name]
        print(
            f"{name:12} rank {rank}: {each['held_bytes'] / each['edges']:6.1f} bytes an owned edge held, "
            f"{each['nbytes'] / each['edges']:6.1f} by nbytes; {each}"
        )
    command.write(options, "count memory", {"graph": options.graph, "ranks": ranks})


if __name__ == "__main__":
    main()
