"""PyG's own steps of a propagation in torch, without what PyG asks on the way.

At 60 edges PyG's questions take as long as its steps. The steps are PyG's, in PyG's order, around the layer's
message function, which is one of PyG's: so outputs and gradients agree bit for bit.
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import Parameter

_PLAIN = (Tensor, Parameter)
_PAIR = 2
_TARGETS = frozenset(("index", "edge_index_i"))
_ADDED = _TARGETS | {"ptr", "size_i", "dim_size"}


class Arguments(NamedTuple):
    """The arguments of a message function, by name.

    Attributes:
        gathered: Rows of an operand of ``propagate``: the argument, the operand, and the end of the edges, 0
            for the sources and 1 for the destinations.
        passed: Operands as they are.
        added: What PyG adds by itself.
    """

    gathered: tuple[tuple[str, str, int], ...]
    passed: tuple[str, ...]
    added: tuple[str, ...]


def arguments_of(message: Callable[..., Any], operands: frozenset[str]) -> Arguments | None:
    """The arguments of a message function; None if PyG adds some that are not known here."""
    names = list(inspect.signature(message).parameters)[1:]
    passed = tuple(name for name in names if name in operands)
    added = tuple(name for name in names if name in _ADDED)
    gathered = tuple(
        (name, name[:-2], int(name.endswith("_i")))
        for name in names
        if name[:-2] in operands and name[-2:] in ("_i", "_j") and name not in passed
    )
    known = len(gathered) + len(passed) + len(added) == len(names)
    return Arguments(gathered, passed, added) if known else None


def propagated(
    layer: Any, arguments: Arguments, reduce: str, edge_index: Tensor, operands: dict[str, Any]
) -> Tensor | None:
    """The result of ``propagate``; None, before any message was made, if PyG is to say what does not fit.

    Args:
        layer: The layer, on which there are no hooks.
        arguments: Those of its message function.
        reduce: "sum", "mean", "max" or "min"; empty where the layer's own ``aggregate`` is to run.
        edge_index: [2, E], int64.
        operands: What ``propagate`` gets, by name.
    """
    dim, sizes = layer.node_dim, operands.get("size")
    sizes = [None, None] if sizes is None else list(sizes)
    if len(sizes) != _PAIR:
        return None
    # Of a pair of operands PyG takes the first for the sources, whatever the flow; of edges it does not.
    source, target = (0, 1) if layer.flow == "source_to_target" else (1, 0)
    ends = edge_index.unbind(0)
    index = ends[target]
    given: dict[str, Any] = {}
    for name in arguments.passed:
        given[name] = operands[name]
    try:
        for name, operand, end in arguments.gathered:
            value, row = operands[operand], target if end else source
            if type(value) is tuple or type(value) is list:
                first, second = value
                if not (_fits(first, sizes, 0, dim) and _fits(second, sizes, 1, dim)):
                    return None
                value = second if end else first
            elif not _fits(value, sizes, row, dim):
                return None
            given[name] = None if value is None else value.index_select(dim, ends[row])
    except (IndexError, RuntimeError, ValueError):
        return None
    num_dst = sizes[source] if sizes[target] is None else sizes[target]
    if type(num_dst) is not int:
        return None
    for name in arguments.added:
        given[name] = index if name in _TARGETS else None if name == "ptr" else num_dst
    messages = layer.message(**given)
    # On GPUs, PyG has two ways to an extremum.
    if reduce in ("sum", "mean") or (reduce and messages.is_cpu):
        try:
            return _reduced(messages, index, num_dst, reduce, dim)
        except (IndexError, RuntimeError):
            # PyG comes to the same error, and has words of its own for it.
            return _aggregated(layer, messages, index, num_dst)
    return _aggregated(layer, messages, index, num_dst)


def _aggregated(layer: Any, messages: Tensor, index: Tensor, num_dst: int) -> Tensor:
    out: Tensor = layer.aggregate(messages, index=index, ptr=None, dim_size=num_dst)
    return out


def _fits(value: Any, sizes: list[Any], end: int, dim: int) -> bool:
    """Notes how many rows an end has; False if that is known to be another number, or nobody knows."""
    if value is None:
        return True
    if type(value) not in _PLAIN:
        return False
    rows, known = value.shape[dim], sizes[end]
    if known is None:
        sizes[end] = rows
    return known is None or known == rows


def _reduced(messages: Tensor, index: Tensor, num_dst: int, reduce: str, dim: int) -> Tensor:
    """PyG's ``scatter``."""
    shape = messages.shape
    before = dim if dim >= 0 else dim + len(shape)
    out = messages.new_zeros((*shape[:before], num_dst, *shape[before + 1 :]))
    broadcast = (*(1,) * before, -1, *(1,) * (len(shape) - before - 1))
    each = index.view(broadcast).expand_as(messages)
    if reduce == "sum":
        return out.scatter_add_(before, each, messages)
    if reduce == "mean":
        count = messages.new_zeros(num_dst)
        count.scatter_add_(0, index, messages.new_ones(shape[before]))
        return out.scatter_add_(before, each, messages) / count.clamp(min=1).view(broadcast)
    return out.scatter_reduce_(before, each, messages, reduce=f"a{reduce}", include_self=False)
