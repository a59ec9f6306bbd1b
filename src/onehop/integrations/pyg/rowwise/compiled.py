"""Propagations whose message is compiled: a program, run over tiles of edges."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop import thresholds
from onehop.graph import Graph
from onehop.integrations import reports
from onehop.integrations.pyg.rowwise.reading import NotCompiled, Read, read
from onehop.integrations.pyg.rowwise.terms import names_of, tensors_of
from onehop.integrations.pyg.rowwise.tracing import Watched
from onehop.messages import End
from onehop.ops.message import DTYPES, fits, reduce_messages


@dataclass(slots=True)
class CompiledTask:
    """One propagation with a compiled message, ready to run.

    Attributes:
        message: The message.
        layer: The layer.
        graph: Over which edges.
        reduce: "sum", "mean", "max" or "min".
        operands: The tensors behind the message's arguments.
        update: What the layer's ``update`` gets besides the reduced messages.
        arguments: Names of the message's arguments, by their ends and operands.
    """

    message: Read
    layer: Any
    graph: Graph
    reduce: str
    operands: list[Tensor]
    update: dict[str, Any]
    arguments: dict[tuple[End, int], str]

    @property
    def x(self) -> Tensor:
        """The largest operand."""
        return max(self.operands, key=lambda tensor: tensor.nbytes)

    def run(self) -> Any:
        """Return the result of ``propagate``."""
        message = self.message
        tensors = tensors_of(message.terms, self.operands, self.graph)
        out = reduce_messages(self.graph, message.program, tensors, self.reduce)
        if len(message.shape) != 1:
            shape = (out.size(0), *message.shape)
            # No view, which autograd would treat otherwise. A backward pass that reads maxima gets its own.
            kept = self.reduce in ("max", "min")
            out = out.view(shape).clone() if kept else torch.ops.aten._unsafe_view(out, shape)
        return self.layer.update(out, **self.update)

    def described(self, layer: Any) -> reports.Call:
        """The row of ``explain``."""
        program = self.message.program
        steps = len(program.steps)
        plan = f"{steps} step{'' if steps == 1 else 's'} on tiles of edges"
        text = program.text(names_of(self.message.terms, self.arguments))
        return reports.Call(layer, None, "its message, compiled", self.reduce, "cpu", plan, text)


def compiled(
    watched: Watched,
    rows: dict[int, tuple[End, int]],
    wholes: dict[int, int],
    operands: list[Tensor],
    graph: Graph,
    reduce: str | None,
) -> Read | str:
    """Compiles a message that treats each edge on its own; or says why it runs in blocks.

    Args:
        watched: What it did with a few edges.
        rows: As in :func:`.reading.read`.
        wholes: Likewise.
        operands: The tensors behind its arguments.
        graph: Over which edges.
        reduce: "sum", "mean", "max" or "min" if the reduction is no more than that; None for any other.
    """
    if reduce is None:
        return "its reduction is none of sum, mean, max and min alone"
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
    return found if fits(found.program) else "its message has too many steps"
