"""The state of the patch: frozen sessions, and the one in force."""

import threading
import weakref
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from onehop.backends import is_machine
from onehop.integrations.framework import DGL, PYG, Selection
from onehop.integrations.settings import OFF, Settings


@dataclass(frozen=True, slots=True)
class Session:
    """A patch in place, or its absence.

    Attributes:
        selection: The frameworks and layers that are patched; None without a patch.
        settings: The choices of the patch.
        labels: The names of layers on a simulated machine.
        logged: The refusals in the log: the class and the sentence of each.
        pyg: PyG is patched.
        dgl: DGL is patched.
        layers: The names of the layer classes that are patched; None means all.
        machine: The backend of the machine that runs sums and means; empty means none.
        backend: The backend that runs everything; empty means the first that takes the tensors.
    """

    selection: Selection | None = None
    settings: Settings = OFF
    labels: MutableMapping[Any, str] = field(default_factory=weakref.WeakKeyDictionary, compare=False)
    logged: set[tuple[str, str]] = field(default_factory=set, compare=False)
    # Derived, because every call of a patched layer reads them.
    pyg: bool = field(init=False)
    dgl: bool = field(init=False)
    layers: frozenset[str] | None = field(init=False)
    machine: str = field(init=False)
    backend: str = field(init=False)

    def __post_init__(self) -> None:
        """Derives the attributes that are read often."""
        chosen, backend = self.selection, self.settings.backend
        frameworks = () if chosen is None else tuple(each.name for each in chosen.frameworks)
        on_machine = is_machine(backend)
        derived = {
            "pyg": PYG in frameworks,
            "dgl": DGL in frameworks,
            "layers": None if chosen is None else chosen.layers,
            "machine": backend if on_machine else "",
            "backend": "" if on_machine else backend,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)


now = Session()
"""The session in force. It is replaced as a whole, so one read gives a consistent state."""

lock = threading.RLock()
"""Held while the session in force is replaced."""

patches: list[Callable[..., Any]] = []
"""``onehop.patch``, which is in a higher module; pickles for spawned processes contain it."""


def enter(session: Session) -> None:
    """Puts a session in force."""
    global now
    with lock:
        now = session
