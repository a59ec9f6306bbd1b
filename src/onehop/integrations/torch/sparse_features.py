"""Linear steps of constant features that are nearly all 0, as sums over a graph of their entries.

In bags of words, about one entry in a hundred is not 0. Such features, [N, K], are a bipartite graph: each
entry that is not 0 is an edge from its column to its row, and the edge's weight. X W^T is then an aggregation
of the rows of W^T, and G^T X one over the reversed edges. The graph is kept while a fingerprint of all
contents of the features is unchanged.

Sums over fewer terms round differently. To keep repeated forward passes equal, the graph is used only after
the first backward pass through a linear step of the features, which also shows that they will be used again.
"""

import math
import weakref
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from onehop import config, thresholds
from onehop.backends import run
from onehop.calls import Aggregate, on
from onehop.graph import Graph
from onehop.graph.contents import Noted, fingerprint
from onehop.graph.identity import CACHE, remembered
from onehop.integrations import session
from onehop.ops.contexts import is_memory, saving_is_watched

# At most one entry in this many may be non-zero; a sum over edges then takes a third of the product's time.
_ONE_IN = 20
# For two samples: the number of entries, and how many times the allowed share of them may be non-zero. Each
# entry misses all caches, so for dense features the large sample would cost a tenth of a narrow product.
_SAMPLES = ((1 << 6, 3), (1 << 12, 2))
# Number of entries that are counted at once.
_BAND = 1 << 16
# The graph of features may take at most one part in this many of the cache.
_LARGEST_SHARE = 8
_TRAINED, _GRAPH = "sparse features, trained on", "sparse features, their graph"
# The last features that looked dense: their id, memory and version. After a product has emptied the caches,
# a sample and the checks before it take a tenth of a narrow product. A weak reference to the tensor itself
# would keep ``torch.utils.swap_tensors`` from exchanging it.
_last_dense: tuple[int, weakref.ref[torch.UntypedStorage], int] | None = None


@dataclass(frozen=True, slots=True)
class SparseFeatures:
    """The non-zero entries of features, as a graph.

    Attributes:
        graph: From columns to rows.
        values: [E], the non-zero entries.
        contents: Fingerprint of the features.
    """

    graph: Graph
    values: Tensor
    contents: int

    def times(self, columns: Tensor) -> Tensor | None:
        """Compute X C, [N, M], for C, [K, M]; None if an entry of C is not finite (0 times it is NaN)."""
        if not _is_finite(columns):
            return None
        columns = columns.contiguous()
        out: Tensor = run(self.graph, on(self.graph, Aggregate, x=columns, weight=self.values), columns)
        return out

    def over_rows(self, grad: Tensor) -> Tensor | None:
        """Compute G^T X, [M, K], for G, [N, M]; None if an entry of G is not finite."""
        if not _is_finite(grad):
            return None
        call = on(self.graph, Aggregate, x=grad.contiguous(), weight=self.values, transposed=True)
        summed: Tensor = run(self.graph, call, grad)
        return summed.t().contiguous()


def may_apply(x: Tensor) -> bool:
    """Return whether features may be constant and nearly all 0, by a sample of them.

    Args:
        x: [N, K]; the caller has checked the context.
    """
    return (
        not is_known_dense(x)
        and not x.requires_grad
        and x.numel() >= thresholds.now.sparse_numbers
        and x.numel() > 0
        and x.dim() == 2
        and x.dtype is torch.float32
        and x.is_cpu
        and x.is_contiguous()
        and not x.is_inference()
        and session.now.settings.reuse
        and session.now.settings.products
        and x.nbytes * _LARGEST_SHARE <= config.graph_cache_bytes()
        and not saving_is_watched()
        and _looks_sparse(x)
    )


def is_known_dense(x: Tensor) -> bool:
    """Return whether X is the tensor that a sample last showed to be dense."""
    last = _last_dense
    return (
        last is not None
        and last[0] == id(x)
        and is_memory(x)
        and last[1]() is x.untyped_storage()
        and last[2] == x._version
    )


def note_training(x: Tensor) -> None:
    """Notes that a backward pass ran through a linear step of these features."""
    remembered(x, key=_TRAINED, make=lambda: True)


def apply(x: Tensor) -> bool:
    """Return whether linear steps of X run as sums over its graph now; X is sampled."""
    return may_apply(x) and _features(x) is not None


def find(x: Tensor) -> SparseFeatures | None:
    """Return the graph of features used in training; None without one. :func:`may_apply` must hold."""
    features = _features(x)
    if features is None or features.contents == fingerprint(x):
        return features
    # They were written to without a new version, so the graph is outdated.
    CACHE.store(Noted(x), _GRAPH, False)
    return None


def _features(x: Tensor) -> SparseFeatures | None:
    features: SparseFeatures | bool | None = remembered(x, key=_GRAPH)
    if features is None and (thresholds.now.meetings <= 1 or remembered(x, key=_TRAINED) is not None):
        features = remembered(x, key=_GRAPH, make=lambda: _convert(x))
    return features if isinstance(features, SparseFeatures) else None


def _convert(x: Tensor) -> SparseFeatures | bool:
    """Return the graph of features; False, which is cached too, if too many entries differ from 0."""
    contents = fingerprint(x)  # computed first, so that a write during the conversion makes it outdated
    per_row = _entries_per_row(x)
    if int(per_row.sum()) * _ONE_IN >= x.numel():
        return False
    rowptr = torch.zeros(x.size(0) + 1, dtype=torch.int64, device="cpu")
    torch.cumsum(per_row, 0, out=rowptr[1:])
    rows, columns = torch.nonzero(x, as_tuple=True)
    graph = Graph.from_csr(rowptr, columns, num_src=x.size(1))
    return SparseFeatures(graph, x[rows, columns], contents)


def _entries_per_row(x: Tensor) -> Tensor:
    # torch counts with a 64-bit number for each entry. That memory is not always reused for the next band,
    # because glibc before 2.38 may find a freed block too small for torch's alignment.
    band = max(_BAND // x.size(1), 1)
    counts = torch.empty(x.size(0), dtype=torch.int64, device="cpu")
    differs = torch.empty((min(band, x.size(0)), x.size(1)), dtype=torch.bool, device="cpu")
    for rows, counted in zip(x.split(band), counts.split(band), strict=True):
        torch.ne(rows, 0, out=differs[: len(rows)])
        np.sum(differs[: len(rows)].numpy(), axis=1, dtype=np.int64, out=counted.numpy())
    return counts


def _looks_sparse(x: Tensor) -> bool:
    global _last_dense
    version = x._version
    for entries, share in _SAMPLES:
        # An odd step samples all columns even if their number is a power of two.
        step = max(x.numel() // entries, 1) | 1
        sample = x.detach().view(-1)[::step]
        if int(torch.count_nonzero(sample)) * _ONE_IN > share * sample.numel():
            _last_dense = id(x), weakref.ref(x.untyped_storage()), version
            return False
    return True


def _is_finite(tensor: Tensor) -> bool:
    return math.isfinite(float(tensor.detach().sum()))
