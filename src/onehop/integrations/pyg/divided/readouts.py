"""Read-outs, which make one row of all nodes' rows: an error in a converted model.

After one, every process would compute its loss from the same row, and what such losses add up to is the
program's to say: a sum over the processes that is written out says it.
"""

import types
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch_geometric.nn.aggr import Aggregation
from torch_geometric.nn.pool import glob

from onehop.distributed.converted import may_be_divided, reduces_edges
from onehop.errors import ArgumentError
from onehop.integrations.rows import Row, stand_in


def rows() -> list[Row]:
    """The table's rows."""
    functions = {
        glob.global_add_pool: _global_add_pool,
        glob.global_mean_pool: _global_mean_pool,
        glob.global_max_pool: _global_max_pool,
    }
    _theirs.update({theirs.__name__: _copy(theirs) for theirs in functions})
    return [
        *(_CodeRow(theirs, "__code__", ours.__code__, theirs.__code__) for theirs, ours in functions.items()),
        Row(Aggregation, "__call__", _aggregating(Aggregation.__call__), Aggregation.__call__),
    ]


_theirs: dict[str, Callable[..., Tensor]] = {}


class _CodeRow(Row):
    """The code of a function, which models may hold by any name, as in ``self.pool = global_mean_pool``."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The dotted name of the function."""
        return f"{self.owner.__module__}.{self.owner.__name__}"

    def install(self) -> None:
        """Sets ours. TorchScript, which compiles source text, goes on finding theirs."""
        self.owner.__code__ = self.ours
        self.owner.__wrapped__ = _theirs[self.owner.__name__]

    def restore(self) -> None:
        """Sets theirs, unless somebody else has set something on top of ours."""
        if self.owner.__code__ is self.ours:
            self.owner.__code__ = self.theirs
            del self.owner.__wrapped__


def _copy(function: Any) -> Callable[..., Tensor]:
    return types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__
    )


# The code of these three runs as the code of theirs, so that it sees the names of their module alone.
def _global_add_pool(x, batch, size=None):  # type: ignore[no-untyped-def]
    from onehop.integrations.pyg.divided.readouts import pooled

    return pooled("global_add_pool", x, batch, size)


def _global_mean_pool(x, batch, size=None):  # type: ignore[no-untyped-def]
    from onehop.integrations.pyg.divided.readouts import pooled

    return pooled("global_mean_pool", x, batch, size)


def _global_max_pool(x, batch, size=None):  # type: ignore[no-untyped-def]
    from onehop.integrations.pyg.divided.readouts import pooled

    return pooled("global_max_pool", x, batch, size)


def pooled(name: str, x: Any, batch: Any, size: Any) -> Tensor:
    """Return what PyG's function of this name does.

    Raises:
        ArgumentError: The rows may be a part of a divided graph.
    """
    if may_be_divided():
        raise _refused(name)
    return _theirs[name](x, batch, size)


def _aggregating(theirs: Callable[..., Any]) -> Callable[..., Any]:
    divided, among_edges, refused = may_be_divided, reduces_edges, _refused

    def __call__(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        if divided() and not among_edges():
            raise refused(type(self).__name__)
        return theirs(self, *args, **kwargs)

    return stand_in(theirs, __call__)


def _refused(name: str) -> ArgumentError:
    return ArgumentError(
        f"x: {name} makes one row of the rows of all nodes, of which each process of a divided graph has a "
        "part. Add them up with onehop.distributed.sum_over_processes(x.sum(0)) and divide the loss that "
        "every rank computes from it by the number of processes; if these rows or edges do not belong to "
        "the divided graph, run it inside 'with onehop.distributed.alone():'."
    )
