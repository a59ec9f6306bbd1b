"""Twins that the near-rank machine is measured on, and what is published about the graphs of their names."""

from dataclasses import dataclass

from onehop import datasets
from onehop.graph import Graph
from onehop.graph.self_loops import with_self_loops


@dataclass(frozen=True, slots=True)
class Published:
    """A graph of the GraNDe paper.

    Attributes:
        twin: The generated graph in its place.
        features: Columns of its own features.
        aggregation_percent: Share of aggregation in a GCN's time on the paper's Xeon; None where it gives
            none.
    """

    twin: str
    features: int
    aggregation_percent: float | None

    def graph(self, scale: float = 1.0, seed: int = 0) -> Graph:
        """The twin with self loops; ``scale`` multiplies its nodes and edges."""
        found = datasets.load(f"twin:{self.twin}", seed, scale, features=False)
        structure = Graph.from_edge_index(found.edge_index, num_nodes=found.num_nodes)
        del found
        return with_self_loops(structure)

    def widths(self, hidden: int) -> list[int]:
        """What each of three layers aggregates, aggregation coming first."""
        return [self.features, hidden, hidden]


GRAPHS = {
    "arxiv": Published("arxiv-communities", 128, 67.0),
    "amazon": Published("amazon", 96, 74.0),
    "mag": Published("mag", 128, 64.0),
    "products": Published("products", 100, 91.0),
    "papers": Published("papers", 128, None),
}
# Those whose speed-ups the paper gives.
MEASURED = ("arxiv", "amazon", "mag", "products")
