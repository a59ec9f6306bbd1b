"""Full-graph training of unchanged PyG models on several processes of this machine, beside one.

    python -m benchmarks.distributed.bench_distributed [--graph twin:arxiv-communities]
        [--models gcn sage gatv2] [--processes 1 2 4] [--epochs 6] [--hidden 64] [--json FILE]

Every process has one thread. On a machine with fewer cores than processes they share cores, so that the times
show what dividing costs, not what it gains. Before times are taken, losses are compared with those of one
process. "alone" is one process without a group, with the whole graph. Times are medians of the epochs after
the first; waiting is the time in which a process could only wait for rows or gradients of others.
"""

import os
import statistics
import time
from argparse import Namespace
from collections.abc import Iterator

import torch
import torch.distributed as dist
import torch.nn.functional as F

import onehop
from benchmarks import columns
from benchmarks.distributed.processes import launch
from benchmarks.harness import Benchmark, Option, Options, Row
from onehop import distributed
from onehop.bench.plain_models import MODELS
from onehop.bench.sources import structure
from onehop.distributed.exchange import Messages
from onehop.tables import Table

FEATURES, CLASSES = 128, 40
# float32; an epoch's sums in another order, then steps of Adam.
TOLERANCE = 2e-3
FACTS = ("rows", "inner_rows", "edges", "cut_rows", "cut_edges", "prepare_s")


def train(order: Row) -> Row:
    """One process's work: losses, times, bytes."""
    torch.set_num_threads(1)
    options = Namespace(**order)
    workload = structure(options.graph)
    edges, nodes = workload.edge_index, workload.num_nodes
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(nodes, FEATURES, generator=generator)
    y = torch.randint(CLASSES, (nodes,), generator=generator)
    begin, graph = time.perf_counter(), None
    if not options.alone:
        dist.init_process_group("gloo")
        graph = distributed.DistributedGraph.from_edge_index(edges, nodes, method=options.method)
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
    found: dict[str, Row] = {}
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
            median = statistics.median(seconds[1:])
            found[name] = {
                "losses": losses,
                "epoch_s": median,
                "waiting_s": statistics.median(waits[1:]),
                "sent_bytes": sent[-1],
                "spread": (max(seconds[1:]) - min(seconds[1:])) / median,
            }
    result: Row = {"models": found, "prepare_s": prepared, "link_gbps": link_gbps}
    if graph is not None:
        part = {name: getattr(graph.part, name) for name in ("inner_rows", "cut_rows", "cut_edges")}
        result |= {"rows": graph.num_nodes, "edges": graph.num_edges, **part}
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


def predict(count: str, ranks: list[Row], alone_s: float, models: list[Row]) -> float:
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


def rows(options: Options) -> Iterator[Row]:
    """Trains with each number of processes, and compares losses."""
    order = {key: getattr(options, key) for key in ("graph", "models", "epochs", "hidden", "method")}
    parts = options.noted["parts"] = {}
    exact: dict[str, Row] = {}
    for count in ("alone", *map(str, options.processes)):
        alone = count == "alone"
        ranks = launch(train, {**order, "alone": alone}, 1 if alone else int(count))
        exact = exact or ranks[0]["models"]
        parts[count] = {key: [rank.get(key) for rank in ranks] for key in FACTS}
        for name in options.models:
            models = [rank["models"][name] for rank in ranks]
            pairs = zip(models[0]["losses"], exact[name]["losses"], strict=True)
            error = max(abs(ours - theirs) / theirs for ours, theirs in pairs)
            if not error < TOLERANCE:
                raise SystemExit(f"{name} on {count} processes: losses differ by {error:.1e}")
            yield {
                "model": name,
                "predicted_s": predict(count, ranks, exact[name]["epoch_s"], models),
                "processes": count,
                "epoch_s": max(model["epoch_s"] for model in models),
                "waiting_s": max(model["waiting_s"] for model in models),
                "sent_bytes": sum(model["sent_bytes"] for model in models),
                "loss_error": error,
                "spread": max(model["spread"] for model in models),
            }


PARTS = columns.of(f"processes | 0; {'; '.join(f'{key} | 1/{key} | list' for key in FACTS)}")
BENCHMARK = Benchmark(
    "bench distributed",
    rows,
    "model; processes; epoch, ms | epoch_s | ms; predicted, ms | predicted_s | ms; "
    "waiting, ms | waiting_s | ms; sent, MiB | sent_bytes | MiB; loss error | loss_error | {:.0e}",
    {
        "graph": "twin:arxiv-communities",
        "models": Option(("gcn", "sage", "gatv2"), known=tuple(MODELS)),
        "processes": (1, 2, 4),
        "epochs": 6,
        "hidden": 64,
        "method": "greedy",
    },
    key="rows",
    threads=False,
    kept=("graph", "epochs", "hidden", "method"),
    notes=lambda options, rows: [Table(PARTS, list(options.noted["parts"].items()))],
)

if __name__ == "__main__":
    BENCHMARK.main()
