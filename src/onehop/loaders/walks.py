"""Random walks of first order, and of second order with any return and in-out parameter."""

import math

import torch
from torch import Tensor

from onehop.errors import ArgumentError, IndexRangeError
from onehop.graph.identity import remembered
from onehop.loaders.relation import sums_along_rows
from onehop.native import CPU, address, extension, threads

# Number of proposals per step before all neighbours are considered; with a tiny weight, few proposals are
# accepted.
_PROPOSALS = 32
_DAMAGED = "rowptr, col: expected bounds that ascend from 0 to {edges}, and nodes in [0, {nodes})."


def random_walk(
    rowptr: Tensor,
    col: Tensor,
    start: Tensor,
    length: int,
    p: float = 1.0,
    q: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """Walk along edges drawn at random; a walk that reaches a node without edges stays there.

    Args:
        rowptr: [N + 1], int64 or int32: the bounds of each node's neighbours.
        col: [E], of the same dtype: the neighbours.
        start: [W], integers: the first nodes.
        length: Number of steps after the first node.
        p: The return parameter: the way back to the previous node has weight 1 / p.
        q: The in-out parameter: a way to a node that is not a neighbour of the previous node has weight 1 /
            q.
        weight: [E], at least 0: a step takes an edge in proportion to its weight, multiplied by the weight
            from p or q. A walk stays at a node whose edges all have weight 0. None means that all edges have
            equal weight.

    Returns:
        [W, length + 1], of the dtype of ``rowptr``. torch's generator draws the seed; the result does not
        depend on the number of threads.

    Raises:
        ArgumentError: ``length`` is negative, p or q is not positive and finite, a dtype or a shape does not
            fit, or a weight is negative or not finite.
        IndexRangeError: A start or a neighbour is not a node, or ``rowptr`` does not ascend.

    Source: Grover and Leskovec, node2vec (arXiv 1607.00653), section 3.2. Steps of second order are drawn
    without tables: steps of first order are proposed until one is accepted (Yang et al., KnightKing, SOSP
    2019).
    """
    if length < 0:
        raise ArgumentError(f"length: expected at least 0, got {length}.")
    if not (0 < p < math.inf and 0 < q < math.inf):
        raise ArgumentError(f"p, q: expected positive finite numbers, got {p} and {q}.")
    if rowptr.dtype not in (torch.int64, torch.int32) or col.dtype is not rowptr.dtype:
        raise ArgumentError(
            f"rowptr, col: expected int64 or int32 for both, got {rowptr.dtype}, {col.dtype}."
        )
    nodes = rowptr.numel() - 1
    start = start.to(torch.int64, copy=True)  # native code reads the copy that is checked here
    wrong = ((start < 0) | (start >= nodes)).nonzero()
    if wrong.numel():
        entry = int(wrong[0])
        raise IndexRangeError(f"start: entry {entry} is {int(start[entry])}, which is not in [0, {nodes}).")
    rowptr, col = rowptr.contiguous(), col.contiguous()
    graph, options = extension.WalkedGraph(), extension.WalkOptions()
    graph.rowptr, graph.col, graph.nodes, graph.edges = address(rowptr), address(col), nodes, col.numel()
    graph.narrow = rowptr.dtype is torch.int32
    if weight is not None:
        running = _running(rowptr, weight, col.numel())
        graph.running = address(running)
    if not p == q == 1:
        columns = col if (found := _sorted(rowptr, col)) is None else found
        graph.sorted, options.second, options.proposals = address(columns), True, _PROPOSALS
        options.back, options.out = 1 / p, 1 / q
    options.key = int(torch.randint(2**62, (), device=CPU))
    options.length = length
    walks = torch.empty(start.size(0), length + 1, dtype=rowptr.dtype, device=CPU)
    walks[:, 0] = start
    if not extension.walk(graph, options, walks.size(0), address(walks), threads()):
        raise IndexRangeError(_DAMAGED.format(edges=col.numel(), nodes=nodes))
    return walks


def _sorted(rowptr: Tensor, col: Tensor) -> Tensor | None:
    """Return each node's neighbours in ascending order, cached until edges change; None means ``col``."""

    def columns() -> tuple[Tensor | None]:
        edges, counts = col.numel(), rowptr.diff()
        if int(rowptr[0]) or int(rowptr[-1]) != edges or bool((counts < 0).any()):
            raise IndexRangeError(_DAMAGED.format(edges=edges, nodes=counts.numel()))
        ascends = col.diff() >= 0
        begins = rowptr[(rowptr > 0) & (rowptr < edges)].long() - 1
        ascends[begins] = True
        if bool(ascends.all()):
            return (None,)
        rows = torch.repeat_interleave(counts.long())
        order = col.argsort(stable=True)
        return (col[order[rows[order].argsort(stable=True)]],)

    (found,) = remembered(rowptr, col, key="sorted columns of walks", make=columns)
    return found


def _running(rowptr: Tensor, weight: Tensor, edges: int) -> Tensor:
    """Return [E], float64: cumulative weights along each row, cached while the weights do not change."""
    if weight.shape != (edges,):
        raise ArgumentError(f"weight: expected shape [{edges}], got {list(weight.shape)}.")

    def sums() -> Tensor:
        weights = weight.detach().double().contiguous()
        if not bool(((weights >= 0) & weights.isfinite()).all()):
            raise ArgumentError("weight: expected finite numbers of at least 0.")
        return sums_along_rows(rowptr.long(), weights, "rowptr")

    return remembered(rowptr, weight, key="sums of walks", make=sums)
