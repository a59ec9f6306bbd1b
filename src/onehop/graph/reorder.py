"""Reordering of graphs: of the rows only, inside a plan, or of all nodes, for a whole program."""

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop import native, thresholds
from onehop.errors import ArgumentError
from onehop.graph.graph import Graph
from onehop.graph.orders import node_orders


@dataclass(frozen=True, slots=True)
class Reordering:
    """A graph whose nodes are renumbered, and the maps for its data.

    Attributes:
        method: The method of the order, see :func:`onehop.graph.orders.node_orders`.
        graph: The renumbered graph. Its edges are in the same order, so weights of edges stay as they are.
        dst_order: [num_dst], int64: the old number of every new destination.
        src_order: [num_src], int64: the old number of every new source; the same where the sides are equal.
        seconds: Time to compute it.
    """

    method: str
    graph: Graph
    dst_order: Tensor
    src_order: Tensor
    seconds: float

    def apply(self, x: Tensor) -> Tensor:
        """Rows of sources, [num_src, ...], in the new order."""
        _check_rows("x", x, len(self.src_order))
        return x.index_select(0, self.src_order)

    def undo(self, out: Tensor) -> Tensor:
        """Rows of destinations, [num_dst, ...], in the old order."""
        _check_rows("out", out, len(self.dst_order))
        return torch.empty_like(out).index_copy(0, self.dst_order, out)


def reorder(graph: Graph, method: str = "community") -> Reordering:
    """The graph with new node numbers, close for neighbours.

    Every later operation on the renumbered graph gains, in every library; but features, labels and masks must
    be renumbered too (:meth:`Reordering.apply`). ``onehop.tune`` tries orders of rows by itself, which does
    not need that.

    Args:
        graph: The graph.
        method: "degree", "rcm", "community" or "metis", see :func:`onehop.graph.orders.node_orders`.

    Raises:
        ArgumentError: The method is unknown.
        ConfigurationError: "metis" without pymetis.
    """
    begin = time.perf_counter()
    orders = node_orders(graph, method)
    # If the sides are equal there is one numbering: a node is both.
    dst_order = orders.dst.long()
    src_order = dst_order if graph.num_src == graph.num_dst else orders.src.long()
    source, target = graph.edge_index()
    renumbered = torch.stack([_inverse(src_order)[source], _inverse(dst_order)[target]])
    again = Graph.from_edge_index(renumbered, size=(graph.num_src, graph.num_dst))
    return Reordering(method, again, dst_order, src_order, time.perf_counter() - begin)


def row_order(graph: Graph, method: str, transposed: bool) -> Tensor:
    """Return [rows], int32: the row that comes first, second, ...; computed once, then cached.

    Args:
        graph: The graph.
        method: As in :func:`reorder`.
        transposed: Whether rows are sources.
    """
    with graph.lock:
        # The order is the costly part, and serves both directions.
        orders = graph.orders.get(method)
        if orders is None:
            orders = graph.orders[method] = node_orders(graph, method)
    return orders.src if transposed else orders.dst


def ordered_csr(graph: Graph, method: str, transposed: bool) -> Any:
    """The native graph, or its transpose, with rows in the order of a method; computed once, then cached.

    Args:
        graph: The graph.
        method: "none", or as in :func:`reorder`.
        transposed: Whether rows are sources.
    """
    csr = graph.transposed_csr if transposed else graph.csr
    if method == "none":
        return csr
    found = graph.ordered.get((method, transposed))
    if found is None:
        with graph.lock:
            found = graph.ordered.get((method, transposed))
            if found is None:
                found = _ordered(graph, csr, method, transposed)
    return found


def _ordered(graph: Graph, csr: Any, method: str, transposed: bool) -> Any:
    order = row_order(graph, method, transposed)
    wide = graph.num_edges > thresholds.now.wide_edges
    made = native.extension.with_rows(csr, order.data_ptr(), wide, native.threads())
    graph.ordered[(method, transposed)] = made
    return made


def _inverse(order: Tensor) -> Tensor:
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(len(order), device="cpu")
    return inverse


def _check_rows(name: str, tensor: Tensor, count: int) -> None:
    if tensor.dim() == 0 or tensor.size(0) != count:
        raise ArgumentError(f"{name}: expected {count} rows, got shape {list(tensor.shape)}.")
