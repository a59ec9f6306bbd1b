"""Propagations whose message is compiled: a program, run over tiles of edges."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop import thresholds
from onehop.graph import Graph
from onehop.integrations import reports
from onehop.integrations.pyg.rowwise.aggregators import name_of, simple_parts
from onehop.integrations.pyg.rowwise.reader import NotCompiled, Read
from onehop.integrations.pyg.rowwise.reading import read
from onehop.integrations.pyg.rowwise.reduced import CompiledRows, weighted, weights_reason
from onehop.integrations.pyg.rowwise.terms import names_of
from onehop.integrations.pyg.rowwise.tracing import Watched
from onehop.messages import End
from onehop.ops.message import DTYPES, fits


@dataclass(slots=True)
class CompiledTask:
    """One propagation with a compiled message, ready to run.

    Attributes:
        message: The message.
        layer: The layer.
        graph: Over which edges.
        names: The reductions that the layer's aggregation is made of.
        operands: The tensors behind the message's arguments.
        update: What the layer's ``update`` gets besides the reduced messages.
        arguments: Names of the message's arguments, by their ends and operands.
    """

    message: Read
    layer: Any
    graph: Graph
    names: tuple[str, ...]
    operands: list[Tensor]
    update: dict[str, Any]
    arguments: dict[tuple[End, int], str]

    @property
    def x(self) -> Tensor:
        """The largest operand."""
        return max(self.operands, key=lambda tensor: tensor.nbytes)

    def run(self) -> Any:
        """Return the result of ``propagate``."""
        rows = CompiledRows(self.graph, self.message, self.names, self.operands)
        return self.layer.update(rows.reduce(self.layer.aggr_module), **self.update)

    def described(self, layer: Any) -> reports.Call:
        """The row of ``explain``."""
        steps = sum(len(part.program.steps) for part in self.message.parts)
        plan = f"{steps} step{'' if steps == 1 else 's'} on tiles of edges"
        texts = [part.program.text(names_of(part.terms, self.arguments)) for part in self.message.parts]
        reduce = name_of(layer.aggr_module)
        return reports.Call(layer, None, "its message, compiled", reduce, "cpu", plan, "\n".join(texts))


def compiled(
    watched: Watched,
    rows: dict[int, tuple[End, int]],
    wholes: dict[int, int],
    operands: list[Tensor],
    graph: Graph,
    module: Any,
) -> tuple[Read, tuple[str, ...]] | str:
    """Compiles a message that treats each edge on its own; or says why it runs in blocks.

    Args:
        watched: What it did with a few edges.
        rows: As in :func:`.reading.read`.
        wholes: Likewise.
        operands: The tensors behind its arguments.
        graph: Over which edges.
        module: The aggregation.

    Returns:
        The message, and the reductions that the aggregation is made of.
    """
    reductions = simple_parts(module)
    if reductions is None:
        return f"its reduction, {name_of(module)}, is not made of sums, means, extrema and softmax"
    if graph.num_edges < thresholds.now.compiled_edges:
        return "there are few edges"
    if torch.is_autocast_enabled("cpu"):
        return "autocast chooses the dtypes of its message"
    if watched.out.dtype not in DTYPES:
        return f"its messages are of {watched.out.dtype}"
    # A product for nodes must not be larger than that for edges.
    nodes = {End.SOURCE: graph.num_src, End.TARGET: graph.num_dst}
    hoists = frozenset(end for end, count in nodes.items() if count <= graph.num_edges)
    constant = not any(operands[at].requires_grad for at in wholes.values())
    try:
        found = read(watched, rows, wholes, constant, hoists)
    except NotCompiled as why:
        return f"its message {why}"
    names, softmaxes = reductions
    ordered = tuple(sorted(names))
    for softmax in softmaxes:
        reason = weights_reason(found, softmax, watched.out.dtype)
        if reason is not None:
            return reason
    for part in found.parts:
        short = not names or fits(part.program, ordered)
        if not short or not all(fits(weighted(part, each).program, ("sum",)) for each in softmaxes):
            return "its message has too many steps"
    return found, ordered
