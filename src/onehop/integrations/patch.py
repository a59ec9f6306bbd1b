"""``onehop.patch()``: unchanged models of other frameworks run on onehop's kernels, until taken back."""

import contextlib
import functools
import importlib.util
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, ParamSpec, Protocol, TypeVar

from onehop import config, native
from onehop.backends import register_machine
from onehop.errors import ArgumentError, ConfigurationError
from onehop.integrations import reports, tuning
from onehop.integrations.settings import OFF, Settings, from_environment, settled
from onehop.machines.base import Machine
from onehop.machines.ledger import Ledger

P = ParamSpec("P")
R = TypeVar("R")


class Framework(Protocol):
    """What can be patched."""

    name: str

    def layers(self) -> tuple[str, ...]:
        """The layer names that ``only`` may list."""
        ...

    def install(self, only: frozenset[str] | None) -> None:
        """Puts ours in place; again, with other names, changes the selection."""
        ...

    def apply(self, settings: Settings) -> None:
        """Follows the settings, as far as they concern a framework."""
        ...

    def remove(self) -> None:
        """Puts theirs back."""
        ...

    def replaced(self) -> list[str]:
        """The dotted names of what is ours now."""
        ...

    def silence(self, module: Any) -> str | None:
        """Why a layer of this framework never reached the patch; None if the module is no such layer."""
        ...


@dataclass(frozen=True, slots=True)
class _State:
    installed: bool
    only: frozenset[str] | None
    settings: Settings


_lock = threading.RLock()
_framework: Framework | None = None
_state = _State(False, None, OFF)


class Patch:
    """A patch in place. A context manager: on leaving, things are again as they were before ``patch()``.

    The patch counts for the whole process, whichever thread asked for it.
    """

    def __init__(self, before: _State, active: bool, ledger: Ledger | None = None) -> None:
        self._before = before
        self._active = active
        self._ledger = ledger

    @property
    def report(self) -> Ledger:
        """What the machine's runs took, added up: ``patch(machine=...)`` alone has one.

        Raises:
            ConfigurationError: The patch was made without a machine.
        """
        if self._ledger is None:
            raise ConfigurationError(
                "report: this patch has no simulated machine; make it with onehop.patch(machine=...)."
            )
        return self._ledger

    @property
    def active(self) -> bool:
        """Whether the patch is in place now."""
        return _state.installed

    def remove(self) -> None:
        """Puts everything back as the framework made it; once is enough, again does nothing."""
        unpatch()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Inside the block, everything is as the framework made it, as for code that reads sources."""
        with _lock:
            before = _state
            if before.installed:
                _put_back()
        try:
            yield
        finally:
            with _lock:
                if before.installed:
                    _put_in(before.only)

    def __enter__(self) -> "Patch":
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Goes back to how things were before."""
        if not self._active:
            return
        with _lock:
            if self._before.installed:
                _put_in(self._before.only)
                _apply(self._before.settings)
            else:
                _take_away()

    def __repr__(self) -> str:
        """Whether it is in place."""
        return f"Patch(active={self.active})"


def patch(
    only: str | Iterable[str] | None = None,
    keep_memory: bool | None = None,
    reuse: bool | None = None,
    associate: bool | None = None,
    tune: str | None = None,
    machine: Machine | None = None,
) -> Patch:
    """Lets PyG's layers run on onehop's kernels, wherever that gives the same result.

    Models need not change, and may be made before or after. Layers that onehop cannot run go PyG's own way;
    :func:`onehop.explain` says which, and why, and so does one INFO line a class and reason in the log
    ``onehop``. Calling it again changes ``only``, and what else is given; None leaves a setting as it is.

    Args:
        only: Names of layer classes, such as "GCNConv"; their subclasses count too. None means all.
        keep_memory: Whether the C library keeps freed memory in the process while patched, instead of giving
            it back to the system and faulting it in anew for each large tensor. At first the environment
            variable ``ONEHOP_KEEP_MEMORY`` decides (default: yes). Without effect outside glibc.
        reuse: Whether aggregates of features that need no gradient are kept and given back while the features
            are unchanged, as in the first layer of full-batch training. At first ``ONEHOP_REUSE`` decides
            (default: yes). With a machine nothing is kept, so that every aggregation is counted.
        associate: Whether a layer may multiply by its weight before it aggregates, or after, in place of the
            other way round, where fewer columns are aggregated then. At first ``ONEHOP_ASSOCIATE`` decides
            (default: yes); with a machine it is no, so that the machine aggregates what the model says.
        tune: "auto" lets a graph that was met five times at one width be tuned (:func:`onehop.tune`), for at
            most three seconds, in slices: from then on each call waits for 50 ms of it, or for one
            measurement where that takes longer, until it is done. What was found is kept if the program ends
            before. Mini-batches, each a graph of its own, are not tuned. "never", as at first, uses what was
            tuned before alone.
        machine: A simulated machine, such as ``onehop.machines.pim.Machine()``, on which sums and means of
            the layers run, in inference and in training; everything else runs as without it. The handle's
            ``report`` adds up what its runs took. None means the machine of a patch in place, or none.

    Returns:
        A handle, which is a context manager. With ``ONEHOP_DISABLE=1`` nothing happens and the handle is
        inactive.

    Raises:
        ArgumentError: ``only`` lists a layer that has no fast path, ``tune`` is something else, or ``reuse``
            is asked for with a machine.
        ConfigurationError: PyG is not installed, or too old.
    """
    with _lock:
        before = _state
        start = before.settings if before.installed else from_environment()
        settings = settled(start, keep_memory, reuse, associate, tune, machine is not None)
        if config.disabled():
            reports.LOGGER.info("ONEHOP_DISABLE=1: onehop.patch() does nothing.")
            return Patch(before, active=False)
        _put_in(_names(only, _find_framework()))
        ledger = None
        if machine is not None:
            ledger = Ledger()
            settings = replace(settings, backend=register_machine(machine, ledger))
        _apply(settings)
        return Patch(before, active=True, ledger=ledger)


