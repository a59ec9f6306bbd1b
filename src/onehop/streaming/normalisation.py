"""The factors of GCN's normalisation, from the degrees of a graph on disk."""

import numpy as np
import torch
from torch import Tensor

from onehop import native
from onehop.graph.graph import StoredGraph
from onehop.ops.streaming.matrix_file import WIDE, MatrixFile

SCALED = ("gcn", "symmetric")
"""The normalisations that scale both ends of an edge."""

# Their degrees are in memory beside the scales.
_ROWS = 1 << 16


def scale_of(graph: StoredGraph, features: MatrixFile, normalise: str) -> Tensor | None:
    """[N]: the number of edges that end at each node to the power of -1/2, and 0 for none; or None."""
    if normalise not in SCALED:
        return None
    scale = torch.empty(graph.num_dst, dtype=WIDE[features.wide], device="cpu")
    for row, pointers in graph.row_blocks(_ROWS, graph.num_edges + 1):
        degrees = torch.from_numpy(np.diff(pointers)).to(scale.dtype)
        scale[row : row + len(degrees)] = degrees.pow(-0.5).masked_fill_(degrees == 0, 0)
    native.let_go()
    return scale
