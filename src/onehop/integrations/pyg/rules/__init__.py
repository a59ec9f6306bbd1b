"""The message functions that onehop knows, each with a rule that computes it.

Rules use edges through their common class (:class:`~onehop.integrations.pyg.edges.Edges`), and depend on no
layer's ``forward``. The table is keyed by the function object that a layer's class has as ``message``: a
class that inherits one of these functions qualifies, a class that overrides it does not.
"""

import functools
from collections.abc import Callable
from typing import Any

from onehop.integrations.pyg.known import COMPILED, OWN_MESSAGES, layer_class
from onehop.integrations.pyg.rules import attention, heat, plain, relational
from onehop.integrations.pyg.rules.table import TABLE, Rule
from onehop.integrations.rows import is_own

__all__ = ["Rule", "attention", "heat", "plain", "relational"]


@functools.cache
def rules() -> dict[Callable[..., Any], Rule]:
    """The table, by function object; without layers whose function another library has replaced."""
    functions = ((layer_class(name).message, rule) for name, rule in TABLE.items())
    return {function: rule for function, rule in functions if is_own(function)}


def known_layers() -> tuple[str, ...]:
    """The names of the classes that have a fast path: by their rules, compiled, or in blocks."""
    return tuple(TABLE) + OWN_MESSAGES + COMPILED


@functools.cache
def fused_functions() -> dict[Callable[..., Any], Callable[..., Any]]:
    """The products with a sparse matrix that PyG runs instead of messages, by the message function."""
    kinds = [layer_class(name) for name, rule in TABLE.items() if rule.name]
    return {
        kind.message: kind.message_and_aggregate for kind in kinds if "message_and_aggregate" in vars(kind)
    }
