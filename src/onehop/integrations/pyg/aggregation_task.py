"""Propagations that are one aggregation: a sum, mean, max or min of sources, weighted or scaled."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop import thresholds
from onehop.backends import backend_for
from onehop.graph import Graph
from onehop.graph.lending import original
from onehop.integrations import reports, session, tuning
from onehop.integrations.pyg import reuse
from onehop.integrations.pyg.recognise import Form
from onehop.ops.aggregate import reduce_rows
from onehop.ops.arg_extremum import arg_extremum


@dataclass(slots=True)
class Task:
    """One propagation, ready to run.

    Attributes:
        form: What the messages are.
        reduce: How they are reduced.
        graph: Over which edges.
        x: [num_src, F], or [B, num_src, F].
        weight: [E] or None.
        scale: [N], to multiply sources and destinations by, or None.
        subtrahend: [num_dst, F], what every message has subtracted, or None.
        backend: Who runs it, by name; empty means the best there is.
        first: Whether the gradient of a max or min goes to the first of the edges that tie.
    """

    form: Form
    reduce: str
    graph: Graph
    x: Tensor
    weight: Tensor | None = None
    scale: Tensor | None = None
    subtrahend: Tensor | None = None
    backend: str = ""
    first: bool = False

    def is_constant(self) -> bool:
        """Return whether the result may be kept, for the features need no gradient."""
        # Small graphs, where a call would show, end here.
        if self.graph.num_edges * self.x.size(-1) < thresholds.now.kept_work or self.subtrahend is not None:
            return False
        factor = self.scale if self.weight is None else self.weight
        return reuse.constant(self.x, factor, self.graph.num_edges)

    def run(self) -> Tensor:
        """The aggregated messages: [num_dst, F], or [B, num_dst, F], which the caller may write to."""
        if not self.is_constant():
            return self._compute()
        # Kernels take an address, which makes a lent tensor one of its own.
        x, factor = original(self.x), self.scale if self.weight is None else self.weight
        kept = reuse.find(x, factor, self.graph, self.reduce)
        if kept is not None:
            return kept
        out = self._compute()
        reuse.keep(x, factor, self.graph, self.reduce, out)
        return out

    def _compute(self) -> Tensor:
        x, batched = self.x, self.x.dim() == 3
        if batched:
            # Batches become columns: each edge is read once for all of them.
            x = x.transpose(0, 1)
        elif session.now.settings.tune == "auto" and x.is_cpu and self.backend in ("", "cpu"):
            backward = x.requires_grad and torch.is_grad_enabled()
            tuning.saw(self.graph, self.reduce, x.size(1), x.dtype, backward)
        if self.first:
            found = arg_extremum(self.graph, x, self.weight, self.reduce)
            return found.masked_fill((self.graph.in_degrees == 0).unsqueeze(1), 0)
        out = reduce_rows(
            self.graph,
            x,
            weight=self.weight,
            reduce=self.reduce,
            src_scale=self.scale,
            dst_scale=self.scale,
            backend=self.backend,
        )
        if batched:
            # A copy even of one batch: autograd refuses writes to views that PyG's results are not.
            return out.transpose(0, 1).clone(memory_format=torch.contiguous_format)
        if self.subtrahend is None:
            return out
        # The sum of w * (a - b) over a row is the sum of w * a, less b times the sum of w.
        of_weights = reduce_rows(
            self.graph,
            x.new_ones(x.size(0), 1),
            weight=self.weight,
            reduce=self.reduce,
            src_scale=self.scale,
            dst_scale=self.scale,
            backend=self.backend,
        )
        return out - self.subtrahend * of_weights

    def described(self, layer: Any) -> reports.Call:
        """The row of ``explain``."""
        backend = backend_for(self.x.device, self.x.dtype, self.backend)
        width = self.x.numel() // max(self.graph.num_src, 1)
        plan = tuning.plan_text(backend, self.graph, self.reduce, width, self.x.dtype, self.x.device)
        form = self.form.name
        if self.scale is not None:
            form = "scaled source, scaled destination"
        elif self.form.weight is not None and self.weight is None:
            form = form.removesuffix(" * weight")
        if self.is_constant():
            form += ", kept while the features do not change"
        return reports.Call(layer, None, form, self.reduce, backend.name, plan)
