"""A layer's own message on a graph that is too small for a plan, without PyG's checks between steps.

On a graph of 40 nodes, the checks in PyG's ``propagate`` take as long as the arithmetic: it looks for hooks,
checks whether a program is traced, and calls two modules for each sum. Here the layer is checked once. Then
torch's operators run in PyG's order, so values, errors, gradients and recorded functions are PyG's. If no
gradient is recorded, one native call reduces the messages.
"""

import inspect
from collections.abc import Set
from typing import Any

from torch import Tensor
from torch_geometric.nn import MessagePassing

from onehop.integrations.pyg.conditions import layer_reason, reduction_of
from onehop.integrations.pyg.edges.few import DTYPES, NOT_SERVED, are_few
from onehop.integrations.pyg.rules.aggregators import REDUCTIONS
from onehop.integrations.pyg.rules.own_message import parameters_of
from onehop.ops import few
from onehop.ops.contexts import context_reason
from onehop.ops.few import FewRows

_ENDS = ("_j", "_i")
_OF_EDGES = ("edge_index", "index", "edge_index_i", "edge_index_j", "size_i", "size_j", "dim_size")
# For these arguments, PyG passes what only a matrix has, or a list that a layer may write to.
_OF_OTHERS = ("adj_t", "size")
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_FUNCTIONS = ("message", "update")
# Names in the code of functions that inspect their caller, which should be PyG's propagate.
_CALLERS = {"_getframe", "currentframe", "inspect", "traceback", "extract_stack", "format_stack"}
_MATRIX = 2

NOT_RUN: Any = object()
"""Returned instead of a result if PyG's code has to run. It is not None, because a layer may return None."""


class Steps:
    """The functions of a class that PyG calls in ``propagate``, and the arguments that it collects for them.

    Attributes:
        operands: The names of the operands that ``propagate`` gets, except ``size``.
        lifted: The arguments with a node's row for each edge: their operand and the end of the edge.
        defaults: The default values of other arguments, and None for ``ptr``, which a list of edges lacks.
        message: The names of the message's arguments.
        update: The argument names of the class's own ``update``; None if it is PyG's.
    """

    __slots__ = ("defaults", "lifted", "message", "operands", "update")

    def __init__(
        self,
        operands: Set[str],
        message: tuple[inspect.Parameter, ...],
        update: tuple[inspect.Parameter, ...] | None,
    ) -> None:
        self.operands = frozenset(operands)
        self.lifted: dict[str, tuple[str, int]] = {}
        self.defaults: dict[str, Any] = {"ptr": None}
        for parameter in (*message, *(update or ())):
            name = parameter.name
            if name in _OF_EDGES or name in self.operands or name == "ptr":
                continue
            if name.endswith(_ENDS):
                self.lifted[name] = name[:-2], _ENDS.index(name[-2:])
            else:
                self.defaults[name] = parameter.default
        self.message = _names(message)
        self.update = None if update is None else _names(update)

    def run(self, layer: Any, edge_index: Any, operands: dict[str, Any]) -> Any:
        """Return the result of ``propagate``; :data:`NOT_RUN` if PyG's code has to run and nothing has run.

        Args:
            layer: The layer.
            edge_index: The edges.
            operands: The operands of ``propagate``, by name.
        """
        size = operands.get("size")
        if operands.keys() != self.operands and operands.keys() - {"size"} != self.operands:
            return NOT_RUN
        if not are_few(edge_index) or layer_reason(layer, False) is not None:
            return NOT_RUN
        sizes = [None, None] if size is None else list(size)
        collected = self._collected(layer, edge_index, operands, sizes)
        if collected is None:
            return NOT_RUN
        out = layer.message(**{name: collected[name] for name in self.message})
        out = _aggregated(layer, out, collected["index"], collected["dim_size"])
        if self.update is None:
            return out
        return layer.update(out, **{name: collected[name] for name in self.update})

    def _collected(
        self, layer: Any, edge_index: Tensor, operands: dict[str, Any], size: list[Any]
    ) -> dict[str, Any] | None:
        """Return the arguments of all functions; None if PyG would raise an error."""
        target, source = (1, 0) if layer.flow == "source_to_target" else (0, 1)
        targets = edge_index[target]
        ends, places, dim = (edge_index[source], targets), (source, target), layer.node_dim
        collected = {**self.defaults, **operands, "edge_index": edge_index, "index": targets}
        collected["edge_index_j"], collected["edge_index_i"] = ends
        try:
            for name, (operand, end) in self.lifted.items():
                rows = operands.get(operand)
                if isinstance(rows, tuple | list):
                    first, second = rows  # the first belongs to the sources, in either flow
                    fits = _note(size, 0, first, dim) and _note(size, 1, second, dim)
                    rows = second if end else first
                else:
                    fits = _note(size, places[end], rows, dim)
                if not fits:
                    return None
                collected[name] = rows.index_select(dim, ends[end]) if isinstance(rows, Tensor) else None
        except (IndexError, RuntimeError, ValueError):
            return None  # PyG's code runs and reports the error
        at_target, at_source = size[target], size[source]
        collected["size_i"] = collected["dim_size"] = at_source if at_target is None else at_target
        collected["size_j"] = at_target if at_source is None else at_source
        return collected


