"""Reading of a message that was watched: from the operations of torch to a program.

Every operation that the message led to has its meaning here, or the message is not compiled. Tensors that are
the same for all edges, whatever they were made from, are taken as they are.
"""

from torch import Tensor

from onehop.compiler.operations import READINGS
from onehop.compiler.reader import Reader
from onehop.compiler.tracing import Watched
from onehop.compiler.values import Read
from onehop.messages import End


def read(
    watched: Watched,
    rows: dict[int, tuple[End, int]],
    wholes: dict[int, int],
    operands: list[Tensor],
    hoists: frozenset[End],
    linear: bool,
) -> tuple[Read, list[Tensor]]:
    """Reads a message.

    Args:
        watched: What it did with a few edges.
        rows: For the ids of its arguments with a row for every edge: where rows come from, and from which
            operand of ``propagate``.
        wholes: For the ids of its other arguments: which operand of ``propagate`` they are.
        operands: The operands of ``propagate``.
        hoists: The ends whose products with matrices are computed for nodes.
        linear: Whether its messages are added up or averaged, and no more.

    Returns:
        What it comes to, and the tensors that its terms number after the operands.

    Raises:
        NotCompiled: It has an operation, a shape or a dtype that programs have not.
    """
    reader = Reader(watched, rows, wholes, operands, hoists)
    for call in watched.calls:
        reader.follow(READINGS, *call)
    return reader.finished(linear and End.TARGET in hoists), reader.tensors
