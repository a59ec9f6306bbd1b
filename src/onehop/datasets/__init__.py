"""Graphs with features and labels: seeded twins of well-known graphs, and readers of real ones.

The twins need no network. Each has the size, the density and the skew of the graph after which it is named,
and planted labels: features and edges both carry some information about the labels, and neither carries all
of it.
"""

from onehop.datasets.dataset import Dataset, Progress
from onehop.datasets.external import ogb, pyg
from onehop.datasets.random_graphs import chung_lu, grid
from onehop.datasets.sources import PREFIXES, from_file, load
from onehop.datasets.twins import implicit, names, num_features, twin
from onehop.graph.edges import undirected

__all__ = [
    "PREFIXES",
    "Dataset",
    "Progress",
    "chung_lu",
    "from_file",
    "grid",
    "implicit",
    "load",
    "names",
    "num_features",
    "ogb",
    "pyg",
    "twin",
    "undirected",
]
