"""Tracing: tests whether a message treats each edge separately, by running it on a few edges.

The message runs twice, with two numbers of edges that cannot be confused with another size. Every torch
operation in the runs is inspected: :mod:`edge_dims` returns where the edges are in its result, or that it
mixes edges. A difference between the runs depends on the number of edges, so blocks would compute it wrongly.
Conditions on None and on the layer's settings are decided as in the real call. So are conditions on sizes,
because Python sees the real sizes (:mod:`onehop.compiler.counts`). Conditions on the data are refused, and so
are random numbers and writes to tensors that the message has not made. A changed layer is traced again;
:mod:`onehop.compiler.traces` is the cache. Only a message that :mod:`onehop.compiler.reading` has analysed
runs here, so a trial has no side effects.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onehop.compiler.aten import Place, name_of, named
from onehop.compiler.destinations import Destinations
from onehop.compiler.history import History, Refused
from onehop.compiler.lines import at_line, line_of_error
from onehop.compiler.watches import PythonWatch, Returned, Run, Step, Watch

# Candidate numbers of edges: primes; two are used that divide none of the other sizes.
_FEW = (7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)


@dataclass(frozen=True, slots=True)
class Watched:
    """The findings of a trace: the message's operations in the first run, and more.

    Attributes:
        calls: The operations: each with its positional and keyword arguments, and its result. All tensors in
            them are alive, so that their ids stay valid.
        out: The messages.
        returned: The results if the layer itself reduces the messages; else None.
        place: Returns the place of the edges in a tensor; None if it has no edges.
        destinations: The tensors with destination numbers, or with a row for every destination.
        met: Lists all tensors that occurred.
        unrecorded: The ids of tensors that were made while gradients were off, although they were on before.
        parameters: Tensors that require a gradient and that the message uses besides its operands.
        sizes: The sizes of all tensors that the message uses besides its operands.
        row_bytes: Bytes per edge of the largest tensor that the message makes.
        looks: Whether the message's decisions depend on contents of tensors other than its operands.
        of_edges: Whether they depend on the number of edges.
        of_nodes: Whether they depend on numbers of nodes.
        history: The message's gradients.
        saved: Tensors that the message uses besides its operands and that torch saves for the backward pass;
            torch reports writes to them.
    """

    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]]
    out: Tensor
    returned: Returned | None
    place: Callable[[Tensor], Place | None]
    destinations: Destinations
    met: Callable[[], Iterable[Tensor]]
    unrecorded: set[int]
    parameters: list[Tensor]
    sizes: set[int]
    row_bytes: int
    looks: bool
    of_edges: bool
    of_nodes: bool
    history: History
    saved: list[Tensor]


def few_edges(sizes: set[int]) -> list[int]:
    """Return the candidate numbers of edges that divide none of the sizes."""
    return [n for n in _FEW if not any(size and size % n == 0 for size in sizes)]


def trace(
    message: Callable[..., Any],
    runs: list[Run],
    reduces: bool = False,
    in_c: bool = False,
    saved: Callable[[Tensor], bool] = lambda tensor: False,
) -> Watched:
    """Trace a message.

    Args:
        message: The message; it is called with keyword arguments.
        runs: Two runs.
        reduces: Whether the function reduces its messages itself, and returns results, messages, or both.
        in_c: Whether its code may read numbers so that :class:`.Count` does not notice it.
        saved: Returns whether torch has saved a tensor for the backward pass.

    Raises:
        Refused: The message does not treat each edge separately, or this could not be determined.
    """
    watches = []
    for run in runs:
        watch = Watch(run, trace.__code__)
        try:
            with PythonWatch(watch), watch:
                out = message(**run.arguments | watch.counts.by_name(run.sizes))
        except Refused as why:
            raise Refused(f"{why}{at_line(line_of_error(why.__traceback__))}") from None
        watch.finish(out, reduces)
        watches.append(watch)
    first, second = watches
    for one, other in zip(first.steps, second.steps, strict=False):
        if not _agree(one, other, first.run, second.run):
            raise Refused(f"its message depends on the number of edges{at_line(one.line)}")
    if len(first.steps) != len(second.steps):
        raise Refused("its message depends on the number of edges")
    out = first.out
    history = History((out,) if first.returned is None else first.returned.tensors)
    parameters = list({id(t): t for t in first.outer if t.requires_grad}.values())
    for parameter in parameters:
        where = at_line(first.met_at[id(parameter)])
        if parameter.grad_fn is not None:
            raise Refused(f"its message uses a tensor with a history of its own, which is no operand{where}")
        if parameter._backward_hooks:
            raise Refused(f"its message uses a parameter on which a hook is registered{where}")
    return Watched(
        first.calls,
        out,
        first.returned,
        first.place,
        first.destinations,
        first.met.values,
        first.unrecorded,
        parameters,
        sizes={size for tensor in first.outer for size in tensor.shape},
        row_bytes=max(first.largest, out.nbytes // max(out.size(0), 1)),
        looks=first.looks or second.looks,
        of_edges=any(each.counts.of_edges or (in_c and each.counts.taken) for each in watches),
        of_nodes=any(each.counts.of_nodes or (in_c and bool(each.run.sizes)) for each in watches),
        history=history,
        saved=[tensor for tensor in first.outer if saved(tensor)],
    )


def _agree(one: Step, other: Step, first: Run, second: Run) -> bool:
    if (one.operation, one.places, one.result) != (other.operation, other.places, other.result):
        return False
    if one.filled != other.filled and one.filled == one.filled:
        return False
    sized = named(name_of(one.operation)).sized
    if len(one.values) != len(other.values):
        return False
    for left, right in zip(one.values, other.values, strict=True):
        if isinstance(left, Tensor) and isinstance(right, Tensor):
            if left is not right and not _same_numbers(left, right):
                return False
        elif type(left) is not type(right):
            return False
        elif left != right and not (left != left and right != right):
            if not sized or type(left) is not int:
                return False
            counts = not left % first.edges and not right % second.edges
            if (left, right) != (first.destinations, second.destinations) and (
                not counts or left // first.edges != right // second.edges
            ):
                return False
    return True


def _same_numbers(left: Tensor, right: Tensor) -> bool:
    return left.shape == right.shape and left.dtype == right.dtype and torch.equal(left, right)
