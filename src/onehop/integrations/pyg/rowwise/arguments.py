"""Arguments of a layer's message, as PyG collects them."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from onehop.compiler.arguments import EDGE_NUMBERS, SIZES, Argument, Kind, numbered, position
from onehop.compiler.ways import asks_for
from onehop.integrations.pyg.conditions import LEFT_TO_PYG, VALUES_ELSEWHERE, ClassRecord, fits
from onehop.ops.contexts import WRAPPED, wraps

# What the plain propagate fills with the values of a matrix.
_VALUES = ("edge_weight", "edge_attr", "edge_type")
_UNKNOWN = ("edge_index", "adj_t", "size")


@dataclass(slots=True)
class Arguments:
    """The arguments of a message, and the tensors behind them.

    Attributes:
        each: The arguments.
        operands: The tensors, each once.
        sizes: Numbers of nodes, as PyG notes them.
    """

    each: list[Argument]
    operands: list[Tensor]
    sizes: list[int | None]


def operands_reason(record: ClassRecord, layer: Any, kwargs: dict[str, Any], over_matrix: bool) -> str | None:
    """Return why the operands of ``propagate`` are left to PyG, whatever they are; None if they are not.

    Args:
        record: What is known of the layer's class.
        layer: The layer.
        kwargs: What ``propagate`` was called with.
        over_matrix: Whether its edges are a sparse matrix.
    """
    if not record.plain:
        return None if kwargs.keys() - {"size"} == record.names else LEFT_TO_PYG
    asked = layer._user_args
    for name in asked:
        # For one that is missing, the plain propagate passes an empty value, and no default.
        if (name[:-2] if name.endswith(("_i", "_j")) else name) not in kwargs:
            return LEFT_TO_PYG
    filled = [name for name in _VALUES if name in asked and kwargs[name] is None]
    return VALUES_ELSEWHERE if over_matrix and filled and filled != ["edge_weight"] else None


def arguments_of(
    layer: Any,
    parameters: Sequence[inspect.Parameter],
    kwargs: dict[str, Any],
    sizes: list[int | None],
    edges: int,
    plain: bool,
) -> Arguments | str:
    """The arguments that PyG would collect for a message, or the sentence why onehop does not.

    Args:
        layer: The layer.
        parameters: Those of its message.
        kwargs: What ``propagate`` was called with.
        sizes: Numbers of nodes that are known; those of lifted operands are noted in it.
        edges: How many edges there are.
        plain: Whether the edges are a plain tensor, for which PyG passes None as ``ptr``.
    """
    found = Arguments([], [], sizes)
    for parameter in parameters:
        name = parameter.name
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            return f"its message takes {parameter}, and onehop collects named arguments alone"
        if name in _UNKNOWN or (name == "ptr" and not plain):
            return asks_for(name)
        if name == "ptr":
            found.each.append(Argument(name, Kind.VALUE))
            continue
        if name in EDGE_NUMBERS:
            found.each.append(numbered(name))
        elif name in SIZES:
            # Known only when all operands have been looked at.
            found.each.append(Argument(name, Kind.VALUE))
        elif name.endswith(("_i", "_j")):
            if name[:-2] not in kwargs:
                return LEFT_TO_PYG
            reason = _lift(layer, name, kwargs[name[:-2]], found)
            if reason is not None:
                return reason
        else:
            value = kwargs.get(name, parameter.default)
            if value is parameter.empty:
                return LEFT_TO_PYG
            reason = _take(name, value, edges, found)
            if reason is not None:
                return reason
    return found


def _lift(layer: Any, name: str, operand: Any, found: Arguments) -> str | None:
    """Notes an argument that has a row of a node for every edge."""
    forwards = layer.flow == "source_to_target"
    sends = name.endswith("_j")
    side = 0 if sends is forwards else 1
    if isinstance(operand, tuple | list):
        if len(operand) != 2:
            return LEFT_TO_PYG
        if not forwards and operand[0] is not operand[1]:
            return "bipartite features meet flow='target_to_source'"
        for dim, tensor in enumerate(operand):
            if isinstance(tensor, Tensor):
                reason = _misfit(layer, tensor, dim, found)
                if reason is not None:
                    return reason
        operand = operand[side]
    elif isinstance(operand, Tensor):
        reason = _misfit(layer, operand, side, found)
        if reason is not None:
            return reason
    if not isinstance(operand, Tensor):
        found.each.append(Argument(name, Kind.VALUE))
        return None
    kind = Kind.SOURCE if sends else Kind.TARGET
    found.each.append(Argument(name, kind, position(operand, found.operands)))
    return None


def _misfit(layer: Any, tensor: Tensor, side: int, found: Arguments) -> str | None:
    reason = _unfit(tensor)
    if reason is not None:
        return reason
    dim = layer.node_dim
    if tensor.dim() == 0 or not -tensor.dim() <= dim < tensor.dim():
        return LEFT_TO_PYG
    if dim % tensor.dim() != 0:
        return "node_dim is not the first dimension of its operands"
    return None if fits(found.sizes, side, tensor.size(0)) else LEFT_TO_PYG


def _take(name: str, value: Any, edges: int, found: Arguments) -> str | None:
    """Notes an argument that PyG passes on as it is."""
    if not isinstance(value, Tensor):
        found.each.append(Argument(name, Kind.VALUE, None, value))
        return None
    reason = _unfit(value)
    if reason is not None:
        return reason
    kind = Kind.EDGE if value.dim() > 0 and value.size(0) == edges else Kind.WHOLE
    found.each.append(Argument(name, kind, position(value, found.operands)))
    return None


def _unfit(tensor: Tensor) -> str | None:
    if type(tensor) is not Tensor and type(tensor) is not Parameter:
        return f"an operand is of type {type(tensor).__name__}"
    if not tensor.is_cpu:
        return "an operand is not on the CPU"
    if tensor.layout is not torch.strided:
        return "an operand is sparse"
    if wraps(tensor):
        return WRAPPED
    return None
