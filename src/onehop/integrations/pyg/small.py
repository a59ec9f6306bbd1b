"""Sums over graphs of few edges: PyG's own steps in torch, without what PyG asks on the way.

To make and recognise a graph takes longer than its sums. The steps are PyG's, in PyG's order, so that outputs
and gradients agree bit for bit; at 60 edges PyG's questions take as long again as the steps.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from onehop.integrations import reports
from onehop.integrations.pyg.recognise import Form


@dataclass(frozen=True, slots=True)
class SmallTask:
    """One propagation over few edges, ready to run.

    Attributes:
        form: What the messages are.
        reduce: "sum" or "mean".
        source: [E], int64: the node that each message comes from.
        target: [E], int64: the node that it goes to.
        num_dst: Number of destinations.
        x: [num_src, F].
        weight: [E] or None.
        subtrahend: [num_dst, F], what every message has subtracted, or None.
    """

    form: Form
    reduce: str
    source: Tensor
    target: Tensor
    num_dst: int
    x: Tensor
    weight: Tensor | None
    subtrahend: Tensor | None

    def run(self) -> Tensor:
        """The aggregated messages: [num_dst, F].

        Raises:
            IndexError: A node number is out of range, which PyG is to report.
            RuntimeError: Likewise.
        """
        target = self.target
        messages = self.x.index_select(0, self.source)
        if self.subtrahend is not None:
            messages = messages - self.subtrahend.index_select(0, target)
        if self.weight is not None:
            messages = self.weight.unsqueeze(1) * messages
        count = None
        if self.reduce == "mean":
            count = messages.new_zeros(self.num_dst)
            count.scatter_add_(0, target, messages.new_ones(target.size(0)))
            count = count.clamp(min=1).unsqueeze(1)
        out = messages.new_zeros(self.num_dst, messages.size(1))
        out = out.scatter_add_(0, target.unsqueeze(1).expand_as(messages), messages)
        return out if count is None else out / count

    def described(self, layer: Any) -> reports.Call:
        """The row of ``explain``."""
        form = self.form.name if self.weight is not None else self.form.name.removesuffix(" * weight")
        return reports.Call(layer, None, form, self.reduce, "torch", "few edges: no graph is made")
