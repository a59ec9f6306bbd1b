"""A user's own message over the edges of a graph: ``onehop.message``."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torch.nn.functional import dropout
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from onehop.compiler.arguments import EDGE_NUMBERS, SIZES, Argument, Kind, numbered, position, with_sizes
from onehop.compiler.blocks import blocks_of, edges_of_a_block, whole_block
from onehop.compiler.executor import BlockRun, Choice
from onehop.compiler.functions import Opaque
from onehop.compiler.modules import modules_reason
from onehop.compiler.reading import Reading
from onehop.compiler.rows import PARTS, BlockRows, CompiledRows, Rows, statistic
from onehop.compiler.snapshot import Frozen
from onehop.compiler.trials import Trial
from onehop.compiler.trusted import is_plain
from onehop.compiler.values import Read
from onehop.compiler.ways import Compiled, InBlocks, is_short, way_of
from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.ops.contexts import WRAPPED, context_reason, wraps
from onehop.ops.dropout import factors, serves

_GIVEN = (*EDGE_NUMBERS, *SIZES, "ptr")
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def arguments_of(
    graph: Graph, fn: Callable[..., Any], operands: dict[str, Any]
) -> tuple[list[Argument], list[Tensor]]:
    """Return the arguments of a message, and the tensors from which they are made, each once.

    Args:
        graph: The graph.
        fn: The message.
        operands: The operands by name.

    Raises:
        ArgumentError: A parameter has no operand, an operand has no parameter, or it does not fit the graph.
    """
    each: list[Argument] = []
    tensors: list[Tensor] = []
    used = set()
    for name, parameter in _parameters_of(fn).items():
        if parameter.kind not in _NAMED:
            raise ArgumentError(f"fn: expected parameters with names of their own, got {parameter}.")
        if name in EDGE_NUMBERS:
            each.append(numbered(name))
            continue
        if name in _GIVEN:
            each.append(Argument(name, Kind.VALUE))
            continue
        end = name[-1] if name.endswith(("_i", "_j")) else ""
        operand = name.removesuffix(f"_{end}") if end else name
        if operand not in operands and (end or parameter.default is parameter.empty):
            raise ArgumentError(f"fn: its parameter {name} needs the operand {operand}; pass {operand}=...")
        used.add(operand)
        value = operands.get(operand, parameter.default)
        each.append(
            _of_nodes(graph, name, operand, value, tensors) if end else _of_edges(graph, name, value, tensors)
        )
    for name in operands:
        if name not in used:
            raise ArgumentError(
                f"{name}: fn has no parameter {name}, {name}_i or {name}_j; its parameters are "
                f"{', '.join(argument.name for argument in each) or 'none'}."
            )
    if not any(argument.at is not None for argument in each):
        raise ArgumentError("fn: expected a parameter with rows of nodes or edges, such as x_j.")
    return each, tensors


def _parameters_of(fn: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    if not callable(fn):
        raise ArgumentError(f"fn: expected a function, got {type(fn).__name__}.")
    try:
        return dict(inspect.signature(fn.forward if isinstance(fn, Module) else fn).parameters)
    except ValueError:
        raise ArgumentError(
            "fn: expected a function whose parameters have names, got one that is built in; wrap it: "
            "lambda x_i, x_j: ..."
        ) from None


def _of_nodes(graph: Graph, name: str, operand: str, value: Any, tensors: list[Tensor]) -> Argument:
    """Return an argument that has a node's row for every edge."""
    sends = name.endswith("_j")
    if isinstance(value, tuple | list):
        if len(value) != 2:
            raise ArgumentError(
                f"{operand}: expected a tensor or a pair (sources, destinations), got {len(value)} entries."
            )
        value = value[0 if sends else 1]
    if value is None:
        return Argument(name, Kind.VALUE)
    what, count = ("sources", graph.num_src) if sends else ("destinations", graph.num_dst)
    _check(operand, value)
    if value.dim() == 0 or value.size(0) != count:
        pair = (
            ""
            if graph.num_src == graph.num_dst
            else "; pass a pair (sources, destinations) where both are read"
        )
        raise ArgumentError(
            f"{operand}: fn reads {name}, so expected a row for each of the {count} {what}, "
            f"got shape {list(value.shape)}{pair}."
        )
    return Argument(name, Kind.SOURCE if sends else Kind.TARGET, position(value, tensors))


def _of_edges(graph: Graph, name: str, value: Any, tensors: list[Tensor]) -> Argument:
    """Return an argument that has a row for every edge, or is the same for all edges."""
    if not isinstance(value, Tensor):
        return Argument(name, Kind.VALUE, None, value)
    _check(name, value)
    if value.dim() and value.size(0) == graph.num_edges:
        return Argument(name, Kind.EDGE, position(value, tensors))
    if value.dim() and value.size(0) != 1:
        raise ArgumentError(
            f"{name}: expected a row for each of the {graph.num_edges} edges, or [1, ...] for a tensor that "
            f"is the same for all, got shape {list(value.shape)}."
        )
    return Argument(name, Kind.WHOLE, position(value, tensors))


