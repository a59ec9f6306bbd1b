"""Results of traces of messages, kept for as long as a trace would find the same.

A trace depends on the call, which the key describes, and on the layer, which a guard checks. For both are
kept the way of the message, without tensors, and the recipe of the tensors that it uses. A message that reads
more is traced at every call. One that may do more than to compute is never traced: PyG's code runs it.
"""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from onehop import thresholds
from onehop.compiler.arguments import SIZES, Argument, Kind
from onehop.compiler.functions import Opaque
from onehop.compiler.guards import Guard, Unfit
from onehop.compiler.reading import Reading
from onehop.compiler.recipes import Recipe, recipe_of
from onehop.compiler.trusted import is_plain
from onehop.compiler.ways import Found, Way
from onehop.graph import Graph

# Names of a message's parts, and of what it may read without naming it.
_READ = frozenset({"message", "aggregate", "training"})
# Arguments that are the operands themselves.
_AS_THEY_ARE = (Kind.EDGE, Kind.WHOLE)
# Keys of one layer: modes, dtypes, and which operands need a gradient.
_MOST = 16
Key = tuple[Any, ...]


def _is_watched() -> bool:
    """Return whether a mode of a user's would see a trial; a default device is a mode of torch's."""
    return not all(isinstance(mode, DeviceContext) for mode in _get_current_function_mode_stack())


def _key_of(each: list[Argument], operands: Sequence[Tensor], graph: Graph) -> Key | None:
    """Return all that a trace depends on besides the layer; None if that is not known."""
    if torch._C._len_torch_function_stack():
        return None
    whole = {a.at for a in each if a.kind is Kind.WHOLE}
    # Values of several types may be equal: 1, 1.0 and True.
    arguments = [(a.name, a.at, None if a.name in SIZES else repr(a.value), a.leading) for a in each]
    facts = []
    for at, tensor in enumerate(operands):
        # Rows of edges are the operand itself, not taken from it: its strides count.
        strides = tensor.stride() if at in whole or not tensor.is_contiguous() else None
        shape = tensor.shape if at in whole else tensor.shape[1:]
        facts.append((tensor.dtype, tensor.requires_grad, shape, strides))
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
class _Entry:
    """A way that is kept."""

    way: Way  # without its tensors
    guard: Guard  # of the layer
    recipe: Recipe  # makes the way's tensors, of the guard's and of whole operands
    whole: tuple[int, ...]  # numbers of the operands that are the same for all edges
    counts: tuple[int, ...] | None  # numbers of edges and nodes for which it holds; None: for all

    def bound(self, layer: Module, operands: Sequence[Tensor], graph: Graph) -> Way | None:
        """The way for a layer as it is now; None if a trace may find another."""
        if self.counts is not None and self.counts != _counts(graph):
            return None
        tensors = self.guard.tensors(layer)
        if tensors is None or isinstance(self.way, str):
            return None if tensors is None else self.way
        return self.way.using(self.recipe.tensors([*tensors, *(operands[at] for at in self.whole)]))


def _counts(graph: Graph) -> tuple[int, int, int]:
    return graph.num_edges, graph.num_src, graph.num_dst


def _entry_of(layer: Module, guard: Guard, traced: Found, graph: Graph) -> _Entry | None:
    """The part of a result that is kept; None where the layer has changed meanwhile, or more may change."""
    tensors = guard.tensors(layer)
    if tensors is None or not traced.lasts:
        return None
    way, whole = traced.way, tuple(traced.wholes)
    uses = [] if isinstance(way, str) else way.uses
    recipe = recipe_of(uses, [*tensors, *(traced.wholes[at] for at in whole)], traced.calls)
    if recipe is None:
        return None
    counts = _counts(graph) if traced.counts else None
    return _Entry(way if isinstance(way, str) else way.using([]), guard, recipe, whole, counts)


class Traces:
    """The ways of the messages of a class.

    Args:
        bases: As in :class:`.guards.Guard`.
        names: As in :class:`.guards.Guard`.
    """

    def __init__(self, bases: Sequence[type], names: Sequence[str]) -> None:
        self._bases, self._names = bases, names
        # By the layer's id.
        self._of: dict[int, tuple[weakref.ref[Module], dict[Key, _Entry]]] = {}

    def way(
        self,
        layer: Module,
        each: list[Argument],
        operands: Sequence[Tensor],
        graph: Graph,
        trace: Callable[[Reading], Found],
    ) -> Way:
        """The way of a message: as it is kept, or as a trace finds it; why it is not traced, if it is not.

        Args:
            layer: The layer.
            each: The arguments of its message.
            operands: The tensors behind them.
            graph: Over which edges.
            trace: Traces the message, which was read.
        """
        for argument in each:
            if argument.value is not None and not is_plain(argument.value):
                return Opaque(f"is given a {type(argument.value).__name__} ({argument.name})").sentence
            if argument.kind in _AS_THEY_ARE and argument.at is not None and vars(operands[argument.at]):
                return Opaque(f"is given a tensor with attributes of its own ({argument.name})").sentence
        if torch._C._len_torch_function_stack() and _is_watched():
            return Opaque("is watched by a torch function mode").sentence
        key = _key_of(each, operands, graph)
        ref, entries = self._of.get(id(layer), (None, {}))
        if ref is None or ref() is not layer:
            entries = {}
        entry = None if key is None else entries.get(key)
        way = None if entry is None else entry.bound(layer, operands, graph)
        if way is not None:
            return way
        try:
            reading = self.reading(layer)
        except Opaque as why:
            return why.sentence
        guard = None if key is None or reading.outside else self._guard(reading)
        traced = trace(reading)
        entry = None if guard is None else _entry_of(layer, guard, traced, graph)
        if key is not None and entry is not None:
            self._keep(layer, {**entries, key: entry})
        return traced.way

    def reading(self, layer: Module) -> Reading:
        """All that the message of a layer can reach.

        Raises:
            Opaque: It may do more than to compute.
        """
        return Reading(layer, self._bases, _READ)

    def _guard(self, reading: Reading) -> Guard | None:
        try:
            return Guard(reading, self._names)
        except (Unfit, Opaque):  # a value that the message does not read may be anything
            return None  # it may fit next time

    def _keep(self, layer: Module, entries: dict[Key, _Entry]) -> None:
        number = id(layer)
        ref = weakref.ref(layer, lambda _: self._of.pop(number, None))
        # The oldest ones go.
        self._of[number] = ref, {key: entries[key] for key in list(entries)[-_MOST:]}
