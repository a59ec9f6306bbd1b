"""Lists of edges: from a native graph, and with every edge in both directions."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from onehop.errors import ArgumentError, integer

if TYPE_CHECKING:
    import scipy.sparse


def edge_index_of(csr: Any) -> Tensor:
    """Return a native graph's edges, [2, E], int64 (sources, destinations), in the caller's edge order."""
    target = torch.repeat_interleave(torch.arange(csr.rows, device="cpu"), csr.rowptr.diff())
    by_row = torch.stack([csr.col.long(), target])
    if csr.perm is None:
        return by_row
    result = torch.empty_like(by_row)
    result[:, csr.perm.long()] = by_row
    return result


def as_scipy(edge_index: Tensor, shape: tuple[int, int], weight: Tensor | None) -> "scipy.sparse.coo_array":
    """Return the matrix of edges and their weights; see :meth:`onehop.Graph.to_scipy`."""
    import scipy.sparse

    source, target = edge_index.numpy()
    count = len(source)
    if weight is not None and weight.shape != (count,):
        raise ArgumentError(f"weight: expected shape [{count}], got {list(weight.shape)}.")
    values = np.ones(count, dtype=np.float32) if weight is None else weight.detach().numpy()
    return scipy.sparse.coo_array((values, (target, source)), shape=shape)


def undirected(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Return every edge in both directions, each once, ordered by source and destination; [2, E'], int64.

    Examples:
        >>> import torch
        >>> from onehop.datasets import undirected
        >>> undirected(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
        tensor([[0, 1, 1, 2],
                [1, 0, 2, 1]])
    """
    num_nodes = integer("num_nodes", num_nodes)
    source, target = edge_index.numpy().astype(np.int64, copy=False)
    keys = np.concatenate([source * num_nodes + target, target * num_nodes + source])
    return edges_of_keys(distinct(keys), num_nodes)


def distinct(keys: np.ndarray) -> np.ndarray:
    """Return the distinct ``keys`` in ascending order; ``keys`` itself is sorted in place."""
    keys.sort()
    if len(keys) == 0:
        return keys
    first_of_its_kind = np.concatenate([[True], keys[1:] != keys[:-1]])
    firsts: np.ndarray = keys[first_of_its_kind]
    return firsts


def edges_of_keys(keys: np.ndarray, num_nodes: int) -> Tensor:
    """Return the edges, [2, E], int64, for keys of ``source * num_nodes + destination``."""
    edge_index = np.empty((2, len(keys)), dtype=np.int64)
    np.divmod(keys, max(num_nodes, 1), out=(edge_index[0], edge_index[1]))
    return torch.from_numpy(edge_index)
