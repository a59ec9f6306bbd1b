"""Reading of a message that was watched: from the operations of torch to a program.

Every operation that the message led to has its meaning here, or the message is not compiled. Tensors that are
the same for all edges, whatever they were made from, are taken as they are.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from onehop.integrations.pyg.rowwise.edge_dims import Place
from onehop.integrations.pyg.rowwise.terms import Columns, Fixed, NodeProduct, Term
from onehop.integrations.pyg.rowwise.tracing import Watched
from onehop.messages import End, Operand, Program, Step

# Numbers of the largest matrix that a tile's rows are multiplied by: larger ones do not stay in the caches.
_MOST_IN_MATRIX = 1 << 14


class NotCompiled(Exception):
    """The message is no program of ours. The text says why."""


@dataclass(frozen=True, slots=True)
class Read:
    """A message that was read.

    Attributes:
        program: The message.
        terms: What its operands are.
        shape: Of a message.
    """

    program: Program
    terms: list[Term]
    shape: tuple[int, ...]


def read(
    watched: Watched,
    rows: dict[int, tuple[End, int]],
    wholes: dict[int, int],
    constant: bool,
    hoists: frozenset[End],
) -> Read:
    """Reads a message.

    Args:
        watched: What it did with a few edges.
        rows: For the ids of its arguments with a row for every edge: where rows come from, and from which
            operand of ``propagate``.
        wholes: For the ids of its other arguments: which operand of ``propagate`` they are.
        constant: Whether none of these needs a gradient.
        hoists: The ends whose products with matrices are computed for nodes.

    Raises:
        NotCompiled: It has an operation, a shape or a dtype that programs have not.
    """
    reader = _Reader(watched, rows, wholes, constant, hoists)
    for call in watched.calls:
        reader.follow(*call)
    return reader.finished()


@dataclass(frozen=True, slots=True)
class _Row:
    """A tensor with a row for every edge.

    Attributes:
        shape: Of the row.
        value: Its number: of a step from 0 on, of an operand from -1 downwards.
    """

    shape: tuple[int, ...]
    value: int

    @property
    def width(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class _Joined:
    """Rows side by side, which only a product with a matrix takes apart again."""

    rows: tuple[_Row, ...]


@dataclass(frozen=True, slots=True)
class _Unread:
    """A tensor of no known reading; nothing is lost while nothing of the message is made from it.

    Hooks on saved tensors, such as those of activation checkpointing, call operations too.

    Attributes:
        why: What to say if something is.
    """

    why: str


class _Reader:
    def __init__(
        self,
        watched: Watched,
        rows: dict[int, tuple[End, int]],
        wholes: dict[int, int],
        constant: bool,
        hoists: frozenset[End],
    ) -> None:
        self._watched = watched
        self._constant = constant
        self._dtype = watched.out.dtype
        self._wholes = wholes
        self._hoists = hoists
        self._origins = rows
        self._terms: list[Term] = []
        self._known: dict[tuple[object, ...], int] = {}
        self._steps: list[Step] = []
        self._made: dict[int, _Row | _Joined | _Unread] = {}

    def finished(self) -> Read:
        """The program whose result is the message."""
        result = self._row(self._watched.out)
        # Operands that nothing reads are gone: a product took them to the nodes.
        read = {result.value, *(value for step in self._steps for value in step.inputs)}
        kept = [at for at in range(len(self._terms)) if -1 - at in read]
        numbers = {-1 - at: number for number, at in enumerate(kept)}
        steps = [
            Step(s.operation, tuple(_number(v, numbers) for v in s.inputs), s.width, s.numbers)
            for s in self._steps
        ]
        terms = [self._terms[at] for at in kept]
        operands = tuple(Operand(term.end, term.width) for term in terms)
        program = Program(operands, tuple(steps), _number(result.value, numbers))
        if not any(operand.end in (End.SOURCE, End.TARGET, End.EDGE) for operand in operands):
            raise NotCompiled("reads no rows of nodes or edges")
        return Read(program, terms, result.shape)

    def follow(self, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Notes what an operation made."""
        name = operation._schema.name.removeprefix("aten::")
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        touched = any(self._watched.place(tensor) is not None for tensor in tensors)
        writes = operation._schema.is_mutable
        if not touched:
            made_rows = any(self._has_rows(leaf) for leaf in tree_leaves(result) if isinstance(leaf, Tensor))
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
        reading = _READINGS.get((name, operation._overloadname)) or _READINGS.get((name, "*"))
        if reading is None:
            if writes:
                raise NotCompiled(f"uses {name}_")
            self._made.update((id(out), _Unread(f"uses {name}")) for out in outs)
            return
        found = reading(self, bound, result)
        for row, out in zip(found if isinstance(found, list) else [found], outs, strict=True):
            shapes = [each.shape for each in row.rows] if isinstance(row, _Joined) else [row.shape]
            width = sum(shape[-1] if shape else 1 for shape in shapes)
            shape = (width,) if isinstance(row, _Joined) else shapes[0]
            fits = self._watched.place(out) == Place(0) and tuple(out.shape[1:]) == shape
            if not fits or out.dtype is not self._dtype:
                raise NotCompiled(f"uses {name} in a way that is not known")
            self._made[id(out)] = row

    def _has_rows(self, tensor: Tensor) -> bool:
        return self._watched.place(tensor) is not None

    def _check_own(self, written: Tensor, name: str) -> None:
        storage = written.untyped_storage()._cdata
        for other in self._watched.met():
            shared = other is not written and other.untyped_storage()._cdata == storage
            if shared and id(other) in self._made:
                raise NotCompiled(f"writes to a tensor that has views ({name})")

    # Operands

    def either(self, tensor: Any) -> _Row | _Joined:
        """The rows of a tensor that has one for every edge."""
        found = self._made.get(id(tensor))
        if isinstance(found, _Unread):
            raise NotCompiled(found.why)
        if found is not None:
            return found
        origin = self._origins.get(id(tensor))
        if origin is None:
            raise NotCompiled("uses numbers of nodes, or what is made from no operand")
        if tensor.dtype is not self._dtype:
            raise NotCompiled(f"reads numbers of {tensor.dtype}")
        shape = tuple(tensor.shape[1:])
        width = math.prod(shape)
        if not width:
            raise NotCompiled("has rows without columns")
        row = _Row(shape, self._operand(Columns(origin[0], origin[1], 0, width)))
        self._made[id(tensor)] = row
        return row

    def _row(self, tensor: Any) -> _Row:
        found = self.either(tensor)
        if isinstance(found, _Joined):
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
        if whole is None and tensor.requires_grad and not self._constant:
            # What the trace made of an operand leads to a copy of it.
            raise NotCompiled("computes with an operand that is the same for all edges")
        return Fixed(end, tensor, shape, whole)

    # Steps

    def emit(self, operation: str, *inputs: _Row, p: float = 0.0, q: float = 0.0) -> _Row:
        """A step whose result has the shape of the first input."""
        shape = inputs[0].shape
        step = Step(operation, tuple(row.value for row in inputs), math.prod(shape), (float(p), float(q)))
        self._steps.append(step)
        return _Row(shape, len(self._steps) - 1)

    def reshaped(self, row: _Row, operation: str, shape: tuple[int, ...]) -> _Row:
        """A step that spreads or collects."""
        self._steps.append(Step(operation, (row.value,), math.prod(shape)))
        return _Row(shape, len(self._steps) - 1)

    def broadcast(self, operand: Any, shape: tuple[int, ...]) -> _Row:
        """An operand's rows, of the shape of the result's."""
        if not self._has_rows(operand):
            if operand.dim() > len(shape) and operand.size(0) == 1:
                operand_shape = operand.shape[1:]
            else:
                operand_shape = operand.shape
            if torch.broadcast_shapes(operand_shape, shape) != shape:
                raise NotCompiled("broadcasts its rows to those of a larger tensor")
            return _Row(shape, self._fixed(operand, End.FIXED, shape))
        row = self._row(operand)
        if row.shape == shape:
            return row
        padded = (1,) * (len(shape) - len(row.shape)) + row.shape
        kept = next((at for at in range(len(shape)) if padded[at] != shape[at]), len(shape))
        if any(size != 1 for size in padded[kept:]) or len(padded) != len(shape):
            raise NotCompiled("broadcasts a dimension that is not among the last")
        if math.prod(shape) == row.width:
            return _Row(shape, row.value)
        return self.reshaped(row, "spread", shape)

    def product(self, left: Tensor, matrix: Tensor, bias: Tensor | None) -> _Row:
        """Rows times a matrix, [columns, width]: for nodes where it can be, in the tile otherwise."""
        found = self.either(left)
        rows = found.rows if isinstance(found, _Joined) else (found,)
        if self._has_rows(matrix) or any(len(row.shape) != 1 for row in rows):
            raise NotCompiled("multiplies rows with each other, or several rows of an edge")
        width = matrix.size(1)
        if not width:
            raise NotCompiled("has rows without columns")
        of_nodes: dict[End, list[tuple[Columns | NodeProduct, Tensor]]] = {}
        parts: list[_Row] = []
        start = 0
        for row in rows:
            term = self._terms[-1 - row.value] if row.value < 0 else None
            piece = matrix if len(rows) == 1 else matrix[start : start + row.width]
            start += row.width
            if isinstance(term, Columns | NodeProduct) and term.end in self._hoists:
                self._fixed_term(piece, End.MATRIX, tuple(piece.shape))
                of_nodes.setdefault(term.end, []).append((term, piece))
                continue
            if piece.numel() > _MOST_IN_MATRIX:
                raise NotCompiled(f"multiplies edges by a matrix of {piece.size(0)} x {piece.size(1)}")
            number = self._operand(self._fixed_term(piece, End.MATRIX, tuple(piece.shape)))
            self._steps.append(Step("product", (row.value, number), width))
            parts.append(_Row((width,), len(self._steps) - 1))
        if bias is not None:
            self._fixed_term(bias, End.FIXED, (width,))
        for end, factors in sorted(of_nodes.items(), key=lambda item: item[0] is not End.TARGET):
            parts.append(_Row((width,), self._operand(NodeProduct(end, tuple(factors), bias, width))))
            bias = None
        total = parts[0]
        for part in parts[1:]:
            total = self.emit("add", total, part)
        return total if bias is None else self.emit("add", total, self.broadcast(bias, (width,)))

    def columns(self, row: _Row, start: int, width: int) -> _Row:
        """Some columns of an operand."""
        term = self._terms[-1 - row.value] if row.value < 0 else None
        if not isinstance(term, Columns) or len(row.shape) != 1:
            raise NotCompiled("takes columns of what is no operand")
        if not width:
            raise NotCompiled("has rows without columns")
        return _Row((width,), self._operand(Columns(term.end, term.at, term.start + start, width)))


