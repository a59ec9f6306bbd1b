"""A cache of traces of messages; an entry is valid while a new trace would find the same.

A trace depends on the call, which the key describes, and on the layer, which a guard checks. An entry has the
way in which the message runs, without tensors, and the recipe of the tensors that it uses. A message that
reads other state is traced in every call. A message that may do more than compute is never traced; PyG's code
runs it.
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

# The names of a message's parts, and of attributes that it may read without naming them.
_READ = frozenset({"message", "aggregate", "training"})
# Kinds of arguments that are the operands themselves.
_AS_THEY_ARE = (Kind.EDGE, Kind.WHOLE)
# The maximal number of keys of one layer. Keys differ by modes, dtypes, and which operands need a gradient.
_MOST = 16
Key = tuple[Any, ...]


def _is_watched() -> bool:
    """Return whether a user's torch mode would see a trial; torch's mode for a default device is ignored."""
    return not all(isinstance(mode, DeviceContext) for mode in _get_current_function_mode_stack())


def _key_of(each: list[Argument], operands: Sequence[Tensor], graph: Graph) -> Key | None:
    """Return everything that a trace depends on besides the layer; None if it is not known."""
    if torch._C._len_torch_function_stack():
        return None
    whole = {a.at for a in each if a.kind is Kind.WHOLE}
    # Values of different types may be equal, such as 1, 1.0 and True, so their repr is used.
    arguments = [(a.name, a.at, None if a.name in SIZES else repr(a.value), a.leading) for a in each]
    facts = []
    for at, tensor in enumerate(operands):
        # Rows of edges are the operand itself, not gathered from it, so its strides matter.
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
    """A cached way of running a message."""

    way: Way  # without its tensors
    guard: Guard  # guards the layer
    recipe: Recipe  # makes the way's tensors from the guard's tensors and whole operands
    whole: tuple[int, ...]  # numbers of the operands that are the same for all edges
    counts: tuple[int, ...] | None  # numbers of edges and nodes for which it is valid; None means all

    def bound(self, layer: Module, operands: Sequence[Tensor], graph: Graph) -> Way | None:
        """Return the way for the layer's current state; None if a new trace may find another way."""
        if self.counts is not None and self.counts != _counts(graph):
            return None
        tensors = self.guard.tensors(layer)
        if tensors is None or isinstance(self.way, str):
            return None if tensors is None else self.way
        return self.way.using(self.recipe.tensors([*tensors, *(operands[at] for at in self.whole)]))


def _counts(graph: Graph) -> tuple[int, int, int]:
    return graph.num_edges, graph.num_src, graph.num_dst


def _entry_of(layer: Module, guard: Guard, traced: Found, graph: Graph) -> _Entry | None:
    """Return the entry for a trace; None if the layer has changed meanwhile, or other state may change."""
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
    """The cached ways of the messages of a class.

    Args:
        bases: Classes that are not analysed; see :class:`.reading.Reading`.
        names: Names of attributes that are always compared; see :class:`.guards.Guard`.
    """

    def __init__(self, bases: Sequence[type], names: Sequence[str]) -> None:
        self._bases, self._names = bases, names
        # The keys are the layers' ids.
        self._of: dict[int, tuple[weakref.ref[Module], dict[Key, _Entry]]] = {}

    def way(
        self,
        layer: Module,
        each: list[Argument],
        operands: Sequence[Tensor],
        graph: Graph,
        trace: Callable[[Reading], Found],
    ) -> Way:
        """Return the way of a message, cached or from a new trace; or the reason why it is not traced.

        Args:
            layer: The layer.
            each: The arguments of the layer's message.
            operands: The tensors from which the arguments are made.
            graph: The graph.
            trace: Traces the message, given its analysis.
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
        """Return everything that the message of a layer can reach.

        Raises:
            Opaque: The message may do more than compute.
        """
        return Reading(layer, self._bases, _READ)

    def _guard(self, reading: Reading) -> Guard | None:
        try:
            return Guard(reading, self._names)
        except (Unfit, Opaque):  # an unsupported value that the message does not read
            return None  # the next call may be able to use the cache

    def _keep(self, layer: Module, entries: dict[Key, _Entry]) -> None:
        number = id(layer)
        ref = weakref.ref(layer, lambda _: self._of.pop(number, None))
        # The oldest entries are dropped.
        self._of[number] = ref, {key: entries[key] for key in list(entries)[-_MOST:]}
