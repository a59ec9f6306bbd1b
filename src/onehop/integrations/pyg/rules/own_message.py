"""Layers' own messages that treat each edge separately: compiled, or in blocks of whole rows."""

import inspect
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from onehop import thresholds
from onehop.compiler.arguments import ENDS, Argument, with_sizes
from onehop.compiler.blocks import edges_of_a_block
from onehop.compiler.executor import BlockRun
from onehop.compiler.reading import Reading
from onehop.compiler.rows import BlockRows, CompiledRows, rule_for, weighted
from onehop.compiler.snapshot import Frozen, Snapshot
from onehop.compiler.terms import names_of
from onehop.compiler.traces import Traces
from onehop.compiler.trials import Trial
from onehop.compiler.values import Read
from onehop.compiler.ways import Compiled, Found, InBlocks, is_short, way_of
from onehop.graph import Graph
from onehop.integrations import reports
from onehop.integrations.pyg.call import Plan
from onehop.integrations.pyg.edges import drawn
from onehop.integrations.pyg.edges.listed import ListedEdges
from onehop.integrations.pyg.edges.matrix import MatrixEdges, with_values
from onehop.integrations.pyg.known import messages_with_softmax
from onehop.integrations.pyg.leave import FITS_CACHE, LEFT_TO_PYG, VALUES_ELSEWHERE, Leave, need
from onehop.integrations.pyg.machine import OWN_MESSAGES
from onehop.integrations.pyg.rules.aggregators import (
    is_constant,
    linear_reduction,
    name_of,
    reduce,
    simple_parts,
    weights_reason,
)
from onehop.integrations.pyg.rules.arguments import Arguments, update_arguments
from onehop.integrations.pyg.signals import Signals

# Arguments that the plain propagate fills with the values of a matrix.
_VALUES = ("edge_weight", "edge_attr", "edge_type")
# The attributes of a layer and its aggregation that decide how a message is reduced.
_READ_BY_REDUCTIONS = ("node_dim", "aggr_module", "t", "learn", "semi_grad")
_TOO_LONG = "its message has too many steps"
_COMPILED = "its message, compiled"


class OwnMessage:
    """The message and update of a class.

    Args:
        kind: The class.
        names: The operands that ``propagate`` gets, except ``size``.
        plain: Whether the class's ``propagate`` is PyG's plain function.

    Attributes:
        message: The parameters of the class's message function, and of its own aggregate.
        reduces: Whether the class has its own ``aggregate``, which reduces the messages.
        update: The parameters of the class's ``update`` after the first; None if it is PyG's ``update``.
        traces: The results of tracing the class's messages.
    """

    __slots__ = ("_names", "_of_aggregate", "_plain", "message", "reduces", "traces", "update")

    def __init__(self, kind: Any, names: Set[str], plain: bool) -> None:
        self._names, self._plain = names, plain
        self.message = parameters_of(kind.message, 1)
        self.reduces = kind.aggregate is not MessagePassing.aggregate
        self._of_aggregate: tuple[inspect.Parameter, ...] = ()
        if self.reduces:
            self._of_aggregate = parameters_of(kind.aggregate, 2)
            taken = {p.name for p in self.message}
            self.message += tuple(p for p in self._of_aggregate if p.name not in taken)
        overrides = kind.update is not MessagePassing.update
        self.update = parameters_of(kind.update, 2) if overrides else None
        self.traces = Traces((MessagePassing,), _READ_BY_REDUCTIONS)

    def run(self, layer: Any, **arguments: Any) -> Any:
        """Runs the message of a layer of the class, and then the class's own aggregate, if any."""
        if not self.reduces:
            return layer.message(**arguments)
        names = {p.name for p in parameters_of(type(layer).message, 1)}
        inputs = layer.message(**{name: value for name, value in arguments.items() if name in names})
        names = {p.name for p in self._of_aggregate}
        return layer.aggregate(inputs, **{name: value for name, value in arguments.items() if name in names})

    def check_operands(self, layer: Any, kwargs: dict[str, Any], over_matrix: bool) -> None:
        """Raises :class:`Leave` if PyG does not pass on the operands of ``propagate`` unchanged."""
        if not self._plain:
            need(kwargs.keys() - {"size"} == self._names)
            return
        taken = layer._user_args
        for name in taken:
            # For a missing operand, the plain propagate passes an empty value, and not the parameter's
            # default.
            need((name[:-2] if name.endswith(("_i", "_j")) else name) in kwargs)
        filled = [name for name in _VALUES if name in taken and kwargs[name] is None]
        need(not (over_matrix and filled and filled != ["edge_weight"]), VALUES_ELSEWHERE)

    def parameters(self) -> set[str]:
        """The names of the parameters of the class's message and update."""
        return {parameter.name for parameter in (*self.message, *(self.update or ()))}


