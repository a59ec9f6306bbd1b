"""A streaming partitioner: edges are read block after block, with a few numbers for every node in memory.

Linear deterministic greedy (Stanton and Kliot, KDD 2012): a node goes to the part with most of its
neighbours, each part's count multiplied by its share of free room, of rows or of edges, whichever is scarcer.
The graph is streamed several times; from the second pass on all neighbours have a part already (Nishimura and
Ugander, KDD 2013).
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from onehop.distributed.loads import admitted, limits, loads_of

# The first row of a block, the numbers of edges of its rows, and their sources.
Blocks = Iterable[tuple[int, Tensor, Tensor]]

# The gain of a further pass is small from here on.
_PASSES = 4
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
    most = limits(len(degrees), int(degrees.sum()), parts)
    # The last number stands for no part yet.
    part = torch.full((len(degrees),), parts, dtype=torch.int32, device="cpu")
    load = torch.zeros(parts, 2, dtype=torch.int64, device="cpu")
    for _ in range(_PASSES):
        for first, counts, col in blocks():
            rows = slice(first, first + len(counts))
            before, work = part[rows], loads_of(counts)
            placed = before < parts
            load.index_add_(0, before[placed], -work[placed])
            near = _neighbours(counts, part.index_select(0, col), parts)
            room = 1 - (load / most).max(1).values
            part[rows] = _placed((near + _ALONE) * room.clamp_(min=0), work, load, most)
    return part


def _neighbours(counts: Tensor, part: Tensor, parts: int) -> Tensor:
    """Return [rows, parts]: the number of each row's sources in each part."""
    row = torch.repeat_interleave(torch.arange(len(counts), device="cpu"), counts)
    found = torch.bincount(row * (parts + 1) + part, minlength=len(counts) * (parts + 1))
    return found.view(-1, parts + 1)[:, :parts].double()


def _placed(score: Tensor, work: Tensor, load: Tensor, most: Tensor) -> Tensor:
    """Places the rows of a block, clearest rows first.

    Args:
        score: [rows, parts], how well each part suits; spoiled.
        work: [rows, 2], rows and edges of each.
        load: [parts, 2], those of each part; updated.
        most: [2], the largest load.

    Returns:
        [rows], int32: the best part of each row with room for it.
    """
    parts = len(load)
    goal = torch.empty(len(score), dtype=torch.int32, device="cpu")
    waiting = score.max(1).values.argsort(descending=True, stable=True)
    for _ in range(parts):
        wanted, by_part = score[waiting].argmax(1).sort(stable=True)
        rows = waiting[by_part]
        fits = admitted(wanted, work[rows], load, most)
        goal[rows[fits]] = wanted[fits].int()
        load.index_add_(0, wanted[fits], work[rows[fits]])
        waiting = rows[~fits]
        if not len(waiting):
            return goal
        score[waiting, wanted[~fits]] = -1.0
    # Rows with more edges than any part has room for.
    for row in waiting.tolist():
        emptiest = int((load / most).max(1).values.argmin())
        goal[row] = emptiest
        load[emptiest] += work[row]
    return goal
