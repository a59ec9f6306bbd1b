"""Balance of rows and of edges: nodes leave parts that have too many, at the least loss of near neighbours.

Parts of equal work may differ many times in rows: a part of hubs has few. Parts with too many rows give up
nodes with few edges, and parts with too many edges give up nodes with many, in turns. Neither disturbs much
of what the other has balanced, so a few turns do.
"""

import torch
from torch import Tensor

from onehop.distributed.loads import IMBALANCE, admitted, limits, loads, loads_of, sums_before
from onehop.distributed.refinement import BothWays, wishes_of

_ROWS, _EDGES = 0, 1
_TURNS = 10
# Nodes that found their goal full look for another so many times in a turn.
_TRIES = 4


def balanced(both: BothWays, part: Tensor, parts: int) -> Tensor:
    """Parts within :func:`onehop.distributed.loads.limits`, or as near to them as was found.

    Args:
        both: The graph.
        part: [N], int32.
        parts: Number of parts.

    Returns:
        [N], int32. A node with more edges than a part may have leaves its part too large.
    """
    graph = both.graph
    most = limits(graph.num_dst, graph.num_edges, parts)
    best, least = part, _fullest(both, part, parts, most)
    for _ in range(_TURNS):
        if least <= 1:
            break
        for kind in (_ROWS, _EDGES):
            for _ in range(_TRIES):
                part, moved = _relieved(both, part, parts, kind, float(most[kind]))
                if not moved:
                    break
        fullest = _fullest(both, part, parts, most)
        if fullest < least:
            best, least = part, fullest
    return best


def _fullest(both: BothWays, part: Tensor, parts: int, most: Tensor) -> float:
    """The largest load, relative to its limit."""
    return float((loads(both.graph, part, parts) / most).max())


def _relieved(both: BothWays, part: Tensor, parts: int, kind: int, most: float) -> tuple[Tensor, int]:
    """Moves nodes out of parts that have too many rows, or edges; returns the parts and how many moved."""
    graph = both.graph
    load = loads(graph, part, parts)[:, kind]
    over = load > most
    if not bool(over.any()):
        return part, 0
    typical = graph.num_edges / graph.num_dst
    work = loads_of(graph.in_degrees)[:, kind]
    degrees = graph.in_degrees
    suits = degrees <= typical if kind == _ROWS else degrees >= max(typical, 1)
    # Somewhat below the limit, so that what comes in other turns has room.
    goal_load = most * (1 + 1 / IMBALANCE) / 2
    suits &= (work <= most - float(load.min())) & over[part.long()]
    nodes = suits.nonzero().squeeze(1)
    gain, goal = wishes_of(both, nodes, part, parts, load >= goal_load)
    # Those for which the goal has room, by their loss for what they relieve.
    order = (-gain / work[nodes]).sort(stable=True).indices
    order = order[work[nodes[order]] <= most - load[goal[order]]]
    donor, by_donor = part[nodes[order]].long().sort(stable=True)
    order = order[by_donor]
    before = sums_before(donor, work[nodes[order], None], parts).squeeze(1)
    order = order[before < (load - goal_load)[donor]]
    wanted, by_goal = goal[order].sort(stable=True)
    order = order[by_goal]
    limit = torch.tensor([most], device="cpu")
    fits = admitted(wanted, work[nodes[order], None], load[:, None], limit)
    part = part.clone()
    part[nodes[order[fits]]] = wanted[fits].int()
    return part, int(fits.sum())
