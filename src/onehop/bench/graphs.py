"""Graphs on which operators are measured: structure only, the same for every seed and machine."""

from onehop.bench.cases import Workload
from onehop.bench.graph_names import BENCHMARK_GRAPHS
from onehop.datasets import chung_lu, grid
from onehop.errors import ArgumentError

# Nodes and directed edges of the symmetric random graphs.
_RANDOM = {"arxiv": (169_343, 2_400_000), "reddit-mini": (58_000, 11_000_000), "cora": (2_708, 10_556)}
_ROAD = (500, 500)
GRAPHS = BENCHMARK_GRAPHS


def workload(name: str) -> Workload:
    """Generate a graph of :data:`GRAPHS`.

    ``arxiv``, ``reddit-mini`` and ``cora`` are Chung-Lu graphs with weights rank^-0.6 and shuffled node
    numbers; ``road`` is a grid of 500 by 500.

    Raises:
        ArgumentError: The name is unknown.
    """
    if name not in GRAPHS:
        raise ArgumentError(f"graphs: expected some of {', '.join(GRAPHS)}, got {name!r}.")
    if name == "road":
        return Workload(name, grid(*_ROAD), _ROAD[0] * _ROAD[1])
    num_nodes, num_edges = _RANDOM[name]
    return Workload(name, chung_lu(num_nodes, num_edges), num_nodes)
