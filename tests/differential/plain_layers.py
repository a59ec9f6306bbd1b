"""Layers without PyG: torch's own gathers and scatters over the ends of edges."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import Linear, Module

GATHERS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "index": lambda x, at: x[at],
    "index of rows": lambda x, at: x[at, :],
    "from the end": lambda x, at: x[at - len(x)],
    "select": lambda x, at: x.index_select(0, at),
    "gather": lambda x, at: x.gather(0, _entries(at, x)),
    "view": lambda x, at: x.view(len(x), 2, -1)[at].flatten(1),
    "columns": lambda x, at: x.t().contiguous()[:, at].t(),
    "in the middle": lambda x, at: x.view(1, len(x), -1)[..., at, :].squeeze(0),
}
SCATTERS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "add": lambda out, at, rows: out.index_add(0, at, rows),
    "add in place": lambda out, at, rows: out.index_add_(0, at, rows),
    "scatter": lambda out, at, rows: out.scatter_add(0, _entries(at, rows), rows),
    "scatter in place": lambda out, at, rows: out.scatter_add_(0, _entries(at, rows), rows),
    "mean": lambda out, at, rows: out.scatter_reduce(0, _entries(at, rows), rows, "mean", include_self=False),
    "max": lambda out, at, rows: out.scatter_reduce(0, _entries(at, rows), rows, "amax"),
    "min in place": lambda out, at, rows: out.scatter_reduce_(
        0, _entries(at, rows), rows, "amin", include_self=False
    ),
}


def _entries(at: Tensor, rows: Tensor) -> Tensor:
    # torch gathers and scatters wrongly with 32 bits.
    return at.long().view(-1, 1).expand(-1, rows.size(1))


class Indexing(Module):
    """A user's own layer, which gathers and scatters with torch alone."""

    def __init__(
        self, inp: int, out: int, gather: str = "index", scatter: str = "add", into: str = "zeros"
    ) -> None:
        super().__init__()
        self.lin = Linear(inp, 2 * out)
        self.gather, self.scatter, self.into = gather, scatter, into

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        rows = self.lin(x)
        source, target = edge_index
        taken = GATHERS[self.gather](rows, source)
        both = (taken * torch.sigmoid(rows[target])).relu()
        out = rows.new_zeros(rows.shape) if self.into == "zeros" else rows * 0.5
        out = SCATTERS[self.scatter](out, target, both)
        return out[:, ::2] + out[:, 1::2].tanh()
