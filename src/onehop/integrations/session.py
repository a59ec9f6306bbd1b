"""The state of the patch: the frameworks, the settings, and the session in force."""

import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from onehop import config
from onehop.backends import is_machine
from onehop.backends.machine import MachineBackend
from onehop.errors import ArgumentError, check_choice
from onehop.integrations.rows import Part, Row, building

PYG, DGL, MACE, NEQUIP, TORCH = "pyg", "dgl", "mace", "nequip", "torch"
TuneMode = Literal["auto", "never"]
TUNE_MODES: tuple[TuneMode, ...] = get_args(TuneMode)


@dataclass(frozen=True, slots=True)
class Settings:
    """The choices of a patch: the arguments of :func:`onehop.patch` with the same names.

    None for ``sampler`` means that onehop draws neighbours if PyG has no pyg-lib, and draws for the other
    loaders if PyG has no torch-sparse either. ``backend`` names the machine that sums and means run on, or
    the backend that everything runs on; empty means the first backend that takes the tensors.
    """

    keep_memory: bool = False
    reuse: bool = False
    associate: bool = False
    tune: str = "never"
    dropout: bool = False
    products: bool = False
    indexing: bool = False
    sampler: bool | None = None
    backend: str = ""


OFF = Settings()
"""The settings if no patch is in place."""


def from_environment() -> Settings:
    """Return the settings of ``patch()`` without arguments, from the environment variables."""
    return Settings(
        keep_memory=config.keep_memory(),
        reuse=config.reuse(),
        associate=config.associate(),
        dropout=config.dropout(),
        products=config.products(),
        indexing=config.indexing(),
        sampler=config.sampler(),
    )


def settled(before: Settings, *, with_machine: bool = False, **choices: Any) -> Settings:
    """Return the settings after a call of ``patch()``.

    Args:
        before: The settings before the call.
        with_machine: Whether the patch has a machine. Then ``reuse`` and ``associate`` are off unless given,
            so that the machine runs every aggregation at the model's width.
        **choices: New values by name; None leaves a setting as it was.

    Raises:
        ArgumentError: ``tune`` is not a mode, or ``reuse`` is set with a machine.
    """
    tune = choices.get("tune")
    if tune is not None:
        check_choice("tune", tune, TUNE_MODES)
    if with_machine:
        if choices.get("reuse"):
            raise ArgumentError(
                "reuse: aggregates that are kept would not be counted on the machine; omit reuse."
            )
        before = replace(before, reuse=False, associate=False)
    return replace(before, **{name: value for name, value in choices.items() if value is not None})


class Framework(ABC):
    """A framework that can be patched. It holds the rows of its patch table while they are installed."""

    name: str

    def __init__(self) -> None:
        self.part = Part()
        self._rows: list[Row] = []

    def layers(self) -> tuple[str, ...]:
        """The class names that ``patch(only=...)`` takes."""
        return ()

    @abstractmethod
    def rows(self, settings: Settings) -> list[Row]:
        """Return the rows of the patch table for these settings."""

    def install(self, settings: Settings) -> None:
        """Installs the rows; has no effect if rows are installed already."""
        if not self._rows:
            with building.set(self.part):
                self.add(self.rows(settings))
            self.part.on = True

    def add(self, rows: list[Row]) -> None:
        """Installs more rows, except over functions that another library has replaced."""
        for row in rows:
            if row.applies:
                self._rows.append(row)
                row.install()

    def remove(self) -> None:
        """Restores the replaced attributes."""
        self.part.on = False
        for row in reversed(self._rows):
            row.restore()
        self._rows = []

    def replaced(self) -> list[str]:
        """The dotted names of everything that is replaced now."""
        return [row.name for row in self._rows]

    def silence(self, module: Any) -> str | None:
        """Return why a layer never reached the patch; None if the module is not a layer of this framework."""
        return None


@dataclass(frozen=True, slots=True)
class Selection:
    """The frameworks and layers that a patch includes.

    Attributes:
        frameworks: The frameworks.
        layers: The names of the layer classes; None means all.
    """

    frameworks: tuple[Framework, ...]
    layers: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Session:
    """The state of one patch, or of having no patch.

    Attributes:
        selection: The frameworks and layers that are patched; None without a patch.
        settings: The choices of the patch.
        runner: The backend of the simulated machine; None without a machine.
        labels: The names of layers on a simulated machine.
        logged: The refusals that were logged, as pairs of (class name, sentence).
        pyg: Whether PyG is patched.
        dgl: Whether DGL is patched.
        layers: The names of the layer classes that are patched; None means all.
        machine: The name of the machine's backend, which runs sums and means; empty without a machine.
        backend: The name of the backend that runs everything; empty means the first that takes the tensors.
        serves_functions: Whether PyG's functions are replaced too: PyG is patched as a whole, and no machine
            or backend is chosen.
    """

    selection: Selection | None = None
    settings: Settings = OFF
    runner: MachineBackend | None = field(default=None, compare=False)
    labels: MutableMapping[Any, str] = field(default_factory=weakref.WeakKeyDictionary, compare=False)
    logged: set[tuple[str, str]] = field(default_factory=set, compare=False)
    # The attributes below are derived once, in __post_init__.
    pyg: bool = field(init=False)
    dgl: bool = field(init=False)
    layers: frozenset[str] | None = field(init=False)
    machine: str = field(init=False)
    backend: str = field(init=False)
    serves_functions: bool = field(init=False)

    def __post_init__(self) -> None:
        """Derives the attributes that every call of a patched layer reads."""
        chosen, backend = self.selection, self.settings.backend
        frameworks = () if chosen is None else tuple(framework.name for framework in chosen.frameworks)
        on_machine, layers = is_machine(backend), None if chosen is None else chosen.layers
        derived = {
            "pyg": PYG in frameworks,
            "dgl": DGL in frameworks,
            "layers": layers,
            "machine": backend if on_machine else "",
            "backend": "" if on_machine else backend,
            "serves_functions": PYG in frameworks and layers is None and not backend,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)


now = Session()
"""The session in force. It is replaced as a whole, so one read gives a consistent state."""

lock = threading.RLock()
"""Held while the session in force is replaced."""


def _renew_lock() -> None:
    global lock
    lock = threading.RLock()


# In a forked process, the thread that held the lock does not exist.
os.register_at_fork(after_in_child=_renew_lock)


def enter(session: Session) -> None:
    """Puts a session in force."""
    global now
    with lock:
        now = session
