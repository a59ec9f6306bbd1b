"""The way in which a message runs: compiled, in blocks, or not at all."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from onehop import thresholds
from onehop.compiler.arguments import ENDS, Kind
from onehop.compiler.executor import under_autocast
from onehop.compiler.reading import read
from onehop.compiler.tracing import Permission
from onehop.compiler.trials import Traced, Trial, may_stay_inside, traced_alone, traced_inside
from onehop.compiler.values import NotCompiled, Read
from onehop.graph import Graph
from onehop.messages import End
from onehop.ops.message import DTYPES, fits


@dataclass(frozen=True, slots=True)
class InBlocks:
    """A message that treats each edge on its own, and runs in blocks.

    Attributes:
        permission: What the trace has shown.
        refusal: Why it is not compiled.
    """

    permission: Permission
    refusal: str


def way_of(
    trial: Trial,
    graph: Graph,
    autocast: torch.dtype | None,
    refusal_of: Callable[[Read], str | None],
    linear: bool,
) -> Read | InBlocks | str:
    """The program of a message; or that it runs in blocks; or why it does neither.

    Args:
        trial: The message.
        graph: Over which edges.
        autocast: The dtype of autocast; None without.
        refusal_of: Says of a program why its messages cannot be reduced as they shall; None if they can.
        linear: Whether its messages are added up or averaged, and no more.
    """
    if may_stay_inside(trial.each):
        with under_autocast(autocast):
            traced = traced_inside(trial)
        found = traced if isinstance(traced, str) else _compiled(trial, traced, graph, refusal_of, linear)
        if not isinstance(found, str):
            return found
        if any(argument.name == "ptr" for argument in trial.each):
            return f"{asks_for('ptr')}, and is not compiled: {found}"
    with under_autocast(autocast):
        traced = traced_alone(trial)
    if isinstance(traced, str):
        return traced
    found = _compiled(trial, traced, graph, refusal_of, linear)
    return InBlocks(traced[0], found) if isinstance(found, str) else found


def asks_for(name: str) -> str:
    """The sentence that refuses a message for an argument that it asks for."""
    return f"its message asks for {name}"


def is_short(message: Read, reductions: tuple[str, ...]) -> bool:
    """Return whether the programs of a message are short enough to be run, backward too."""
    return all(fits(part.program, reductions) for part in message.parts)


def _compiled(
    trial: Trial, traced: Traced, graph: Graph, refusal_of: Callable[[Read], str | None], linear: bool
) -> Read | str:
    """Compiles a message; or says why not."""
    permission, given = traced
    watched, operands = permission.watched, trial.operands
    if graph.num_edges < thresholds.now.compiled_edges:
        return "there are few edges"
    if torch.is_autocast_enabled("cpu"):
        return "autocast chooses the dtypes of its message"
    if watched.out.dtype not in DTYPES:
        return f"its messages are of {watched.out.dtype}"
    rows = {
        id(given[a.name]): (ENDS[a.kind], a.at) for a in trial.each if a.kind in ENDS and a.at is not None
    }
    wholes = {id(given[a.name]): a.at for a in trial.each if a.kind is Kind.WHOLE and a.at is not None}
    # A product for nodes must not be larger than that for edges.
    nodes = {End.SOURCE: graph.num_src, End.TARGET: graph.num_dst}
    hoists = frozenset(end for end, count in nodes.items() if count <= graph.num_edges)
    constant = not any(operands[at].requires_grad for at in wholes.values())
    try:
        found = read(watched, rows, wholes, constant, hoists, linear)
    except NotCompiled as why:
        return f"its message {why}"
    return refusal_of(found) or found
