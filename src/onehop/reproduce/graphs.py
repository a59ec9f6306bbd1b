"""The twins that stand for the works' graphs."""

from onehop import datasets
from onehop.graph import Graph
from onehop.graph.self_loops import with_self_loops
from onehop.reproduce.progress import Progress


def twin(name: str, scale: float, progress: Progress, *, self_loops: bool = False) -> Graph:
    """A twin's structure.

    Args:
        name: One of :func:`onehop.datasets.names`.
        scale: Multiplies its nodes and edges.
        progress: Told how far it is.
        self_loops: Give every node an edge to itself.
    """
    found = datasets.load(f"twin:{name}", scale=scale, progress=progress, features=False)
    structure = Graph.from_edge_index(found.edge_index, num_nodes=found.num_nodes)
    return with_self_loops(structure) if self_loops else structure


def label(name: str, scale: float) -> str:
    """The name of a twin in rows and pictures."""
    return f"{name} twin" if scale == 1 else f"{name} twin x {scale:g}"