def _check(name: str, value: Any) -> None:
    if type(value) is not Tensor and type(value) is not Parameter:
        raise ArgumentError(f"{name}: expected a dense tensor, got {type(value).__name__}.")
    if value.layout is not torch.strided:
        raise ArgumentError(f"{name}: expected a dense tensor, got a {value.layout} tensor.")
    if not value.is_cpu:
        raise ArgumentError(f"{name}: expected it on the CPU, where messages run, got {value.device}.")
    if wraps(value):
        raise ArgumentError(f"{name}: {WRAPPED}; call it outside.")


Reduce = Literal["sum", "add", "mean", "max", "min", "var", "std"]
_NAMES = {"add": "sum", **{name: name for name in PARTS}}


def message(
    graph: Graph, fn: Callable[..., Tensor], /, reduce: Reduce | Sequence[Reduce] = "sum", **operands: Any
) -> Tensor:
    """Compute a function of every edge's rows and reduce the results over each destination.

    ``out[i] = reduce over the edges e = (j -> i) of fn(rows of i, of j and of e)``

    The function is traced on a few edges and compiled to a program over tiles of edges, so that no tensor of
    size edges times width is made. If it has steps that programs do not support, it runs in blocks of edges,
    and again in the backward pass.

    Args:
        graph: The graph, with edges on the CPU.
        fn: The message: a function or module that takes a row for each edge, in dimension 0 of its arguments,
            and returns [edges, ...]. The names of its parameters say what they are: ``x_j`` and ``x_i`` are
            the rows of the operand ``x`` at the edges' sources and destinations; ``index`` is the
            destinations' numbers, ``size_i`` is the number of destinations, and ``ptr`` is None (for PyG's
            ``softmax``); any other parameter is the operand with that name. ``fn`` must treat each edge
            separately, except for sums and softmaxes over ``index``. Its code is read first: it must only
            compute, with torch's functions, methods of tensors, modules, and functions that also only
            compute.
        reduce: "sum" ("add"), "mean", "max", "min", "var" or "std"; for a list of these, the results are
            concatenated along the last dimension.
        **operands: For ``x_i`` and ``x_j``, ``x``: a tensor with a row for every node, or a pair (sources,
            destinations). Others: tensors [E, ...], in the caller's edge order; tensors [1, ...] or without
            dimensions, the same for all edges; numbers, strings and None. The result is differentiable in
            tensors, and in leaf tensors that ``fn`` uses, such as parameters of modules.

    Returns:
        [num_dst, ...], the shape of a message; 0 for destinations without edges.

    Raises:
        ArgumentError: An operand does not fit, or ``fn`` cannot be used as a message; the text says why.

    Examples:
        >>> import onehop, torch
        >>> graph = onehop.Graph.from_edge_index(torch.tensor([[0, 0, 1], [1, 2, 2]]))  # 0->1, 0->2, 1->2
        >>> x = torch.tensor([[1.0], [4.0], [9.0]])
        >>> def distance(x_i, x_j):  # x_i: the row of each edge's destination, x_j: that of its source
        ...     return (x_i - x_j).abs()
        >>> onehop.message(graph, distance, reduce="max", x=x)  # node 2: the larger of 9 - 1 and 9 - 4
        tensor([[0.],
                [3.],
                [8.]])
    """
    if torch.compiler.is_compiling():
        # A graph break: the modes that watch operations cannot be traced.
        return torch.compiler.disable(_message)(graph, fn, reduce, operands)  # type: ignore[no-any-return]
    return _message(graph, fn, reduce, operands)


def _message(
    graph: Graph, fn: Callable[..., Tensor], reduce: str | Sequence[str], operands: dict[str, Any]
) -> Tensor:
    """Run :func:`message` outside of torch.compile."""
    if not isinstance(graph, Graph):
        raise ArgumentError(
            f"graph: expected an onehop.Graph, got {type(graph).__name__}; "
            f"make one with Graph.from_edge_index."
        )
    reductions = _reductions_of(reduce)
    reason = context_reason()
    if reason is not None:
        raise ArgumentError(f"fn: it cannot be watched while {reason}; call onehop.message outside.")
    arguments, tensors = arguments_of(graph, fn, operands)
    each = with_sizes(arguments, graph.num_src, graph.num_dst)
    for argument in each:
        if not is_plain(argument.value):
            raise ArgumentError(
                f"{argument.name}: expected a tensor, a number or a text, got "
                f"{type(argument.value).__name__}."
            )
    code = FunctionCode(fn, reductions)
    if not graph.num_edges:
        return _over_no_edges(graph, code, each, tensors)
    try:
        reading = _reading_of(fn)
    except Opaque as why:
        raise ArgumentError(f"fn: {why.sentence}.") from None
    trial = Trial(
        code.message,
        each,
        tensors,
        frozenset(size for tensor in reading.tensors() for size in tensor.shape),
        partial(_first_edges, graph),
        graph.num_edges,
        graph.num_dst,
        0,
        reading.counts_in_c,
    )
    autocast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
    names = tuple(sorted({part for one in reductions for part in PARTS[one]}))
    linear = set(reductions) <= {"sum", "mean"}
    way = way_of(trial, graph, autocast, partial(_refusal_of, names=names), linear).way
    if isinstance(way, str):
        raise ArgumentError(f"fn: {way}.")
    if isinstance(way, Compiled):
        rows = CompiledRows(graph, way.message, names, way.tensors_of(tensors), _factors, way.saved)
        return _reduced(rows, reductions)
    if not reading.stays:
        raise ArgumentError("fn: its message reads what may change before the backward pass.")
    frozen = FunctionCode(Frozen(reading, way.saved).value(fn), reductions)
    return _in_blocks(graph, frozen, each, tensors, way, autocast)


