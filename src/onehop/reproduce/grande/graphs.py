"""Twins of GraNDe's graphs, and their sizes."""

from collections.abc import Sequence
from dataclasses import dataclass

from onehop.graph import Graph
from onehop.graph.self_loops import with_self_loops
from onehop.reproduce.intervals import Interval
from onehop.reproduce.tables import Row, row
from onehop.reproduce.twins import Progress, Twin

HIDDEN = 256
# Table 1's sizes fit this in every row: a column and a value per edge, and hardly any row structure.
_EDGE_BYTES, _NODE_BYTES, _ITEM_BYTES = 8, 1, 4


@dataclass(frozen=True)
class PaperGraph(Twin):
    """A graph of the paper.

    Attributes:
        paper: The graph's name in the paper.
        features: Number of feature columns.
        aggregation_percent: Share of aggregation in a GCN's time on the paper's Xeon (Figure 2).
        adjacency_mb: Size of the adjacency, in MB (Table 1).
        features_mb: Size of 256 columns of features, in MB (Table 1).
    """

    paper: str
    features: int
    aggregation_percent: float
    adjacency_mb: float
    features_mb: float

    def graph(self, progress: Progress) -> Graph:
        """Return the twin's structure with self loops, as the paper counts edges."""
        return with_self_loops(super().graph(progress))

    @property
    def widths(self) -> list[int]:
        """Columns that each of three layers aggregates, because aggregation comes first in a layer."""
        return [self.features, HIDDEN, HIDDEN]


TWINS = (
    PaperGraph("arxiv-communities", 1.0, "arxiv", 128, 67.0, 20.0, 173.4),
    PaperGraph("amazon", 0.5, "amazon", 96, 74.0, 42.7, 420.1),
    PaperGraph("mag", 0.25, "mag", 128, 64.0, 93.0, 754.1),
    PaperGraph("products", 0.03, "products", 100, 91.0, 1000.0, 2500.0),
)


def of_sample(values: Sequence[float]) -> Interval:
    """Return the interval of an estimate, which is first, with the ends of its sample's 95 % interval."""
    ends = ("the sample's lower end, 95 %", "the sample's upper end, 95 %")
    return Interval(values[0], min(values), max(values), *ends)


def sizes(
    graph: str,
    edges: Sequence[float],
    nodes: int,
    published_mb: tuple[float, float],
    notes: tuple[str, str],
    share: float = 1.0,
) -> list[Row]:
    """Return rows for adjacency and features of one graph (Table 1), to which twins were made.

    Args:
        graph: The graph's name in the paper.
        edges: The number of edges; for a sample, the estimate and the ends of its interval.
        nodes: The number of nodes.
        published_mb: The paper's sizes of adjacency and features, in MB.
        notes: The notes of both rows.
        share: Part of the graph that was counted: the sizes are divided by it.
    """
    adjacency = [(each * _EDGE_BYTES + nodes * _NODE_BYTES) / share / 1e6 for each in edges]
    features = nodes * HIDDEN * _ITEM_BYTES / share / 1e6
    ours = of_sample(adjacency) if len(adjacency) > 1 else adjacency[0]
    adjacency_note = (
        f"{notes[0]} {_EDGE_BYTES} bytes for an edge and {_NODE_BYTES} for a node were fitted to it."
    )
    return [
        row(
            f"adjacency of {graph}, self loops included",
            "MB",
            adjacency_note,
            ours,
            published_mb[0],
            fitted=True,
        ),
        row(
            f"{HIDDEN} columns of features of {graph}", "MB", notes[1], features, published_mb[1], fitted=True
        ),
    ]
