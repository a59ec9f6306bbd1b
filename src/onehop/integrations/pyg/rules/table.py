"""The table of rules, and the decorator that enters a rule."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch_geometric.nn import MessagePassing

from onehop.errors import ConfigurationError
from onehop.integrations.pyg.known import layer_class


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: how onehop computes a message function.

    Attributes:
        lower: Makes the plan of a call; it gets the call, and each operand as admitted by its spec.
        operands: The operands of ``propagate`` and the spec of each.
        name: The messages, as :func:`onehop.explain` shows them; empty if the plan names them.
        attends: Whether messages are weighted by attention.
        needs: The names of functions of the layer's class that a subclass must not replace.
        compiles: Whether the message can be compiled if the rule refuses a call.
        divides: Whether the rule's operators also run on the parts of a divided graph.
        listed: Whether the rule takes edges only as a list; PyG runs its own code over a sparse matrix.
        first: The name of an operand with the sources' features, in the width that is aggregated.
        few: Whether the rule also takes few edges, for which no graph is made.
    """

    lower: Callable[..., Any]
    operands: Mapping[str, Any]
    name: str = ""
    attends: bool = True
    needs: tuple[str, ...] = ()
    compiles: bool = False
    divides: bool = False
    listed: bool = False
    first: str = "x"
    few: bool = False


TABLE: dict[str, Rule] = {}
"""The rules, by the name of the layer that defines the message function."""


def rule(*layers: str, name: str = "", **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator that registers a function as the rule of some layers' messages.

    Args:
        layers: The names of PyG's classes.
        name: The messages, as ``explain`` shows them; empty if the plan names them.
        options: Fields of :class:`Rule` by name; every other option is the spec of an operand of the layers'
            ``propagate``, in the order in which operands are admitted.
    """
    names_of_flags = ("attends", "needs", "compiles", "divides", "listed", "first", "few")
    flags = {key: options.pop(key) for key in names_of_flags if key in options}

    def enter(lower: Callable[..., Any]) -> Callable[..., Any]:
        entry = Rule(lower, options, name, **flags)
        for layer in layers:
            _check_operands(layer, entry)
            TABLE[layer] = entry
        return lower

    return enter


def _check_operands(layer: str, entry: Rule) -> None:
    """Raises unless a layer's functions take exactly the operands of a rule."""
    kind = layer_class(layer)
    taken = set()
    for function, before in (("message", 1), ("aggregate", 2), ("update", 2)):
        for parameter in list(inspect.signature(getattr(kind, function)).parameters)[before:]:
            if parameter not in MessagePassing.special_args:
                taken.add(parameter.removesuffix("_i").removesuffix("_j"))
    for operand in entry.operands.keys() ^ taken:
        has = "does not take" if operand in entry.operands else "takes, and its rule does not name,"
        raise ConfigurationError(f"{layer} {has} the operand {operand!r} of propagate.")