MASK = "number_of_each_edge"


class ExplainedMessage(OwnMessage):
    """The message of a class times one number for each edge, which an explainer varies."""

    __slots__ = ()

    def __init__(self, kind: Any, names: Set[str], plain: bool) -> None:
        super().__init__(kind, names, plain)
        self.message = (*self.message, inspect.Parameter(MASK, inspect.Parameter.KEYWORD_ONLY))

    def run(self, layer: Any, **arguments: Any) -> Tensor:
        """Runs the message of a layer of the class, and multiplies it by the operand :data:`MASK`, [E]."""
        mask: Tensor = arguments.pop(MASK)
        inputs: Tensor = layer.message(**arguments)
        return inputs * mask.view(-1, *[1] * (inputs.dim() - 1))


def parameters_of(function: Any, after: int) -> tuple[inspect.Parameter, ...]:
    """Return the parameters of a function, without the first ``after``."""
    return tuple(inspect.signature(function).parameters.values())[after:]


def planned(
    message: OwnMessage,
    layer: Any,
    edges: ListedEdges | MatrixEdges,
    kwargs: dict[str, Any],
    signals: Signals | None = None,
) -> Plan:
    """Return the plan of a propagation with the layer's own message: compiled if possible, else in blocks.

    Args:
        message: The message.
        layer: The layer, whose modules have no hooks.
        edges: The edges.
        kwargs: The operands of ``propagate``, by name.
        signals: The signals that were joined into edges and operands; None for one signal.

    Raises:
        Leave: PyG's own code has to run.
    """
    need(edges.is_cpu, "edge_index is not on the CPU, where alone messages run in blocks")
    over_matrix = isinstance(edges, MatrixEdges)
    message.check_operands(layer, kwargs, over_matrix)
    if over_matrix:
        kwargs = with_values(message.parameters(), edges.edge_index, kwargs)
    # PyG has pointers for all matrices except COO; PyG's own messages pass them only to a softmax.
    ptr_is_none = edges.ptr_is_none or (over_matrix and type(layer).message in messages_with_softmax())
    one = layer if signals is None else signals.one
    collected = Arguments(one.node_dim, edges, kwargs)
    for parameter in message.message:
        collected.take(parameter, ptr_is_none)
    counts = edges.counts(LEFT_TO_PYG)
    update = update_arguments(message.update or (), kwargs, counts)
    graph = edges.graph()
    arguments, operands = with_sizes(collected.arguments, *counts), collected.operands
    if signals is not None:
        arguments = [signals.with_leading(argument) for argument in arguments]
    autocast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
    trace = partial(_traced, message, one, arguments, operands, edges, graph, autocast, signals)
    way = message.traces.way(layer, arguments, operands, graph, trace)
    if isinstance(way, str):
        raise Leave(way)
    if isinstance(way, Compiled):
        return _compiled(way, layer, graph, arguments, operands, update)
    need(edges.count * _row_bytes(arguments, operands) >= thresholds.now.cached_bytes, FITS_CACHE)
    return _in_blocks(way, message, one, edges, arguments, operands, update, autocast)


