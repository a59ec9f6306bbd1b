"""Propagations whose message is compiled: a program, run over tiles of edges."""

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from onehop.compiler.rows import CompiledRows, rule_for, weighted
from onehop.compiler.terms import names_of
from onehop.compiler.values import Read
from onehop.compiler.ways import Compiled, is_short
from onehop.graph import Graph
from onehop.integrations import reports
from onehop.integrations.pyg.attention_operands import filled_with_factors
from onehop.integrations.pyg.rowwise.aggregators import (
    is_constant,
    name_of,
    reduce,
    simple_parts,
    weights_reason,
)
from onehop.messages import End


@dataclass(slots=True)
class CompiledTask:
    """One propagation with a compiled message, ready to run.

    Attributes:
        way: Its message.
        layer: The layer.
        graph: Over which edges.
        operands: The tensors behind the message's arguments.
        update: What the layer's ``update`` gets besides the reduced messages.
        arguments: Names of the message's arguments, by their ends and operands.
    """

    way: Compiled
    layer: Any
    graph: Graph
    operands: list[Tensor]
    update: dict[str, Any]
    arguments: dict[tuple[End, int], str]

    @property
    def message(self) -> Read:
        """The program of the message."""
        return self.way.message

    @property
    def x(self) -> Tensor:
        """The largest operand."""
        return max(self.operands, key=lambda tensor: tensor.nbytes)

    @property
    def reductions(self) -> tuple[str, ...]:
        """Names of the reductions that its aggregation is made of."""
        found = simple_parts(self.layer.aggr_module)
        assert found is not None
        return tuple(sorted(found[0]))

    def rows(self) -> CompiledRows:
        """The messages, with these reductions of them."""
        given = [*self.operands, *self.way.tensors]
        return CompiledRows(self.graph, self.message, self.reductions, given, filled_with_factors)

    def run(self) -> Any:
        """Return the result of ``propagate``."""
        return self.layer.update(reduce(self.rows(), self.layer.aggr_module), **self.update)

    def described(self, layer: Any) -> reports.Call:
        """The row of ``explain``."""
        steps = sum(len(part.program.steps) for part in self.message.parts)
        plan = f"{steps} step{'' if steps == 1 else 's'} on tiles of edges"
        rules = [rule_for(part, self.reductions) for part in self.message.parts]
        if all(rules):
            plan = f"matches {' and '.join(rule.name for rule in rules if rule is not None)}"
        texts = [part.program.text(names_of(part.terms, self.arguments)) for part in self.message.parts]
        if self.message.behind is not None:
            texts.append("the sums or means of messages: times a matrix")
        shown = name_of(layer.aggr_module)
        return reports.Call(layer, None, "its message, compiled", shown, "cpu", plan, "\n".join(texts))


def refusal_of(message: Read, module: Any) -> str | None:
    """Return why a compiled message cannot be reduced as an aggregation module does; None if it can."""
    reductions = simple_parts(module)
    if reductions is None:
        return f"its reduction, {name_of(module)}, is not made of sums, means, extrema and softmax"
    names, softmaxes = reductions
    for softmax in softmaxes:
        reason = weights_reason(message, softmax)
        if reason is not None:
            return reason
    if names and not is_short(message, tuple(sorted(names))):
        return _TOO_LONG
    for each in softmaxes:
        parts = tuple(weighted(part, each.t, is_constant(each)) for part in message.parts)
        if not is_short(replace(message, parts=parts), ("sum",)):
            return _TOO_LONG
    return None


_TOO_LONG = "its message has too many steps"
