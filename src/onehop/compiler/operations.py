"""The meanings of torch's operations in a program, and the conversion of a traced message.

A message is compiled only if every operation in its trace has a meaning here. Tensors that are the same for
all edges are used as they are.
"""

import math
from typing import Any

import torch
from torch import Tensor

from onehop.compiler.aten import Reading, means
from onehop.compiler.reader import Reader
from onehop.compiler.values import Joined, NotCompiled, Read, Row, Stacked, Unread, Zeros
from onehop.messages import APART


def read(reader: Reader, linear: bool) -> Read:
    """Convert a traced message to programs.

    Args:
        reader: A new reader of the message. Afterwards it has the tensors that terms refer to by number.
        linear: Whether the reduction is only a sum or a mean.

    Raises:
        NotCompiled: The message has an operation, a shape or a dtype that programs do not have.
    """
    for call in reader.watched.calls:
        reader.follow(*call)
    return reader.finished(linear)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@means("add.Tensor")
def _sum(reader: Reader, bound: dict[str, Any], result: Any, sign: float = 1.0) -> Row:
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


@means("sub.Tensor")
def _difference(reader: Reader, bound: dict[str, Any], result: Any) -> Row:
    return _sum(reader, bound, result, -1.0)


@means("rsub.Scalar")
def _reversed_difference(reader: Reader, bound: dict[str, Any], result: Any) -> Row:
    if not _is_number(bound["other"]) or bound.get("alpha", 1) != 1:
        raise NotCompiled("subtracts what is no number")
    return reader.emit("shift", reader.emit("negate", reader.row(bound["self"])), p=bound["other"])


@means("mul.Tensor")
def _multiple(reader: Reader, bound: dict[str, Any], result: Any) -> Row:
    a, b, shape = bound["self"], bound["other"], tuple(result.shape[1:])
    if _is_number(b):
        return reader.emit("scale", reader.broadcast(a, shape), p=b)
    return reader.emit("multiply", reader.broadcast(a, shape), reader.broadcast(b, shape))


@means("div.Tensor", "div.Scalar")
def _quotient(reader: Reader, bound: dict[str, Any], result: Any) -> Row:
    a, b, shape = bound["self"], bound["other"], tuple(result.shape[1:])
    if _is_number(b):
        drawn = reader.divided(reader.broadcast(a, shape), b)
        if drawn is not None:
            return drawn
        if not 1e-30 < abs(b) < 1e30:
            raise NotCompiled(f"divides by {b}")
        return reader.emit("scale", reader.broadcast(a, shape), p=1 / b)
    return reader.emit("divide", reader.broadcast(a, shape), reader.broadcast(b, shape))


def _unary(operation: str) -> Reading:
    return lambda reader, bound, result: reader.emit(operation, reader.row(bound["self"]))


for _name in ("relu", "sigmoid", "tanh", "erf", "exp", "log", "sqrt"):
    means(_name)(_unary(_name))
means("neg")(_unary("negate"))
means("abs")(_unary("absolute"))


def _with_numbers(operation: str, first: tuple[str, float], second: tuple[str, float] = ("", 0.0)) -> Reading:
    def reading(reader: Reader, bound: dict[str, Any], result: Any) -> Row:
        numbers = []
        for name, default in (first, second):
            number = bound.get(name)
            number = default if number is None else number
            if not _is_number(number) or math.isnan(number):
                raise NotCompiled(f"uses {operation} with what is no number")
            numbers.append(float(number))
        return reader.emit(operation, reader.row(bound["self"]), p=numbers[0], q=numbers[1])

    return reading


means("leaky_relu")(_with_numbers("leaky_relu", ("negative_slope", 0.01)))
means("softplus")(_with_numbers("softplus", ("beta", 1.0), ("threshold", 20.0)))
means("clamp.default")(_with_numbers("clamp", ("min", -math.inf), ("max", math.inf)))
means("clamp_min.default")(_with_numbers("clamp", ("min", -math.inf), ("", math.inf)))
means("clamp_max.default")(_with_numbers("clamp", ("", -math.inf), ("max", math.inf)))


@means("elu")
def _elu(reader: Reader, bound: dict[str, Any], result: Any) -> Row:
    if bound.get("scale", 1) != 1 or bound.get("input_scale", 1) != 1:
        raise NotCompiled("uses elu with scales")
    return reader.emit("elu", reader.row(bound["self"]), p=bound.get("alpha", 1))


@means("silu")
def _silu(reader: Reader, bound: dict[str, Any], result: Any) -> Row:
    row = reader.row(bound["self"])
    return reader.emit("multiply", row, reader.emit("sigmoid", row))


@means("gelu")
def _gelu(reader: Reader, bound: dict[str, Any], result: Any) -> Row:
    """The GELU: x times the standard normal CDF of x, by erf or approximately by a sigmoid."""
    row = reader.row(bound["self"])
    if bound.get("approximate", "none") == "none":
        to_erf = reader.emit("erf", reader.emit("scale", row, p=math.sqrt(0.5)))
        return reader.emit("multiply", reader.emit("scale", row, p=0.5), reader.emit("shift", to_erf, p=1.0))
    # (1 + tanh z) / 2 = sigmoid 2z, with z = sqrt(2 / pi) (x + 0.044715 x^3).
    factor = math.sqrt(8 / math.pi)
    square = reader.emit("scale", reader.emit("multiply", row, row), p=0.044715 * factor)
    doubled = reader.emit("multiply", row, reader.emit("shift", square, p=factor))
    return reader.emit("multiply", row, reader.emit("sigmoid", doubled))