def _number(value: int, operands: dict[int, int]) -> int:
    return operands[value] if value < 0 else len(operands) + value


# Operations: each takes the reader, its arguments by name and torch's own result, and returns what that is.

_Reading = Callable[[_Reader, dict[str, Any], Any], Any]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _sum(reader: _Reader, bound: dict[str, Any], result: Any, sign: float = 1.0) -> _Row:
    a, b, alpha = bound["self"], bound["other"], bound.get("alpha", 1)
    shape = tuple(result.shape[1:])
    if _is_number(b):
        return reader.emit("shift", reader.broadcast(a, shape), p=sign * alpha * b)
    if not isinstance(b, Tensor):
        raise NotCompiled("adds what is no number")
    left, right = reader.broadcast(a, shape), reader.broadcast(b, shape)
    if alpha != 1:
        right = reader.emit("scale", right, p=alpha)
    return reader.emit("add" if sign > 0 else "subtract", left, right)


def _difference(reader: _Reader, bound: dict[str, Any], result: Any) -> _Row:
    return _sum(reader, bound, result, -1.0)


def _reversed_difference(reader: _Reader, bound: dict[str, Any], result: Any) -> _Row:
    if not _is_number(bound["other"]) or bound.get("alpha", 1) != 1:
        raise NotCompiled("subtracts what is no number")
    return reader.emit("shift", reader.emit("negate", reader._row(bound["self"])), p=bound["other"])


