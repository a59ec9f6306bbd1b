"""The message functions that onehop knows, and the rules that compute them.

Rules access edges through a common class (:class:`~onehop.integrations.pyg.edges.Edges`), and do not depend
on a layer's ``forward``. The keys of the table are the function objects that layer classes have as
``message``: a class that inherits a function has its rule, a class that overrides it does not.
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
    """Return the table of rules by function object, without functions that another library has replaced."""
    functions = ((layer_class(name).message, rule) for name, rule in TABLE.items())
    return {function: rule for function, rule in functions if is_own(function)}


def known_layers() -> tuple[str, ...]:
    """Return the names of the classes that have a fast path: by a rule, compiled, or in blocks."""
    return tuple(TABLE) + OWN_MESSAGES + COMPILED


@functools.cache
def fused_functions() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return the sparse-matrix products that PyG runs instead of messages, by the message function."""
    kinds = [layer_class(name) for name, rule in TABLE.items() if rule.name]
    return {
        kind.message: kind.message_and_aggregate for kind in kinds if "message_and_aggregate" in vars(kind)
    }