def steps_of(kind: Any, operands: Set[Any]) -> Steps | None:
    """Return the steps of a class; None if PyG's ``propagate`` has to run them.

    It does if the class has its own ``aggregate``, which takes most of the time, or if PyG collects arguments
    that are not collected here.

    Args:
        kind: The class; PyG rendered its ``propagate`` for its functions.
        operands: The names of the operands that ``propagate`` gets, except ``size``.
    """
    if kind.aggregate is not MessagePassing.aggregate:
        return None
    message = parameters_of(kind.message, 1)
    update = parameters_of(kind.update, 2) if kind.update is not MessagePassing.update else None
    parameters = (*message, *(update or ()))
    if any(each.kind not in _NAMED or each.name in _OF_OTHERS for each in parameters):
        return None
    codes = [getattr(getattr(kind, name), "__code__", None) for name in _FUNCTIONS]
    if any(code is None or not _CALLERS.isdisjoint(code.co_names) for code in codes):
        return None
    return Steps(operands, message, update)


def as_pyg(theirs: Any, record: Any, layer: Any, edge_index: Any, args: Any, operands: dict[str, Any]) -> Any:
    """Return the result of PyG's ``propagate`` on a graph that is too small for a plan.

    Args:
        theirs: PyG's ``propagate``.
        record: The record of the layer's class.
        layer: The layer.
        edge_index: The edges.
        args: The positional operands.
        operands: The keyword operands.
    """
    steps = record.steps
    if (
        steps is not None
        and type(layer._modules.get("aggr_module")) in REDUCTIONS
        and not args
        and context_reason() is None
        and record.holds(type(layer))
    ):
        out = steps.run(layer, edge_index, operands)
        if out is not NOT_RUN:
            return out
    return theirs(layer, edge_index, *args, **operands)


def _aggregated(layer: Any, inputs: Any, index: Tensor, rows: Any) -> Any:
    """Return the messages, reduced as PyG's ``aggregate`` reduces them."""
    reduce, reason = reduction_of(layer)
    if reason is None and type(rows) is int and type(inputs) is Tensor:
        dims, dim = inputs.dim(), layer.node_dim
        if -dims <= dim < dims and inputs.size(dim) == index.size(0):
            try:
                out = _reduced(inputs, index, dim % dims, rows, reduce)
            except (IndexError, RuntimeError, *NOT_SERVED):
                out = None  # PyG's code runs on the same messages, and reports the error
            if out is not None:
                return out
    return layer.aggregate(inputs, index=index, ptr=None, dim_size=rows)


def _reduced(inputs: Tensor, index: Tensor, dim: int, rows: int, reduce: str) -> Tensor | None:
    """Reduces messages along a dimension; None for extrema that the layer's module has to reduce."""
    is_matrix = not dim and inputs.dim() == _MATRIX
    if is_matrix and not inputs.requires_grad and inputs.dtype in DTYPES and inputs.is_cpu:
        return few.aggregate(FewRows(index, rows), inputs, None, reduce)
    if reduce in few.EXTREMA:
        return None
    # These are the operators of PyG's scatter, in the same order.
    shape, behind = inputs.size(), (1,) * (inputs.dim() - dim - 1)
    if reduce == "mean":
        count = inputs.new_zeros(rows).scatter_add_(0, index, inputs.new_ones(shape[dim])).clamp(min=1)
    out = inputs.new_zeros((*shape[:dim], rows, *shape[dim + 1 :]))
    out.scatter_add_(dim, index.view(*(1,) * dim, -1, *behind).expand_as(inputs), inputs)
    if reduce == "mean":
        return out / count.view(*(1,) * dim, -1, *behind).expand_as(out)
    return out


def _note(size: list[Any], end: int, rows: Any, dim: int) -> bool:
    """Notes how many rows an end has; returns False if another operand has another number of rows."""
    if not isinstance(rows, Tensor):
        return True
    count = rows.size(dim)
    if size[end] is None:
        size[end] = count
    return bool(size[end] == count)


def _names(parameters: tuple[inspect.Parameter, ...]) -> list[str]:
    return [parameter.name for parameter in parameters]
