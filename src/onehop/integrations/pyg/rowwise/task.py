"""The second tier of the fast path: a propagation in blocks, or the sentence why there is none."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from onehop import thresholds
from onehop.compiler.arguments import ENDS, SIZES, Argument, with_sizes
from onehop.compiler.blocks import edges_of_a_block
from onehop.compiler.executor import BlockRun
from onehop.compiler.rows import BlockRows
from onehop.compiler.snapshot import Snapshot
from onehop.compiler.trials import Trial
from onehop.compiler.ways import Compiled, Found, way_of
from onehop.graph import Graph
from onehop.integrations import reports
from onehop.integrations.pyg.conditions import (
    FITS_CACHE,
    LEFT_TO_PYG,
    OTHER_OPERANDS,
    REDUCTIONS,
    TOO_SMALL,
    ClassRecord,
    layer_reason,
    module_reason,
)
from onehop.integrations.pyg.matrix_operands import with_values
from onehop.integrations.pyg.rowwise.aggregators import aggregator_reason, linear_reduction, name_of, reduce
from onehop.integrations.pyg.rowwise.arguments import arguments_of, operands_reason
from onehop.integrations.pyg.rowwise.compiled import CompiledTask, refusal_of
from onehop.integrations.pyg.rowwise.edges import ListedEdges, MatrixEdges, edges_for
from onehop.integrations.pyg.sizes import has_small_messages


@dataclass(frozen=True, slots=True)
class LayerCode:
    """A layer's message and its aggregation, as code.

    Attributes:
        layer: A copy of the layer.
        function: The message.
    """

    layer: Any
    function: Callable[..., Tensor]

    def message(self, **given: Any) -> Tensor:
        """The messages of edges."""
        return self.function(self.layer, **given)

    def reduce(self, rows: BlockRows) -> Tensor:
        """The messages, reduced over rows."""
        return reduce(rows, self.layer.aggr_module)

    def renamed(self, others: dict[int, Tensor]) -> tuple["LayerCode", set[int]]:
        """The same with other tensors in place of parameters."""
        copied = Snapshot(self.layer)
        found = copied.renamed(others)
        return LayerCode(copied.layer, self.function), found


@dataclass(slots=True)
class BlockTask:
    """One propagation in blocks, ready to run.

    Attributes:
        blocks: What to run.
        layer: The layer itself.
        operands: The tensors behind the message's arguments.
        parameters: What else needs a gradient.
        update: What the layer's ``update`` gets besides the reduced messages.
        refusal: Why the message is not compiled.
    """

    blocks: BlockRun
    layer: Any
    operands: list[Tensor]
    parameters: list[Tensor]
    update: dict[str, Any]
    refusal: str

    @property
    def x(self) -> Tensor:
        """The largest operand."""
        return max(self.operands, key=lambda tensor: tensor.nbytes)

    @property
    def graph(self) -> Graph:
        """Over which edges."""
        return self.blocks.graph

    def run(self) -> Any:
        """Return the result of ``propagate``."""
        return self.layer.update(self.blocks(self.operands, self.parameters), **self.update)

    def described(self, layer: Any) -> reports.Call:
        """The row of ``explain``."""
        blocks = self.blocks.blocks
        plan = f"{len(blocks.each)} of about {blocks.block_edges} edges each, for {self.refusal}"
        return reports.Call(layer, None, reports.IN_BLOCKS, name_of(layer.aggr_module), "cpu", plan)


def in_blocks_instead(
    refusal: str,
    record: ClassRecord,
    layer: Any,
    edge_index: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> BlockTask | CompiledTask | str:
    """A propagation with the layer's own message, for one that the first tier has refused; or why not.

    It is compiled if it can be, and runs in blocks otherwise. This tier stands in where the message is not
    one that the first tier knows, or the aggregation is not. What else the first tier has against a layer
    counts here too.

    Args:
        refusal: What the first tier says.
        record: What is known of the layer's class.
        layer: The layer.
        edge_index: What ``propagate`` was called with, and
        args: what else, without a name,
        kwargs: and with one.
    """
    known = record.form is not None and type(layer.aggr_module) in REDUCTIONS
    # Further operands, which the first tier does not expect, are not the message's.
    if known and refusal is not OTHER_OPERANDS and (not record.compiles or refusal is TOO_SMALL):
        return refusal
    reason = (
        record.block_reason
        or layer_reason(layer, record.fuses)
        or aggregator_reason(layer.aggr_module)
        or module_reason(layer)
    )
    if reason is not None:
        return reason
    if refusal is TOO_SMALL or has_small_messages(edge_index, kwargs.values()):
        return TOO_SMALL
    return _prepare(record, layer, edge_index, args, kwargs)


def _prepare(
    record: ClassRecord, layer: Any, edge_index: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> BlockTask | CompiledTask | str:
    if args:
        return "propagate gets operands without a name"
    edges = edges_for(layer, edge_index, kwargs.get("size"), record.fuses)
    if isinstance(edges, str):
        return edges
    reason = operands_reason(record, layer, kwargs, isinstance(edges, MatrixEdges))
    if reason is not None:
        return reason
    if isinstance(edges, MatrixEdges):
        kwargs = with_values(_asked(record), edge_index, kwargs)
    arguments = arguments_of(layer, record.message, kwargs, edges.sizes, edges.number, edges.ptr_is_none)
    if isinstance(arguments, str):
        return arguments
    counts = _counts(edges.sizes, layer.flow == "source_to_target")
    if counts is None:
        return LEFT_TO_PYG
    update = _update_arguments(record, kwargs, counts)
    if isinstance(update, str):
        return update
    graph = edges.graph(*counts)
    if isinstance(graph, str):
        return graph
    each, operands = with_sizes(arguments.each, *counts), arguments.operands
    module = layer.aggr_module
    autocast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
    way = record.traces.way(
        layer, each, operands, graph, partial(_traced, layer, each, operands, edges, graph, autocast)
    )
    if isinstance(way, str):
        return way
    if isinstance(way, Compiled):
        names = {(ENDS[a.kind], a.at): a.name for a in each if a.kind in ENDS and a.at is not None}
        return CompiledTask(way, layer, graph, operands, update, names)
    if edges.number * _row_bytes(each, operands) < thresholds.now.cached_bytes:
        return FITS_CACHE
    linear = linear_reduction(module)
    blocks = edges.blocks(graph, edges_of_a_block(way.row_bytes), linear is not None)
    run = BlockRun(
        LayerCode(Snapshot(layer).layer, type(layer).message), each, graph, blocks, linear, autocast
    )
    learned = [p for p in module.parameters() if p.requires_grad]
    parameters = list({id(p): p for p in (*way.tensors, *learned)}.values())
    return BlockTask(run, layer, operands, parameters, update, way.refusal)


def _traced(
    layer: Any,
    each: list[Argument],
    operands: list[Tensor],
    edges: ListedEdges | MatrixEdges,
    graph: Graph,
    autocast: torch.dtype | None,
) -> Found:
    """Traces the message of a layer; ``autocast`` is the dtype of autocast, or None."""
    snapshot, message, module = Snapshot(layer), type(layer).message, layer.aggr_module
    own = frozenset(size for tensor in (*layer.parameters(), *layer.buffers()) for size in tensor.shape)
    trial = Trial(
        partial(message, snapshot.layer),
        message,
        each,
        operands,
        own,
        partial(edges.first, graph),
        edges.number,
        layer.node_dim,
        snapshot.stored,
    )
    linear = linear_reduction(module) is not None
    return way_of(trial, graph, autocast, partial(refusal_of, module=module), linear)


def _asked(record: ClassRecord) -> set[str]:
    """The names that a layer's message and update ask for."""
    return {parameter.name for parameter in (*record.message, *(record.update or ()))}


