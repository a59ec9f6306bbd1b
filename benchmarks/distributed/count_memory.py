"""Bytes that a divided graph and its layers hold for each owned edge, after a step of training.

    python -m benchmarks.distributed.count_memory [--graph twin:arxiv-communities]
        [--models gcn sage gatv2 gat transformer] [--processes 2] [--method greedy] [--json FILE]

Counted are all tensors and native graphs that the process has, each storage once, but for the features, the
labels, the model, its gradients and the optimizer. For each rank and model: owned rows, halo rows and edges,
these bytes, and what ``DistributedGraph.nbytes`` says.
"""

import gc
import warnings
from collections.abc import Iterable, Iterator

import torch
import torch.distributed as dist
import torch.nn.functional as F

import onehop
from benchmarks.distributed.processes import launch
from benchmarks.harness import Benchmark, Option, Options, Row
from onehop import distributed
from onehop.bench.plain_models import MODELS
from onehop.bench.sources import structure

FEATURES, HIDDEN, CLASSES = 8, 8, 4


def held_bytes(known: Iterable[torch.Tensor]) -> int:
    """Bytes of all tensors and graphs of this process, without the known tensors."""
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of modules that warn when their attributes are looked at
        found = gc.get_objects()
        tensors = [each for each in found if isinstance(each, torch.Tensor)]
        graphs = [each for each in found if type(each) is onehop.Graph]
    known_storages = {each.untyped_storage().data_ptr() for each in known}
    sizes = {}
    for each in tensors:
        storage = storage_of(each)
        if storage.data_ptr() not in known_storages:
            sizes[storage.data_ptr()] = storage.nbytes()
    for graph in graphs:
        for csr in (graph.csr, graph._transpose, *graph.ordered.values()):
            if csr is not None:
                sizes[id(csr)] = csr.bytes
    return sum(sizes.values())


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage:
    """The storage, whatever the tensor's class does with its attributes."""
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.untyped_storage()


def count(graph_name: str, model_name: str, method: str) -> Row:
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


def work(order: Row) -> dict[str, Row]:
    """One process's counts, by model."""
    dist.init_process_group("gloo")
    found = {name: count(order["graph"], name, order["method"]) for name in order["models"]}
    dist.barrier()
    dist.destroy_process_group()
    return found


def rows(options: Options) -> Iterator[Row]:
    """Counts in every process."""
    order = {key: getattr(options, key) for key in ("graph", "models", "method")}
    options.noted["ranks"] = launch(work, order, options.processes)
    for name in options.models:
        for rank, found in enumerate(options.noted["ranks"]):
            each = found[name]
            by_edge = {key: each[key] / each["edges"] for key in ("held_bytes", "nbytes")}
            yield {**each, "model": name, "rank": rank, "by_edge": by_edge}


BENCHMARK = Benchmark(
    "count memory",
    rows,
    "model; rank; rows; halo; edges; held, bytes an edge | by_edge/held_bytes | {:.1f}; "
    "nbytes, an edge | by_edge/nbytes | {:.1f}",
    {
        "graph": "twin:arxiv-communities",
        "models": Option(("gcn", "sage", "gatv2", "gat", "transformer"), known=tuple(MODELS)),
        "processes": 2,
        "method": "greedy",
    },
    key=None,
    threads=False,
    kept=("graph",),
)

if __name__ == "__main__":
    BENCHMARK.main()
