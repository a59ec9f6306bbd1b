"""The arguments of a layer's own message and update, as PyG collects them."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from onehop.compiler.arguments import BOTH_NUMBERS, EDGE_NUMBERS, SIZES, Argument, Kind, numbered, position
from onehop.compiler.ways import asks_for
from onehop.integrations.pyg.edges import Edges
from onehop.integrations.pyg.leave import BIPARTITE_BACKWARDS, LEFT_TO_PYG, SIGNALS, Leave, OfSignals, need
from onehop.ops.contexts import WRAPPED, wraps

_UNKNOWN = ("adj_t", "size")


class Arguments:
    """The arguments of a message as PyG collects them, and the tensors that they are made from.

    Attributes:
        arguments: The arguments in the order of the parameters.
        operands: The tensors, each once.
    """

    def __init__(self, node_dim: int, edges: Edges, kwargs: dict[str, Any]) -> None:
        self.arguments: list[Argument] = []
        self.operands: list[Tensor] = []
        self._dim, self._edges, self._kwargs = node_dim, edges, kwargs

    def take(self, parameter: inspect.Parameter, ptr_is_none: bool) -> None:
        """Notes the argument of a parameter."""
        name = parameter.name
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise Leave(f"its message takes {parameter}, and onehop collects named arguments alone")
        if name in _UNKNOWN or (name == "ptr" and not ptr_is_none):
            raise Leave(asks_for(name))
        if name == BOTH_NUMBERS:
            # PyG passes the edge_index that propagate got; a matrix is not an edge_index.
            need(self._edges.is_list and ptr_is_none, asks_for(name))
            forwards = self._edges.forwards
            kind = Kind.SOURCE_ABOVE_TARGET if forwards else Kind.TARGET_ABOVE_SOURCE
            self.arguments.append(Argument(name, kind))
        elif name in EDGE_NUMBERS:
            self.arguments.append(numbered(name))
        elif name == "ptr" or name in SIZES:
            # Sizes are known only after all operands have been read.
            self.arguments.append(Argument(name, Kind.VALUE))
        elif name.endswith(("_i", "_j")):
            if name[:-2] not in self._kwargs:
                raise Leave(LEFT_TO_PYG)
            self._lift(name, self._kwargs[name[:-2]])
        else:
            value = self._kwargs.get(name, parameter.default)
            if value is parameter.empty:
                raise Leave(LEFT_TO_PYG)
            if not isinstance(value, Tensor):
                self.arguments.append(Argument(name, Kind.VALUE, None, value))
                return
            _check_operand(value)
            kind = Kind.EDGE if value.dim() > 0 and value.size(0) == self._edges.count else Kind.WHOLE
            self.arguments.append(Argument(name, kind, position(value, self.operands)))

    def _lift(self, name: str, operand: Any) -> None:
        """Notes an argument that has a node's row for every edge."""
        edges, sends = self._edges, name.endswith("_j")
        side = edges.sending if sends else 1 - edges.sending
        if isinstance(operand, tuple | list):
            need(len(operand) == 2)
            need(edges.forwards or operand[0] is operand[1], BIPARTITE_BACKWARDS)
            for end, tensor in enumerate(operand):
                self._note_rows(tensor, end)
            operand = operand[side]
        else:
            self._note_rows(operand, side)
        if isinstance(operand, Tensor):
            kind = Kind.SOURCE if sends else Kind.TARGET
            self.arguments.append(Argument(name, kind, position(operand, self.operands)))
        else:
            self.arguments.append(Argument(name, Kind.VALUE))

    def _note_rows(self, tensor: Any, end: int) -> None:
        if isinstance(tensor, Tensor):
            _check_operand(tensor)
            dims, dim = tensor.dim(), self._dim
            if not -dims <= dim < dims:
                raise Leave(LEFT_TO_PYG)
            if dim % dims != 0:
                raise OfSignals(SIGNALS)
            self._edges.note(end, tensor.size(0))


def _check_operand(tensor: Tensor) -> None:
    if type(tensor) is not Tensor and type(tensor) is not Parameter:
        raise Leave(f"an operand is of type {type(tensor).__name__}")
    if not tensor.is_cpu:
        raise Leave("an operand is not on the CPU")
    if tensor.layout is not torch.strided:
        raise Leave("an operand is sparse")
    if wraps(tensor):
        raise Leave(WRAPPED)


def update_arguments(
    parameters: Sequence[inspect.Parameter], kwargs: dict[str, Any], counts: tuple[int, int]
) -> dict[str, Any]:
    """Collects the arguments of ``update`` except the first, as PyG does.

    Args:
        parameters: The parameters of ``update``.
        kwargs: The operands of ``propagate``, by name.
        counts: The numbers of sending and of receiving nodes.

    Raises:
        Leave: onehop does not collect one of the parameters.
    """
    values = dict(kwargs, size_i=counts[1], dim_size=counts[1], size_j=counts[0])
    arguments = {}
    for parameter in parameters:
        name = parameter.name
        value = values.get(name, parameter.default)
        ends = name.endswith(("_i", "_j")) and name not in SIZES
        if value is parameter.empty or ends or name in (*_UNKNOWN, BOTH_NUMBERS, "index", "ptr"):
            raise Leave(f"its update takes {name}")
        arguments[name] = value
    return arguments