def _reading_of(fn: Callable[..., Any]) -> Reading:
    """Return everything that a function can reach.

    Raises:
        Opaque: The function may do more than compute.
    """
    if isinstance(fn, Module):
        reason = modules_reason(fn.modules())
        if reason is not None:
            raise Opaque(f"is a module, and {reason}")
        return Reading(fn, (), ("forward", "training"))
    return Reading(None, (), ("training",), [fn])


@dataclass(frozen=True, slots=True)
class FunctionCode:
    """A function and its reductions, as code.

    Attributes:
        fn: The function.
        reductions: Names from :data:`.rows.PARTS`.
        others: The tensors that replace leaf tensors of the function, by the leaves' ids.
    """

    fn: Callable[..., Tensor]
    reductions: tuple[str, ...]
    others: tuple[tuple[int, Tensor], ...] = ()

    def message(self, **arguments: Any) -> Tensor:
        """Return the messages of edges."""
        if not self.others:
            return self.fn(**arguments)
        with _Renamed(dict(self.others)):
            return self.fn(**arguments)

    def reduce(self, rows: BlockRows) -> Tensor:
        """Return the messages, reduced over rows."""
        return _reduced(rows, self.reductions)

    def renamed(self, others: dict[int, Tensor]) -> tuple["FunctionCode", set[int]]:
        """Return a copy with other tensors instead of the leaf tensors."""
        return FunctionCode(self.fn, self.reductions, tuple(others.items())), set(others)


class _Renamed(TorchFunctionMode):
    """A mode that replaces some tensors by others in all calls of torch functions."""

    def __init__(self, others: dict[int, Tensor]) -> None:
        super().__init__()
        self._others = others

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        args, kwargs = tree_map_only(
            Tensor, lambda tensor: self._others.get(id(tensor), tensor), (args, kwargs or {})
        )
        return function(*args, **kwargs)


def _reductions_of(reduce: Any) -> tuple[str, ...]:
    names = [reduce] if isinstance(reduce, str) else reduce
    if not isinstance(names, list | tuple) or not names or not all(_is_known(one) for one in names):
        raise ArgumentError(
            f"reduce: expected one of {', '.join(PARTS)}, or a list of these, got {reduce!r}."
        )
    return tuple(_NAMES[one] for one in names)


def _is_known(one: Any) -> bool:
    return isinstance(one, str) and one in _NAMES


def _reduced(rows: Rows, reductions: tuple[str, ...]) -> Tensor:
    statistics = [statistic(rows, reduce) for reduce in reductions]
    return statistics[0] if len(statistics) == 1 else torch.cat(statistics, -1)


def _refusal_of(read: Read, names: tuple[str, ...]) -> str | None:
    return None if is_short(read, names) else "its message has too many steps"


def _first_edges(graph: Graph, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return numbers, sources and destinations of the first ``count`` edges, in the graph's order."""
    places = torch.arange(count, device="cpu")
    numbers = places if graph.perm is None else graph.perm[:count].long()
    targets = torch.searchsorted(graph.rowptr.long(), places, right=True) - 1
    return numbers, graph.col[:count].long(), targets


def _in_blocks(
    graph: Graph,
    code: FunctionCode,
    each: list[Argument],
    tensors: list[Tensor],
    way: InBlocks,
    autocast: torch.dtype | None,
) -> Tensor:
    only = code.reductions[0] if len(code.reductions) == 1 else ""
    linear = only if only in ("sum", "mean") else None
    blocks = blocks_of(graph, edges_of_a_block(way.row_bytes), linear is not None)
    run = BlockRun(code, each, graph, blocks, linear, autocast)
    return run(way.tensors_of(tensors), way.tensors, way.saved)


def _over_no_edges(graph: Graph, code: FunctionCode, each: list[Argument], tensors: list[Tensor]) -> Tensor:
    """Return the result for a graph without edges; its shape comes from calling the function on no rows."""
    block = whole_block(graph)
    chosen = Choice(graph, block)
    return code.reduce(
        BlockRows(
            block.graph, code.message(**{argument.name: chosen.rows(argument, tensors) for argument in each})
        )
    )


def _factors(out: Tensor, p: float) -> Tensor:
    """Fills a tensor with the factors of torch's dropout."""
    return factors(out, p) if serves(out, p) else dropout(torch.ones_like(out), p=p, training=True)
