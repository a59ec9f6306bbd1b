"""Torch's gather, scatter and sort, PyG's functions of edges and link prediction, with and without the patch.

    python -m benchmarks.layers.bench_functions [--cases index,scatter_reduce_amax,coalesce]
                                                [--nodes 170000] [--edges 2000000] [--width 64]
                                                [--graphs arxiv,cora] [--rounds 7] [--json FILE]

Functions of torch run forward and backward over ``--edges`` random rows. Functions of edges have two and a
half times as many, in random order. Functions of integers have as many numbers of nodes, or of edges, but
``unique_pairs`` a twentieth, because torch takes seconds for all. ``link_prediction`` is an epoch on each of
``--graphs``: two layers of GCN, negative samples, the products of both ends of each pair, backward. Results
and gradients are compared before both ways take turns; each case has a process of its own.
"""

import random
from collections.abc import Callable, Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric import utils
from torch_geometric.nn import GCNConv

from benchmarks import harness
from benchmarks.harness import Benchmark, Option, Options, Row
from onehop.bench import graphs

Call = Callable[[], list[Tensor]]
# Edges of functions of edges, times those of torch's functions; samples of an edge; pairs of a node number.
MORE_EDGES, SAMPLES, PAIRS = 2.5, 0.1, 0.05

FUNCTIONS: dict[str, Callable[[Tensor, Tensor, Tensor, int], Tensor]] = {
    "index": lambda x, i, wide, nodes: x[i],
    "index_select": lambda x, i, wide, nodes: x.index_select(0, i),
    "gather": lambda x, i, wide, nodes: x.gather(0, wide),
    "mask": lambda m, i, wide, nodes: m[i < nodes // 2],
    "index_add": lambda m, i, wide, nodes: _zeros(m, nodes).index_add(0, i, m),
    "scatter_add": lambda m, i, wide, nodes: _zeros(m, nodes).scatter_add(0, wide, m),
    "scatter_reduce_mean": lambda m, i, wide, nodes: _reduced(m, wide, nodes, "mean"),
    "scatter_reduce_amax": lambda m, i, wide, nodes: _reduced(m, wide, nodes, "amax"),
    "pyg_scatter": lambda m, i, wide, nodes: utils.scatter(m, i, dim_size=nodes),
}
GATHERS = ("index", "index_select", "gather")
OF_EDGES: dict[str, Callable[[Tensor, Tensor, int], object]] = {
    "coalesce": lambda edges, weight, nodes: utils.coalesce(edges, num_nodes=nodes),
    "coalesce_weights": lambda edges, weight, nodes: utils.coalesce(edges, weight, num_nodes=nodes),
    "to_undirected": lambda edges, weight, nodes: utils.to_undirected(edges, num_nodes=nodes),
    "remove_self_loops": lambda edges, weight, nodes: utils.remove_self_loops(edges, weight),
    "sort_edge_index": lambda edges, weight, nodes: utils.sort_edge_index(edges, num_nodes=nodes),
    "is_undirected": lambda edges, weight, nodes: utils.is_undirected(edges, num_nodes=nodes),
    "contains_isolated_nodes": lambda edges, weight, nodes: utils.contains_isolated_nodes(
        edges, num_nodes=nodes
    ),
    "negative_sampling": lambda edges, weight, nodes: utils.negative_sampling(
        edges, nodes, int(SAMPLES * edges.size(1))
    ),
}
# Of node numbers, and of numbers of edges: row * nodes + column.
OF_INTEGERS: dict[str, Callable[[Tensor, Tensor], Tensor | tuple[Tensor, ...]]] = {
    "unique": lambda nodes, edges: nodes.unique(),
    "unique_inverse": lambda nodes, edges: nodes.unique(return_inverse=True),
    "unique_counts": lambda nodes, edges: nodes.unique(return_inverse=True, return_counts=True),
    "unique_edge_numbers": lambda nodes, edges: edges.unique(return_inverse=True),
    "unique_pairs": lambda nodes, edges: _pairs(nodes).unique(dim=1),
    "argsort": lambda nodes, edges: nodes.argsort(stable=True),
    "argsort_descending": lambda nodes, edges: nodes.argsort(stable=True, descending=True),
    "sort_edge_numbers": lambda nodes, edges: edges.sort(),
    "isin": lambda nodes, edges: torch.isin(nodes, nodes[: nodes.numel() // 100]).view(torch.int8),
    "isin_edge_numbers": lambda nodes, edges: torch.isin(edges, edges[::2]).view(torch.int8),
}
LINKS = "link_prediction"
CASES = (*FUNCTIONS, *OF_EDGES, *OF_INTEGERS, LINKS)


def _pairs(nodes: Tensor) -> Tensor:
    return nodes[: 2 * int(PAIRS * nodes.numel())].view(2, -1)


def _zeros(messages: Tensor, nodes: int) -> Tensor:
    return torch.zeros(nodes, messages.size(1))


def _reduced(messages: Tensor, wide: Tensor, nodes: int, how: str) -> Tensor:
    return _zeros(messages, nodes).scatter_reduce(0, wide, messages, how, include_self=False)


def of_torch(order: Row) -> Call:
    """A function of torch, forward and backward."""
    function, nodes = FUNCTIONS[order["case"]], order["nodes"]
    index = torch.randint(nodes, (order["edges"],))
    wide = index.unsqueeze(1).expand(-1, order["width"])
    rows = nodes if order["case"] in GATHERS else order["edges"]
    x = torch.randn(rows, order["width"], requires_grad=True)
    grad = torch.randn_like(function(x, index, wide, nodes))

    def once() -> list[Tensor]:
        out = function(x, index, wide, nodes)
        return [out.detach(), *torch.autograd.grad(out, x, grad)]

    return once


def of_edges(order: Row) -> Call:
    """A function of edges."""
    edges = torch.randint(order["nodes"], (2, int(MORE_EDGES * order["edges"])))
    weight = torch.rand(edges.size(1))

    def once() -> list[Tensor]:
        _seed()
        found = OF_EDGES[order["case"]](edges, weight, order["nodes"])
        return [torch.as_tensor(each).double() for each in (found if isinstance(found, tuple) else (found,))]

    return once


def of_integers(order: Row) -> Call:
    """A function of integers."""
    rows, cols = torch.randint(order["nodes"], (2, int(MORE_EDGES * order["edges"])))

    def once() -> list[Tensor]:
        found = OF_INTEGERS[order["case"]](cols, edges)
        return list(found) if isinstance(found, tuple) else [found]

    edges = rows * order["nodes"] + cols
    return once


def of_links(order: Row) -> Call:
    """An epoch of link prediction, without its optimiser's step."""
    graph = graphs.workload(order["graph"])
    x, edges, nodes = torch.randn(graph.num_nodes, 128), graph.edge_index, graph.num_nodes
    first, second = GCNConv(128, order["width"]), GCNConv(order["width"], order["width"])
    parameters = [*first.parameters(), *second.parameters()]

    def once() -> list[Tensor]:
        _seed()
        z = second(first(x, edges).relu(), edges)
        pairs = torch.cat([edges, utils.negative_sampling(edges, nodes)], 1)
        found = (z[pairs[0]] * z[pairs[1]]).sum(-1)
        wanted = torch.zeros(pairs.size(1))
        wanted[: edges.size(1)] = 1
        loss = F.binary_cross_entropy_with_logits(found, wanted)
        gradients = torch.autograd.grad(loss, parameters)
        return [loss.detach(), torch.cat([each.flatten() for each in gradients])]

    return once


def _seed() -> None:
    """Seeds all generators that PyG draws from."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - PyG draws from it
    torch.manual_seed(0)


def rows(options: Options) -> Iterator[Row]:
    """Measures every case."""
    shared = {name: getattr(options, name) for name in ("nodes", "edges", "width", "rounds", "threads")}
    for case in options.cases:
        make = next((make for make, cases in MAKERS.items() if case in cases), of_links)
        for graph in options.graphs if case == LINKS else [None]:
            order = {**shared, "case": case, "graph": graph}
            what = case if graph is None else f"{case}, {graph}"
            row = harness.beside_pyg_apart(make, order, what)
            harness.must_agree(row["difference"], harness.TOLERANCE, what)
            yield {"case": what, **row}


MAKERS = {of_torch: FUNCTIONS, of_edges: OF_EDGES, of_integers: OF_INTEGERS}
BENCHMARK = Benchmark(
    "benchmarks/layers/bench_functions.py",
    rows,
    "case; torch and PyG, ms | pyg_s | ms; onehop, ms | onehop_s | ms; gain | ratio | gain",
    {
        "cases": Option(CASES, known=CASES),
        "nodes": 170_000,
        "edges": 2_000_000,
        "width": 64,
        "graphs": Option(("arxiv", "cora"), known=tuple(graphs.GRAPHS)),
    },
    rounds=7,
    kept=("nodes", "edges", "width"),
)

if __name__ == "__main__":
    BENCHMARK.main()
