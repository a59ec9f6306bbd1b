"""Statistics of a graph for plans and reports."""

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class GraphStatistics:
    """Statistics of a graph.

    Attributes:
        num_src: Number of sources.
        num_dst: Number of destinations.
        num_edges: Number of edges.
        mean_degree: Mean number of edges per destination.
        max_degree: Maximal number of edges of a destination.
        degree_quantiles: In-degrees at 0, 25, 50, 75, 90, 99 and 100 percent of the destinations.
        empty_rows: Number of destinations without edges.
        self_loops: Number of edges whose ends have the same number; 0 for bipartite graphs.
        sorted_edges: Whether the caller's edges were ordered by destination.
        mean_span: Mean distance between the numbers of an edge's ends, each divided by the number of sources
            or destinations: about 1/3 if numbers are random, less if neighbours have close numbers.
    """

    num_src: int
    num_dst: int
    num_edges: int
    mean_degree: float
    max_degree: int
    degree_quantiles: tuple[int, ...]
    empty_rows: int
    self_loops: int
    sorted_edges: bool
    mean_span: float

    QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)

    @classmethod
    def of(cls, csr: Any) -> "GraphStatistics":
        """Compute the statistics of a native graph, in a few passes over its rows and one over its edges."""
        degrees = csr.rowptr.diff()
        ordered = degrees.sort().values
        quantiles = [0] * len(cls.QUANTILES)
        if len(ordered):
            quantiles = [int(ordered[round(q * (len(ordered) - 1))]) for q in cls.QUANTILES]
        target = torch.repeat_interleave(torch.arange(csr.rows, dtype=torch.int32, device="cpu"), degrees)
        loops = int((csr.col == target).sum()) if csr.cols == csr.rows else 0
        span = 0.0
        if csr.edges:
            span = float((csr.col / csr.cols).sub_(target / csr.rows).abs_().mean())
        return cls(
            num_src=csr.cols,
            num_dst=csr.rows,
            num_edges=csr.edges,
            mean_degree=csr.edges / max(csr.rows, 1),
            max_degree=quantiles[-1],
            degree_quantiles=tuple(quantiles),
            empty_rows=int((degrees == 0).sum()),
            self_loops=loops,
            sorted_edges=csr.perm is None,
            mean_span=span,
        )
