"""Random graphs of the sizes and the skew of well-known ones, generated in seconds where they are needed."""

from dataclasses import dataclass

import torch
from torch import Tensor

from onehop import datasets
from onehop.errors import ArgumentError
from onehop.graph import Graph


@dataclass(frozen=True, slots=True)
class Figures:
    """What a graph is generated from.

    Attributes:
        nodes: Nodes.
        edges: Directed edges; every pair counts twice.
        exponent: The node of rank r is drawn in proportion to ``r ** -exponent``; None means a road, on which
            nodes are joined with the next ones.
    """

    nodes: int
    edges: int
    exponent: float | None

    def scaled(self, scale: float) -> "Figures":
        """As many times the nodes and edges."""
        return Figures(max(round(self.nodes * scale), 2), max(round(self.edges * scale), 2), self.exponent)

    @property
    def longest_row(self) -> float:
        """Edges of the node that is drawn most often, on average; of a road two."""
        if self.exponent is None:
            return 2.0
        ranks = torch.arange(1, self.nodes + 1, dtype=torch.float64, device="cpu")
        return self.edges / float((ranks**-self.exponent).sum())


# Nodes and edges: table of "On Efficient Scaling of GNNs via IO-Aware Layers Implementations" (2026). The
# exponents are chosen: more where the paper tells of larger hubs. In the order of a benchmark that may run
# out of time.
GRAPHS = {
    "ogbn-arxiv": Figures(169_343, 1_166_243, 0.7),
    "ogbn-products": Figures(2_449_029, 123_718_280, 0.4),
    "pokec-regions": Figures(1_632_803, 30_622_564, 0.4),
    "city-roads-L": Figures(142_257, 279_061, None),
    "twitch-views": Figures(168_114, 13_595_114, 0.6),
    "tolokers-2": Figures(11_758, 1_038_000, 0.5),
    "hm-prices": Figures(46_563, 21_461_990, 0.4),
    "cora": Figures(2_708, 10_556, 0.4),
}


def edge_index_of(name: str, device: torch.device, scale: float = 1.0, seed: int = 0) -> tuple[Tensor, int]:
    """The edges of a graph, int64 [2, E], on the device, and its number of nodes.

    Pairs of nodes are drawn independently, so that a few repeat; numbers of nodes mean nothing, but on roads.

    Args:
        name: One of :data:`GRAPHS`.
        device: Where it is generated.
        scale: Multiplies the numbers of nodes and edges.
        seed: The same seed gives the same graph on the same kind of device.

    Raises:
        ArgumentError: The name is unknown.
    """
    if name not in GRAPHS:
        raise ArgumentError(f"graphs: expected some of {', '.join(GRAPHS)}, got {name!r}.")
    figures = GRAPHS[name].scaled(scale)
    nodes, pairs = figures.nodes, figures.edges // 2
    generator = torch.Generator(device).manual_seed(seed)
    if figures.exponent is None:
        low = torch.randperm(nodes - 1, generator=generator, device=device)[:pairs]
        ends = torch.stack([low, low + 1])
    else:
        weights = torch.arange(1, nodes + 1, device=device, dtype=torch.float64) ** -figures.exponent
        heaviest_first = weights.cumsum(0)
        drawn = torch.rand(2, pairs, generator=generator, device=device, dtype=torch.float64)
        ranks = torch.searchsorted(heaviest_first, drawn * heaviest_first[-1]).clamp_(max=nodes - 1)
        ends = torch.randperm(nodes, generator=generator, device=device)[ranks]
    return torch.cat([ends, ends.flip(0)], 1), nodes


def graph_of(name: str, device: torch.device, scale: float = 1.0) -> Graph:
    """The graph of :func:`edge_index_of`, or one of :mod:`onehop.datasets`, such as "twin:reddit".

    Raises:
        ArgumentError: The name is unknown.
    """
    if name.startswith("twin:"):
        twin = datasets.twin(name.removeprefix("twin:"), scale=scale)
        return Graph.from_edge_index(twin.edge_index, twin.num_nodes)
    return Graph.from_edge_index(*edge_index_of(name, device, scale))