def _multiple(reader: _Reader, bound: dict[str, Any], result: Any) -> _Row:
    a, b, shape = bound["self"], bound["other"], tuple(result.shape[1:])
    if _is_number(b):
        return reader.emit("scale", reader.broadcast(a, shape), p=b)
    return reader.emit("multiply", reader.broadcast(a, shape), reader.broadcast(b, shape))


def _quotient(reader: _Reader, bound: dict[str, Any], result: Any) -> _Row:
    a, b, shape = bound["self"], bound["other"], tuple(result.shape[1:])
    if _is_number(b):
        if not 1e-30 < abs(b) < 1e30:
            raise NotCompiled(f"divides by {b}")
        return reader.emit("scale", reader.broadcast(a, shape), p=1 / b)
    return reader.emit("divide", reader.broadcast(a, shape), reader.broadcast(b, shape))


def _unary(operation: str) -> _Reading:
    return lambda reader, bound, result: reader.emit(operation, reader._row(bound["self"]))


def _with_numbers(
    operation: str, first: tuple[str, float], second: tuple[str, float] = ("", 0.0)
) -> _Reading:
    def reading(reader: _Reader, bound: dict[str, Any], result: Any) -> _Row:
        found = []
        for name, default in (first, second):
            number = bound.get(name)
            number = default if number is None else number
            if not _is_number(number):
                raise NotCompiled(f"uses {operation} with what is no number")
            found.append(float(number))
        return reader.emit(operation, reader._row(bound["self"]), p=found[0], q=found[1])

    return reading


