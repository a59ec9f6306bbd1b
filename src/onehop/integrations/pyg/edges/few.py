"""Few edges, which native code reads as a list, without a graph or a cache.

Sums, means and attention run in one native call. So do the steps before them: adding self loops, and GCN's
normalisation. Only sizes decide whether edges are few (:mod:`.sizes`).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from onehop.errors import BackendError, IndexRangeError
from onehop.integrations.pyg.edges import Edges
from onehop.integrations.pyg.edges.listed import ListedEdges
from onehop.integrations.pyg.leave import TOO_SMALL, Leave
from onehop.native import DTYPE_CODES, WithoutMemoryError, address, extension
from onehop.ops import few
from onehop.ops.contexts import context_reason, in_older_vmap, is_wrapped, wraps
from onehop.ops.few import MOST_EDGES, FewEdges, place_of
from onehop.ops.few_attention import Scores, attend

DTYPES = (torch.float32, torch.float64)
NOT_SERVED = (Leave, IndexRangeError, WithoutMemoryError, BackendError)
"""Exceptions after which PyG's code runs instead, with its own errors."""

_MATRIX = 2


class _Operators:
    """The attention operators over few edges, with the arguments of the operators over a graph."""

    @staticmethod
    def gat(edges: FewEdges, x: Tensor, of_source: Tensor, of_target: Tensor, slope: float) -> Tensor:
        """Compute GAT's attention."""
        return attend(edges, Scores("gat", slope, x, of_source, of_target, None))

    @staticmethod
    def gatv2(edges: FewEdges, x: Tensor, of_target: Tensor, att: Tensor, slope: float) -> Tensor:
        """Compute GATv2's attention."""
        return attend(edges, Scores("gatv2", slope, x, None, of_target, att))

    @staticmethod
    def attention(edges: FewEdges, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Compute dot-product attention."""
        return attend(edges, Scores("dot", scale, value, key, query, None))


class FewListedEdges(ListedEdges):
    """The edges of an ``edge_index`` for which no graph is made."""

    __slots__ = ()
    is_few = True
    operators: Any = _Operators

    def graph(self) -> Any:
        """Return the list of the edges, which only the operators over few edges take."""
        return FewEdges(self.index, *self.counts(), self.sending)


def are_few(edge_index: Any) -> bool:
    """Return whether native code can read a list of edges directly, without a graph."""
    return (
        type(edge_index) is Tensor
        and edge_index.dtype is torch.int64
        and edge_index.is_cpu
        and edge_index.layout is torch.strided
        and edge_index.dim() == _MATRIX
        and edge_index.size(0) == 2
        and edge_index.size(1) <= MOST_EDGES
    )


def aggregated(
    edges: Edges, x: Tensor, weight: Tensor | None, reduce: str
) -> tuple[Any, Callable[[], Tensor]]:
    """Return the list of edges, and a function that reduces neighbours' features times the edges' weights.

    Raises:
        Leave: PyG's code has to run.
    """
    # One test, because each call takes noticeable time here.
    if (
        x.dtype not in DTYPES
        or x.dim() != _MATRIX
        or not x.is_cpu
        or (
            weight is not None and (reduce in few.EXTREMA or weight.dtype is not x.dtype or not weight.is_cpu)
        )
    ):
        raise Leave(TOO_SMALL)
    edge_list: Any = edges.graph()
    return edge_list, lambda: few.aggregate(edge_list, x, weight, reduce)


# Rewritten lists of edges


def _is_plain(edge_index: Any) -> bool:
    return (
        are_few(edge_index)
        and context_reason() is None
        and not is_wrapped(edge_index)
        and not (in_older_vmap() and wraps(edge_index))
    )


def with_loops(edge_index: Any, num_nodes: int) -> Tensor | None:
    """Return the edges, followed by a self loop at every node; None if PyG's code has to run."""
    return _rewritten(edge_index, False, num_nodes) if _is_plain(edge_index) and num_nodes >= 0 else None


def without_loops(edge_index: Any) -> Tensor | None:
    """Return the edges without self loops; None if PyG's code has to run."""
    return _rewritten(edge_index, True, 0) if _is_plain(edge_index) else None


def _rewritten(edge_index: Tensor, removes: bool, nodes: int) -> Tensor | None:
    edges = _list(edge_index)
    most = (extension.count_unlooped(*edges) if removes else edge_index.size(1)) + nodes
    out = torch.empty(2, most, dtype=torch.int64, device="cpu")
    return out if extension.write_loops(*edges, removes, nodes, most, out.data_ptr()) else None


def _list(edge_index: Tensor) -> tuple[int, int, int, int]:
    """Return the list of edges as native code reads it: address, row, stride and number of edges."""
    row, step = edge_index.stride()
    return place_of(edge_index), row, step, edge_index.size(1)


def normalised(
    edge_index: Any,
    weight: Tensor | None,
    num_nodes: int | None,
    fill: float,
    adds_loops: bool,
    flow: str,
    dtype: torch.dtype | None,
) -> tuple[Tensor, Tensor] | None:
    """Return the edges and weights of PyG's ``gcn_norm``; None if PyG's code has to run.

    The weights are ``weight`` times ``deg ** -1/2`` of both ends.

    Args:
        edge_index: [2, E].
        weight: [E], contiguous and without a gradient; None means 1.
        num_nodes: N; if it is None, PyG's code has to run.
        fill: The weight of a loop that is added to edges with weights.
        adds_loops: Whether a self loop at every node replaces the existing loops.
        flow: "source_to_target", whose degrees count incoming edges, or "target_to_source".
        dtype: The dtype of weights that are 1; None means torch's default.
    """
    if num_nodes is None or not _is_plain(edge_index) or num_nodes > MOST_EDGES:
        return None
    if weight is None:
        dtype = torch.get_default_dtype() if dtype is None else dtype
    else:
        fits = type(weight) is Tensor and weight.shape == edge_index.shape[1:] and weight.is_contiguous()
        if not fits or weight.requires_grad or not weight.is_cpu:
            return None
        dtype = weight.dtype
    if dtype not in DTYPES or flow not in ("source_to_target", "target_to_source"):
        return None
    edges = edge_index
    if adds_loops:
        rewritten = _rewritten(edge_index, True, num_nodes)
        if rewritten is None:
            return None
        edges = rewritten
    count = edges.size(1)
    contiguous = edges if edges.is_contiguous() else edges.contiguous()
    out = torch.empty(count, dtype=dtype, device="cpu")
    degrees = torch.empty(num_nodes, dtype=dtype, device="cpu")
    served = extension.few_norm(
        DTYPE_CODES[dtype],
        *_list(edge_index),
        0 if weight is None else address(weight),
        num_nodes,
        num_nodes if adds_loops else 0,
        fill,
        int(flow == "source_to_target"),
        contiguous.data_ptr(),
        count,
        degrees.data_ptr(),
        out.data_ptr(),
    )
    return (edges, out) if served else None
