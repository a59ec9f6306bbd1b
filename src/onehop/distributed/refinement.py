"""Moves of single nodes to the parts with most of their neighbours, as far as these parts have room."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from onehop.distributed.loads import admitted, limits, loads, loads_of
from onehop.distributed.numbering import edges_of
from onehop.graph import Graph

# Rounds of moving single nodes; the first four give most of the gain.
_ROUNDS = 12
# Neighbour counts (nodes times parts) that are computed at a time.
_COUNTS = 1 << 24


class Wishes(NamedTuple):
    """The best part for each of some nodes.

    ``goal``, [nodes] of int64, is the best part. ``gain``, [nodes] of int64, is the number of the node's
    neighbours there, minus the number of its neighbours in its own part.
    """

    gain: Tensor
    goal: Tensor


class BothWays(NamedTuple):
    """A graph and its reverse: a node's neighbours are its sources and its targets."""

    graph: Graph
    turned: Graph


def refined(both: BothWays, part: Tensor, parts: int, seed: int) -> Tensor:
    """Return the parts, [N] of int32, with fewer cut edges.

    Parts within :func:`onehop.distributed.loads.limits` stay within them. The seed determines which nodes may
    move in each round.
    """
    graph = both.graph
    chance = torch.Generator().manual_seed(seed)
    everyone = torch.arange(graph.num_dst, device="cpu")
    most = limits(graph.num_dst, graph.num_edges, parts)
    best, fewest = part, cut_edges(graph, part)
    for _ in range(_ROUNDS):
        part = part.clone()
        # Only half of the nodes may move in each round: if neighbours moved at the same time, they could just
        # swap places.
        may_move = torch.rand(len(part), generator=chance, device="cpu") < 0.5
        wishes = wishes_of(both, everyone, part, parts)
        move(graph, part, wishes.goal, wishes.gain.masked_fill_(~may_move, 0), most)
        now = cut_edges(graph, part)
        if now >= fewest:
            break
        best, fewest = part, now
    return best


def cut_edges(graph: Graph, part: Tensor) -> int:
    """Return the number of edges whose ends are in different parts."""
    target = torch.repeat_interleave(part, graph.in_degrees)
    return int((part.index_select(0, graph.col) != target).sum())


def wishes_of(
    both: BothWays, nodes: Tensor, part: Tensor, parts: int, closed: Tensor | None = None
) -> Wishes:
    """Return the part with most of their neighbours for some nodes, [nodes] of int64.

    ``part``, [N] of int32, has the parts of all nodes. ``closed``, [parts] of bool, marks parts that may not
    be goals; at least one part must be open.
    """
    gains, goals = [], []
    for chunk in nodes.split(max(_COUNTS // parts, 1)):
        table = torch.zeros(len(chunk) * parts, dtype=torch.int64, device="cpu")
        for key in _neighbours(both, chunk, part, parts):
            table += torch.bincount(key, minlength=len(table))
        table = table.view(-1, parts)
        current = table.gather(1, part[chunk, None].long()).squeeze(1)
        most, goal = (table if closed is None else table.masked_fill(closed, -1)).max(1)
        gains.append(most - current)
        goals.append(goal)
    return Wishes(torch.cat(gains), torch.cat(goals))


def _neighbours(both: BothWays, nodes: Tensor, part: Tensor, parts: int) -> Iterator[Tensor]:
    """Yield, for each direction, a number per neighbour: its node's position times parts, plus its part."""
    for graph in both:
        edges, counts = edges_of(graph.rowptr.numpy(), nodes.numpy())
        of_part = part.index_select(0, graph.col.index_select(0, torch.from_numpy(edges)))
        yield torch.from_numpy(np.repeat(np.arange(len(nodes)) * parts, counts)) + of_part


def move(graph: Graph, part: Tensor, goal: Tensor, gain: Tensor, most: Tensor) -> None:
    """Move nodes that gain, the largest gain first, into parts that have room for their rows and edges.

    Changes ``part``, [N] of int32, in place. ``goal`` and ``gain`` are [N], int64; ``most``, [2], has the
    maximum loads.
    """
    # Nodes that leave make no room for nodes that arrive at the same time.
    load = loads(graph, part, max(int(goal.max()), int(part.max())) + 1)
    nodes = (gain > 0).nonzero().squeeze(1)
    nodes = nodes[gain[nodes].sort(descending=True, stable=True).indices]
    ordered, by_goal = goal[nodes].sort(stable=True)
    nodes = nodes[by_goal]
    fits = admitted(ordered, loads_of(graph.in_degrees[nodes]), load, most)
    part[nodes[fits]] = ordered[fits].int()
