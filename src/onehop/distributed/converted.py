"""Conversion of models to run on one part of a divided graph.

Features are plain tensors, so a function cannot see whether its rows are only a part of all rows. A converted
model records this while it runs.
"""

import contextlib
import copy
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist

from onehop.distributed.graph import DistributedGraph, held_graphs
from onehop.distributed.hetero import DistributedHeteroGraph
from onehop.distributed.streams import own_stream
from onehop.errors import ArgumentError
from onehop.scopes import Scoped

Model = TypeVar("Model", bound=torch.nn.Module)


class Processes(NamedTuple):
    """The processes over which the rows of the running model are divided.

    Attributes:
        group: The process group; None means all processes.
        ranks: Number of processes.
    """

    group: dist.ProcessGroup | None
    ranks: int


# The rows of a single process, which are not divided.
_ALONE = Processes(None, 1)
_now: Scoped[Processes | None] = Scoped("onehop_distributed_processes", None)
_among_edges = Scoped("onehop_distributed_among_edges", False)


def convert(model: Model, graph: DistributedGraph | DistributedHeteroGraph) -> Model:
    """Convert a model, in place, to run on one part of a divided graph, and return it.

    While the model runs under ``onehop.patch()``, its rows are treated as divided over the graph's processes.
    Normalisations compute their statistics over the rows of all processes. In training, each process draws
    its own random numbers, even if all processes used the same seed. Modules that need all rows in one place,
    such as read-outs, raise an error. All of this also holds for functions that the model calls, such as
    ``torch.nn.functional.batch_norm``. Inside a model, use :func:`alone` for rows that are not divided.

    Only the ``forward`` of the modules changes. Parameters, buffers, hooks and the keys of the ``state_dict``
    stay, and copies of the model are converted too. While a process holds a part of a graph, a model that was
    not converted raises an error when it first normalises, drops or pools rows. A model that only aggregates,
    and otherwise treats each row on its own, needs no conversion.

    Args:
        model: The model, or a module of it. It can be converted again for another graph.
        graph: The graph, or any other graph that is divided over the same processes.

    Returns:
        ``model``.

    Raises:
        ArgumentError: ``model`` is not a module, or ``graph`` is not a divided graph.

    Examples:
        >>> import torch, torch.distributed as dist
        >>> from onehop.distributed import DistributedGraph, convert
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # without torchrun
        >>> graph = DistributedGraph.from_edge_index(torch.tensor([[0, 1], [1, 0]]))
        >>> norm = convert(torch.nn.BatchNorm1d(1, momentum=1.0), graph)
        >>> out = norm(torch.tensor([[1.0], [3.0]])[graph.owned_nodes])
        >>> norm.running_mean  # of the rows of all processes
        tensor([2.])
        >>> dist.destroy_process_group()
    """
    if not isinstance(model, torch.nn.Module):
        raise ArgumentError(f"model: expected a torch.nn.Module, got {type(model).__name__}.")
    if not isinstance(graph, DistributedGraph | DistributedHeteroGraph):
        raise ArgumentError(
            f"graph: expected a DistributedGraph or a DistributedHeteroGraph, got {type(graph).__name__}; "
            "make one with DistributedGraph.from_edge_index."
        )
    for module in _entries(model):
        theirs = vars(module).get("forward")
        if isinstance(theirs, _Forward):
            theirs = theirs.theirs
        module.forward = _Forward(module, theirs, graph.group)
    return model


def _entries(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Yield all modules except those inside a layer over edges, which run only with their layer."""
    yield module
    if not hasattr(module, "propagate"):
        for child in module.children():
            yield from _entries(child)


class _Forward:
    """The ``forward`` of a converted module.

    Attributes:
        module: The module.
        theirs: The ``forward`` that was set on the module before; None means the class's ``forward``.
        group: The processes.
    """

    def __init__(
        self, module: torch.nn.Module, theirs: Callable[..., Any] | None, group: dist.ProcessGroup | None
    ) -> None:
        self.module, self.theirs, self.group = module, theirs, group

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The module's original ``forward``, which also gives the signature."""
        return self.theirs or types.MethodType(type(self.module).forward, self.module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the original ``forward``, with rows treated as divided."""
        if torch.compiler.is_compiling() or not dist.is_initialized():
            return self.__wrapped__(*args, **kwargs)
        with _running(self.group, self.module.training):
            return self.__wrapped__(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Forward":
        """Return the ``forward`` for the copied module, for the same processes."""
        return _Forward(copy.deepcopy(self.module, memo), copy.deepcopy(self.theirs, memo), self.group)


@contextlib.contextmanager
def _running(group: dist.ProcessGroup | None, training: bool) -> Iterator[None]:
    now = _now.get()
    if now is _ALONE:
        yield
        return
    if now is None or now.group is not group:
        now = Processes(group, dist.get_world_size(group))
    # Done in each module, so that a checkpoint that runs the module again draws the same numbers.
    stream = own_stream(group) if training and now.ranks > 1 else contextlib.nullcontext()
    with _now.set(now), stream:
        yield


def alone() -> AbstractContextManager[Processes | None]:
    """Treat tensors inside the block as this process's own: nothing is summed over the processes.

    Use this for work that is independent of a divided graph, such as a second model on mini-batches; and,
    inside a converted model, for rows that every process has completely.

    Examples:
        >>> import torch, torch.distributed as dist
        >>> from onehop.distributed import DistributedGraph, alone, convert
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # without torchrun
        >>> graph = DistributedGraph.from_edge_index(torch.tensor([[0, 1], [1, 0]]))
        >>> norm = convert(torch.nn.BatchNorm1d(1, momentum=1.0), graph)
        >>> with alone():
        ...     out = norm(torch.tensor([[5.0], [7.0]]))  # a mini-batch, which no other process has
        >>> norm.running_mean  # of the rows of this process
        tensor([6.])
        >>> dist.destroy_process_group()
    """
    return _now.set(_ALONE)


def among_edges() -> AbstractContextManager[bool]:
    """Mark the block as a layer that reduces messages of edges with a module that can also make read-outs."""
    return _among_edges.set(True)


def reduces_edges() -> bool:
    """Return whether the code runs inside :func:`among_edges`."""
    return _among_edges.get()


def may_be_divided() -> bool:
    """Return whether rows here may be a part of all rows; never in :func:`alone` or in a single process.

    The result is True in a converted model, and outside of one while a graph over several processes is in
    use.
    """
    # Compiled code never gets a part, because the edges of a part refuse to be compiled.
    if torch.compiler.is_compiling():
        return False
    now = _now.get()
    return now.ranks > 1 if now is not None else bool(held_graphs) and dist.is_initialized()


def processes_of(name: str) -> Processes:
    """Return the processes that divide the rows of a function, where rows :func:`may_be_divided`.

    Raises an ArgumentError that begins with the function's name if no converted model is running.
    """
    now = _now.get()
    if now is None:
        raise ArgumentError(
            f"x: {name} needs to know whether its rows are a part of the divided graph that this process "
            "holds, and was called outside of the forward of a converted model. Call model = "
            "onehop.distributed.convert(model, graph), and then the model; if these rows do not belong to "
            "the divided graph, run it inside 'with onehop.distributed.alone():'."
        )
    return now
