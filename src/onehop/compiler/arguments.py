"""Arguments of a message: rows of nodes, rows of edges, and others."""

import enum
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from onehop.messages import End

EDGE_NUMBERS = ("index", "edge_index_i", "edge_index_j")
"""Names of arguments that are numbers of nodes, as PyG calls them."""

BOTH_NUMBERS = "edge_index"
"""The name of the argument that has the numbers of both ends, as PyG calls it."""

SIZES = ("size_i", "size_j", "dim_size")
"""Names of arguments that are counts of nodes, as PyG calls them."""


class Kind(enum.Enum):
    """The origin of an edge's row of an argument."""

    SOURCE = enum.auto()
    """From the node that sends."""
    TARGET = enum.auto()
    """From the node that receives."""
    EDGE = enum.auto()
    """From the edge, by its number."""
    WHOLE = enum.auto()
    """A tensor that is the same for all edges."""
    SOURCE_NUMBER = enum.auto()
    """The number of the node that sends."""
    TARGET_NUMBER = enum.auto()
    """The number of the node that receives."""
    SOURCE_ABOVE_TARGET = enum.auto()
    """Both numbers, [2, edges]: the sender's first."""
    TARGET_ABOVE_SOURCE = enum.auto()
    """Both numbers, [2, edges]: the receiver's first."""
    VALUE = enum.auto()
    """No tensor."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a message.

    Attributes:
        name: Its name.
        kind: Where its rows come from.
        at: Which of the operands it is taken from; None where it is from none.
        value: What it is, if it is no tensor.
        leading: How many dimensions the operand had in front of these rows, which are part of the rows now.
    """

    name: str
    kind: Kind
    at: int | None = None
    value: Any = None
    leading: int = 0


PAIRS = {Kind.SOURCE_ABOVE_TARGET: 1, Kind.TARGET_ABOVE_SOURCE: 0}
"""Arguments with the numbers of both ends: which row is the receiver's."""

ENDS = {Kind.SOURCE: End.SOURCE, Kind.TARGET: End.TARGET, Kind.EDGE: End.EDGE}
"""Origins of rows, as programs call them."""


def numbered(name: str) -> Argument:
    """The argument of one of :data:`EDGE_NUMBERS`."""
    return Argument(name, Kind.SOURCE_NUMBER if name == "edge_index_j" else Kind.TARGET_NUMBER)


def with_sizes(arguments: list[Argument], num_src: int, num_dst: int) -> list[Argument]:
    """The arguments, with the numbers of nodes filled in."""
    sizes = {"size_i": num_dst, "dim_size": num_dst, "size_j": num_src}
    return [Argument(a.name, a.kind, None, sizes[a.name]) if a.name in sizes else a for a in arguments]


def position(tensor: Tensor, operands: list[Tensor]) -> int:
    """The place of a tensor among the operands, each of which is there once."""
    for at, operand in enumerate(operands):
        if operand is tensor:
            return at
    operands.append(tensor)
    return len(operands) - 1
