"""Orders of a graph's nodes that place neighbours close to each other.

If consecutive destinations share sources, these are still in the caches. An order is computed once for each
graph.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from onehop import native
from onehop.errors import ArgumentError
from onehop.graph import build, edges, metis
from onehop.processor import caches

# The class of graphs, which is defined in a higher module.
G = TypeVar("G")
Order = Literal["degree", "rcm", "community", "metis"]
"""The methods of :func:`node_orders`."""
# Bytes of a row that are assumed for the METIS order: the rows of a part fit the L2 cache.
_METIS_ROW_BYTES = 256
_METIS_CACHE = 1 << 20


class Orders(NamedTuple):
    """Orders of the destinations and the sources, and the time to compute them.

    Attributes:
        dst: [num_dst], int32: the destination that comes first, second, ...
        src: [num_src], int32: the source that comes first, second, ...
        seconds: The time to compute the orders.
    """

    dst: Tensor
    src: Tensor
    seconds: float


@dataclass(frozen=True, slots=True)
class Reordering(Generic[G]):
    """A graph whose nodes are renumbered, and the maps for its data.

    Attributes:
        method: The method of the order, see :func:`node_orders`.
        graph: The renumbered graph. Its edges are in the same order, so edge weights stay valid.
        dst_order: [num_dst], int64: the old number of every new destination.
        src_order: [num_src], int64: the old number of every new source; equal to ``dst_order`` if sources and
            destinations are the same nodes.
        seconds: The time to compute the order.
    """

    method: str
    graph: G
    dst_order: Tensor
    src_order: Tensor
    seconds: float

    def apply(self, x: Tensor) -> Tensor:
        """Return rows of sources, [num_src, ...], in the new order."""
        _check_rows("x", x, len(self.src_order))
        return x.index_select(0, self.src_order)

    def undo(self, out: Tensor) -> Tensor:
        """Return rows of destinations, [num_dst, ...], in the old order."""
        _check_rows("out", out, len(self.dst_order))
        return torch.empty_like(out).index_copy(0, self.dst_order, out)


def reordered(csr: Any, method: str, from_edge_index: Callable[..., G]) -> Reordering[G]:
    """Renumber a native graph; ``from_edge_index`` makes the new graph from its edges and ``size``."""
    begin = time.perf_counter()
    orders = node_orders(csr, method)
    # If there are as many sources as destinations, they are the same nodes and have one numbering.
    dst_order = orders.dst.long()
    src_order = dst_order if csr.cols == csr.rows else orders.src.long()
    source, target = edges.edge_index_of(csr)
    edge_index = torch.stack([_inverse(src_order)[source], _inverse(dst_order)[target]])
    graph = from_edge_index(edge_index, size=(csr.cols, csr.rows))
    return Reordering(method, graph, dst_order, src_order, time.perf_counter() - begin)


def _inverse(order: Tensor) -> Tensor:
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(len(order), device="cpu")
    return inverse


def _check_rows(name: str, tensor: Tensor, count: int) -> None:
    if tensor.dim() == 0 or tensor.size(0) != count:
        raise ArgumentError(f"{name}: expected {count} rows, got shape {list(tensor.shape)}.")


def node_orders(csr: Any, method: str) -> Orders:
    """Return the orders of a native graph's destinations and sources by a method.

    ===========  ==========================================================================================
    degree       most edges first
    rcm          reverse Cuthill-McKee (SciPy): neighbours' numbers are close; for meshes and road networks
    community    communities of communities (csrc/include/onehop/communities.hpp); for social networks
    metis        parts of few cut edges that fit the second cache; needs pymetis (``onehop[partition]``)
    ===========  ==========================================================================================

    A graph with as many destinations as sources has the same order for both, except for "degree". Otherwise
    sources and destinations are ordered together, as the nodes of one graph.

    Raises:
        ArgumentError: The method is unknown.
        ConfigurationError: The method is "metis" and pymetis is not installed.
    """
    begin = time.perf_counter()
    dst, src = _orders_of(csr, method)
    return Orders(dst.contiguous(), src.contiguous(), time.perf_counter() - begin)


def _orders_of(csr: Any, method: str) -> tuple[Tensor, Tensor]:
    if method == "degree":
        return _by_degree(csr.rowptr.diff()), _by_degree(_out_degrees(csr))
    if method not in _METHODS:
        raise ArgumentError(f"method: expected one of {', '.join(('degree', *_METHODS))}, got {method!r}.")
    if csr.edges == 0:  # no edges to order by
        rows, cols = (torch.arange(count, device="cpu") for count in (csr.rows, csr.cols))
        return rows.int(), cols.int()
    order = _METHODS[method](_undirected(csr))
    if csr.cols == csr.rows:
        return order, order
    return order[order < csr.rows], order[order >= csr.rows] - csr.rows


def _out_degrees(csr: Any) -> Tensor:
    return torch.bincount(csr.col, minlength=csr.cols)


def _by_degree(degrees: Tensor) -> Tensor:
    return degrees.sort(descending=True, stable=True).indices.int()


def _undirected(csr: Any) -> Any:
    """Return a native graph with edges in both directions; for bipartite graphs, over both node sets."""
    square = csr.cols == csr.rows
    if square and torch.equal(csr.rowptr.diff(), _out_degrees(csr)):
        # Every edge has its reverse, or nearly every edge; this is enough, because an order affects only
        # speed.
        return csr
    source, target = edges.edge_index_of(csr)
    nodes = csr.rows
    if not square:
        source, nodes = source + csr.rows, csr.rows + csr.cols
    return build.from_coo(torch.cat([target, source]), torch.cat([source, target]), nodes, nodes)


def _rcm(csr: Any) -> Tensor:
    import scipy.sparse
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    matrix = scipy.sparse.csr_array(
        (np.ones(csr.edges, dtype=np.int8), csr.col.numpy(), csr.rowptr.numpy()), shape=(csr.rows, csr.rows)
    )
    return torch.from_numpy(reverse_cuthill_mckee(matrix, symmetric_mode=True).astype(np.int32))


def _community(csr: Any) -> Tensor:
    order = torch.empty(csr.rows, dtype=torch.int32, device="cpu")
    native.extension.community_order(csr, order.data_ptr())
    return order


def _metis(csr: Any) -> Tensor:
    metis.require("ordering 'metis'", instead="community")
    parts = max(2, csr.rows * _METIS_ROW_BYTES // caches().get(2, _METIS_CACHE))
    row, col = torch.repeat_interleave(torch.arange(csr.rows, device="cpu"), csr.rowptr.diff()), csr.col
    no_loop = row != col  # METIS does not accept loops
    counts = torch.bincount(row[no_loop], minlength=csr.rows)
    pointer = torch.cat([torch.zeros(1, dtype=torch.long, device="cpu"), counts.cumsum(0)])
    return metis.parts_of(pointer, col[no_loop], parts).sort(stable=True).indices.int()


_METHODS: dict[str, Callable[[Any], Tensor]] = {"rcm": _rcm, "community": _community, "metis": _metis}
