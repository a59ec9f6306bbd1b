"""Terms: the tensors that a compiled message reads, described by the numbers of given tensors.

The given tensors are the operands of ``propagate``, followed by other tensors that the message uses.

If a value that depends on only one end is multiplied by a matrix, the product is computed once for each node,
not for each edge. For edge features with many columns, the product is computed for all edges at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from onehop.graph import Graph
from onehop.messages import End


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Columns of an operand of ``propagate``, with flattened rows.

    Attributes:
        end: The end that the rows belong to.
        at: The number of the operand.
        start: The first column.
        width: The number of columns.
    """

    end: End
    at: int
    start: int
    width: int

    def key(self) -> tuple[object, ...]:
        """A key that is equal for equal columns."""
        return self.end, self.at, self.start, self.width


@dataclass(frozen=True, slots=True, eq=False)
class EarlyProduct:
    """A sum of products of columns with matrices, which is computed before the pass over the edges.

    Attributes:
        end: The end of the columns: nodes of one end, or edges.
        parts: Columns, or another product, each with the number of its matrix [columns, width].
        bias: The number of a tensor [width], added to every row; None adds nothing.
        width: The number of columns of the result.
    """

    end: End
    parts: "tuple[tuple[Columns | EarlyProduct, int], ...]"
    bias: int | None
    width: int


@dataclass(frozen=True, slots=True, eq=False)
class Fixed:
    """A tensor that is the same for all edges.

    Attributes:
        end: Whether it is a row or a matrix.
        at: The number of the tensor.
        shape: The shape that it is expanded to; a row is flattened afterwards.
    """

    end: End
    at: int
    shape: tuple[int, ...]

    @property
    def width(self) -> int:
        """The number of entries."""
        return torch.Size(self.shape).numel()


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """Random numbers that are drawn for every edge.

    Attributes:
        width: How many numbers an edge has.
        probability: The probability of 1; other numbers are 0.
        divided: Whether the numbers are divided by this probability.
    """

    width: int
    probability: float
    divided: bool

    @property
    def end(self) -> End:
        """The end, which is always the edge."""
        return End.EDGE


Term = Columns | EarlyProduct | Fixed | Drawn


def names_of(terms: list[Term], arguments: dict[tuple[End, int], str]) -> list[str]:
    """Return the names of terms in an explanation; all names are different.

    Args:
        terms: The terms.
        arguments: The names of the message's arguments, by their ends and operands.
    """
    names = [_name_of(term, arguments) for term in terms]
    return [
        f"({name}){names[:at].count(name) + 1}" if names.count(name) > 1 else name
        for at, name in enumerate(names)
    ]


def _name_of(term: Term, arguments: dict[tuple[End, int], str]) -> str:
    if isinstance(term, Fixed):
        return "matrix" if term.end is End.MATRIX else "constant"
    if isinstance(term, Columns):
        return arguments[term.end, term.at]
    if isinstance(term, Drawn):
        return "dropout"
    return " + ".join(f"{_name_of(part, arguments)} W" for part, _ in term.parts)


Draw = Callable[[Tensor, float], Tensor]
"""A function that fills a tensor with the factors that dropout with this probability draws for it."""


def drawn(term: Drawn, graph: Graph, dtype: torch.dtype, draw: Draw) -> Tensor:
    """Return the numbers that torch's dropout would draw now, in its order, [E, width]."""
    out = torch.empty(graph.num_edges, term.width, dtype=dtype, device="cpu")
    dropped = 1 - term.probability
    if term.divided and 1 - dropped == term.probability:
        return draw(out, dropped)
    out.bernoulli_(term.probability)
    return out.div_(term.probability) if term.divided else out


def tensors_of(
    terms: Sequence[Columns | EarlyProduct | Fixed], numbered: Sequence[Tensor], graph: Graph
) -> list[Tensor]:
    """Return the tensors that terms describe; differentiable.

    Args:
        terms: The terms, without drawn ones.
        numbered: The tensors that terms refer to by number.
        graph: The graph.
    """
    meets: dict[End, Tensor | None] = {}

    def met(end: End) -> Tensor | None:
        """Return which nodes have an edge, [nodes, 1]; None if all have one, and for edges."""
        if end is End.EDGE:
            return None
        if end not in meets:
            degrees = graph.in_degrees if end is End.TARGET else graph.out_degrees
            has_edges = degrees > 0
            meets[end] = None if bool(has_edges.all()) else has_edges.view(-1, 1)
        return meets[end]

    return [_tensor_of(term, numbered, met) for term in terms]


def _tensor_of(
    term: Columns | EarlyProduct | Fixed, numbered: Sequence[Tensor], met: Callable[[End], Tensor | None]
) -> Tensor:
    if isinstance(term, Fixed):
        tensor = numbered[term.at]
        if tensor.dim() > len(term.shape):
            tensor = tensor.squeeze(0)
        tensor = tensor.expand(term.shape)
        return tensor if term.end is End.MATRIX else tensor.reshape(-1)
    if isinstance(term, Columns):
        operand = numbered[term.at]
        flat = operand.reshape(operand.size(0), -1) if operand.dim() != 2 else operand
        return flat if term.width == flat.size(1) else flat[:, term.start : term.start + term.width]
    out: Tensor | None = None
    for part, at in term.parts:
        rows, matrix = _tensor_of(part, numbered, met), numbered[at]
        if isinstance(part, Columns):
            # A row that no edge reads must have no effect, even if it is infinite.
            mask = met(term.end)
            rows = rows if mask is None else torch.where(mask, rows, 0.0)
        if out is not None:
            out = torch.addmm(out, rows, matrix)
        else:
            out = rows @ matrix if term.bias is None else torch.addmm(numbered[term.bias], rows, matrix)
    assert out is not None
    return out
