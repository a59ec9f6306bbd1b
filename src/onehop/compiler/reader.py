"""The reader of a message: what its tensors are, and the steps that lead to them."""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from onehop import thresholds
from onehop.compiler.arguments import position
from onehop.compiler.aten import Place, name_of, named
from onehop.compiler.terms import Columns, Drawn, EarlyProduct, Fixed, Term
from onehop.compiler.tracing import Returned, Watched
from onehop.compiler.values import (
    Behind,
    Joined,
    NotCompiled,
    Part,
    Read,
    Results,
    Row,
    Stacked,
    Unread,
    Zeros,
)
from onehop.messages import APART, EDGES, OF_ROWS, End, Operand, Program, Step

# Numbers of the largest matrix that a tile's rows are multiplied by: larger ones do not stay in the caches.
_MOST_IN_MATRIX = 1 << 14

# Parts of a message that are computed apart from each other; there is a run over the edges for each.
_MOST_PARTS = 16

# Rows that a sum may have to be taken apart for a product.
_MOST_SUMMANDS = 4

_NUMBERS = "uses numbers of nodes, or what is made from no operand"

_Products = list[tuple[Columns | EarlyProduct, int]]


class Reader:
    """The reader.

    Args:
        watched: What the message did with a few edges.
        rows: As in :func:`.operations.read`.
        wholes: Likewise.
        operands: Likewise.
        hoists: Likewise.

    Attributes:
        tensors: Those that terms number after the operands.
    """

    def __init__(
        self,
        watched: Watched,
        rows: dict[int, tuple[End, int]],
        wholes: dict[int, int],
        operands: list[Tensor],
        hoists: frozenset[End],
    ) -> None:
        self._watched = watched
        self._constant = not any(operands[at].requires_grad for at in wholes.values())
        self._operands = len(operands)
        self.tensors: list[Tensor] = []
        self._dtype = watched.out.dtype
        self._wholes = wholes
        self._hoists = hoists
        self._origins = rows
        self._terms: list[Term] = []
        self._known: dict[tuple[object, ...], int] = {}
        self._steps: list[Step] = []
        self._made: dict[int, Row | Joined | Stacked | Unread] = {}

    def finished(self, behind: bool) -> Read:
        """The programs whose results are the message; a last linear step may be left behind their sums."""
        if self._watched.returned is not None:
            return self._reduced(self._watched.returned)
        found = self.either(self._watched.out)
        rows = found.rows if isinstance(found, Stacked) else (found,)
        pieces = [row for each in rows for row in (each.rows if isinstance(each, Joined) else (each,))]
        if len(pieces) > _MOST_PARTS:
            raise NotCompiled(f"has {len(pieces)} parts")
        draws = tuple(term for term in self._terms if isinstance(term, Drawn))
        stays = bool(draws) or any(step.operation in OF_ROWS for step in self._steps)
        values, step = [row.value for row in pieces], None
        if behind and len(values) == 1:
            values[0], step = self._without_last(values[0])
        return Read(tuple(map(self._part, values)), found.shape, self._dtype, draws, stays, step)

    def _reduced(self, returned: Returned) -> Read:
        """The program of messages that the layer reduces itself, and what it makes of them."""
        names, messages = [], set[Row]()
        for tensor in returned.tensors:
            row, name = self.row(tensor), EDGES
            if self.of_destinations(tensor):
                step = self._step_of(row.value)
                if step is None or step.operation != "row_sum":
                    raise NotCompiled("is reduced to something else than a sum")
                row, name = Row(row.shape, step.inputs[0]), "sum"
            names.append(name)
            messages.add(row)
        if len(messages) != 1:
            raise NotCompiled("is returned in another form than it is added up")
        if len({id(tensor) for tensor in returned.tensors}) != len(set(names)):
            raise NotCompiled("is returned twice")
        (row,) = messages
        if row.value < 0 and self._terms[-1 - row.value].end is End.EDGE:
            raise NotCompiled("is an operand of the edges itself")
        draws = tuple(term for term in self._terms if isinstance(term, Drawn))
        results = Results(tuple(names), returned.container)
        return Read((self._part(row.value),), row.shape, self._dtype, draws, True, returned=results)

    def _without_last(self, value: int) -> tuple[int, Behind | None]:
        """A value without its last linear step, if that is what it ends with, and the step."""
        bias, product = None, self._step_of(value)
        if product is not None and product.operation == "add":
            given = self._terms[-1 - product.inputs[1]] if product.inputs[1] < 0 else None
            if not isinstance(given, Fixed):
                return value, None
            bias, product = given, self._step_of(product.inputs[0])
        if product is None or product.operation != "product":
            return value, None
        matrix = self._terms[-1 - product.inputs[1]]
        assert isinstance(matrix, Fixed)
        return product.inputs[0], Behind(matrix, bias)

    def _step_of(self, value: int) -> Step | None:
        return self._steps[value] if value >= 0 else None

    def _part(self, result: int) -> Part:
        """The program of a value, with the operands and steps that it needs."""
        needed = {result}
        for number in reversed(range(len(self._steps))):
            if number in needed:
                needed.update(self._steps[number].inputs)
        kept = sorted((value for value in needed if value < 0), reverse=True)
        made = sorted(value for value in needed if value >= 0)
        numbers = {value: number for number, value in enumerate([*kept, *made])}
        steps = (self._steps[value] for value in made)
        terms = [self._terms[-1 - value] for value in kept]
        program = Program(
            tuple(Operand(term.end, term.width) for term in terms),
            tuple(replace(step, inputs=tuple(numbers[v] for v in step.inputs)) for step in steps),
            numbers[result],
        )
        if not any(t.end not in (End.FIXED, End.MATRIX) and not isinstance(t, Drawn) for t in terms):
            raise NotCompiled("reads no rows of nodes or edges")
        return Part(program, terms)

    def follow(self, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Notes what an operation made."""
        name = name_of(operation)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        touched = any(self._is_known(tensor) for tensor in tensors)
        writes = operation._schema.is_mutable
        if not touched:
            made_rows = any(self.has_rows(leaf) for leaf in tree_leaves(result) if isinstance(leaf, Tensor))
            if writes or made_rows:
                raise NotCompiled(f"uses {name}")
            return
        if writes:
            if not name.endswith("_"):
                raise NotCompiled(f"writes where it is told to ({name})")
            self._check_own(args[0], name)
            name = name.removesuffix("_")
        bound = dict(zip((a.name for a in operation._schema.arguments), args, strict=False), **kwargs)
        outs = result if isinstance(result, list | tuple) else [result]
        if any(map(self._watched.destinations.are_numbers, outs)):
            self._made.update((id(out), Unread(_NUMBERS)) for out in outs)
            return
        reading = named(name).reading(operation._overloadname)
        if reading is None:
            if writes:
                raise NotCompiled(f"uses {name}_")
            self._made.update((id(out), Unread(f"uses {name}")) for out in outs)
            return
        found = reading(self, bound, result)
        for row, out in zip(found if isinstance(found, list) else [found], outs, strict=True):
            if isinstance(row, Unread):
                self._made[id(out)] = row
                continue
            of_rows = self._watched.destinations.have_rows(out)
            fits = (of_rows or self._watched.place(out) == Place(0)) and tuple(out.shape[1:]) == row.shape
            if not fits or out.dtype is not self._dtype:
                raise NotCompiled(f"uses {name} in a way that is not known")
            if id(out) in self._watched.unrecorded:
                row = self.emit(APART, row) if isinstance(row, Row) else Unread(f"uses {name} in no_grad")
            self._made[id(out)] = row

    def has_rows(self, tensor: Tensor) -> bool:
        """Return whether a tensor has something for every edge."""
        return self._watched.place(tensor) is not None

    def _is_known(self, tensor: Tensor) -> bool:
        return self.has_rows(tensor) or self._watched.destinations.have_rows(tensor)

    def _check_own(self, written: Tensor, name: str) -> None:
        storage = written.untyped_storage()._cdata
        for other in self._watched.met():
            shared = other is not written and other.untyped_storage()._cdata == storage
            if shared and id(other) in self._made:
                raise NotCompiled(f"writes to a tensor that has views ({name})")

    # Operands

    def either(self, tensor: Any) -> Row | Joined | Stacked:
        """The rows of a tensor that has one for every edge."""
        found = self._made.get(id(tensor))
        if isinstance(found, Unread):
            raise NotCompiled(found.why)
        if found is not None:
            return found
        origin = self._origins.get(id(tensor))
        if origin is None:
            raise NotCompiled(_NUMBERS)
        if tensor.dtype is not self._dtype:
            raise NotCompiled(f"reads numbers of {tensor.dtype}")
        shape = tuple(tensor.shape[1:])
        width = math.prod(shape)
        if not width:
            raise NotCompiled("has rows without columns")
        row = Row(shape, self._operand(Columns(origin[0], origin[1], 0, width)))
        self._made[id(tensor)] = row
        return row

    def row(self, tensor: Any) -> Row:
        """The rows of a tensor, computed or read."""
        found = self.either(tensor)
        if not isinstance(found, Row):
            raise NotCompiled("uses a concatenation other than in a product")
        return found

    def _operand(self, term: Term) -> int:
        key = term.key() if isinstance(term, Columns) else (id(term),)
        if key not in self._known:
            self._terms.append(term)
            self._known[key] = -len(self._terms)
        return self._known[key]

    def _fixed(self, tensor: Tensor, end: End, shape: tuple[int, ...]) -> int:
        key = (id(tensor), end, shape)
        if key not in self._known:
            self._known[key] = self._operand(self._fixed_term(tensor, end, shape))
        return self._known[key]

    def _fixed_term(self, tensor: Tensor, end: End, shape: tuple[int, ...]) -> Fixed:
        if tensor.dtype is not self._dtype:
            raise NotCompiled(f"reads numbers of {tensor.dtype}")
        whole = self._wholes.get(id(tensor))
        if whole is not None:
            return Fixed(end, whole, shape)
        if tensor.requires_grad and not self._constant:
            # What the trace made of an operand leads to a copy of it.
            raise NotCompiled("computes with an operand that is the same for all edges")
        return Fixed(end, self._operands + position(tensor, self.tensors), shape)

    def are_zeros(self, tensor: Tensor) -> bool:
        """Return whether nothing has been written to a tensor of zeros."""
        return isinstance(self._made.get(id(tensor)), Zeros)

    def of_destinations(self, tensor: Tensor) -> bool:
        """Return whether a tensor has a row for every destination."""
        return self._watched.destinations.have_rows(tensor)

    def is_apart(self, row: Row) -> bool:
        """Return whether no gradient passes through the last step to a row."""
        return row.value >= 0 and self._steps[row.value].operation == APART

    def drawn(self, shape: tuple[int, ...], kept: float) -> Row:
        """Numbers that are drawn for every edge: 1 with the probability ``kept``, else 0."""
        self._terms.append(Drawn(math.prod(shape), kept, divided=False))
        return Row(shape, -len(self._terms))

    def divided(self, row: Row, by: float) -> Row | None:
        """Drawn numbers, divided as dropout divides them; None if that is not what is done."""
        term = self._terms[-1 - row.value] if row.value < 0 else None
        if not isinstance(term, Drawn) or term.divided or by != term.kept:
            return None
        self._terms[-1 - row.value] = replace(term, divided=True)
        return row

    # Steps

    def emit(self, operation: str, *inputs: Row, p: float = 0.0, q: float = 0.0) -> Row:
        """A step whose result has the shape of the first input."""
        shape = inputs[0].shape
        step = Step(operation, tuple(row.value for row in inputs), math.prod(shape), (float(p), float(q)))
        self._steps.append(step)
        return Row(shape, len(self._steps) - 1)

    def spread(self, row: Row, shape: tuple[int, ...]) -> Row:
        """A row whose dimensions of size 1 are as large as those of ``shape``, which has as many."""
        found = row
        for at, size in enumerate(shape):
            if found.shape[at] == size:
                continue
            # All of one run of dimensions at once; the numbers behind them are repeated as a block.
            end = next((d for d in range(at, len(shape)) if found.shape[d] != 1), len(shape))
            wider = (*found.shape[:at], *shape[at:end], *found.shape[end:])
            found = self._moved(found, "spread", wider, math.prod(found.shape[end:]))
        return found

    def collected(self, row: Row, dims: set[int], operation: str = "collect") -> Row:
        """The sums of a row over dimensions, or its largest numbers, each of which has size 1 then."""
        found, end = row, len(row.shape)
        while dims:
            # The last run of dimensions.
            end = max(d for d in dims if d < end) + 1
            start = next(d + 1 for d in range(end - 1, -2, -1) if d not in dims)
            narrower = (*found.shape[:start], *(1,) * (end - start), *found.shape[end:])
            found = self._moved(found, operation, narrower, math.prod(found.shape[end:]))
            dims = dims - set(range(start, end))
        return found

    def _moved(self, row: Row, operation: str, shape: tuple[int, ...], block: int) -> Row:
        if math.prod(shape) == row.width:
            return Row(shape, row.value)
        numbers = (float(block) if block > 1 else 0.0, 0.0)
        self._steps.append(Step(operation, (row.value,), math.prod(shape), numbers))
        return Row(shape, len(self._steps) - 1)

    def broadcast(self, operand: Any, shape: tuple[int, ...]) -> Row:
        """An operand's rows, of the shape of the result's."""
        if not isinstance(operand, Tensor):
            raise NotCompiled("computes with what is no number")
        if not self._is_known(operand):
            if operand.dim() > len(shape) and operand.size(0) == 1:
                operand_shape = operand.shape[1:]
            else:
                operand_shape = operand.shape
            if torch.broadcast_shapes(operand_shape, shape) != shape:
                raise NotCompiled("broadcasts its rows to those of a larger tensor")
            return Row(shape, self._fixed(operand, End.FIXED, shape))
        row = self.row(operand)
        if row.shape == shape:
            return row
        padded = (1,) * (len(shape) - len(row.shape)) + row.shape
        if torch.broadcast_shapes(padded, shape) != shape:
            raise NotCompiled("broadcasts its rows to those of a larger tensor")
        return self.spread(Row(padded, row.value), shape)

    def product(self, left: Tensor, matrix: Tensor, bias: Tensor | None) -> Row:
        """Rows times a matrix, [columns, width].

        For nodes where it can be; for all edges before they are visited, if the rows are many columns of an
        operand of edges and the messages are not kept, whose memory it would double; in the tile otherwise.
        """
        found = self.either(left)
        rows = found.rows if isinstance(found, Joined) else (self.row(left),)
        if self.has_rows(matrix) or any(len(row.shape) != 1 for row in rows):
            raise NotCompiled("multiplies rows with each other, or several rows of an edge")
        width = matrix.size(1)
        if not width:
            raise NotCompiled("has rows without columns")
        of_nodes: dict[End, _Products] = {}
        parts: list[Row] = []
        start = 0
        of_rows = [self._summands(row.value, 1) for row in rows]
        plain = {id(found[0][0]) for found in of_rows if found is not None and len(found) == 1}
        for row, summands in zip(rows, of_rows, strict=True):
            piece = matrix if len(rows) == 1 else matrix[start : start + row.width]
            start += row.width
            early = summands is not None and _is_wide(summands, width) and self._watched.returned is None
            if summands is not None and (early or self._may_hoist(summands, plain)):
                for term, sign in summands:
                    factor = self._fixed_term(piece if sign > 0 else -piece, End.MATRIX, tuple(piece.shape))
                    # Not added up, even of one term: infinite numbers meet as they do in the sum.
                    of_nodes.setdefault(term.end, []).append((term, factor.at))
                continue
            if piece.numel() > _MOST_IN_MATRIX:
                raise NotCompiled(f"multiplies edges by a matrix of {piece.size(0)} x {piece.size(1)}")
            number = self._operand(self._fixed_term(piece, End.MATRIX, tuple(piece.shape)))
            self._steps.append(Step("product", (row.value, number), width))
            parts.append(Row((width,), len(self._steps) - 1))
        added = None if bias is None else self._fixed_term(bias, End.FIXED, (width,)).at
        for end, factors in sorted(of_nodes.items(), key=lambda item: item[0] is not End.TARGET):
            parts.append(Row((width,), self._operand(EarlyProduct(end, tuple(factors), added, width))))
            bias = added = None
        total = parts[0]
        for part in parts[1:]:
            total = self.emit("add", total, part)
        return total if bias is None else self.emit("add", total, self.broadcast(bias, (width,)))

    def _summands(self, value: int, sign: int) -> list[tuple[Columns | EarlyProduct, int]] | None:
        """The rows of nodes or edges, with signs, that a value is the sum of; None if it is no such sum."""
        if value < 0:
            term = self._terms[-1 - value]
            return [(term, sign)] if isinstance(term, Columns | EarlyProduct) else None
        step = self._steps[value]
        if step.operation not in ("add", "subtract"):
            return None
        left = self._summands(step.inputs[0], sign)
        right = self._summands(step.inputs[1], sign if step.operation == "add" else -sign)
        both = None if left is None or right is None else [*left, *right]
        return both if both is None or len(both) <= _MOST_SUMMANDS else None

    def _may_hoist(self, summands: list[tuple[Columns | EarlyProduct, int]], plain: set[int]) -> bool:
        """Return whether the product of a sum is made of products for nodes.

        A small difference of large rows, as of positions, loses its digits where each row is multiplied. So
        it is done only if the rows are multiplied for themselves, too, beside it: those of :data:`plain`.
        """
        ends = {term.end for term, _ in summands}
        return ends <= self._hoists and (len(summands) == 1 or any(id(term) in plain for term, _ in summands))

    def columns(self, row: Row, start: int, shape: tuple[int, ...]) -> Row:
        """Columns of an operand, from one on, as a row of this shape."""
        term = self._terms[-1 - row.value] if row.value < 0 else None
        width = math.prod(shape)
        if not isinstance(term, Columns):
            raise NotCompiled("takes columns of what is no operand")
        if not width:
            raise NotCompiled("has rows without columns")
        return Row(shape, self._operand(Columns(term.end, term.at, term.start + start, width)))

    def slices(self, tensor: Any) -> tuple[Row | Joined, ...]:
        """The slices of an edge's row along its first dimension."""
        found = self.either(tensor)
        if isinstance(found, Stacked):
            return found.rows
        row = self.row(tensor)
        if not row.shape:
            raise NotCompiled("takes a number apart")
        count, inner = row.shape[0], row.shape[1:]
        if count == 1:
            return (Row(inner, row.value),)
        return tuple(self.columns(row, at * math.prod(inner), inner) for at in range(count))


def _is_wide(summands: list[tuple[Columns | EarlyProduct, int]], width: int) -> bool:
    """Return whether a value is an operand of edges that a library had better multiply.

    So that no tensor is larger than what was passed in, a product of this width must not have more columns.
    """
    ((term, _), *others) = summands
    is_of_edges = not others and term.end is End.EDGE
    return is_of_edges and width <= term.width and term.width >= thresholds.now.edge_columns
