"""Functions of converted models that raise an error, because they need the rows of all nodes in one place.

Read-outs make one row of all nodes' rows. After one, every process would compute its loss from the same row,
and only the program knows how to add such losses up; a sum over the processes states it. Some layers
mix all nodes in ways that have no path over several processes. Layers that compute with the edges themselves
are not among them: a part's edges refuse that.
"""

import importlib
import types
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from torch import Tensor
from torch_geometric.nn import HeteroBatchNorm
from torch_geometric.nn.aggr import Aggregation
from torch_geometric.nn.pool import glob

from onehop.distributed.converted import may_be_divided, reduces_edges
from onehop.errors import ArgumentError
from onehop.integrations.rows import Row, replacing

_REFUSED = (
    ("torch.nn", "MultiheadAttention", "forward"),
    ("torch_geometric.nn", "DeepGraphInfomax", "forward"),
    ("torch_geometric.nn", "CorrectAndSmooth", "correct"),
    ("torch_geometric.nn", "LPFormer", "forward"),
    ("torch_geometric.nn", "PANPooling", "forward"),
    ("torch_geometric.nn", "MemPooling", "forward"),
    ("torch_geometric.nn", "HeteroBatchNorm", "forward"),
    ("torch_geometric.nn", "DiffGroupNorm", "group_distance_ratio"),
    ("torch_geometric.nn.models", "RECT_L", "get_semantic_labels"),
    ("torch_geometric.nn.attention", "PerformerAttention", "forward"),
    ("torch_geometric.nn.attention", "SGFormerAttention", "forward"),
    ("torch_geometric.nn.attention", "PolynormerAttention", "forward"),
    ("torch_geometric.nn.attention", "QFormer", "forward"),
)


def rows() -> list[Row]:
    """The rows of the patch table, for the classes that this PyG has."""
    pools = {
        glob.global_add_pool: _global_add_pool,
        glob.global_mean_pool: _global_mean_pool,
        glob.global_max_pool: _global_max_pool,
    }
    _theirs.update({theirs.__name__: _copy(theirs) for theirs in pools})
    rows = [
        *(_CodeRow(theirs, "__code__", ours.__code__, theirs.__code__) for theirs, ours in pools.items()),
        replacing(Aggregation, "__call__", _aggregate, where=may_be_divided),
    ]
    for module, name, method in _REFUSED:
        kind = getattr(importlib.import_module(module), name, None)
        if kind is not None:
            whole = name if method == "forward" else f"{name}.{method}"
            rows.append(replacing(kind, method, partial(_mix, whole), where=may_be_divided))
    return rows


def _mix(name: str, theirs: Any, layer: Any = None, *args: Any, **kwargs: Any) -> None:
    """Refuses a layer that mixes rows; HeteroBatchNorm may be set up to treat each row on its own."""
    if not isinstance(layer, HeteroBatchNorm) or not layer.track_running_stats or layer.training:
        raise ArgumentError(
            f"x: {name} mixes rows and has no path over several processes, where each has a part of them. "
            "Use another layer, or one process with the whole graph; if these rows do not belong to the "
            "divided graph, call it inside 'with onehop.distributed.alone():'."
        )


def _aggregate(theirs: Any, module: Any, *args: Any, **kwargs: Any) -> None:
    """Refuses an aggregation module, except inside a layer that reduces the messages of its edges."""
    if not reduces_edges():
        _refuse_readout(type(module).__name__)


def _refuse_readout(name: str) -> NoReturn:
    raise ArgumentError(
        f"x: {name} makes one row of the rows of all nodes, of which each process of a divided graph has a "
        "part. Add them up with onehop.distributed.sum_over_processes(x.sum(0)) and divide the loss that "
        "every rank computes from it by the number of processes; if these rows or edges do not belong to "
        "the divided graph, run it inside 'with onehop.distributed.alone():'."
    )


_theirs: dict[str, Callable[..., Tensor]] = {}


class _CodeRow(Row):
    """The code of a function that models may hold by any name, as in ``self.pool = global_mean_pool``."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The dotted name of the function."""
        return f"{self.owner.__module__}.{self.owner.__name__}"

    def install(self) -> None:
        """Sets ours. TorchScript, which compiles source text, still finds theirs."""
        self.owner.__code__ = self.ours
        self.owner.__wrapped__ = _theirs[self.owner.__name__]

    def restore(self) -> None:
        """Sets theirs, unless other code has replaced ours since."""
        if self.owner.__code__ is self.ours:
            self.owner.__code__ = self.theirs
            del self.owner.__wrapped__


def _copy(function: Any) -> Callable[..., Tensor]:
    return types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__
    )


# Their code becomes the code of PyG's functions, which sees the names of PyG's module only.
def _global_add_pool(x, batch, size=None):  # type: ignore[no-untyped-def]
    from onehop.integrations.pyg.divided.refusals import pooled

    return pooled("global_add_pool", x, batch, size)


def _global_mean_pool(x, batch, size=None):  # type: ignore[no-untyped-def]
    from onehop.integrations.pyg.divided.refusals import pooled

    return pooled("global_mean_pool", x, batch, size)


def _global_max_pool(x, batch, size=None):  # type: ignore[no-untyped-def]
    from onehop.integrations.pyg.divided.refusals import pooled

    return pooled("global_max_pool", x, batch, size)


def pooled(name: str, x: Any, batch: Any, size: Any) -> Tensor:
    """Runs PyG's function of this name.

    Raises:
        ArgumentError: The rows may be a part of a divided graph.
    """
    if may_be_divided():
        _refuse_readout(name)
    return _theirs[name](x, batch, size)
