"""The second tier of the fast path: a propagation in blocks, or the sentence why there is none."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from onehop import thresholds
from onehop.compiler.arguments import ENDS, SIZES, Kind, with_sizes
from onehop.compiler.blocks import edges_of_a_block
from onehop.compiler.executor import BlockRun
from onehop.compiler.rows import BlockRows
from onehop.compiler.snapshot import Snapshot
from onehop.compiler.trials import Trial
from onehop.compiler.values import Read
from onehop.compiler.ways import way_of
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
from onehop.integrations.pyg.rowwise.arguments import Arguments, arguments_of, operands_reason
from onehop.integrations.pyg.rowwise.compiled import CompiledTask, refusal_of
from onehop.integrations.pyg.rowwise.edges import MatrixEdges, edges_for


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
    return _prepare(record, layer, edge_index, args, kwargs)


def fits_cache(edge_index: Tensor, kwargs: dict[str, Any]) -> bool:
    """Return whether a propagation is too small for blocks, whatever its message: all operands count.

    Args:
        edge_index: What ``propagate`` was called with, and
        kwargs: what else.
    """
    shape, bound = edge_index.shape, thresholds.now.cached_bytes
    if edge_index.layout is not torch.strided or len(shape) != 2:
        return False
    edges = shape[1]
    for operand in kwargs.values():
        # A loop and plain types, for this is all that a layer of a small graph pays.
        for each in operand if type(operand) is tuple or type(operand) is list else (operand,):
            # Mostly it is small however few its rows are, which then need not be asked for.
            if (
                isinstance(each, Tensor)
                and edges * each.nbytes >= bound
                and each.dim()
                and edges * (each.nbytes // (each.shape[0] or 1)) >= bound
            ):
                return False
    return bound > 0


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
    message = type(layer).message
    if isinstance(edges, MatrixEdges):
        kwargs = with_values(_asked(layer), edge_index, kwargs)
    arguments = arguments_of(layer, message, kwargs, edges.sizes, edges.number, edges.ptr_is_none)
    if isinstance(arguments, str):
        return arguments
    counts = _counts(edges.sizes, layer.flow == "source_to_target")
    if counts is None:
        return LEFT_TO_PYG
    update = _update_arguments(layer, kwargs, counts)
    if isinstance(update, str):
        return update
    if edges.number * _row_bytes(arguments) < thresholds.now.cached_bytes:
        return FITS_CACHE
    graph = edges.graph(*counts)
    if isinstance(graph, str):
        return graph
    snapshot = Snapshot(layer)
    each = with_sizes(arguments.each, *counts)
    operands = arguments.operands
    module = layer.aggr_module
    autocast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
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
    linear = linear_reduction(module)
    way = way_of(trial, graph, autocast, partial(refusal_of, module=module), linear is not None)
    if isinstance(way, str):
        return way
    if isinstance(way, Read):
        names = {(ENDS[a.kind], a.at): a.name for a in each if a.kind in ENDS and a.at is not None}
        return CompiledTask(way, layer, graph, operands, update, names)
    blocks = edges.blocks(graph, edges_of_a_block(way.permission.row_bytes), linear is not None)
    run = BlockRun(LayerCode(snapshot.layer, message), each, graph, blocks, linear, autocast)
    learned = [p for p in module.parameters() if p.requires_grad]
    parameters = list({id(p): p for p in (*way.permission.parameters, *learned)}.values())
    return BlockTask(run, layer, operands, parameters, update, way.refusal)


def _asked(layer: Any) -> set[str]:
    """The names that a layer's message and update ask for."""
    kind = type(layer)
    return {name for each in (kind.message, kind.update) for name in inspect.signature(each).parameters}


def _counts(sizes: list[int | None], forwards: bool) -> tuple[int, int] | None:
    """Counts the nodes that send and those that receive."""
    j, i = (0, 1) if forwards else (1, 0)
    num_src = sizes[j] if sizes[j] is not None else sizes[i]
    num_dst = sizes[i] if sizes[i] is not None else sizes[j]
    return (num_src, num_dst) if type(num_src) is int and type(num_dst) is int else None


def _row_bytes(arguments: Arguments) -> int:
    """Bytes an edge of the widest operand."""
    rows = (Kind.SOURCE, Kind.TARGET, Kind.EDGE)
    found = [arguments.operands[a.at] for a in arguments.each if a.at is not None and a.kind in rows]
    return max((t.nbytes // max(t.size(0), 1) for t in found), default=0)


def _update_arguments(layer: Any, kwargs: dict[str, Any], counts: tuple[int, int]) -> dict[str, Any] | str:
    """Collects the arguments of ``update``, besides its first, as PyG does."""
    update = type(layer).update
    if update is MessagePassing.update:
        return {}
    known = dict(kwargs, size_i=counts[1], dim_size=counts[1], size_j=counts[0])
    given = {}
    for name, parameter in list(inspect.signature(update).parameters.items())[2:]:
        value = known.get(name, parameter.default)
        if value is parameter.empty or name in ("size", "edge_index", "adj_t", "index", "ptr"):
            return f"its update asks for {name}"
        if name.endswith(("_i", "_j")) and name not in SIZES:
            return f"its update asks for {name}"
        given[name] = value
    return given
