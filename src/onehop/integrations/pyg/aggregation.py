"""A plan of one aggregation.

Exported programs, which run without PyG, make these plans too, so this module does not import PyG.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop import thresholds
from onehop.backends import backend_for
from onehop.graph import Graph
from onehop.graph.lending import original
from onehop.integrations import reports, session, tuning
from onehop.integrations.pyg import machine, reuse
from onehop.integrations.pyg.edges.writes import watch
from onehop.ops.aggregate import reduce_rows
from onehop.ops.arg_extremum import arg_extremum

SOURCE = "source"
WEIGHTED = "source * weight"
DIFFERENCE = "(source - destination) * weight"


@dataclass(slots=True)
class Aggregation:
    """A plan of one aggregation, or of two if messages are differences.

    Attributes:
        form: The messages, as ``explain`` shows them.
        reduce: How they are reduced.
        graph: The edges.
        x: [num_src, F], or [B, num_src, F].
        weight: [E], the weights of the edges; None means 1.
        scale: [N], multiplies sources and destinations; None means 1.
        subtrahend: [num_dst, F], subtracted from every message; None subtracts nothing.
        backend: The name of the backend; empty means the best one.
        first: Whether the gradient of a max or min goes to the first of the edges that tie.
        edge_index: The edges, as PyG would save them for the backward pass; None if they need not be saved.
    """

    form: str
    reduce: str
    graph: Graph
    x: Tensor
    weight: Tensor | None = None
    scale: Tensor | None = None
    subtrahend: Tensor | None = None
    backend: str = ""
    first: bool = False
    edge_index: Any = None

    @property
    def aside(self) -> str:
        """The reason why a simulated machine does not run the plan."""
        if self.first:
            return "the gradient of its max or min goes to one edge alone, and machines do not tell which won"
        return str(machine.reduction_refusal(self.x, self.reduce))

    @property
    def messages(self) -> str:
        """The messages with the plan's factors, as ``explain`` shows them."""
        if self.weight is not None:
            return self.form
        return (
            self.form.removesuffix(" * weight") if self.scale is None else "scaled source, scaled destination"
        )

    def is_constant(self) -> bool:
        """Return whether the result may be kept, because the features need no gradient."""
        # Small graphs return here, because for them one more call takes noticeable time.
        if self.graph.num_edges * self.x.size(-1) < thresholds.now.kept_work or self.subtrahend is not None:
            return False
        factor = self.scale if self.weight is None else self.weight
        return reuse.constant(self.x, factor, self.graph.num_edges)

    def run(self) -> Tensor:
        """Return the aggregated messages, [num_dst, F] or [B, num_dst, F]; the caller may write to them."""
        x, keep, constant = self.x, None, self.is_constant()
        if constant:
            # Kernels read addresses. Reading the address of a lent tensor would copy it, so the original is
            # used.
            x, factor = original(x), self.scale if self.weight is None else self.weight
            cached = reuse.find(x, factor, self.graph, self.reduce)
            if cached is not None:
                return cached
            keep = reuse.place_for(x, factor, self.graph, self.reduce)
        else:
            self.graph.derived[reuse.OVER] = True
        if session.now.settings.tune == "auto" and x.is_cpu and x.dim() == 2 and self.backend in ("", "cpu"):
            backward = x.requires_grad and torch.is_grad_enabled()
            tuning.saw(self.graph, self.reduce, x.size(1), x.dtype, backward)
        out = self.computed()
        if keep is not None:
            keep(out)
        if self.edge_index is not None:
            watch(self.edge_index, out)
        return out

    def computed(self) -> Tensor:
        """Computes the result without cache and tuning; this is what programs trace."""
        x, batched = self.x, self.x.dim() == 3
        if batched:
            # Batches become columns: each edge is read once for all of them.
            x = x.transpose(0, 1)
        if self.first:
            extreme = arg_extremum(self.graph, x, self.weight, self.reduce)[0]
            return extreme.masked_fill((self.graph.in_degrees == 0).unsqueeze(1), 0)
        out = self._reduced(x)
        if batched:
            # This copies even a single batch, because autograd forbids writes to some views, and PyG's result
            # is not a view.
            return out.transpose(0, 1).clone(memory_format=torch.contiguous_format)
        if self.subtrahend is None:
            return out
        # The sum of w * (a - b) over a row is the sum of w * a, minus b times the sum of w.
        return out - self.subtrahend * self._reduced(x.new_ones(x.size(0), 1))

    def _reduced(self, x: Tensor) -> Tensor:
        return reduce_rows(
            self.graph,
            x,
            weight=self.weight,
            reduce=self.reduce,
            src_scale=self.scale,
            dst_scale=self.scale,
            backend=self.backend,
        )

    def described(self, layer: Any) -> reports.Call:
        """Return the row that ``explain`` shows."""
        backend = backend_for(self.x.device, self.x.dtype, self.backend)
        width = self.x.numel() // max(self.graph.num_src, 1)
        plan = tuning.plan_text(backend, self.graph, self.reduce, width, self.x.dtype, self.x.device)
        form = self.messages
        if self.is_constant():
            form += ", kept while the features do not change"
        return reports.Call(layer, None, form, self.reduce, backend.name, plan)
