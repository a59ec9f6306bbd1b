"""The reader of a traced message: the meaning of its tensors, and the steps that compute them."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from onehop import thresholds
from onehop.compiler.arguments import position
from onehop.compiler.aten import Place, name_of, named
from onehop.compiler.terms import Columns, EarlyProduct, Fixed
from onehop.compiler.tracing import Watched
from onehop.compiler.values import (
    Behind,
    Draft,
    Joined,
    NotCompiled,
    Products,
    Read,
    Results,
    Row,
    Stacked,
    Unread,
    Zeros,
)
from onehop.compiler.watches import Returned
from onehop.messages import APART, EDGES, OF_ROWS, End, Step

# The maximal number of entries of a matrix that multiplies a tile's rows; larger matrices do not stay in the
# caches.
_MOST_IN_MATRIX = 1 << 14

# The maximal number of parts of a message that are computed separately; each needs a pass over the edges.
_MOST_PARTS = 16

_NUMBERS = "uses numbers of nodes, or what is made from no operand"


class Reader(Draft):
    """Converts a traced message to programs.

    Args:
        watched: The trace of the message on a few edges.
        rows: By the ids of arguments with a row for every edge: the origin of the rows, and the number of the
            operand of ``propagate``.
        wholes: By the ids of other arguments: the number of the operand of ``propagate``.
        operands: The operands of ``propagate``.
        hoists: The ends whose products with matrices are computed for nodes instead of edges.

    Attributes:
        watched: The trace, as given.
        tensors: The tensors that terms number after the operands.
    """

    def __init__(
        self,
        watched: Watched,
        rows: dict[int, tuple[End, int]],
        wholes: dict[int, int],
        operands: list[Tensor],
        hoists: frozenset[End],
    ) -> None:
        super().__init__()
        self.watched = watched
        self._constant = not any(operands[at].requires_grad for at in wholes.values())
        self._operands = len(operands)
        self.tensors: list[Tensor] = []
        self._dtype = watched.out.dtype
        self._wholes = wholes
        self._hoists = hoists
        self._origins = rows
        self._results: dict[int, Row | Joined | Stacked | Unread] = {}

    def finished(self, linear: bool) -> Read:
        """Return the programs that compute the message; a last linear step is applied after the sums.

        Args:
            linear: Whether the reduction is only a sum or a mean.
        """
        if self.watched.returned is not None:
            return self._reduced(self.watched.returned)
        message = self.either(self.watched.out)
        rows = message.rows if isinstance(message, Stacked) else (message,)
        pieces = [row for each in rows for row in (each.rows if isinstance(each, Joined) else (each,))]
        if len(pieces) > _MOST_PARTS:
            raise NotCompiled(f"has {len(pieces)} parts")
        stays = bool(self.draws) or any(step.operation in OF_ROWS for step in self._steps)
        values, step = [row.value for row in pieces], None
        if linear and End.TARGET in self._hoists and len(values) == 1:
            values[0], step = self._without_last(values[0])
        return Read(tuple(map(self.part, values)), message.shape, self._dtype, self.draws, stays, step)

    def _reduced(self, returned: Returned) -> Read:
        """Return the program of messages that the layer itself reduces, and the results that it returns."""
        names, messages = [], set[Row]()
        for tensor in returned.tensors:
            row, name = self.row(tensor), EDGES
            if self.of_destinations(tensor):
                step = self.step_of(row.value)
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
        term = self.term_of(row.value)
        if term is not None and term.end is End.EDGE:
            raise NotCompiled("is an operand of the edges itself")
        results = Results(tuple(names), returned.container)
        return Read((self.part(row.value),), row.shape, self._dtype, self.draws, True, returned=results)

    def _without_last(self, value: int) -> tuple[int, Behind | None]:
        """Return a value without its last linear step, and this step; None if it does not end with one."""
        bias, product = None, self.step_of(value)
        if product is not None and product.operation == "add":
            term = self.term_of(product.inputs[1])
            if not isinstance(term, Fixed):
                return value, None
            bias, product = term, self.step_of(product.inputs[0])
        if product is None or product.operation != "product":
            return value, None
        matrix = self.term_of(product.inputs[1])
        assert isinstance(matrix, Fixed)
        return product.inputs[0], Behind(matrix, bias)

    def follow(self, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Notes the meaning of an operation's result."""
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
        if any(map(self.watched.destinations.are_numbers, outs)):
            self._results.update((id(out), Unread(_NUMBERS)) for out in outs)
            return
        reading = named(name).reading(operation._overloadname)
        if reading is None:
            if writes:
                raise NotCompiled(f"uses {name}_")
            self._results.update((id(out), Unread(f"uses {name}")) for out in outs)
            return
        rows = reading(self, bound, result)
        for row, out in zip(rows if isinstance(rows, list) else [rows], outs, strict=True):
            if isinstance(row, Unread):
                self._results[id(out)] = row
                continue
            of_rows = self.watched.destinations.have_rows(out)
            fits = (of_rows or self.watched.place(out) == Place(0)) and tuple(out.shape[1:]) == row.shape
            if not fits or out.dtype is not self._dtype:
                raise NotCompiled(f"uses {name} in a way that is not known")
            if id(out) in self.watched.unrecorded:
                row = self.emit(APART, row) if isinstance(row, Row) else Unread(f"uses {name} in no_grad")
            self._results[id(out)] = row

    def has_rows(self, tensor: Tensor) -> bool:
        """Return whether a tensor has the edges' dimension."""
        return self.watched.place(tensor) is not None

    def _is_known(self, tensor: Tensor) -> bool:
        return self.has_rows(tensor) or self.watched.destinations.have_rows(tensor)

    def _check_own(self, written: Tensor, name: str) -> None:
        storage = written.untyped_storage()._cdata
        for other in self.watched.met():
            shared = other is not written and other.untyped_storage()._cdata == storage
            if shared and id(other) in self._results:
                raise NotCompiled(f"writes to a tensor that has views ({name})")

    # Operands

    def either(self, tensor: Any) -> Row | Joined | Stacked:
        """Return the rows of a tensor that has a row for every edge."""
        rows = self._results.get(id(tensor))
        if isinstance(rows, Unread):
            raise NotCompiled(rows.why)
        if rows is not None:
            return rows
        origin = self._origins.get(id(tensor))
        if origin is None:
            raise NotCompiled(_NUMBERS)
        if tensor.dtype is not self._dtype:
            raise NotCompiled(f"reads numbers of {tensor.dtype}")
        shape = tuple(tensor.shape[1:])
        width = math.prod(shape)
        if not width:
            raise NotCompiled("has rows without columns")
        row = Row(shape, self.operand(Columns(origin[0], origin[1], 0, width)))
        self._results[id(tensor)] = row
        return row

    def row(self, tensor: Any) -> Row:
        """Return the rows of a tensor, computed or read; raise NotCompiled for a concatenation."""
        rows = self.either(tensor)
        if not isinstance(rows, Row):
            raise NotCompiled("uses a concatenation other than in a product")
        return rows

    def _fixed(self, tensor: Tensor, end: End, shape: tuple[int, ...]) -> int:
        key = (id(tensor), end, shape)
        if key not in self._values:
            self._values[key] = self.operand(self._fixed_term(tensor, end, shape))
        return self._values[key]

    def _fixed_term(self, tensor: Tensor, end: End, shape: tuple[int, ...]) -> Fixed:
        if tensor.dtype is not self._dtype:
            raise NotCompiled(f"reads numbers of {tensor.dtype}")
        whole = self._wholes.get(id(tensor))
        if whole is not None:
            return Fixed(end, whole, shape)
        if tensor.requires_grad and not self._constant:
            # The tensor was computed from the trace's copy of an operand.
            raise NotCompiled("computes with an operand that is the same for all edges")
        return Fixed(end, self._operands + position(tensor, self.tensors), shape)

    def are_zeros(self, tensor: Tensor) -> bool:
        """Return whether a tensor is still the zeros that it was filled with."""
        return isinstance(self._results.get(id(tensor)), Zeros)

    def of_destinations(self, tensor: Tensor) -> bool:
        """Return whether a tensor has a row for every destination."""
        return self.watched.destinations.have_rows(tensor)

    def broadcast(self, operand: Any, shape: tuple[int, ...]) -> Row:
        """Return an operand's rows, broadcast to the shape of the result's rows."""
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
        """Return rows times a matrix, [columns, width].

        If possible, the product is computed for nodes. If the rows are many columns of an operand of edges,
        it is computed for all edges in advance, unless messages are kept, because that would double the
        memory. Otherwise it is computed in the tile.
        """
        source = self.either(left)
        rows = source.rows if isinstance(source, Joined) else (self.row(left),)
        if self.has_rows(matrix) or any(len(row.shape) != 1 for row in rows):
            raise NotCompiled("multiplies rows with each other, or several rows of an edge")
        width = matrix.size(1)
        if not width:
            raise NotCompiled("has rows without columns")
        of_nodes: dict[End, Products] = {}
        parts: list[Row] = []
        start = 0
        of_rows = [self.summands(row.value, 1) for row in rows]
        plain = {id(terms[0][0]) for terms in of_rows if terms is not None and len(terms) == 1}
        for row, summands in zip(rows, of_rows, strict=True):
            piece = matrix if len(rows) == 1 else matrix[start : start + row.width]
            start += row.width
            early = summands is not None and _is_wide(summands, width) and self.watched.returned is None
            if summands is not None and (early or self._may_hoist(summands, plain)):
                for term, sign in summands:
                    factor = self._fixed_term(piece if sign > 0 else -piece, End.MATRIX, tuple(piece.shape))
                    # The products are not added up, even for one term, so that infinite numbers give the same
                    # results as in the sum.
                    of_nodes.setdefault(term.end, []).append((term, factor.at))
                continue
            if piece.numel() > _MOST_IN_MATRIX:
                raise NotCompiled(f"multiplies edges by a matrix of {piece.size(0)} x {piece.size(1)}")
            number = self.operand(self._fixed_term(piece, End.MATRIX, tuple(piece.shape)))
            self._steps.append(Step("product", (row.value, number), width))
            parts.append(Row((width,), len(self._steps) - 1))
        added = None if bias is None else self._fixed_term(bias, End.FIXED, (width,)).at
        for end, factors in sorted(of_nodes.items(), key=lambda item: item[0] is not End.TARGET):
            parts.append(Row((width,), self.operand(EarlyProduct(end, tuple(factors), added, width))))
            bias = added = None
        total = parts[0]
        for part in parts[1:]:
            total = self.emit("add", total, part)
        return total if bias is None else self.emit("add", total, self.broadcast(bias, (width,)))

    def _may_hoist(self, summands: Products, plain: set[int]) -> bool:
        """Return whether the product of a sum is computed from products for nodes.

        A small difference of large rows, such as positions, loses digits if each row is multiplied
        separately. So this is done only if a row is also multiplied alone elsewhere; then it is in ``plain``.
        """
        ends = {term.end for term, _ in summands}
        return ends <= self._hoists and (len(summands) == 1 or any(id(term) in plain for term, _ in summands))

    def slices(self, tensor: Any) -> tuple[Row | Joined, ...]:
        """Return the slices of an edge's row along its first dimension."""
        rows = self.either(tensor)
        if isinstance(rows, Stacked):
            return rows.rows
        row = self.row(tensor)
        if not row.shape:
            raise NotCompiled("takes a number apart")
        count, inner = row.shape[0], row.shape[1:]
        if count == 1:
            return (Row(inner, row.value),)
        return tuple(self.columns(row, at * math.prod(inner), inner) for at in range(count))


def _is_wide(summands: Products, width: int) -> bool:
    """Return whether a value is a wide operand of edges, whose product a library should compute.

    The product must not have more columns than the operand, so that no tensor is larger than the operands.
    """
    ((term, _), *others) = summands
    is_of_edges = not others and term.end is End.EDGE
    return is_of_edges and width <= term.width and term.width >= thresholds.now.edge_columns
