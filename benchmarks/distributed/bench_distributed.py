"""Full-graph training of unchanged PyG models on several processes of this machine, beside one.

    python benchmarks/distributed/bench_distributed.py [--graph twin:arxiv-communities]
        [--models gcn sage gatv2] [--processes 1 2 4] [--epochs 6] [--hidden 64] [--json FILE]

Every process has one thread. On a machine with fewer cores than processes they share cores, so that the times
show what dividing costs, not what it gains. Before times are taken, losses are compared with those of one
process. "alone" is one process without a group, with the whole graph. Times are medians of the epochs after
the first; waiting is the time in which a process could only wait for rows or gradients of others.
"""

import argparse
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from processes import launch

import onehop
from onehop import distributed
from onehop.bench import command
from onehop.bench.plain_models import MODELS
from onehop.bench.sources import structure
from onehop.bench.stamp import machine_line
from onehop.distributed.exchange import Messages

FEATURES, CLASSES = 128, 40
# float32; an epoch's sums in another order, then steps of Adam.
TOLERANCE = 2e-3


def train(options: argparse.Namespace) -> dict[str, object]:
    """One process's work: losses, times, bytes."""
    torch.set_num_threads(1)
    workload = structure(options.graph)
    edge_index, nodes = workload.edge_index, workload.num_nodes
    generator = torch.Generator().manual_seed(0)
    x, y = (
        torch.randn(nodes, FEATURES, generator=generator),
        torch.randint(CLASSES, (nodes,), generator=generator),
    )
    begin = time.perf_counter()
    graph, edges = None, edge_index
    if not options.alone:
        dist.init_process_group("gloo")
        graph = distributed.DistributedGraph.from_edge_index(edge_index, nodes, method=options.method)
        edges, x, y = graph.edge_index, x[graph.owned_nodes], y[graph.owned_nodes]
    prepared = time.perf_counter() - begin
    link_gbps = None if graph is None or dist.get_world_size() < 2 else link()
    waited = [0.0]
    wait = Messages.wait

    def timed(self: Messages) -> torch.Tensor:
        start = time.perf_counter()
        received = wait(self)
        waited[0] += time.perf_counter() - start
        return received

    Messages.wait = timed
    found: dict[str, object] = {}
    with onehop.patch():
        for name in options.models:
            torch.manual_seed(0)
            model = MODELS[name](FEATURES, options.hidden, CLASSES)
            if graph is not None:
                model = distributed.convert(model, graph)
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
            losses, seconds, waits, sent = [], [], [], []
            for _ in range(options.epochs):
                if graph is not None:
                    dist.barrier()
                    graph.reset_traffic()
                waited[0], start = 0.0, time.perf_counter()
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x, edges), y, reduction="sum") / nodes
                loss.backward()
                if graph is not None:
                    distributed.add_gradients(model.parameters())
                optimizer.step()
                seconds.append(time.perf_counter() - start)
                waits.append(waited[0])
                whole = loss.detach().clone()
                losses.append(float(whole if graph is None else distributed.total(whole)))
                sent.append(0 if graph is None else graph.traffic.sent_bytes)
            found[name] = {
                "losses": losses,
                "epoch_s": statistics.median(seconds[1:]),
                "waiting_s": statistics.median(waits[1:]),
                "sent_bytes": sent[-1],
                "spread": (max(seconds[1:]) - min(seconds[1:])) / statistics.median(seconds[1:]),
            }
    result: dict[str, object] = {"models": found, "prepare_s": prepared, "link_gbps": link_gbps}
    if graph is not None:
        part = graph.part
        result |= {
            "rows": graph.num_nodes,
            "inner_rows": part.inner_rows,
            "edges": graph.num_edges,
            "cut_rows": part.cut_rows,
            "cut_edges": part.cut_edges,
        }
        dist.barrier()
        dist.destroy_process_group()
    return result


