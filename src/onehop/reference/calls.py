"""Functions for calls of all operators.

A call is a named tuple that states what an operator computes. Its tensors come first. A graph is represented
by its number (``Graph.number``), which a compiled program can hold. ``rows``, ``edges`` and ``sources`` are
sizes that a program needs while it is traced without the graph. Schemas, fake kernels, recording and saved
tensors are derived from calls (:mod:`onehop.ops.library`), and backends receive whole calls.
"""

import re
from typing import Any, TypeVar

import torch
from torch import Tensor

from onehop.graph import Graph

C = TypeVar("C", bound=tuple[Any, ...])


def on(graph: Graph, kind: type[C], **fields: Any) -> C:
    """Create a call on a graph, with the graph's number and sizes filled in.

    Args:
        graph: The graph.
        kind: The type of the call, for example :class:`onehop.calls.Aggregate`.
        **fields: The other fields of the call; omitted fields have their defaults.
    """
    known = {
        "graph": graph.number,
        "sources": graph.num_src,
        "rows": graph.num_src if fields.get("transposed") else graph.num_dst,
        "edges": graph.num_edges,
    }
    names: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
    return kind(**{name: value for name, value in known.items() if name in names}, **fields)


def name_of(kind: type) -> str:
    """Return the name of the operator of a type of calls, for example "edge_softmax"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which sums of a dtype are kept: float64 for float64, float32 for all others."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def heads_of(weight: Tensor | None) -> int:
    """Return the number of heads of a weight, which is [E] or [E, H]; 1 for None."""
    return 1 if weight is None or weight.dim() == 1 else weight.size(1)


def wide(x: Tensor) -> Tensor:
    """Return ``x`` in the accumulator's dtype."""
    return x.to(accumulator(x.dtype))


def edges_of(graph: Graph, x: Tensor) -> Tensor:
    """Return the graph's edges, [2, E], on the device of ``x``."""
    return graph.edge_index().to(x.device)


def shares_of(graph: Graph, x: Tensor) -> Tensor:
    """Return [num_dst]: one divided by the number of edges, for the mean of rows with the dtype of ``x``."""
    return graph.inverse_in_degrees(accumulator(x.dtype)).to(x.device)
