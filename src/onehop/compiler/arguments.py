"""Arguments of a message: rows of nodes, rows of edges, and others."""

import enum
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from onehop.messages import End

EDGE_NUMBERS = ("index", "edge_index_i", "edge_index_j")
"""PyG's names of the arguments that are node numbers."""

BOTH_NUMBERS = "edge_index"
"""PyG's name of the argument with the node numbers of both ends."""

SIZES = ("size_i", "size_j", "dim_size")
"""PyG's names of the arguments that are counts of nodes."""


class Kind(enum.Enum):
    """The origin of the row that an argument has for an edge."""

    SOURCE = enum.auto()
    """The row comes from the sending node."""
    TARGET = enum.auto()
    """The row comes from the receiving node."""
    EDGE = enum.auto()
    """The row comes from the edge."""
    WHOLE = enum.auto()
    """The argument is a tensor that is the same for all edges."""
    SOURCE_NUMBER = enum.auto()
    """The row is the number of the sending node."""
    TARGET_NUMBER = enum.auto()
    """The row is the number of the receiving node."""
    SOURCE_ABOVE_TARGET = enum.auto()
    """The argument is [2, edges]: the senders' numbers, then the receivers' numbers."""
    TARGET_ABOVE_SOURCE = enum.auto()
    """The argument is [2, edges]: the receivers' numbers, then the senders' numbers."""
    VALUE = enum.auto()
    """The argument is not a tensor."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a message.

    Attributes:
        name: The argument's name.
        kind: The origin of its rows.
        at: The number of the operand that it is taken from; None if it is not taken from an operand.
        value: Its value if it is not a tensor.
        leading: How many leading dimensions the operand had before the rows; they are now part of the rows.
    """

    name: str
    kind: Kind
    at: int | None = None
    value: Any = None
    leading: int = 0


PAIRS = {Kind.SOURCE_ABOVE_TARGET: 1, Kind.TARGET_ABOVE_SOURCE: 0}
"""For arguments with the numbers of both ends: the row of the receivers' numbers."""

ENDS = {Kind.SOURCE: End.SOURCE, Kind.TARGET: End.TARGET, Kind.EDGE: End.EDGE}
"""The end, in the terms of programs, for each origin of rows."""


def numbered(name: str) -> Argument:
    """Return the argument for one of the names in :data:`EDGE_NUMBERS`."""
    return Argument(name, Kind.SOURCE_NUMBER if name == "edge_index_j" else Kind.TARGET_NUMBER)


def with_sizes(arguments: list[Argument], num_src: int, num_dst: int) -> list[Argument]:
    """Return the arguments, with the counts of nodes filled in."""
    sizes = {"size_i": num_dst, "dim_size": num_dst, "size_j": num_src}
    return [Argument(a.name, a.kind, None, sizes[a.name]) if a.name in sizes else a for a in arguments]


def position(tensor: Tensor, operands: list[Tensor]) -> int:
    """Return the place of a tensor among the operands; append it if it is not there."""
    for at, operand in enumerate(operands):
        if operand is tensor:
            return at
    operands.append(tensor)
    return len(operands) - 1
