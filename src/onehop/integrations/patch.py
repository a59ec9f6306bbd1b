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
from onehop.integrations.session import Session, TuneMode
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
        # Pairs of (thread that entered the block, entry); the thread is None for the entry that patch() made.
        self._entries: list[tuple[int | None, Entry]] = []
        if coming is not None:
            self._entries.append((None, in_force.enter(coming, self)))

    @property
    def report(self) -> Ledger:
        """The total cost of the machine's runs; available only for ``patch(machine=...)``.

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
        """Restores everything inside the block, for example for code that inspects functions' source text."""
        with session.lock:
            entry = in_force.enter(replace(session.now, selection=None), self)
        try:
            yield
        finally:
            in_force.leave(entry)

    def __enter__(self) -> "Patch":
        """Puts this handle's patch in force, above all others, and returns the handle."""
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
    tune: TuneMode | None = None,
    machine: Machine | None = None,
    backend: str | None = None,
    dropout: bool | None = None,
    products: bool | None = None,
    sampler: bool | None = None,
    indexing: bool | None = None,
) -> Patch:
    """Run PyG's and DGL's layers on onehop's kernels, wherever that gives the same result.

    Models need not change, and may be made before or after. PyG is patched if it is installed, and DGL, MACE
    and NequIP if they have been imported. torch's dropout, products, gathers and scatters are patched too,
    because they take much of an epoch's time. Layers that onehop cannot run use their framework's own code;
    :func:`onehop.explain` says which and why, and the logger ``onehop`` writes one INFO line for each class
    and reason. Calling ``patch`` again changes ``only`` and the other settings that are given; None leaves a
    setting as it is.

    Args:
        only: Names of layer classes, such as "GCNConv"; subclasses are included. "pyg", "dgl", "mace" and
            "nequip" name all layers of these frameworks, and may be combined with layer names; all but "pyg"
            import the framework. "torch" adds torch's dropout and operators. None means all.
        keep_memory: Whether torch's CPU tensors of 4 MiB or more take their memory from the pool of onehop's
            outputs, instead of mapping and faulting it in for each of them. The pool holds little more than
            was in use at once. The environment variable ``ONEHOP_KEEP_MEMORY`` gives the initial value
            (default: yes). Has no effect where torch's allocator is not glibc's.
        reuse: Whether PyG's layers keep aggregates of features that need no gradient and return them while
            the features are unchanged, as in the first layer of full-batch training. ``ONEHOP_REUSE`` gives
            the initial value (default: yes). With a machine nothing is kept, so that every aggregation is
            counted.
        associate: Whether a layer of PyG may exchange its linear step and its aggregation if fewer columns
            are aggregated then, and may compute attention scores of destinations without the linear step.
            ``ONEHOP_ASSOCIATE`` gives the initial value (default: yes). With a machine it is off, so that the
            machine aggregates at the model's width.
        tune: "auto" tunes a graph (:func:`onehop.tune`) after it was used five times at one width, for at
            most three seconds. Each later call runs a slice of the tuning: 50 ms, or one measurement if that
            takes longer. Results are kept if the program ends earlier. Mini-batches, each a new graph, are
            not tuned. "never", the initial value, only uses earlier results.
        machine: A simulated machine, such as ``onehop.machines.pim.Machine()``. It runs the sums and means of
            PyG's layers, in inference and in training, and forward max, min and attention if it supports
            them; everything else runs as without it. The handle's ``report`` is the total cost of its runs.
            None means the machine of the patch in place, or no machine.
        backend: The backend that PyG's layers run on, by its name in ``onehop info``, such as "triton" with
            Triton's interpreter on CPU tensors, or "reference" for comparison. Layers whose tensors it
            refuses run PyG's code. None keeps the backend of the patch in place. Without a patch, it means
            the first backend that takes the tensors: the C++ kernels on the CPU, Triton's on GPUs.
        dropout: Whether ``torch.nn.functional.dropout`` runs on :func:`onehop.dropout`, with the random
            numbers that torch would draw. ``ONEHOP_DROPOUT`` gives the initial value (default: yes).
        products: Whether torch's large float32 products on the CPU, also those of linear steps, run in the
            fastest library available. ``ONEHOP_PRODUCTS`` gives the initial value (default: yes).
        sampler: Whether PyG's ``NeighborLoader`` and ``LinkNeighborLoader`` draw with onehop's sampler, and
            ``ClusterData`` divides the graph with onehop's partition. ``ONEHOP_SAMPLER`` gives the initial
            value (default: the sampler is used if pyg-lib is not installed, the partition if torch-sparse is
            not installed either).
        indexing: Whether large gathers and scatters of torch (``x[index]``, ``index_select``, ``gather``,
            ``index_add``, ``scatter_add``, ``scatter_reduce``, ``segment_reduce``), their gradients, and the
            operators of torch_scatter run as :func:`onehop.gather` and :func:`onehop.scatter`; whether
            products of torch's sparse matrices, and those of torch_sparse, run as
            :func:`onehop.aggregate`; and whether torch's ``unique``, ``isin`` and stable ``sort`` of many
            integers run by radix.
            ``ONEHOP_INDEXING`` gives the initial value (default: yes).

    Returns:
        A handle, which is a context manager. Without a block, the patch stays until :func:`unpatch`. With
        ``ONEHOP_DISABLE=1`` nothing happens and the handle is inactive.

    Raises:
        ArgumentError: ``only`` lists a layer that has no fast path, ``tune`` is neither "auto" nor "never",
            ``machine`` is not a machine, ``backend`` is unknown or given with a machine, ``reuse`` is set
            with a machine, or a machine or backend is given without PyG. The state before stays in force.
        ConfigurationError: No framework is available, or a named one cannot be imported or is too old.

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
            # If the machine stays the same, layers keep their names in its reports.
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

    The memory pool is returned to the system, whereas leaving a patch's block keeps it for the next patch.
    Unfinished tuning ends, and its results so far are kept.

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
    """Return why a layer never reached the patch in place; None if the module is not a framework's layer."""
    selection = session.now.selection
    reasons = [] if selection is None else [framework.silence(module) for framework in selection.frameworks]
    return next((reason for reason in reasons if reason is not None), None)


def accelerate(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function: a patch is in place while it runs, and the earlier state is restored afterwards.

    Raises:
        ArgumentError: ``function`` is a generator or coroutine function, whose body runs after the call.

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
    """Decorate a function like :func:`accelerate`, and also tune graphs that it uses repeatedly.

    ``patch(tune="auto")`` is in place while the function runs; the plans found stay in use afterwards.

    Raises:
        ArgumentError: ``function`` is a generator or coroutine function, whose body runs after the call.

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


def _patched_inside(function: Callable[P, R], tune: TuneMode | None) -> Callable[P, R]:
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
