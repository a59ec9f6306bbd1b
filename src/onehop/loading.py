"""The ways by which a room reaches another one without importing it. Each of them is declared here.

A room imports only rooms below it, and two needs remain. A room may use something of a higher one. Or a room
below is not imported before the program uses it, and others notice it from then on. In both cases the other
room provides what it has at the end of its import, and the way keeps it.
"""

import sys
from collections.abc import Callable
from typing import Any


class Way:
    """A way from one room to others, which do not import it.

    Attributes:
        provider: The module that provides something.
        users: The modules that use it.
        provided: What the provider has provided; None before its import. The hot path reads this.
    """

    __slots__ = ("_waiting", "provided", "provider", "users")

    def __init__(self, provider: str, *users: str) -> None:
        self.provider, self.users = provider, users
        self.provided: Any = None
        self._waiting: list[Callable[[], None]] = []

    def provide(self, value: Any) -> None:
        """Keeps what the provider provides, and calls everybody who waits for it."""
        self.provided = value
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()

    def when_provided(self, call: Callable[[], None]) -> None:
        """Calls once: now if the provider has been imported, else as soon as it is."""
        if self.provided is None:
            self._waiting.append(call)
        else:
            call()


PATCH = Way("onehop.integrations.patch", "onehop.integrations.pyg.loaders.neighbours")
"""The function ``onehop.patch``, of a higher room: pickles for spawned processes contain it."""

DISTRIBUTED = Way(
    "onehop.distributed",
    "onehop.integrations.pyg.edges.processes",
    "onehop.integrations.pyg.framework",
    "onehop.integrations.pyg.propagate",
)
"""The package ``onehop.distributed``. Programs that divide no graph do not import it."""


def imported(package: str) -> Any:
    """Return a module of another project if the program has imported it, else None."""
    return sys.modules.get(package)
