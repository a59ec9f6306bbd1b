"""Declarations of all cases in which a module uses another one without importing it.

A layer imports only layers below it. Two cases remain: a module uses something of a higher layer; or a lower
module is not imported before the program uses it, and others take it into account from then on. In both
cases, the provider registers an object at the end of its import, and a :class:`Way` stores it.
"""

import sys
from collections.abc import Callable
from typing import Any


class Way:
    """An object that one module provides to modules that do not import it.

    Attributes:
        provider: The module that provides the object.
        users: The modules that use it.
        provided: The object; None before the provider is imported. The hot path reads this attribute.
    """

    __slots__ = ("_waiting", "provided", "provider", "users")

    def __init__(self, provider: str, *users: str) -> None:
        self.provider, self.users = provider, users
        self.provided: Any = None
        self._waiting: list[Callable[[], None]] = []

    def provide(self, value: Any) -> None:
        """Store the provider's object, and run the calls that wait for it."""
        self.provided = value
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()

    def when_provided(self, call: Callable[[], None]) -> None:
        """Run a call once: now if the provider has been imported, else as soon as it is."""
        if self.provided is None:
            self._waiting.append(call)
        else:
            call()


PATCH = Way("onehop.integrations.patch", "onehop.integrations.pyg.loaders.neighbours")
"""The function ``onehop.patch``, of a higher layer; pickles for spawned processes contain it."""

DISTRIBUTED = Way(
    "onehop.distributed",
    "onehop.integrations.pyg.edges.processes",
    "onehop.integrations.pyg.framework",
    "onehop.integrations.pyg.propagate",
    "onehop.integrations.pyg.stages",
)
"""The package ``onehop.distributed``; programs that do not divide graphs do not import it."""


def imported(package: str) -> Any:
    """Return a module of another project if the program has imported it, else None."""
    return sys.modules.get(package)
