"""Orders of a graph's nodes that place neighbours close to each other.

Destinations that are visited one after the other and share sources find them in the caches. An order is
computed once for each graph.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from onehop import native, thresholds
from onehop.errors import ArgumentError
from onehop.graph import edges, metis
from onehop.processor import caches

# Size of a part of the METIS order: its rows of this many bytes fit the L2 cache.
_METIS_ROW_BYTES = 256
_METIS_CACHE = 1 << 20


class Orders(NamedTuple):
    """The nodes of either side in another order, and the time to compute it.

    Attributes:
        dst: [num_dst], int32: the destination that comes first, second, ...
        src: [num_src], int32.
        seconds: Time.
    """

    dst: Tensor
    src: Tensor
    seconds: float


def node_orders(csr: Any, method: str) -> Orders:
    """The destinations and the sources of a native graph, in the order of a method.

    ===========  ==========================================================================================
    degree       most edges first
    rcm          reverse Cuthill-McKee (SciPy): neighbours' numbers are close; for meshes and road networks
    community    communities of communities (csrc/include/onehop/communities.hpp); for social networks
    metis        parts of few cut edges that fit the second cache; needs pymetis (``onehop[partition]``)
    ===========  ==========================================================================================

    A graph with as many destinations as sources has the same order for both, except for "degree". Otherwise
    sources and destinations are ordered together, as the nodes of one graph.

    Args:
        csr: As :attr:`onehop.Graph.csr`; rows are destinations.
        method: A name in the table.

    Raises:
        ArgumentError: The method is unknown.
        ConfigurationError: "metis" without pymetis.
    """
    begin = time.perf_counter()
    dst, src = _found(csr, method)
    return Orders(dst.contiguous(), src.contiguous(), time.perf_counter() - begin)


def _found(csr: Any, method: str) -> tuple[Tensor, Tensor]:
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
    """The native graph of all nodes and of edges in both directions; of destinations and sources apart."""
    square = csr.cols == csr.rows
    if square and torch.equal(csr.rowptr.diff(), _out_degrees(csr)):
        # Every edge has its reverse, or nearly so: an order affects speed only.
        return csr
    source, target = edges.edge_index_of(csr)
    nodes = csr.rows
    if not square:
        source, nodes = source + csr.rows, csr.rows + csr.cols
    row, col = torch.cat([target, source]), torch.cat([source, target])
    both, _, _ = native.extension.csr_from_coo(
        row.data_ptr(),
        col.data_ptr(),
        1,
        1,
        len(row),
        True,
        nodes,
        nodes,
        len(row) > thresholds.now.wide_edges,
        native.threads(),
    )
    return both


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
    kept = row != col  # METIS does not accept loops
    counts = torch.bincount(row[kept], minlength=csr.rows)
    pointer = torch.cat([torch.zeros(1, dtype=torch.long, device="cpu"), counts.cumsum(0)])
    return metis.parts_of(pointer, col[kept], parts).sort(stable=True).indices.int()


_METHODS: dict[str, Callable[[Any], Tensor]] = {"rcm": _rcm, "community": _community, "metis": _metis}
