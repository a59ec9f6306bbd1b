"""Test of whether a message treats each edge on its own, by running it on a few edges and watching.

The message runs twice, on two numbers of edges that no other size can be taken for, while every operation of
torch that it leads to is looked at: :mod:`edge_dims` says where the edges are in its result, or that it mixes
them. What differs between the runs depends on the number of edges, which a block would get wrong. Conditions
on None and on the layer's settings are thus decided as they will be for the call that is about to happen,
and so are conditions on sizes: Python sees the real ones (:mod:`onehop.compiler.counts`). Conditions on the
data are refused, and so are random numbers and writes to what is not the message's own. A layer that has
changed is looked at as it is: see :mod:`onehop.compiler.traces` for what is kept. Only a message that
:mod:`onehop.compiler.reading` has read runs here, so that a trial has no effects.
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

# Numbers of edges to try: primes, of which two are taken that divide none of the sizes at hand.
_FEW = (7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)


@dataclass(frozen=True, slots=True)
class Watched:
    """Findings of a trace of a message: its operations on the few edges of the first run, and more.

    Attributes:
        calls: Its operations: which, the arguments with and without a name, and the result. All tensors in
            them are alive, so that their ids are theirs.
        out: The messages.
        returned: What the layer makes of them, where it does that itself; None elsewhere.
        place: Says where the edges are in a tensor; None: nowhere.
        destinations: What there is of destinations.
        met: Lists all tensors that were met.
        unrecorded: The ids of those that were made while no gradients were recorded, though they were before.
        parameters: Tensors that require a gradient and that the message uses besides its operands.
        sizes: Of all tensors that it uses besides its operands.
        row_bytes: Bytes an edge of the largest tensor that it makes.
        looks: Whether it looks at numbers of tensors other than its operands, so that others may matter.
        of_edges: Whether it looks at the number of edges, so that others may matter.
        of_nodes: Whether it looks at numbers of nodes, so that others may matter.
        history: The gradients that it leads to.
        saved: Tensors that it uses besides its operands and that torch saves for the backward pass: torch
            reports a write to them.
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
    """Numbers of edges that divide none of the sizes, among those to try."""
    return [n for n in _FEW if not any(size and size % n == 0 for size in sizes)]


def trace(
    message: Callable[..., Any],
    runs: list[Run],
    reduces: bool = False,
    in_c: bool = False,
    saved: Callable[[Tensor], bool] = lambda tensor: False,
) -> Watched:
    """Watches a message.

    Args:
        message: To be called with keywords.
        runs: Two runs.
        reduces: Whether it reduces its messages itself, and returns the results, or the messages, or both.
        in_c: Whether its code may ask about numbers in a way that these do not notice.
        saved: Returns whether torch has saved a tensor for the backward pass.

    Raises:
        Refused: It does not treat each edge on its own, or that could not be found out.
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
