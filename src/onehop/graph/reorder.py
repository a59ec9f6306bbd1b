"""Orders of rows for plans, computed once for each graph and cached with it."""

from typing import Any

from torch import Tensor

from onehop import native, thresholds
from onehop.graph.graph import Graph
from onehop.graph.orders import node_orders


def row_order(graph: Graph, method: str, transposed: bool) -> Tensor:
    """Return the order of rows, [rows], int32: the row that comes first, second, ...; it is cached.

    ``method`` is a method of :meth:`onehop.Graph.reorder`; if ``transposed``, rows are sources.
    """
    with graph.lock:
        # Computing the order is the costly part; one computation gives both directions.
        orders = graph.orders.get(method)
        if orders is None:
            orders = graph.orders[method] = node_orders(graph.csr, method)
    return orders.src if transposed else orders.dst


def ordered_csr(graph: Graph, method: str, transposed: bool) -> Any:
    """Return the native graph, or its transpose, with rows in the order of a method; it is cached.

    ``method`` is "none" or a method of :meth:`onehop.Graph.reorder`; if ``transposed``, rows are sources.
    """
    csr = graph.transposed_csr if transposed else graph.csr
    if method == "none":
        return csr
    ordered = graph.ordered.get((method, transposed))
    if ordered is None:
        with graph.lock:
            ordered = graph.ordered.get((method, transposed))
            if ordered is None:
                ordered = _ordered(graph, csr, method, transposed)
    return ordered


def _ordered(graph: Graph, csr: Any, method: str, transposed: bool) -> Any:
    order = row_order(graph, method, transposed)
    wide = graph.num_edges > thresholds.now.wide_edges
    ordered = native.extension.with_rows(csr, order.data_ptr(), wide, native.threads())
    graph.ordered[(method, transposed)] = ordered
    return ordered
