"""Random graphs for hypothesis, and what a graph's arrays must be, by the simplest means."""

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from onehop import Graph


@st.composite
def edge_lists(draw: st.DrawFn, most_nodes: int = 12, most_edges: int = 60) -> tuple[Tensor, tuple[int, int]]:
    """A [2, E] tensor of int32 or int64, and (num_src, num_dst)."""
    size = draw(st.integers(0, most_nodes)), draw(st.integers(0, most_nodes))
    count = draw(st.integers(0, most_edges)) if min(size) > 0 else 0
    dtype = draw(st.sampled_from([torch.int32, torch.int64]))
    rows = [
        draw(st.lists(st.integers(0, n - 1), min_size=count, max_size=count)) if count else [] for n in size
    ]
    return torch.tensor(rows, dtype=dtype).reshape(2, count), size


def expected(edge_index: Tensor, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """rowptr, col and permutation of a stable sort by destination."""
    source, target = edge_index.numpy()
    order = np.argsort(target, kind="stable")
    rowptr = np.concatenate([[0], np.cumsum(np.bincount(target, minlength=size[1]))]).astype(np.int64)
    return rowptr, source[order], order


def assert_is(graph: Graph, edge_index: Tensor, size: tuple[int, int]) -> None:
    """The graph's arrays are those of ``edge_index``."""
    rowptr, col, order = expected(edge_index, size)
    assert (graph.num_src, graph.num_dst, graph.num_edges) == (*size, edge_index.size(1))
    np.testing.assert_array_equal(graph.rowptr.numpy(), rowptr)
    np.testing.assert_array_equal(graph.col.numpy(), col)
    perm = np.arange(len(order)) if graph.perm is None else graph.perm.numpy()
    np.testing.assert_array_equal(perm, order)
    assert (graph.perm is None) == bool((np.diff(edge_index[1].numpy()) >= 0).all())
    assert graph.rowptr.dtype == torch.int64
    assert graph.col.dtype == torch.int32