def _counts(sizes: list[int | None], forwards: bool) -> tuple[int, int] | None:
    """Counts the nodes that send and those that receive."""
    j, i = (0, 1) if forwards else (1, 0)
    num_src = sizes[j] if sizes[j] is not None else sizes[i]
    num_dst = sizes[i] if sizes[i] is not None else sizes[j]
    return (num_src, num_dst) if type(num_src) is int and type(num_dst) is int else None


def _row_bytes(each: list[Argument], operands: list[Tensor]) -> int:
    """Bytes an edge of the widest operand."""
    found = [operands[a.at] for a in each if a.at is not None and a.kind in ENDS]
    return max((t.nbytes // max(t.size(0), 1) for t in found), default=0)


def _update_arguments(
    record: ClassRecord, kwargs: dict[str, Any], counts: tuple[int, int]
) -> dict[str, Any] | str:
    """Collects the arguments of ``update``, besides its first, as PyG does."""
    if record.update is None:
        return {}
    known = dict(kwargs, size_i=counts[1], dim_size=counts[1], size_j=counts[0])
    given = {}
    for parameter in record.update:
        name = parameter.name
        value = known.get(name, parameter.default)
        if value is parameter.empty or name in ("size", "edge_index", "adj_t", "index", "ptr"):
            return f"its update asks for {name}"
        if name.endswith(("_i", "_j")) and name not in SIZES:
            return f"its update asks for {name}"
        given[name] = value
    return given