@means("reciprocal")
def _reciprocal(reader: Reader, bound: dict[str, Any], result: Any) -> Row:
    return reader.emit("invert", reader.row(bound["self"]), p=1.0)


@means("pow.Tensor_Scalar")
def _power(reader: Reader, bound: dict[str, Any], result: Any) -> Row:
    row = reader.row(bound["self"])
    if bound["exponent"] != 2:
        raise NotCompiled(f"uses pow with the exponent {bound['exponent']}")
    return reader.emit("multiply", row, row)


@means("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "alias", "clone", "contiguous")
def _same(reader: Reader, bound: dict[str, Any], result: Any) -> Row | Joined | Stacked:
    """A row with another shape and the same numbers."""
    if bound.get("memory_format") not in (None, torch.contiguous_format, torch.preserve_format):
        raise NotCompiled("uses another layout of memory")
    rows = reader.either(bound["self"])
    shape = tuple(result.shape[1:])
    if isinstance(rows, Row):
        return Row(shape, rows.value)
    if shape != rows.shape:
        raise NotCompiled("uses a concatenation other than in a product")
    return rows


@means("expand")
def _expanded(reader: Reader, bound: dict[str, Any], result: Any) -> Row:
    return reader.broadcast(bound["self"], tuple(result.shape[1:]))


@means("sum.dim_IntList")
def _collected(reader: Reader, bound: dict[str, Any], result: Any) -> Row:
    row, dims = reader.row(bound["self"]), bound.get("dim")
    if dims is None or bound.get("dtype") is not None:
        raise NotCompiled("sums over all there is, or in another dtype")
    count = len(row.shape)
    sums = reader.collected(row, {d % (count + 1) - 1 for d in dims})
    return Row(tuple(result.shape[1:]), sums.value)


@means("_softmax")
def _shares(reader: Reader, bound: dict[str, Any], result: Any) -> Row:
    """A softmax over a dimension of an edge's row."""
    less, total = _raised(reader, bound, result)
    return reader.emit("divide", reader.emit("exp", less), total)


@means("_log_softmax")
def _logarithms_of_shares(reader: Reader, bound: dict[str, Any], result: Any) -> Row:
    less, total = _raised(reader, bound, result)
    return reader.emit("subtract", less, reader.emit("log", total))


def _raised(reader: Reader, bound: dict[str, Any], result: Any) -> tuple[Row, Row]:
    """A row minus its maximum along a dimension, and the sum of the exponentials of the differences."""
    row, shape = reader.row(bound["self"]), tuple(result.shape[1:])
    dims = {bound["dim"] % result.dim() - 1}
    less = reader.emit("subtract", row, reader.spread(reader.collected(row, dims, "largest"), shape))
    return less, reader.spread(reader.collected(reader.emit("exp", less), dims), shape)


@means("mean.dim")
def _averaged(reader: Reader, bound: dict[str, Any], result: Any) -> Row:
    row = reader.row(bound["self"])
    total = _collected(reader, bound, result)
    return reader.emit("scale", total, p=total.width / row.width)


@means("native_layer_norm")
def _normalised(reader: Reader, bound: dict[str, Any], result: Any) -> list[Row]:
    """A row minus its mean, divided by its standard deviation; with the mean and the inverse deviation."""
    row, dims = reader.row(bound["input"]), len(bound["normalized_shape"])
    last, shares = set(range(len(row.shape) - dims, len(row.shape))), 1 / math.prod(row.shape[-dims:])
    mean = reader.emit("scale", reader.collected(row, last), p=shares)
    less = reader.emit("subtract", row, reader.spread(mean, row.shape))
    squares = reader.collected(reader.emit("multiply", less, less), last)
    variance = reader.emit("shift", reader.emit("scale", squares, p=shares), p=bound["eps"])
    inverse = reader.emit("invert", reader.emit("sqrt", variance), p=1.0)
    out = reader.emit("multiply", less, reader.spread(inverse, row.shape))
    for operation, name in (("multiply", "weight"), ("add", "bias")):
        if bound.get(name) is not None:
            out = reader.emit(operation, out, reader.broadcast(bound[name], row.shape))
    return [out, mean, inverse]


@means("cat")
def _joined(reader: Reader, bound: dict[str, Any], result: Any) -> Joined | Stacked:
    tensors = bound["tensors"]
    if bound.get("dim", 0) % result.dim() != result.dim() - 1 or result.dim() > 3:
        raise NotCompiled("concatenates other than row by row")
    if result.dim() == 2:
        return _side_by_side([reader.either(tensor) for tensor in tensors])
    stacks = [reader.slices(tensor) for tensor in tensors]
    return Stacked(tuple(_side_by_side(list(rows)) for rows in zip(*stacks, strict=True)))


def _side_by_side(parts: list[Any]) -> Joined:
    rows = [row for part in parts for row in (part.rows if isinstance(part, Joined) else (part,))]
    if any(len(row.shape) != 1 for row in rows):
        raise NotCompiled("concatenates other than row by row")
    return Joined(tuple(rows))


@means("stack")
def _stacked(reader: Reader, bound: dict[str, Any], result: Any) -> Row | Stacked:
    rows = [reader.row(tensor) for tensor in bound["tensors"]]
    if bound.get("dim", 0) % result.dim() != 1:
        raise NotCompiled("stacks other than row by row")
    if len(rows) == 1:
        return Row((1, *rows[0].shape), rows[0].value)
    return Stacked(tuple(rows))


@means("repeat")
def _repeated(reader: Reader, bound: dict[str, Any], result: Any) -> Row | Stacked:
    first, *times = bound["repeats"][-len(result.shape) :]
    row, shape = reader.row(bound["self"]), tuple(result.shape[1:])
    if row.shape == shape:
        return row
    if first != 1 or len(row.shape) != len(shape) or row.shape[0] != 1 or any(n != 1 for n in times[1:]):
        raise NotCompiled("repeats other than whole rows")
    return Stacked((Row(row.shape[1:], row.value),) * times[0])


@means("select.int")
def _selected(reader: Reader, bound: dict[str, Any], result: Any) -> Row | Joined:
    source = bound["self"]
    if bound["dim"] % source.dim() != 1:
        raise NotCompiled("takes columns of what is no operand")
    index: int = bound["index"]
    return reader.slices(source)[index]


@means("mm")
def _product(reader: Reader, bound: dict[str, Any], result: Any) -> Row:
    return reader.product(bound["self"], bound["mat2"], None)


@means("addmm")
def _product_and_sum(reader: Reader, bound: dict[str, Any], result: Any) -> Row:
    bias = bound["self"]
    if bound.get("alpha", 1) != 1 or bound.get("beta", 1) != 1 or reader.has_rows(bias) or bias.dim() != 1:
        raise NotCompiled("uses addmm with factors, or with rows")
    return reader.product(bound["mat1"], bound["mat2"], bias)


@means("slice.Tensor")
def _sliced(reader: Reader, bound: dict[str, Any], result: Any) -> Row | Joined | Stacked:
    source, dim = bound["self"], bound.get("dim", 0) % bound["self"].dim()
    if dim == 0:
        return reader.either(source)  # the index selects all edges, as the trace has shown
    row = reader.row(source)
    if dim != 1 or bound.get("step", 1) != 1 or len(row.shape) != 1:
        raise NotCompiled("takes columns of what is no operand")
    start, _, _ = slice(bound.get("start"), bound.get("end")).indices(row.width)
    return reader.columns(row, start, (result.size(1),))


@means("split", "split_with_sizes")
def _split(reader: Reader, bound: dict[str, Any], result: Any) -> list[Row]:
    source = bound["self"]
    row = reader.row(source)
    if bound.get("dim", 0) % source.dim() != 1 or len(row.shape) != 1:
        raise NotCompiled("takes columns of what is no operand")
    rows, start = [], 0
    for piece in result:
        rows.append(reader.columns(row, start, (piece.size(1),)))
        start += piece.size(1)
    return rows


@means("detach")
def _apart(reader: Reader, bound: dict[str, Any], result: Any) -> Row | Unread:
    try:
        row = reader.row(bound["self"])
    except NotCompiled:
        return Unread("uses detach")
    return reader.emit(APART, row)


@means("new_zeros")
def _zeros(reader: Reader, bound: dict[str, Any], result: Any) -> Zeros:
    return Zeros("uses new_zeros")


@means("bernoulli.float")
def _dropped(reader: Reader, bound: dict[str, Any], result: Any) -> Row:
    return reader.drawn(tuple(result.shape[1:]), bound.get("p", 0.5))


@means("scatter_add.default")
def _added_up(reader: Reader, bound: dict[str, Any], result: Any) -> Row:
    if not reader.of_destinations(result) or not reader.are_zeros(bound["self"]):
        raise NotCompiled("adds up over destinations on top of something")
    return reader.emit("row_sum", reader.row(bound["src"]))


@means("scatter_reduce.two")
def _largest(reader: Reader, bound: dict[str, Any], result: Any) -> Row:
    if not reader.of_destinations(result) or not reader.are_zeros(bound["self"]):
        raise NotCompiled("uses scatter_reduce_")
    row = reader.row(bound["src"])
    if torch.is_grad_enabled() and not reader.is_apart(row):
        raise NotCompiled("takes a largest over destinations through which a gradient passes")
    return reader.emit("row_max", row)


@means("index_select.default", "index.Tensor")
def _taken(reader: Reader, bound: dict[str, Any], result: Any) -> Row | Unread:
    """The row of its destination, for every edge."""
    if not reader.of_destinations(bound["self"]):
        return Unread("takes rows by number")
    return reader.row(bound["self"])
