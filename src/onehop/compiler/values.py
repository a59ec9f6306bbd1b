"""Values of a message that is read: the rows of its tensors, and what reading comes to."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop.compiler.terms import Drawn, Fixed, Term
from onehop.messages import Program


class NotCompiled(Exception):
    """The message is no program of ours. The text says why."""


@dataclass(frozen=True, slots=True)
class Row:
    """A tensor with a row for every edge.

    Attributes:
        shape: Of the row.
        value: Its number: of a step from 0 on, of an operand from -1 downwards.
    """

    shape: tuple[int, ...]
    value: int

    @property
    def width(self) -> int:
        """Numbers of the row."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Joined:
    """Rows side by side, which only a product with a matrix takes apart again."""

    rows: tuple[Row, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the row."""
        return (sum(row.width for row in self.rows),)


@dataclass(frozen=True, slots=True)
class Stacked:
    """Rows one above another, all of one shape: what is done to each is done apart from the others."""

    rows: tuple[Row | Joined, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the row."""
        return (len(self.rows), *self.rows[0].shape)


@dataclass(frozen=True, slots=True)
class Unread:
    """A tensor of no known reading; nothing is lost while nothing of the message is made from it.

    Hooks on saved tensors, such as those of activation checkpointing, call operations too.

    Attributes:
        why: What to say if something is.
    """

    why: str


@dataclass(frozen=True, slots=True)
class Zeros(Unread):
    """A tensor of zeros, for something to be added up in."""


@dataclass(frozen=True, slots=True)
class Part:
    """Columns of a message.

    Attributes:
        program: What they are.
        terms: What its operands are.
    """

    program: Program
    terms: list[Term]


@dataclass(frozen=True, slots=True)
class Behind:
    """A linear step that sums and means of messages are given, in place of each message.

    Attributes:
        matrix: [columns, width], by which they are multiplied.
        bias: [width], of every message; None adds nothing.
    """

    matrix: Fixed
    bias: Fixed | None


@dataclass(frozen=True, slots=True)
class Read:
    """A message that was read. It holds no tensors: its terms number them.

    Attributes:
        parts: Side by side, the message.
        shape: Of a message.
        dtype: Of a message.
        draws: What is drawn for it, in order, whether the message needs it or not.
        stays: Whether it reduces something over destinations, or draws something, which blocks cannot.
        behind: What is left to be done with its sums and means; None: nothing.
        returned: What the layer itself makes of it; None where its reductions are not part of what was read.
    """

    parts: tuple[Part, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype
    draws: tuple[Drawn, ...]
    stays: bool
    behind: Behind | None = None
    returned: "Results | None" = None


@dataclass(frozen=True, slots=True)
class Results:
    """Results that a layer itself makes of its messages, in order.

    Attributes:
        names: Of :data:`onehop.messages.REDUCTIONS`.
        container: They are in one of these: a tuple or a list; None where there is one that is in none.
    """

    names: tuple[str, ...]
    container: type | None

    def of(self, found: Callable[[str], Tensor]) -> Any:
        """The results as the layer returns them; the same tensor for the same name."""
        made = {name: found(name) for name in dict.fromkeys(self.names)}
        if self.container is None:
            return made[self.names[0]]
        return self.container(made[name] for name in self.names)