def _elu(reader: _Reader, bound: dict[str, Any], result: Any) -> _Row:
    if bound.get("scale", 1) != 1 or bound.get("input_scale", 1) != 1:
        raise NotCompiled("uses elu with scales")
    return reader.emit("elu", reader._row(bound["self"]), p=bound.get("alpha", 1))


def _silu(reader: _Reader, bound: dict[str, Any], result: Any) -> _Row:
    row = reader._row(bound["self"])
    return reader.emit("multiply", row, reader.emit("sigmoid", row))


def _reciprocal(reader: _Reader, bound: dict[str, Any], result: Any) -> _Row:
    return reader.emit("invert", reader._row(bound["self"]), p=1.0)


def _power(reader: _Reader, bound: dict[str, Any], result: Any) -> _Row:
    row = reader._row(bound["self"])
    if bound["exponent"] != 2:
        raise NotCompiled(f"uses pow with the exponent {bound['exponent']}")
    return reader.emit("multiply", row, row)


def _same(reader: _Reader, bound: dict[str, Any], result: Any) -> _Row | _Joined:
    """The same numbers in a row of another shape."""
    if bound.get("memory_format") not in (None, torch.contiguous_format, torch.preserve_format):
        raise NotCompiled("uses another layout of memory")
    found = reader.either(bound["self"])
    shape = tuple(result.shape[1:])
    if isinstance(found, _Joined):
        if len(shape) != 1:
            raise NotCompiled("uses a concatenation other than in a product")
        return found
    return _Row(shape, found.value)


def _expanded(reader: _Reader, bound: dict[str, Any], result: Any) -> _Row:
    return reader.broadcast(bound["self"], tuple(result.shape[1:]))


def _collected(reader: _Reader, bound: dict[str, Any], result: Any) -> _Row:
    row, dims = reader._row(bound["self"]), bound.get("dim")
    if dims is None or bound.get("dtype") is not None:
        raise NotCompiled("sums over all there is, or in another dtype")
    count = len(row.shape)
    last = sorted({d % (count + 1) - 1 for d in dims})
    if not last or last != list(range(last[0], count)):
        raise NotCompiled("sums over a dimension that is not among the last")
    return reader.reshaped(row, "collect", tuple(result.shape[1:]))


def _averaged(reader: _Reader, bound: dict[str, Any], result: Any) -> _Row:
    row = reader._row(bound["self"])
    total = _collected(reader, bound, result)
    return reader.emit("scale", total, p=total.width / row.width)


