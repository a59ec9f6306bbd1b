"""The graphs of the GraNDe paper, and the twins that stand for them."""

from dataclasses import dataclass

from onehop.graph import Graph
from onehop.reproduce.graphs import label, twin
from onehop.reproduce.progress import Progress

HIDDEN = 256


@dataclass(frozen=True, slots=True)
class Twin:
    """A graph of the paper.

    Attributes:
        name: Its name in the paper.
        twin: The twin's name.
        features: Columns of its features.
        aggregation_percent: Share of aggregation in a GCN's time on the paper's Xeon (Figure 2).
        adjacency_mb: Size of its adjacency, in MB (Table 1).
        features_mb: Size of 256 columns of features, in MB (Table 1).
        quick_scale: Part of the twin that a quick run uses.
    """

    name: str
    twin: str
    features: int
    aggregation_percent: float
    adjacency_mb: float
    features_mb: float
    quick_scale: float

    def scale(self, quick: bool) -> float:
        """Share of the twin's nodes and edges that is used."""
        return self.quick_scale if quick else 1.0

    def label(self, quick: bool) -> str:
        """Name in rows and pictures."""
        return label(self.twin, self.scale(quick))

    @property
    def widths(self) -> list[int]:
        """Columns that each of three layers aggregates; aggregation comes first."""
        return [self.features, HIDDEN, HIDDEN]


TWINS = (
    Twin("arxiv", "arxiv-communities", 128, 67.0, 20.0, 173.4, 1.0),
    Twin("amazon", "amazon", 96, 74.0, 42.7, 420.1, 0.5),
    Twin("mag", "mag", 128, 64.0, 93.0, 754.1, 0.25),
    Twin("products", "products", 100, 91.0, 1000.0, 2500.0, 0.03),
)


def loaded(one: Twin, quick: bool, progress: Progress) -> Graph:
    """The twin with self loops, as the paper counts edges."""
    return twin(one.twin, one.scale(quick), progress, self_loops=True)
