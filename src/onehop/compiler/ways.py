"""The way in which a message runs: compiled, in blocks, or not at all."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from onehop import thresholds
from onehop.compiler.arguments import ENDS, Kind
from onehop.compiler.executor import under_autocast
from onehop.compiler.matched import rule_of
from onehop.compiler.operations import read
from onehop.compiler.reader import Reader
from onehop.compiler.recipes import Call, Tape
from onehop.compiler.trials import COMPLEX, FAILS, Traced, Trial, may_stay_inside, traced_alone, traced_inside
from onehop.compiler.values import NotCompiled, Read
from onehop.graph import Graph
from onehop.messages import End
from onehop.ops.message import DTYPES, fits


@dataclass(frozen=True, slots=True)
class Compiled:
    """A message that runs as a compiled program.

    Attributes:
        message: The compiled message.
        uses: Tensors that it uses besides its operands: first those that its terms number after the operands,
            then all that torch saves for the backward pass.
        numbered: How many of these tensors the terms number.
        apart: The numbers of operands and numbered tensors that need a gradient but get none from the
            message.
    """

    message: Read
    uses: list[Tensor]
    numbered: int
    apart: frozenset[int]

    @property
    def saved(self) -> list[Tensor]:
        """The tensors that torch saves; writing to one before the backward pass is an error."""
        return self.uses[self.numbered :]

    def using(self, tensors: list[Tensor]) -> "Compiled":
        """Return a copy with other tensors."""
        return replace(self, uses=tensors)

    def tensors_of(self, operands: list[Tensor]) -> list[Tensor]:
        """Return all tensors that the terms number; tensors that get no gradient are detached."""
        numbered = [*operands, *self.uses[: self.numbered]]
        return _detached(numbered, self.apart) if self.apart else numbered


@dataclass(frozen=True, slots=True)
class InBlocks:
    """A message that treats each edge separately, and runs in blocks.

    Attributes:
        row_bytes: Bytes per edge of the largest tensor that it makes.
        uses: Tensors that it uses besides its operands: first those that get a gradient, then others that
            torch saves for the backward pass.
        learned: How many of these tensors get a gradient.
        refusal: Why the message is not compiled.
        apart: The numbers of operands that need a gradient but get none from the message.
    """

    row_bytes: int
    uses: list[Tensor]
    learned: int
    refusal: str
    apart: frozenset[int]

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors that get a gradient."""
        return self.uses[: self.learned]

    @property
    def saved(self) -> list[Tensor]:
        """The tensors that torch saves and that get no gradient."""
        return self.uses[self.learned :]

    def using(self, tensors: list[Tensor]) -> "InBlocks":
        """Return a copy with other tensors."""
        return replace(self, uses=tensors)

    def tensors_of(self, operands: list[Tensor]) -> list[Tensor]:
        """Return the operands; operands that get no gradient are detached."""
        return _detached(operands, self.apart) if self.apart else operands


def _detached(tensors: list[Tensor], apart: frozenset[int]) -> list[Tensor]:
    return [each.detach() if at in apart else each for at, each in enumerate(tensors)]


Way = Compiled | InBlocks | str
"""How a message runs, or the reason why it runs neither compiled nor in blocks."""


@dataclass(frozen=True, slots=True)
class Found:
    """A way that was found by a trace.

    Attributes:
        way: The way.
        calls: The operations of the trace; empty if the way is a sentence.
        wholes: The arguments of the trace that are the same for all edges, by the operand that they copy.
        lasts: Whether the way depends only on the layer, and not on contents of operands or tensors.
        counts: Whether the way also depends on the numbers of edges and nodes.
    """

    way: Way
    calls: list[Call]
    wholes: dict[int, Tensor]
    lasts: bool
    counts: bool


def way_of(
    trial: Trial,
    graph: Graph,
    autocast: torch.dtype | None,
    refusal_of: Callable[[Read], str | None],
    linear: bool,
) -> Found:
    """Find the way of a message by tracing it.

    Args:
        trial: The message with its arguments.
        graph: The graph.
        autocast: The dtype of autocast; None without autocast.
        refusal_of: Returns why a compiled message cannot be reduced as requested; None if it can.
        linear: Whether the reduction is only a sum or a mean.
    """
    if trial.reduces:
        with under_autocast(autocast):
            traced = traced_inside(trial) if may_stay_inside(trial.each) else traced_alone(trial)
        compiled = traced if isinstance(traced, str) else _compiled(trial, traced, graph, refusal_of, False)
        return _refused(f"{OWN_AGGREGATE}, and {compiled}") if isinstance(compiled, str) else compiled
    inside = ""
    if may_stay_inside(trial.each):
        with under_autocast(autocast):
            traced = traced_inside(trial)
        compiled = traced if isinstance(traced, str) else _compiled(trial, traced, graph, refusal_of, linear)
        if not isinstance(compiled, str):
            return compiled
        if any(argument.name == "ptr" for argument in trial.each):
            return _refused(f"{asks_for('ptr')}, and is not compiled: {compiled}")
        if not isinstance(traced, str) and compiled.startswith("its message"):
            inside = compiled
    with under_autocast(autocast):
        traced = traced_alone(trial)
    if isinstance(traced, str):
        return _refused(inside or traced)
    compiled = _compiled(trial, traced, graph, refusal_of, linear)
    if not isinstance(compiled, str):
        return compiled
    watched = traced[0]
    if watched.out.dtype.is_complex:
        return _refused(compiled)
    if watched.looks:
        # The contents may change before the message runs again in the backward pass.
        return _refused(f"its message looks at numbers of tensors, and is not compiled: {compiled}")
    if watched.of_edges:
        # A block has fewer edges.
        return _refused(f"its message looks at the number of edges, and is not compiled: {compiled}")
    return _in_blocks(trial, traced, compiled)


