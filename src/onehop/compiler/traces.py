"""Results of traces of messages, kept for as long as a trace would find the same.

A trace depends on the call, which the key describes, and on the layer, which a guard checks. For both are
kept the way of the message, without tensors, and the recipe of the tensors that it uses. A message whose code
may depend on more, or does more than to compute, is traced at every call.
"""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from onehop import thresholds
from onehop.compiler.arguments import Argument, Kind
from onehop.compiler.functions import Opaque, is_plain
from onehop.compiler.guards import Guard, Unfit
from onehop.compiler.recipes import Recipe, recipe_of
from onehop.compiler.ways import Found, Way
from onehop.graph import Graph

# Keys of one layer: modes, dtypes, and which operands need a gradient.
_MOST = 16
Key = tuple[Any, ...]


def _key_of(each: list[Argument], operands: Sequence[Tensor], graph: Graph) -> Key | None:
    """Return all that a trace depends on besides the layer; None if that is not known."""
    if torch._C._len_torch_function_stack():
        return None
    whole = {a.at for a in each if a.kind is Kind.WHOLE}
    arguments = []
    for argument in each:
        if not is_plain(argument.value):
            return None
        # Values of several types may be equal: 1, 1.0 and True.
        arguments.append((argument.name, argument.at, repr(argument.value), argument.leading))
    facts = []
    for at, tensor in enumerate(operands):
        shape: Any = tensor.shape
        facts.append(
            (tensor.dtype, tensor.requires_grad, (shape, tensor.stride()) if at in whole else shape[1:])
        )
    bounds = thresholds.now
    return (
        tuple(arguments),
        tuple(facts),
        (graph.num_src <= graph.num_edges, graph.num_dst <= graph.num_edges),
        graph.num_edges > 0,
        graph.num_edges < bounds.compiled_edges,
        bounds.edge_columns,
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu"),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
    )


@dataclass(frozen=True, slots=True)
class _Kept:
    """A way that is kept."""

    way: Way  # without its tensors
    guard: Guard  # of the layer
    recipe: Recipe  # makes the way's tensors, of the guard's and of whole operands
    whole: tuple[int, ...]  # numbers of the operands that are the same for all edges

    def bound(self, layer: Module, operands: Sequence[Tensor]) -> Way | None:
        """The way for a layer as it is now; None if a trace may find another."""
        tensors = self.guard.tensors(layer)
        if tensors is None or isinstance(self.way, str):
            return None if tensors is None else self.way
        return replace(self.way, tensors=self.recipe.made([*tensors, *(operands[at] for at in self.whole)]))


def _kept(layer: Module, guard: Guard, found: Found) -> _Kept | None:
    """The part of a result that is kept; None where the layer has changed meanwhile, or more may change."""
    tensors = guard.tensors(layer)
    if tensors is None or not found.lasts:
        return None
    way, whole = found.way, tuple(found.given)
    uses = [] if isinstance(way, str) else way.tensors
    recipe = recipe_of(uses, [*tensors, *(found.given[at] for at in whole)], found.calls)
    if recipe is None:
        return None
    return _Kept(way if isinstance(way, str) else replace(way, tensors=[]), guard, recipe, whole)


class Traces:
    """The ways of the messages of a class.

    Args:
        bases: As in :class:`.guards.Guard`.
        names: Likewise.
    """

    def __init__(self, bases: Sequence[type], names: Sequence[str]) -> None:
        self._bases, self._names = bases, names
        # By the layer's id; None for keys of messages that no guard can know.
        self._of: dict[int, tuple[weakref.ref[Module], dict[Key, _Kept | None]]] = {}

    def way(
        self,
        layer: Module,
        each: list[Argument],
        operands: Sequence[Tensor],
        graph: Graph,
        trace: Callable[[], Found],
    ) -> Way:
        """The way of a message: as it is kept, or as a trace finds it.

        Args:
            layer: The layer.
            each: The arguments of its message.
            operands: The tensors behind them.
            graph: Over which edges.
            trace: Traces the message.
        """
        key = _key_of(each, operands, graph)
        if key is None:
            return trace().way
        ref, known = self._of.get(id(layer), (None, {}))
        if ref is None or ref() is not layer:
            known = {}
        kept = known.get(key)
        way = None if kept is None else kept.bound(layer, operands)
        if way is not None:
            return way
        guard = None
        if key not in known or kept is not None:
            try:
                guard = Guard(layer, self._bases, self._names)
            except Opaque:
                self._keep(layer, {**known, key: None})
            except Unfit:
                pass  # it may fit next time
        found = trace()
        kept = None if guard is None else _kept(layer, guard, found)
        if kept is not None:
            self._keep(layer, {**known, key: kept})
        return found.way

    def _keep(self, layer: Module, known: dict[Key, _Kept | None]) -> None:
        number = id(layer)
        ref = weakref.ref(layer, lambda _: self._of.pop(number, None))
        # The oldest ones go.
        self._of[number] = ref, {key: known[key] for key in list(known)[-_MOST:]}