def _row_bytes(arguments: list[Argument], operands: list[Tensor]) -> int:
    """Return the bytes that the widest operand takes for each edge."""
    tensors = [operands[a.at] for a in arguments if a.at is not None and a.kind in ENDS]
    return max((t.nbytes // max(t.size(0), 1) for t in tensors), default=0)


def _largest(operands: Sequence[Tensor]) -> Tensor:
    return max(operands, key=lambda tensor: tensor.nbytes)


# Compiled


@dataclass(slots=True)
class CompiledPlan(Plan):
    """The plan of a compiled message: a program, run over tiles of edges.

    Attributes:
        message: The program.
        tensors: The tensors that the program's terms refer to by number: operands, and others that it uses.
        module: The aggregation module.
    """

    message: Read = field(kw_only=True)
    tensors: list[Tensor] = field(kw_only=True)
    module: Any = field(kw_only=True)

    @property
    def reductions(self) -> tuple[str, ...]:
        """The names of the reductions that the layer's aggregation consists of."""
        return _reductions(self.message, self.module)

    def rows(self) -> CompiledRows:
        """Return the messages and the reductions to compute."""
        return CompiledRows(self.graph, self.message, self.reductions, self.tensors, drawn)


def _reductions(message: Read, module: Any) -> tuple[str, ...]:
    if message.returned is not None:
        return tuple(dict.fromkeys(message.returned.names))
    parts = simple_parts(module)
    assert parts is not None
    return tuple(sorted(parts[0]))


def _compiled(
    way: Compiled,
    layer: Any,
    graph: Graph,
    arguments: list[Argument],
    operands: list[Tensor],
    update: dict[str, Any],
) -> CompiledPlan:
    message, module = way.message, layer.aggr_module
    reductions, tensors = _reductions(message, module), way.tensors_of(operands)
    reduced = name_of(module) if message.returned is None else " and ".join(reductions)

    def run() -> Any:
        rows = CompiledRows(graph, message, reductions, tensors, drawn, way.saved)
        out = reduce(rows, module) if message.returned is None else message.returned.of(rows.reduced)
        return layer.update(out, **update)

    def shown(layer: Any) -> reports.Call:
        names = {(ENDS[a.kind], a.at): a.name for a in arguments if a.kind in ENDS and a.at is not None}
        steps = sum(len(part.program.steps) for part in message.parts)
        how = f"{steps} step{'' if steps == 1 else 's'} on tiles of edges"
        matched = [rule_for(part, reductions) for part in message.parts]
        if all(matched):
            how = f"matches {' and '.join(rule.name for rule in matched if rule is not None)}"
        texts = [part.program.text(names_of(part.terms, names)) for part in message.parts]
        if message.behind is not None:
            texts.append("the sums or means of messages: times a matrix")
        return reports.Call(layer, None, _COMPILED, reduced, "cpu", how, "\n".join(texts))

    # The functions do not refer to the plan; otherwise the plan would keep itself and its tensors alive.
    x = _largest(operands)
    rest = {"aside": OWN_MESSAGES, "shown": shown, "message": message, "tensors": tensors, "module": module}
    return CompiledPlan(_COMPILED, reduced, graph, x, run, **rest)


def _traced(
    message: OwnMessage,
    layer: Any,
    arguments: list[Argument],
    operands: list[Tensor],
    edges: ListedEdges | MatrixEdges,
    graph: Graph,
    autocast: torch.dtype | None,
    signals: Signals | None,
    reading: Reading,
) -> Found:
    """Traces a layer's message that was read as ``reading``; ``autocast`` is its dtype, or None."""
    module = layer.aggr_module
    sizes = frozenset(size for tensor in (*layer.parameters(), *layer.buffers()) for size in tensor.shape)
    trial = Trial(
        partial(message.run, layer),
        arguments,
        operands,
        sizes,
        partial(edges.first, graph),
        edges.count,
        graph.num_dst,
        layer.node_dim,
        reading.counts_in_c,
        message.reduces,
    )
    linear = linear_reduction(module) is not None
    result = way_of(trial, graph, autocast, partial(_refusal_of, module=module), linear)
    if signals is None or isinstance(result.way, str):
        return result
    if result.counts:
        refusal: str | None = "its message looks at the number of edges or nodes"
    else:
        refusal = signals.refusal(message.run, arguments, operands)
    return result if refusal is None else Found(refusal, [], {}, lasts=False, counts=False)


def _refusal_of(message: Read, module: Any) -> str | None:
    """Return why a compiled message cannot be reduced by an aggregation module; None if it can.

    If the message includes a layer's own aggregate, that reduces it instead.
    """
    if message.returned is not None:
        return None if is_short(message, _reductions(message, module)) else _TOO_LONG
    reductions = simple_parts(module)
    if message.dtype.is_complex and name_of(module) != "sum":
        return "its messages are complex, of which PyG has sums alone"
    if reductions is None:
        return f"its reduction, {name_of(module)}, is not made of sums, means, extrema and softmax"
    names, softmaxes = reductions
    for softmax in softmaxes:
        reason = weights_reason(message, softmax)
        if reason is not None:
            return reason
    if names and not is_short(message, tuple(sorted(names))):
        return _TOO_LONG
    for softmax in softmaxes:
        parts = tuple(weighted(part, softmax.t, is_constant(softmax)) for part in message.parts)
        if not is_short(replace(message, parts=parts), ("sum",)):
            return _TOO_LONG
    return None


# In blocks


@dataclass(frozen=True, slots=True)
class LayerCode:
    """A layer's message and its aggregation, as code.

    Attributes:
        layer: A copy of the layer.
        own_message: The message of its class.
    """

    layer: Any
    own_message: OwnMessage

    def message(self, **arguments: Any) -> Tensor:
        """Return the messages of edges."""
        messages: Tensor = self.own_message.run(self.layer, **arguments)
        return messages

    def reduce(self, rows: BlockRows) -> Tensor:
        """Return the messages, reduced over rows."""
        return reduce(rows, self.layer.aggr_module)

    def renamed(self, others: dict[int, Tensor]) -> tuple["LayerCode", set[int]]:
        """Return a copy of the code with other tensors as parameters, and the ids of the replaced ones."""
        copied = Snapshot(self.layer)
        renamed = copied.renamed(others)
        return LayerCode(copied.layer, self.own_message), renamed


def _in_blocks(
    way: InBlocks,
    message: OwnMessage,
    layer: Any,
    edges: ListedEdges | MatrixEdges,
    arguments: list[Argument],
    operands: list[Tensor],
    update: dict[str, Any],
    autocast: torch.dtype | None,
) -> Plan:
    """Return the plan of a message that runs in blocks, and runs again in the backward pass."""
    module, graph = layer.aggr_module, edges.graph()
    linear = linear_reduction(module)
    blocks = edges.blocks(graph, edges_of_a_block(way.row_bytes), linear is not None)
    learned = [p for p in module.parameters() if p.requires_grad]
    parameters = list({id(p): p for p in (*way.tensors, *learned)}.values())
    inputs, frozen = way.tensors_of(operands), None
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (*inputs, *parameters)):
        reading = message.traces.reading(layer)
        if not reading.stays:
            raise Leave("its message reads what may change before it runs again in the backward pass")
        frozen = Frozen(reading, way.saved)
    code = LayerCode(Snapshot(layer, frozen).layer, message)
    blocks_run = BlockRun(code, arguments, graph, blocks, linear, autocast)

    def run() -> Any:
        return layer.update(blocks_run(inputs, parameters, way.saved), **update)

    def shown(layer: Any) -> reports.Call:
        plan = f"{len(blocks.each)} of about {blocks.block_edges} edges each, because {way.refusal}"
        return reports.Call(layer, None, form, name_of(module), "cpu", plan)

    form = reports.IN_BLOCKS
    return Plan(form, name_of(module), graph, _largest(operands), run, aside=OWN_MESSAGES, shown=shown)
