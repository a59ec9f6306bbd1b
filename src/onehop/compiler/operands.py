"""Operands of a user's message: what its parameters are, by their names."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from onehop.compiler.arguments import EDGE_NUMBERS, SIZES, Argument, Kind, numbered, position
from onehop.errors import ArgumentError
from onehop.graph import Graph
from onehop.ops.contexts import WRAPPED, wraps

_GIVEN = (*EDGE_NUMBERS, *SIZES, "ptr")
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def arguments_of(
    graph: Graph, fn: Callable[..., Any], operands: dict[str, Any]
) -> tuple[list[Argument], list[Tensor]]:
    """The arguments of a message, and the tensors behind them, each once.

    Args:
        graph: Over which edges.
        fn: The message.
        operands: Of these, by name.

    Raises:
        ArgumentError: A parameter has no operand, an operand no parameter, or it does not fit the graph.
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
    """The argument that has a row of a node for every edge."""
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
    """The argument that has a row for every edge, or is the same for all."""
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
