"""Twins of GraNDe's graphs."""

from dataclasses import dataclass

from onehop.graph import Graph
from onehop.graph.self_loops import with_self_loops
from onehop.reproduce.twins import Progress, Twin

HIDDEN = 256


@dataclass(frozen=True)
class PaperGraph(Twin):
    """A graph of the paper.

    Attributes:
        paper: Its name in the paper.
        features: Columns of its features.
        aggregation_percent: Share of aggregation in a GCN's time on the paper's Xeon (Figure 2).
        adjacency_mb: Size of its adjacency, in MB (Table 1).
        features_mb: Size of 256 columns of features, in MB (Table 1).
    """

    paper: str
    features: int
    aggregation_percent: float
    adjacency_mb: float
    features_mb: float

    def graph(self, progress: Progress) -> Graph:
        """Its structure with self loops, as the paper counts edges."""
        return with_self_loops(super().graph(progress))

    @property
    def widths(self) -> list[int]:
        """Columns that each of three layers aggregates; aggregation comes first."""
        return [self.features, HIDDEN, HIDDEN]


TWINS = (
    PaperGraph("arxiv-communities", 1.0, "arxiv", 128, 67.0, 20.0, 173.4),
    PaperGraph("amazon", 0.5, "amazon", 96, 74.0, 42.7, 420.1),
    PaperGraph("mag", 0.25, "mag", 128, 64.0, 93.0, 754.1),
    PaperGraph("products", 0.03, "products", 100, 91.0, 1000.0, 2500.0),
)