def _joined(reader: _Reader, bound: dict[str, Any], result: Any) -> _Joined:
    tensors = bound["tensors"]
    rows = [row for tensor in tensors for row in _parts(reader.either(tensor))]
    if bound.get("dim", 0) % result.dim() != 1 or any(len(row.shape) != 1 for row in rows):
        raise NotCompiled("concatenates other than row by row")
    return _Joined(tuple(rows))


def _parts(found: _Row | _Joined) -> tuple[_Row, ...]:
    return found.rows if isinstance(found, _Joined) else (found,)


def _product(reader: _Reader, bound: dict[str, Any], result: Any) -> _Row:
    return reader.product(bound["self"], bound["mat2"], None)


def _product_and_sum(reader: _Reader, bound: dict[str, Any], result: Any) -> _Row:
    bias = bound["self"]
    if bound.get("alpha", 1) != 1 or bound.get("beta", 1) != 1 or reader._has_rows(bias) or bias.dim() != 1:
        raise NotCompiled("uses addmm with factors, or with rows")
    return reader.product(bound["mat1"], bound["mat2"], bias)


def _sliced(reader: _Reader, bound: dict[str, Any], result: Any) -> _Row:
    source = bound["self"]
    row, dim = reader._row(source), bound.get("dim", 0) % source.dim()
    if dim == 0:
        return row  # of all edges, as the trace has seen
    if dim != 1 or bound.get("step", 1) != 1 or len(row.shape) != 1:
        raise NotCompiled("takes columns of what is no operand")
    start, _, _ = slice(bound.get("start"), bound.get("end")).indices(row.width)
    return reader.columns(row, start, result.size(1))


def _split(reader: _Reader, bound: dict[str, Any], result: Any) -> list[_Row]:
    source = bound["self"]
    row = reader._row(source)
    if bound.get("dim", 0) % source.dim() != 1 or len(row.shape) != 1:
        raise NotCompiled("takes columns of what is no operand")
    found, start = [], 0
    for piece in result:
        found.append(reader.columns(row, start, piece.size(1)))
        start += piece.size(1)
    return found


_READINGS: dict[tuple[str, str], _Reading] = {
    ("add", "Tensor"): _sum,
    ("sub", "Tensor"): _difference,
    ("rsub", "Scalar"): _reversed_difference,
    ("mul", "Tensor"): _multiple,
    ("div", "Tensor"): _quotient,
    **{
        (name, "*"): _unary(ours)
        for name, ours in (
            ("neg", "negate"), ("abs", "absolute"), ("relu", "relu"), ("sigmoid", "sigmoid"),
            ("tanh", "tanh"), ("exp", "exp"), ("log", "log"), ("sqrt", "sqrt"),
        )
    },
    ("leaky_relu", "*"): _with_numbers("leaky_relu", ("negative_slope", 0.01)),
    ("softplus", "*"): _with_numbers("softplus", ("beta", 1.0), ("threshold", 20.0)),
    ("clamp", "default"): _with_numbers("clamp", ("min", -math.inf), ("max", math.inf)),
    ("clamp_min", "default"): _with_numbers("clamp", ("min", -math.inf), ("", math.inf)),
    ("clamp_max", "default"): _with_numbers("clamp", ("", -math.inf), ("max", math.inf)),
    ("reciprocal", "*"): _reciprocal,
    ("elu", "*"): _elu,
    ("silu", "*"): _silu,
    ("pow", "Tensor_Scalar"): _power,
    **dict.fromkeys(
        [
            (name, "*")
            for name in (
                "view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "alias", "clone", "contiguous",
            )
        ],
        _same,
    ),
    ("expand", "*"): _expanded,
    ("sum", "dim_IntList"): _collected,
    ("mean", "dim"): _averaged,
    ("cat", "*"): _joined,
    ("mm", "*"): _product,
    ("addmm", "*"): _product_and_sum,
    ("slice", "Tensor"): _sliced,
    ("split", "*"): _split,
    ("split_with_sizes", "*"): _split,
}  # fmt: skip
