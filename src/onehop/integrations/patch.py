"""``onehop.patch()``, which runs unchanged models of other frameworks on onehop's kernels."""

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from onehop import config
from onehop.backends import register_machine
from onehop.errors import ArgumentError, ConfigurationError
from onehop.integrations import in_force, memory, reports, session, tuning
from onehop.integrations.in_force import Entry
from onehop.integrations.selection import check_runner, select
from onehop.integrations.session import Session
from onehop.loading import PATCH
from onehop.machines.base import Machine
from onehop.machines.common.ledger import Ledger

P = ParamSpec("P")
R = TypeVar("R")


class Patch:
    """The handle of a patch, which applies to all threads. A handle may be entered any number of times.

    As a context manager, it patches inside the block and removes its own patch on exit. The latest of the
    remaining patches is then in force; blocks may be left in any order and in any thread.

    Examples:
        >>> import onehop
        >>> with onehop.patch(only="torch") as patch:
        ...     print(patch.active)
        True
        >>> patch.active
        False
    """

    def __init__(self, coming: Session | None, ledger: Ledger | None = None) -> None:
        # None makes a handle that does nothing.
        self._session, self._ledger = coming, ledger
        # Each entry with the thread that entered its block; None for the entry of patch() itself.
        self._entries: list[tuple[int | None, Entry]] = []
        if coming is not None:
            self._entries.append((None, in_force.enter(coming, self)))

    @property
    def report(self) -> Ledger:
        """The total cost of the machine's runs; only ``patch(machine=...)`` has one.

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
        """Return whether a patch is in place now."""
        return session.now.selection is not None

    def remove(self) -> None:
        """Restores everything, as :func:`unpatch` does. Has no effect without a patch in place."""
        unpatch()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Restores everything inside the block, for example for code that reads sources."""
        with session.lock:
            entry = in_force.enter(replace(session.now, selection=None), self)
        try:
            yield
        finally:
            in_force.leave(entry)

    def __enter__(self) -> "Patch":
        """Puts its patch in force, above all others, and returns itself."""
        if self._session is not None:
            with session.lock:
                initial = [pair for pair in self._entries if pair[0] is None]
                self._entries.append((threading.get_ident(), in_force.enter(self._session, self)))
                # The patch that patch() made lasts until the end of this block instead.
                for pair in initial:
                    self._entries.remove(pair)
                    in_force.leave(pair[1])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Removes the patch of the block, or the one that ``patch()`` made if no block was entered."""
        with session.lock:
            mine = [entry for entry in self._entries if entry[0] == threading.get_ident()] or self._entries
            if mine:
                last = mine[-1]
                self._entries.remove(last)
                in_force.leave(last[1])

    def __repr__(self) -> str:
        """Says whether a patch is in place."""
        return f"Patch(active={self.active})"


def patch(
    only: str | Iterable[str] | None = None,
    keep_memory: bool | None = None,
    reuse: bool | None = None,
    associate: bool | None = None,
    tune: str | None = None,
    machine: Machine | None = None,
    backend: str | None = None,
    dropout: bool | None = None,
    products: bool | None = None,
    sampler: bool | None = None,
    indexing: bool | None = None,
) -> Patch:
    """Runs PyG's and DGL's layers on onehop's kernels, wherever that gives the same result.

    Models need not change, and may be made before or after. PyG is patched if it is installed, DGL if it has
    been imported, and with them torch's dropout, products, gathers and scatters, which take much of an
    epoch. Layers that onehop cannot run use their framework's own code; :func:`onehop.explain` says which
    and why, and so does the log ``onehop``, in one INFO line for each class and reason. Calling it again
    changes ``only`` and the other settings that are given; None leaves a setting as it is.

    Args:
        only: Names of layer classes, such as "GCNConv"; their subclasses count too. "pyg" and "dgl" stand
            for these frameworks, alone or with names of their layers; "dgl" imports DGL. "torch" adds
            torch's dropout and operators to those named. None means all.
        keep_memory: Whether torch's CPU tensors of 4 MiB or more take their memory from the pool of onehop's
            outputs, instead of mapping and faulting it in for each of them. The pool holds little more than
            was in use at once. The environment variable ``ONEHOP_KEEP_MEMORY`` has the initial value
            (default: yes). Has no effect where torch's allocator is not glibc's.
        reuse: Whether PyG's layers keep aggregates of features that need no gradient and return them while
            the features are unchanged, as in the first layer of full-batch training. ``ONEHOP_REUSE`` has the
            initial value (default: yes). With a machine nothing is kept, so that every aggregation is
            counted.
        associate: Whether a layer of PyG may exchange the order of its linear step and its aggregation where
            fewer columns are aggregated then, and score destinations without their linear step.
            ``ONEHOP_ASSOCIATE`` has the initial value (default: yes); with a machine it is no, so that the
            machine aggregates what the model states.
        tune: "auto" tunes a graph that was met five times at one width (:func:`onehop.tune`), for at most
            three seconds, in slices: each later call waits for 50 ms of it, or for one measurement if that
            takes longer, until it is done. Results are kept if the program ends earlier. Mini-batches, each a
            new graph, are not tuned. "never", the initial value, only uses earlier results.
        machine: A simulated machine, such as ``onehop.machines.pim.Machine()``, on which sums and means of
            PyG's layers run, in inference and in training, and forward max, min and attention if it has
            them; everything else runs as without it. The handle's ``report`` adds up the cost of its runs.
            None means the machine of a patch in place, or none.
        backend: The backend that PyG's layers run on, by its name in ``onehop info``, such as "triton" with
            Triton's interpreter on CPU tensors, or "reference" for comparison. Layers whose tensors it
            refuses run PyG's code. None keeps the backend of a patch in place. Without one, it means the
            first that takes the tensors: the C++ kernels on the CPU, Triton's on GPUs.
        dropout: Whether ``torch.nn.functional.dropout`` runs on :func:`onehop.dropout`, with torch's numbers.
            ``ONEHOP_DROPOUT`` has the initial value (default: yes).
        products: Whether large float32 products of torch on the CPU, and of linear steps, run in the fastest
            library available. ``ONEHOP_PRODUCTS`` has the initial value (default: yes).
        sampler: Whether PyG's ``NeighborLoader`` and ``LinkNeighborLoader`` draw with onehop's sampler, and
            ``ClusterData`` divides with onehop's partition. ``ONEHOP_SAMPLER`` has the initial value
            (default: the first where pyg-lib is not installed, the second where torch-sparse is not either).
        indexing: Whether large gathers and scatters of torch (``x[index]``, ``index_select``, ``gather``,
            ``index_add``, ``scatter_add``, ``scatter_reduce``, ``segment_reduce``), their gradients, and
            those of torch_scatter run as :func:`onehop.gather` and :func:`onehop.scatter`; and torch's
            ``unique``, ``isin`` and stable ``sort`` of many integers by radix.
            ``ONEHOP_INDEXING`` has the initial value (default: yes).

    Returns:
        A handle, which is a context manager. Without a block, the patch stays until :func:`unpatch`. With
        ``ONEHOP_DISABLE=1`` nothing happens and the handle is inactive.

    Raises:
        ArgumentError: ``only`` lists a layer that has no fast path, ``tune`` is something else, ``machine``
            is none, ``backend`` is unknown or given with a machine, ``reuse`` is set with a machine, or a
            machine or backend is given without PyG. Nothing has changed then.
        ConfigurationError: There is no framework, or a named one cannot be imported or is too old.

    Examples:
        >>> import onehop, torch
        >>> from torch_geometric.nn import SimpleConv
        >>> conv, x, edge_index = SimpleConv("sum"), torch.ones(3, 2), torch.tensor([[0, 0, 1], [1, 2, 2]])
        >>> with onehop.patch():
        ...     out = conv(x, edge_index)
        >>> out
        tensor([[0., 0.],
                [1., 1.],
                [2., 2.]])
        >>> torch.equal(out, conv(x, edge_index))  # PyG's own code gives the same
        True
    """
    with session.lock:
        before = session.now
        start = session.from_environment() if before.selection is None else before.settings
        settings = session.settled(
            start,
            keep_memory=keep_memory,
            reuse=reuse,
            associate=associate,
            tune=tune,
            dropout=dropout,
            products=products,
            sampler=sampler,
            indexing=indexing,
            with_machine=machine is not None,
        )
        if config.disabled():
            reports.LOGGER.info("ONEHOP_DISABLE=1: onehop.patch() does nothing.")
            return Patch(None)
        selection = select(only)
        check_runner(selection, machine, backend)
        runner, ledger = before.runner if before.selection is not None else None, None
        if machine is not None:
            ledger = Ledger()
            runner = register_machine(machine, ledger)
            settings = replace(settings, backend=runner.name)
        elif backend is not None:
            runner, settings = None, replace(settings, backend=backend)
        coming = Session(selection, settings, runner)
        if before.selection is not None:
            # Layers keep their names on a machine that stays.
            labels = before.labels if runner is before.runner else coming.labels
            coming = replace(coming, logged=before.logged, labels=labels)
        handle = Patch(coming, ledger)
        if not settings.keep_memory:
            memory.give_back()
        return handle


def holding() -> Patch:
    """Returns a handle that keeps the patch in place during its block; makes a patch if there is none."""
    with session.lock:
        return patch() if session.now.selection is None else Patch(session.now)


def unpatch() -> None:
    """Restores everything that :func:`patch` replaced; torch allocates as before.

    Kept memory returns to the system; leaving a patch's block keeps it for the next patch. Unfinished tuning
    ends too, and its results so far are kept.

    Examples:
        >>> import onehop, torch
        >>> _ = onehop.patch(only="torch")
        >>> onehop.unpatch()
        >>> onehop.patched()
        ()
    """
    with session.lock:
        in_force.end()
        memory.give_back()
    tuning.give_up()


def patched() -> tuple[str, ...]:
    """Return the dotted names of everything that is replaced now; empty without a patch.

    Examples:
        >>> import onehop
        >>> with onehop.patch(only="torch"):
        ...     print("torch.ops.aten.index_select" in onehop.patched())
        True
        >>> onehop.patched()
        ()
    """
    with session.lock:
        selection = session.now.selection
        if selection is None:
            return ()
        return tuple(name for framework in selection.frameworks for name in framework.replaced())


def silence(module: Any) -> str | None:
    """Return why a layer never reached the patch in place; None if the module is no layer of a framework."""
    selection = session.now.selection
    reasons = [] if selection is None else [framework.silence(module) for framework in selection.frameworks]
    return next((reason for reason in reasons if reason is not None), None)


def accelerate(function: Callable[P, R]) -> Callable[P, R]:
    """A decorator that patches while ``function`` runs and restores the state before afterwards.

    Raises:
        ArgumentError: A generator or coroutine function, whose body runs after the call.

    Examples:
        >>> import onehop, torch
        >>> from torch_geometric.nn import SimpleConv
        >>> @onehop.accelerate
        ... def neighbours(x, edge_index):
        ...     return SimpleConv("sum")(x, edge_index)
        >>> neighbours(torch.ones(3, 2), torch.tensor([[0, 0, 1], [1, 2, 2]])).tolist()
        [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]
        >>> onehop.patched()  # nothing is patched outside of the function
        ()
    """
    return _patched_inside(function, None)


def autotune(function: Callable[P, R]) -> Callable[P, R]:
    """A decorator like :func:`accelerate` that also tunes graphs that ``function`` uses repeatedly.

    It applies ``patch(tune="auto")`` while the function runs; the plans found stay in use afterwards.

    Raises:
        ArgumentError: A generator or coroutine function, whose body runs after the call.

    Examples:
        >>> import onehop, torch
        >>> from torch_geometric.nn import SimpleConv
        >>> @onehop.autotune
        ... def hops(x, edge_index, count):
        ...     for _ in range(count):
        ...         x = SimpleConv("sum")(x, edge_index)
        ...     return x
        >>> hops(torch.arange(3.0).unsqueeze(1), torch.tensor([[0, 1, 2], [1, 2, 0]]), 4).flatten().tolist()
        [2.0, 0.0, 1.0]
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


PATCH.provide(patch)
