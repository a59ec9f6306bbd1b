"""The twins of the works' graphs; and progress, which long computations report."""

from onehop import datasets
from onehop.datasets import Progress as Progress
from onehop.graph import Graph
from onehop.graph.self_loops import with_self_loops


def silent(_what: str, _done: float) -> None:
    """Reports nothing."""


def part(progress: Progress, begin: float, end: float) -> Progress:
    """The progress of a part of a computation, which begins and ends at these shares of the whole."""
    return lambda what, done: progress(what, begin + (end - begin) * done)


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
