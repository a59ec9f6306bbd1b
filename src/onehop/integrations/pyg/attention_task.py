"""An attention layer's propagation: what it works on, and what a recipe leaves to be done."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop.backends import backend_for
from onehop.graph import Graph
from onehop.integrations import reports
from onehop.integrations.pyg.graphs import graph_of
from onehop.integrations.tuning import plan_text


@dataclass(slots=True)
class Propagation:
    """One call of ``propagate``, with what was found out about it.

    Attributes:
        layer: The layer.
        reduce: How it reduces messages.
        edge_index: As it was given.
        edges: [2, E], its tensor; of a sparse matrix [E], the sources, where the ends are not asked for.
        num_edges: E.
        sizes: Rows of the two ends, as far as they are known; recipes fill it in as PyG does.
        operands: What else was given, by name.
        sending: The row of ``edges``, and the entry of a pair, that messages come from.
        backend: Who is to run it, by name; empty means the first that takes the tensors.
        known: The edges of a sparse matrix; None where they are a tensor.
    """

    layer: Any
    reduce: str
    edge_index: Any
    edges: Tensor
    num_edges: int
    sizes: list[int | None]
    operands: dict[str, Any]
    sending: int
    backend: str
    known: Graph | None = None

    def ends(self, row: int) -> Tensor:
        """[E]: the sources (row 0) or the destinations (row 1) of the edges, as PyG numbers rows."""
        return (self.edges if self.known is None else self.known.edge_index())[row]

    def graph(self, num_src: int) -> Graph | None:
        """The graph of these edges; None if a node number is out of range."""
        receiving = 1 - self.sending
        num_dst = self.sizes[receiving]
        if num_dst is None:
            num_dst = self.sizes[self.sending]
        if type(num_dst) is not int:
            return None
        if self.known is not None:
            return self.known if (num_src, num_dst) == (self.known.num_src, self.known.num_dst) else None
        return graph_of(self.edges, num_src, num_dst, self.sending == 0)


@dataclass(slots=True)
class AttentionTask:
    """Attention of one layer, ready to run.

    Attributes:
        form: As ``explain`` shows it.
        reduce: How messages are reduced.
        graph: Over which edges.
        x: The sources' features.
        run: Computes the aggregated messages.
        fused: The operator, "gat", "gatv2" or "attention", that does it all; empty where there are several.
        backend: Who runs it, by name; empty means the first that takes the tensors.
        has_edges: Whether edges have scores or features of their own.
        dtype: Of the messages; None means that of ``x``.
        aside: The sentence why a simulated machine does not run it; empty if it does, or if there is none.
    """

    form: str
    reduce: str
    graph: Graph
    x: Tensor
    run: Callable[[], Tensor]
    fused: str = ""
    backend: str = ""
    has_edges: bool = False
    dtype: torch.dtype | None = None
    aside: str = ""

    def described(self, layer: Any) -> reports.Call:
        """The row of ``explain``."""
        dtype = self.dtype or self.x.dtype
        backend = backend_for(self.x.device, dtype, self.backend)
        heads = self.x.size(1) if self.x.dim() == 3 else 1
        what, width = self.fused or self.reduce, self.x.size(-1)
        plan = plan_text(backend, self.graph, what, width, dtype, self.x.device, heads)
        return reports.Call(layer, None, self.form, self.reduce, backend.name, plan)