OWN_AGGREGATE = "its class overrides aggregate"
"""The beginning of the sentence that refuses a message because of its layer's own aggregate."""


def _refused(sentence: str) -> Found:
    return Found(sentence, [], {}, FAILS not in sentence, counts=False)


def _in_blocks(trial: Trial, traced: Traced, refusal: str) -> Found:
    watched, arguments = traced
    learned = [each for each in watched.parameters if watched.history.reaches(each)]
    saved = [each for each in watched.saved if not each.requires_grad]
    way = InBlocks(watched.row_bytes, [*learned, *saved], len(learned), refusal, _apart(trial, traced, []))
    return Found(way, watched.calls, _whole(trial, arguments), not watched.looks, watched.of_nodes)


def _apart(trial: Trial, traced: Traced, others: list[Tensor]) -> frozenset[int]:
    """Return the numbers of operands, and of other tensors after them, that need a gradient but get none."""
    watched, arguments = traced
    reached = watched.history.reaches
    gets = {a.at for a in trial.each if a.at is not None and reached(arguments[a.name])}
    operands = {at for at, each in enumerate(trial.operands) if each.requires_grad and at not in gets}
    rest = enumerate(others, len(trial.operands))
    return frozenset(operands | {at for at, each in rest if each.requires_grad and not reached(each)})


def asks_for(name: str) -> str:
    """Return the sentence that refuses a message because of an argument that it takes."""
    return f"its message takes {name}"


def is_short(message: Read, reductions: tuple[str, ...]) -> bool:
    """Return whether the programs of a message are short enough to run forward and backward."""
    return all(fits(part.program, reductions) for part in message.parts)


def _compiled(
    trial: Trial, traced: Traced, graph: Graph, refusal_of: Callable[[Read], str | None], linear: bool
) -> Found | str:
    """Compile a message, or return the reason why it cannot be compiled."""
    watched, arguments = traced
    if graph.num_edges < thresholds.now.compiled_edges:
        return "there are few edges"
    if torch.is_autocast_enabled("cpu"):
        return "autocast chooses the dtypes of its message"
    is_complex = watched.out.dtype.is_complex
    if watched.out.dtype not in (COMPLEX if is_complex else DTYPES):
        return f"its messages are of {watched.out.dtype}"
    if watched.destinations.of_edges and graph.num_edges < graph.num_dst:
        return "its message takes the number of edges for that of nodes, of which there are more"
    rows = {
        id(arguments[a.name]): (ENDS[a.kind], a.at) for a in trial.each if a.kind in ENDS and a.at is not None
    }
    wholes = {id(arguments[a.name]): a.at for a in trial.each if a.kind is Kind.WHOLE and a.at is not None}
    # A product for nodes must not be larger than the product for edges.
    nodes = {End.SOURCE: graph.num_src, End.TARGET: graph.num_dst}
    hoists = frozenset(end for end, count in nodes.items() if count <= graph.num_edges)
    try:
        with Tape() as tape:
            reader = Reader(watched, rows, wholes, trial.operands, hoists)
            code = read(reader, linear and not is_complex)
    except NotCompiled as why:
        return f"its message {why}"
    rules = [rule_of(part.program, "sum") for part in code.parts] if linear and not code.draws else [None]
    if is_complex and not all(rule is not None and rule.is_complex for rule in rules):
        return "its messages are complex, and more than copies of the sources' rows, weighted and summed"
    refusal = refusal_of(code)
    if refusal is not None:
        return refusal
    uses = [*reader.tensors, *watched.saved]
    way = Compiled(code, uses, len(reader.tensors), _apart(trial, traced, reader.tensors))
    calls = [*watched.calls, *tape.calls]
    counts = watched.of_edges or watched.of_nodes
    return Found(way, calls, _whole(trial, arguments), not watched.looks, counts)


def _whole(trial: Trial, arguments: dict[str, Any]) -> dict[int, Tensor]:
    """Return the arguments of a trial that are the same for all edges, by the operand that they copy."""
    return {a.at: arguments[a.name] for a in trial.each if a.kind is Kind.WHOLE and a.at is not None}
