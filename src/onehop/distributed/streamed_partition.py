"""A streaming partitioner: edges are read block after block, with a few numbers for every node in memory.

Linear deterministic greedy (Stanton and Kliot, KDD 2012): a node goes to the part with most of its
neighbours, each part's count multiplied by its share of free room. The graph is streamed several times; from
the second pass on all neighbours have a part already (Nishimura and Ugander, KDD 2013).
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

# The first row of a block, the numbers of edges of its rows, and their sources.
Blocks = Iterable[tuple[int, Tensor, Tensor]]

# The gain of a further pass is small from here on.
_PASSES = 4
# Largest work of a part, relative to the mean.
_IMBALANCE = 1.05
# A node without placed neighbours goes to the part with most room.
_ALONE = 1e-3


def streamed(blocks: Callable[[], Blocks], degrees: Tensor, parts: int) -> Tensor:
    """The part of every node; see :func:`onehop.distributed.partition`.

    Args:
        blocks: Iterates over the rows once more. Nodes of one block are placed together, by the state before
            it, so blocks should be a small share of the graph.
        degrees: [N], number of edges that end in each node.
        parts: Number of parts.

    Returns:
        [N], int32.
    """
    work = (1 + degrees).double()
    most = float(work.sum()) / parts * _IMBALANCE
    # The last number stands for no part yet.
    part = torch.full((len(degrees),), parts, dtype=torch.int32, device="cpu")
    load = torch.zeros(parts, dtype=torch.float64, device="cpu")
    for _ in range(_PASSES):
        for first, counts, col in blocks():
            rows = slice(first, first + len(counts))
            before = part[rows]
            placed = before < parts
            load.index_add_(0, before[placed], -work[rows][placed])
            near = _neighbours(counts, part[col.long()], parts)
            score = (near + _ALONE) * (1 - load / most).clamp_(min=0)
            part[rows] = _placed(score, work[rows], load, most)
    return part


def _neighbours(counts: Tensor, part: Tensor, parts: int) -> Tensor:
    """Return [rows, parts]: the number of each row's sources in each part."""
    row = torch.repeat_interleave(torch.arange(len(counts), device="cpu"), counts)
    found = torch.bincount(row * (parts + 1) + part, minlength=len(counts) * (parts + 1))
    return found.view(-1, parts + 1)[:, :parts].double()


def _placed(score: Tensor, work: Tensor, load: Tensor, most: float) -> Tensor:
    """Return [rows]: the best part of each row with room for it, clearest rows first; updates ``load``."""
    parts = len(load)
    goal = torch.empty(len(score), dtype=torch.int32, device="cpu")
    waiting = score.max(1).values.argsort(descending=True, stable=True)
    for _ in range(parts):
        wanted = score[waiting].argmax(1)
        left = []
        for number in range(parts):
            rows = waiting[wanted == number]
            fits = work[rows].cumsum(0) + load[number] <= most
            goal[rows[fits]] = number
            load[number] += work[rows[fits]].sum()
            score[rows[~fits], number] = -1.0
            left.append(rows[~fits])
        waiting = torch.cat(left)
        if not len(waiting):
            return goal
    # Rows with more edges than any part has room for.
    for row in waiting.tolist():
        emptiest = int(load.argmin())
        goal[row] = emptiest
        load[emptiest] += work[row]
    return goal