def link() -> float:
    """Gigabytes a second from rank 0 to rank 1 while as many come back; other ranks wait."""
    rank, size = dist.get_rank(), 64 << 20
    out, back = torch.zeros(size, dtype=torch.uint8), torch.empty(size, dtype=torch.uint8)
    best = 0.0
    for _ in range(3):
        dist.barrier()
        if rank < 2:
            begin = time.perf_counter()
            works = [dist.irecv(back, 1 - rank), dist.isend(out, 1 - rank)]
            for work in works:
                work.wait()
            best = max(best, size / (time.perf_counter() - begin) / 1e9)
    dist.barrier()
    return best


def predict(count: str, ranks: list[dict], alone_s: float, models: list[dict]) -> float:
    """What the cost model says: the work of one process, divided among the cores that there are; messages."""
    if count == "alone":
        return alone_s
    cores = min(len(ranks), len(os.sched_getaffinity(0)))
    # Processes that share a core take turns; then the mean counts, and not the largest part.
    edges = [rank["edges"] for rank in ranks]
    largest = max(edges) if cores == len(ranks) else sum(edges) / cores
    compute_s = alone_s * largest / sum(edges)
    if len(ranks) == 1:
        return compute_s
    sent = sum(model["sent_bytes"] for model in models) / cores
    return max(compute_s, sent / (ranks[0]["link_gbps"] * 1e9))


def main() -> None:
    """Measures, checks, prints, writes."""
    parser = command.parser(__doc__)
    parser.add_argument("--graph", default="twin:arxiv-communities")
    parser.add_argument("--models", nargs="+", default=["gcn", "sage", "gatv2"])
    parser.add_argument("--processes", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--method", default="greedy")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = command.read(parser)
    if options.worker:
        print(json.dumps(train(options)))
        return
    print(machine_line())
    runs: dict[str, list[dict]] = {"alone": launch(__file__, 1, *sys.argv[1:], "--worker", "--alone")}
    for count in options.processes:
        runs[str(count)] = launch(__file__, count, *sys.argv[1:], "--worker")
    exact = runs["alone"][0]["models"]
    rows = []
    for name in options.models:
        for count, ranks in runs.items():
            models = [rank["models"][name] for rank in ranks]
            error = max(
                abs(ours - theirs) / theirs
                for ours, theirs in zip(models[0]["losses"], exact[name]["losses"], strict=True)
            )
            if not error < TOLERANCE:
                raise SystemExit(f"{name} on {count} processes: losses differ by {error:.1e}")
            predicted = predict(count, ranks, exact[name]["epoch_s"], models)
            rows.append(
                {
                    "model": name,
                    "predicted_s": predicted,
                    "processes": count,
                    "epoch_s": max(model["epoch_s"] for model in models),
                    "waiting_s": max(model["waiting_s"] for model in models),
                    "sent_bytes": sum(model["sent_bytes"] for model in models),
                    "loss_error": error,
                    "spread": max(model["spread"] for model in models),
                }
            )
            row = rows[-1]
            print(
                f"{name:12} {count:>6}: epoch {row['epoch_s'] * 1e3:8.1f} ms (model: "
                f"{predicted * 1e3:8.1f}), of which waiting at most "
                f"{row['waiting_s'] * 1e3:7.1f}, {row['sent_bytes'] / 1e6:8.2f} MB sent, "
                f"losses within {error:.0e}"
            )
    facts_of = ("rows", "inner_rows", "edges", "cut_rows", "cut_edges", "prepare_s")
    parts = {
        count: {key: [rank.get(key) for rank in ranks] for key in facts_of} for count, ranks in runs.items()
    }
    for count, facts in parts.items():
        print(f"{count:>6}: {facts}")
    chosen = {name: getattr(options, name) for name in ("graph", "epochs", "hidden", "method")}
    command.write(options, "bench distributed", {**chosen, "rows": rows, "parts": parts})


if __name__ == "__main__":
    main()