def unpatch() -> None:
    """Puts back everything that :func:`patch` replaced, and the C library's memory policy.

    Tuning that is half done ends, too; what it found is kept.
    """
    with _lock:
        _take_away()
    tuning.give_up()


def patched() -> tuple[str, ...]:
    """The dotted names of everything that is replaced now; empty without a patch."""
    with _lock:
        return tuple(_framework.replaced()) if _framework is not None and _state.installed else ()


def silence(module: Any) -> str | None:
    """Why a layer never reached the patch that is in place; None if the module is no layer of a framework."""
    return None if _framework is None else _framework.silence(module)


def accelerate(function: Callable[P, R]) -> Callable[P, R]:
    """A decorator: the patch is in place while ``function`` runs; then things are as they were before.

    Raises:
        ArgumentError: A generator or coroutine function, whose body runs after the call.
    """
    return _patched_inside(function, None)


def autotune(function: Callable[P, R]) -> Callable[P, R]:
    """A decorator, as :func:`accelerate`, that also tunes the graphs that ``function`` uses again and again.

    It is ``patch(tune="auto")`` while the function runs; plans that were found stay in use afterwards.

    Raises:
        ArgumentError: A generator or coroutine function, whose body runs after the call.
    """
    return _patched_inside(function, "auto")


def _patched_inside(function: Callable[P, R], tune: str | None) -> Callable[P, R]:
    if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
        raise ArgumentError(
            f"function: {function.__name__} is a generator or coroutine function, whose body runs later; "
            f"use 'with onehop.patch():' inside it."
        )

    @functools.wraps(function)
    def patched_inside(*args: P.args, **kwargs: P.kwargs) -> R:
        with patch(tune=tune):
            return function(*args, **kwargs)

    return patched_inside


def _put_in(only: frozenset[str] | None) -> None:
    global _state
    _find_framework().install(only)
    _state = replace(_state, installed=True, only=only)


def _take_away() -> None:
    if _state.installed:
        _put_back()
        reports.forget_logged()
        _apply(OFF)


def _put_back() -> None:
    global _state
    if _framework is not None:
        _framework.remove()
    _state = replace(_state, installed=False, only=None)


def _apply(settings: Settings) -> None:
    global _state
    # Only where something changes: taking back what was never set would change the C library's defaults.
    if settings.keep_memory != _state.settings.keep_memory:
        native.extension.keep_freed_memory(settings.keep_memory)
    tuning.switch(settings.tune == "auto")
    _find_framework().apply(settings)
    _state = replace(_state, settings=settings)


def _find_framework() -> Framework:
    global _framework
    if _framework is None:
        if importlib.util.find_spec("torch_geometric") is None:
            raise ConfigurationError(
                "onehop.patch() found nothing to patch: torch_geometric is not installed. "
                "Install it with: pip install 'onehop[pyg]'"
            )
        from onehop.integrations.pyg.framework import Pyg

        _framework = Pyg()
    return _framework


def _names(only: str | Iterable[str] | None, framework: Framework) -> frozenset[str] | None:
    if only is None:
        return None
    names = frozenset([only] if isinstance(only, str) else only)
    unknown: list[Any] = sorted(str(name) for name in names if name not in framework.layers())
    if unknown:
        raise ArgumentError(
            f"only: {', '.join(unknown)} has no fast path; there are {', '.join(framework.layers())}."
        )
    return names
